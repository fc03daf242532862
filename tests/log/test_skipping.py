from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zones import zone_of
from txlake.errors import CorruptTable
from txlake.log import bounds as log_bounds
from txlake.log.files import Files
from txlake.log.partitions import in_zone, local_columns
from txlake.log.predicates import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
    bind,
    columns_of,
    parse_predicate,
)
from txlake.log.skipping import (
    is_partition_only,
    may_match,
    must_match,
    rows_may_match,
    rows_must_match,
)
from txlake.protocol.actions import Add
from txlake.protocol.file_rows import adds_of, files_table
from txlake.protocol.lazy_stats import DecodedStats, LazyStats, Mask
from txlake.protocol.partition_values import PartitionScalar, format_value
from txlake.protocol.statistics import FileStatistics, loosen
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_type

PARTITIONS = ("p", "day")
SCHEMA = Struct(
    (
        Field("p", Primitive("integer"), metadata={"delta.columnMapping.physicalName": "col-p"}),
        Field("day", Primitive("date")),
        Field("i", Primitive("long"), metadata={"delta.columnMapping.physicalName": "col-i"}),
        Field("f", Primitive("float")),
        Field("x", Primitive("double")),
        Field("n", Primitive("decimal(10,2)")),
        Field("wide", Primitive("decimal(38,10)")),
        Field("s", Primitive("string")),
        Field("b", Primitive("boolean")),
        Field("d", Primitive("date")),
        Field("ts", Primitive("timestamp")),
        Field("tn", Primitive("timestamp_ntz")),
        Field("st", Struct((Field("in", Primitive("long")),))),
        Field("blob", Primitive("binary")),
    )
)


def files(
    *stats: Mapping[str, object] | str | None,
    partitions: Sequence[Mapping[str, str | None]] | None = None,
) -> pa.Table:
    texts = [json.dumps(item) if isinstance(item, Mapping) else item for item in stats]
    values = partitions or [{"col-p": "1", "day": "2020-01-01"}] * len(texts)
    return pa.table(
        {
            "path": [f"f{place}" for place in range(len(texts))],
            "partition_values": pa.array(
                [list(item.items()) for item in values], pa.map_(pa.string(), pa.string())
            ),
            "stats": pa.array(texts, pa.string()),
        }
    )


def bounds(
    column: str, low: object, high: object, *, nulls: int | None = 0, rows: int | None = 10
) -> dict[str, object]:
    found: dict[str, object] = {"minValues": {column: low}, "maxValues": {column: high}}
    if nulls is not None:
        found["nullCount"] = {column: nulls}
    return found if rows is None else {"numRecords": rows, **found}


