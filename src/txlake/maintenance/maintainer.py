"""One round of maintenance: survey the tables, and meet their needs in order, within the budget.

Any number of processes may do rounds of one lake: each claims the table that it works on. What
can't be done now, because others work on the table, is left for the next round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from txlake.catalog.maintenance_book import DUE, RUNNING, MaintenanceEntry, claim_on
from txlake.errors import Conflict, LockTimeout, TxlakeError, Unavailable
from txlake.maintenance.needs import Need, TableFacts, needs_of
from txlake.maintenance.order import Budget, Due, in_order
from txlake.maintenance.policy import Policy, Work
from txlake.maintenance.survey import (
    NotMaintained,
    Passed,
    Survey,
    Target,
    lake_needs,
    policy_for,
    survey,
    table_facts,
    targets_of,
)
from txlake.maintenance.work import Gain, Worker, action_text, step_bytes
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.telemetry import count, span, timed

DONE, NOTHING, YIELDED, FAILED, OFF = "done", "nothing", "yielded", "failed", "off"
_STEPPED = frozenset({Work.OPTIMIZE, Work.PURGE})
_UNLIMITED = Budget()
_logger = logging.getLogger(__name__)


class Maintainer:
    """Maintains the tables of an engine's lake, or the path tables that are given.

    `open_session` opens a session on the engine.
    """

    def __init__(
        self,
        engine: Engine,
        open_session: Callable[[], Session],
        *,
        budget: Budget = _UNLIMITED,
        tables: Sequence[Target] | None = None,
    ) -> None:
        self._engine = engine
        self._open_session = open_session
        self._budget = budget
        self._tables = tables
        self._is_stopped = False

    def stop(self) -> None:
        """Begin no more work; what is under way ends."""
        self._is_stopped = True

    def plan(self) -> list[MaintenanceEntry]:
        """Return what is due, in the order in which it would be done, and what is off and why.

        Nothing is written.
        """
        found = survey(self._engine, self._targets())
        entries = [self._entry(one, DUE, why=self._limited(one)) for one in in_order(found.due)]
        return entries + [self._off(passed) for passed in found.passed]

    def run(self) -> list[MaintenanceEntry]:
        """Do one round and return what was done; what is left is due (`state`).

        Raises InvalidRequest for another system's catalog, and what the catalog raises.
        """
        begun_ms = self._engine.system.monotonic_ms()
        used_bytes = 0
        done: list[MaintenanceEntry] = []
        left: list[MaintenanceEntry] = []
        for one in in_order(self._survey().due):
            elapsed_ms = self._engine.system.monotonic_ms() - begun_ms
            step_cost = self._step_cost(one.need)
            refusal = self._budget.refusal(step_cost, elapsed_ms=elapsed_ms, used_bytes=used_bytes)
            if self._is_stopped:
                refusal = "the maintenance was stopped"
            if refusal is not None:
                left.append(self._entry(one, DUE, why=refusal))
                continue
            entry, moved_bytes = self._meet(one, self._bytes_left(used_bytes))
            used_bytes += moved_bytes
            (left if entry.state == DUE else done).append(entry)
            if entry.state in (YIELDED, FAILED):
                left.append(replace(self._entry(one, DUE), error=entry.error))
        if self._has_book:
            self._engine.catalog.of_lake().maintenance.replace_due(left)
        _logger.info("a round of maintenance did %d of %d works", len(done), len(done) + len(left))
        return done + left

    def _survey(self) -> Survey:
        """Survey the tables, except those of a lake that an earlier survey found to need nothing
        yet; record those that need nothing now.
        """
        if not self._has_book:
            return survey(self._engine, self._targets(), notes=True)
        book = self._engine.catalog.of_lake().maintenance
        known = book.quiet_tables()
        found = survey(self._engine, self._targets(), notes=True, quiet=known)
        book.replace_quiet(found.quiet)
        return found

    @property
    def _has_book(self) -> bool:
        return self._engine.catalog.is_lake

    def _targets(self) -> Iterator[Target]:
        return targets_of(self._engine) if self._tables is None else iter(self._tables)

    def _bytes_left(self, used_bytes: int) -> int | None:
        allowed = self._budget.data_bytes
        return None if allowed is None else allowed - used_bytes

    def _step_cost(self, need: Need) -> int:
        """Return how many bytes the first step of a need reads and writes."""
        if need.work not in _STEPPED:
            return need.cost_bytes
        return min(need.cost_bytes, 2 * step_bytes(self._engine, need.cost_bytes))

    def _limited(self, one: Due[Target]) -> str | None:
        """Return why a round's budget would leave a need alone, even as its first; None if not."""
        return self._budget.refusal(self._step_cost(one.need), elapsed_ms=0, used_bytes=0)

    def _entry(self, one: Due[Target], state: str, *, why: str | None = None) -> MaintenanceEntry:
        """Return the entry of a need. `why`: why it isn't met now."""
        need = one.need
        return MaintenanceEntry(
            id=self._engine.system.new_id(),
            time_ms=self._engine.system.now_ms(),
            table_name=None if one.target.handle is None else one.name,
            need=need.work.value,
            state=state,
            action=action_text(need.work, one.name),
            reason=need.why,
            files=need.files,
            size_bytes=need.size_bytes,
            row_count=need.rows,
            error=why,
        )

    def _off(self, passed: Passed) -> MaintenanceEntry:
        """Return the entry of a table that isn't maintained."""
        return MaintenanceEntry(
            id=self._engine.system.new_id(),
            time_ms=self._engine.system.now_ms(),
            table_name=passed.name,
            need="",
            state=OFF,
            action="",
            reason=passed.why,
        )

    def _meet(self, one: Due[Target], bytes_left: int | None) -> tuple[MaintenanceEntry, int]:
        """Meet a need, and return its entry and how many bytes of data were moved.

        The entry is `due` if another process has the table.
        """
        session = self._open_session()
        session.lock_timeout_ms = 0
        try:
            with self._claimed(session, one.target):
                return self._meet_claimed(session, one, bytes_left)
        except LockTimeout as error:
            return self._entry(one, DUE, why=str(error)), 0
        finally:
            session.close()

    @contextmanager
    def _claimed(self, session: Session, target: Target) -> Iterator[None]:
        """Claim a table, or the lake itself, for a session. Raises LockTimeout if another session
        has it.
        """
        if self._has_book:
            entry = None if target.handle is None else target.handle.entry
            numbers = (0, 0) if entry is None else (entry.database_number, entry.number)
            locks = self._engine.catalog.of_lake().locks
            locks.acquire(session.number(), None, [claim_on(*numbers)], 0)
        yield

    def _meet_claimed(
        self, session: Session, one: Due[Target], bytes_left: int | None
    ) -> tuple[MaintenanceEntry, int]:
        """Meet a need of a claimed table, and record it."""
        entry = replace(
            self._entry(one, RUNNING),
            files=0,
            size_bytes=0,
            row_count=0,
            session_id=session.number(),
        )
        begun_ms = self._engine.system.monotonic_ms()
        self._record(entry, is_new=True)
        gain: Gain | None = None
        error: TxlakeError | None = None
        work = one.need.work.value
        try:
            with (
                span("maintenance", table=one.name, work=work),
                timed("txlake.maintenance.duration", work=work),
            ):
                gain = self._steps(session, one, bytes_left)
            state = NOTHING if gain is None else DONE
        except (Conflict, Unavailable) as reason:
            state, error = YIELDED, reason
            _logger.info("%s: %s comes later: %s", one.name, work, reason)
        except TxlakeError as reason:
            state, error = FAILED, reason
            _logger.warning("%s: %s failed: %s", one.name, work, reason)
        count("txlake.maintenance.works", work=work, outcome=state)
        made = Gain() if gain is None else gain
        entry = replace(
            entry,
            state=state,
            files=made.files,
            size_bytes=made.size_bytes,
            row_count=made.rows,
            duration_ms=int(self._engine.system.monotonic_ms() - begun_ms),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )
        self._record(entry, is_new=False)
        return entry, made.data_bytes

    def _record(self, entry: MaintenanceEntry, *, is_new: bool) -> None:
        if self._has_book:
            book = self._engine.catalog.of_lake().maintenance
            (book.add if is_new else book.end)(entry)

    def _steps(self, session: Session, one: Due[Target], bytes_left: int | None) -> Gain | None:
        """Meet a need as it is now, in steps; None if another process has met it."""
        worker, work = Worker(session), one.need.work
        if one.target.handle is None:
            is_due = any(need.work is work for need in lake_needs(self._engine))
            return worker.on_lake(work) if is_due else None
        total: Gain | None = None
        while (found := self._look_again(one.target, work)) is not None:
            need, facts, policy = found
            bytes_max = step_bytes(self._engine, need.cost_bytes)
            if bytes_left is not None and work in _STEPPED:
                bytes_max = min(bytes_max, (bytes_left - (total or Gain()).data_bytes) // 2)
                if bytes_max <= 0:
                    break
            step = worker.on_table(one.target, work, facts, policy, bytes_max)
            total = step if total is None else _sum(total, step)
            if step.is_all or work not in _STEPPED:
                break
        return total

    def _look_again(self, target: Target, work: Work) -> tuple[Need, TableFacts, Policy] | None:
        """Return a table's need of one kind as it is now, and what it is decided by; None if there
        is none any more.
        """
        assert target.handle is not None, "the lake itself is no table"
        try:
            policy = policy_for(target)
        except NotMaintained:
            return None
        facts = table_facts(self._engine, target, target.handle.log.latest())
        for need in needs_of(facts, policy):
            if need.work is work:
                return need, facts, policy
        return None


def _sum(one: Gain, other: Gain) -> Gain:
    return Gain(
        one.files + other.files,
        one.size_bytes + other.size_bytes,
        one.rows + other.rows,
        one.data_bytes + other.data_bytes,
        other.is_all,
    )
