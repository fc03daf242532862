from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.zones import BERLIN, UnknownZone, zone_of
from txlake.errors import InvalidRequest
from txlake.log.predicates import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    LocalTime,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
    bind,
    columns_of,
    conjuncts,
    is_deterministic,
    parse_or_opaque,
    parse_predicate,
    to_text,
)
from txlake.log.time_zones import UTC_ZONE, TimeZone
from txlake.protocol.types import Array, DataType, Field, Primitive, Struct

A: ColumnPath = ("a",)


def compare(op: str, value: LiteralValue, column: ColumnPath = A) -> Comparison:
    return Comparison(column, Operator(op), value)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("a = 1", compare("=", 1)),
        ("a == 1", compare("=", 1)),
        ("a <> -1", compare("!=", -1)),
        ("a < 1.5", compare("<", Decimal("1.5"))),
        (
            "a < -1234567890123456789012345678901234.5",
            compare("<", Decimal("-1234567890123456789012345678901234.5")),
        ),
        ("a <= 1e3", compare("<=", 1000.0)),
        ("a > 1D", compare(">", 1.0)),
        ("a >= 5L", compare(">=", 5)),
        ("a <=> 'x'", compare("<=>", "x")),
        ('a = "x"', compare("=", "x")),
        ("5 < a", compare(">", 5)),
        ("5 >= a", compare("<=", 5)),
        ("5 = a", compare("=", 5)),
        ("(a) = ((5))", compare("=", 5)),
        ("a", compare("=", True)),
        ("NOT a", Not(compare("=", True))),
        ("a IS TRUE", compare("<=>", True)),
        ("a IS NOT FALSE", Not(compare("<=>", False))),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("isnull(a)", IsNull(A)),
        ("isnotnull(a)", Not(IsNull(A))),
        ("a = NULL", Always(None)),
        ("a <=> NULL", IsNull(A)),
        ("NULL <=> a", IsNull(A)),
        ("a IN (1, 2)", In(A, (1, 2))),
        ("a NOT IN (1)", Not(In(A, (1,)))),
        ("a IN (1, NULL)", Or((In(A, (1,)), Always(None)))),
        ("a IN (NULL)", Always(None)),
        ("a BETWEEN 1 AND 2", And((compare(">=", 1), compare("<=", 2)))),
        ("a LIKE 'x%'", StartsWith(A, "x")),
        ("a LIKE 'x'", And((StartsWith(A, "x"), compare("=", "x")))),
        ("a NOT LIKE 'x%'", Not(StartsWith(A, "x"))),
        ("NOT a LIKE 'x%'", Not(StartsWith(A, "x"))),
        ("a NOT BETWEEN 1 AND 2", Not(And((compare(">=", 1), compare("<=", 2))))),
        ("startswith(a, 'x')", StartsWith(A, "x")),
        ("true", Always(True)),
        ("1 = 1", Always(True)),
        ("1 != 1", Always(False)),
        ("NULL", Always(None)),
        ("a = DATE '2020-01-02'", compare("=", date(2020, 1, 2))),
        ("a = CAST('2020-01-02' AS DATE)", compare("=", date(2020, 1, 2))),
        ("a = TIMESTAMP '2020-01-02'", compare("=", LocalTime(datetime(2020, 1, 2)))),  # noqa: DTZ001
        (
            "a = TIMESTAMP '2020-01-02 03:04:05+01:00'",
            compare("=", datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ),
        ("a = TIMESTAMP_NTZ '2020-01-02'", compare("=", datetime(2020, 1, 2))),  # noqa: DTZ001
        ("a = CAST(5 AS BIGINT)", compare("=", 5)),
        ("a = CAST('5' AS INT)", compare("=", 5)),
        ("a = CAST(5 AS DOUBLE)", compare("=", 5.0)),
        ("a = CAST('1.5' AS DECIMAL(3,1))", compare("=", Decimal("1.5"))),
        ("a = X'0aff'", compare("=", b"\x0a\xff")),
        ("b.c.d.e.f = 1", compare("=", 1, ("b", "c", "d", "e", "f"))),
        ("`odd name`.`x.y` = 1", compare("=", 1, ("odd name", "x.y"))),
        ("a = 1 -- why", compare("=", 1)),
    ],
)
def test_conditions_that_are_modelled(text: str, predicate: Predicate) -> None:
    assert parse_predicate(text) == predicate