def verdicts(predicate: Predicate | str, table: pa.Table) -> str:
    """A letter a file: `-` skipped, `?` kept, `!` kept and every row matches."""
    if isinstance(predicate, str):
        predicate = parse_predicate(predicate)
    predicate = bind(predicate, SCHEMA)
    may = may_match(predicate, table, SCHEMA, PARTITIONS)
    must = must_match(predicate, table, SCHEMA, PARTITIONS)
    assert may.null_count == must.null_count == 0
    assert len(may) == len(must) == table.num_rows
    letters = {(False, False): "-", (True, False): "?", (True, True): "!"}
    return "".join(letters[pair] for pair in zip(may.to_pylist(), must.to_pylist()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # files: i in [1, 5]; [5, 5]; [7, 9] with nulls; all null; unknown
        ("i = 5", "?!--?"),
        ("i = 6", "----?"),
        ("i != 5", "?-?-?"),
        ("i < 5", "?---?"),
        ("i <= 5", "!!--?"),
        ("i > 5", "--?-?"),
        ("i >= 5", "?!?-?"),
        ("i > 0", "!!?-?"),
        ("i <=> 5", "?!--?"),
        ("i <=> NULL", "--?!?"),
        ("i = NULL", "-----"),
        ("i IS NULL", "--?!?"),
        ("i IS NOT NULL", "!!?-?"),
        ("i IN (5, 6)", "?!--?"),
        ("i IN (0, 6)", "?---?".replace("?---", "----")),
        ("i NOT IN (5)", "?-?-?"),
        ("i IN (6, NULL)", "----?"),
        ("i NOT IN (6, NULL)", "-----"),
        ("i BETWEEN 6 AND 8", "--?-?"),
        ("i < 2 OR i > 8", "?-?-?"),
        ("NOT (i < 2 OR i > 8)", "?!?-?"),
        ("NOT (i >= 1 AND i <= 9)", "----?"),
        ("i > 1.5", "?!?-?"),
        ("length(s) = 3", "?????"),
        ("i = 6 AND length(s) = 3", "----?"),
        ("i = 6 OR length(s) = 3", "?????"),
        ("NOT (i = 5 OR length(s) = 3)", "?-?-?"),
        ("true", "!!!!!"),
        ("false", "-----"),
        ("NULL", "-----"),
    ],
)
def test_bounds_decide(text: str, expected: str) -> None:
    table = files(
        bounds("col-i", 1, 5),
        bounds("col-i", 5, 5),
        bounds("col-i", 7, 9, nulls=3),
        {"numRecords": 10, "nullCount": {"col-i": 10}},
        None,
    )
    assert verdicts(text, table) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # partitions: (1, 2020-01-01); (01, null); (2, 2021-01-01)
        ("p = 1", "!!-"),
        ("p != 1", "--!"),
        ("p > 1", "--!"),
        ("P IN (1, 2)", "!!!"),
        ("day = '2020-01-01'", "!--"),
        ("day IS NULL", "-!-"),
        ("day <=> NULL", "-!-"),
        ("NOT day = '2020-01-01'", "--!"),
        ("day IS NOT NULL AND p = 1", "!--"),
        ("p = 1 AND i > 0", "??-"),
        ("p = 1 AND i > 0 AND day > '2019-01-01'", "?--"),
    ],
)
def test_partition_values_decide(text: str, expected: str) -> None:
    table = files(
        None,
        "",
        None,
        partitions=[
            {"col-p": "1", "day": "2020-01-01"},
            {"col-p": "01", "day": None},
            {"col-p": "2", "day": "2021-01-01"},
        ],
    )
    assert verdicts(text, table) == expected


def test_statistics_are_read_only_of_files_that_partitions_leave() -> None:
    table = files(
        bounds("col-i", 1, 1),
        bounds("col-i", 2, 2),
        bounds("col-i", 1, 1),
        partitions=[{"col-p": "1"}, {"col-p": "1"}, {"col-p": "2"}],
    )
    assert verdicts("i = 1 AND p = 1", table) == "!--"
    assert verdicts("p = 3 AND i = 1", table) == "---"


def test_a_partition_value_that_is_none_is_damage() -> None:
    with pytest.raises(CorruptTable, match="partition value 'x'"):
        verdicts("p = 1", files(None, partitions=[{"col-p": "x"}]))


def test_no_files() -> None:
    for text in ("i = 1", "p = 1", "p = 1 AND i = 1", "true", "s LIKE 'x%'"):
        assert verdicts(text, files()) == ""


@pytest.mark.parametrize(
    "stats",
    [
        "",
        "{",
        "[]",
        '{"numRecords":"many"}',
        '{"minValues":[],"maxValues":7}',
        '{"minValues":{"col-i":"x"},"maxValues":{"col-i":"y"}}',
        '{"minValues":{"col-i":null},"maxValues":{"col-i":{"deep":1}}}',
        '{"minValues":{"col-i":1.5},"maxValues":{"col-i":1e400}}',
        '{"minValues":{"i":9},"maxValues":{"i":9}}',  # the logical name is not in the log
        '{"nullCount":{"col-i":true}}',
    ],
)
def test_statistics_that_make_no_sense_keep_the_file(stats: str) -> None:
    for text in ("i = 5", "i IS NULL", "i IS NOT NULL", "i != 5"):
        assert verdicts(text, files(stats)) == "?"


def test_one_bound_is_better_than_none() -> None:
    table = files({"minValues": {"col-i": 5}}, {"maxValues": {"col-i": 5}})
    assert verdicts("i < 5", table) == "-?"
    assert verdicts("i > 5", table) == "?-"


def test_null_counts_between_none_and_all_say_nothing() -> None:
    # With deletion vectors such a count is out of date: deleted rows are counted.
    loose = loosen(json.dumps(bounds("col-i", 1, 5, nulls=3)))
    assert verdicts("i IS NULL", files(loose)) == "?"
    assert verdicts("i IS NOT NULL", files(loose)) == "?"
    assert verdicts("i IS NULL", files(bounds("col-i", 1, 5, nulls=3, rows=None))) == "?"
    assert verdicts("i IS NULL", files(bounds("col-i", 1, 5, nulls=0, rows=None))) == "-"


