"""A session: its current database, its own SQL transaction, and the statements it carries out.

Owns autocommit and the control statements. What a statement does is `dispatch`'s business.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame, SparkSession

from txlake.catalog import DEFAULT_DATABASE, DatabaseEntry
from txlake.conflict.levels import Level, parse_level
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.session.admission import admit, database_lock
from txlake.session.answers import Answers, answered, asks_only
from txlake.session.catalog_access import refuse_lost
from txlake.session.command import Answer, TableLock, each_once, nothing
from txlake.session.context import Context
from txlake.session.engine import Engine
from txlake.session.immediate import statement_of
from txlake.session.isolation import set_isolation, shown_isolation
from txlake.session.killing import kill_session
from txlake.session.scripting import Script
from txlake.session.transaction import State, Transaction
from txlake.session.variables import SessionGround
from txlake.spark.spark_errors import spark_errors
from txlake.statements import (
    Atomic,
    Begin,
    Commit,
    ExecuteImmediate,
    Expression,
    Kill,
    LockTable,
    ReadTable,
    ReleaseSavepoint,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    ShowIsolation,
    Statement,
    Table,
    TimeTravel,
    UseDatabase,
)
from txlake.statements.control import ControlStatement
from txlake.statements.scripting import Block
from txlake.views import VIEWS
from txlake.views.describe import Rows


class Session:
    """Carries out statements one after the other; used by one thread at a time."""

    def __init__(self, engine: Engine, *, level: Level | None = None) -> None:
        self.engine = engine
        self.database = DEFAULT_DATABASE
        self.level = level
        self.lock_timeout_ms = -1
        self._number: int | None = None
        self._entering = threading.Lock()
        self._current: Transaction | None = None
        self._begun: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
        self._is_lost = False
        self._is_closed = False
        self._in_script = False

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.engine.spark

    def number(self) -> int:
        """The session's number in the catalog, as the views show it; made on first use."""
        with self._entering:  # transactions of a session may be begun by several threads
            if self._number is None:
                self._number = self.engine.open_session(self)
            return self._number

    @property
    def current(self) -> Transaction | None:
        """The transaction that BEGIN opened, until COMMIT or ROLLBACK."""
        return self._current

    def begin(
        self,
        *,
        level: Level | None = None,
        read_only: bool = False,
        explicit: bool = True,
    ) -> Transaction:
        """A new transaction, not the session's current one.

        Raises InvalidRequest when the session, or the lake, is closed.
        """
        self.engine.require_open()
        if self._is_closed:
            raise InvalidRequest("the session is closed; open another with lake.session()")
        refuse_lost(self.engine)
        self.engine.end_abandoned()
        made = Transaction(
            id=self.engine.system.new_id(),
            engine=self.engine,
            session_number=self.number,
            level=self.level if level is None else level,
            read_only=read_only,
            explicit=explicit,
        )
        self._begun[made.id] = made
        return made

    def close(self) -> None:
        """Rolls the open transactions back; no other begins."""
        self._is_closed = True
        if self.engine.is_forked:
            return  # its transactions are the parent's
        for transaction in list(self._begun.values()):
            transaction.rollback()
        self._current = None
        if self._number is not None:
            self.engine.close_session(self._number)
            self._number = None

    def fail(self, cause: BaseException) -> None:
        """A statement could not even be read: it fails the open transaction all the same."""
        if self._current is not None:
            self._current.fail(cause)

    def execute(self, statement: Statement) -> DataFrame:
        """Carries out a statement, in the open transaction or in one of its own."""
        if isinstance(statement, ControlStatement):
            current = self._current
            try:
                return self._control(statement)
            except InvalidRequest as error:
                if current is not None:
                    self._failed(current, error)
                raise
        return self.execute_in(self._current, statement)

    def execute_in(self, transaction: Transaction | None, statement: Statement) -> DataFrame:
        """Carries out a statement in the transaction given; None for one of its own."""
        if transaction is not None and isinstance(statement, ControlStatement):
            return self._control_of(transaction, statement)
        answer = self.carry_out(transaction, statement)
        return answer(self.engine.plane)

    def carry_out(self, transaction: Transaction | None, statement: Statement) -> Answer:
        """As `execute_in`, for what doesn't steer transactions.

        The answer is made into a DataFrame only when it is asked for.
        """
        asked_in = transaction
        if transaction is not None and transaction.state is State.FAILED and asks_only(statement):
            transaction = None  # XACT_STATE() is -1 there
        statement = answered(
            statement, lambda: Answers(self.engine, asked_in, self.database, self.number)
        )
        if isinstance(statement, UseDatabase):
            with self._within(transaction, []):
                self._use(statement.name)
            return nothing
        command = self.engine.commands[type(statement)]
        if transaction is not None and command.is_alone:
            error = InvalidRequest(
                f"{type(statement).__name__} can't run in a transaction; COMMIT or ROLLBACK first"
            )
            self._failed(transaction, error)
            raise error
        with self._within(
            transaction,
            command.all_locks(statement),
            leaves=command.leaves_existing(statement),
            writes=command.writes,
        ) as context:
            answer = command.run(context, statement)
            if transaction is None:
                context.transaction.commit()
            return answer

    @contextmanager
    def _within(
        self,
        transaction: Transaction | None,
        wanted: Sequence[TableLock],
        *,
        leaves: bool = False,
        writes: bool = False,
        pins: bool = True,
    ) -> Iterator[Context]:
        """A statement's context, once it holds its locks; what goes wrong fails the transaction.

        Without a transaction the statement has one of its own, which ends here.
        """
        own = self.begin(explicit=False) if transaction is None else transaction
        own.require_active()
        context = Context(
            engine=self.engine,
            transaction=own,
            database=self.database,
            writes=writes,
            lock_timeout_ms=self.lock_timeout_ms,
        )
        try:
            with context.tables_named(), spark_errors():
                admit(context, wanted, leaves=leaves, pins=pins)
                yield context
        except CorruptTable as error:
            try:
                own.require_alive()
            except Unavailable as gone:
                own.fail(gone)
                raise gone from error
            own.fail(error)
            raise
        except BaseException as error:
            self._failed(own, error)
            raise
        finally:
            context.close()
            if transaction is None:
                own.rollback()

    def read(
        self,
        table: Table,
        travel: TimeTravel | None = None,
        condition: Expression | None = None,
        columns: Sequence[str] | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> DataFrame:
        """The table's rows for which the condition is true."""
        statement = ReadTable(
            table=table,
            travel=travel,
            condition=condition,
            columns=None if columns is None else tuple(columns),
        )
        return self.carry_out(transaction or self._current, statement)(self.engine.plane)

    def _reading(
        self, table: Table, transaction: Transaction | None
    ) -> AbstractContextManager[Context]:
        return self._within(transaction or self._current, [(table, LockMode.SCH_S)])

    def alone(self, wanted: Sequence[TableLock]) -> AbstractContextManager[Context]:
        """A transaction of its own, beside the current one, that holds these locks."""
        return self._within(None, wanted, writes=True)

    def catalog_view(self, name: str) -> Rows:
        """What one of the lake's own views shows now, read committed. Starts no Spark.

        Raises InvalidRequest when there is no such view.
        """
        with self._within(None, []) as context:
            rows = context.catalog_view(tuple(name.split(".")))
            if rows is None:
                raise InvalidRequest(
                    f"{name!r} is none of the lake's own views: there are {', '.join(VIEWS)}"
                )
            return rows

    def frame(
        self,
        table: Table,
        travel: TimeTravel | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> DataFrame:
        """All of the table's rows."""
        return self.read(table, travel, transaction=transaction)

    def snapshot(
        self,
        table: Table,
        travel: TimeTravel | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> Snapshot:
        """The table's state."""
        with self._reading(table, transaction) as context:
            return context.snapshot(context.require(table), travel)

    def exists(self, table: Table, *, transaction: Transaction | None = None) -> bool:
        """Whether there is such a table."""
        with self._reading(table, transaction) as context:
            return context.exists(context.find(table))

    def _use(self, name: str) -> None:
        entry = self.engine.catalog.database(name)
        if entry is None:
            raise InvalidRequest(f"there is no database {name!r}; SHOW DATABASES lists them")
        number = self.number()
        used = database_lock(entry.number, LockMode.S)
        locks = self.engine.catalog.of_lake().locks
        locks.acquire(number, None, [used], self.lock_timeout_ms)
        locks.leave(number, used.resource)
        self.database = name

    def _control(self, statement: Statement) -> DataFrame:
        match statement:
            case Begin(isolation=isolation, read_only=read_only):
                self._begin(None if isolation is None else parse_level(isolation), read_only)
            case Commit():
                self._commit()
            case Rollback():
                self._rollback()
            case Savepoint(name):
                self._open().savepoint(name)
            case RollbackTo(name):
                self._open().rollback_to(name)
            case ReleaseSavepoint(name):
                self._open().release(name)
            case SetIsolation():
                return self._set_isolation(self._current, statement)
            case ShowIsolation():
                return self._show_isolation(self._current)
            case Kill(session_id):
                kill_session(self.engine.catalog.of_lake(), self.number(), session_id)
            case Atomic():
                self._atomic(statement)
            case ExecuteImmediate():
                return self._immediately(self._current, statement)
            case SetLockTimeout(timeout_ms):
                self.lock_timeout_ms = timeout_ms
            case SetXactAbort():
                pass  # a failed statement always rolls everything back
            case LockTable():
                self._lock(self._current, statement)
            case _:
                raise AssertionError(statement)
        return nothing(self.engine.plane)

    def _control_of(self, transaction: Transaction, statement: Statement) -> DataFrame:
        """A control statement inside a transaction that isn't the session's current one."""
        transaction.require_active()
        try:
            match statement:
                case Commit():
                    transaction.commit()
                case Rollback():
                    transaction.rollback()
                case RollbackTo(name):
                    transaction.rollback_to(name)
                case Savepoint(name):
                    transaction.savepoint(name)
                case ReleaseSavepoint(name):
                    transaction.release(name)
                case Begin() | Atomic():
                    raise InvalidRequest(
                        f"transaction {transaction.id} is open; transactions don't nest"
                    )
                case ExecuteImmediate():
                    return self._immediately(transaction, statement)
                case SetIsolation():
                    return self._set_isolation(transaction, statement)
                case ShowIsolation():
                    return self._show_isolation(transaction)
                case LockTable():
                    self._lock(transaction, statement)
                case _:
                    return self._control(statement)
        except InvalidRequest as error:
            self._failed(transaction, error)
            raise
        return nothing(self.engine.plane)

    def _lock(self, transaction: Transaction | None, statement: LockTable) -> None:
        if transaction is None:
            raise InvalidRequest(
                "LOCK TABLE holds until the end of a transaction, and none is open; BEGIN one first"
            )
        wanted = each_once((table, LockMode.X) for table in statement.tables)
        with self._within(transaction, wanted, pins=False) as context:
            for table in statement.tables:
                if not context.handle(table).in_lake:
                    raise InvalidRequest(
                        f"LOCK TABLE {table}: a table named by its place takes no locks; "
                        "conflicting transactions are found at COMMIT"
                    )

    def _set_isolation(self, current: Transaction | None, statement: SetIsolation) -> DataFrame:
        """Sets the session's level; an open transaction's is raised where it is looser."""
        database = self._database_entry()
        if current is None:
            made = set_isolation(statement, self.level, database)
        else:
            current.require_active()
            made = set_isolation(
                statement, self.level, database, of_open=current.level, is_open=True
            )
            current.set_level(made.of_open)
        self.level = made.level
        return self.engine.plane.frame(made.rows.schema, made.rows.rows)

    def _show_isolation(self, current: Transaction | None) -> DataFrame:
        """The level in force, of the open transaction or of the session's next."""
        if current is not None:
            current.require_active()
        level = self.level if current is None else current.level
        found = shown_isolation(level, self._database_entry())
        return self.engine.plane.frame(found.schema, found.rows)

    def _database_entry(self) -> DatabaseEntry | None:
        return self.engine.catalog.database(self.database)

    def _begin(self, level: Level | None, read_only: bool) -> None:
        if self._current is not None:
            raise InvalidRequest(
                f"a transaction is open already ({self._current.id}); transactions don't nest: "
                "COMMIT or ROLLBACK it first"
            )
        self._is_lost = False
        self._current = self.begin(level=level, read_only=read_only)

    def _open(self) -> Transaction:
        if self._current is None:
            raise InvalidRequest("no transaction is open; BEGIN opens one")
        return self._current

    def _commit(self) -> None:
        transaction = self._open()
        self._is_lost = True
        self._current = None
        try:
            transaction.commit()
        except BaseException:
            transaction.rollback()  # one that failed, and whose end was interrupted, ends here
            raise
        self._is_lost = False

    def _rollback(self) -> None:
        """Ends the transaction; after a COMMIT that failed there is nothing left to do."""
        if self._current is None and self._is_lost:
            self._is_lost = False
            return
        transaction = self._open()
        self._current = None
        transaction.rollback()

    def _atomic(self, statement: Atomic) -> None:
        self._begin(None, False)
        self._in_script = True
        try:
            ground = SessionGround(self, self._current)
            Script(ground).run(Block(steps=statement.statements, handlers=statement.handlers))
            self._commit()
        except BaseException:
            if self._current is not None:
                self._rollback()
            raise
        finally:
            self._in_script = False

    def _immediately(
        self, transaction: Transaction | None, statement: ExecuteImmediate
    ) -> DataFrame:
        ground = SessionGround(self, transaction)
        found = statement_of(statement, ground)
        if statement.into:
            assert isinstance(found, Select)
            ground.assign(statement.into, found.query)
            return nothing(self.engine.plane)
        if transaction is self._current and not self._in_script:
            return self.execute(found)
        return self.execute_in(transaction, found)

    def _failed(self, transaction: Transaction, error: BaseException) -> None:
        """A statement failed, and with it its transaction; a script may have a handler."""
        if not (self._in_script and isinstance(error, InvalidRequest)):
            transaction.fail(error)
