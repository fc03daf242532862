"""Transaction statements, in the spellings of T-SQL, PostgreSQL, Redshift and Databricks."""

from __future__ import annotations

from txlake.sql.cursor import Cursor
from txlake.sql.spark import spark_command
from txlake.statements import (
    Begin,
    Commit,
    Isolation,
    LockTable,
    ReleaseSavepoint,
    Rollback,
    RollbackTo,
    Savepoint,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    Statement,
)

_LEVELS: dict[str, Isolation] = {
    "SERIALIZABLE": "serializable",
    "SNAPSHOT": "snapshot",
    "WRITESERIALIZABLE": "write_serializable",
}
_TRANSACTION = ("TRANSACTION", "TRAN", "WORK")


def isolation_level(cursor: Cursor) -> tuple[Isolation | None, str]:
    """A level after ISOLATION LEVEL, and how it was said.

    None for READ UNCOMMITTED, READ COMMITTED and REPEATABLE READ: a snapshot gives at least these.
    """
    for weak in (("READ", "UNCOMMITTED"), ("READ", "COMMITTED"), ("REPEATABLE", "READ")):
        if cursor.accept(*weak):
            return None, " ".join(weak)
    if cursor.accept("WRITE", "SERIALIZABLE"):
        return "write_serializable", "WRITE SERIALIZABLE"
    said = cursor.accept_any(*_LEVELS)
    if said is None:
        cursor.fail(
            "SERIALIZABLE, SNAPSHOT, WriteSerializable, REPEATABLE READ, READ COMMITTED or "
            "READ UNCOMMITTED"
        )
    return _LEVELS[said], said


def begin(cursor: Cursor) -> Begin:
    """BEGIN [TRAN[SACTION] | WORK] [name] [modes], START TRANSACTION [modes]"""
    name = None
    if cursor.accept("START"):
        cursor.expect("TRANSACTION")
    else:
        cursor.expect("BEGIN")
        if cursor.accept_any("TRANSACTION", "TRAN", "WORK") and not (
            cursor.at_end or cursor.at_any("ISOLATION", "READ", "NOT", "DEFERRABLE", "WITH")
        ):
            name = cursor.name("the transaction's name, ISOLATION LEVEL or READ")
    if cursor.at("WITH"):
        cursor.refuse("marks of transactions are not known")
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
            cursor.fail("TRANSACTION, ISOLATION LEVEL, READ ONLY, READ WRITE, ATOMIC or the end")
    return Begin(isolation=isolation, read_only=read_only, name=name)


def commit(cursor: Cursor) -> Commit:
    """COMMIT [TRAN[SACTION] | WORK] [name], END [TRANSACTION | WORK]"""
    cursor.expect_any("COMMIT", "END")
    if cursor.accept_any(*_TRANSACTION) and not cursor.at_end and not cursor.at("AND"):
        cursor.name("the transaction's name")  # T-SQL ignores it too
    _no_chain(cursor)
    cursor.expect_end()
    return Commit()


def rollback(cursor: Cursor) -> Rollback | RollbackTo:
    """ROLLBACK [TRAN[SACTION] | WORK] [name | TO [SAVEPOINT] name], ABORT"""
    cursor.expect_any("ROLLBACK", "ABORT")
    transaction = cursor.accept_any(*_TRANSACTION)
    if cursor.accept("TO"):
        if cursor.at("SAVEPOINT") and cursor.ahead().text != "":
            cursor.advance()
        name = cursor.name("the savepoint's name")
        cursor.expect_end()
        return RollbackTo(name)
    named = None
    if transaction is not None and not cursor.at_end and not cursor.at("AND"):
        named = cursor.name("the name of a transaction or savepoint, or TO")
    _no_chain(cursor)
    cursor.expect_end()
    return Rollback(named)


def savepoint(cursor: Cursor) -> Savepoint:
    """SAVEPOINT name, SAVE TRAN[SACTION] name"""
    if cursor.accept("SAVE"):
        cursor.expect_any("TRANSACTION", "TRAN")
    else:
        cursor.expect("SAVEPOINT")
    name = cursor.name("the savepoint's name")
    cursor.expect_end()
    return Savepoint(name)


def release(cursor: Cursor) -> ReleaseSavepoint:
    """RELEASE [SAVEPOINT] name"""
    cursor.expect("RELEASE")
    cursor.accept("SAVEPOINT")
    name = cursor.name("the savepoint's name")
    cursor.expect_end()
    return ReleaseSavepoint(name)


def lock(cursor: Cursor) -> LockTable:
    """LOCK [TABLE] [ONLY] t [, ...] [IN mode MODE]"""
    cursor.expect("LOCK")
    cursor.accept("TABLE")
    cursor.accept("ONLY")
    tables = cursor.listed(cursor.table)
    mode = None
    if cursor.accept("IN"):
        said = cursor.skip(["MODE"])
        cursor.expect("MODE")
        mode = " ".join(token.upper for token in said)
    if cursor.at("NOWAIT"):
        cursor.refuse("SET LOCK_TIMEOUT 0 before LOCK TABLE is the way not to wait")
    cursor.expect_end()
    return LockTable(tables, mode)


def set_statement(cursor: Cursor) -> Statement:
    """SET TRANSACTION ISOLATION LEVEL, LOCK_TIMEOUT, XACT_ABORT; other settings are Spark's"""
    cursor.expect("SET")
    if cursor.accept("SESSION", "CHARACTERISTICS", "AS") or cursor.at("TRANSACTION"):
        cursor.expect("TRANSACTION")
        if cursor.at("READ"):
            cursor.refuse("say READ ONLY when the transaction begins: BEGIN READ ONLY")
        cursor.expect("ISOLATION", "LEVEL")
        level, said = isolation_level(cursor)
        cursor.expect_end()
        return SetIsolation(level, said)
    if cursor.accept("LOCK_TIMEOUT"):
        place = cursor.token
        timeout_ms = cursor.integer("milliseconds, or -1 to wait without end")
        if timeout_ms < -1:
            cursor.refuse("a lock timeout is -1, 0 or more milliseconds", place)
        cursor.expect_end()
        return SetLockTimeout(timeout_ms)
    if cursor.accept("XACT_ABORT"):
        on = cursor.expect_any("ON", "OFF") == "ON"
        cursor.expect_end()
        return SetXactAbort(on)
    return spark_command(cursor)


def _no_chain(cursor: Cursor) -> None:
    if cursor.at("AND", "CHAIN"):
        cursor.refuse("AND CHAIN is not known: begin the next transaction by BEGIN")
    cursor.accept("AND", "NO", "CHAIN")
