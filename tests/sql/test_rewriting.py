"""IDENTIFIER('...'), and WITH before UPDATE, DELETE and MERGE."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, refused
from txlake.sql import parse
from txlake.sql.statements import (
    Delete,
    MatchedUpdate,
    Merge,
    Select,
    SqlText,
    TableName,
    TablePath,
)


def _text(found: object) -> str:
    assert isinstance(found, SqlText)
    return found.text


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("DELETE FROM IDENTIFIER('t')", name("t")),
        ("DELETE FROM identifier('d.t')", name("d.t")),
        ("DELETE FROM IDENTIFIER('d' || '.' || 't')", name("d.t")),
        ("DELETE FROM IDENTIFIER(concat('d.', ('t')))", name("d.t")),
        ("DELETE FROM IDENTIFIER('`two words`')", TableName(("two words",))),
        ("DELETE FROM IDENTIFIER('table')", name("table")),
        ("DELETE FROM IDENTIFIER('delta.`/p`')", TablePath("/p")),
    ],
)
def test_identifier_names_a_table(text: str, table: object) -> None:
    assert one(text) == Delete(table=table)  # type: ignore[arg-type]


def test_identifier_names_columns_functions_and_takes_parameters() -> None:
    found = one(
        "SELECT IDENTIFIER('a b'[0]), IDENTIFIER('abs')(-1), IDENTIFIER(:c) FROM IDENTIFIER(:t)",
        {"c": "x", "t": "d.t"},
    )
    assert isinstance(found, Select)
    assert found.query.text == "SELECT IDENTIFIER('a b'[0]), abs(-1), `x` FROM `d`.`t`"
    assert [one.table for one in found.query.references] == [name("d.t")]


def test_a_variable_in_identifier_is_left_to_spark_but_for_tables() -> None:
    found = one("SELECT IDENTIFIER(v), t.identifier FROM t")
    assert isinstance(found, Select)
    assert found.query.text == "SELECT IDENTIFIER(v), t.identifier FROM t"
    refused("DELETE FROM IDENTIFIER(v)", "1:24", "use EXECUTE IMMEDIATE")
    refused("SELECT * FROM t JOIN IDENTIFIER('a' || v)", "1:40", "use EXECUTE IMMEDIATE")


def test_what_is_no_name_is_refused_where_it_stands() -> None:
    refused("SELECT\n  IDENTIFIER('a b')", "2:14", "'a b' is no name")
    refused("DELETE FROM IDENTIFIER('')", "1:24", "'' is no name")
    # Places after it are those of the text as it was given.
    refused("DELETE FROM IDENTIFIER('t') WHERE a b", "1:37", "no alias")


def test_with_goes_into_the_queries_that_use_it() -> None:
    found = one(
        "WITH c AS (SELECT * FROM d.x) DELETE FROM t "
        "WHERE a IN (SELECT a FROM c) AND b IN (SELECT b FROM y)"
    )
    assert isinstance(found, Delete)
    assert isinstance(found.condition, SqlText)
    assert found.condition.text == (
        "a IN (WITH c AS (SELECT * FROM d.x) SELECT a FROM c) AND b IN (SELECT b FROM y)"
    )
    assert [one.table for one in found.condition.references] == [name("d.x"), name("y")]


def test_with_goes_before_a_with_of_the_query() -> None:
    found = one(
        "WITH c(a) AS (SELECT 1), d AS (SELECT 2) "
        "DELETE FROM t WHERE a IN (WITH e AS (SELECT * FROM d) SELECT a FROM e)"
    )
    assert isinstance(found, Delete)
    assert _text(found.condition) == (
        "a IN (WITH c(a) AS (SELECT 1), d AS (SELECT 2) "
        "(WITH e AS (SELECT * FROM d) SELECT a FROM e))"
    )


@pytest.mark.parametrize(
    ("source", "text", "alias"),
    [
        ("c", "SELECT * FROM (WITH c AS (SELECT * FROM x) SELECT * FROM c) AS c", "c"),
        ("c AS s", "SELECT * FROM (WITH c AS (SELECT * FROM x) SELECT * FROM c) AS s", "s"),
        ("C s", "SELECT * FROM (WITH c AS (SELECT * FROM x) SELECT * FROM C) s", "s"),
        ("c.c", "SELECT * FROM c.c", "c"),
        (
            "(SELECT 1 FROM c) s",
            "SELECT * FROM (WITH c AS (SELECT * FROM x) SELECT 1 FROM c) s",
            "s",
        ),
    ],
)
def test_with_before_a_merge(source: str, text: str, alias: str) -> None:
    found = one(
        f"WITH c AS (SELECT * FROM x) MERGE INTO t USING {source} ON t.a = 1 "
        "WHEN MATCHED THEN UPDATE SET a = (SELECT max(a) FROM c)"
    )
    assert isinstance(found, Merge)
    assert (found.source.sql.text, found.source_alias) == (text, alias)  # type: ignore[union-attr]
    [clause] = found.clauses
    assert isinstance(clause, MatchedUpdate)
    assert isinstance(clause.assignments, tuple)
    assert (
        _text(clause.assignments[0].value) == "(WITH c AS (SELECT * FROM x) SELECT max(a) FROM c)"
    )


def test_with_before_a_change_is_checked_where_it_stands() -> None:
    refused("WITH c AS (SELECT * FROM x y z) DELETE FROM t", "1:30", "expected )")
    refused("WITH c AS (SELECT 1)\nDELETE FROM t WHERE (SELECT a FROM c) a", "2:39", "no alias")
    refused("WITH c AS (SELECT 1) UPDATE t SET a = 1; x", "1:42", "a statement")


def test_table_before_a_pipe_is_from() -> None:
    text = "TABLE db.t |> WHERE t.x = 1 |> JOIN (TABLE `u v` |> SELECT a) ON TRUE"
    [select] = parse(text)
    assert isinstance(select, Select)
    assert select.query.text == text.replace("TABLE db", "FROM db").replace("TABLE `", "FROM `")
    assert [one.alias for one in select.query.references] == ["t", "u v"]
    [plain] = parse("TABLE t")
    assert isinstance(plain, Select)
    assert plain.query.text == "TABLE t"
