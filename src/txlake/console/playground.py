"""Small lakes to play with: two or three sessions side by side, stepped through a timeline.

Each is a real lake in a temporary folder, whose statements this process carries out without Spark.
Owns the lakes and their ends, what is asked of which session, and the picture after each step:
sessions, locks, tables. What is shown of it, and how, is the page's business.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from txlake.catalog import TableEntry
from txlake.catalog.locks import LockEntry
from txlake.commands import COMMANDS
from txlake.conflict.levels import parse_level, strictest
from txlake.conflict.locking import LockStatus, Resource, ResourceType
from txlake.console.players import ROWS_MAX, Answered, Asked, Player, Told
from txlake.console.timelines import LEVELS, TIMELINES, Outcome, Row, Step, Timeline
from txlake.errors import InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.membership.connecting import session_on
from txlake.server.refusals import refusal
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.transaction import State as TransactionState
from txlake.sql import parse
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT_MAX = 4_000
"""Characters of what is asked at once."""
MOMENTS_MAX = 200
"""Statements of one lake."""

_TABLES_MAX = 8
_SETTLE_MS = 5_000
_POLL_S = 0.005
_END_S = 10.0
_SHARED_MEMORY = "/dev/shm"
_PREFIX = "txlake-playground-"


class Standing(Enum):
    """What a session does; the values are how it is told."""

    IDLE = "idle"
    OPEN = "in a transaction"
    WAITS = "waits for a lock"
    RUNS = "runs"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPicture:
    """A session after a step.

    Attributes:
        number: as `sys.dm_tran_locks` has it.
        level: the one in force.
        instant: that its transaction reads; None before its first read, and without one.
        versions: of each table that its transaction has opened, the version that it reads; -1 of
            one that it makes.
        waits_for: the lock, and who is in the way; empty unless it waits.
        error: what it lost with.
    """

    name: str
    number: int
    standing: Standing
    level: str
    instant: int | None
    versions: Mapping[str, int]
    waits_for: str
    error: Told | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockPicture:
    """A row of `sys.dm_tran_locks`, with names for its numbers."""

    session: str
    type: str
    what: str
    mode: str
    status: str
    blocked_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePicture:
    """A table as it is committed. `rows`: None where they can't be shown."""

    name: str
    version: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...] | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A lake after a step. `instant`: the newest."""

    instant: int
    sessions: tuple[SessionPicture, ...]
    locks: tuple[LockPicture, ...]
    tables: tuple[TablePicture, ...]


class Ending(Enum):
    """What became of a statement; the values are how it is told."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "not carried out"
    SKIPPED = "skipped"
    WAITS = "waits"
    RUNS = "runs"


@dataclass(slots=True, kw_only=True)
class Moment:
    """A statement that was asked of a session.

    Attributes:
        number: from 1, in the order of asking.
        step: the timeline's, from 1; None for one of the visitor's own.
        refused: why it wasn't even asked.
        waited_for: the lock that it waited for, whether or not it has it now.
        ended_at: the moment at which it ended, which is its own unless it waited.
        after: the lake after it.
    """

    number: int
    session: str
    sql: str
    step: int | None = None
    asked: Asked | None = None
    refused: str | None = None
    waited_for: str = ""
    ended_at: int | None = None
    after: Picture | None = None

    @property
    def ending(self) -> Ending:
        if self.refused is not None:
            return Ending.REFUSED
        if self.asked is None:
            return Ending.SKIPPED
        if not self.asked.is_done:
            return Ending.WAITS if self.waited_for else Ending.RUNS
        return Ending.FAILED if self.asked.error is not None else Ending.DONE

    @property
    def answer(self) -> Answered | None:
        return None if self.asked is None or not self.asked.is_done else self.asked.answer

    @property
    def error(self) -> Told | None:
        return None if self.asked is None or not self.asked.is_done else self.asked.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A playground as it is now.

    Attributes:
        next: the number of the timeline's next step; None after the last one.
        next_waits: whether its session is still busy, so that it can't be taken yet.
        is_expected: whether it ended as the timeline says; None before the end, and where the
            visitor's own statements took part.
    """

    timeline: Timeline
    level: str
    outcome: Outcome
    moments: Sequence[Moment]
    picture: Picture
    next: int | None
    next_waits: bool
    is_expected: bool | None


def no_spark() -> SparkSession:
    """What a playground's lake gets in place of a Spark session. Raises InvalidRequest."""
    raise InvalidRequest(
        "the playground runs without Spark: this needs it. Here go SELECT of columns, or *, from "
        "one table with a plain WHERE; INSERT ... VALUES; UPDATE and DELETE with a plain WHERE; "
        "CREATE, ALTER and DROP TABLE; transactions, levels and locks"
    )


