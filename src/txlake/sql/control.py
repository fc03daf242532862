"""The grammar of transaction statements of T-SQL, PostgreSQL, Redshift and Databricks."""

from __future__ import annotations

from typing import NoReturn

from txlake.sql.clauses import as_query, expression
from txlake.sql.cursor import Cursor
from txlake.sql.spark_commands import spark_command
from txlake.sql.statements import (
    Begin,
    Commit,
    ExecuteImmediate,
    Isolation,
    Kill,
    LockTable,
    Reference,
    ReleaseSavepoint,
    Rollback,
    RollbackTo,
    Savepoint,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    SparkCommand,
    SqlText,
    Statement,
)
from txlake.sql.tokens import Kind, whole_number

_LEVELS: dict[str, Isolation] = {
    "SERIALIZABLE": "serializable",
    "SNAPSHOT": "snapshot",
    "WRITESERIALIZABLE": "write_serializable",
}
_TRANSACTION = ("TRANSACTION", "TRAN", "WORK")
_MODES = ("ISOLATION", "READ", "NOT", "DEFERRABLE")
_NAMED = (
    "a transaction has no name, as in Fabric: say BEGIN TRAN, COMMIT TRAN or ROLLBACK TRAN alone; "
    "SAVE TRAN name marks a moment that ROLLBACK TRAN name returns to"
)
_MARKED = (
    "a transaction can't be marked: a mark names a place in a backup's log, and a lake has no such "
    "log; tables are read as they were, and restored, by VERSION AS OF and TIMESTAMP AS OF"
)
_DISTRIBUTED = (
    "a distributed transaction is not known: a transaction covers the tables of one lake and "
    "commits in its catalog, which takes part in no two-phase commit; BEGIN TRANSACTION opens one"
)

_KILL_TAKES = (
    "KILL takes a session's number, as @@SPID and sys.dm_exec_sessions give it; a transaction "
    "alone is ended by its id with `txlake transactions --kill ID`"
)


def isolation_level(cursor: Cursor) -> tuple[Isolation | None, str]:
    """Parse a level, after ISOLATION LEVEL, and return it with its spelling.

    The level is None for READ UNCOMMITTED, READ COMMITTED and REPEATABLE READ: a snapshot gives at
    least these guarantees.
    """
    for weak in (("READ", "UNCOMMITTED"), ("READ", "COMMITTED"), ("REPEATABLE", "READ")):
        if cursor.accept(*weak):
            return None, " ".join(weak)
    if cursor.accept("WRITE", "SERIALIZABLE"):
        return "write_serializable", "WRITE SERIALIZABLE"
    spelling = cursor.accept_any(*_LEVELS)
    if spelling is None:
        cursor.fail(
            "SERIALIZABLE, SNAPSHOT, WriteSerializable, REPEATABLE READ, READ COMMITTED or "
            "READ UNCOMMITTED"
        )
    return _LEVELS[spelling], spelling


def begin(cursor: Cursor) -> Begin:
    """Parse BEGIN [TRAN[SACTION] | WORK] [modes] or START TRANSACTION [modes]."""
    spelling = None
    if cursor.accept("START"):
        cursor.expect("TRANSACTION")
    else:
        cursor.expect("BEGIN")
        if cursor.at("DISTRIBUTED"):
            cursor.refuse(_DISTRIBUTED)
        spelling = cursor.accept_any(*_TRANSACTION)
    if spelling is not None and not cursor.at_any(*_MODES):
        for token in (cursor.token, cursor.ahead(), cursor.ahead(2)):  # after a name or a @variable
            if token.upper == "WITH":
                cursor.refuse(_MARKED, token)
        _refuse_name(cursor)
    isolation: Isolation | None = None
    read_only = False
    first = True
    while not cursor.at_end:
        if not first:
            cursor.accept(",")
        first = False
        if cursor.accept("ISOLATION", "LEVEL"):
            isolation, _ = isolation_level(cursor)
        elif cursor.accept("READ", "ONLY"):
            read_only = True
        elif cursor.accept("READ", "WRITE"):
            read_only = False
        elif not (cursor.accept("NOT", "DEFERRABLE") or cursor.accept("DEFERRABLE")):
            cursor.fail(
                "TRANSACTION, ISOLATION LEVEL, READ ONLY, READ WRITE, ATOMIC (BEGIN ATOMIC ... END "
                "is a block of statements, in one transaction) or the end"
            )
    return Begin(isolation=isolation, read_only=read_only)


