"""Small lakes to play with: two or three sessions side by side, stepped through a timeline.

Each is a real lake in a temporary folder; this process executes its statements without Spark. Owns
the lakes and their ends, and what is submitted to which session. `inspector` reports a lake's
state, and `playground_pages` shows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from txlake.commands import HANDLERS
from txlake.conflict.levels import parse_level
from txlake.console.inspector import Inspector, LakeReport
from txlake.console.scratch import ScratchFolder
from txlake.console.session_thread import (
    SessionThread,
    StatementError,
    StatementResult,
    SubmittedStatement,
)
from txlake.console.timelines import LEVELS, TIMELINES, Outcome, Step, Timeline
from txlake.errors import InvalidRequest, TxlakeError
from txlake.lake.connecting import session_on
from txlake.lake.lake import LakeSession
from txlake.server.refusals import refusal_reason
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.sql import parse
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT_MAX = 4_000
"""Characters of one script."""
STATEMENTS_MAX = 200
"""Statements of one lake, before it must be reset."""

_SETTLE_TIMEOUT_MS = 5_000
_POLL_S = 0.01
_CLOSE_TIMEOUT_S = 10.0


class StatementStatus(Enum):
    """A statement's status; the values are its texts for display."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "not carried out"
    SKIPPED = "skipped"
    WAITS = "waits"
    RUNS = "runs"


