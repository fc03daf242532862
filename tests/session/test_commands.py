"""Which locks statements take, as Fabric's table has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from txlake.commands import COMMANDS
from txlake.commands.controls import CONTROLS
from txlake.session.command import TableLock
from txlake.sql import parse
from txlake.sql.statements import (
    BranchStatement,
    ControlStatement,
    NativeFrame,
    Statement,
    TableName,
    UpgradeProtocol,
    Write,
)


def _locks(statement: Statement) -> list[TableLock]:
    return COMMANDS[type(statement)].all_locks(statement)


def taken(text: str) -> str:
    (statement,) = parse(text)
    return ", ".join(f"{mode.value} {table}" for table, mode in _locks(statement))


@pytest.mark.parametrize(
    ("text", "locks"),
    [
        ("SELECT * FROM a JOIN db.b ON a.x = b.x", "Sch-S a, Sch-S db.b"),
        ("SELECT * FROM a WHERE x IN (SELECT x FROM b) UNION SELECT * FROM a", "Sch-S a, Sch-S b"),
        ("SELECT * FROM a VERSION AS OF 3", "Sch-S a"),
        ("SELECT 1", ""),
        ("INSERT INTO a VALUES (1)", "IX a"),
        ("INSERT INTO a SELECT * FROM b", "IX a, Sch-S b"),
        ("INSERT OVERWRITE a SELECT * FROM a", "IX a"),
        ("INSERT INTO a REPLACE WHERE x = 1 SELECT * FROM b", "IX a, Sch-S b"),
        ("INSERT INTO DB.A SELECT * FROM db.a", "IX DB.A"),
        ("UPDATE a SET x = (SELECT max(x) FROM b) WHERE y IN (SELECT y FROM c)",
         "IX a, Sch-S b, Sch-S c"),
        ("DELETE FROM a WHERE x IN (SELECT x FROM b)", "IX a, Sch-S b"),
        ("MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE", "IX a, Sch-S b"),
        ("MERGE INTO a USING (TABLE b) s ON s.x IN (SELECT x FROM c) WHEN MATCHED THEN DELETE",
         "IX a, Sch-S b, Sch-S c"),
        ("COPY INTO a FROM '/f' FILEFORMAT = PARQUET", "IX a"),
        ("OPTIMIZE a", "IX a"),
        ("REORG TABLE a APPLY (PURGE)", "IX a"),
        ("CREATE TABLE a (x INT)", "Sch-M a"),
        ("CREATE OR REPLACE TABLE a AS SELECT * FROM b", "Sch-M a, Sch-S b"),
        ("CREATE TABLE a (x INT REFERENCES b)", "Sch-M a, Sch-S b"),
        ("ALTER TABLE a ADD FOREIGN KEY (x) REFERENCES b", "Sch-M a, Sch-S b"),
        ("ALTER TABLE a DROP PRIMARY KEY", "Sch-M a"),
        ("CREATE TABLE a LIKE b", "Sch-M a, Sch-S b"),
        ("CREATE TABLE a SHALLOW CLONE b VERSION AS OF 1", "Sch-M a, Sch-S b"),
        ("DROP TABLE a", "Sch-M a"),
        ("TRUNCATE TABLE a", "Sch-M a"),
        ("RESTORE TABLE a TO VERSION AS OF 0", "Sch-M a"),
        ("ALTER TABLE a SET TBLPROPERTIES ('k' = 'v')", "Sch-M a"),
        ("ALTER TABLE a UNSET TBLPROPERTIES ('k')", "Sch-M a"),
        ("ALTER TABLE a ADD COLUMNS (y INT)", "Sch-M a"),
        ("ALTER TABLE a DROP COLUMN y", "Sch-M a"),
        ("ALTER TABLE a REPLACE COLUMNS (y INT)", "Sch-M a"),
        ("ALTER TABLE a RENAME COLUMN y TO z", "Sch-M a"),
        ("ALTER TABLE a ALTER COLUMN y COMMENT 'c'", "Sch-M a"),
        ("ALTER TABLE a ADD CONSTRAINT c CHECK (y > 0)", "Sch-M a"),
        ("ALTER TABLE a DROP CONSTRAINT c", "Sch-M a"),
        ("ALTER TABLE a DROP FEATURE deletionVectors", "Sch-M a"),
        ("ALTER TABLE a CLUSTER BY (y)", "Sch-M a"),
        ("COMMENT ON TABLE a IS 'c'", "Sch-M a"),
        ("ALTER TABLE a RENAME TO b", "Sch-M a, Sch-M b"),
        ("CONVERT TO DELTA parquet.`/p`", "Sch-M delta.`/p`"),
        ("SELECT * FROM delta.`/p`", "Sch-S delta.`/p`"),
        ("VACUUM a", "IX a"),
        ("ANALYZE TABLE a COMPUTE STATISTICS", "Sch-S a"),
        ("ANALYZE TABLE a COMPUTE DELTA STATISTICS", "IX a"),
        ("REFRESH TABLE a", "Sch-S a"),
        ("SELECT * FROM (DESCRIBE HISTORY a)", "Sch-S a"),
        ("GENERATE symlink_format_manifest FOR TABLE a", "Sch-S a"),
        ("DESCRIBE a", "Sch-S a"),
        ("DESCRIBE HISTORY a", "Sch-S a"),
        ("DESCRIBE DETAIL a", "Sch-S a"),
        ("DESCRIBE QUERY SELECT * FROM a", "Sch-S a"),
        ("SHOW CREATE TABLE a", "Sch-S a"),
        ("SHOW TBLPROPERTIES a", "Sch-S a"),
        ("SHOW COLUMNS IN a", "Sch-S a"),
        ("SHOW PARTITIONS a", "Sch-S a"),
        ("EXPLAIN SELECT * FROM a", "Sch-S a"),
        ("EXPLAIN CONFLICTS UPDATE a SET x = (SELECT 1 FROM b)", "Sch-S a, Sch-S b"),
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM a", "Sch-S a"),
        ("SHOW TABLES", ""),
        ("SHOW DATABASES", ""),
        ("DESCRIBE DATABASE d", ""),
        ("CREATE DATABASE d", ""),
    ],
)  # fmt: skip
def test_locks_of_statements(text: str, locks: str) -> None:
    assert taken(text) == locks


def test_locks_of_what_only_python_says() -> None:
    a = TableName(("a",))
    (lock,) = _locks(UpgradeProtocol(a, 3, 7))
    assert lock[1].value == "Sch-M"
    modes = {}
    for mode in ("error", "append", "overwrite", "ignore"):
        write = Write(table=a, source=NativeFrame(None), mode=mode)
        ((_, locked),) = _locks(write)
        modes[mode] = (locked.value, COMMANDS[Write].leaves_existing(write))
    assert modes == {
        "error": ("Sch-M", True),
        "append": ("IX", False),
        "overwrite": ("IX", False),
        "ignore": ("Sch-M", True),
    }


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("CREATE TABLE a (x INT)", True),
        ("CREATE TABLE IF NOT EXISTS a (x INT)", True),
        ("CREATE TABLE IF NOT EXISTS a LIKE b", True),
        ("CREATE TABLE IF NOT EXISTS a CLONE b", True),
        ("CREATE OR REPLACE TABLE a (x INT)", False),
        ("CREATE OR REPLACE TABLE a CLONE b", False),
        ("REPLACE TABLE a (x INT)", False),
        ("DROP TABLE a", False),
    ],
)
def test_who_leaves_a_table_that_exists(text: str, leaves: bool) -> None:
    (statement,) = parse(text)
    assert COMMANDS[type(statement)].leaves_existing(statement) is leaves


def test_every_statement_has_its_command() -> None:
    assert set(CONTROLS) == {*get_args(ControlStatement), *get_args(BranchStatement)}
    assert set(COMMANDS) == {*kinds(Statement)} - set(CONTROLS)


def kinds(union: object) -> Iterator[type]:
    """The types of a union of unions."""
    for member in get_args(union):
        if isinstance(member, type):
            yield member
        else:
            yield from kinds(member)