def commit(cursor: Cursor) -> Commit:
    """Parse COMMIT [TRAN[SACTION] | WORK] or END [TRANSACTION | WORK]."""
    cursor.expect_any("COMMIT", "END")
    if cursor.at("PREPARED"):
        cursor.refuse(_DISTRIBUTED)
    spelling = cursor.accept_any(*_TRANSACTION)
    if cursor.accept("WITH"):
        cursor.refuse("WITH (DELAYED_DURABILITY = ...) is not known: a commit is always durable")
    if spelling is not None and not cursor.at("AND"):
        _refuse_name(cursor)
    _refuse_chain(cursor)
    cursor.expect_end()
    return Commit()


def rollback(cursor: Cursor) -> Rollback | RollbackTo:
    """Parse { ROLLBACK | ABORT } [TRAN[SACTION] | WORK] [TO [SAVEPOINT] savepoint].

    After TRAN[SACTION] or WORK a savepoint may follow without TO.
    """
    cursor.expect_any("ROLLBACK", "ABORT")
    if cursor.at("PREPARED"):
        cursor.refuse(_DISTRIBUTED)
    transaction = cursor.accept_any(*_TRANSACTION)
    if cursor.accept("TO"):
        if cursor.at("SAVEPOINT") and cursor.ahead().text != "":
            cursor.advance()
        name = cursor.name("the savepoint's name")
        cursor.expect_end()
        return RollbackTo(name)
    if transaction is not None and not cursor.at_end and not cursor.at("AND"):
        name = cursor.name("the savepoint's name, or TO")
        cursor.expect_end()
        return RollbackTo(name)
    _refuse_chain(cursor)
    cursor.expect_end()
    return Rollback()


def savepoint(cursor: Cursor) -> Savepoint:
    """Parse SAVEPOINT name or SAVE TRAN[SACTION] name."""
    if cursor.accept("SAVE"):
        cursor.expect_any("TRANSACTION", "TRAN")
    else:
        cursor.expect("SAVEPOINT")
    name = cursor.name("the savepoint's name")
    cursor.expect_end()
    return Savepoint(name)


def release(cursor: Cursor) -> ReleaseSavepoint:
    """Parse RELEASE [SAVEPOINT] name."""
    cursor.expect("RELEASE")
    cursor.accept("SAVEPOINT")
    name = cursor.name("the savepoint's name")
    cursor.expect_end()
    return ReleaseSavepoint(name)


def prepare(cursor: Cursor) -> NoReturn:
    """Raise InvalidRequest for PREPARE TRANSACTION, PostgreSQL's first half of a two-phase
    commit.
    """
    cursor.expect("PREPARE")
    if not cursor.at("TRANSACTION"):
        cursor.fail("TRANSACTION")
    cursor.refuse(_DISTRIBUTED, cursor.first)


def execute_immediate(cursor: Cursor) -> ExecuteImmediate:
    """Parse EXECUTE IMMEDIATE text [INTO variables] [USING value [AS name], ...].

    The values may be in parentheses.
    """
    cursor.expect("EXECUTE")
    if not cursor.accept("IMMEDIATE"):
        cursor.fail("IMMEDIATE")
    sql = _constant(cursor, ["INTO", "USING"], "the statement's text")
    into: tuple[str, ...] = ()
    if cursor.accept("INTO"):
        into = cursor.comma_separated(lambda: cursor.name("a variable"))
    using: tuple[tuple[SqlText, str | None], ...] = ()
    if cursor.accept("USING"):
        read_values = cursor.parenthesized if _is_enclosed(cursor) else cursor.comma_separated
        using = read_values(lambda: _value(cursor))
    return ExecuteImmediate(sql=as_query(sql), into=into, using=using)


def _is_enclosed(cursor: Cursor) -> bool:
    """Return whether the rest of the statement is one pair of parentheses."""
    mark = cursor.mark
    is_enclosed = cursor.accept("(")
    if is_enclosed:
        cursor.skip()
        is_enclosed = cursor.accept(")") and cursor.at_end
    cursor.back(mark)
    return is_enclosed


def _value(cursor: Cursor) -> tuple[SqlText, str | None]:
    value = _constant(cursor, ["AS"], "a value")
    return value, cursor.name("a name") if cursor.accept("AS") else None


