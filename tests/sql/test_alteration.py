"""ALTER TABLE, ALTER DATABASE, COMMENT ON."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, refused, sql
from txlake.sql.statements import (
    AddColumns,
    AddConstraint,
    AddedColumn,
    After,
    AlterColumn,
    AlterDatabase,
    CheckConstraint,
    ClusterBy,
    ColumnSpec,
    DropColumns,
    DropConstraint,
    DropFeature,
    First,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    SetComment,
    SetProperties,
    Statement,
    TablePath,
    UnsetProperties,
)

T = name("t")
A = ColumnSpec(name="a", data_type="INT")
B = ColumnSpec(name="b", data_type="INT")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable', a = 1)",
            SetProperties(T, (("delta.isolationLevel", "Serializable"), ("a", "1"))),
        ),
        (
            "ALTER TABLE delta.`/p` SET TBLPROPERTIES (a = 'b')",
            SetProperties(TablePath("/p"), (("a", "b"),)),
        ),
        ("ALTER TABLE t UNSET TBLPROPERTIES (a.b, 'c')", UnsetProperties(T, ("a.b", "c"))),
        ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('c')", UnsetProperties(T, ("c",), True)),
        ("ALTER TABLE t ADD COLUMN a INT", AddColumns(T, (AddedColumn(column=A),))),
        ("ALTER TABLE t ADD a INT", AddColumns(T, (AddedColumn(column=A),))),
        ("ALTER TABLE t ADD (a INT)", AddColumns(T, (AddedColumn(column=A),))),
        (
            "ALTER TABLE t SET TBLPROPERTIES (delta.isolationLevel = Serializable, b = TRUE)",
            SetProperties(T, (("delta.isolationLevel", "Serializable"), ("b", "true"))),
        ),
        (
            "ALTER TABLE t ADD COLUMNS (a INT, b INT)",
            AddColumns(T, (AddedColumn(column=A), AddedColumn(column=B))),
        ),
        (
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT FIRST, s.b INT AFTER c",
            AddColumns(
                T,
                (
                    AddedColumn(column=A, position=First()),
                    AddedColumn(column=B, parent=("s",), position=After("c")),
                ),
                if_not_exists=True,
            ),
        ),
        (
            "ALTER TABLE t ADD COLUMNS (s.x.a INT NOT NULL COMMENT 'c' AFTER `d e`)",
            AddColumns(
                T,
                (
                    AddedColumn(
                        column=ColumnSpec(name="a", data_type="INT", nullable=False, comment="c"),
                        parent=("s", "x"),
                        position=After("d e"),
                    ),
                ),
            ),
        ),
        ("ALTER TABLE t DROP COLUMN a", DropColumns(T, (("a",),))),
        ("ALTER TABLE t DROP COLUMNS (a, b.c)", DropColumns(T, (("a",), ("b", "c")))),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a, b", DropColumns(T, (("a",), ("b",)), True)),
        ("ALTER TABLE t RENAME COLUMN a.b TO c", RenameColumn(T, ("a", "b"), "c")),
        ("ALTER TABLE t RENAME TO d.u", RenameTable(T, name("d.u"))),
        ("ALTER TABLE t REPLACE COLUMNS (a INT, b INT)", ReplaceColumns(T, (A, B))),
        (
            "ALTER TABLE t ALTER COLUMN a.b TYPE BIGINT",
            AlterColumn(table=T, column=("a", "b"), data_type="BIGINT"),
        ),
        (
            "ALTER TABLE t ALTER a SET DATA TYPE DECIMAL(20, 2)",
            AlterColumn(table=T, column=("a",), data_type="DECIMAL(20, 2)"),
        ),
        (
            "ALTER TABLE t ALTER COLUMN a COMMENT 'x'",
            AlterColumn(table=T, column=("a",), comment="x"),
        ),
        (
            "ALTER TABLE t CHANGE COLUMN a SET NOT NULL",
            AlterColumn(table=T, column=("a",), nullable=False),
        ),
        (
            "ALTER TABLE t ALTER COLUMN a DROP NOT NULL",
            AlterColumn(table=T, column=("a",), nullable=True),
        ),
        (
            "ALTER TABLE t ALTER COLUMN a SET DEFAULT f(1, 2)",
            AlterColumn(table=T, column=("a",), default="f(1, 2)"),
        ),
        (
            "ALTER TABLE t ALTER COLUMN a DROP DEFAULT",
            AlterColumn(table=T, column=("a",), drop_default=True),
        ),
        (
            "ALTER TABLE t ALTER COLUMN a FIRST",
            AlterColumn(table=T, column=("a",), position=First()),
        ),
        (
            "ALTER TABLE t ALTER COLUMN s.a AFTER b",
            AlterColumn(table=T, column=("s", "a"), position=After("b")),
        ),
        (
            "ALTER TABLE t CHANGE COLUMN a A BIGINT COMMENT 'x' AFTER b",
            AlterColumn(
                table=T, column=("a",), data_type="BIGINT", comment="x", position=After("b")
            ),
        ),
        (
            "ALTER TABLE t CHANGE a BIGINT",
            AlterColumn(table=T, column=("a",), data_type="BIGINT"),
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT `a b` CHECK (a > 0 OR (b))",
            AddConstraint(T, CheckConstraint("a b", sql("a > 0 OR (b)"))),
        ),
        ("ALTER TABLE t DROP CONSTRAINT c", DropConstraint(T, "c")),
        ("ALTER TABLE t DROP CONSTRAINT IF EXISTS c", DropConstraint(T, "c", True)),
        ("ALTER TABLE t DROP FEATURE deletionVectors", DropFeature(T, "deletionVectors")),
        (
            "ALTER TABLE t DROP FEATURE v2Checkpoint TRUNCATE HISTORY",
            DropFeature(T, "v2Checkpoint", True),
        ),
        ("ALTER TABLE t CLUSTER BY (a, b.c)", ClusterBy(T, ("a", "b.c"))),
        ("ALTER TABLE t CLUSTER BY NONE", ClusterBy(T, ())),
        ("COMMENT ON TABLE t IS 'x'", SetComment(T, "x")),
        ("COMMENT ON TABLE t IS NULL", SetComment(T, None)),
        ("COMMENT ON COLUMN t.a IS 'x'", AlterColumn(table=T, column=("a",), comment="x")),
        (
            "COMMENT ON COLUMN d.t.a IS NULL",
            AlterColumn(table=name("d.t"), column=("a",), comment=""),
        ),
        (
            "COMMENT ON COLUMN delta.`/p`.a IS 'x'",
            AlterColumn(table=TablePath("/p"), column=("a",), comment="x"),
        ),
        ("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE", AlterDatabase("d", "serializable")),
        ("ALTER SCHEMA d SET ISOLATION LEVEL SNAPSHOT", AlterDatabase("d", "snapshot")),
        (
            "ALTER DATABASE d SET DBPROPERTIES ('a.b' = 'c')",
            AlterDatabase("d", properties=(("a.b", "c"),)),
        ),
    ],
)
def test_what_an_alteration_says(text: str, statement: Statement) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("ALTER", "1:6", "expected TABLE, VIEW, DATABASE or SCHEMA"),
        ("ALTER VIEW v", "1:13", "expected AS, RENAME TO or WITH SCHEMA"),
        ("ALTER VIEW v AS", "1:16", "expected a query"),
        ("ALTER VIEW delta.`/v` AS SELECT 1", "1:12", "a view has a name, and no place"),
        ("ALTER TABLE t", "1:14", "expected SET or UNSET"),
        ("ALTER TABLE t SET LOCATION '/p'", "1:19", "expected TBLPROPERTIES"),
        ("ALTER TABLE t SET TBLPROPERTIES", "1:32", "expected ("),
        ("ALTER TABLE t SET TBLPROPERTIES ('a' = )", "1:40", "a property's value"),
        ("ALTER TABLE t ADD PARTITION (a = 1)", "1:19", "expected COLUMN"),
        ("ALTER TABLE t ADD COLUMN a", "1:27", "expected a type"),
        ("ALTER TABLE t ADD COLUMN a INT AFTER", "1:37", "expected a column"),
        ("ALTER TABLE t ADD CONSTRAINT c", "1:31", "expected CHECK"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK a", "1:38", "expected ("),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK ()", "1:39", "expected a condition"),
        ("ALTER TABLE t ADD CONSTRAINT c UNIQUE (a)", "1:32", "UNIQUE is not known"),
        ("ALTER TABLE t DROP FOREIGN KEY", "1:31", "expected ("),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a IN (SELECT 1 FROM s))", "1:39", "a query"),
        ("ALTER TABLE t DROP a", "1:20", "expected COLUMN"),
        ("ALTER TABLE t RENAME u", "1:22", "expected COLUMN or TO"),
        ("ALTER TABLE t RENAME COLUMN a TO b.c", "1:34", "alone"),
        ("ALTER TABLE t ALTER COLUMN a", "1:29", "expected TYPE"),
        ("ALTER TABLE t ALTER COLUMN a TYPE FOO", "1:35", "expected a type"),
        ("ALTER TABLE t ALTER COLUMN a COMMENT 'x', b COMMENT 'y'", "1:41", "one change at a time"),
        ("ALTER TABLE t CHANGE COLUMN a b INT", "1:31", "expected a type"),
        ("ALTER TABLE t CLUSTER BY a", "1:26", "expected ("),
        ("ALTER DATABASE d", "1:17", "expected ISOLATION"),
        ("ALTER DATABASE d ISOLATION LEVEL REPEATABLE READ", "1:34", "SNAPSHOT or SERIALIZABLE"),
        ("COMMENT ON VIEW v IS 'x'", "1:12", "expected TABLE or COLUMN"),
        ("COMMENT ON TABLE t IS x", "1:23", "expected the comment in quotes"),
        ("COMMENT ON COLUMN a IS 'x'", "1:19", "expected table.column"),
    ],
)
def test_a_malformed_alteration_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)
