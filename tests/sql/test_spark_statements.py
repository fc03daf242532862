"""Statements of Spark's own, whose queries may read a lake's tables."""

from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.spark_statements import (
    insert_into_spark,
    parse_spark_statement,
    possible_table_names,
    target_name,
)
from txlake.sql.statements import Insert, Select, TableName, TablePath


def read(text: str) -> list[str]:
    """The tables that Spark is left to read, by what stands at their places."""
    found = parse_spark_statement(text)
    assert found is not None
    command = found.command.command
    for one in command.references:
        assert command.text[one.start : one.end].replace("`", "") == str(one.table).replace("`", "")
    return [str(one.table) for one in command.references]


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("CREATE TABLE p (id INT) USING parquet", []),
        ("CREATE TABLE p USING csv OPTIONS (a = true) AS SELECT * FROM t JOIN db.u", ["t", "db.u"]),
        ("CREATE TABLE IF NOT EXISTS p USING parquet AS (SELECT 1 AS a FROM t)", ["t"]),
        ("CREATE TABLE p USING parquet PARTITIONED BY (d) AS WITH c AS (TABLE t) TABLE c;", ["t"]),
        ("CREATE TABLE p USING parquet COMMENT 'as select' AS SELECT 1", []),
        ("INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT * FROM t", ["t"]),
        ("INSERT OVERWRITE LOCAL DIRECTORY '/x' USING csv TABLE t", ["t"]),
    ],
)  # fmt: skip
def test_what_they_read(text: str, tables: list[str]) -> None:
    assert read(text) == tables


def test_names_in_a_text_that_the_lakes_sql_doesnt_know() -> None:
    text = "FROM a JOIN db.b INSERT INTO TABLE c SELECT 'FROM d' INSERT OVERWRITE `e` SELECT f(1)"
    assert [str(name) for name in possible_table_names(text, None)] == ["a", "db.b", "c", "e"]
    assert possible_table_names("SHOW THINGS (FROM (SELECT 1)), FROM a.b.c.d", None) == ()


@pytest.mark.parametrize(
    "text",
    [
        "FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *",
        "WITH a AS (SELECT 1) FROM a INSERT OVERWRITE b SELECT *",
    ],
)
def test_several_inserts_of_one_query_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"FROM \.\.\. INSERT isn't taken: .* BEGIN before"):
        parse(text)
    [query] = parse("FROM (FROM a SELECT insert_into) SELECT *")
    assert isinstance(query, Select)


def test_what_they_make() -> None:
    made = parse_spark_statement("CREATE OR REPLACE TABLE db.p USING parquet AS SELECT 1")
    assert made is not None
    assert made.creates == TableName(("db", "p"))
    directory = parse_spark_statement("INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT 1")
    assert directory is not None
    assert directory.creates is None


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [
        ("CREATE TABLE t (id INT) OPTIONS (a = 1)", False),
        ("CREATE TABLE t (id INT) CLUSTERED BY (id) INTO 4 BUCKETS", False),
        ("CREATE TABLE t (id INT) USING delta OPTIONS (a = 1)", False),
        ("CREATE TABLE t (id INT) DEFAULT COLLATION UTF8_BINARY AS SELECT 1 AS id", False),
        ("CREATE TABLE t (id INT) )", False),
        ("CREATE TABLE t (id INT) OPTIONS (a = 1) USING parquet", True),
        ("CREATE TABLE t (id INT) STORED AS parquet", True),
        ("CREATE TABLE t (id INT) ROW FORMAT DELIMITED", True),
    ],
)  # fmt: skip
def test_a_table_without_another_format_is_not_sparks(text: str, *, is_foreign: bool) -> None:
    found = parse_spark_statement(text)
    assert found is not None
    assert found.is_foreign is is_foreign


@pytest.mark.parametrize(
    "text", ["SELECT 1", "CREATE VIEW v AS SELECT 1", "INSERT OVERWRITE t SELECT 1", "ADD JAR 'x'"]
)
def test_others_are_not_known(text: str) -> None:
    assert parse_spark_statement(text) is None


def test_parameters_stand_as_literals() -> None:
    found = parse_spark_statement(
        "CREATE TABLE p USING parquet AS SELECT * FROM t WHERE id = :id", {"id": 7}
    )
    assert found is not None
    assert found.command.command.text.endswith("FROM t WHERE id = 7")
    with pytest.raises(InvalidRequest, match="has no value"):
        parse_spark_statement("CREATE TABLE p USING parquet AS SELECT :id")


def test_an_insert_into_a_table_of_sparks() -> None:
    text = "INSERT INTO p SELECT * FROM t ;"
    [statement] = parse(text)
    assert isinstance(statement, Insert)
    command = insert_into_spark(text, statement)
    assert command is not None
    assert command.command.text == "INSERT INTO p SELECT * FROM t"
    [reference] = command.command.references
    assert command.command.text[reference.start : reference.end] == "t"
    [values] = parse("INSERT INTO p VALUES (1)")
    assert isinstance(values, Insert)
    assert insert_into_spark("INSERT INTO p VALUES (1)", values) is None


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("DELETE FROM db.t", TableName(("db", "t"))),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", TableName(("t",))),
        ("DROP VIEW v", TableName(("v",))),
        ("DELETE FROM delta.`/x`", None),
        ("SELECT * FROM t", None),
        ("SHOW TABLES", None),
    ],
)
def test_what_a_statement_is_about(text: str, table: TableName | TablePath | None) -> None:
    [statement] = parse(text)
    assert target_name(statement) == table