@dataclass(slots=True, kw_only=True)
class HistoryEntry:
    """A statement that was submitted to a session, or a skipped step.

    Attributes:
        number: from 1, in the order of submission.
        step: the timeline's step, from 1; None for a statement of the visitor's own.
        refusal: why it wasn't submitted.
        waited_for: the lock that it waited for, whether or not it has it now.
        ended_at: the number of the entry at which it ended: its own unless it waited.
        after: the lake's state after it.
    """

    number: int
    session: str
    sql: str
    step: int | None = None
    statement: SubmittedStatement | None = None
    refusal: str | None = None
    waited_for: str = ""
    ended_at: int | None = None
    after: LakeReport | None = None

    @property
    def status(self) -> StatementStatus:
        """The statement's current status."""
        if self.refusal is not None:
            return StatementStatus.REFUSED
        if self.statement is None:
            return StatementStatus.SKIPPED
        if not self.statement.is_done:
            return StatementStatus.WAITS if self.waited_for else StatementStatus.RUNS
        return StatementStatus.FAILED if self.statement.error is not None else StatementStatus.DONE

    @property
    def result(self) -> StatementResult | None:
        """The statement's result; None before it has ended, and if it failed."""
        return (
            None if self.statement is None or not self.statement.is_done else self.statement.result
        )

    @property
    def error(self) -> StatementError | None:
        """The statement's error; None before it has ended, and if it succeeded."""
        return (
            None if self.statement is None or not self.statement.is_done else self.statement.error
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundState:
    """A playground's current state.

    Attributes:
        next: the number of the timeline's next step; None after the last one.
        next_is_blocked: whether the next step's session is still busy.
        is_expected: whether it ended as the timeline says; None before the end, and if the visitor
            ran own statements.
    """

    timeline: Timeline
    level: str
    outcome: Outcome
    entries: Sequence[HistoryEntry]
    report: LakeReport
    next: int | None
    next_is_blocked: bool
    is_expected: bool | None


def no_spark() -> SparkSession:
    """Raise InvalidRequest, in place of starting a Spark session."""
    raise InvalidRequest(
        "the playground runs without Spark: this needs it. Here go SELECT of columns, or *, from "
        "one table with a plain WHERE; INSERT ... VALUES; UPDATE and DELETE with a plain WHERE; "
        "CREATE, ALTER and DROP TABLE; transactions, levels and locks"
    )


class Playground:
    """One lake and its sessions. Thread-safe: callers take turns."""

    def __init__(self, timeline: str, level: str) -> None:
        self._lock = threading.RLock()
        self._is_closed = False
        self._lake = _PlaygroundLake(*_find_timeline(timeline, level))

    def step(self) -> None:
        """Submit the timeline's next step to its session.

        Returns once every session is idle or waits for a lock, after five seconds at the latest. A
        step of a session that has lost its transaction is skipped.

        Raises InvalidRequest: there are no more steps, too many statements were submitted, the
        session is still waiting, or the playground was closed.
        """
        with self._open() as lake:
            lake.step()

    def finish(self) -> None:
        """Run all remaining steps, or those before a step whose session waits for a lock.

        Does nothing at the end. Raises InvalidRequest if too many statements were submitted, or the
        playground was closed.
        """
        with self._open() as lake:
            while not lake.is_ended and not lake.next_is_blocked:
                lake.step()

    def run(self, session: str, sql: str) -> None:
        """Submit a statement or script of the visitor's own to a session, and wait as `step`.

        A statement that the playground refuses, an invalid one and a failed one are reported in
        their entry.

        Raises InvalidRequest: the text is empty or over 4,000 characters, the session is unknown or
        still waiting, too many statements were submitted, or the playground was closed.
        """
        with self._open() as lake:
            lake.run(session, sql)

    def reset(self, timeline: str, level: str) -> None:
        """Start again with an empty lake.

        Open transactions are rolled back, which ends all waits. Raises InvalidRequest for an
        unknown timeline or level, and if the playground was closed.
        """
        choice = _find_timeline(timeline, level)
        with self._open() as lake:
            new_lake = _PlaygroundLake(*choice)
            self._lake = new_lake
            lake.close()

    def state(self) -> PlaygroundState:
        """Return the current state. Raises InvalidRequest if the playground was closed."""
        with self._open() as lake:
            return lake.state()

    def close(self) -> None:
        """Close the sessions and remove the lake's folder."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._lake.close()

    @property
    def folder(self) -> Path:
        """Return the lake's folder."""
        return self._lake.folder

    @contextmanager
    def _open(self) -> Iterator[_PlaygroundLake]:
        """Yield the lake, for one caller at a time.

        Raises InvalidRequest if the playground was closed.
        """
        with self._lock:
            if self._is_closed:
                raise InvalidRequest("this playground was idle and has ended; begin again")
            yield self._lake


class Playgrounds:
    """The playgrounds of one console, one for each browser. Thread-safe.

    `count_max`: how many may be open; `idle_ms`: milliseconds until an idle playground is closed.
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
        """Return a browser's playground, which counts as used now; None if it has none.

        Idle playgrounds are closed first, this one included.
        """
        self.sweep()
        with self._lock:
            playground = self._open.get(key)
            if playground is None:
                return None
            self._open[key] = (playground[0], self._now_ms())
            return playground[0]

    def begin(self, key: str, timeline: str, level: str) -> Playground:
        """Return a browser's playground, reset or created, at the beginning of a timeline.

        Raises InvalidRequest for an unknown timeline or level, and if too many are open to create
        one.
        """
        existing = self.find(key)
        if existing is not None:
            existing.reset(timeline, level)
            return existing
        self._check_capacity()
        created = Playground(timeline, level)
        try:
            with self._lock:
                self._check_capacity_locked()
                # The browser may have sent its form twice.
                duplicate = self._open.pop(key, None)
                self._open[key] = (created, self._now_ms())
                if self._sweeper is None:
                    self._sweeper = threading.Thread(
                        target=self._sweep_regularly, name="playground sweeper", daemon=True
                    )
                    self._sweeper.start()
        except BaseException:
            created.close()
            raise
        if duplicate is not None:
            duplicate[0].close()
        return created

    def _check_capacity(self) -> None:
        with self._lock:
            self._check_capacity_locked()

    def _check_capacity_locked(self) -> None:
        """Raise InvalidRequest if no more playgrounds may begin; the caller holds the lock."""
        if self._ended.is_set():
            raise InvalidRequest("the console is about to end")
        if len(self._open) >= self._count_max:
            raise InvalidRequest(
                f"{self._count_max} playgrounds are in use, and no more may be; one that is idle "
                f"for {self._idle_ms // 60_000} minutes ends, so try again later"
            )

    def sweep(self) -> None:
        """Close the playgrounds that are idle."""
        oldest = self._now_ms() - self._idle_ms
        with self._lock:
            idle = [key for key, (_, used_ms) in self._open.items() if used_ms < oldest]
            expired = [self._open.pop(key)[0] for key in idle]
        for playground in expired:
            playground.close()

    def _sweep_regularly(self) -> None:
        while not self._ended.wait(self._idle_ms / 4_000):
            self.sweep()

    def close(self) -> None:
        """Close all playgrounds; no other can begin."""
        self._ended.set()
        with self._lock:
            playgrounds = [playground for playground, _ in self._open.values()]
            self._open.clear()
        for playground in playgrounds:
            playground.close()


def _find_timeline(timeline: str, level: str) -> tuple[Timeline, str]:
    """Return the timeline of a name, and the level as given.

    Raises InvalidRequest for an unknown timeline, and for a level that it doesn't have.
    """
    choice = TIMELINES.get(timeline)
    if choice is None:
        raise InvalidRequest(
            f"there is no timeline {timeline!r}; there are: {', '.join(TIMELINES)}"
        )
    if level not in choice.outcomes:
        raise InvalidRequest(
            f"timeline {timeline!r} has no level {level!r}; it has: {', '.join(choice.outcomes)}"
        )
    return choice, level


class _PlaygroundLake:
    """A lake that began with a timeline, and the statements since. Not thread-safe."""

    def __init__(self, timeline: Timeline, level: str) -> None:
        self.timeline = timeline
        self.level = level
        self._scratch = ScratchFolder()
        self.folder = self._scratch.folder
        self._system = System()
        self._entries: list[HistoryEntry] = []
        self._steps_done = 0
        self._threads: dict[str, SessionThread] = {}
        self._session: Session | None = None
        try:
            self._session = session_on(
                str(self.folder / "lake"), handlers=HANDLERS, make_spark=no_spark
            )
            engine = self._session.engine
            setup = timeline.setup.replace("{level}", LEVELS[level])
            LakeSession(self._session)._run_sql(setup, None, AsRows())
            session_level = parse_level(level) if timeline.uses is None else None
            for name in timeline.sessions:
                session = Session(engine, HANDLERS, level=session_level)
                session.database = timeline.uses or session.database
                self._threads[name] = SessionThread(name, session)
            self._inspector = Inspector(engine, self._threads.values())
        except BaseException:
            self.close()
            raise

    # Statements

    @property
    def is_ended(self) -> bool:
        """Return whether all of the timeline's steps are done."""
        return self._steps_done == len(self.timeline.steps)

    @property
    def next_is_blocked(self) -> bool:
        """Return whether the next step's session is still busy."""
        next_step = self._next_step()
        return next_step is not None and self._threads[next_step.session].running is not None

    def _next_step(self) -> Step | None:
        return None if self.is_ended else self.timeline.steps[self._steps_done]

    def step(self) -> None:
        """Submit the timeline's next step, or skip it if its session has lost its transaction.

        Raises InvalidRequest if there are no more steps, too many statements were submitted, or the
        step's session is still busy.
        """
        self._check_capacity()
        next_step = self._next_step()
        if next_step is None:
            raise InvalidRequest("all steps of the timeline are done; begin it again")
        thread = self._threads[next_step.session]
        entry = HistoryEntry(
            number=len(self._entries) + 1,
            session=next_step.session,
            sql=next_step.sql,
            step=self._steps_done + 1,
        )
        if thread.last_error is None or thread.session.current is not None:
            entry.statement = thread.submit(next_step.sql)
        self._steps_done += 1
        self._record(entry)

    def run(self, session: str, sql: str) -> None:
        """Submit a statement, or refuse it in its entry, as `Playground.run`."""
        self._check_capacity()
        thread = self._threads.get(session)
        if thread is None:
            raise InvalidRequest(
                f"there is no session {session!r}; there are: {', '.join(self._threads)}"
            )
        if not sql.strip():
            raise InvalidRequest("expected a SQL statement, found no text")
        if len(sql) > TEXT_MAX:
            raise InvalidRequest(
                f"the statement has {len(sql)} characters; the playground takes {TEXT_MAX}"
            )
        entry = HistoryEntry(number=len(self._entries) + 1, session=session, sql=sql.strip())
        entry.refusal = _refusal_of(sql)
        if entry.refusal is None:
            entry.statement = thread.submit(sql)
        self._record(entry)

    def _check_capacity(self) -> None:
        """Raise InvalidRequest if too many statements were submitted."""
        if len(self._entries) >= STATEMENTS_MAX:
            raise InvalidRequest(
                f"{STATEMENTS_MAX} statements were run in this lake, and no more may be; begin "
                "again"
            )

    def _record(self, entry: HistoryEntry) -> None:
        """Add an entry, wait until the sessions have settled, and note the lake's state in it."""
        self._entries.append(entry)
        self._wait_until_settled()
        entry.after = self._inspect()

    def _wait_until_settled(self) -> None:
        """Wait until each session is idle, or waits for a lock that another one holds.

        Gives up after five seconds.
        """
        deadline_ms = self._system.monotonic_ms() + _SETTLE_TIMEOUT_MS
        pending = list(self._busy())
        while pending and self._system.monotonic_ms() < deadline_ms:
            for running in pending:
                running.finished.wait(_POLL_S)
            busy = self._busy()
            waits = self._inspector.waiting_sessions() if busy else frozenset()
            pending = [statement for statement, number in busy.items() if number not in waits]

    def _busy(self) -> Mapping[SubmittedStatement, int]:
        """Return the running statements, with their sessions' numbers."""
        statements = ((thread.running, thread.number) for thread in self._threads.values())
        return {statement: number for statement, number in statements if statement is not None}

    def _inspect(self) -> LakeReport:
        """Inspect the lake, and record which statements have ended or wait."""
        report = self._inspector.inspect()
        for entry in self._entries:
            if entry.statement is None or entry.ended_at is not None:
                continue
            if entry.statement.is_done:
                entry.ended_at = len(self._entries)
            else:
                entry.waited_for = report.waits.get(entry.session, entry.waited_for)
        return report

    # State

    def state(self) -> PlaygroundState:
        """Return the current state, and note which statements have ended."""
        report = self._inspect()
        outcome = self.timeline.outcomes[self.level]
        return PlaygroundState(
            timeline=self.timeline,
            level=self.level,
            outcome=outcome,
            entries=tuple(self._entries),
            report=report,
            next=None if self.is_ended else self._steps_done + 1,
            next_is_blocked=self.next_is_blocked,
            is_expected=self._is_expected(outcome, report),
        )

    def _is_expected(self, outcome: Outcome, report: LakeReport) -> bool | None:
        """Return whether each session's first error, the waits and the rows are those of the
        outcome.

        None before the end, while a statement runs, and if the visitor ran own statements.
        """
        has_own_statements = any(entry.step is None for entry in self._entries)
        if (
            has_own_statements
            or not self.is_ended
            or any(thread.running for thread in self._threads.values())
        ):
            return None
        errors: dict[str, str] = {}
        for entry in self._entries:
            if entry.error is not None:
                errors.setdefault(entry.session, entry.error.error)
        waited = {entry.step for entry in self._entries if entry.waited_for}
        rows = {table.name: table.rows for table in report.tables}
        return errors == outcome.lost and waited == outcome.waits and rows == outcome.rows

    # Closing

    def close(self) -> None:
        """Close the sessions, which ends their waits, and remove the folder.

        Waits at most ten seconds for running statements.
        """
        for thread in self._threads.values():
            thread.stop()
        deadline_ms = self._system.monotonic_ms() + 1000 * _CLOSE_TIMEOUT_S
        for thread in self._threads.values():
            thread.join(max(0.0, deadline_ms - self._system.monotonic_ms()) / 1000)
        if self._session is not None:
            self._session.close()
            self._session.engine.close()
        self._scratch.remove()


def _refusal_of(sql: str) -> str | None:
    """Return why a statement is refused; None if it isn't.

    An invalid statement isn't refused, so that its session fails.
    """
    try:
        return refusal_reason(parse(sql))
    except TxlakeError:
        return None
