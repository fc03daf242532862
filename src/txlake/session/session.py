"""A session: its current database, its own transaction, and the execution of statements.

Owns autocommit and the session's own transaction. What each statement does is in `txlake.commands`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from txlake.catalog import DEFAULT_DATABASE
from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry
from txlake.commit.data_plane import DataPlane
from txlake.commit.parallel import is_far
from txlake.conflict.levels import Level
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.protocol.branching import split_place
from txlake.session.admission import admit
from txlake.session.auto_compaction import pack_after
from txlake.session.branch_use import (
    Line,
    engine_on,
    parent_of,
    require_branch_kept,
    require_branch_open,
    require_wap_branch,
)
from txlake.session.catalog_access import refuse_lost
from txlake.session.command import Answer, Command, Commands, TableLock, each_once, words_of
from txlake.session.conflict_turns import NO_TURNS, ConflictTurns, Turns
from txlake.session.context import Context
from txlake.session.deferral import Deferral, deferral_of, must_repeat, only_appends
from txlake.session.engine import Engine
from txlake.session.lineage import reading_of
from txlake.session.permission import Permission
from txlake.session.session_functions import (
    SessionFunctionValues,
    is_only_session_functions,
    with_values,
)
from txlake.session.settings_rules import apply_rules
from txlake.session.statement_slots import table_changed
from txlake.session.statement_tables import StatementTables
from txlake.session.transaction import State, Transaction
from txlake.session.versions_read import (
    VersionRead,
    begin_at_versions,
    locks_of,
    note_unstated_reads,
    require_versions_allowed,
)
from txlake.session.views import VIEWS
from txlake.session.views.describe import Rows
from txlake.sql.statements import (
    Expression,
    Optimize,
    ReadTable,
    SparkCommand,
    Statement,
    Table,
    TablePath,
    TimeTravel,
)
from txlake.telemetry import span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_logger = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class ControlScope:
    """Where a control statement is carried out.

    Attributes:
        transaction: the open transaction that it is about; None where none is open.
    """

    session: Session
    transaction: Transaction | None

    @property
    def is_own(self) -> bool:
        """Whether the transaction is the one that BEGIN opened in the session, or none is open."""
        return self.transaction is self.session.current

    def require_open(self) -> Transaction:
        """Return the transaction. Raises InvalidRequest when none is open."""
        if self.transaction is None:
            raise InvalidRequest("no transaction is open; BEGIN opens one")
        return self.transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The handler of the control statements of one type.

    Attributes:
        writes: whether callers that may only read may not run it.
        is_served: as `Command.is_served`.
    """

    run: Callable[[ControlScope, Any], Answer]
    writes: bool = True
    is_served: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """How statements are carried out, by their types: control statements, and all others."""

    controls: Mapping[type[Any], Control]
    commands: Commands