class Playground:
    """One lake and its sessions. Safe to use from many threads, which take turns."""

    def __init__(self, timeline: str, level: str) -> None:
        self._turn = threading.RLock()
        self._is_closed = False
        self._lake = _Lake(*_known(timeline, level))

    def step(self) -> None:
        """Asks the timeline's next step of its session; a lock isn't waited for.

        A step of a session that has lost its transaction is skipped.

        Raises InvalidRequest: there are no more steps, too many statements were asked, or the
        session still waits.
        """
        with self._open() as lake:
            lake.step()

    def finish(self) -> None:
        """Takes all remaining steps, or those before one whose session waits for a lock."""
        with self._open() as lake:
            while not lake.is_ended and not lake.next_waits:
                lake.step()

    def run(self, session: str, sql: str) -> None:
        """Asks a statement of the visitor's own, or a script of them, of a session.

        What isn't served to anybody, or isn't understood, is told in its moment.

        Raises InvalidRequest: no text or too long a one, an unknown session, or as `step`.
        """
        with self._open() as lake:
            lake.run(session, sql)

    def reset(self, timeline: str, level: str) -> None:
        """Begins anew, with an empty lake. Raises InvalidRequest for an unknown timeline or level.

        What is open is rolled back, and who waits is let go.
        """
        asked = _known(timeline, level)
        with self._open() as lake:
            made = _Lake(*asked)
            self._lake = made
            lake.close()

    def shown(self) -> Shown:
        """What it looks like now."""
        with self._open() as lake:
            return lake.shown()

    def close(self) -> None:
        """Ends the sessions and removes the lake's folder."""
        with self._turn:
            if not self._is_closed:
                self._is_closed = True
                self._lake.close()

    @property
    def folder(self) -> Path:
        """Where the lake is."""
        return self._lake.folder

    @contextmanager
    def _open(self) -> Iterator[_Lake]:
        """The lake, for one caller at a time."""
        with self._turn:
            if self._is_closed:
                raise InvalidRequest("this playground was idle for long and has ended; begin anew")
            yield self._lake


