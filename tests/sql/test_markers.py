"""Parameters become literals at their own places, and only there."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal

import numpy as np
import pytest

from tests.sql.parsing import one, refused
from txlake.errors import InvalidRequest
from txlake.sql import parse, sql_literal
from txlake.sql.markers import Arguments, WallTime, bind, spark_arguments
from txlake.sql.statements import Insert, Select, Values

UTC = datetime.UTC


def test_values_are_taken_as_pyspark_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        naive = datetime.datetime(2026, 1, 2, 3)  # noqa: DTZ001
        given = spark_arguments("SELECT :a, ':c'", {"a": [naive], "b": 1, "c": 2})
        assert (
            bind("SELECT :a", given).text == "SELECT array(TIMESTAMP '2026-01-02 03:00:00+09:00')"
        )
        aware = naive.replace(tzinfo=UTC)
        assert spark_arguments("SELECT ?, ?", (aware, naive)) == [aware, naive.astimezone()]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert spark_arguments("SELECT 1", None) is None


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (False, "FALSE"),
        (7, "7"),
        (-7, "(-7)"),
        (2**63, "9223372036854775808BD"),
        (np.int64(3), "3"),
        (1.5, "1.5D"),
        (-1e300, "(-1e+300D)"),
        (np.float64(0.1), "0.1D"),
        (float("nan"), "CAST('nan' AS DOUBLE)"),
        (float("-inf"), "CAST('-inf' AS DOUBLE)"),
        (Decimal("1.50"), "1.50BD"),
        (Decimal("-1E+3"), "(-1000BD)"),
        ("it's", "'it\\'s'"),
        ("a\\'; DROP TABLE t --", "'a\\\\\\'; DROP TABLE t --'"),
        (b"\x00\xff", "X'00ff'"),
        (datetime.date(2026, 1, 2), "DATE '2026-01-02'"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "TIMESTAMP '2026-01-02 03:04:05'"),  # noqa: DTZ001
        (WallTime(2026, 1, 2, 3, 4, 5, 6), "TIMESTAMP_NTZ '2026-01-02 03:04:05.000006'"),
        (datetime.datetime(2026, 1, 2, tzinfo=UTC), "TIMESTAMP '2026-01-02 00:00:00+00:00'"),
        (
            datetime.timedelta(days=1, hours=2, microseconds=5),
            "INTERVAL '1 02:00:00.000005' DAY TO SECOND",
        ),
        (datetime.timedelta(seconds=-1), "INTERVAL '-0 00:00:01.000000' DAY TO SECOND"),
        ([1, "a", None], "array(1, 'a', NULL)"),
        ((), "array()"),
    ],
)
def test_a_value_becomes_a_literal_of_its_type(value: object, literal: str) -> None:
    assert sql_literal(value) == literal


@pytest.mark.parametrize(
    "value", [object(), {"a": 1}, {1}, 1j, Decimal("NaN"), Decimal(10) ** 38, 10**39, [object()]]
)
def test_a_value_without_a_literal_is_refused_by_its_marker(value: object) -> None:
    with pytest.raises(InvalidRequest, match=":a "):
        parse("SELECT :a", {"a": value})


@pytest.mark.parametrize(
    ("text", "args", "bound"),
    [
        ("SELECT :a, :b, :a", {"a": 1, "b": 2}, "SELECT 1, 2, 1"),
        ("SELECT ?, ?", [1, "x"], "SELECT 1, 'x'"),
        ("SELECT ?", (None,), "SELECT NULL"),
        ("SELECT ':a', `:a`, \":a\" -- :a ?\n, :a", {"a": 1}, None),
        ("SELECT c:a, (c):a, c[0]:a, :a", {"a": 1}, "SELECT c:a, (c):a, c[0]:a, 1"),
        ("SELECT CAST(x AS STRUCT<a: INT>), :a", {"a": 1}, "SELECT CAST(x AS STRUCT<a: INT>), 1"),
        ("SELECT a::int, :b", {"b": 1}, "SELECT a::int, 1"),
        ("SELECT x-:a", {"a": -1}, "SELECT x-(-1)"),
        ("SELECT a IN(:a) AND b LIKE:b", {"a": 1, "b": "x"}, "SELECT a IN(1) AND b LIKE 'x'"),
        ("VACUUM t RETAIN :h HOURS", {"h": 3}, "VACUUM t RETAIN 3 HOURS"),
        ("SELECT * FROM t LIMIT :n", {"n": 3}, "SELECT * FROM t LIMIT 3"),
        ("SELECT :a", {"a": ":b ?"}, "SELECT ':b ?'"),
        ("SELECT ':a ?'", None, "SELECT ':a ?'"),
        ("SELECT c:a", None, "SELECT c:a"),
        ("SELECT 1", {}, "SELECT 1"),
    ],
)
def test_markers_are_replaced_where_they_stand(
    text: str, args: Arguments | None, bound: str | None
) -> None:
    if bound is None:
        bound = text[: text.rindex(":a")] + "1"
    assert bind(text, args).text == bound


@pytest.mark.parametrize(
    ("text", "args", "place", "problem"),
    [
        ("SELECT :a", None, "1:8", ":a has no value"),
        ("SELECT :a,\n  :b", {"a": 1}, "2:3", ":b has no value"),
        ("SELECT :a", [1], "1:8", ":a has no value"),
        ("SELECT ?", None, "1:8", "marker 1 (?) has no value"),
        ("SELECT ?, ?", [1], "1:11", "marker 2 (?) has no value"),
        ("SELECT ?", {"a": 1}, "1:8", "marker 1 (?) has no value"),
    ],
)
def test_a_marker_without_a_value_is_shown(
    text: str, args: Arguments | None, place: str, problem: str
) -> None:
    refused(text, place, problem, args)


@pytest.mark.parametrize(
    ("text", "args", "problem"),
    [
        ("SELECT 1", {"a": 1}, "no parameter :a"),
        ("SELECT ':a'", {"a": 1}, "no parameter :a"),
        ("SELECT :a", {"a": 1, "A": 2}, "no parameter :A"),
        ("SELECT ?", [1, 2], "2 values were given for 1 markers"),
        ("SELECT ?", "x", "a mapping or a sequence"),
    ],
)
def test_a_value_without_a_marker_is_refused(text: str, args: Arguments, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text, args)
    assert problem in str(caught.value)


def test_bound_rows_are_constants() -> None:
    row = (1, -2, 1.5, "it's\n", None, b"x", datetime.date(2026, 1, 1), Decimal("-0.10"), 2**63)
    statement = one(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", row)
    assert isinstance(statement, Insert)
    assert statement.source == Values(((*row[:-1], Decimal(2**63)),))


def test_a_text_with_markers_reaches_spark_with_its_literals() -> None:
    statement = one("SELECT * FROM sales.t WHERE a = :a", {"a": "x"})
    assert isinstance(statement, Select)
    assert statement.query.rewritten(lambda _: "v") == "SELECT * FROM v AS `t` WHERE a = 'x'"
