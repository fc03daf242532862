"""Reading data files by pyarrow: how columns are found, times of the old calendar, batches."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.datafiles import parquet
from txlake.datafiles.decode_task import DecodeTask
from txlake.datafiles.footers import statistics_of
from txlake.datafiles.parquet import (
    Columns,
    has_old_times,
    is_legacy,
    is_shredded,
    iter_rows,
    open_parquet,
    with_field_names,
)
from txlake.errors import CorruptTable, UnsupportedFeature
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.types import Primitive, from_arrow_schema, to_arrow_type

VERSION, DATES = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"
OLD_DAY, NEW_DAY = date(1582, 10, 14), date(1582, 10, 15)


@pytest.mark.parametrize(
    ("footer", "expected"),
    [
        (None, False),
        ({b"other": b""}, False),
        ({VERSION: b"4.2.0"}, False),
        ({VERSION: b"3.1.0"}, False),
        ({VERSION: b"10.0.0"}, False),
        ({VERSION: b"3.0.2"}, True),
        ({VERSION: b"2.4.8"}, True),
        ({VERSION: b"unknown"}, True),
        ({VERSION: b"4.2.0", DATES: b""}, True),
        ({DATES: b""}, True),
        ({b"org.apache.spark.legacyINT96": b""}, True),
    ],
)
def test_legacy_calendar_of_footers(footer: dict[bytes, bytes] | None, expected: bool) -> None:
    assert is_legacy(footer) is expected


def _file(rows: pa.Table, *, legacy: bool = False, **options: object) -> pq.ParquetFile:
    footer = {DATES.decode(): ""} if legacy else None
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(footer), sink, **options)
    return open_parquet(pa.BufferReader(sink.getvalue()))


def _read(
    file: pq.ParquetFile, schema: pa.Schema, *, exact: bool = False, groups: list[int] | None = None
) -> list[dict[str, object]]:
    columns = Columns(schema, by_id=False, exact=exact)
    columns.find(file)
    return [row for batch in iter_rows(file, columns, groups) for row in batch.to_pylist()]


DAYS = pa.schema([("day", pa.date32())])


def test_old_times_are_never_read_as_others() -> None:
    for day, legacy, is_read in (
        (OLD_DAY, True, False),
        (NEW_DAY, True, True),
        (OLD_DAY, False, True),
    ):
        file = _file(pa.table({"day": [day], "n": [1]}), legacy=legacy)
        assert has_old_times(file) is not is_read
        if is_read:
            assert _read(file, DAYS) == [{"day": day}]
        else:
            with pytest.raises(ValueError, match="calendar of old Spark versions"):
                _read(file, DAYS)
        assert _read(file, pa.schema([("n", pa.int64())]), exact=True) == [{"n": 1}]


def test_exact_readers_refuse_times_of_old_files() -> None:
    rows = pa.table({"day": [NEW_DAY]})
    assert _read(_file(rows), DAYS, exact=True) == [{"day": NEW_DAY}]
    with pytest.raises(ValueError, match="calendar of old Spark versions"):
        _read(_file(rows, legacy=True), DAYS, exact=True)


@pytest.mark.parametrize(
    ("found", "wanted", "is_read"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.uint32(), pa.int64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), False),
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.string(), pa.int64(), False),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    ],
)
def test_which_types_are_the_same_to_spark(
    found: pa.DataType, wanted: pa.DataType, is_read: bool
) -> None:
    file = _file(pa.table({"v": pa.array([None], pa.string()).cast(found)}))
    schema = pa.schema([("v", wanted)])
    if is_read:
        assert _read(file, schema, exact=True) == [{"v": None}]
    else:
        with pytest.raises(ValueError, match="column 'v' is"):
            _read(file, schema, exact=True)


def test_names_that_are_not_clear_are_refused() -> None:
    both = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["V", "v"])
    schema = pa.schema([("v", pa.int64())])
    assert _read(_file(both), schema) == [{"v": 2}]
    with pytest.raises(ValueError, match="two columns"):
        _read(_file(both), schema, exact=True)
    assert _read(_file(both.select(["V"])), schema, exact=True) == [{"v": 1}]


def test_some_row_groups_and_columns_that_the_file_lacks() -> None:
    file = _file(pa.table({"v": range(6)}), row_group_size=2)
    schema = pa.schema([("v", pa.int64()), ("w", pa.string())])
    expected: list[dict[str, object]] = [{"v": v, "w": None} for v in (0, 1, 4, 5)]
    assert _read(file, schema, groups=[0, 2]) == expected
    assert _read(file, pa.schema([("w", pa.string())])) == [{"w": None}] * 6


def test_rows_that_may_share_a_long_text_come_in_smaller_batches() -> None:
    rows = pa.table({"v": range(50_000), "text": ["x" * 1_000] * 50_000})
    file = _file(rows)
    for name, most in (("v", parquet._BATCH_ROWS), ("text", parquet._TEXT_BATCH_ROWS)):
        schema = pa.schema([rows.schema.field(name)])
        columns = Columns(schema, by_id=False)
        columns.find(file)
        assert max(batch.num_rows for batch in iter_rows(file, columns)) == min(50_000, most)


def test_a_task_that_decodes_fails_at_old_times(tmp_path: Path) -> None:
    rows = pa.table({"day": [OLD_DAY]}).replace_schema_metadata({DATES: b""})
    pq.write_table(rows, tmp_path / "f")
    schema = pa.schema([("day", pa.date32()), ("f", pa.int64()), ("r", pa.int64())])
    task = DecodeTask(schema=schema.serialize().to_pybytes(), by_id=False)
    files = pa.RecordBatch.from_pydict({"o": [0], "u": [(tmp_path / "f").as_uri()]})
    with pytest.raises(CorruptTable, match=r"/f can't be read: .* calendar of old Spark versions"):
        list(task(iter([files]), 0, 0))


def test_bounds_of_old_times_are_no_statistics() -> None:
    times = [datetime(1899, 12, 31), datetime(2000, 1, 1)]  # noqa: DTZ001
    rows = pa.table({"day": [OLD_DAY, NEW_DAY], "at": pa.array(times, pa.timestamp("us"))})
    schema = from_arrow_schema(rows.schema)
    for legacy, bounded in ((False, {"day", "at"}), (True, set[str]())):
        footer = _file(rows, legacy=legacy).metadata
        found = statistics_of(footer, schema, (), TableProperties(), ())
        assert set(found.min_values) == set(found.max_values) == bounded
        assert found.null_count == {"day": 0, "at": 0}


_VARIANT = to_arrow_type(Primitive("variant"))
_ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}


def _with_null_parts(rows: list[object], data_type: pa.DataType) -> pa.Array:
    """The rows as Spark gives them to a task: what is inside of a NULL variant is NULL too."""
    loose = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    given = pa.array(rows, loose)
    return pa.StructArray.from_arrays(given.flatten(), fields=list(data_type), mask=given.is_null())


def test_null_variants_are_renamed_and_written() -> None:
    array = _with_null_parts([_ONE, None, _ONE], _VARIANT)[1:]
    wanted = pa.struct([pa.field("physical", _VARIANT)])
    rows = pa.StructArray.from_arrays([array], fields=[pa.field("v", _VARIANT)])
    lists = pa.ListArray.from_arrays([0, 2], array)
    maps = pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), array)
    schema = pa.schema(
        {
            "plain": _VARIANT,
            "struct": wanted,
            "list": pa.list_(pa.field("element", _VARIANT)),
            "map": pa.map_(pa.string(), pa.field("value", _VARIANT)),
        }
    )
    columns = [[array], [rows], [lists, lists], [maps, maps]]
    table = pa.Table.from_arrays(
        [
            pa.chunked_array([with_field_names(chunk, item.type) for chunk in chunks])
            for chunks, item in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
    assert _read(_file(table), schema) == [
        {
            "plain": one,
            "struct": {"physical": one},
            "list": [None, _ONE],
            "map": [("a", None), ("b", _ONE)],
        }
        for one in (None, _ONE)
    ]


def test_names_alone_change_without_a_copy() -> None:
    rows = pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))
    assert with_field_names(rows, rows.type) is rows
    assert with_field_names(rows, pa.struct([("b", pa.int64())])).to_pylist() == [{"b": 1}]


def test_long_offsets_become_short_ones() -> None:
    kind = pa.struct([("a", pa.large_string()), ("b", pa.list_(pa.large_binary()))])
    wanted = pa.struct([("c", pa.string()), ("d", pa.list_(pa.binary()))])
    made = with_field_names(pa.array([{"a": "x", "b": [b"1", None]}, None], kind), wanted)
    assert made.type == wanted
    assert made.to_pylist() == [{"c": "x", "d": [b"1", None]}, None]
    pairs = pa.array([[("k", "v")], None], pa.map_(pa.large_string(), pa.large_string()))
    assert (
        with_field_names(pairs, pa.map_(pa.string(), pa.string())).to_pylist() == pairs.to_pylist()
    )


def test_shredded_variants_are_never_read_in_part() -> None:
    shredded = pa.struct(
        [
            pa.field("metadata", pa.binary(), False),
            pa.field("value", pa.binary()),
            pa.field("typed_value", pa.int64()),
        ]
    )
    one = {"metadata": b"\x01\x00\x00", "value": None, "typed_value": 7}
    rows = pa.table(
        {"i": [1], "v": pa.array([one], shredded), "l": pa.array([[one]], pa.list_(shredded))}
    )
    file = _file(rows)
    assert [is_shredded(item.type) for item in file.schema_arrow] == [False, True, True]
    for name, wanted in (("v", _VARIANT), ("l", pa.list_(_VARIANT))):
        with pytest.raises(UnsupportedFeature, match=f"column '{name}': it holds shredded"):
            _read(file, pa.schema({name: wanted}))
    assert _read(file, pa.schema({"i": pa.int64(), "w": pa.string()})) == [{"i": 1, "w": None}]
    assert _read(file, pa.schema({"w": pa.string()})) == [{"w": None}]