def test_not_a_number_may_be_where_no_bound_tells() -> None:
    table = files(bounds("x", 1.0, 5.0), bounds("x", 7, 7))
    assert verdicts("x > 5", table) == "?!"  # NaN is the greatest of all
    assert verdicts("x >= 6", table) == "?!"
    assert verdicts("x < 1", table) == "--"
    assert verdicts("x < 6", table) == "?-"  # all numbers are, NaN is not
    assert verdicts("x = 7", table) == "-?"
    assert verdicts("x != 7", table) == "!?"
    assert verdicts("NOT x <= 5", table) == "?!"
    nan = Comparison(("x",), Operator.EQUAL, math.nan)
    assert verdicts(nan, table) == "??"
    assert verdicts(In(("x",), (math.nan, 3.0)), table) == "??"


def test_not_a_number_as_a_partition() -> None:
    schema = Struct((Field("q", Primitive("double")),))
    table = files(None, None, partitions=[{"q": "NaN"}, {"q": "1.0"}])
    for text, expected in (("q > 5", [True, False]), ("q = 1", [True, True])):
        predicate = bind(parse_predicate(text), schema)
        assert may_match(predicate, table, schema, ("q",)).to_pylist() == expected
    for text, expected in (("q < 5", [False, True]), ("q != 2", [False, True])):
        predicate = bind(parse_predicate(text), schema)
        assert must_match(predicate, table, schema, ("q",)).to_pylist() == expected


@pytest.mark.parametrize("bound", ["NaN", "Infinity", None])
def test_bounds_that_are_no_numbers_say_nothing(bound: object) -> None:
    assert verdicts("x = 5", files(bounds("x", bound, bound))) == "?"


def test_zero_has_one_value() -> None:
    assert verdicts("x = 0", files(bounds("x", -0.0, -0.0))) == "?"
    assert verdicts(Comparison(("x",), Operator.LESS, -0.0), files(bounds("x", 0.0, 1.0))) == "-"


def test_the_bound_of_a_float_is_the_floats_value() -> None:
    # 0.1 as a float is 0.100000001490116...; its bound is written as its shortest decimal.
    table = files(bounds("f", 0.1, 0.1))
    assert verdicts("f > 0.1", table) == "?"
    assert verdicts("f <= 0.1", table) == "?"
    assert verdicts("f > 0.2", table).replace("?", "") == ""
    assert verdicts("f < 0.0999", table) == "-"
    assert verdicts("f < 3e38", files(bounds("f", 1e300, 1e300))) == "-"


def test_a_column_widened_from_float_keeps_the_floats_bounds() -> None:
    changes: dict[str, object] = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = Struct((Field("x", Primitive("double"), metadata=changes),))
    table = files(bounds("x", 0.1, 0.1))
    predicate = bind(parse_predicate("x <= 0.1"), schema)
    assert must_match(predicate, table, schema, ()).to_pylist() == [False]
    predicate = bind(parse_predicate("x = 0.10000000149011612"), schema)
    assert may_match(predicate, table, schema, ()).to_pylist() == [True]


def test_a_column_widened_from_date_keeps_its_bounds() -> None:
    table = files(bounds("tn", "2020-01-01", "2020-01-02"))
    assert verdicts("tn = '2020-01-02 00:00:00'", table) == "?"
    assert verdicts("tn > '2020-01-03'", table) == "-"
    assert verdicts("tn >= '2020-01-01'", table) == "!"


def test_texts_are_cut() -> None:
    cut = "a" * 32
    assert verdicts(f"s = '{cut}b'", files(bounds("s", cut, cut))) == "?"
    assert verdicts(f"s > '{cut}'", files(bounds("s", "a", cut))) == "?"
    assert verdicts("s > 'b'", files(bounds("s", "a", cut))) == "-"
    assert verdicts("s > 'x'", files(bounds("s", "a", "x"))) == "-"
    assert verdicts(f"s <= '{cut}'", files(bounds("s", "a", cut))) == "?"


