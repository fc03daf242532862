"""Small lakes to play with: two or three sessions side by side, stepped through a timeline.

Each is a real lake in a temporary folder, whose statements this process carries out without Spark.
Owns the lakes and their ends, and what is asked of which session. What they look like is known by
`pictures`; what is shown of that, and how, is the page's business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from txlake.commands import COMMANDS
from txlake.conflict.levels import parse_level
from txlake.console.pictures import Looker, Picture
from txlake.console.players import Answered, Asked, Player, Told
from txlake.console.scratch import Scratch
from txlake.console.timelines import LEVELS, TIMELINES, Outcome, Step, Timeline
from txlake.errors import InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.membership.connecting import session_on
from txlake.server.refusals import refusal_reason
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.sql import parse
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT_MAX = 4_000
"""Characters of what is asked at once."""
MOMENTS_MAX = 200
"""Statements of one lake."""

_SETTLE_MS = 5_000
_POLL_S = 0.01
_END_S = 10.0


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
        self._scratch = Scratch()
        self.folder = self._scratch.folder
        self._system = System()
        self._moments: list[Moment] = []
        self._taken = 0
        self._players: dict[str, Player] = {}
        self._session: Session | None = None
        try:
            self._session = session_on(
                str(self.folder / "lake"), commands=COMMANDS, make_spark=no_spark
            )
            engine = self._session.engine
            setup = timeline.setup.replace("{level}", LEVELS[level])
            LakeSession(self._session)._answered(setup, None, AsRows())
            of_session = parse_level(level) if timeline.uses is None else None
            for name in timeline.sessions:
                made = Session(engine, level=of_session)
                made.database = timeline.uses or made.database
                self._players[name] = Player(name, made)
            self._looker = Looker(engine, self._players.values())
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
        moment.after = self._looked()

    def _settle(self) -> None:
        """Until each session is done, or waits for a lock that another one holds."""
        until_ms = self._system.monotonic_ms() + _SETTLE_MS
        moving = list(self._busy())
        while moving and self._system.monotonic_ms() < until_ms:
            for one in moving:
                one.ended.wait(_POLL_S)
            busy = self._busy()
            waits = self._looker.waiting() if busy else frozenset()
            moving = [asked for asked, number in busy.items() if number not in waits]

    def _busy(self) -> Mapping[Asked, int]:
        """What sessions are busy with, and their numbers."""
        found = ((one.asked, one.number) for one in self._players.values())
        return {asked: number for asked, number in found if asked is not None}

    def _looked(self) -> Picture:
        """A look at the lake; what has ended, or waits, is noted at its moment."""
        picture = self._looker.look()
        for moment in self._moments:
            if moment.asked is None or moment.ended_at is not None:
                continue
            if moment.asked.is_done:
                moment.ended_at = len(self._moments)
            else:
                moment.waited_for = picture.waits.get(moment.session, moment.waited_for)
        return picture

    # Looking

    def shown(self) -> Shown:
        picture = self._looked()
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
        self._scratch.remove()


def _refused(sql: str) -> str | None:
    """Why a statement isn't even tried; one that isn't understood is, so that its session fails."""
    try:
        return refusal_reason(parse(sql))
    except TxlakeError:
        return None
