"""The clients of a run: each runs its programs one after the other and retries lost ones.

Owns the record of each transaction, and the outcome that an error means for its client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.simulation import branching
from tests.simulation.branching import BranchEvent, TravelledRead
from tests.simulation.case import LAKE_FAULTS
from tests.simulation.faults import FaultKind
from tests.simulation.foreign_clients import foreign_engine
from tests.simulation.process import WAREHOUSE, Interrupted, Process, retry_opening
from tests.simulation.programs import MICRO_BATCH, Program
from tests.simulation.records import Record, ReportedOutcome, Step, Violation
from tests.simulation.rows import RowSession
from tests.simulation.statements import Insert, Rows, Select, Statement
from tests.simulation.stores import ROOT
from txlake.conflict.levels import Level
from txlake.errors import Conflict, CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.session.engine import Engine
from txlake.session.membership.attachment import attach, detach
from txlake.session.transaction import State, Transaction

if TYPE_CHECKING:
    from tests.simulation.world import World

# Advice in an error's text after which the client connects again.
_ADVICE = ("connect again", "lake.recover")
_RECONNECTIONS_MAX = 5
_RECONNECT_DELAYS_MS = (1, 50, 500, 4_000)


class TrackedSession(RowSession):
    """A session that remembers the transaction it began last.

    Attributes:
        last_transaction: that transaction.
        process_engine: the process's engine at the time the session was made.
    """

    last_transaction: Transaction | None = None
    process_engine: Engine | None = None

    def begin(
        self, *, level: Level | None = None, read_only: bool = False, explicit: bool = True
    ) -> Transaction:
        transaction = super().begin(level=level, read_only=read_only, explicit=explicit)
        transaction.user_metadata = transaction.id  # names it in a path table's log
        self.last_transaction = transaction
        return transaction


class Client:
    """A client with the programs that it still has to run."""

    def __init__(self, world: World, name: str, programs: Sequence[Program], level: Level) -> None:
        self.name = name
        self.process: Process | None = None
        self._world = world
        self._remaining = list(enumerate(programs))
        self._level = level

    @property
    def is_done(self) -> bool:
        return not self._remaining

    def run(self, process: Process) -> None:
        """Run the remaining programs in a session of a process. Raises Killed with the process."""
        session = self._session(process)
        while self._remaining:
            number, program = self._remaining.pop(0)
            attempt, attempts = 0, program.attempts
            while attempt < attempts:
                name = f"{self.name}.{number}.{attempt} {program.name}"
                record = Record("", name, self._level, is_autocommitted=program.autocommit)
                outcome = _Attempt(self._world, process, session, program, record).run()
                self._world.trace(process, name, outcome.value, record.error[:200])
                is_over = (
                    outcome is not ReportedOutcome.CONFLICT
                    and outcome is not ReportedOutcome.UNAVAILABLE
                )
                if any(advice in record.error for advice in _ADVICE):
                    session = self._reconnect(process, session)
                    attempts = program.attempts + _RECONNECTIONS_MAX
                    is_over = is_over and outcome is not ReportedOutcome.REFUSED
                if is_over:
                    break
                attempt += 1

    def end_stream(self, process: Process) -> None:
        """Run micro-batches until there is nothing left to read. Raises Violation if one fails."""
        assert process.engine is not None
        session = TrackedSession(process.engine, level=self._level)
        may_have_more, number = True, 0
        while may_have_more:
            record = Record(id="", client=f"{self.name}.{number}", level=self._level)
            attempt = _Attempt(self._world, process, session, MICRO_BATCH, record)
            if attempt.run() is not ReportedOutcome.COMMITTED:
                raise Violation(f"the stream can't go on: {record.error}")
            may_have_more, number = attempt.has_batch, number + 1

    def _reconnect(self, process: Process, session: TrackedSession) -> TrackedSession:
        """Wait, and return a session of the lake as it is now."""
        self._world.scheduler.sleep(self._world.scheduler.rng.choice(_RECONNECT_DELAYS_MS))
        if process.engine is session.process_engine:
            retry_opening(process.open)
        return self._session(process)

    def _session(self, process: Process) -> TrackedSession:
        """Return a session; every second client of open tables commits as another engine does."""
        engine = process.engine
        assert engine is not None
        is_foreign = self._world.config.is_open and int(self.name[1:]) % 2
        session = TrackedSession(
            foreign_engine(engine) if is_foreign else engine, level=self._level
        )
        session.process_engine = engine
        return session


class _Attempt:
    """One attempt at a program, in one transaction; the program's `Runner`.

    Attributes:
        has_batch: there was a micro-batch to run.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        session: TrackedSession,
        program: Program,
        record: Record,
    ) -> None:
        self._world = world
        self._process = process
        self.session = self._session = session
        self._program = program
        self._record = record
        self._names = world.names()
        self._open: Transaction | None = None
        self._epoch_index = 0
        self._event: BranchEvent | None = None
        self.has_batch = False

    @property
    def tag(self) -> str:
        return self._record.client.partition(" ")[0]

    def execute(self, statement: Statement) -> object:
        text = statement.sql(self._names)
        session, program = self._session, self._program
        if self._open is None and not (program.autocommit or program.without_transaction):
            self._open = session.begin()
            self._register()
        self._world.trace(self.tag, text)
        is_recorded_first = program.autocommit and not isinstance(statement, Select)
        if is_recorded_first:  # a process that dies in its commit may have committed
            self._record.steps.append(Step(statement))
        session.last_transaction = None if self._open is None else self._open
        lake_faults = self._world.lake_faults
        self._epoch_index = 0 if lake_faults is None else lake_faults.catalog_history.index
        try:
            if self._open is None:
                rows = session.rows(text)
            else:
                rows = session.within(self._open, text)
        finally:
            self._register()
            if session.last_transaction is not None:
                self._record_reads(session.last_transaction)
        result: object = None
        if isinstance(statement, Select):
            result = as_rows(rows)
        if not is_recorded_first:
            self._record.steps.append(Step(statement, result))
        return result

    def savepoint(self, name: str) -> None:
        assert self._open is not None
        self._open.savepoint(name)
        self._record.steps.append(Step(None, savepoint=name))

    def rollback_to(self, name: str) -> None:
        assert self._open is not None
        self._open.rollback_to(name)
        self._record.steps.append(Step(None, rolled_back_to=name))

    def wait(self, duration_ms: float) -> None:
        self._world.scheduler.sleep(duration_ms)

    def advance_days(self, days: int) -> None:
        world = self._world
        # A lake's VACUUM respects open transactions; a path table's assumes that they are short.
        if world.config.has_catalog or world.open_transactions == 1:
            world.scheduler.now_ms += days * 86_400_000

    def set_clock(self, hours: float) -> None:
        self._world.set_clock(hours)

    def kill(self) -> None:
        if not self._world.config.has_catalog:
            return
        transactions = self._session.engine.catalog.of_lake().transactions
        entries = transactions.entries()
        if entries:
            transactions.kill(entries[-1].id)

    def attach(self, name: str) -> None:
        attach(self._session, f"{ROOT}/{WAREHOUSE}/{name}", name)

    def detach(self, name: str) -> None:
        detach(self._session, name)

    def micro_batch(self) -> None:
        query, process = self._world.query, self._process
        assert query is not None
        self.has_batch = query.micro_batch(process, self)

    def branches(self, *, tags: bool = False) -> Sequence[str]:
        names = [str(row["name"]) for row in self._session.rows("SHOW BRANCHES")]
        if tags:
            names += [str(row["name"]) for row in self._session.rows("SHOW TAGS")]
        return [name for name in names if ".rebased." not in name]

    def use_branch(self, name: str) -> None:
        self._session.rows(f"USE BRANCH {name}")
        branch = self._session.engine.branch
        assert branch is not None
        self._record.line = branch.id

    def about_branch(self, action: str, name: str, text: str) -> None:
        turn = self._world.scheduler.turns
        self._event = BranchEvent(action, name, self._record.client, turn)
        self._world.branch_events.append(self._event)
        self._world.trace(self.tag, text)
        self._session.last_transaction = None
        self._session.rows(text)

    def read_as_of(self, name: str, table: str) -> None:
        text = f"SELECT k, v, tag FROM {self._names[table]} VERSION AS OF '{name}'"
        self._world.trace(self.tag, text)
        rows = as_rows(self._session.rows(text))
        self._world.travelled.append(TravelledRead(self._record.client, name, table, rows))

    def begin_transaction(self) -> Transaction:
        self._open = self._session.begin()
        self._register()
        return self._open

    def record_insert(self, table: str, rows: Rows) -> None:
        self._record.steps.append(Step(Insert(table, rows)))

    def commit_transaction(self) -> None:
        assert self._open is not None
        self._record_reads(self._open)
        self._open.commit()
        self._open = None

    def run(self) -> ReportedOutcome:
        record, world = self._record, self._world
        record.begin_turn = world.scheduler.turns
        self._session._line.chosen = self._session.engine.main
        world.open_transactions += 1
        try:
            self._program.body(self)
            if self._open is not None:
                self._open.commit()
            record.outcome = ReportedOutcome.COMMITTED
        except Conflict as error:
            self._record_failure(ReportedOutcome.CONFLICT, error)
        except Unavailable as error:
            self._record_failure(ReportedOutcome.UNAVAILABLE, error)
        except OutcomeUnknown as error:
            self._record_failure(ReportedOutcome.UNKNOWN, error)
        except Interrupted as error:
            self._record_failure(ReportedOutcome.UNKNOWN, error)
        except (InvalidRequest, CorruptTable) as error:
            is_expected = world.plan.may_be_refused and isinstance(error, InvalidRequest)
            is_expected = is_expected or "no space" in str(error) or self._is_refusal(error)
            is_stale = FaultKind.LISTING_STALE in world.injector.kinds
            if world.lake_faults is not None and world.lake_faults.explains(error):
                self._record_failure(_outcome_after_recovery(error), error)
            elif is_expected or is_stale or self._needs_cleaned_commit(error):
                self._record_failure(ReportedOutcome.REFUSED, error)
            else:
                raise
        except Violation as error:
            if not world.has_lost_commits:  # else programs can't rely on sums over tables
                raise
            self._record_failure(ReportedOutcome.REFUSED, error)
        finally:
            world.open_transactions -= 1
        record.end_turn = world.scheduler.turns
        if self._event is not None:
            self._event.outcome, self._event.end_turn = record.outcome, record.end_turn
        return record.outcome

    def _is_refusal(self, error: BaseException) -> bool:
        """Return whether an error says that a branch isn't what the program expected."""
        is_theirs = self._world.plan.kind == branching.KIND and isinstance(error, InvalidRequest)
        return is_theirs and any(words in str(error) for words in branching.REFUSALS)

    def _needs_cleaned_commit(self, error: BaseException) -> bool:
        """Return whether an error says that a commit is missing which another engine may have
        deleted.
        """
        may_be_cleaned = any(
            one.kind is FaultKind.LOG_CLEANED for one in self._world.injector.injected
        )
        text = str(error)
        return may_be_cleaned and ("is missing (expected" in text or "was cleaned up" in text)

    def _record_failure(self, outcome: ReportedOutcome, error: BaseException) -> None:
        record, transaction = self._record, self._open
        has_lake_faults = bool(self._world.injector.kinds & LAKE_FAULTS)
        may_be_ended = self._world.may_have_lost_lease or has_lake_faults
        if "nothing was heard of" in str(error) and not may_be_ended:
            raise Violation(f"a living session's transaction was ended: {error}") from error
        record.outcome = outcome
        record.error = f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict) and error.evidence is not None:
            record.rule = error.evidence.rule
        if transaction is not None:
            with suppress(Interrupted):  # the engine ends an abandoned transaction
                transaction.rollback()
        transaction = self._session.last_transaction if transaction is None else transaction
        if (
            outcome is ReportedOutcome.UNKNOWN
            and transaction is not None
            and transaction.state is State.ROLLED_BACK
        ):
            record.outcome = ReportedOutcome.ROLLED_BACK  # by the transaction's own state

    def _register(self) -> None:
        """Add the record to the run's records, once its transaction exists."""
        transaction = self._session.last_transaction if self._open is None else self._open
        if transaction is not None and not self._record.id:
            self._record.id = transaction.id
            self._world.records.append(self._record)

    def _record_reads(self, transaction: Transaction) -> None:
        """Record the versions and the instant that a transaction reads."""
        by_key = {table_id or key: name for name, (table_id, key) in self._world.tables.items()}
        lake_faults = self._world.lake_faults
        for handle, table in transaction.tables:
            name = by_key.get(handle.key.removeprefix("memory://simulated/"))
            if name is not None:
                if lake_faults is not None and name not in self._record.read_versions:
                    place = (name, table.base.version)
                    self._record.read_transactions[name] = (
                        lake_faults.catalog_history.transaction_of(place, self._epoch_index)
                    )
                self._record.read_versions[name] = table.base.version
            elif self._record.line:
                self._record.read_versions[handle.key] = table.base.version
        if transaction.sequence is not None:
            if lake_faults is not None and "" not in self._record.read_versions:
                is_same_epoch = lake_faults.catalog_history.index == self._epoch_index
                self._record.epoch_index = self._epoch_index if is_same_epoch else None
            self._record.read_versions[""] = transaction.sequence


def as_rows(found: Sequence[Mapping[str, object]]) -> Rows:
    """Return the rows of a result, sorted."""
    rows = [(int(str(row["k"])), int(str(row["v"])), str(row["tag"])) for row in found]
    return tuple(sorted(rows))


def _outcome_after_recovery(error: BaseException) -> ReportedOutcome:
    text = str(error)
    if isinstance(error, CorruptTable) and "is committed, and isn't to be run again" in text:
        return ReportedOutcome.COMMITTED
    if isinstance(error, CorruptTable) and "may not stand" in text:
        return ReportedOutcome.UNKNOWN
    return ReportedOutcome.REFUSED
