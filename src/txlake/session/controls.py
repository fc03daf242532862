"""The control statements: which function carries out which, on a session and its transactions.

Owns what BEGIN, COMMIT, ROLLBACK, savepoints, SET and LOCK TABLE do, said in the session or in a
transaction beside its own (`lake.transaction().sql`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from txlake.conflict.levels import parse_level
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.session.command import Answer, each_once, nothing
from txlake.session.immediate import statement_of
from txlake.session.isolation import set_isolation, shown_isolation
from txlake.session.killing import kill_session
from txlake.session.variables import SessionGround
from txlake.statements import (
    Atomic,
    Begin,
    Commit,
    ExecuteImmediate,
    Kill,
    LockTable,
    ReleaseSavepoint,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    ShowIsolation,
)
from txlake.views.describe import Rows

if TYPE_CHECKING:
    from txlake.session.session import Session
    from txlake.session.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a control statement was said.

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
        """The transaction. Raises InvalidRequest when none is open."""
        if self.transaction is None:
            raise InvalidRequest("no transaction is open; BEGIN opens one")
        return self.transaction


Control: TypeAlias = Callable[[Turn, Any], Answer]

# A text that evaluates itself never ends.
_NESTED_MAX = 50


def _begin(turn: Turn, statement: Begin) -> Answer:
    _refuse_nested(turn)
    level = None if statement.isolation is None else parse_level(statement.isolation)
    turn.session.begin_own(level, statement.read_only)
    return nothing


def _atomic(turn: Turn, statement: Atomic) -> Answer:
    _refuse_nested(turn)
    turn.session.run_atomic(statement)
    return nothing


def _refuse_nested(turn: Turn) -> None:
    if turn.transaction is not None:
        raise InvalidRequest(
            f"a transaction is open already ({turn.transaction.id}); transactions don't nest: "
            "COMMIT or ROLLBACK it first"
        )


def _commit(turn: Turn, _: Commit) -> Answer:
    transaction = turn.require_open()
    if turn.is_own:
        turn.session.commit_own()
    else:
        transaction.commit()
    return nothing


def _rollback(turn: Turn, _: Rollback) -> Answer:
    if turn.is_own:
        turn.session.rollback_own()
    else:
        turn.require_open().rollback()
    return nothing


def _savepoint(turn: Turn, statement: Savepoint) -> Answer:
    turn.require_open().savepoint(statement.name)
    return nothing


def _rollback_to(turn: Turn, statement: RollbackTo) -> Answer:
    turn.require_open().rollback_to(statement.name)
    return nothing


def _release(turn: Turn, statement: ReleaseSavepoint) -> Answer:
    turn.require_open().release(statement.name)
    return nothing


def _set_isolation(turn: Turn, statement: SetIsolation) -> Answer:
    """Sets the session's level; an open transaction's is raised where it is looser."""
    session, current = turn.session, turn.transaction
    database = session.engine.catalog.database(session.database)
    if current is None:
        made = set_isolation(statement, session.level, database)
    else:
        current.require_active()
        made = set_isolation(
            statement, session.level, database, of_open=current.level, is_open=True
        )
        current.set_level(made.of_open)
    session.level = made.level
    return _answer(made.rows)


def _show_isolation(turn: Turn, _: ShowIsolation) -> Answer:
    """The level in force, of the open transaction or of the session's next."""
    session, current = turn.session, turn.transaction
    if current is not None:
        current.require_active()
    level = session.level if current is None else current.level
    return _answer(shown_isolation(level, session.engine.catalog.database(session.database)))


def _answer(rows: Rows) -> Answer:
    return lambda by: by.frame(rows.schema, rows.rows)


def _kill(turn: Turn, statement: Kill) -> Answer:
    session = turn.session
    kill_session(session.engine.catalog.of_lake(), session.number(), statement.session_id)
    return nothing


def _set_lock_timeout(turn: Turn, statement: SetLockTimeout) -> Answer:
    turn.session.lock_timeout_ms = statement.timeout_ms
    return nothing


def _set_xact_abort(turn: Turn, statement: SetXactAbort) -> Answer:
    return nothing  # a failed statement always rolls everything back


def _lock(turn: Turn, statement: LockTable) -> Answer:
    if turn.transaction is None:
        raise InvalidRequest(
            "LOCK TABLE holds until the end of a transaction, and none is open; BEGIN one first"
        )
    wanted = each_once((table, LockMode.X) for table in statement.tables)
    with turn.session.statement_context(turn.transaction, wanted, pins=False) as context:
        for table in statement.tables:
            if not context.handle(table).in_lake:
                raise InvalidRequest(
                    f"LOCK TABLE {table}: a table named by its place takes no locks; "
                    "conflicting transactions are found at COMMIT"
                )
    return nothing


def _execute_immediate(turn: Turn, statement: ExecuteImmediate) -> Answer:
    ground = SessionGround(turn.session, turn.transaction)
    rules = turn.session.engine.plane.text_rules
    for _ in range(_NESTED_MAX):
        found = statement_of(statement, ground, rules)
        if not isinstance(found, ExecuteImmediate):
            break
        statement = found
    else:
        raise InvalidRequest(
            f"EXECUTE IMMEDIATE evaluates itself: {_NESTED_MAX} texts were another one each"
        )
    if statement.into:
        assert isinstance(found, Select)
        ground.assign(statement.into, found.query)
        return nothing
    return turn.session.answer_in(turn.transaction, found)


CONTROLS: Mapping[type[Any], Control] = {
    Begin: _begin,
    Commit: _commit,
    Rollback: _rollback,
    Savepoint: _savepoint,
    RollbackTo: _rollback_to,
    ReleaseSavepoint: _release,
    SetIsolation: _set_isolation,
    ShowIsolation: _show_isolation,
    Kill: _kill,
    SetLockTimeout: _set_lock_timeout,
    SetXactAbort: _set_xact_abort,
    LockTable: _lock,
    Atomic: _atomic,
    ExecuteImmediate: _execute_immediate,
}
