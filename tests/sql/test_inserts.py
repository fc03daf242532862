"""INSERT with all of its clauses, VALUES as constants, COPY INTO."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from tests.sql.parsing import name, one, query, refused, sql
from txlake.log.predicate_nodes import LocalTime
from txlake.protocol.times import FarTime
from txlake.sql.statements import (
    DEFAULT,
    ComputedValues,
    CopyInto,
    Insert,
    PartitionValue,
    Query,
    Source,
    SqlText,
    Statement,
    TablePath,
    Values,
)

T = name("t")
ONE = query("SELECT 1")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("INSERT INTO t SELECT 1", Insert(table=T, source=ONE)),
        ("INSERT INTO TABLE d.t SELECT 1", Insert(table=name("d.t"), source=ONE)),
        ("INSERT INTO delta.`/p` SELECT 1", Insert(table=TablePath("/p"), source=ONE)),
        ("INSERT INTO t (SELECT 1)", Insert(table=T, source=query("(SELECT 1)"))),
        ("INSERT INTO t ((SELECT 1))", Insert(table=T, source=query("((SELECT 1))"))),
        (
            "INSERT INTO t (a, `b c`) SELECT 1, 2",
            Insert(table=T, columns=("a", "b c"), source=query("SELECT 1, 2")),
        ),
        ("INSERT INTO t (`values`) SELECT 1", Insert(table=T, columns=("values",), source=ONE)),
        ("INSERT INTO t (values) SELECT 1", Insert(table=T, columns=("values",), source=ONE)),
        ("INSERT INTO t BY NAME SELECT 1", Insert(table=T, by_name=True, source=ONE)),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO t SELECT 1",
            Insert(table=T, schema_evolution=True, source=ONE),
        ),
        ("INSERT OVERWRITE t SELECT 1", Insert(table=T, overwrite=True, source=ONE)),
        ("INSERT OVERWRITE TABLE t SELECT 1", Insert(table=T, overwrite=True, source=ONE)),
        (
            "INSERT OVERWRITE t PARTITION (p=1, q='x', r=DATE'2026-01-01', s=NULL, u) SELECT 1",
            Insert(
                table=T,
                overwrite=True,
                partition=(
                    PartitionValue("p", 1),
                    PartitionValue("q", "x"),
                    PartitionValue("r", datetime.date(2026, 1, 1)),
                    PartitionValue("s", None),
                    PartitionValue("u", dynamic=True),
                ),
                source=ONE,
            ),
        ),
        (
            "INSERT OVERWRITE t PARTITION (p = -1) IF NOT EXISTS (a) SELECT 1",
            Insert(
                table=T,
                overwrite=True,
                partition=(PartitionValue("p", -1),),
                if_not_exists=True,
                columns=("a",),
                source=ONE,
            ),
        ),
        (
            "INSERT INTO t REPLACE WHERE a > 1 AND b IS DISTINCT FROM c SELECT 1",
            Insert(table=T, replace_where=sql("a > 1 AND b IS DISTINCT FROM c"), source=ONE),
        ),
        (
            "INSERT INTO t REPLACE WHERE a IN (SELECT 1) VALUES (1)",
            Insert(table=T, replace_where=sql("a IN (SELECT 1)"), source=Values(((1,),))),
        ),
        (
            "INSERT INTO t BY NAME REPLACE WHERE a = 1 WITH c AS (SELECT 1) TABLE c",
            Insert(
                table=T,
                by_name=True,
                replace_where=sql("a = 1"),
                source=query("WITH c AS (SELECT 1) TABLE c"),
            ),
        ),
    ],
)
def test_what_an_insert_says(text: str, statement: Statement) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("INSERT INTO t TABLE d.s", "TABLE <v>"),
        ("INSERT INTO t SELECT s.a FROM s@v1", "SELECT s.a FROM <v> AS `s`"),
        ("INSERT INTO t FROM s x SELECT a", "FROM <v> x SELECT a"),
        (
            "WITH c AS (SELECT * FROM s x) INSERT INTO t (a) SELECT * FROM c, t y",
            "WITH c AS (SELECT * FROM <v> x)                   SELECT * FROM c, <v> y",
        ),
        (
            "WITH c (a) AS (SELECT 1), d AS (SELECT 2)\nINSERT OVERWRITE t SELECT 1",
            "WITH c (a) AS (SELECT 1), d AS (SELECT 2)\n                   SELECT 1",
        ),
    ],
)
def test_the_query_of_an_insert_keeps_its_text(text: str, new: str) -> None:
    statement = one(text)
    assert isinstance(statement, Insert)
    assert isinstance(statement.source, Query)
    assert statement.source.sql.rewritten(lambda _: "<v>") == new


def source(text: str) -> Source:
    statement = one(f"INSERT INTO t {text}")
    assert isinstance(statement, Insert)
    return statement.source


WALL = datetime.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
HOUR = datetime.timezone(datetime.timedelta(hours=1))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("(1)", 1),
        ("1L", 1),
        ("-128Y", -128),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", Decimal(2**63)),
        ("1.50", Decimal("1.50")),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("1.50BD", Decimal("1.50")),
        ("1e3", 1000.0),
        ("-1.5e-3", -0.0015),
        ("2D", 2.0),
        ("CAST('nan' AS DOUBLE)", None),
        ("'it''s'", "it's"),
        ("'a' 'b'", "ab"),
        ('"x"', "x"),
        ("r'\\n'", "\\n"),
        ("''", ""),
        ("X'00ff'", b"\x00\xff"),
        ("x''", b""),
        ("NULL", None),
        ("true", True),
        ("FALSE", False),
        ("DEFAULT", DEFAULT),
        ("DATE '2026-01-02'", datetime.date(2026, 1, 2)),
        ("TIMESTAMP'2026-01-02 03:04:05'", LocalTime(WALL)),
        ("TIMESTAMP '2026-01-02T03:04:05.25'", LocalTime(WALL.replace(microsecond=250_000))),
        ("TIMESTAMP_NTZ '2026-01-02 03:04:05'", WALL),
        ("TIMESTAMP '2026-01-02'", LocalTime(WALL.replace(hour=0, minute=0, second=0))),
        ("TIMESTAMP '9999-12-31 23:59:59-05:00'", FarTime(253402318799000000, zoned=True)),
        ("TIMESTAMP '2026-01-02 03:04:05Z'", WALL.replace(tzinfo=datetime.UTC)),
        ("TIMESTAMP '2026-01-02 03:04:05+01:00'", WALL.replace(tzinfo=HOUR)),
    ],
)
def test_a_literal_is_a_constant(cell: str, value: object) -> None:
    values = source(f"VALUES ({cell}, 0)")
    assert isinstance(values, Values)
    got = values.rows[0][0]
    if "nan" in cell:
        assert isinstance(got, float)
        assert got != got
    else:
        assert (type(got), got) == (type(value), value)


def test_a_decimal_keeps_its_scale() -> None:
    values = source("VALUES (1.50)")
    assert isinstance(values, Values)
    assert str(values.rows[0][0]) == "1.50"


@pytest.mark.parametrize(
    "cell",
    [
        "1 + 1",
        "current_date()",
        "1.1F",
        "1.5L",
        "300Y",
        "array(1)",
        "DATE '2026-1-2'",
        "DATE '2026-02-30'",
        "TIMESTAMP 'yesterday'",
        "TIMESTAMP_NTZ '2026-01-02 03:04:05Z'",
        "INTERVAL 1 DAY",
        "X'0'",
        "CAST('1' AS DOUBLE)",
        "(SELECT 1)",
        "+1",
        "(1, 2)",
        "1e400BD",
        "123456789012345678901234567890123456789",
        "1 AS a",
    ],
)
def test_what_spark_must_evaluate_is_a_query(cell: str) -> None:
    text = f"VALUES (1), ({cell})"
    assert source(text) == query(text)


@pytest.mark.parametrize(
    "cells",
    [
        "DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05'",
        "1, 'a'",
        "'a', X'31'",
        "TRUE, NULL, 1",
    ],
)
def test_spark_finds_the_type_of_a_column_of_several(cells: str) -> None:
    rows = ", ".join(f"(1, {cell})" for cell in cells.split(", "))
    assert source(f"VALUES {rows}") == query(f"VALUES {rows}")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("VALUES (1), (1.5), (1.5D)", ((1,), (Decimal("1.5"),), (1.5,))),
        ("VALUES (1, 'a'), (2, NULL)", ((1, "a"), (2, None))),
        ("VALUES 1, 2", ((1,), (2,))),
        ("values(1),(DEFAULT)", ((1,), (DEFAULT,))),
        ("(a) VALUES (1)", ((1,),)),
    ],
)
def test_rows_of_literals_need_no_spark(text: str, values: tuple[tuple[object, ...], ...]) -> None:
    assert source(text) == Values(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["VALUES (1) AS v(a)", "VALUES (1) ORDER BY 1", "(VALUES (1))"])
def test_values_with_more_around_them_are_a_query(text: str) -> None:
    assert source(text) == query(text)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("INSERT t VALUES (1)", "1:8", "expected INTO or OVERWRITE"),
        ("INSERT INTO t", "1:14", "expected a query"),
        ("INSERT INTO t VALUES", "1:15", ""),
        ("INSERT INTO t VALUES (1, 2), (3)", "1:30", "row 2 has 1 values, the first has 2"),
        ("INSERT INTO t (a) VALUES (1, 2)", "1:19", "1 columns, but 2 values"),
        ("INSERT INTO t (a, A) VALUES (1, 2)", "1:19", "column A is named twice"),
        ("INSERT INTO t (a.b) VALUES (1)", "1:16", "whole columns"),
        ("INSERT INTO t (a b) VALUES (1)", "1:18", "expected , or )"),
        ("INSERT INTO t () VALUES (1)", "1:16", "expected a column"),
        (
            "INSERT INTO t VALUES (1 + 1, DEFAULT), (1)",
            "1:40",
            "row 2 has 1 values, the first has 2",
        ),
        ("INSERT INTO t (a) VALUES (1 + 1, DEFAULT)", "1:19", "1 columns, but 2 values"),
        ("INSERT INTO t VALUES ((SELECT a FROM s), DEFAULT)", "1:23", "can't have a query"),
        ("INSERT INTO t VALUES (f(1), DEFAULT), 2", "1:39", "expected a row in parentheses"),
        ("INSERT INTO t VALUES (f(1), DEFAULT) x", "1:38", "end of the statement"),
        ("INSERT INTO t VALUES (1) x y", "1:28", "unexpected 'y'"),
        ("INSERT INTO t PARTITION (p = 1 + 1) SELECT 1", "1:32", "expected , or )"),
        ("INSERT INTO t PARTITION (p = f()) SELECT 1", "1:30", "is a literal"),
        ("INSERT INTO t PARTITION (p = 1) IF NOT EXISTS SELECT 1", "1:33", "INSERT OVERWRITE"),
        ("INSERT INTO t PARTITION (p = 1, P = 2) SELECT 1", "1:33", "column P is named twice"),
        (
            "INSERT INTO t PARTITION (p = 1) (a, P) SELECT 1, 2",
            "1:33",
            "has its value in PARTITION",
        ),
        ("INSERT OVERWRITE t REPLACE WHERE a SELECT 1", "1:20", "go with INSERT INTO"),
        ("INSERT INTO t REPLACE WHERE SELECT 1", "1:29", "expected a condition"),
        ("INSERT INTO t REPLACE WHERE a", "1:30", "expected a query"),
        ("INSERT INTO t REPLACE USING SELECT 1", "1:29", "expected ("),
        ("INSERT INTO t REPLACE USING (a, A) SELECT 1", "1:33", "named twice"),
        ("INSERT INTO t REPLACE ON SELECT 1", "1:26", "expected a condition"),
        ("INSERT INTO t x REPLACE ON x.a", "1:30", "expected a condition and a query"),
        ("INSERT INTO t x SELECT 1", "1:15", "expected a query"),
        ("WITH c AS (SELECT 1) INSERT INTO t REPLACE ON a TABLE c", "1:1", "WITH goes inside"),
        ("INSERT OVERWRITE DIRECTORY '/p' SELECT 1", "1:18", "writes no table"),
        ("INSERT INTO t SELECT * FROM", "1:24", "unexpected 'FROM'"),
        ("INSERT INTO t UPDATE u SET a = 1", "1:15", "expected a query"),
        ("WITH c AS (SELECT 1) INSERT INTO t", "1:35", "expected a query"),
        ("WITH c AS (SELECT 1) INSERT INTO t SELECT * FORM c", "1:50", "unexpected 'c'"),
    ],
)
def test_a_malformed_insert_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "COPY INTO t FROM '/p' FILEFORMAT = parquet",
            CopyInto(table=T, location="/p", file_format="PARQUET"),
        ),
        (
            (
                "COPY INTO d.t (a, b) FROM 's3://b/p/*.csv' FILEFORMAT = CSV FILES = ('x', 'y') "
                "FORMAT_OPTIONS ('header' = 'true', sep = ';', n = 3) COPY_OPTIONS (force = TRUE)"
            ),
            CopyInto(
                table=name("d.t"),
                columns=("a", "b"),
                location="s3://b/p/*.csv",
                file_format="CSV",
                files=("x", "y"),
                format_options=(("header", "true"), ("sep", ";"), ("n", "3")),
                copy_options=(("force", "true"),),
            ),
        ),
        (
            "COPY INTO t BY POSITION FROM '/p' FILEFORMAT = JSON PATTERN = '*.json' VALIDATE ALL",
            CopyInto(
                table=T,
                by_position=True,
                location="/p",
                file_format="JSON",
                pattern="*.json",
                validate_rows=-1,
            ),
        ),
        (
            (
                "COPY INTO t FROM (SELECT a::int, f('x') FROM 'it\\'s' WHERE a > 1) "
                "FILEFORMAT = CSV VALIDATE 5 ROWS"
            ),
            CopyInto(
                table=T,
                location="it's",
                select=SqlText("SELECT a::int, f('x') FROM 'it\\'s' WHERE a > 1"),
                location_span=(27, 34),
                file_format="CSV",
                validate_rows=5,
            ),
        ),
    ],
)
def test_what_copy_into_says(text: str, statement: CopyInto) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("COPY t FROM '/p'", "1:6", "expected INTO"),
        ("COPY INTO t FROM /p FILEFORMAT = CSV", "1:18", "expected a place in quotes"),
        ("COPY INTO t FROM '/p'", "1:22", "expected FILEFORMAT"),
        ("COPY INTO t FROM '/p' FILEFORMAT CSV", "1:34", "expected ="),
        ("COPY INTO t FROM (SELECT 1) FILEFORMAT = CSV", "1:19", "must read FROM 'place'"),
        (
            "COPY INTO t FROM (SELECT * FROM '/p', u) FILEFORMAT = CSV",
            "1:19",
            "nothing but its place",
        ),
        ("COPY INTO t FROM '/p' FILEFORMAT = CSV FILES = ('a') PATTERN = 'b'", "1:54", "PATTERN"),
        ("COPY INTO t FROM '/p' FILEFORMAT = CSV FORMAT_OPTIONS (a = 1, a = 2)", "1:63", "twice"),
        ("COPY INTO t FROM '/p' FILEFORMAT = CSV x", "1:40", "expected VALIDATE or FILES"),
    ],
)
def test_a_malformed_copy_into_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


def test_default_beside_expressions() -> None:
    statement = one("INSERT INTO t VALUES (1 + 1, default), (DEFAULT, f(2, 'DEFAULT'))")
    assert isinstance(statement, Insert)
    source = statement.source
    assert isinstance(source, ComputedValues)
    texts = [[getattr(cell, "text", cell) for cell in row] for row in source.rows]
    assert texts == [["1 + 1", DEFAULT], [DEFAULT, "f(2, 'DEFAULT')"]]


def test_a_text_that_says_default_is_no_default() -> None:
    statement = one("INSERT INTO t VALUES (1 + 1, 'DEFAULT')")
    assert isinstance(statement, Insert)
    assert isinstance(statement.source, Query)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("WITH (FILE_TYPE = 'ORC')", "1:41", "FILE_TYPE is 'CSV', 'PARQUET' or 'JSONL'"),
        ("WITH (MAXERRORS = 5)", "1:41", "the first row that doesn't fit ends the statement"),
        ("WITH (FIRSTROW = 3)", "1:40", "FIRSTROW is 1, or 2"),
        ("WITH (FILE_TYPE='PARQUET', FIRSTROW=2)", "1:59", "FIRSTROW goes with FILE_TYPE = 'CSV'"),
        ("WITH (FIELDQUOTE = 'ab')", "1:42", "FIELDQUOTE is one character"),
        ("WITH (FIELDTERMINATOR = '')", "1:47", "a separator is one or more characters"),
        ("WITH (ROWTERMINATOR = '0xZZ')", "1:45", "no ASCII text in hexadecimal"),
        ("WITH (ROWTERMINATOR = 'ab')", "1:45", "or one other character"),
        ("WITH (ENCODING = 'LATIN1')", "1:40", "ENCODING is 'UTF8' or 'UTF16'"),
        ("WITH (FIRSTROW = 1, FIRSTROW = 1)", "1:43", "FIRSTROW is given twice"),
        ("WITH (DATEFORMAT = 'mdy')", "1:29", "as Spark's CAST reads them"),
        ("WITH (COMPRESSION = 'GZIP')", "1:29", "a file's ending says"),
        ("WITH (NOTHING = 1)", "1:29", "NOTHING is no option of COPY INTO"),
        ("WITH ()", "1:29", "an option, such as FILE_TYPE"),
        (", '/q' FILEFORMAT = CSV", "1:30", "several places"),
    ],
)
def test_what_fabrics_copy_into_cannot_follow(text: str, place: str, problem: str) -> None:
    refused(f"COPY INTO t FROM '/p' {text}", place, problem)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("(a 1, b)", "1:13", "either every column has the number of its field"),
        ("(a 0)", "1:16", "the fields of a file count from 1"),
        ("(a DEFAULT 1 1)", "1:16", "COPY INTO has no defaults"),
    ],
)
def test_numbers_of_fields(text: str, place: str, problem: str) -> None:
    refused(f"COPY INTO t {text} FROM '/p' WITH (FILE_TYPE = 'CSV')", place, problem)


def test_what_fabrics_copy_into_says() -> None:
    found = one("COPY INTO t (a 2, b 1) FROM '/p', '/q' WITH (FIRSTROW = 2, FIELDQUOTE = '0x27')")
    assert isinstance(found, CopyInto)
    assert (found.location, found.more_locations) == ("/p", ("/q",))
    assert (found.columns, found.fields, found.by_position) == (("a", "b"), (2, 1), True)
    assert found.copy_options == (("force", "true"),)
    options = dict(found.format_options)
    assert (options["header"], options["quote"], options["sep"]) == ("true", "'", ",")
    assert "lineSep" not in options
