"""A process that works on a lake until it is told to stop, or killed, frozen or refused.

Transactions over two tables whose numbers have the sum 0, side tables made and dropped, OPTIMIZE,
VACUUM. What it is refused with, it reads: it connects again, or recovers the lake, as the message
says.
"""

from __future__ import annotations

import fcntl
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.disasters.journal import Answer, Asked, Effect, Journal, Note, Told
from tests.judge.lakes import row_engine
from tests.simulation.rows import RowSession
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
_TOLD: dict[State, Told] = {State.COMMITTED: "committed", State.UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class Post:
    """Where a process works.

    Attributes:
        folder: has the journals, `stop` when it is time, and the lock of who recovers.
        number: of this process, among all of the round.
    """

    warehouse: str
    catalog: str
    folder: str
    number: int
    seed: int
    lease_ms: int


def opened(warehouse: str, catalog: str, lease_ms: int) -> RowSession:
    """A session of the lake, in an engine of its own."""
    engine = row_engine(
        warehouse,
        catalog,
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


def closed(session: RowSession) -> None:
    """Ends a session with its engine."""
    session.close()
    session.engine.close()


def bring_up(session: RowSession) -> Recovered:
    """`lake.recover()`, and what it says to do: tables without a folder are dropped."""
    report = recover(session, ())
    catalog = session.engine.catalog.of_lake()
    for sentence in report.unknown:
        if "drop the table" in sentence:
            entry = catalog.at_place(sentence.partition(" isn't recovered")[0])
            if entry is not None:
                session.rows(f"DROP TABLE {TableName((entry.database, entry.name))}")
    return report


def main(post: Post) -> None:
    """The process."""
    logging.disable()
    _Worker(post).run()


class _Worker:
    def __init__(self, post: Post) -> None:
        self._post = post
        self._folder = Path(post.folder)
        self._dice = random.Random(f"{post.seed}/{post.number}")
        self._journal = Journal(str(self._folder / f"{post.number:04}.jsonl"))
        self._session: RowSession | None = None
        self._mine: list[str] = []
        self._sides: list[str] = []
        self._made = 0

    def run(self) -> None:
        while not (self._folder / "stop").exists():
            try:
                self._turn()
            except TxlakeError as error:
                self._answer("reconnecting", "failed", error)
            except Exception as error:
                self._journal.write(Note("broken", f"{type(error).__name__}: {error}"))
                raise
        self._disconnect()
        self._journal.close()

    # Refusals

    def _turn(self) -> None:
        session = self._session or self._connect()
        kinds = [kind for kind in _KINDS if self._may(kind)]
        [kind] = self._dice.choices(kinds, [_KINDS[one] for one in kinds])
        try:
            self._carry_out(session, kind)
        except TxlakeError as error:
            self._answer(kind, "failed", error)
            self._follow(error)

    def _follow(self, error: TxlakeError) -> None:
        """Does what the refusal says."""
        said = str(error)
        if "connect again" in said or "lake.recover()" in said:
            self._disconnect()
        if "lake.recover()" in said and "has rebuilt it" not in said:
            with self._alone():
                session = self._connect()
                if not self._is_sound(session):
                    report = bring_up(session)
                    told = "; ".join((*report.done, *report.unknown))
                    self._journal.write(Note("recovered", told))

    def _is_sound(self, session: RowSession) -> bool:
        """Whether all logs are their catalog's: somebody else may have recovered the lake."""
        catalog = session.engine.catalog.of_lake()
        if session.engine.lost is not None:
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
    def _alone(self) -> Iterator[None]:
        with (self._folder / "recovering").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _connect(self) -> RowSession:
        self._session = opened(self._post.warehouse, self._post.catalog, self._post.lease_ms)
        self._journal.write(Note("opened"))
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            closed(self._session)
            self._session = None

    def _answer(self, name: str, told: Told, error: TxlakeError) -> None:
        self._journal.write(Answer(name, told, type(error).__name__, str(error)))

    # Work

    def _may(self, kind: str) -> bool:
        return {"take": self._mine, "drop": self._sides}.get(kind, [kind]) != []

    def _carry_out(self, session: RowSession, kind: str) -> None:
        table = self._dice.choice(TABLES)
        match kind:
            case "optimize":
                session.rows(f"OPTIMIZE {table}")
            case "vacuum":
                session.rows(f"VACUUM {table} RETAIN 0 HOURS")
            case "drop":
                name = self._sides.pop()
                self._journal.write(Note("dropped", name))
                session.rows(f"DROP TABLE IF EXISTS {name}")
            case "sum":
                self._look(session)
            case _:
                self._change(session, kind)

    def _look(self, session: RowSession) -> None:
        transaction = session.begin(read_only=True)
        try:
            found = [session.within(transaction, f"SELECT n FROM {table}") for table in TABLES]
        finally:
            transaction.rollback()
        total = sum(int(str(row["n"])) for rows in found for row in rows)
        self._journal.write(Note("sum", number=total))

    def _change(self, session: RowSession, kind: str) -> None:
        level = self._dice.choice((None, Level.SERIALIZABLE, Level.SNAPSHOT))
        transaction = session.begin(level=level)
        try:
            effects = self._effects(transaction.id, kind)
            asked = Asked(
                transaction.id,
                {
                    table: kept
                    for table, some in effects.items()
                    if (kept := [one for one in some if _do(session, transaction, table, one)])
                },
            )
            self._journal.write(asked)
            transaction.commit()
        except TxlakeError as error:
            transaction.rollback()
            is_committed = "is committed, and isn't to be run again" in str(error)
            told = "committed" if is_committed else _TOLD.get(transaction.state, "failed")
            self._answer(transaction.id, told, error)
            if not isinstance(error, Conflict):
                self._follow(error)
            return
        self._journal.write(Answer(transaction.id, "committed"))
        if kind == "insert":
            self._mine.append(transaction.id)
        if kind == "side":
            self._sides += effects

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
                mine = self._mine.pop(self._dice.randrange(len(self._mine)))
                return {table: [("take", mine, 0)] for table in TABLES}
            case "side":
                self._made += 1
                return {f"side_{self._post.number}_{self._made}": [("add", key, number)]}
            case _:
                return {self._dice.choice(TABLES): [("add", key, 0)]}


def _do(session: RowSession, transaction: Transaction, table: str, effect: Effect) -> bool:
    """Whether it changed a row."""
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
