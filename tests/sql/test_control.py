"""Transaction statements, as T-SQL, PostgreSQL, Redshift and Databricks write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sql.parsing import name, one, refused
from txlake.sql import parse
from txlake.statements import (
    AlterDatabase,
    Atomic,
    Begin,
    Commit,
    CreateDatabase,
    Delete,
    LockTable,
    ReleaseSavepoint,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    Statement,
    TablePath,
    Truncate,
)

SERIAL = Begin(isolation="serializable")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("BEGIN", Begin()),
        ("begin tran", Begin()),
        ("BEGIN TRANSACTION", Begin()),
        ("BEGIN WORK", Begin()),
        ("BEGIN TRAN;", Begin()),
        ("BEGIN WORK ISOLATION LEVEL SERIALIZABLE READ ONLY", replace(SERIAL, read_only=True)),
        ("BEGIN TRANSACTION ISOLATION LEVEL READ UNCOMMITTED READ WRITE", Begin()),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", Begin()),
        ("START TRANSACTION READ WRITE, ISOLATION LEVEL SNAPSHOT", Begin(isolation="snapshot")),
        ("START TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY", Begin(read_only=True)),
        ("START TRANSACTION", Begin()),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", SERIAL),
        ("BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE", SERIAL),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", SERIAL),
        ("BEGIN ISOLATION LEVEL SNAPSHOT", Begin(isolation="snapshot")),
        ("BEGIN ISOLATION LEVEL WriteSerializable", Begin(isolation="write_serializable")),
        ("BEGIN ISOLATION LEVEL WRITE SERIALIZABLE", Begin(isolation="write_serializable")),
        ("BEGIN ISOLATION LEVEL READ COMMITTED", Begin()),
        ("BEGIN READ ONLY", Begin(read_only=True)),
        ("BEGIN WORK READ WRITE", Begin()),
        (
            "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
            Begin(isolation="serializable", read_only=True),
        ),
        (
            "START TRANSACTION READ ONLY ISOLATION LEVEL SERIALIZABLE",
            Begin(isolation="serializable", read_only=True),
        ),
        ("COMMIT", Commit()),
        ("COMMIT WORK", Commit()),
        ("COMMIT TRAN", Commit()),
        ("COMMIT TRANSACTION;", Commit()),
        ("COMMIT TRANSACTION AND NO CHAIN", Commit()),
        ("COMMIT AND NO CHAIN", Commit()),
        ("END", Commit()),
        ("END TRANSACTION", Commit()),
        ("END WORK", Commit()),
        ("ROLLBACK", Rollback()),
        ("ROLLBACK WORK", Rollback()),
        ("ROLLBACK TRAN", Rollback()),
        ("ROLLBACK TRANSACTION", Rollback()),
        ("ROLLBACK AND NO CHAIN", Rollback()),
        ("ROLLBACK TRAN s", RollbackTo("s")),
        ("ROLLBACK TRANSACTION `a b`", RollbackTo("a b")),
        ("ABORT", Rollback()),
        ("ABORT WORK", Rollback()),
        ("ABORT TRANSACTION", Rollback()),
        ("ROLLBACK TO s", RollbackTo("s")),
        ("ROLLBACK TO SAVEPOINT s", RollbackTo("s")),
        ("ROLLBACK TO savepoint", RollbackTo("savepoint")),
        ("ROLLBACK WORK TO SAVEPOINT `a b`", RollbackTo("a b")),
        ("ROLLBACK TRANSACTION TO s", RollbackTo("s")),
        ("SAVE TRAN s", Savepoint("s")),
        ("SAVE TRANSACTION s", Savepoint("s")),
        ("SAVEPOINT s", Savepoint("s")),
        ("RELEASE SAVEPOINT s", ReleaseSavepoint("s")),
        ("RELEASE s", ReleaseSavepoint("s")),
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            SetIsolation("serializable", "SERIALIZABLE"),
        ),
        ("SET TRANSACTION ISOLATION LEVEL snapshot", SetIsolation("snapshot", "SNAPSHOT")),
        (
            "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            SetIsolation(None, "READ UNCOMMITTED"),
        ),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", SetIsolation(None, "READ COMMITTED")),
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", SetIsolation(None, "REPEATABLE READ")),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SNAPSHOT",
            SetIsolation("snapshot", "SNAPSHOT"),
        ),
        ("SET LOCK_TIMEOUT 1800", SetLockTimeout(1800)),
        ("SET LOCK_TIMEOUT -1", SetLockTimeout(-1)),
        ("SET LOCK_TIMEOUT 0", SetLockTimeout(0)),
        ("SET XACT_ABORT ON", SetXactAbort(True)),
        ("set xact_abort off", SetXactAbort(False)),
        ("LOCK t", LockTable((name("t"),))),
        ("LOCK d.t", LockTable((name("d.t"),))),
        ("LOCK t, u", LockTable((name("t"), name("u")))),
        ("LOCK TABLE t IN EXCLUSIVE MODE", LockTable((name("t"),), "EXCLUSIVE")),
        ("LOCK TABLE d.t, u", LockTable((name("d.t"), name("u")))),
        (
            "LOCK TABLE ONLY delta.`/p` IN ACCESS EXCLUSIVE MODE",
            LockTable((TablePath("/p"),), "ACCESS EXCLUSIVE"),
        ),
        (
            "BEGIN ATOMIC DELETE FROM t; ; SELECT CASE WHEN 1 THEN 2 END; END",
            Atomic((Delete(table=name("t")), one("SELECT CASE WHEN 1 THEN 2 END"))),
        ),
        ("BEGIN ATOMIC\n  TRUNCATE TABLE t;\nEND;", Atomic((Truncate(name("t")),))),
        ("BEGIN ATOMIC; END", Atomic(())),
        (
            "BEGIN ATOMIC DELETE FROM t; BEGIN ATOMIC TRUNCATE TABLE u; END; DELETE FROM t; END",
            Atomic((Delete(table=name("t")), Truncate(name("u")), Delete(table=name("t")))),
        ),
        (
            "BEGIN ATOMIC BEGIN ATOMIC TRUNCATE TABLE t; END; END",
            Atomic((Truncate(name("t")),)),
        ),
        (
            "CREATE DATABASE d ISOLATION LEVEL SNAPSHOT",
            CreateDatabase(name="d", isolation="snapshot"),
        ),
        (
            "CREATE DATABASE IF NOT EXISTS d WITH ISOLATION LEVEL SERIALIZABLE",
            CreateDatabase(name="d", if_not_exists=True, isolation="serializable"),
        ),
        (
            "CREATE SCHEMA d ISOLATION LEVEL WriteSerializable",
            CreateDatabase(name="d", isolation="write_serializable"),
        ),
        ("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE", AlterDatabase("d", "serializable")),
        ("ALTER SCHEMA d ISOLATION LEVEL SNAPSHOT", AlterDatabase("d", "snapshot")),
    ],
)
def test_what_a_transaction_statement_says(text: str, statement: Statement) -> None:
    assert one(text) == statement


def test_a_block_stands_among_other_statements() -> None:
    statements = parse("BEGIN; COMMIT; BEGIN ATOMIC DELETE FROM t; END; SELECT 1; END; ;")
    assert [type(statement) for statement in statements] == [
        Begin,
        Commit,
        Atomic,
        Select,
        Commit,
    ]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("BEGIN x", "1:7", "expected TRANSACTION, ISOLATION LEVEL"),
        ("BEGIN TRAN transfer", "1:12", "a transaction has no name, as in Fabric"),
        ("BEGIN TRANSACTION @name", "1:19", "a transaction has no name"),
        ("BEGIN TRAN a b", "1:12", "a transaction has no name"),
        ("BEGIN TRAN UPDATE t SET a = 1", "1:12", "expected the end of the statement"),
        ("BEGIN TRAN a WITH MARK 'x'", "1:14", "a transaction can't be marked"),
        ("BEGIN TRAN @a WITH MARK", "1:15", "a transaction can't be marked"),
        ("BEGIN TRAN WITH MARK", "1:12", "a transaction can't be marked"),
        ("BEGIN DISTRIBUTED TRAN", "1:7", "a distributed transaction is not known"),
        ("BEGIN DISTRIBUTED TRANSACTION x", "1:7", "a distributed transaction is not known"),
        ("PREPARE TRANSACTION 'x'", "1:1", "a distributed transaction is not known"),
        ("PREPARE q AS SELECT 1", "1:9", "expected TRANSACTION"),
        ("COMMIT PREPARED 'x'", "1:8", "a distributed transaction is not known"),
        ("ROLLBACK PREPARED 'x'", "1:10", "a distributed transaction is not known"),
        ("COMMIT TRAN transfer", "1:13", "a transaction has no name"),
        ("COMMIT TRAN WITH (DELAYED_DURABILITY = ON)", "1:18", "always durable"),
        ("ROLLBACK TRAN a b", "1:17", "expected the end"),
        ("ROLLBACK TRAN @a", "1:15", "expected the savepoint's name, or TO"),
        ("BEGIN ISOLATION SERIALIZABLE", "1:7", "ISOLATION LEVEL"),
        ("BEGIN ISOLATION LEVEL CHAOS", "1:23", "expected SERIALIZABLE, SNAPSHOT"),
        ("START", "1:6", "expected TRANSACTION"),
        ("COMMIT x", "1:8", "expected the end"),
        ("COMMIT AND CHAIN", "1:8", "AND CHAIN"),
        ("ROLLBACK x", "1:10", "expected the end"),
        ("ROLLBACK TO", "1:12", "expected the savepoint's name"),
        ("SAVE x", "1:6", "expected TRANSACTION or TRAN"),
        ("SAVEPOINT", "1:10", "expected the savepoint's name"),
        ("SET TRANSACTION ISOLATION LEVEL", "1:32", "expected SERIALIZABLE"),
        ("SET TRANSACTION READ ONLY", "1:17", "BEGIN READ ONLY"),
        ("SET LOCK_TIMEOUT x", "1:18", "milliseconds"),
        ("SET LOCK_TIMEOUT 1.5", "1:18", "milliseconds"),
        ("SET LOCK_TIMEOUT -2", "1:18", "a lock timeout is -1, 0 or more"),
        ("SET XACT_ABORT", "1:15", "expected ON or OFF"),
        ("LOCK TABLE", "1:11", "expected a table's name"),
        ("LOCK TABLE t NOWAIT", "1:14", "SET LOCK_TIMEOUT 0"),
        ("LOCK TABLE t IN x", "1:18", "expected MODE"),
        ("BEGIN ATOMIC DELETE FROM t", "1:1", "never closed"),
        ("SELECT 1;\nBEGIN ATOMIC DELETE FROM t;", "2:1", "never closed"),
        ("BEGIN ATOMIC DELETE FROM t END", "1:1", "never closed"),
        ("BEGIN ATOMIC COMMIT; END", "1:14", "no transaction statements inside"),
        ("BEGIN ATOMIC DELETE FROM t; BEGIN ATOMIC ; END;", "1:1", "never closed"),
        ("BEGIN ATOMIC DELETE FROM t; BEGIN ATOMIC ;", "1:29", "never closed"),
        ("BEGIN ATOMIC BEGIN TRAN; END", "1:14", "no transaction statements inside"),
        ("BEGIN ATOMIC BEGIN; END; END", "1:14", "no transaction statements inside"),
        ("ALTER DATABASE d ISOLATION LEVEL READ COMMITTED", "1:34", "SNAPSHOT or SERIALIZABLE"),
        ("CREATE DATABASE d ISOLATION LEVEL CHAOS", "1:35", "expected SERIALIZABLE, SNAPSHOT"),
        ("EXPLAIN CONFLICTS", "1:18", "EXPLAIN CONFLICTS takes INSERT, UPDATE, DELETE"),
        ("EXPLAIN CONFLICTS;", "1:18", "found the end of the statement"),
        ("EXPLAIN CONFLICTS BEGIN", "1:19", "EXPLAIN CONFLICTS takes INSERT, UPDATE, DELETE"),
        ("BEGIN ATOMIC DELETE t; END", "1:21", "expected FROM"),
        ("BEGIN ATOMIC ; END x", "1:20", "expected the end"),
    ],
)
def test_a_malformed_transaction_statement_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)
