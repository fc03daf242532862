from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from txlake.errors import CorruptTable
from txlake.protocol.checkpoint_stats import (
    partition_values_parsed,
    stats_from_json,
    stats_to_json,
    stats_type,
)
from txlake.protocol.file_rows import STRING_MAP
from txlake.protocol.types import Array, Field, Primitive, Struct

_SCHEMA = Struct(
    (
        Field("l", Primitive("long")),
        Field("i", Primitive("integer")),
        Field("d", Primitive("double")),
        Field("dec", Primitive("decimal(20,3)")),
        Field("s", Primitive("string")),
        Field("day", Primitive("date")),
        Field("ts", Primitive("timestamp")),
        Field("ntz", Primitive("timestamp_ntz")),
        Field("b", Primitive("boolean")),
        Field("bin", Primitive("binary")),
        Field("list", Array(Primitive("long"))),
        Field("st", Struct((Field('q"x', Primitive("short")),))),
        Field("mapped", Primitive("long"), metadata={"delta.columnMapping.physicalName": "col-1"}),
    )
)
_BOUNDS = {
    "l": -(2**63),
    "i": 7,
    "d": 1.5,
    "s": 'a"\\\n\u0001é',
    "day": "2020-02-29",
    "ts": "2020-01-01T00:00:00.123Z",
    "ntz": "2020-01-01T00:00:00.5",
    "st": {'q"x': 3},
    "col-1": 4,
}
_NULLS = dict.fromkeys(("l", "s", "b", "list", "col-1"), 1) | {"st": {'q"x': 0}}
_STATS = {
    "numRecords": 3,
    "minValues": _BOUNDS,
    "maxValues": _BOUNDS,
    "nullCount": _NULLS,
    "tightBounds": False,
}


def _round_trip(text: str) -> Mapping[str, object]:
    kind = stats_type([text], _SCHEMA)
    assert kind is not None
    back = stats_to_json(stats_from_json([text], kind))[0].as_py()
    value = json.loads(back, parse_float=Decimal)
    assert isinstance(value, dict)
    return value


def test_both_forms_say_the_same() -> None:
    text = json.dumps(_STATS)
    bounds = {
        **_BOUNDS,
        "d": Decimal("1.5"),
        "ts": "2020-01-01T00:00:00.123000Z",
        "ntz": "2020-01-01T00:00:00.500000",
    }
    assert _round_trip(text) == {**_STATS, "minValues": bounds, "maxValues": bounds}


def test_values_have_the_types_of_the_columns() -> None:
    kind = stats_type([json.dumps(_STATS)], _SCHEMA)
    assert kind is not None
    lowest = stats_from_json([json.dumps(_STATS)], kind)[0].as_py()["minValues"]
    assert lowest["day"] == date(2020, 2, 29)
    assert lowest["ts"] == datetime(2020, 1, 1, 0, 0, 0, 123_000, UTC)
    assert lowest["ntz"] == datetime(2020, 1, 1, 0, 0, 0, 500_000)  # noqa: DTZ001
    assert kind.field("nullCount").type.field("list").type == pa.int64()
    assert kind.field("minValues").type.get_field_index("bin") == -1


def test_decimals_stay_exact() -> None:
    text = '{"numRecords":1,"minValues":{"dec":12345678901234567.891}}'
    assert _round_trip(text)["minValues"] == {"dec": Decimal("12345678901234567.891")}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("l", 2**63),
        ("l", 1.5),
        ("l", "1"),
        ("i", 2**31),
        ("d", "x"),
        ("dec", 1.2345),
        ("s", 1),
        ("day", "someday"),
        ("ts", "99999-01-01T00:00:00Z"),
        ("b", True),
        ("l", None),
    ],
)
def test_a_value_that_does_not_fit_becomes_unknown(column: str, value: object) -> None:
    text = json.dumps({"numRecords": 1, "minValues": {column: value, "mapped": 1, "col-1": 2}})
    assert _round_trip(text)["minValues"] == {"col-1": 2}


def test_rows_without_statistics_have_none() -> None:
    kind = stats_type([None, '{"numRecords":1}'], _SCHEMA)
    assert kind is not None
    parsed = stats_from_json([None, '{"numRecords":1}', "{broken"], kind)
    texts = stats_to_json(parsed).to_pylist()
    assert texts[:2] == [None, '{"numRecords":1}']
    assert stats_type([None, ""], _SCHEMA) is None


def test_not_a_number_and_infinity_have_no_json_form() -> None:
    kind = pa.struct([("minValues", pa.struct([("d", pa.float64()), ("f", pa.float32())]))])
    rows = [{"minValues": {"d": float("nan"), "f": float("-inf")}}, {"minValues": {"d": 1.0}}]
    assert stats_to_json(pa.array(rows, kind)).to_pylist() == [
        '{"minValues":{}}',
        '{"minValues":{"d":1}}',
    ]


def test_int96_is_an_instant() -> None:
    kind = pa.struct([("minValues", pa.struct([("ts", pa.timestamp("ns"))]))])
    row = pa.array([{"minValues": {"ts": datetime(1969, 1, 1)}}], kind)  # noqa: DTZ001
    assert stats_to_json(row)[0].as_py() == '{"minValues":{"ts":"1969-01-01T00:00:00.000000Z"}}'


def test_partition_values_are_typed_by_their_physical_names() -> None:
    maps = pa.chunked_array(
        [pa.array([[("col-1", "05"), ("day", None)], [("day", "2020-01-01")]], STRING_MAP)]
    )
    parsed = partition_values_parsed(maps, _SCHEMA, ["mapped", "day"])
    assert parsed is not None
    assert parsed.to_pylist() == [
        {"col-1": 5, "day": None},
        {"col-1": None, "day": date(2020, 1, 1)},
    ]
    assert partition_values_parsed(maps, _SCHEMA, []) is None
    bad = pa.chunked_array([pa.array([[("day", "someday")]], STRING_MAP)])
    with pytest.raises(CorruptTable):
        partition_values_parsed(bad, _SCHEMA, ["day"])


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("12345678901234567890123456789012345.678", "12345678901234567890123456789012345.678"),
        ("123456789012345678901234567890", "123456789012345678901234567890.000"),
        ("1.5e3", "1500.000"),
        ('"\\ud800"', None),
        ("NaN", None),
    ],
)
def test_a_bound_of_a_decimal_is_exact_whatever_else_the_text_has(
    bound: str, found: str | None
) -> None:
    """Python's decoder reads what isn't JSON too; other values of such a text are kept."""
    texts = [f'{{"numRecords":7,"minValues":{{"d":{bound}}}}}', "[1]", "{", "[" * 100_000, None]
    kind = pa.struct(
        [("numRecords", pa.int64()), ("minValues", pa.struct([("d", pa.decimal128(38, 3))]))]
    )
    first, *others = stats_from_json(texts, kind).to_pylist()
    assert first["numRecords"] == 7
    assert first["minValues"]["d"] == (None if found is None else Decimal(found))
    assert [one and one["numRecords"] for one in others] == [None] * 4