def test_texts_sort_by_their_bytes() -> None:
    table = files(bounds("s", "Z", "\U0001f600"))
    assert verdicts("s = 'a'", table) == "?"
    assert verdicts("s = '\uffff'", table) == "?"  # below, though above in UTF-16
    assert verdicts("s = 'A'", table) == "-"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s LIKE 'b%'", "?-?"),
        ("s LIKE 'ab%'", "?!?"),
        ("s LIKE 'abz%'", "?-?"),
        ("s LIKE '%'", "!!?"),
        ("s LIKE 'a_c%'", "???"),
        ("s LIKE 'b_c%'", "?-?"),
        ("s NOT LIKE 'ab%'", "?-?"),
        ("s LIKE 'abc'", "???"),
    ],
)
def test_prefixes(text: str, expected: str) -> None:
    table = files(bounds("s", "aa", "zz"), bounds("s", "abb", "abd"), None)
    assert verdicts(text, table) == expected


def test_times_are_cut_to_milliseconds() -> None:
    table = files(bounds("ts", "2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.123Z"))
    assert verdicts("ts = '2020-01-01T00:00:00.123456Z'", table) == "?"
    assert verdicts("ts > '2020-01-01T00:00:00.123999Z'", table) == "?"
    assert verdicts("ts > '2020-01-01T00:00:00.124001Z'", table) == "-"
    assert verdicts("ts <= '2020-01-01T00:00:00.123Z'", table) == "?"
    assert verdicts("ts >= '2020-01-01T00:00:00.123Z'", table) == "!"