class Playgrounds:
    """The playgrounds of one console, one for each browser. Safe to use from many threads.

    `count_max`: how many there may be; `idle_ms`: how long one is kept that nobody uses.
    """

    def __init__(
        self,
        monotonic_ms: Callable[[], float] | None = None,
        *,
        count_max: int = 16,
        idle_ms: int = 15 * 60_000,
    ) -> None:
        self._now_ms = monotonic_ms or System().monotonic_ms
        self._count_max = count_max
        self._idle_ms = idle_ms
        self._open: dict[str, tuple[Playground, float]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._sweeper: threading.Thread | None = None

    def find(self, key: str) -> Playground | None:
        """A browser's; None where it has none, or had it too long ago."""
        self.sweep()
        with self._lock:
            found = self._open.get(key)
            if found is None:
                return None
            self._open[key] = (found[0], self._now_ms())
            return found[0]

    def begin(self, key: str, timeline: str, level: str) -> Playground:
        """A browser's, at the beginning of a timeline.

        Raises InvalidRequest for an unknown timeline or level, and where there are too many.
        """
        found = self.find(key)
        if found is not None:
            found.reset(timeline, level)
            return found
        self._require_room()
        made = Playground(timeline, level)
        try:
            with self._lock:
                self._check_room()
                # The browser may have sent its form twice.
                other = self._open.pop(key, None)
                self._open[key] = (made, self._now_ms())
                if self._sweeper is None:
                    self._sweeper = threading.Thread(
                        target=self._sweep_often, name="playground sweeper", daemon=True
                    )
                    self._sweeper.start()
        except BaseException:
            made.close()
            raise
        if other is not None:
            other[0].close()
        return made

    def _require_room(self) -> None:
        with self._lock:
            self._check_room()

    def _check_room(self) -> None:
        if self._ended.is_set():
            raise InvalidRequest("the console is about to end")
        if len(self._open) >= self._count_max:
            raise InvalidRequest(
                f"{self._count_max} playgrounds are in use, and no more may be; one that nobody "
                f"uses for {self._idle_ms // 60_000} minutes ends, so try again later"
            )

    def sweep(self) -> None:
        """Ends those that nobody used for long."""
        oldest = self._now_ms() - self._idle_ms
        with self._lock:
            idle = [key for key, (_, used_ms) in self._open.items() if used_ms < oldest]
            gone = [self._open.pop(key)[0] for key in idle]
        for one in gone:
            one.close()

    def _sweep_often(self) -> None:
        while not self._ended.wait(self._idle_ms / 4_000):
            self.sweep()

    def close(self) -> None:
        """Ends all of them; no other begins."""
        self._ended.set()
        with self._lock:
            left = [one for one, _ in self._open.values()]
            self._open.clear()
        for one in left:
            one.close()


def _known(timeline: str, level: str) -> tuple[Timeline, str]:
    found = TIMELINES.get(timeline)
    if found is None:
        raise InvalidRequest(
            f"there is no timeline {timeline!r}; there are: {', '.join(TIMELINES)}"
        )
    if level not in found.outcomes:
        raise InvalidRequest(
            f"timeline {timeline!r} has no level {level!r}; it has: {', '.join(found.outcomes)}"
        )
    return found, level


class _Lake:
    """A lake that began with a timeline, and what was asked of it since. One caller at a time."""

    def __init__(self, timeline: Timeline, level: str) -> None:
        self.timeline = timeline
        self.level = level
        in_memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=in_memory)
        self.folder = Path(self._folder.name)
        self._system = System()
        self._moments: list[Moment] = []
        self._taken = 0
        self._players: dict[str, Player] = {}
        self._session: Session | None = None
        try:
            self._session = session_on(
                str(self.folder / "lake"), commands=COMMANDS, make_spark=no_spark
            )
            self._engine = self._session.engine
            self._catalog = self._engine.catalog.of_lake()
            setup = timeline.setup.replace("{level}", LEVELS[level])
            LakeSession(self._session)._answered(setup, None, AsRows())
            of_session = parse_level(level) if timeline.uses is None else None
            for name in timeline.sessions:
                made = Session(self._engine, level=of_session)
                made.database = timeline.uses or made.database
                self._players[name] = Player(name, made)
        except BaseException:
            self.close()
            raise

    # Asking

    @property
    def is_ended(self) -> bool:
        """Whether all of the timeline's steps were taken."""
        return self._taken == len(self.timeline.steps)

    @property
    def next_waits(self) -> bool:
        """Whether the next step's session is still busy."""
        following = self._following()
        return following is not None and self._players[following.session].asked is not None

    def _following(self) -> Step | None:
        return None if self.is_ended else self.timeline.steps[self._taken]

    def step(self) -> None:
        self._require_room()
        following = self._following()
        if following is None:
            raise InvalidRequest("all steps of the timeline were taken; begin it anew")
        player = self._players[following.session]
        moment = Moment(
            number=len(self._moments) + 1,
            session=following.session,
            sql=following.sql,
            step=self._taken + 1,
        )
        if player.lost is None or player.session.current is not None:
            moment.asked = player.ask(following.sql)
        self._taken += 1
        self._add(moment)

    def run(self, session: str, sql: str) -> None:
        self._require_room()
        player = self._players.get(session)
        if player is None:
            raise InvalidRequest(
                f"there is no session {session!r}; there are: {', '.join(self._players)}"
            )
        if not sql.strip():
            raise InvalidRequest("expected a SQL statement, found no text")
        if len(sql) > TEXT_MAX:
            raise InvalidRequest(
                f"the statement has {len(sql)} characters; the playground takes {TEXT_MAX}"
            )
        moment = Moment(number=len(self._moments) + 1, session=session, sql=sql.strip())
        moment.refused = _refused(sql)
        if moment.refused is None:
            moment.asked = player.ask(sql)
        self._add(moment)

    def _require_room(self) -> None:
        if len(self._moments) >= MOMENTS_MAX:
            raise InvalidRequest(
                f"{MOMENTS_MAX} statements were asked of this lake, and no more may be; begin anew"
            )

    def _add(self, moment: Moment) -> None:
        self._moments.append(moment)
        self._settle()
        moment.after = self._picture()

    def _settle(self) -> None:
        """Until each session is done, or waits for a lock that another one holds."""
        until_ms = self._system.monotonic_ms() + _SETTLE_MS
        while self._system.monotonic_ms() < until_ms:
            busy = [one for one in self._players.values() if one.asked is not None]
            waits = self._waits() if busy else {}
            if all(one.number in waits for one in busy):
                break
            moving = next(one.asked for one in busy if one.number not in waits)
            if moving is not None:
                moving.ended.wait(_POLL_S)
        self._note()

    def _note(self) -> None:
        """Notes at their moments which statements wait, and which have ended."""
        waits = self._waits()
        for moment in self._moments:
            if moment.asked is None or moment.ended_at is not None:
                continue
            lock = waits.get(self._players[moment.session].number)
            if moment.asked.is_done:
                moment.ended_at = len(self._moments)
            elif lock is not None:
                moment.waited_for = self._waited_for(lock)

    def _waits(self) -> Mapping[int, LockEntry]:
        """By session, the request that it waits with; not one whose way is free meanwhile."""
        return {
            one.session_id: one
            for one in self._catalog.locks.listed()
            if one.status in {LockStatus.WAIT, LockStatus.CONVERT}
            and one.blocking_session_id is not None
        }

    # Looking

    def shown(self) -> Shown:
        self._note()
        picture = self._picture()
        outcome = self.timeline.outcomes[self.level]
        return Shown(
            timeline=self.timeline,
            level=self.level,
            outcome=outcome,
            moments=tuple(self._moments),
            picture=picture,
            next=None if self.is_ended else self._taken + 1,
            next_waits=self.next_waits,
            is_expected=self._is_expected(outcome, picture),
        )

    def _is_expected(self, outcome: Outcome, picture: Picture) -> bool | None:
        own = any(one.step is None for one in self._moments)
        if own or not self.is_ended or any(one.asked for one in self._players.values()):
            return None
        lost: dict[str, str] = {}
        for moment in self._moments:
            if moment.error is not None:
                lost.setdefault(moment.session, moment.error.error)
        waited = {one.step for one in self._moments if one.waited_for}
        rows = {one.name: one.rows for one in picture.tables}
        return lost == outcome.lost and waited == outcome.waits and rows == outcome.rows

    def _picture(self) -> Picture:
        tables = self._entries()
        waits = self._waits()
        return Picture(
            instant=self._catalog.ledger.sequence(),
            sessions=tuple(self._session_now(one, waits) for one in self._players.values()),
            locks=tuple(self._lock_now(one, tables) for one in self._catalog.locks.listed()),
            tables=tuple(filter(None, map(self._table_now, tables[:_TABLES_MAX]))),
        )

    def _entries(self) -> list[TableEntry]:
        databases = self._catalog.databases()
        return [table for one in databases for table in self._catalog.tables(one.name)]

    def _session_now(self, player: Player, waits: Mapping[int, LockEntry]) -> SessionPicture:
        session, lock = player.session, waits.get(player.number)
        current = session.current
        if player.asked is not None:
            standing = Standing.RUNS if lock is None else Standing.WAITS
        elif player.lost is not None:
            standing = Standing.LOST
        else:
            standing = Standing.IDLE if current is None else Standing.OPEN
        if current is not None and current.state is not TransactionState.ACTIVE:
            current = None
        database = self._catalog.database(session.database)
        asked = None if database is None else database.isolation
        level = session.level if current is None else current.level
        in_force = strictest(None if asked is None else parse_level(asked), level)
        versions = {} if current is None else current.versions_read
        return SessionPicture(
            name=player.name,
            number=player.number,
            standing=standing,
            level=LEVELS[in_force.value],
            instant=None if current is None else current.sequence,
            versions={_short(name): version for name, version in versions.items()},
            waits_for="" if lock is None else self._waited_for(lock),
            error=player.lost if standing is Standing.LOST else None,
        )

    def _waited_for(self, lock: LockEntry) -> str:
        what = self._what(lock.resource, self._entries())
        return f"{lock.mode.value} on {what}; {self._name_of(lock.blocking_session_id)} is before"

    def _lock_now(self, lock: LockEntry, tables: Sequence[TableEntry]) -> LockPicture:
        status = LockStatus.WAIT if lock.status is LockStatus.VICTIM else lock.status
        return LockPicture(
            session=self._name_of(lock.session_id),
            type=lock.resource.type.value,
            what=self._what(lock.resource, tables),
            mode=lock.mode.value,
            status=status.value,
            blocked_by=self._name_of(lock.blocking_session_id),
        )

    def _name_of(self, number: int | None) -> str:
        if number is None:
            return ""
        names = (one.name for one in self._players.values() if one.number == number)
        return next(names, f"session {number}")

    def _what(self, resource: Resource, tables: Sequence[TableEntry]) -> str:
        """The name of what a lock is on."""
        match resource.type:
            case ResourceType.KEY:
                return f"the name {resource.description}"
            case ResourceType.DATABASE:
                names = (
                    one.name for one in self._catalog.databases() if one.number == resource.database
                )
                return f"database {next(names, resource.database)}"
            case ResourceType.OBJECT:
                found = (
                    _short(f"{one.database}.{one.name}")
                    for one in tables
                    if one.number == resource.entity
                )
                table = next(found, "a new table")
                return f"the turn to commit to {table}" if resource.subtype else table

    def _table_now(self, entry: TableEntry) -> TablePicture | None:
        """A table as it is committed, read without a lock; None where it is gone meanwhile."""
        try:
            handle = self._engine.at_entry(entry)
            snapshot = handle.log.latest()
            work = self._engine.work(handle, snapshot)
            found = work.plain_rows(snapshot.select(None), None, None)
        except TxlakeError:
            return None
        columns = tuple(snapshot.schema.names)
        rows: tuple[Row, ...] | None = None
        if found is not None:
            values = [found.column(place).to_pylist() for place in range(len(columns))]
            # By their values: new images of rows come after the others in a table's files.
            rows = tuple(sorted(zip(*values, strict=True), key=_in_order))
        return TablePicture(
            name=_short(f"{entry.database}.{entry.name}"),
            version=snapshot.version,
            columns=columns,
            rows=None if rows is None else rows[:ROWS_MAX],
            total=0 if rows is None else len(rows),
        )

    # The end

    def close(self) -> None:
        """Ends the sessions, those first that nobody has to wait for, and removes the folder."""
        for player in self._players.values():
            player.end()  # which lets go who waits for it
        until_ms = self._system.monotonic_ms() + 1000 * _END_S
        for player in self._players.values():
            player.join(max(0.0, until_ms - self._system.monotonic_ms()) / 1000)
        if self._session is not None:
            self._session.close()
            self._session.engine.close()
        self._folder.cleanup()


def _refused(sql: str) -> str | None:
    """Why a statement isn't even tried; one that isn't understood is, so that its session fails."""
    try:
        return refusal(sql, parse(sql))
    except TxlakeError:
        return None


def _short(name: str) -> str:
    return name.removeprefix("default.")


def _in_order(row: Row) -> tuple[tuple[bool, str, object], ...]:
    """A key to sort rows by, whatever their values are; NULL comes last."""
    return tuple(
        (value is None, type(value).__name__, value if isinstance(value, int | str) else str(value))
        for value in row
    )
