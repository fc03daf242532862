"""A process that works on a lake until it is asked to stop, or is killed, frozen or refused.

It runs transactions over two tables whose numbers have the sum 0, creates and drops side tables,
and runs OPTIMIZE and VACUUM. It follows the advice of error messages: it connects again, or
recovers the lake.
"""

from __future__ import annotations

import fcntl
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.disasters.catalogs import CHECK_MS
from tests.disasters.journal import Attempt, Effect, Journal, Note, Outcome, Reply
from tests.judge.lakes import row_engine
from tests.simulation.rows import RowSession
from txlake.catalog.replicated import log as log_module
from txlake.conflict.levels import Level
from txlake.errors import Conflict, CorruptTable, InvalidRequest, TxlakeError
from txlake.session.membership.opening import open_lake
from txlake.session.membership.recovery import Recovered, recover
from txlake.session.transaction import State, Transaction
from txlake.settings import Settings
from txlake.sql.statements import TableName

TABLES = ("debit", "credit")
ACCOUNTS = 8
COLUMNS = "(k STRING, n BIGINT)"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_KINDS = {
    "transfer": 5,
    "insert": 4,
    "single": 2,
    "take": 2,
    "sum": 3,
    "optimize": 1,
    "vacuum": 1,
    "side": 2,
    "drop": 1,
}
_OUTCOMES: dict[State, Outcome] = {State.COMMITTED: "committed", State.UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class Assignment:
    """The lake and the number of a process.

    Attributes:
        folder: has the journals, the file `stop` when it is time to end, and the recovery's lock.
        number: the process's number in the round.
    """

    warehouse: str
    catalog: str
    folder: str
    number: int
    seed: int
    lease_ms: int
    options: Mapping[str, str] = field(default_factory=dict)


def open_session(
    warehouse: str, catalog: str, lease_ms: int, options: Mapping[str, str] | None = None
) -> RowSession:
    """Open a session of the lake in an engine of its own; `options` are of the catalog's store."""
    engine = row_engine(
        warehouse,
        catalog,
        options=options,
        settings=Settings(lease_ms=lease_ms),
        spark_settings={_RETENTION_CHECK: "false"},
    )
    try:
        session = RowSession(engine)
        open_lake(session)
    except BaseException:
        engine.close()
        raise
    return session


def close_session(session: RowSession) -> None:
    """Close a session and its engine."""
    session.close()
    session.engine.close()


def recover_lake(session: RowSession) -> Recovered:
    """Recover the lake as `lake.recover()` does, and drop the tables that it says to drop."""
    report = recover(session, ())
    catalog = session.engine.catalog.of_lake()
    for sentence in report.unknown:
        if "drop the table" in sentence:
            entry = catalog.at_place(sentence.partition(" isn't recovered")[0])
            if entry is not None:
                session.rows(f"DROP TABLE {TableName((entry.database, entry.name))}")
    return report


def main(assignment: Assignment) -> None:
    """Run the process."""
    logging.disable()
    log_module._CHECK_MS = CHECK_MS
    _Worker(assignment).run()


class _Worker:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._folder = Path(assignment.folder)
        self._dice = random.Random(f"{assignment.seed}/{assignment.number}")
        self._journal = Journal(str(self._folder / f"{assignment.number:04}.jsonl"))
        self._session: RowSession | None = None
        self._own_keys: list[str] = []
        self._side_tables: list[str] = []
        self._made = 0

    def run(self) -> None:
        while not (self._folder / "stop").exists():
            try:
                self._step()
            except TxlakeError as error:
                self._record_failure("reconnecting", "failed", error)
            except Exception as error:
                self._journal.write(Note("broken", f"{type(error).__name__}: {error}"))
                raise
        self._disconnect()
        self._journal.close()

    # Refusals

    def _step(self) -> None:
        session = self._session or self._connect()
        kinds = [kind for kind in _KINDS if self._is_possible(kind)]
        [kind] = self._dice.choices(kinds, [_KINDS[one] for one in kinds])
        try:
            self._carry_out(session, kind)
        except TxlakeError as error:
            self._record_failure(kind, "failed", error)
            self._follow_advice(error)

    def _follow_advice(self, error: TxlakeError) -> None:
        """Do what an error's message advises."""
        text = str(error)
        if "connect again" in text or "lake.recover()" in text:
            self._disconnect()
        if "lake.recover()" in text and "has rebuilt it" not in text:
            with self._recovery_lock():
                session = self._connect()
                if not self._is_sound(session):
                    report = recover_lake(session)
                    text = "; ".join((*report.done, *report.unknown))
                    self._journal.write(Note("recovered", text))

    def _is_sound(self, session: RowSession) -> bool:
        """Return whether all logs match the catalog, after another process may have recovered
        the lake.
        """
        catalog = session.engine.catalog.of_lake()
        if session.engine.recovery_required is not None:
            return False
        for entry in catalog.tables("default"):
            try:
                session.engine.at_entry(entry).log.latest()
            except CorruptTable as error:
                if "lake.recover()" in str(error):
                    return False
            except InvalidRequest:
                pass  # dropped meanwhile
        return True

    @contextmanager
    def _recovery_lock(self) -> Iterator[None]:
        with (self._folder / "recovering").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _connect(self) -> RowSession:
        self._session = open_session(
            self._assignment.warehouse,
            self._assignment.catalog,
            self._assignment.lease_ms,
            self._assignment.options,
        )
        self._journal.write(Note("opened"))
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            close_session(self._session)
            self._session = None

    def _record_failure(self, name: str, outcome: Outcome, error: TxlakeError) -> None:
        self._journal.write(Reply(name, outcome, type(error).__name__, str(error)))

    # Work

    def _is_possible(self, kind: str) -> bool:
        return {"take": self._own_keys, "drop": self._side_tables}.get(kind, [kind]) != []

    def _carry_out(self, session: RowSession, kind: str) -> None:
        table = self._dice.choice(TABLES)
        match kind:
            case "optimize":
                session.rows(f"OPTIMIZE {table}")
            case "vacuum":
                session.rows(f"VACUUM {table} RETAIN 0 HOURS")
            case "drop":
                name = self._side_tables.pop()
                self._journal.write(Note("dropped", name))
                session.rows(f"DROP TABLE IF EXISTS {name}")
            case "sum":
                self._check_sum(session)
            case _:
                self._run_transaction(session, kind)

    def _check_sum(self, session: RowSession) -> None:
        transaction = session.begin(read_only=True)
        try:
            found = [session.within(transaction, f"SELECT n FROM {table}") for table in TABLES]
        finally:
            transaction.rollback()
        total = sum(int(str(row["n"])) for rows in found for row in rows)
        self._journal.write(Note("sum", number=total))

    def _run_transaction(self, session: RowSession, kind: str) -> None:
        level = self._dice.choice((None, Level.SERIALIZABLE, Level.SNAPSHOT))
        transaction = session.begin(level=level)
        try:
            effects = self._effects(transaction.id, kind)
            attempt = Attempt(
                transaction.id,
                {
                    table: changing
                    for table, planned in effects.items()
                    if (
                        changing := [
                            effect
                            for effect in planned
                            if _execute_effect(session, transaction, table, effect)
                        ]
                    )
                },
            )
            self._journal.write(attempt)
            transaction.commit()
        except TxlakeError as error:
            transaction.rollback()
            is_committed = "is committed, and isn't to be run again" in str(error)
            outcome = "committed" if is_committed else _OUTCOMES.get(transaction.state, "failed")
            self._record_failure(transaction.id, outcome, error)
            if not isinstance(error, Conflict):
                self._follow_advice(error)
            return
        self._journal.write(Reply(transaction.id, "committed"))
        if kind == "insert":
            self._own_keys.append(transaction.id)
        if kind == "side":
            self._side_tables += effects

    def _effects(self, key: str, kind: str) -> dict[str, list[Effect]]:
        number = self._dice.randint(1, 99)
        match kind:
            case "transfer":
                return {
                    table: [("by", f"account-{self._dice.randrange(ACCOUNTS)}", by)]
                    for table, by in zip(TABLES, (-number, number), strict=True)
                }
            case "insert":
                return {
                    table: [("add", key, by)]
                    for table, by in zip(TABLES, (-number, number), strict=True)
                }
            case "take":
                key = self._own_keys.pop(self._dice.randrange(len(self._own_keys)))
                return {table: [("take", key, 0)] for table in TABLES}
            case "side":
                self._made += 1
                return {f"side_{self._assignment.number}_{self._made}": [("add", key, number)]}
            case _:
                return {self._dice.choice(TABLES): [("add", key, 0)]}


def _execute_effect(
    session: RowSession, transaction: Transaction, table: str, effect: Effect
) -> bool:
    """Execute an effect; return whether it changed a row."""
    what, key, number = effect
    if table not in TABLES:
        session.within(transaction, f"CREATE TABLE {table} {COLUMNS}")
    match what:
        case "add":
            sql = f"INSERT INTO {table} VALUES ('{key}', {number})"
        case "by":
            sql = f"UPDATE {table} SET n = n + {number} WHERE k = '{key}'"
        case "take":
            sql = f"DELETE FROM {table} WHERE k = '{key}'"
    [counts] = session.within(transaction, sql)
    return counts["num_affected_rows"] != 0
