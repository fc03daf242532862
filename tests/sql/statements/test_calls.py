"""Texts of other people: which functions they call, and which of them are refused."""

from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.sql.statements.calls import (
    SIZE_MAX,
    function_calls,
    served_text_problem,
    stored_expression_problem,
)
from txlake.sql.statements.functions import PURE, REFUSED, why_refused

HARMLESS = (
    "x > 0",
    "x IN (1, 2) AND NOT (y IS NULL OR z BETWEEN (1) AND (2))",
    "upper(trim(BOTH ' ' FROM s)) = 'A'",
    "length(s) < 10 -- java_method('a')",
    "s <> 'java_method(1)' /* reflect(2) 'it''s */",
    r"s <> 'it\'s reflect(1)'",
    "s <> 'it''s reflect(1)'",
    r"s RLIKE r'\d+reflect\(' ",
    "CASE WHEN (x > 1) THEN (2) ELSE (3) END = 2",
    "CAST(x AS DECIMAL(10, 2)) > 1.5",
    "x::varchar(10) LIKE ANY ('a%', 'b%')",
    "EXTRACT(YEAR FROM d) = 2026 AND d > DATE'2026-01-01'",
    "aggregate(a, 0, (acc, x) -> acc + x) > 0 AND exists(a, x -> (x > 1))",
    "map('a', 1)['a'] = 1 AND (map('a', 1))['a'] = 1",
    "`a (b` > 0 AND v:a.b::int > 0",
    "system.builtin.upper(s) = 'A'",
    "(table) > 0 AND (values) < 3",
)
DANGEROUS = (
    "java_method('java.lang.System', 'exit', '3') IS NULL",
    "x > 0 AND `java_method`('a')",
    'x > 0 AND "reflect"(1)',
    "x > 0 AND Try_Reflect /* */ -- z\n ('a')",
    "system.builtin.reflect('a')",
    "IDENTIFIER('ref' || 'lect')('a')",
    "my_own(x) > 0",
    "default.upper(x) = 'A'",
    "transform(a, x -> reflect(x)) IS NULL",
    "(SELECT count(*) FROM text.`/etc/passwd`) > 0",
    "EXISTS (FROM t)",
    "x IN (TABLE t)",
    "x IN (WITH c AS (VALUES (1)) FROM c)",
    "x IN (VALUES (1))",
    "x IN (MAP a USING 'cat' FROM t)",
    "s <> '${env:HOME}'",
    r"s <> 'a\' AND reflect(' OR reflect(1)",
    r"s = r'\' AND reflect(1)",
    "a://x-- + reflect(1)\n > 0",
    "x > 0 /* not closed",
    "x > 0 /* /* */ AND reflect(1)",
    "x > 0 /* /*+ */ AND reflect(1) /* */ */",
    "x > 0 /*+ H('*/ ') */ AND reflect('a') -- '",
    "x > 0 -- \\\n reflect(\n AND reflect(1)",
    "x > $$reflect$$",
    "x > 'not closed",
    "from_protobuf(b, 'M', '/etc/passwd') IS NULL",
    "xpath_string(s, 'a') = 'b'",
    "\u3002reflect(1)",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_pure_expressions_are_evaluated(text: str) -> None:
    assert stored_expression_problem(text) is None


@pytest.mark.parametrize("text", DANGEROUS)
def test_other_expressions_are_refused(text: str) -> None:
    assert stored_expression_problem(text) is not None


def test_calls_are_found_with_their_owners() -> None:
    names = [call.name for call in function_calls("a.b(c(1), `D`(2)) + IF (x, 'e(3)', f)")]
    assert names == ["c", "d", "a.b", "if"]


def test_sizes_of_served_calls_are_bounded() -> None:
    for text in (
        "SELECT sha2(repeat('a', 2000000000), 256)",
        "SELECT `repeat`('a', 2000000000)",
        "SELECT space(1000001), lpad('a', 3, 'b')",
        "SELECT rpad('a', 1000001, 'b')",
        "SELECT explode(sequence(1, 2000000))",
        "SELECT explode(sequence(5, -2000000, -1))",
        "SELECT array_repeat(1, 1000001L)",
        "SELECT upper(repeat('a', ((2000000000))))",
        "SELECT /*+ H('*/ ') */ repeat('a', 2000000000) -- '",
    ):
        assert f"at most {SIZE_MAX}" in str(served_text_problem(text)), text
    for text in (
        "SELECT repeat('a', 1000000), lpad(s, 10, '0'), explode(sequence(1, 1000000))",
        "SELECT sequence(DATE'2020-01-01', DATE'2026-01-01', INTERVAL 1 DAY)",
        "SELECT sequence(0, 100000000, 1000), '${a}'",
        "INSERT INTO repeat (a, 2000000000) SELECT 1",
        "WITH reports (a, b) AS (VALUES (1, 2)) SELECT * FROM reports",
    ):
        assert served_text_problem(text) is None, text


def test_computed_names_are_not_served() -> None:
    for text in ("SELECT IDENTIFIER(concat('a', 'b'))(1)", "SELECT identifier (:f)(1)"):
        assert "IDENTIFIER" in str(served_text_problem(text))
    assert served_text_problem("SELECT `identifier`(1)") is None  # a function that there isn't


def test_functions_are_either_pure_or_refused() -> None:
    assert not PURE & REFUSED.keys()
    assert why_refused("UPPER") is None
    assert why_refused("builtin.upper") is None
    assert "own functions" in str(why_refused("spark_catalog.default.upper"))
    assert "known" in str(why_refused("a_function_of_tomorrow"))


def test_a_text_that_is_not_understood_names_its_place() -> None:
    with pytest.raises(InvalidRequest, match="closed"):
        function_calls("a = 'closed")


def test_long_texts_are_judged_in_linear_time() -> None:
    depth = 100_000
    assert served_text_problem("SELECT " + "upper(" * depth + "'a'" + ")" * depth) is None
    assert served_text_problem("SELECT " + "repeat(" * depth + "'a'" + ", 2)" * depth) is None
    assert served_text_problem("SELECT '" + "a" * 1_000_000 + "'") is None
    for opening in ("'", '"', "`", "/*", "r'"):
        assert served_text_problem("SELECT " + opening + "a" * 1_000_000) is not None