@pytest.mark.parametrize(
    "bound",
    ["2020-01-01T01:00:00.000+01:00", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00.000000Z"],
)
def test_times_in_every_notation(bound: str) -> None:
    table = files(bounds("ts", bound, bound), bounds("ts", "2019-01-01T00:00:00.000Z", bound))
    assert verdicts("ts >= '2020-01-01T00:00:00Z'", table) == "!?"
    assert verdicts("ts < '2020-01-01T00:00:00Z'", table) == "-?"


def test_bounds_without_a_zone_may_be_of_any() -> None:
    table = files(bounds("ts", "2020-01-02T00:00:00", "2020-01-02T00:00:00.5"), None)
    assert verdicts("ts >= '2020-01-01T06:00:00Z'", table) == "!?"
    assert verdicts("ts >= '2020-01-01T06:00:01Z'", table) == "??"
    assert verdicts("ts <= '2020-01-02T18:00:00.5Z'", table) == "??"
    assert verdicts("ts > '2020-01-02T18:00:01Z'", table) == "-?"
    far = files(bounds("ts", "2020-01-01T00:00:00Z", "+10000-01-01T04:59:59.000Z"), None)
    assert verdicts("ts < '9999-12-31 23:59:59-05:00'", far) == "??"
    assert verdicts("ts <= '9999-12-31 23:59:59.001-05:00'", far) == "!?"
    assert verdicts("ts > '9999-12-31 23:59:59.001-05:00'", far) == "-?"


def test_partition_times_without_a_zone_may_be_of_any_unless_one_is_given() -> None:
    schema = Struct((Field("at", Primitive("timestamp")),))
    texts = ["2020-01-02 00:00:00", "2020-01-02T00:00:00Z", None, "", "2020-01-04 00:00:00"]
    table = Files.of(
        [
            Add(path=f"f{k}", partition_values={"at": text}, size=1, modification_time=1,
                data_change=True, stats=None)
            for k, text in enumerate(texts)
        ]
    ).table  # fmt: skip

    def judged(text: str, files: pa.Table) -> str:
        predicate = bind(parse_predicate(text), schema, time_zone=zone_of(-5))
        may = may_match(predicate, files, schema, ("at",)).to_pylist()
        must = must_match(predicate, files, schema, ("at",)).to_pylist()
        return "".join("!" if sure else "?" if maybe else "-" for maybe, sure in zip(may, must))

    columns = local_columns(table, schema.fields)
    assert columns == ("at",)
    read = in_zone(table, columns, zone_of(-5))
    assert read.schema == table.schema
    assert not local_columns(read, schema.fields)
    for text, in_any, in_one in (
        ("at = '2020-01-02 00:00:00'", "?----", "!----"),
        ("at = '2020-01-02T00:00:00Z'", "?!---", "-!---"),
        ("at = '2020-01-01T06:00:00Z'", "?----", "-----"),
        ("at = '2020-01-01T05:59:59Z'", "-----", "-----"),
        ("at >= '2020-01-01T06:00:00Z'", "!!--!", "!!--!"),
        ("at IS NULL", "--!!-", "--!!-"),
        ("at > '2020-01-03 23:59:59'", "----?", "----!"),
    ):
        assert judged(text, table) == in_any, text
        assert judged(text, read) == in_one, text


def test_decimals_are_compared_exactly() -> None:
    text = '{"numRecords":1,"minValues":{"n":1.10},"maxValues":{"n":1.10},"nullCount":{"n":0}}'
    assert verdicts("n = 1.10", files(text)) == "!"
    assert verdicts("n > 1.1", files(text)) == "-"
    assert verdicts("n < 1.101", files(text)) == "!"


def test_long_decimals_may_have_passed_through_a_double() -> None:
    # 1234567890123456789.1 as a double is 1234567890123456768.
    table = files(bounds("wide", 1234567890123456768.0, 1234567890123456768.0))
    assert verdicts("wide = 1234567890123456789.1", table) == "?"
    assert verdicts("wide > 1234567890123460000", table) == "-"


@pytest.mark.parametrize("count", [3, 200])
def test_lists_of_any_length(count: int) -> None:
    table = files(bounds("col-i", 1, 5), bounds("col-i", 5000, 5000), bounds("col-i", 10, 20))
    values = ", ".join(str(1000 + place) for place in range(count))
    assert verdicts(f"i IN ({values}, 12)", table) == "--?"
    assert verdicts(f"NOT i IN ({values}, 12)", table)[2] == "?"
    assert verdicts(f"x IN ({values})", files(bounds("x", 1.0, 5.0))) in "-?"


def test_nested_columns() -> None:
    stats = {
        "numRecords": 2,
        "minValues": {"st": {"in": 5}},
        "maxValues": {"st": {"in": 7}},
        "nullCount": {"st": {"in": 0}},
    }
    assert verdicts("st.in = 4", files(stats)) == "-"
    assert verdicts("st.in >= 5", files(stats)) == "!"
    assert verdicts("st IS NULL", files(stats)) == "?"


def test_columns_without_bounds() -> None:
    table = files({"numRecords": 2, "nullCount": {"blob": 0, "b": 2}})
    assert verdicts("blob = X'00'", table) == "?"
    assert verdicts("blob IS NULL", table) == "-"
    assert verdicts("b", table) == "-"
    assert verdicts("b", files(bounds("b", False, False))) == "-"


def test_a_predicate_that_was_not_bound_keeps_what_it_doesnt_fit() -> None:
    table = files(bounds("col-i", 1, 1), None)
    for value in ("7", Decimal("7.5"), 7.5, date(2020, 1, 1), True, b"7", 2**70):
        found = may_match(Comparison(("i",), Operator.EQUAL, value), table, SCHEMA, PARTITIONS)
        assert found.to_pylist() == [True, True]
    found = may_match(Comparison(("nosuch",), Operator.EQUAL, 7), table, SCHEMA, PARTITIONS)
    assert found.to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p = 1", True),
        ("P = 1 OR NOT day IS NULL", True),
        ("true", True),
        ("p = 1 AND i = 1", False),
        ("p = 1 AND length(day) = 3", False),
        ("NOT p.x = 1", False),
    ],
)
def test_what_partition_values_alone_decide(text: str, expected: bool) -> None:
    assert is_partition_only(parse_predicate(text), PARTITIONS) is expected


def test_empty_conjunctions_and_disjunctions() -> None:
    assert verdicts(And(()), files(None)) == "!"
    assert verdicts(Or(()), files(None)) == "-"


# --- no file with a matching row is ever skipped --------------------------------------------------

