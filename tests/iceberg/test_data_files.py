"""Data files as Iceberg's: partition values, counts, and bounds by which no row is skipped."""

from __future__ import annotations

import json
import struct
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile

from tests.iceberg.tables import PROPERTIES
from tests.session.tables import table
from txlake.errors import InvalidRequest
from txlake.iceberg.data_files import Definition, data_files
from txlake.iceberg.partitioning import Specs, next_specs
from txlake.iceberg.schema import iceberg_schema
from txlake.protocol.actions import Add, DeletionVector

URL = "s3://bucket/my%20table"


def defined(columns: str, partition_by: tuple[str, ...] = ()) -> Definition:
    now = table(columns, partition_by=partition_by, properties=PROPERTIES)
    return Definition(
        table_url=URL,
        schema=now.schema,
        partition_columns=now.partition_columns,
        iceberg_schema=iceberg_schema(now.schema),
        spec=next_specs(Specs(), now.schema, now.partition_columns).current,
    )


def physical(value: Any, definition: Definition) -> Any:
    """Statistics with the physical names of the columns, top-level ones and of structs."""

    def renamed(values: dict[str, Any], fields: Any) -> dict[str, Any]:
        made = {}
        for item in fields:
            if item.name in values:
                found = values[item.name]
                inner = getattr(item.type, "fields", None)
                made[item.physical_name] = renamed(found, inner) if inner else found
        return made

    return renamed(value, definition.schema)


def converted(
    definition: Definition,
    low: dict[str, Any],
    high: dict[str, Any],
    nulls: dict[str, Any] | None = None,
    partition: dict[str, str | None] | None = None,
) -> DataFile:
    stats = {
        "numRecords": 3,
        "minValues": physical(low, definition),
        "maxValues": physical(high, definition),
        "nullCount": physical(nulls or {}, definition),
    }
    values = physical(partition or {}, definition)
    add = Add(
        path="a%20b.parquet",
        partition_values=values,
        size=7,
        modification_time=0,
        data_change=True,
        stats=json.dumps(stats),
    )
    (made,) = data_files([add], definition)
    return made


def bounds(columns: str, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds of a column `a`, decoded; None where there is none."""
    definition = defined(columns)
    found = converted(definition, {"a": low}, {"a": high})
    kind = definition.iceberg_schema.find_type(1)
    lower, upper = found.lower_bounds.get(1), found.upper_bounds.get(1)
    return (
        None if lower is None else from_bytes(kind, lower),  # type: ignore[arg-type]
        None if upper is None else from_bytes(kind, upper),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("int", 1, 2, (1, 2)),
        ("tinyint", -3, 2, (-3, 2)),
        ("bigint", -(2**62), 2**62, (-(2**62), 2**62)),
        ("double", 1.5, 2.5, (1.5, 2.5)),
        ("date", "2026-01-01", "2026-01-02", (20454, 20455)),
        ("string", "a", "b", ("a", "b")),
        ("binary", "a", "b", (None, None)),
        ("boolean", None, None, (None, None)),
        # Cut down to milliseconds: the greatest may be up to one more.
        ("timestamp", "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.001Z", (1000, 2000)),
        ("timestamp_ntz", "1970-01-01T00:00:00.001", "1970-01-01T00:00:00.001", (1000, 2000)),
        ("int", "x", 2, (None, 2)),
        ("int", -(2**40), 2**40, (None, None)),
        ("double", "NaN", "NaN", (None, None)),
    ],
)
def test_bounds(kind: str, low: Any, high: Any, expected: tuple[Any, Any]) -> None:
    assert bounds(f"a {kind}", low, high) == expected


def test_bounds_of_decimals_enclose_what_passed_through_a_double() -> None:
    low, high = bounds("a decimal(10,2)", 1.25, 9.75)
    assert low <= Decimal("1.25")
    assert high >= Decimal("9.75")


def test_zeros_are_bounded_as_java_orders_them() -> None:
    definition = defined("a double, b float")
    found = converted(definition, {"a": 0.0, "b": 0.0}, {"a": -0.0, "b": -0.0})
    assert found.lower_bounds[1] == struct.pack("<d", -0.0)
    assert found.upper_bounds[1] == struct.pack("<d", 0.0)
    assert found.lower_bounds[2] == struct.pack("<f", -0.0)


def test_long_texts_are_bounded_beyond_their_prefix() -> None:
    low, high = bounds("a string", "x" * 32, "x" * 32)
    assert low == "x" * 32
    assert high > "x" * 40


def test_counts_and_bounds_reach_into_structs() -> None:
    definition = defined("s struct<x:int>, l array<int>")
    found = converted(definition, {"s": {"x": 1}}, {"s": {"x": 2}}, {"s": {"x": 2}, "l": 1})
    column = definition.iceberg_schema.find_field("s.x").field_id
    assert found.null_value_counts == {column: 2}
    assert found.value_counts == {column: 3}
    assert found.lower_bounds[column] == struct.pack("<i", 1)


def test_a_file_has_its_place_size_and_records() -> None:
    found = converted(defined("a int"), {}, {})
    assert found.file_path == "s3://bucket/my table/a b.parquet"
    assert (found.record_count, found.file_size_in_bytes, found.spec_id) == (3, 7, 0)


def test_partition_values_are_icebergs() -> None:
    columns = "a int, d date, t timestamp, n timestamp_ntz, c decimal(38,2), b boolean, x binary"
    definition = defined(f"{columns}, s string", ("d", "t", "n", "c", "b", "x", "s"))
    texts = {
        "d": "2026-01-01",
        "t": "1970-01-01T00:00:00.000001Z",
        "n": "1970-01-01 00:00:00.000002",
        "c": "123456789012345678901234567890123456.5",
        "b": "true",
        "x": "a",
        "s": "",
    }
    found = converted(definition, {}, {}, partition={**texts})
    assert list(found.partition._data) == [
        date(2026, 1, 1).toordinal() - date(1970, 1, 1).toordinal(),
        1,
        2,
        Decimal("123456789012345678901234567890123456.50"),
        True,
        b"a",
        None,
    ]


def test_what_cant_be_shown_is_refused() -> None:
    definition = defined("a int")
    add = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True)
    with pytest.raises(InvalidRequest, match="file f has no number of records; REORG TABLE"):
        data_files([add], definition)
    vector = DeletionVector(
        storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1, offset=None
    )
    changed = msgspec.structs.replace(add, stats='{"numRecords": 1}', deletion_vector=vector)
    with pytest.raises(InvalidRequest, match="file f has a deletion vector; REORG TABLE"):
        data_files([changed], definition)