@pytest.mark.parametrize(
    ("text", "deterministic", "columns"),
    [
        ("a = b", True, {("a",), ("b",)}),
        ("length(a) > 3", True, {("a",)}),
        ("a + 1 = 2", True, {("a",)}),
        ("CAST(a AS STRING) = '1'", True, {("a",)}),
        ("a = CAST('x' AS INT)", True, {("a",)}),
        ("a = CAST(300 AS TINYINT)", True, {("a",)}),
        ("a = DATE '2020-02-30'", True, {("a",)}),
        ("a LIKE b", True, {("a",), ("b",)}),
        ("a LIKE 'x\\\\%'", True, {("a",)}),
        ("a LIKE 'x!%' ESCAPE '!'", True, {("a",)}),
        ("a LIKE ANY ('x%', 'y%')", True, {("a",)}),
        ("a NOT ILIKE 'x%'", True, {("a",)}),
        ("a IS DISTINCT FROM 1", True, {("a",)}),
        ("TRY_CAST('x' AS INT) = a", True, {("a",)}),
        ("a RLIKE 'x'", True, {("a",)}),
        ("(a, b) IN ((1, 2))", True, {("a",), ("b",)}),
        ("rand() > 0.5", False, set()),
        ("a < current_timestamp()", False, {("a",)}),
        ("my_function(a) = 1", False, {("a",)}),
        ("a = :parameter", False, {("a",)}),
        ("a IN (SELECT x FROM t)", False, None),
        ("EXISTS (SELECT 1)", False, None),
    ],
)
def test_other_conditions_are_opaque(
    text: str, deterministic: bool, columns: set[ColumnPath] | None
) -> None:
    found = parse_predicate(text)
    assert isinstance(found, Opaque)
    assert found.deterministic is deterministic
    assert found.columns == columns
    assert is_deterministic(found) is deterministic


def test_a_pattern_with_more_than_a_prefix_still_has_the_prefix() -> None:
    found = parse_predicate("a LIKE 'x_y%'")
    assert isinstance(found, And)
    assert found.parts[0] == StartsWith(A, "x")
    assert isinstance(found.parts[1], Opaque)


def test_a_name_may_begin_with_a_zero_and_an_x() -> None:
    assert parse_predicate("0xAB = X'00'") == Comparison(("0xAB",), Operator.EQUAL, b"\x00")
    found = parse_predicate("a = 0xAB")
    assert isinstance(found, Opaque)
    assert found.columns == frozenset({("a",), ("0xAB",)})


def test_a_long_chain_is_one_node() -> None:
    numbers = range(3_000)
    for word, kind in (("OR", Or), ("AND", And)):
        text = f" {word} ".join(f"id <> {number}" for number in numbers)
        predicate = parse_predicate(text)
        assert isinstance(predicate, kind)
        assert len(predicate.parts) == len(numbers)
    mixed = parse_predicate("a = 1 OR (b = 2 OR c = 3 AND d = 4)")
    assert mixed == parse_predicate("a = 1 OR (b = 2 OR (c = 3 AND d = 4))")