_Row = Mapping[ColumnPath, PartitionScalar]
_CHARACTERS = st.text(st.sampled_from("ab\x7fé\uffff\U0001f600"), max_size=3)
_INTEGERS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1])
_FLOATS = st.sampled_from([0.0, -0.0, 0.1, 0.5, -1.5, 3.0, 1e300, math.inf, -math.inf, math.nan])
_SINGLES = st.sampled_from([0.0, -0.0, 0.10000000149011612, 0.5, -1.5, math.inf, math.nan])
_TIMES = st.builds(
    lambda micros: datetime(2020, 1, 1) + timedelta(microseconds=micros),  # noqa: DTZ001
    st.sampled_from([0, 1, 999, 1000, 1001, 1_000_000, 86_400_000_000]),
)
_VALUES: dict[ColumnPath, st.SearchStrategy[PartitionScalar]] = {
    ("p",): st.integers(0, 2),
    ("day",): st.dates(date(2020, 1, 1), date(2020, 1, 3)),
    ("i",): _INTEGERS,
    ("f",): _SINGLES,
    ("x",): _FLOATS,
    ("n",): st.decimals(-2, 2, places=2),
    ("wide",): st.sampled_from([Decimal("0.1"), Decimal("12345678901234567890.0123456789")]),
    ("s",): _CHARACTERS | _CHARACTERS.map(lambda text: "a" * 31 + text),
    ("b",): st.booleans(),
    ("d",): st.dates(date(2020, 1, 1), date(2020, 1, 3)),
    ("ts",): _TIMES.map(lambda time: time.replace(tzinfo=UTC)),
    ("tn",): _TIMES,
    ("st", "in"): st.integers(-3, 3),
}
_OTHER_LITERALS: dict[ColumnPath, st.SearchStrategy[LiteralValue]] = {
    ("i",): st.decimals(-3, 3, places=1) | st.sampled_from([1.5, 2.0, 10**25, -(10**25)]),
    ("f",): st.decimals(-3, 3, places=1) | st.integers(-2, 2),
    ("x",): st.decimals(-3, 3, places=1) | st.integers(-2, 2),
    ("n",): st.decimals(-3, 3, places=3) | st.integers(-2, 2),
    ("p",): st.decimals(-1, 3, places=1),
    ("tn",): st.dates(date(2020, 1, 1), date(2020, 1, 2)),
}


