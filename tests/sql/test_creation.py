"""CREATE, REPLACE, CLONE, DROP of tables and databases."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, refused, sql
from txlake.sql.statements import (
    CheckConstraint,
    Clone,
    ColumnSpec,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    Identity,
    Reference,
    SqlText,
    Statement,
    TablePath,
    TimeTravel,
    UndropTable,
)

T = name("t")
A = ColumnSpec(name="a", data_type="INT")
ONE = sql("SELECT 1")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("CREATE TABLE t (a INT)", CreateTable(table=T, columns=(A,))),
        ("CREATE TABLE t (a INT) USING delta", CreateTable(table=T, columns=(A,))),
        ("CREATE TABLE t", CreateTable(table=T)),
        ("CREATE TABLE delta.`/p` (a INT)", CreateTable(table=TablePath("/p"), columns=(A,))),
        (
            "CREATE TABLE IF NOT EXISTS d.t (a INT)",
            CreateTable(table=name("d.t"), columns=(A,), mode="if_not_exists"),
        ),
        (
            "CREATE OR REPLACE TABLE t (a INT)",
            CreateTable(table=T, columns=(A,), mode="or_replace"),
        ),
        ("REPLACE TABLE t (a INT)", CreateTable(table=T, columns=(A,), mode="replace")),
        (
            (
                "CREATE TABLE t (a INT, b DATE) COMMENT 'it''s' PARTITIONED BY (b) LOCATION '/p' "
                "TBLPROPERTIES ('x' = 'y', delta.appendOnly = true, n = 3)"
            ),
            CreateTable(
                table=T,
                columns=(A, ColumnSpec(name="b", data_type="DATE")),
                comment="it's",
                partition_by=("b",),
                location="/p",
                properties=(("x", "y"), ("delta.appendOnly", "true"), ("n", "3")),
            ),
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT) LOCATION '/p'",
            CreateTable(table=T, columns=(A,), location="/p"),
        ),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (b DATE COMMENT 'x')",
            CreateTable(
                table=T,
                columns=(A, ColumnSpec(name="b", data_type="DATE")),
                partition_by=("b",),
            ),
        ),
        (
            "CREATE TABLE t (a INT) CLUSTER BY (a, b.c)",
            CreateTable(table=T, columns=(A,), cluster_by=("a", "b.c")),
        ),
        (
            "CREATE TABLE t (a INT) CLUSTER BY (`9 x`, b.`c.d`)",
            CreateTable(table=T, columns=(A,), cluster_by=("`9 x`", "b.`c.d`")),
        ),
        ("CREATE TABLE t AS SELECT 1", CreateTable(table=T, query=ONE)),
        ("CREATE TABLE t SELECT 1", CreateTable(table=T, query=ONE)),
        ("CREATE TABLE t AS (SELECT 1)", CreateTable(table=T, query=sql("(SELECT 1)"))),
        (
            "CREATE TABLE t AS SELECT * FROM d.s@v1 x",
            CreateTable(
                table=T,
                query=SqlText(
                    "SELECT * FROM d.s@v1 x",
                    (Reference(name("d.s"), TimeTravel(version=1), 14, 20, None, 20),),
                ),
            ),
        ),
        (
            "CREATE OR REPLACE TABLE t USING DELTA PARTITIONED BY (a) AS VALUES (1)",
            CreateTable(table=T, mode="or_replace", partition_by=("a",), query=sql("VALUES (1)")),
        ),
        (
            "CREATE TABLE t (a INT, CONSTRAINT pos CHECK (a > 0 AND f(a)), CONSTRAINT b CHECK (b))",
            CreateTable(
                table=T,
                columns=(A,),
                constraints=(
                    CheckConstraint("pos", sql("a > 0 AND f(a)")),
                    CheckConstraint("b", sql("b")),
                ),
            ),
        ),
        ("CREATE TABLE t LIKE d.s", CreateTableLike(table=T, source=name("d.s"))),
        (
            "CREATE TABLE IF NOT EXISTS t LIKE s USING DELTA TBLPROPERTIES (a = 'b') LOCATION '/p'",
            CreateTableLike(
                table=T,
                source=name("s"),
                mode="if_not_exists",
                location="/p",
                properties=(("a", "b"),),
            ),
        ),
        ("CREATE TABLE t CLONE s", Clone(table=T, source=name("s"))),
        ("CREATE TABLE t DEEP CLONE s", Clone(table=T, source=name("s"))),
        ("CREATE TABLE t AS CLONE OF d.s", Clone(table=T, source=name("d.s"), shallow=True)),
        (
            "CREATE TABLE t AS CLONE OF s AT '2026-01-01T12:00:00.5'",
            Clone(
                table=T,
                source=name("s"),
                travel=TimeTravel(timestamp="2026-01-01T12:00:00.500000Z"),
                shallow=True,
            ),
        ),
        *(
            (
                f"CREATE TABLE t AS CLONE OF s AT '{text}'",
                Clone(table=T, source=name("s"), travel=TimeTravel(timestamp=moment), shallow=True),
            )
            for text, moment in (
                ("2026-01-01 12:00+02:00", "2026-01-01T12:00:00+02:00"),
                ("2026-01-01 12:00:00+02:00", "2026-01-01 12:00:00+02:00"),
                ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
                ("2026-01-31 9:05", "2026-01-31T09:05:00.000000Z"),
            )
        ),
        (
            "CREATE OR REPLACE TABLE t SHALLOW CLONE delta.`/p` VERSION AS OF 3",
            Clone(
                table=T,
                source=TablePath("/p"),
                travel=TimeTravel(version=3),
                shallow=True,
                mode="or_replace",
            ),
        ),
        (
            (
                "CREATE TABLE IF NOT EXISTS t CLONE s TIMESTAMP AS OF '2026-01-01' "
                "TBLPROPERTIES (a = 'b') LOCATION '/q'"
            ),
            Clone(
                table=T,
                source=name("s"),
                travel=TimeTravel(timestamp="2026-01-01"),
                mode="if_not_exists",
                properties=(("a", "b"),),
                location="/q",
            ),
        ),
        ("DROP TABLE t", DropTable(table=T)),
        (
            "DROP TABLE IF EXISTS d.t PURGE",
            DropTable(table=name("d.t"), if_exists=True, purge=True),
        ),
        ("UNDROP TABLE d.t", UndropTable(table=name("d.t"))),
        ("undrop table with id 'an-id'", UndropTable(table_id="an-id")),
        ("UNDROP TABLE with", UndropTable(table=name("with"))),
        ("CREATE DATABASE d", CreateDatabase(name="d")),
        (
            "CREATE SCHEMA IF NOT EXISTS `my d` COMMENT 'x' LOCATION '/p' DBPROPERTIES (a = 'b')",
            CreateDatabase(
                name="my d",
                if_not_exists=True,
                comment="x",
                location="/p",
                properties=(("a", "b"),),
            ),
        ),
        (
            "CREATE DATABASE d ISOLATION LEVEL SNAPSHOT",
            CreateDatabase(name="d", isolation="snapshot"),
        ),
        (
            "CREATE DATABASE d WITH ISOLATION LEVEL SERIALIZABLE",
            CreateDatabase(name="d", isolation="serializable"),
        ),
        ("DROP DATABASE d", DropDatabase(name="d")),
        ("DROP SCHEMA IF EXISTS d CASCADE", DropDatabase(name="d", if_exists=True, cascade=True)),
        ("DROP DATABASE d RESTRICT", DropDatabase(name="d")),
    ],
)
def test_what_a_creation_says(text: str, statement: Statement) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("definition", "spec"),
    [
        ("a int", ColumnSpec(name="a", data_type="int")),
        ("a: int", ColumnSpec(name="a", data_type="int")),
        ("`a b` STRING", ColumnSpec(name="a b", data_type="STRING")),
        ("date DATE", ColumnSpec(name="date", data_type="DATE")),
        ("a DECIMAL(10, 2)", ColumnSpec(name="a", data_type="DECIMAL(10, 2)")),
        ("a VARCHAR(5) NOT NULL", ColumnSpec(name="a", data_type="VARCHAR(5)", nullable=False)),
        ("a INT NULL", ColumnSpec(name="a", data_type="INT")),
        ("a TIMESTAMP_NTZ", ColumnSpec(name="a", data_type="TIMESTAMP_NTZ")),
        ("a INTERVAL DAY TO SECOND", ColumnSpec(name="a", data_type="INTERVAL DAY TO SECOND")),
        (
            "a STRING COLLATE UTF8_LCASE",
            ColumnSpec(name="a", data_type="STRING COLLATE UTF8_LCASE"),
        ),
        (
            "a STRUCT<x: ARRAY<MAP<STRING, INT>>, `y z` INT NOT NULL COMMENT '>'> COMMENT 'c'",
            ColumnSpec(
                name="a",
                data_type="STRUCT<x: ARRAY<MAP<STRING, INT>>, `y z` INT NOT NULL COMMENT '>'>",
                comment="c",
            ),
        ),
        ("a STRUCT<>", ColumnSpec(name="a", data_type="STRUCT<>")),
        ("a ARRAY<ARRAY<ARRAY<INT>>>", ColumnSpec(name="a", data_type="ARRAY<ARRAY<ARRAY<INT>>>")),
        ("a INT DEFAULT 1 + 1", ColumnSpec(name="a", data_type="INT", default="1 + 1")),
        (
            "a INT DEFAULT f(1, 2) COMMENT 'c' NOT NULL",
            ColumnSpec(name="a", data_type="INT", default="f(1, 2)", comment="c", nullable=False),
        ),
        ("a INT DEFAULT NULL", ColumnSpec(name="a", data_type="INT", default="NULL")),
        (
            "a DATE GENERATED ALWAYS AS (CAST(b AS DATE)) COMMENT 'c'",
            ColumnSpec(name="a", data_type="DATE", generated="CAST(b AS DATE)", comment="c"),
        ),
        (
            "a BIGINT GENERATED ALWAYS AS IDENTITY",
            ColumnSpec(name="a", data_type="BIGINT", identity=Identity(True)),
        ),
        (
            "a BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY -2)",
            ColumnSpec(name="a", data_type="BIGINT", identity=Identity(False, 5, -2)),
        ),
    ],
)
def test_a_column_definition(definition: str, spec: ColumnSpec) -> None:
    assert one(f"CREATE TABLE t ({definition}, z INT)") == CreateTable(
        table=T, columns=(spec, ColumnSpec(name="z", data_type="INT"))
    )


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("CREATE", "1:7", "expected TABLE"),
        ("CREATE TABLE", "1:13", "expected a table's name"),
        ("CREATE TABLE t (", "1:17", "expected a column's name"),
        ("CREATE TABLE t ()", "1:17", "expected a column's name"),
        ("CREATE TABLE t (a)", "1:18", "expected a type"),
        ("CREATE TABLE t (a FOO)", "1:19", "expected a type"),
        ("CREATE TABLE t (a INT b)", "1:23", "expected , or )"),
        ("CREATE TABLE t (a INT, A STRING)", "1:24", "column A is there twice"),
        ("CREATE TABLE t (a DECIMAL(10, 2)", "1:33", "expected , or )"),
        ("CREATE TABLE t (a DECIMAL(10", "1:26", "never closed"),
        ("CREATE TABLE t (a ARRAY)", "1:24", "expected <"),
        ("CREATE TABLE t (a ARRAY<INT)", "1:24", "never closed"),
        ("CREATE TABLE t (a INT NOT NULL NOT NULL)", "1:32", "NOT NULL twice"),
        ("CREATE TABLE t (a INT UNIQUE)", "1:23", "can't have UNIQUE"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", "1:24", "UNIQUE is not known"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a.b))", "1:38", "whole columns"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, A))", "1:36", "named twice"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a) ENFORCED)", "1:40", "never enforced"),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a))", "1:39", "expected REFERENCES"),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (x, y))", "1:53", "1 columns refer"),
        ("CREATE TABLE t (a INT PRIMARY KEY PRIMARY KEY)", "1:35", "PRIMARY KEY twice"),
        ("ALTER TABLE t ADD COLUMN a INT PRIMARY KEY", "1:32", "can't have PRIMARY"),
        ("CREATE TABLE t (a INT, CHECK (a > 1))", "1:24", "needs a name"),
        ("CREATE TABLE t (a INT, CONSTRAINT c CHECK (a IN (SELECT b FROM s)))", "1:44", "a query"),
        ("CREATE TABLE t (a INT DEFAULT (SELECT max(b) FROM s))", "1:31", "a query"),
        ("CREATE TABLE t (a INT DEFAULT 1 GENERATED ALWAYS AS (1))", "1:33", "twice"),
        ("CREATE TABLE t (a INT GENERATED BY DEFAULT AS (1))", "1:47", "expected IDENTITY"),
        ("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 0))", "1:66", "be 0"),
        (
            "CREATE TABLE t (a BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 1 START WITH 2))",
            "1:69",
            "START is there twice",
        ),
        ("CREATE TABLE t USING parquet", "1:22", "USING DELTA"),
        ("CREATE TABLE t (a INT) USING DELTA USING DELTA", "1:36", "USING is given twice"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (years(a))", "1:40", "generate one"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a) CLUSTER BY (a)", "1:57", "not both"),
        ("CREATE TABLE t (a INT) CLUSTER BY AUTO", "1:35", "name the columns"),
        ("CREATE TABLE t (a INT) OPTIONS (a = 'b')", "1:24", "OPTIONS is no clause"),
        ("CREATE TABLE t (a INT) TBLPROPERTIES (a = 'b', a = 'c')", "1:48", "given twice"),
        ("CREATE TABLE t (a INT) TBLPROPERTIES (a = -b)", "1:44", "a property's value"),
        ("CREATE TABLE t AS CLONE OF s AT 'soon'", "1:33", "AT takes a moment in UTC"),
        ("CREATE TABLE t AS CLONE OF s AT 5", "1:33", "the moment in quotes, in UTC"),
        ("CREATE TABLE t AS CLONE OF s LOCATION '/p'", "1:30", "the end of the statement"),
        ("CREATE TABLE t (a INT) LOCATION /p", "1:33", "the place in quotes"),
        ("CREATE TABLE t (a INT) AS SELECT 1", "1:27", "takes its columns from the query"),
        ("CREATE TABLE t AS", "1:18", "expected a query"),
        ("CREATE TABLE t AS SELECT * FORM s", "1:33", "unexpected 's'"),
        ("CREATE TABLE t (a INT) x", "1:24", "expected a clause of CREATE TABLE"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", "1:25", "exclude each other"),
        ("CREATE EXTERNAL TABLE t (a INT)", "1:1", "needs a LOCATION"),
        ("CREATE TEMPORARY TABLE t (a INT)", "1:18", "TEMPORARY VIEW is"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "1:8", "the lake keeps tables and views"),
        ("CREATE VIEW v", "1:14", "expected AS"),
        ("CREATE VIEW v AS", "1:17", "expected a query"),
        ("CREATE VIEW v (a, A) AS SELECT 1, 2", "1:19", "column A is there twice"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "1:24", "exclude each other"),
        ("DROP VIEW", "1:10", "expected the view's name"),
        ("CREATE TEMP VIEW v", "1:19", "expected AS"),
        ("CREATE TEMP VIEW v AS", "1:22", "expected a query"),
        ("CREATE OR REPLACE TABLE t LIKE s", "1:32", "can't replace"),
        ("CREATE TABLE t LIKE s PARTITIONED BY (a)", "1:41", "USING, TBLPROPERTIES and LOCATION"),
        ("CREATE TABLE t SHALLOW s", "1:24", "expected CLONE"),
        ("CREATE TABLE t CLONE s x", "1:24", "expected TBLPROPERTIES"),
        ("CREATE DATABASE a.b", "1:17", "one part"),
        ("CREATE DATABASE d ISOLATION LEVEL READ COMMITTED", "1:35", "SNAPSHOT or SERIALIZABLE"),
        ("CREATE DATABASE d x", "1:19", "expected COMMENT"),
        ("REPLACE TABLE", "1:14", "expected a table's name"),
        ("DROP t", "1:6", "expected TABLE"),
        ("DROP TABLE t x", "1:14", "expected the end"),
        ("DROP DATABASE d x", "1:17", "expected the end"),
        ("UNDROP t", "1:8", "expected TABLE"),
        ("UNDROP TABLE t x", "1:16", "expected the end"),
        ("UNDROP TABLE WITH ID t", "1:22", "the table's id in quotes"),
        ("UNDROP TABLE delta.`/p`", "1:14", "only a table that had a name"),
    ],
)
def test_a_malformed_creation_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)