class Session:
    """Executes statements one after the other; used by one thread at a time.

    If `follows_setting`, Iceberg's setting `spark.wap.branch` chooses the branch (`Line`).

    Attributes:
        user_name: who uses it, if that isn't the user of the process.
        permission: what that one may do; None: everything.
        last_identity: the last value that a statement generated in an identity column, T-SQL's
            SCOPE_IDENTITY; None before the first, and settable.
    """

    def __init__(
        self,
        engine: Engine,
        handlers: Handlers,
        *,
        level: Level | None = None,
        follows_setting: bool = False,
    ) -> None:
        self._line = Line(engine, follows_setting=follows_setting)
        self.handlers = handlers
        self.database = DEFAULT_DATABASE
        self.level = level
        self.lock_timeout_ms = -1
        self.user_name: str | None = None
        self.permission: Permission | None = None
        self.last_identity: int | None = None
        self._number: int | None = None
        self._entering = threading.Lock()
        self._current: Transaction | None = None
        self._begun: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
        self._has_failed_commit = False
        self._is_closed = False
        self._in_script = False
        self._conflict_turns = ConflictTurns()

    @property
    def engine(self) -> Engine:
        """The engine with the names of the branch that the last statement used, or main's."""
        return self._line.engine

    @property
    def chosen_branch(self) -> str:
        """The name of the branch that USE BRANCH chose, or `main`."""
        branch = self._line.chosen.branch
        return MAIN_NAME if branch is None else branch.name

    def another(self, plane: DataPlane | None = None, branch: str | None = None) -> Session:
        """Return a new session with the same branch, level and current database, and no
        transaction; on another data plane or branch if one is given.

        Raises InvalidRequest if there is no such branch.
        """
        engine = self._line.chosen
        if branch is not None and branch != self.chosen_branch:
            engine = engine_on(engine, branch)
        if plane is not None:
            engine = engine.with_plane(plane)
        made = Session(
            engine,
            self.handlers,
            level=self.level,
            follows_setting=self._line.follows_setting,
        )
        made.database = self.database
        made.user_name, made.permission = self.user_name, self.permission
        return made

    def require_own(self, entry: BranchEntry, what: str) -> None:
        """Raise NotPermitted if the session's user may not do something to a branch."""
        if self.permission is not None:
            self.permission.require_own(entry, what)

    def follow_setting(
        self, transaction: Transaction | None = None, *, missing_ok: bool = False
    ) -> None:
        """Take the branch that Iceberg's setting names now, as `Line.follow`.

        `transaction`: the one that a statement is about to run in, the current one by default.
        Raises InvalidRequest as `Line.follow`, and fails the transaction.
        """
        held = self._current if transaction is None else transaction
        try:
            self._line.follow(None if held is None else held.engine, missing_ok=missing_ok)
        except InvalidRequest as error:
            if held is not None:
                self._failed(held, error)
            raise

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.engine.spark

    def number(self) -> int:
        """Return the session's number in the catalog, as the views show it.

        The session gets its number on first use.
        """
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
        """Begin a transaction beside the session's current one.

        Without a `level` it has the session's. It is read-only where the session's user may not
        write. `explicit`: begun by BEGIN or the API, not for one
        autocommitted statement. Transactions and sessions whose objects were garbage-collected are
        ended as well. Raises InvalidRequest if the session or the lake is closed, or the time of
        its branch is over, InvalidRequest or CorruptTable if the catalog has to be recovered first.
        """
        self.engine.require_open()
        if self._is_closed:
            raise InvalidRequest("the session is closed; open another with lake.session()")
        refuse_lost(self.engine)
        if explicit:
            self.follow_setting()
        require_branch_kept(self.engine)
        self.engine.end_abandoned()
        is_writer = self.permission is None or self.permission.may_write(self.engine)
        made = Transaction(
            id=self.engine.system.new_id(),
            engine=self.engine,
            session_number=self.number,
            level=self.level if level is None else level,
            read_only=read_only or not is_writer,
            explicit=explicit,
            note_identity=self._note_identity,
            note_conflict=self._conflict_turns.note_conflict,
            follow_up=self._follow_up,
        )
        self._begun[made.id] = made
        return made

    def _note_identity(self, value: int) -> None:
        self.last_identity = value

    def _follow_up(self, transaction: Transaction) -> None:
        """Do what follows the commit of one of this session's transactions."""

        def pack(statement: Optimize) -> None:
            """Run the statement in a session of its own, which waits for no lock."""
            own = Session(self.engine, self.handlers)
            own.lock_timeout_ms = 0
            try:
                own.carry_out(None, statement)
            finally:
                own.close()

        pack_after(transaction, pack)

    def use_branch(self, name: str) -> None:
        """Use the names and versions of a branch from now on; `main` are the lake's own.

        The database stays the current one if the branch has it. Raises InvalidRequest if there is
        no such branch, a transaction is open, or Iceberg's setting names another one.
        """
        if self._current is not None:
            raise InvalidRequest(
                f"USE BRANCH {name}: a transaction is open, and belongs to the branch that it "
                "began on; COMMIT or ROLLBACK first"
            )
        self._line.choose(name)
        if self.engine.catalog.database(self.database) is None:
            self.database = DEFAULT_DATABASE

    def leave_branch(self) -> None:
        """Use what the branch was made from, from now on; main itself on main."""
        if self.engine.branch is not None:
            self._line.chosen = parent_of(self.engine.main, self.engine.branch)

    def close(self) -> None:
        """Roll back the open transactions, end the session, and refuse new transactions.

        In a forked process only new transactions are refused: the open ones are the parent's.
        """
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
        """Fail the current transaction, if one is active, by an error outside of `execute`: a text
        that can't be parsed, or a result that can't be fetched.
        """
        if self._current is not None:
            self._current.fail(cause)

    def execute(self, statement: Statement) -> DataFrame:
        """Execute a statement in the current transaction, or in a transaction of its own."""
        return self.execute_in(self._current, statement)

    def perform(self, statement: Statement) -> None:
        """Execute a statement as `execute` does, without making its result, which needs Spark."""
        self.answer_in(self._current, statement)

    def execute_in(self, transaction: Transaction | None, statement: Statement) -> DataFrame:
        """Execute a statement in a transaction and return its result.

        With None it runs in a transaction of its own, which is committed.
        """
        return self.answer_in(transaction, statement)(self.engine.plane)

    def answer_in(
        self,
        transaction: Transaction | None,
        statement: Statement,
        *,
        versions_read: Sequence[VersionRead] = (),
    ) -> Answer:
        """Execute a statement as `execute_in` does, and return the function that makes its result.

        Control statements go to their handlers, all others to `carry_out`. An error fails the
        transaction, except an InvalidRequest within `script`. Of a control statement only
        InvalidRequest does so here. Raises NotPermitted for what the session's user may not do.
        """
        control = self.handlers.controls.get(type(statement))
        if control is None:
            return self.carry_out(transaction, statement, versions_read=versions_read)
        if transaction is not None and transaction is not self._current:
            transaction.require_active()
        try:
            if versions_read:
                require_versions_allowed(statement)
            if control.writes and self.permission is not None:
                self.permission.require_control(self.engine, statement, words_of(statement))
            return control.run(ControlScope(self, transaction), statement)
        except InvalidRequest as error:
            if transaction is not None:
                self._failed(transaction, error)
            raise

    def carry_out(
        self,
        transaction: Transaction | None,
        statement: Statement,
        *,
        user_metadata: str | None = None,
        versions_read: Sequence[VersionRead] = (),
    ) -> Answer:
        """Execute a statement that isn't a control statement, as `answer_in` does.

        In a failed transaction only a query of session functions can be executed. `user_metadata`
        becomes the commit's `userMetadata`; the value of the transaction's last statement that has
        one counts. With `versions_read` the transaction reads these tables at these versions
        (`begin_at_versions`).
        """
        with self.engine.plane.settings_held():
            return self._carry_out(transaction, statement, user_metadata, versions_read)

    def _carry_out(
        self,
        transaction: Transaction | None,
        statement: Statement,
        user_metadata: str | None,
        versions_read: Sequence[VersionRead],
    ) -> Answer:
        """Execute a statement as `carry_out` does."""
        if not _is_spark_alone(statement):
            self.follow_setting(transaction)
        elif transaction is None and self._current is None:
            self._line.forget_setting()  # RESET works although the branch has ended
        requested_in = transaction
        if (
            transaction is not None
            and transaction.state is State.FAILED
            and is_only_session_functions(statement)
        ):
            transaction = None  # XACT_STATE() is -1 there
        with span("statement", kind=words_of(statement)):
            return self._answer_of(
                transaction, requested_in, statement, user_metadata, versions_read
            )

    def _answer_of(
        self,
        transaction: Transaction | None,
        requested_in: Transaction | None,
        statement: Statement,
        user_metadata: str | None,
        versions_read: Sequence[VersionRead],
    ) -> Answer:
        """Execute a statement and return the function that makes its result.

        `requested_in` is the transaction of which session functions speak, which may have failed.
        Raises InvalidRequest, and fails the transaction, for a statement that can't be part of one.
        """
        statement = with_values(
            statement,
            lambda: SessionFunctionValues(self.engine, requested_in, self.database, self.number),
        )
        command = self.handlers.commands[type(statement)]
        if transaction is not None and command.is_alone:
            error = InvalidRequest(
                f"{words_of(statement)} can't run in a transaction; COMMIT or ROLLBACK first"
            )
            self._failed(transaction, error)
            raise error
        deferral = Deferral.NONE
        if transaction is None and not versions_read:
            deferral = self._deferral_of(statement)
        try:
            return self._run(
                transaction, command, statement, user_metadata, deferral, versions_read
            )
        except OutcomeUnknown:
            raise
        except TxlakeError as error:
            if not must_repeat(error, deferral):
                raise
            _logger.debug("a statement runs again, on the newest state: %s", error)
        return self._run(None, command, statement, user_metadata, Deferral.NONE, versions_read)

    def _deferral_of(self, statement: Statement) -> Deferral:
        """Return how an autocommitted statement may be deferred, where that saves requests."""
        catalog, deferral = self.engine.catalog, deferral_of(statement)
        if catalog.is_lake and catalog.of_lake().defers_registration:
            return deferral
        table = getattr(statement, "table", None)
        is_path = isinstance(table, TablePath)
        if deferral is Deferral.UNTIL_COMMIT_UNSEEN and is_path and self._is_far(table):
            return deferral
        return Deferral.NONE

    def _is_far(self, table: Table | None) -> bool:
        """Return whether a table is in a store over a network: a named one, if the warehouse is."""
        if isinstance(table, TablePath):
            place, _ = split_place(table.location)
            return is_far(self.engine.at(place, TablePath(place)).store)
        return self.engine.warehouse is not None and is_far(self.engine.warehouse)

    def _run(
        self,
        transaction: Transaction | None,
        command: Command,
        statement: Statement,
        user_metadata: str | None,
        deferral: Deferral,
        versions_read: Sequence[VersionRead],
    ) -> Answer:
        """Run a statement's command in the transaction, or in one of its own, which is committed;
        return the function that makes its result.
        """
        if command.writes:
            self._require_permitted(transaction, statement)
        if command.writes and not self._line.follows_setting and not _is_spark_alone(statement):
            require_wap_branch(self.engine)
        appends = only_appends(statement)
        with (
            self._slot(transaction, statement) as leave_slot,
            self.statement_context(
                transaction,
                each_once([*command.all_locks(statement), *locks_of(versions_read)]),
                leaves=command.leaves_existing(statement),
                writes=command.writes,
                deferral=deferral,
                answers=not appends,
                turns=self._conflict_turns.begin(transaction, statement),
                on_spark=leave_slot,
            ) as context,
        ):
            if user_metadata is not None:
                context.transaction.user_metadata = user_metadata
            if versions_read:
                require_versions_allowed(statement)
                begin_at_versions(context, versions_read)
            statement, before = apply_rules(statement, context.rules), context.transaction.writes
            with context.transaction.writing_files(appends=appends):
                answer = command.run(context, statement)
            note_unstated_reads(context, statement, versions_read)
            context.transaction.note_writes(before, partial(reading_of, context, statement))
            if transaction is None:
                context.transaction.commit()
            return answer

    def _slot(
        self, transaction: Transaction | None, statement: Statement
    ) -> AbstractContextManager[Callable[[], None]]:
        """Return the context in which a statement that changes rows has one of its table's slots
        (`StatementSlots.taken`).

        Only autocommitted ones on a near table wait: others hold locks, or wait for requests.
        """
        table = table_changed(statement)
        if transaction is not None or self._is_far(table):
            table = None
        wait_ms = self.engine.settings.retry.queue_ms_max
        if self.lock_timeout_ms >= 0:
            wait_ms = min(wait_ms, self.lock_timeout_ms)
        return self.engine.slots.taken(self.database, table, wait_ms)

    def _require_permitted(self, transaction: Transaction | None, statement: Statement) -> None:
        """Raise NotPermitted, and fail the transaction, for a statement that changes what the
        session's user may not change.
        """
        if self.permission is None:
            return
        engine = self.engine if transaction is None else transaction.engine
        try:
            self.permission.require_command(engine, words_of(statement))
        except InvalidRequest as error:
            if transaction is not None:
                self._failed(transaction, error)
            raise

    @contextmanager
    def statement_context(
        self,
        transaction: Transaction | None,
        wanted: Sequence[TableLock],
        *,
        leaves: bool = False,
        writes: bool = False,
        pins: bool = True,
        deferral: Deferral = Deferral.NONE,
        answers: bool = True,
        turns: Turns = NO_TURNS,
        on_spark: Callable[[], None] = _nothing,
    ) -> Iterator[Context]:
        """Yield a statement's context once it holds its locks; an error fails the transaction.

        Without a transaction the statement has one of its own, which the caller commits: at the end
        it is rolled back unless it was committed. `leaves` and `pins` as in `admit`; with a
        `deferral` the caller runs the statement again if it raises AdmissionOutdated. `answers`:
        whether the statement returns what it read, which is then checked at its end. `turns`: what
        it requests before its locks. `on_spark` as in `DataPlane.running`.

        Raises InvalidRequest if the transaction isn't active, and as `admit`. A CorruptTable of the
        block becomes Unavailable if another session ended the transaction, whose files may be gone.
        """
        own = self.begin(explicit=False) if transaction is None else transaction
        own.require_active()
        own.registration.deferral = deferral
        own.tables.writes = writes
        own.tables.begins_unseen = deferral is Deferral.UNTIL_COMMIT_UNSEEN
        context = Context(
            tables=StatementTables(
                engine=own.engine,
                transaction=own,
                database=self.database,
                begun_ms=self.engine.system.monotonic_ms(),
            ),
            writes=writes,
            lock_timeout_ms=self.lock_timeout_ms,
            turns=turns,
            use=self._use,
            rules=self.engine.plane.text_rules,
        )
        try:
            with context.tables.tables_named(), self.engine.plane.running(on_spark):
                admit(context, wanted, leaves=leaves, pins=pins)
                yield context
                if answers:
                    own.tables.check_reads()
        except InvalidRequest as error:
            self._failed(own, error)
            require_branch_open(own.engine, error)
            raise
        except CorruptTable as error:
            try:
                own.registration.require_open()
            except Unavailable as gone:
                own.fail(gone)
                raise gone from error
            own.fail(error)
            require_branch_open(own.engine, error)
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
        """Return the table's rows for which the condition is true.

        All columns, or the given ones. Without `transaction` they are read in the current one, or
        in one of their own.
        """
        statement = ReadTable(
            table=table,
            travel=travel,
            condition=condition,
            columns=None if columns is None else tuple(columns),
        )
        answer = self.carry_out(transaction or self._current, statement)
        return answer(self.engine.plane)

    def _reading(
        self, table: Table, transaction: Transaction | None
    ) -> AbstractContextManager[Context]:
        self.follow_setting(transaction)
        return self.statement_context(transaction or self._current, [(table, LockMode.SCH_S)])

    def alone(self, wanted: Sequence[TableLock]) -> AbstractContextManager[Context]:
        """Return a context of a new transaction beside the current one, which takes these locks.

        The caller commits the transaction; without that it is rolled back at the end of the block.
        """
        return self.statement_context(None, wanted, writes=True)

    def catalog_view(self, name: str) -> Rows:
        """Return the present rows of one of the system views, without Spark.

        `name` may be in any letter case. Raises InvalidRequest when there is no such view.
        """
        self.follow_setting()
        with self.statement_context(None, []) as context:
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
        """Return all of the table's rows, now or as of `travel`; the transaction as in `read`."""
        return self.read(table, travel, transaction=transaction)

    def snapshot(
        self,
        table: Table,
        travel: TimeTravel | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> Snapshot:
        """Return the table's snapshot in the transaction, or at an earlier version or time.

        Raises InvalidRequest if there is no table.
        """
        with self._reading(table, transaction) as context:
            return context.snapshot(context.tables.require(table), travel)

    def glance(self, table: Table) -> Snapshot | None:
        """Return the table's snapshot; None, without looking, while the session has a transaction
        open, which an error would fail.

        Raises InvalidRequest if there is no table.
        """
        return None if self._current is not None else self.snapshot(table)

    def exists(self, table: Table, *, transaction: Transaction | None = None) -> bool:
        """Return whether the table exists in the transaction; False for views and unknown names.

        Raises InvalidRequest for a name of another catalog.
        """
        with self._reading(table, transaction) as context:
            return context.tables.exists(context.tables.find(table))

    def _use(self, database: str) -> None:
        self.database = database

    def begin_own(self, level: Level | None, read_only: bool) -> None:
        """Begin the session's current transaction (BEGIN); none may be open."""
        self._has_failed_commit = False
        self._current = self.begin(level=level, read_only=read_only)

    def commit_own(self) -> None:
        """Commit the current transaction (COMMIT); it ends even if the commit fails.

        A transaction must be open. After a failed commit one `rollback_own` does nothing. Raises as
        `Transaction.commit`.
        """
        transaction = self._current
        assert transaction is not None
        self._has_failed_commit = True
        self._current = None
        try:
            transaction.commit()
        except BaseException:
            transaction.rollback()  # one that failed, and whose end was interrupted, ends here
            raise
        self._has_failed_commit = False

    def rollback_own(self) -> None:
        """Roll back the current transaction (ROLLBACK); do nothing after a failed COMMIT.

        Raises InvalidRequest if none is open otherwise.
        """
        transaction = self._current
        if transaction is None and self._has_failed_commit:
            self._has_failed_commit = False
            return
        if transaction is None:
            raise InvalidRequest("no transaction is open; BEGIN opens one")
        self._current = None
        transaction.rollback()

    @contextmanager
    def script(self) -> Iterator[None]:
        """Keep an InvalidRequest in the block from failing the transaction.

        A script's handlers decide what it does.
        """
        self._in_script = True
        try:
            yield
        finally:
            self._in_script = False

    def _failed(self, transaction: Transaction, error: BaseException) -> None:
        """Fail the transaction of a failed statement, unless a script may handle the error."""
        if not (self._in_script and isinstance(error, InvalidRequest)):
            transaction.fail(error)


def _is_spark_alone(statement: Statement) -> bool:
    """Return whether Spark carries a statement out without the lake's tables, as SET and RESET."""
    return isinstance(statement, SparkCommand) and not statement.command.references
