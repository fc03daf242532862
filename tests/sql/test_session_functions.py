"""Session functions of a text: found at their positions, replaced without touching the rest."""

from __future__ import annotations

import pytest

from tests.sql.parsing import one, refused
from txlake.sql.statements import (
    Insert,
    Merge,
    Query,
    Select,
    SessionFunction,
    SparkCommand,
    SqlText,
    Update,
)


def query(text: str) -> SqlText:
    statement = one(text)
    assert isinstance(statement, Select)
    return statement.query


def answer(question: SessionFunction) -> list[str]:
    """`<NAME literals` before the first operand, `|` between two, `>` behind the last."""
    head = "<" + " ".join((question.name, *question.literals))
    return (
        [head + ">"] if not question.operands else [head, *"|" * (len(question.operands) - 1), ">"]
    )


def with_session_values(text: str) -> str:
    return query(text).with_session_values(answer).rewritten(lambda table: f"[{table.table}]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT @@TRANCOUNT + 1", "SELECT <@@TRANCOUNT> + 1"),
        ("SELECT @@spid", "SELECT <@@SPID> AS `@@spid`"),
        ("SELECT @@SPID x, xact_state ( )", "SELECT <@@SPID> x, <XACT_STATE> AS `xact_state ( )`"),
        ("SELECT a FROM d.t WHERE s = @@SPID", "SELECT a FROM [d.t] AS `t` WHERE s = <@@SPID>"),
        ("SELECT @@SPID + d.t.a FROM d.t", "SELECT <@@SPID> + `t`.a FROM [d.t] AS `t`"),
        ("SELECT DB_NAME(id) FROM t", "SELECT <DB_NAMEid> AS `DB_NAME(id)` FROM [t] AS `t`"),
        ("SELECT max(DB_NAME((a))) m", "SELECT max(<DB_NAME(a)>) m"),
        ("SELECT DB_NAME(DB_ID()) m", "SELECT <DB_NAME<DB_ID>> m"),
        (
            "SELECT OBJECT_NAME((SELECT x FROM t), f(1, 2)) m",
            "SELECT <OBJECT_NAME(SELECT x FROM [t] AS `t`)|f(1, 2)> m",
        ),
        ("SELECT 1 WHERE OBJECT_ID(N'dbo.t', 'U') > 0", "SELECT 1 WHERE <OBJECT_ID dbo.t U> > 0"),
        ("SELECT a GROUP BY a, DB_NAME(a)", "SELECT a GROUP BY a, <DB_NAMEa>"),
        ("SELECT 1 IN (1, @@SPID)", "SELECT 1 IN (1, <@@SPID>)"),
        ("(SELECT @@SPID) UNION SELECT 1", "(SELECT <@@SPID> AS `@@SPID`) UNION SELECT 1"),
        ("SELECT current_database()", "SELECT <CURRENT_DATABASE> AS `current_schema()`"),
        ("SELECT '@@SPID', `DB_ID`() , x.db_id(), db_id, a @ b", None),
    ],
)  # fmt: skip
def test_session_functions_are_found_at_their_positions(text: str, said: str | None) -> None:
    if said is None:
        text = text.replace(", a @ b", "")
        assert query(text).session_functions == ()
    else:
        assert with_session_values(text) == said


def test_a_table_at_a_version_is_no_variable() -> None:
    assert query("SELECT * FROM t@v1").session_functions == ()


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("SELECT @@VERSION", "1:8", "of T-SQL's variables there are @@SPID and @@TRANCOUNT"),
        ("SELECT XACT_STATE(1)", "1:8", "XACT_STATE takes 0 arguments, found 1"),
        ("SELECT DB_NAME(1, 2)", "1:8", "DB_NAME takes 0 or 1 arguments, found 2"),
        ("SELECT OBJECT_ID()", "1:8", "OBJECT_ID takes 1 or 2 arguments, found 0"),
        ("SELECT OBJECT_ID(name) FROM t", "1:18", "OBJECT_ID takes names in quotes here"),
        ("SELECT OBJECT_NAME(1,) FROM t", "1:22", "an argument is missing"),
        ("SELECT OBJECT_NAME(1", "1:19", "this ( is never closed"),
    ],
)
def test_invalid_arguments_are_refused(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


def test_other_statements_have_session_functions_too() -> None:
    inserted = one("INSERT INTO t VALUES (@@SPID, 1)")
    assert isinstance(inserted, Insert)
    assert isinstance(inserted.source, Query)
    assert [one.name for one in inserted.source.sql.session_functions] == ["@@SPID"]
    updated = one("UPDATE t SET a = DB_NAME() WHERE b = @@SPID")
    assert isinstance(updated, Update)
    assert isinstance(updated.condition, SqlText)
    assert updated.condition.with_session_values(answer).text == "b = <@@SPID>"
    merged = one(
        "MERGE INTO t USING (SELECT @@SPID AS a FROM u) s ON t.a = s.a WHEN MATCHED THEN DELETE"
    )
    assert isinstance(merged, Merge)
    assert isinstance(merged.source, Query)
    assert "SELECT <@@SPID> AS a FROM u" in merged.source.sql.with_session_values(answer).text
    explained = one("EXPLAIN SELECT @@SPID AS a FROM u")
    assert isinstance(explained, SparkCommand)
    assert (
        explained.command.with_session_values(answer).text == "EXPLAIN SELECT <@@SPID> AS a FROM u"
    )