def test_a_condition_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        parse_predicate("NOT (" * 3_000 + "id = 1" + ")" * 3_000)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("t.a = 1", ("a",)),
        ("T.a = 1", ("a",)),
        ("lake.orders.a = 1", ("a",)),
        ("orders.a = 1", ("a",)),
        ("u.a = 1", ("u", "a")),
        ("t = 1", ("t",)),
        ("t.s.a = 1", ("s", "a")),
    ],
)
def test_the_tables_own_names_are_stripped(text: str, column: ColumnPath) -> None:
    assert parse_predicate(text, aliases=("t", "lake.orders")) == compare("=", 1, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a =", "at line 1, column"),
        ("a = 1 b", "at line 1, column 7"),
        ("a = 'x", "not a condition"),
        ("", "expected one condition, found 0"),
        ("a = 1; b = 2", "expected one condition, found 2"),
    ],
)
def test_what_is_no_condition_is_pointed_at(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_predicate(text)


def test_what_only_spark_understands_may_hold_for_any_row() -> None:
    assert parse_or_opaque("a !< 5 AND b = 1") == Opaque("a !< 5 AND b = 1")
    assert parse_or_opaque("a =") == Opaque("a =")
    assert parse_or_opaque("t.a = 1", aliases=("t",)) == compare("=", 1)
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        parse_or_opaque("(" * 2_000 + "a = 1" + ")" * 2_000)


@pytest.mark.parametrize(
    "number", ["1e400", "-1e309", "1" * 39, f"0.{'1' * 39}", f"{'1' * 30}.{'0' * 9}"]
)
def test_a_number_that_spark_refuses_is_left_to_it(number: str) -> None:
    found = parse_predicate(f"a < {number}")
    assert isinstance(found, Opaque)
    assert found.columns == frozenset({A})


def test_the_largest_numbers_are_literals() -> None:
    assert parse_predicate(f"a < 000{'9' * 38}") == compare("<", 10**38 - 1)
    assert parse_predicate("a < 1e308") == compare("<", 1e308)


SCHEMA = Struct(
    (
        Field("i", Primitive("integer")),
        Field("Big", Primitive("long")),
        Field("f", Primitive("float")),
        Field("x", Primitive("double")),
        Field("n", Primitive("decimal(10,2)")),
        Field("s", Primitive("string")),
        Field("c", Primitive("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
        Field("k", Primitive("string"), metadata={"__COLLATIONS": {"k": "spark.UTF8_LCASE"}}),
        Field("b", Primitive("boolean")),
        Field("d", Primitive("date")),
        Field("ts", Primitive("timestamp")),
        Field("tn", Primitive("timestamp_ntz")),
        Field("st", Struct((Field("In", Primitive("long")),))),
        Field("list", Array(Struct((Field("y", Primitive("long")),)))),
    )
)


def bound(text: str, time_zone: TimeZone | None = None) -> str:
    return to_text(bind(parse_predicate(text), SCHEMA, time_zone=time_zone))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("BIG = 1", "Big = 1"),
        ("ST.in = 1", "st.In = 1"),
        ("i > 1.5", "i > 1"),
        ("i >= 1.5", "i > 1"),
        ("i < 1.5", "i <= 1"),
        ("i <= -1.5", "i <= -2"),
        ("i = 1.0", "i = 1"),
        ("i = 1.5", "i < -2147483648"),
        ("i != 1.5", "i >= -2147483648"),
        ("i <=> 1.5", "false"),
        ("i < 1e10", "i <= 2147483647"),
        ("i > 99999999999", "i > 2147483647"),
        ("i > -99999999999", "i >= -2147483648"),
        ("i = '7'", "i = 7"),
        ("x = 1", "x = 1.0"),
        ("x = 0.1", "x = 0.1"),
        ("x > '0.5'", "x > 0.5"),
        ("f > 0.1", "f > 0.1"),
        ("f > 7", "f > 7.0"),
        ("n = 1", "n = 1.00"),
        ("n > 1.234", "n > 1.23"),
        ("n < 1.234", "n <= 1.23"),
        ("n > 999999999999", "n > 99999999.99"),
        ("s = 'x'", "s = 'x'"),
        ("b", "b = true"),
        ("d >= '2020-01-02'", "d >= DATE '2020-01-02'"),
        ("tn < '2020-01-02 03:04:05'", "tn < TIMESTAMP_NTZ '2020-01-02 03:04:05'"),
        ("tn < DATE '2020-01-02'", "tn < TIMESTAMP_NTZ '2020-01-02 00:00:00'"),
        ("ts = '2020-01-02T03:04:05Z'", "ts = TIMESTAMP '2020-01-02 03:04:05+00:00'"),
        ("i IN (1, 2.5, 3.0)", "i IN (1, 3)"),
        ("i IN (1.5)", "i < -2147483648"),
        ("i IN ('1', '2')", "i IN (1, 2)"),
        ("d IN ('2020-01-02')", "d IN (DATE '2020-01-02')"),
        ("st IS NULL", "st IS NULL"),
    ],
)
def test_literals_take_the_columns_type(text: str, meaning: str) -> None:
    assert bound(text) == meaning
    assert not any(
        isinstance(part, Opaque) for part in conjuncts(bind(parse_predicate(text), SCHEMA))
    )


@pytest.mark.parametrize(
    "text",
    [
        "i = 'x'",
        "i = '99999999999'",
        "i > 9223372036854775808",  # false to Spark even where i is null
        "Big <= 9223372036854775808",
        "Big >= -9223372036854775809",
        "i = true",
        "i IN ('01')",
        "i IN (1, 'x')",
        "Big = 1e17",
        "Big IN (1e0, 9007199254740993)",
        "f = '0.1'",
        "f = 16777217",
        "x = 9007199254740993",
        "n = 1e0",
        "n = '1'",
        "n = 0.000000000000000000000000000000000001",
        "s = 1",
        "c = 'x'",
        "c LIKE 'x%'",
        "k = 'x'",
        "k LIKE 'x%'",
        "b = 'true'",
        "b = 1",
        "d = '2020'",
        "d = TIMESTAMP '2020-01-02'",
        "tn = TIMESTAMP '2020-01-02'",
        "tn = '2020-01-02T00:00:00Z'",
        "ts = 'noon'",
        "ts IN ('noon')",
        "ts IN ('2020-01-02T00:00:00Z')",  # in one mode compared as texts
        "i LIKE 'x%'",
        "list.y = 1",
        "st = 1",
    ],
)
def test_a_comparison_that_spark_may_see_otherwise_is_opaque(text: str) -> None:
    found = bind(parse_predicate(text), SCHEMA)
    assert isinstance(found, Opaque), found
    assert is_deterministic(found)


def test_a_text_compared_as_text_with_a_number_is_never_trusted() -> None:
    found = bind(parse_predicate("i LIKE '05'"), SCHEMA)
    assert isinstance(found, And)
    assert isinstance(found.parts[0], Opaque)


@pytest.mark.parametrize(
    ("zone", "instant"),
    [
        (UTC_ZONE, "2020-03-29 02:30:00+00:00"),
        (zone_of(1), "2020-03-29 01:30:00+00:00"),
        (zone_of(-5), "2020-03-29 07:30:00+00:00"),
        # Skipped by clocks in Berlin: taken with the offset before.
        (BERLIN, "2020-03-29 01:30:00+00:00"),
    ],
)
def test_a_local_time_is_an_instant_in_the_sessions_zone(zone: TimeZone, instant: str) -> None:
    for text in ("ts > '2020-03-29 02:30:00'", "ts > TIMESTAMP '2020-03-29 02:30:00'"):
        assert bound(text, zone) == f"ts > TIMESTAMP '{instant}'"
    found = bound("ts IN (TIMESTAMP '2020-03-29 02:30:00')", zone)
    assert found == f"ts IN (TIMESTAMP '{instant}')"


def test_a_time_shown_twice_is_the_first() -> None:
    text = bound("ts > '2020-10-25 02:30:00'", BERLIN)
    assert text == "ts > TIMESTAMP '2020-10-25 00:30:00+00:00'"


@pytest.mark.parametrize("zone", [None, UnknownZone()])
def test_without_a_zone_only_what_holds_in_every_zone_is_left(zone: TimeZone | None) -> None:
    low, high = "TIMESTAMP '2019-12-31 06:00:00+00:00'", "TIMESTAMP '2020-01-01 18:00:00+00:00'"
    assert bound("ts > '2020-01-01'", zone).startswith(f"ts >= {low} AND (")
    assert bound("ts <= '2020-01-01'", zone).startswith(f"ts <= {high} AND (")
    assert bound("ts = '2020-01-01'", zone).startswith(f"ts >= {low} AND ts <= {high} AND (")
    assert isinstance(bind(parse_predicate("ts != '2020-01-01'"), SCHEMA, time_zone=zone), Opaque)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nosuch = 1", "no column 'nosuch': there are i, Big, f"),
        ("i = 1 AND NOT (nosuch IS NULL)", "no column 'nosuch'"),
        ("st.nosuch IN (1)", r"no column 'st.nosuch': there are st.In"),
        ("nosuch LIKE 'x%'", "no column 'nosuch'"),
    ],
)
def test_an_unknown_column_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        bind(parse_predicate(text), SCHEMA)


