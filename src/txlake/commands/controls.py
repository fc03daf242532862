"""Control statements: BEGIN, COMMIT, ROLLBACK, savepoints, SET, LOCK TABLE, KILL and scripts.

They act on a session's own transaction, or on the transaction of `lake.transaction()` in which they
are carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txlake.commands import branches
from txlake.commands.execute_immediate import statement_of
from txlake.commands.script_session import ScriptSession
from txlake.commands.scripting import Script
from txlake.conflict.levels import parse_level
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.session.command import Answer, answering, each_once, nothing
from txlake.session.isolation import set_isolation, shown_isolation
from txlake.session.killing import kill_session
from txlake.session.session import Control, ControlScope
from txlake.sql.statements import (
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
from txlake.sql.statements.scripting import Block

# A text that evaluates itself never ends.
_NESTED_MAX = 50


def _begin(scope: ControlScope, statement: Begin) -> Answer:
    """Carry out BEGIN. Raises InvalidRequest if a transaction is open, and for an unknown level."""
    _refuse_nested(scope)
    level = None if statement.isolation is None else parse_level(statement.isolation)
    scope.session.begin_own(level, statement.read_only)
    return nothing


def _atomic(scope: ControlScope, statement: Atomic) -> Answer:
    """Carry out BEGIN ATOMIC: run its statements in a new transaction and commit it.

    Any error that its handlers don't catch rolls back. Raises InvalidRequest in a transaction.
    """
    _refuse_nested(scope)
    session = scope.session
    session.begin_own(None, False)
    try:
        with session.script():
            script = Script(ScriptSession(session, session.current))
            script.run(Block(steps=statement.statements, handlers=statement.handlers))
            session.commit_own()
    except BaseException:
        if session.current is not None:
            session.rollback_own()
        raise
    return nothing


def _refuse_nested(scope: ControlScope) -> None:
    """Raise InvalidRequest if a transaction is open."""
    if scope.transaction is not None:
        raise InvalidRequest(
            f"a transaction is open already ({scope.transaction.id}); transactions don't nest: "
            "COMMIT or ROLLBACK it first"
        )


def _commit(scope: ControlScope, _: Commit) -> Answer:
    """Carry out COMMIT. Raises InvalidRequest if no transaction is open."""
    transaction = scope.require_open()
    if scope.is_own:
        scope.session.commit_own()
    else:
        transaction.commit()
    return nothing


def _rollback(scope: ControlScope, _: Rollback) -> Answer:
    """Carry out ROLLBACK of the session's own or another transaction.

    Raises InvalidRequest if none is open, except after a failed COMMIT.
    """
    if scope.is_own:
        scope.session.rollback_own()
    else:
        scope.require_open().rollback()
    return nothing


def _savepoint(scope: ControlScope, statement: Savepoint) -> Answer:
    scope.require_open().savepoint(statement.name)
    return nothing


def _rollback_to(scope: ControlScope, statement: RollbackTo) -> Answer:
    scope.require_open().rollback_to(statement.name)
    return nothing


def _release(scope: ControlScope, statement: ReleaseSavepoint) -> Answer:
    scope.require_open().release(statement.name)
    return nothing


def _set_isolation(scope: ControlScope, statement: SetIsolation) -> Answer:
    """Set the session's level, and raise the open transaction's if it is looser.

    Raises InvalidRequest if that transaction isn't active.
    """
    session, current = scope.session, scope.transaction
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
    return answering(made.rows)


def _show_isolation(scope: ControlScope, _: ShowIsolation) -> Answer:
    """Return the isolation level of the open transaction, or else of the session.

    Raises InvalidRequest if that transaction isn't active.
    """
    session, current = scope.session, scope.transaction
    if current is not None:
        current.require_active()
    level = session.level if current is None else current.level
    return answering(shown_isolation(level, session.engine.catalog.database(session.database)))


def _kill(scope: ControlScope, statement: Kill) -> Answer:
    """Carry out KILL. Raises as `kill_session`."""
    session = scope.session
    kill_session(session.engine.catalog.of_lake(), session.number(), statement.session_id)
    return nothing


def _set_lock_timeout(scope: ControlScope, statement: SetLockTimeout) -> Answer:
    scope.session.lock_timeout_ms = statement.timeout_ms
    return nothing


def _set_xact_abort(scope: ControlScope, statement: SetXactAbort) -> Answer:
    return nothing  # a failed statement always rolls everything back


def _lock(scope: ControlScope, statement: LockTable) -> Answer:
    """Carry out LOCK TABLE: take X locks until the transaction ends.

    Raises InvalidRequest without a transaction, for an unknown table and for a path table;
    LockTimeout and Deadlock as `admit`.
    """
    if scope.transaction is None:
        raise InvalidRequest(
            "LOCK TABLE holds until the end of a transaction, and none is open; BEGIN one first"
        )
    wanted = each_once((table, LockMode.X) for table in statement.tables)
    with scope.session.statement_context(scope.transaction, wanted, pins=False) as context:
        for table in statement.tables:
            if not context.tables.handle(table).in_lake:
                raise InvalidRequest(
                    f"LOCK TABLE {table}: a table named by its place takes no locks; "
                    "conflicting transactions are found at COMMIT"
                )
    return nothing


def _execute_immediate(scope: ControlScope, statement: ExecuteImmediate) -> Answer:
    """Carry out EXECUTE IMMEDIATE: run the statement in its text, or assign a query's row (INTO).

    Raises InvalidRequest as `statement_of`, and after 50 texts that were EXECUTE IMMEDIATE again.
    """
    environment = ScriptSession(scope.session, scope.transaction)
    rules = scope.session.engine.plane.text_rules
    for _ in range(_NESTED_MAX):
        found = statement_of(statement, environment, rules)
        if not isinstance(found, ExecuteImmediate):
            break
        statement = found
    else:
        raise InvalidRequest(
            f"EXECUTE IMMEDIATE evaluates itself: {_NESTED_MAX} texts were another one each"
        )
    if statement.into:
        assert isinstance(found, Select)
        environment.assign(statement.into, found.query)
        return nothing
    return scope.session.answer_in(scope.transaction, found)


CONTROLS: Mapping[type[Any], Control] = {
    Begin: Control(run=_begin, writes=False, is_served=True),
    Commit: Control(run=_commit, writes=False, is_served=True),
    Rollback: Control(run=_rollback, writes=False, is_served=True),
    Savepoint: Control(run=_savepoint, writes=False, is_served=True),
    RollbackTo: Control(run=_rollback_to, writes=False, is_served=True),
    ReleaseSavepoint: Control(run=_release, writes=False, is_served=True),
    SetIsolation: Control(run=_set_isolation, writes=False, is_served=True),
    ShowIsolation: Control(run=_show_isolation, writes=False, is_served=True),
    Kill: Control(run=_kill, is_served=True),
    SetLockTimeout: Control(run=_set_lock_timeout, writes=False, is_served=True),
    SetXactAbort: Control(run=_set_xact_abort, writes=False, is_served=True),
    LockTable: Control(run=_lock, is_served=True),
    Atomic: Control(run=_atomic, is_served=True),
    ExecuteImmediate: Control(run=_execute_immediate),
    **branches.CONTROLS,
}