@dataclass(frozen=True)
class Case:
    rows: tuple[_Row, ...]
    deleted: int
    table: pa.Table


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A file with its rows, the first few of them deleted, and statistics as writers make them."""
    shared = {(name,): draw(st.none() | _VALUES[(name,)]) for name in PARTITIONS}
    rows = [
        {
            path: shared[path] if path in shared else draw(st.none() | values)
            for path, values in _VALUES.items()
        }
        for _ in range(draw(st.integers(1, 4)))
    ]
    deleted = draw(st.integers(0, len(rows) - 1))
    text = draw(st.none() | st.just("known"))
    if text is not None:
        text = _statistics(draw, rows, deleted)
    partition = {
        field.physical_name: format_value(shared[(name,)], field.type)
        for name in PARTITIONS
        if (field := SCHEMA.find(name)) is not None
    }
    return Case(tuple(rows), deleted, files(text, partitions=[partition]))


def _statistics(draw: st.DrawFn, rows: Sequence[_Row], deleted: int) -> str:
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, object] = {}
    for path in _VALUES:
        if path[0] in PARTITIONS:
            continue
        found = [row[path] for row in rows]
        if draw(st.integers(0, 4)) == 0:
            continue  # a column without statistics
        _put(nulls, path, sum(value is None for value in found))
        numbers = [value for value in found if value is not None and value == value]
        if numbers:
            _put(low, path, _written(draw, path, min(numbers), upper=False))
            _put(high, path, _written(draw, path, max(numbers), upper=True))
    text = FileStatistics(
        num_records=len(rows), min_values=low, max_values=high, null_count=nulls
    ).to_json()
    return loosen(text) if deleted else text


def _written(draw: st.DrawFn, path: ColumnPath, value: PartitionScalar, *, upper: bool) -> object:
    """A bound as some writer may put it: cut, rounded, or passed through a double."""
    if isinstance(value, datetime) and draw(st.booleans()):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    if isinstance(value, str) and upper and draw(st.booleans()):
        return value[:32]
    if path == ("f",) and value == 0.10000000149011612:
        return draw(st.sampled_from([0.1, value]))
    if path == ("wide",) and isinstance(value, Decimal):
        return draw(st.sampled_from([value, float(value)]))
    return value


def _put(values: dict[str, object], path: ColumnPath, value: object) -> None:
    fields = [SCHEMA.resolve(path[: size + 1]) for size in range(len(path))]
    names = [field.physical_name for field in fields if field is not None]
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        assert isinstance(inner, dict)
        values = inner
    values[names[-1]] = value


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    path = draw(st.sampled_from(sorted(_VALUES)))
    kind = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "starts", "other"]))
    literals = st.one_of(_VALUES[path], _OTHER_LITERALS.get(path, _VALUES[path]))
    if kind == "in":
        return In(path, tuple(draw(st.lists(literals, min_size=1, max_size=3))))
    if kind == "null":
        return IsNull(path)
    if kind == "starts":
        return StartsWith(("s",), draw(_CHARACTERS | st.just("a" * 31) | st.just("a" * 32)))
    if kind == "other":
        others: list[Predicate] = [Always(True), Always(False), Always(None), Opaque("?")]
        return draw(st.sampled_from(others))
    return Comparison(path, draw(st.sampled_from(list(Operator))), draw(literals))


PREDICATES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def holds(predicate: Predicate, row: _Row, unknown: bool | None) -> bool | None:
    """What SQL says of one row; `unknown` is what opaque conditions say."""
    match predicate:
        case And(parts):
            found = [holds(part, row, unknown) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [holds(part, row, unknown) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = holds(part, row, unknown)
            return None if inner is None else not inner
        case Always(value):
            return value
        case Opaque():
            return unknown
        case IsNull(column):
            return row[column] is None
        case StartsWith(column, prefix):
            text = row[column]
            return text.startswith(prefix) if isinstance(text, str) else None
        case In(column, values):
            parts = tuple(Comparison(column, Operator.EQUAL, value) for value in values)
            return holds(Or(parts), row, unknown)
        case Comparison(column, operator, value):
            return compares(operator, row[column], value)


def compares(operator: Operator, left: PartitionScalar, right: LiteralValue) -> bool | None:
    if left is None:
        return False if operator is Operator.SAME else None
    a, b = comparable(left, right), comparable(right, left)
    return {
        Operator.EQUAL: a == b,
        Operator.SAME: a == b,
        Operator.NOT_EQUAL: a != b,
        Operator.LESS: a < b,
        Operator.LESS_OR_EQUAL: a <= b,
        Operator.GREATER: a > b,
        Operator.GREATER_OR_EQUAL: a >= b,
    }[operator]


def comparable(value: LiteralValue, other: LiteralValue) -> tuple[bool, object]:
    """A value as it sorts in Spark beside another: floats as doubles, NaN last, text by byte."""
    if isinstance(value, str):
        return (False, value.encode())
    if isinstance(value, float) or (isinstance(other, float) and isinstance(value, Decimal)):
        return (value != value, 0.0 if value != value else float(value))
    if isinstance(other, datetime) and isinstance(value, date) and not isinstance(value, datetime):
        return (False, datetime(value.year, value.month, value.day))  # noqa: DTZ001
    return (False, value)


@settings(max_examples=400, deadline=None)
@given(cases(), PREDICATES)
def test_no_file_with_a_matching_row_is_skipped(case: Case, predicate: Predicate) -> None:
    found = bind(predicate, SCHEMA)
    [may] = may_match(found, case.table, SCHEMA, PARTITIONS).to_pylist()
    [must] = must_match(found, case.table, SCHEMA, PARTITIONS).to_pylist()
    live = case.rows[case.deleted :]
    for unknown in (True, False, None):
        matches = [holds(predicate, row, unknown) is True for row in live]
        assert may or not any(matches), "a file with a matching row was skipped"
        assert all(matches) or not must, "a row doesn't match that was said to"


def test_what_one_part_decides_the_others_leave_certain() -> None:
    rows = pa.table({"i": pa.array([None, 1], pa.int64())})
    schema = Struct((Field("i", Primitive("long")),))
    doubt = Comparison(("i",), Operator.EQUAL, 1)
    for predicate, must in (
        (Or((Always(True), doubt)), [True, True]),
        (Not(And((Always(False), doubt))), [True, True]),
        (Or((Always(False), doubt)), [False, True]),
        (And((Always(True), doubt)), [False, True]),
    ):
        assert rows_must_match(predicate, rows, schema).to_pylist() == must


@settings(max_examples=400, deadline=None)
@given(cases(), PREDICATES)
def test_rows_are_judged_one_by_one(case: Case, predicate: Predicate) -> None:
    found = bind(predicate, SCHEMA)
    plain = [item for item in SCHEMA if item.type != Struct((Field("in", Primitive("long")),))]
    columns = [item for item in plain if (item.name,) in _VALUES]
    rows = pa.table(
        {
            item.name: pa.array([row[item.name,] for row in case.rows], to_arrow_type(item.type))
            for item in columns
        }
    )
    may = rows_may_match(found, rows, SCHEMA).to_pylist()
    must = rows_must_match(found, rows, SCHEMA).to_pylist()
    doubtful = {("st", "in"), ("f",), ("x",)} & columns_of(found)
    for unknown in (True, False, None):
        matches = [holds(predicate, row, unknown) is True for row in case.rows]
        assert all(one or not match for one, match in zip(may, matches, strict=True))
        assert all(match or not one for one, match in zip(must, matches, strict=True))
        if not doubtful and "Opaque" not in repr(found) and "Opaque" not in repr(predicate):
            assert may == must == matches


def test_files_are_judged_the_same_alone_and_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [
        bounds("col-i", 1, 5),
        None,
        "",
        "{}",
        "[]",
        "{",
        '{"numRecords":10,"minValues":null,"maxValues":{"col-i":5},"nullCount":null}',
        '{"numRecords":10,"nullCount":{"col-i":true}}',
        '{"numRecords":10,"nullCount":{"col-i":10.0}}',
        '{"numRecords":"10","minValues":{"col-i":6}}',
        '{"numRecords":10,"minValues":{"col-i":6.0},"maxValues":{"col-i":"7"}}',
        bounds("col-i", 7, 9, nulls=2**70),
        bounds("col-i", None, None, nulls=10),
        bounds("col-i", 6, 9, nulls=None, rows=None),
    ]
    texts = ("i = 5", "i IS NULL", "i IS NOT NULL", "i > 5", "NOT (i < 6)", "i = 5 AND p = 1")
    expected = {text: "".join(verdicts(text, files(item)) for item in odd) for text in texts}
    assert len(set(expected["i IS NULL"])) == 3
    for at_once in (1, 3, 4_096):
        monkeypatch.setattr(log_bounds, "_TEXTS_AT_ONCE", at_once)
        for text in texts:
            assert verdicts(text, files(*odd)) == expected[text]


class CountedStats(DecodedStats):
    """Counts how many texts are asked for."""

    asked = 0

    def chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        for chunk in super().chunks(keep):
            self.asked += len(chunk)
            yield chunk


def test_bounds_of_a_whole_table_are_decoded_once() -> None:
    count = 100
    adds = [
        Add(
            path=f"f{at}",
            partition_values={"col-p": str(at % 10), "day": "2020-01-01"},
            size=1,
            modification_time=1,
            data_change=True,
            stats=json.dumps(bounds("col-i", at, at)),
        )
        for at in range(count)
    ]
    table = files_table(adds)
    stats = CountedStats(table["stats"])
    live = Files.of_columns(table.drop_columns("stats"), LazyStats([stats]))

    def found(text: str, schema: Struct = SCHEMA) -> list[str]:
        predicate = bind(parse_predicate(text), schema)
        chosen = live.where(lambda columns: may_match(predicate, columns, schema, PARTITIONS))
        return [item.path for item in adds_of(chosen)]

    assert found("p = 3 AND i = 13") == ["f13"]
    assert stats.asked == 10 + 1, "those of the partition, and of the result"
    assert found("i = 13") == ["f13"]
    asked = stats.asked
    assert asked == 11 + 2 * count, "those of all, for their bounds, and then they are kept"
    for at in range(3):
        assert found(f"i = {at}") == [f"f{at}"]
        assert found(f"p = 3 AND i > 20 AND i < {30 + at}") == ["f23"]
    assert stats.asked == asked
    # Removals and additions lie over what is known.
    again = msgspec.structs.replace(adds[2], path="again")
    live = live.apply([again], [("f3", None), *[(f"f{at}", None) for at in range(50, 60)]])
    assert found("i = 2") == ["f2", "again"]
    assert found("i = 3") == []
    assert found("i > 48 AND i < 62") == ["f49", "f60", "f61"]
    # The same column with another type has bounds of its own.
    fields = [
        replace(item, type=Primitive("date")) if item.name == "i" else item for item in SCHEMA
    ]
    assert len(found("i = DATE '2020-01-01'", Struct(tuple(fields)))) == len(live)