def _constant(cursor: Cursor, stops: list[str], what: str) -> SqlText:
    """Parse an expression up to a comma or a stop. Raises InvalidRequest if it has a query."""
    start = cursor.token
    value = expression(cursor, (), stops, comma=True, what=what)
    if value.references:
        cursor.refuse(f"{what} can't have a query", start)
    return value


def lock(cursor: Cursor) -> LockTable:
    """Parse LOCK [TABLE] [ONLY] t [, ...] [IN mode MODE].

    Whether the mode exists isn't checked.
    """
    cursor.expect("LOCK")
    cursor.accept("TABLE")
    cursor.accept("ONLY")
    tables = cursor.comma_separated(cursor.table)
    mode = None
    if cursor.accept("IN"):
        spelling = cursor.skip(["MODE"])
        cursor.expect("MODE")
        mode = " ".join(token.upper for token in spelling)
    if cursor.at("NOWAIT"):
        cursor.refuse("SET LOCK_TIMEOUT 0 before LOCK TABLE is the way not to wait")
    cursor.expect_end()
    return LockTable(tables, mode)


def kill(cursor: Cursor) -> Kill:
    """Parse KILL session, a number or its text."""
    cursor.expect("KILL")
    start = cursor.token
    if start.kind is Kind.STRING:
        text = cursor.string()
    elif start.kind is Kind.NUMBER:
        text = cursor.advance().text
    else:
        cursor.refuse(_KILL_TAKES, start)
    session_id = whole_number(text.strip())
    if session_id is None:
        cursor.refuse(_KILL_TAKES, start)
    if cursor.at("WITH"):
        cursor.refuse("KILL ends a session's transactions at once: there is no status of it to ask")
    cursor.expect_end()
    return Kill(session_id)


def set_statement(cursor: Cursor) -> Statement:
    """Parse SET [SESSION CHARACTERISTICS AS] TRANSACTION ISOLATION LEVEL, LOCK_TIMEOUT or
    XACT_ABORT.

    Any other setting is a command for Spark.
    """
    cursor.expect("SET")
    if cursor.accept("SESSION", "CHARACTERISTICS", "AS") or cursor.at("TRANSACTION"):
        cursor.expect("TRANSACTION")
        if cursor.at("READ"):
            cursor.refuse("say READ ONLY when the transaction begins: BEGIN READ ONLY")
        cursor.expect("ISOLATION", "LEVEL")
        level, spelling = isolation_level(cursor)
        cursor.expect_end()
        return SetIsolation(level, spelling)
    if cursor.accept("LOCK_TIMEOUT"):
        start = cursor.token
        timeout_ms = cursor.integer("milliseconds, or -1 to wait without end")
        if timeout_ms < -1:
            cursor.refuse("a lock timeout is -1, 0 or more milliseconds", start)
        cursor.expect_end()
        return SetLockTimeout(timeout_ms)
    if cursor.accept("XACT_ABORT"):
        on = cursor.expect_any("ON", "OFF") == "ON"
        cursor.expect_end()
        return SetXactAbort(on)
    if cursor.at_any("VAR", "VARIABLE") and "=" in {token.text for token in cursor.remaining()}:
        return _set_variable(cursor)
    return spark_command(cursor)


def _set_variable(cursor: Cursor) -> Statement:
    """Parse VAR[IABLE] name = value, ..., or (names) = (query), after SET.

    A command for Spark, with the tables of the lake that the values read.
    """
    start = cursor.first.start
    references: list[Reference] = []

    def assignment() -> None:
        """Skip to the value after the equals sign, and collect the tables that it reads."""
        while not cursor.at("="):
            if cursor.at_end:
                cursor.fail("=")
            cursor.advance()
        cursor.advance()
        shift = cursor.token.start - start
        value = expression(cursor, (), comma=True, what="a value")
        references.extend(reference.moved(shift) for reference in value.references)

    cursor.comma_separated(assignment)
    text = cursor.source.text[start : cursor.token.start].rstrip()
    return SparkCommand(SqlText(text, tuple(references)))


def _refuse_name(cursor: Cursor) -> None:
    """Raise InvalidRequest for a transaction's name, or a variable that holds it."""
    if not cursor.at_end:
        cursor.refuse(f"expected the end of the statement: {_NAMED}")


def _refuse_chain(cursor: Cursor) -> None:
    """Parse [AND NO CHAIN]. Raises InvalidRequest for AND CHAIN."""
    if cursor.at("AND", "CHAIN"):
        cursor.refuse("AND CHAIN is not known: begin the next transaction by BEGIN")
    cursor.accept("AND", "NO", "CHAIN")