def test_columns_of_a_predicate() -> None:
    found = parse_predicate("a = 1 AND (b.c IN (1) OR NOT d IS NULL) AND e LIKE 'x%' AND f = g")
    assert columns_of(found) == {("a",), ("b", "c"), ("d",), ("e",), ("f",), ("g",)}
    assert columns_of(Opaque("?")) == frozenset()


def test_conjuncts_of_a_predicate() -> None:
    found = conjuncts(parse_predicate("a = 1 AND (b = 2 AND (c = 3 OR d = 4))"))
    assert [to_text(part) for part in found] == ["a = 1", "b = 2", "c = 3 OR d = 4"]
    assert conjuncts(Always(True)) == (Always(True),)


def test_one_doubtful_part_makes_the_whole_doubtful() -> None:
    assert is_deterministic(parse_predicate("a = 1 OR b IN (1, 2)"))
    assert not is_deterministic(parse_predicate("a = 1 OR NOT rand() > 0.5"))
    assert not is_deterministic(Opaque("of a Column"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "a = 'it\\'s'"),
        ("binary", "a = X'0aff'"),
        ("decimal(10,2)", "a = 1.50"),
        ("long", "a IN (1, -2)"),
        ("boolean", "NOT (a = true OR a IS NULL)"),
        ("string", "startswith(a, 'x')"),
        ("date", "a > DATE '2020-01-02'"),
    ],
)
def test_the_text_of_a_predicate_means_the_same(kind: str, text: str) -> None:
    data_type: DataType = Primitive(kind)
    schema = Struct((Field("a", data_type),))
    found = bind(parse_predicate(text), schema)
    assert to_text(found) == text
    assert bind(parse_predicate(to_text(found)), schema) == found
    assert to_text(IsNull(("odd name", "x"))) == "`odd name`.x IS NULL"
