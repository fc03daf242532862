"""Statistics recomputed from the footers of files that other engines wrote."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.recomputed_statistics import recomputed_statistics
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Metadata, Protocol
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Struct, schema_to_string

UTC = datetime.UTC


def snapshot(columns: str, partition_by: tuple[str, ...] = (), **properties: str) -> Snapshot:
    """A table; `__` in a property stands for a dot."""
    metadata = Metadata(
        id="t",
        schema_string=schema_to_string(Struct(tuple(parse_columns(columns)))),
        partition_columns=partition_by,
        configuration={name.replace("__", "."): value for name, value in properties.items()},
    )
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    return Snapshot.empty("t").apply([protocol, metadata], version=0, timestamp_ms=1)


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def add(stats: object = None, vector: DeletionVector | None = None) -> Add:
    return Add(
        path="f",
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats=None if stats is None else json.dumps(stats),
        deletion_vector=vector,
    )


def stats_of(found: FileStatistics) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(found.to_json())
    return values


def test_each_type_in_any_order_and_case() -> None:
    written = pa.table(
        {
            "S": [{"Y": 2, "x": "b"}, {"Y": 1, "x": None}],
            "l": [[1], [2]],
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "flag": [True, False],
            "d": pa.array([datetime.date(2026, 1, 2), None], pa.date32()),
            "t": pa.array(
                [datetime.datetime(2026, 1, 2, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")
            ),
            "n": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(6, 2)),
            "i": pa.array([7, 3], pa.int32()),
            "gone": [1, 2],
        }
    )
    table = snapshot(
        "i int, n decimal(6,2), t timestamp, d date, flag boolean, "
        "m map<string,bigint>, l array<bigint>, s struct<x: string, y: bigint>, new int"
    )
    assert stats_of(recomputed_statistics(footer(written), add(), table)) == {
        "numRecords": 2,
        "minValues": {
            "i": 3,
            "n": -2.25,
            "t": "2026-01-02T00:00:00.000Z",
            "d": "2026-01-02",
            "s": {"x": "b", "y": 1},
        },
        "maxValues": {
            "i": 7,
            "n": 1.5,
            "t": "2026-01-02T00:00:00.000Z",
            "d": "2026-01-02",
            "s": {"x": "b", "y": 2},
        },
        "nullCount": {"i": 0, "n": 0, "t": 0, "d": 1, "flag": 0, "s": {"x": 1, "y": 0}},
        "tightBounds": True,
    }


def test_names_that_case_alone_tells_apart_say_nothing() -> None:
    found = recomputed_statistics(
        footer(pa.table({"a": [1], "A": [9], "b": [2]})), add(), snapshot("a int, b int")
    )
    assert found.min_values == {"b": 2}
    assert found.null_count == {"b": 0}


def test_fractions_keep_the_bounds_that_they_had() -> None:
    written = footer(pa.table({"x": [1.0, float("nan")], "y": [1.0, 2.0]}))
    table = snapshot("x double, y double")
    assert recomputed_statistics(written, add(), table).min_values == {}
    before = {"numRecords": 2, "minValues": {"y": 1.0}, "maxValues": {"y": 2.0}}
    found = recomputed_statistics(written, add(before), table)
    assert stats_of(found)["minValues"] == {"y": 1.0}
    assert stats_of(found)["maxValues"] == {"y": 2.0}
    assert found.null_count == {"x": 0, "y": 0}


def test_values_of_another_type_are_no_bounds() -> None:
    written = footer(
        pa.table(
            {
                "d": pa.array([datetime.date(2026, 1, 2)], pa.date32()),
                "wall": pa.array([datetime.datetime(2026, 1, 2)], pa.timestamp("us")),  # noqa: DTZ001
                "wide": pa.array([1], pa.int32()),
                "text": pa.array([1], pa.int32()),
            }
        )
    )
    table = snapshot("d timestamp_ntz, wall timestamp, wide bigint, text string")
    found = recomputed_statistics(written, add(), table)
    assert found.min_values == {"wide": 1}
    assert found.null_count == {"d": 0, "wall": 0, "wide": 0, "text": 0}


def test_times_of_the_old_calendar_are_no_bounds() -> None:
    table = snapshot("d date, t timestamp")
    for day, legacy, is_bound in (
        (datetime.date(1582, 10, 14), True, False),
        (datetime.date(1582, 10, 15), True, True),
        (datetime.date(1582, 10, 14), False, True),
    ):
        keys = {"org.apache.spark.version": "3.5.0"}
        if legacy:
            keys["org.apache.spark.legacyDateTime"] = ""
        written = pa.table({"d": pa.array([day], pa.date32())}).replace_schema_metadata(keys)
        found = recomputed_statistics(footer(written), add(), table)
        assert found.min_values == ({"d": day} if is_bound else {})
    old = datetime.datetime(1899, 12, 31, tzinfo=UTC)
    written = pa.table({"t": pa.array([old], pa.timestamp("us", "UTC"))})
    written = written.replace_schema_metadata({"org.apache.spark.version": "2.4.0"})
    assert recomputed_statistics(footer(written), add(), table).min_values == {}


def test_the_columns_are_those_that_the_table_asks_for() -> None:
    written = footer(pa.table({"p": [1], "a": [1], "b": [2], "c": [3]}))
    columns = "p int, a int, b int, c int"
    first = snapshot(columns, ("p",), delta__dataSkippingNumIndexedCols="2")
    before = {"numRecords": 1, "minValues": {"c": 3}, "maxValues": {"c": 3}}
    assert recomputed_statistics(written, add(before), first).min_values == {"a": 1, "b": 2}
    named = snapshot(columns, ("p",), delta__dataSkippingStatsColumns="c")
    assert recomputed_statistics(written, add(), named).min_values == {"c": 3}


def test_bounds_are_not_tight_beside_a_deletion_vector_or_loose_ones() -> None:
    written, table = footer(pa.table({"a": [1, 2]})), snapshot("a int")
    vector = DeletionVector(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
    found = recomputed_statistics(written, add(vector=vector), table)
    assert (found.num_records, found.tight_bounds) == (2, False)
    loose = {"numRecords": 2, "minValues": {}, "tightBounds": False}
    assert not recomputed_statistics(written, add(loose), table).tight_bounds
    assert recomputed_statistics(written, add(), table).tight_bounds


def test_old_statistics_stay_without_statistics_in_the_footer() -> None:
    written = footer(pa.table({"a": [1, 2]}), write_statistics=False)
    before = {"numRecords": 5, "minValues": {"a": 0}, "maxValues": {"a": 9}, "nullCount": {"a": 1}}
    found = recomputed_statistics(written, add(before), snapshot("a int"))
    assert (found.num_records, found.min_values) == (2, {"a": 0})
    assert (found.max_values, found.null_count) == ({"a": 9}, {"a": 1})


def test_null_counts_of_lists_stay() -> None:
    written = footer(pa.table({"l": [[1], None], "a": [1, 2]}))
    before = {"numRecords": 2, "nullCount": {"l": 1, "a": 0, "gone": 0}}
    found = recomputed_statistics(written, add(before), snapshot("l array<bigint>, a bigint"))
    assert found.null_count == {"l": 1, "a": 0}


def test_columns_found_by_field_ids_keep_their_statistics() -> None:
    table = snapshot("a int", delta__columnMapping__mode="id")
    before = {"numRecords": 5, "minValues": {"x": 0}, "maxValues": {"x": 9}, "nullCount": {"x": 1}}
    found = recomputed_statistics(footer(pa.table({"x": [1, 2]})), add(before), table)
    assert (found.num_records, found.min_values) == (2, {"x": 0})


def test_the_nulls_of_a_variant_are_those_of_its_metadata() -> None:
    variant = pa.struct(
        [pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]
    )
    rows = pa.table({"v": pa.array([{"metadata": b"", "value": b""}, None, None], variant)})
    statistics = recomputed_statistics(footer(rows), add({"numRecords": 3}), snapshot("v variant"))
    assert (statistics.null_count, statistics.min_values) == ({"v": 2}, {})
