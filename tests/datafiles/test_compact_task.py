"""A compaction's task: files of any age and writer become one, row for row, or stay as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from txlake.datafiles import compact_task, parquet
from txlake.datafiles.compact_task import BINS, CompactTask
from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.write_task import Layout, WriteTask
from txlake.errors import CorruptTable
from txlake.spark.shipping import code_archive, pickled


def _task(folder: Path, schema: pa.Schema, **options: Any) -> CompactTask:
    write = WriteTask(
        schema=schema.serialize().to_pybytes(),
        layout=Layout(data=len(schema)),
        root=folder.as_uri(),
        job_id="job",
        folder_of=lambda values: "/".join(f"p={value}" for value in values),
    )
    return CompactTask(write, **{"by_id": False, **options})


def _source(place: Path, rows: pa.Table, ordinal: int = 0, **options: Any) -> dict[str, Any]:
    """A file of the bin; `deleted`: positions, the other options those of `write_table`."""
    deleted = options.pop("deleted", None)
    known = {name: options.pop(name, None) for name in ("base_row_id", "row_version")}
    pq.write_table(rows, place, **options)
    vector = None
    if deleted is not None:
        vector = _vector(data=pack_positions(np.array(deleted, np.int64)))
    size = place.stat().st_size
    return {"ordinal": ordinal, "url": place.as_uri(), "size": size, "vector": vector, **known}


def _vector(data: bytes | None = None, url: str = "") -> dict[str, Any]:
    return {"url": url, "offset": 0, "size_in_bytes": 0, "cardinality": 0, "data": data}


def _done(
    task: CompactTask, *files: Mapping[str, Any], partition: Sequence[str | None] = ()
) -> list[dict[str, Any]]:
    return task.compact_bin({"number": 7, "partition": list(partition), "files": files}, "out")


def _rows(folder: Path, report: Sequence[Mapping[str, Any]]) -> pa.Table:
    """What was written, and it agrees with the report."""
    (file,) = (row for row in report if row["kind"] == "file")
    assert file["group"] == 7
    table = pq.ParquetFile(folder / file["text"]).read()
    assert table.num_rows == file["count"]
    assert table.num_rows == sum(_moved(report))
    return table


def _moved(report: Sequence[Mapping[str, Any]]) -> list[int]:
    """The live rows of each file of the bin."""
    (row,) = (row for row in report if row["kind"] == "moved")
    assert row["key"] == 7
    counts: list[int] = np.frombuffer(row["data"], "<i8").tolist()
    return counts


def _id(item: pa.Field, number: int) -> pa.Field:
    return item.with_metadata({"PARQUET:field_id": str(number)})


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


V = pa.schema([("v", pa.int64())])


@pytest.fixture(autouse=True, params=["together", "one by one"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read together, or as large ones are."""
    if request.param == "one by one":
        monkeypatch.setattr(compact_task, "FILE_BYTES_MAX", -1)


def test_rows_come_in_the_order_of_files_without_the_deleted_ones(tmp_path: Path) -> None:
    first = _source(tmp_path / "a", pa.table({"v": range(10)}), 4, deleted=[0, 3, 9])
    second = _source(tmp_path / "b", pa.table({"v": range(20, 23)}), 5)
    report = _done(_task(tmp_path, V), first, second)
    assert _rows(tmp_path, report)["v"].to_pylist() == [1, 2, 4, 5, 6, 7, 8, 20, 21, 22]
    assert _moved(report) == [7, 3]


def test_deleted_rows_are_found_in_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 1_024)
    deleted = [0, 1_023, 1_024, 2_047, 2_048, 4_999]
    rows = pa.table({"v": range(5_000)})
    source = _source(tmp_path / "a", rows, deleted=deleted, row_group_size=1_500)
    written = _rows(tmp_path, _done(_task(tmp_path, V), source))["v"].to_pylist()
    assert written == [v for v in range(5_000) if v not in deleted]


ALONE = """
import pickle, sys
sys.path.insert(1, sys.argv[1])
absent = "txlake", "pyroaring", "msgspec", "obstore", "sqlalchemy", "sqlglot"
sys.modules.update(dict.fromkeys(absent))  # no import of them works
import pyarrow as pa
task, bins = pickle.load(open(sys.argv[2], "rb"))
(report,) = task(iter(bins.to_batches()), 0, 0)
print([(row["kind"], row["count"]) for row in report.to_pylist()])
"""


def test_tasks_need_nothing_but_pyarrow_and_numpy(tmp_path: Path) -> None:
    source = _source(tmp_path / "a", pa.table({"v": [5, 6, 7]}), deleted=[1])
    bins = pa.Table.from_pylist([{"number": 7, "partition": [], "files": [source]}], schema=BINS)
    package, archive = code_archive()
    task = tmp_path / "task"
    task.write_bytes(pickled((_task(tmp_path, V), bins), package))
    program = [sys.executable, "-c", ALONE, str(archive), str(task)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert done.stdout == "[('file', 2), ('moved', None)]\n"


def test_executors_read_vectors_that_did_not_travel(tmp_path: Path) -> None:
    from txlake.protocol.roaring import vector_file

    data, [(offset, size)] = vector_file([BitMap64([1, 2])])
    (tmp_path / "vector.bin").write_bytes(data)
    source = _source(tmp_path / "a", pa.table({"v": [5, 6, 7]}))
    url = (tmp_path / "vector.bin").as_uri()
    stored = {**_vector(url=url), "offset": offset, "size_in_bytes": size, "cardinality": 2}
    task = _task(tmp_path, V)
    assert _rows(tmp_path, _done(task, {**source, "vector": stored}))["v"].to_pylist() == [5]


def test_a_bin_without_live_rows_writes_no_file(tmp_path: Path) -> None:
    source = _source(tmp_path / "a", pa.table({"v": [1, 2]}), 3, deleted=[0, 1])
    assert _moved(_done(_task(tmp_path / "t", V), source)) == [0]
    assert not (tmp_path / "t").exists()


def test_the_partition_is_that_of_the_bin(tmp_path: Path) -> None:
    source = _source(tmp_path / "a", pa.table({"v": [1], "p": ["of the file"]}))
    (file, _) = _done(_task(tmp_path, V), source, partition=["x", None])
    assert file["values"] == ["x", None]
    assert file["text"] == "p=x/p=None/out.c000.snappy.parquet"


OLD = pa.schema(
    [
        ("i", pa.int8()), ("f", pa.float32()), ("n", pa.int32()), ("d", pa.decimal128(5, 2)),
        ("day", pa.date32()), ("l", pa.list_(pa.field("element", pa.int16()))),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int32()))),
    ]
)  # fmt: skip
WIDE = pa.schema(
    [
        ("i", pa.int64()), ("f", pa.float64()), ("n", pa.decimal128(12, 1)),
        ("d", pa.decimal128(10, 4)), ("day", pa.timestamp("us")),
        ("l", pa.list_(pa.field("element", pa.float64()))),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ]
)  # fmt: skip


def test_types_are_widened(tmp_path: Path) -> None:
    day = date(1500, 2, 3)
    old = pa.Table.from_pylist(
        [
            {"i": 1, "f": 1.5, "n": 7, "d": Decimal("1.25"), "day": day, "l": [1, None],
             "m": [("a", 1)]},
            dict.fromkeys(OLD.names),
        ],
        schema=OLD,
    )  # fmt: skip
    written = _rows(tmp_path, _done(_task(tmp_path, WIDE), _source(tmp_path / "a", old)))
    assert written.schema.equals(WIDE)
    assert written.to_pylist() == [
        {"i": 1, "f": 1.5, "n": Decimal("7.0"), "d": Decimal("1.2500"),
         "day": _time("1500-02-03"), "l": [1.0, None], "m": [("a", 1)]},
        dict.fromkeys(WIDE.names),
    ]  # fmt: skip


def test_fields_that_the_file_lacks_are_null(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32())])
    wider = pa.struct([("new", pa.string()), ("a", pa.int64())])
    old = pa.schema(
        [("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner)), ("x", pa.int8())]
    )
    new = pa.schema(
        [
            ("added", pa.struct([("z", pa.int32())])),
            ("s", wider),
            ("l", pa.list_(pa.field("element", wider))),
            ("m", pa.map_(pa.string(), pa.field("value", wider))),
        ]
    )
    a = {"a": 1}
    rows = [
        {"s": a, "l": [a, None], "m": [("k", a)], "x": 0},
        {"s": None, "l": None, "m": None, "x": 0},
        {"s": {"a": None}, "l": [], "m": [], "x": 0},
        {"s": a, "l": [a], "m": [("k", None)], "x": 0},
    ]
    source = _source(tmp_path / "a", pa.Table.from_pylist(rows, schema=old), deleted=[3])
    written = _rows(tmp_path, _done(_task(tmp_path, new), source))
    b = {"new": None, "a": 1}
    assert written.to_pylist() == [
        {"added": None, "s": b, "l": [b, None], "m": [("k", b)]},
        {"added": None, "s": None, "l": None, "m": None},
        {"added": None, "s": {"new": None, "a": None}, "l": [], "m": []},
    ]


def test_columns_are_found_by_id_and_tracked_ones_by_name(tmp_path: Path) -> None:
    wanted = pa.schema(
        [_id(pa.field("new", pa.int64()), 2), ("ids", pa.int64()), ("versions", pa.int64())]
    )
    old = pa.schema(
        [
            _id(pa.field("new", pa.int64()), 1), _id(pa.field("old", pa.int64()), 2),
            ("versions", pa.int64()), ("ids", pa.int64()),
        ]
    )  # fmt: skip
    rows = pa.Table.from_pylist(
        [{"new": 0, "old": 5, "versions": 3, "ids": 40}, {"new": 0, "old": 6}], schema=old
    )
    source = _source(tmp_path / "a", rows, base_row_id=100, row_version=9)
    task = _task(tmp_path, wanted, by_id=True, row_id="ids", row_version="versions")
    assert _rows(tmp_path, _done(task, source)).to_pylist() == [
        {"new": 5, "ids": 40, "versions": 3},
        {"new": 6, "ids": 101, "versions": 9},
    ]


def test_ids_inside_of_types_are_found_and_written(tmp_path: Path) -> None:
    def schema(inner: str, *, place: int) -> pa.Schema:
        struct = pa.struct([_id(pa.field(inner, pa.int64()), 3)])
        items = pa.list_(pa.field("element", pa.struct([_id(pa.field(inner, pa.int64()), 5)])))
        fields = [_id(pa.field("s", struct), 2), _id(pa.field("l", items), 4)]
        return pa.schema(fields[::place])

    rows = pa.Table.from_pylist([{"s": {"old": 1}, "l": [{"old": 2}]}], schema("old", place=1))
    wanted = schema("new", place=-1)
    for by_id, found in ((True, (1, 2)), (False, (None, None))):
        task = _task(tmp_path, wanted, by_id=by_id)
        written = _rows(tmp_path, _done(task, _source(tmp_path / "a", rows)))
        assert written.to_pylist() == [{"l": [{"new": found[1]}], "s": {"new": found[0]}}]
        assert written.schema.equals(wanted, check_metadata=True)


def test_row_ids_count_deleted_rows_and_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 1_024)
    schema = pa.schema([("v", pa.int64()), ("ids", pa.int64())])
    rows = pa.table({"v": range(3_000)})
    source = _source(tmp_path / "a", rows, deleted=[0, 2_000], base_row_id=10)
    untracked = _source(tmp_path / "b", pa.table({"v": [0]}))
    report = _done(_task(tmp_path, schema, row_id="ids"), source, untracked)
    written = _rows(tmp_path, report).to_pylist()
    assert [row["ids"] for row in written] == [
        *(v + 10 for v in range(3_000) if v not in {0, 2_000}), None
    ]  # fmt: skip


def test_names_are_compared_as_spark_compares_them(tmp_path: Path) -> None:
    task = _task(tmp_path, V)
    both = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["V", "v"])
    other = _source(tmp_path / "a", pa.table({"V": [3]}))
    report = _done(task, other, _source(tmp_path / "b", both))
    assert _rows(tmp_path, report)["v"].to_pylist() == [3, 2]
    unclear = pa.schema([("Name", pa.int64())])
    names = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["NAME", "name"])
    with pytest.raises(CorruptTable, match=r"\['NAME', 'name'\]"):
        _done(_task(tmp_path, unclear), _source(tmp_path / "c", names))


@pytest.mark.parametrize("name", ["a.b", "a`b", "ä ö", "s"])
def test_odd_names(tmp_path: Path, name: str) -> None:
    struct = pa.struct([("b", pa.int64()), (name, pa.string())])
    schema = pa.schema([("a", struct), (name, pa.string()), ("n", pa.list_(struct))])
    one = {"b": 1, name: "x"}
    rows = [{"a": one, name: "y", "n": [one]}]
    table = pa.Table.from_pylist(rows, schema=schema)
    report = _done(_task(tmp_path, schema), _source(tmp_path / "f", table))
    assert _rows(tmp_path, report).to_pylist() == rows


FOREIGN = {
    "large text": (pa.large_string(), pa.string(), ["a", None, "b"]),
    "text view": (pa.string_view(), pa.string(), ["a", None, "b"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), pa.string(), ["a", None, "a"]),
    "large bytes": (pa.large_binary(), pa.binary(), [b"a", None, b"b"]),
    "large list": (pa.large_list(pa.int32()), pa.list_(pa.int64()), [[1], None, [2, 3]]),
    "fixed list": (pa.list_(pa.int32(), 2), pa.list_(pa.int64()), [[1, 2], [3, 4], [5, 6]]),
    "list of large text": (
        pa.large_list(pa.large_string()), pa.list_(pa.string()), [["a", None], None, []]
    ),
    "other zone": (
        pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC"), [0, None, -62_135_596_800]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
def test_files_as_other_writers_make_them(tmp_path: Path, case: str) -> None:
    found, wanted, values = FOREIGN[case]
    rows = pa.table({"v": pa.array(values, found)})
    schema = pa.schema([("v", wanted)])
    source = _source(tmp_path / "a", rows, deleted=[0])
    written = _rows(tmp_path, _done(_task(tmp_path, schema), source))
    assert written["v"].type.equals(wanted)
    assert written["v"].to_pylist() == rows["v"].cast(wanted).to_pylist()[1:]


def test_bytes_that_are_no_utf8_stay_what_they_are(tmp_path: Path) -> None:
    rows = pa.table({"v": pa.array([b"\xff\xfe", b"a"], pa.binary())})
    schema = pa.schema([("v", pa.string())])
    written = _rows(tmp_path, _done(_task(tmp_path, schema), _source(tmp_path / "a", rows)))
    assert written["v"].combine_chunks().cast(pa.binary()).to_pylist() == [b"\xff\xfe", b"a"]


def test_times_of_96_bits(tmp_path: Path) -> None:
    texts = ["2026-01-02T03:04:05.678901", None, "0001-01-01", "9999-12-31"]
    times = [text and _time(text) for text in texts]
    rows = pa.table({"v": pa.array(times, pa.timestamp("us")), "l": pa.array([[x] for x in times])})
    schema = pa.schema(
        [
            ("v", pa.timestamp("us", "UTC")),
            ("l", pa.list_(pa.field("element", pa.timestamp("us", "UTC")))),
        ]
    )
    source = _source(tmp_path / "a", rows, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(tmp_path / "a").schema.column(0).physical_type == "INT96"
    written = _rows(tmp_path, _done(_task(tmp_path, schema), source))
    assert written["v"].cast(pa.timestamp("us")).to_pylist() == times
    assert [x and x.replace(tzinfo=None) for (x,) in written["l"].to_pylist()] == times


OLD_DAY, NEW_DAY = date(1582, 10, 14), date(1582, 10, 15)
NEW_TIME = _time("1900-01-01")
OLD_TIME = NEW_TIME - timedelta(microseconds=1)
LEGACY = {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}
LEGACY_96 = {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyINT96": ""}
CALENDARS = {
    "an old Spark, old days": ({"org.apache.spark.version": "2.4.8"}, OLD_DAY, False),
    "an old Spark, days since": ({"org.apache.spark.version": "2.4.8"}, NEW_DAY, True),
    "no version that is known": ({"org.apache.spark.version": "?"}, OLD_DAY, False),
    "a Spark that did not say": ({"org.apache.spark.version": "3.0.2"}, OLD_TIME, False),
    "asked for, old days": (LEGACY, OLD_DAY, False),
    "asked for, old times": (LEGACY, OLD_TIME, False),
    "asked for, times since": (LEGACY, NEW_TIME, True),
    "asked for, in a list": (LEGACY, [NEW_DAY, OLD_DAY], False),
    "asked for, in a struct": (LEGACY, {"x": OLD_TIME}, False),
    "asked for, in a map": (LEGACY, {"x": [OLD_DAY]}, False),
    "asked for, no time": (LEGACY, None, True),
    "asked for 96 bits": (LEGACY_96, OLD_TIME, False),
    "a new Spark": ({"org.apache.spark.version": "3.5.1"}, OLD_DAY, True),
    "not Spark": ({}, OLD_DAY, True),
}


@pytest.mark.parametrize("case", CALENDARS)
def test_times_of_the_old_calendar_are_never_shifted(tmp_path: Path, case: str) -> None:
    footer, value, moved = CALENDARS[case]
    column = pa.array([value])
    if case.endswith("map"):
        column = pa.array([[("x", [OLD_DAY])]], pa.map_(pa.string(), pa.list_(pa.date32())))
    elif value is None:
        column = pa.array([None], pa.date32())
    rows = pa.table({"v": column, "n": [1]}).replace_schema_metadata(footer)
    schema = pa.schema([("v", column.type), ("n", pa.int64())])
    report = _done(_task(tmp_path, schema), _source(tmp_path / "a", rows, 2))
    if moved:
        assert _rows(tmp_path, report)["v"].to_pylist() == column.to_pylist()
    else:
        kept, _ = report
        assert _moved(report) == [0]
        assert (kept["kind"], kept["key"]) == ("skipped", 2)
        assert "calendar" in str(kept["text"])


VARIANT = pa.struct(
    [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
)


def test_shredded_variants_stay_where_they_are(tmp_path: Path) -> None:
    shredded = pa.struct(
        [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())]
    )
    whole = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    value = {"metadata": b"m", "value": b"v"}
    schema = pa.schema([("v", VARIANT), ("l", pa.list_(pa.field("element", VARIANT)))])
    files = []
    for ordinal, data_type in enumerate((whole, shredded)):
        rows = [{"v": value, "l": [value, None]}, {"v": None, "l": None}]
        old = pa.schema([("v", whole), ("l", pa.list_(data_type))])
        table = pa.Table.from_pylist(rows, schema=old)
        files.append(_source(tmp_path / f"f{ordinal}", table, ordinal))
    report = _done(_task(tmp_path, schema), *files)
    assert _rows(tmp_path, report).to_pylist() == rows
    (kept,) = (row for row in report if row["kind"] == "skipped")
    assert (kept["key"], kept["text"]) == (1, parquet.SHREDDED)


def test_a_file_without_any_column_of_the_table_has_its_rows(tmp_path: Path) -> None:
    rows = pa.table({"other": ["x", "y", "z"]})
    report = _done(_task(tmp_path, V), _source(tmp_path / "a", rows, deleted=[1]))
    assert _rows(tmp_path, report)["v"].to_pylist() == [None, None]


def test_what_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    task = _task(tmp_path / "t", V)
    good = _source(tmp_path / "a", pa.table({"v": [1]}))
    bad = _source(tmp_path / "b", pa.table({"v": ["no number"]}), 1)
    with pytest.raises(CorruptTable, match=r"b can't be read: .*no number"):
        _done(task, good, bad)
    (tmp_path / "c").write_bytes(b"no Parquet")
    with pytest.raises(CorruptTable, match="c can't be read"):
        _done(task, good, {**good, "url": (tmp_path / "c").as_uri()})
    with pytest.raises(FileNotFoundError):
        _done(task, good, {**good, "url": (tmp_path / "gone").as_uri()})
    assert list((tmp_path / "t").rglob("*.parquet")) == []


def test_wide_rows_are_read_in_small_batches(tmp_path: Path) -> None:
    text = "x" * 10_000
    rows = pa.table({"v": pa.array([text + str(v) for v in range(2_000)])})
    _source(tmp_path / "a", rows, compression="none")
    batch_rows = parquet.batch_rows([pq.read_metadata(tmp_path / "a").row_group(0)], rows.schema)
    assert parquet._BATCH_ROWS_MIN <= batch_rows < 4_000


def _chunks(folder: Path, report: Sequence[Mapping[str, Any]]) -> pq.FileMetaData:
    (file,) = (row for row in report if row["kind"] == "file")
    return pq.read_metadata(folder / str(file["text"]))


def test_dictionaries_are_written_where_values_repeat(tmp_path: Path) -> None:
    count = 50_000
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "k": pa.array([v % 1_000 for v in range(count)], pa.int64()),
            "text": [f"text {v}" for v in range(count)],
            "few": [f"text {v % 7}" for v in range(count)],
            "null": pa.nulls(count, pa.string()),
            "s": pa.array([{"x": 1, "y": v} for v in range(count)]),
            "l": pa.array([["a"]] * count, pa.list_(pa.field("element", pa.string()))),
            "m": pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        }
    )
    report = _done(_task(tmp_path, table.schema), _source(tmp_path / "a", table))
    group = _chunks(tmp_path, report).row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    with_dictionary = {one.path_in_schema for one in chunks if one.has_dictionary_page}
    tried = {"k", "few", "null", "s.x", "s.y", "l.list.element", "m.key_value.key"}
    assert with_dictionary == {*tried, "m.key_value.value"}
    assert _rows(tmp_path, report).equals(table)


def test_row_groups_end_at_rows_or_bytes(tmp_path: Path) -> None:
    task = _task(tmp_path, V)
    rows = pa.table({"v": range(70_000)})
    sources = [_source(tmp_path / f"f{i}", rows) for i in range(4)]

    def groups(**limits: Any) -> list[int]:
        limited = replace(task, write=replace(task.write, **limits))
        footer = _chunks(tmp_path, _done(limited, *sources))
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    assert groups() == [280_000]
    assert groups(row_group_rows=100_000) == [140_000, 140_000]
    assert groups(row_group_bytes=500_000) == [70_000] * 4


def test_files_of_any_kind_between_small_ones_keep_their_order(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.int64()), ("s", pa.string())])
    sources, expected, moved = list[dict[str, Any]](), list[int](), list[int]()
    for number in range(300):
        values = range(10 * number, 10 * number + number % 7)
        rows = pa.table({"v": pa.array(values, pa.int64()), "s": [str(v) for v in values]})
        options: dict[str, Any] = {"row_group_size": 3}
        match number % 11:
            case 3:
                rows = rows.cast(pa.schema([("v", pa.int32()), ("s", pa.string())]))
            case 5:
                rows = rows.select(["s", "v"])
            case 6 if values:
                options["deleted"] = [0]
            case 7:
                rows = rows.append_column("more", pa.nulls(len(rows), pa.int8()))
            case 8:
                options["store_schema"] = False
        kept = list(values)[1 if "deleted" in options else 0 :]
        sources.append(_source(tmp_path / f"{number}", rows, number, **options))
        expected += kept
        moved.append(len(kept))
    for threads in (1, 3):
        report = _done(_task(tmp_path, schema, threads=threads), *sources)
        assert _moved(report) == moved
        written = _rows(tmp_path, report)
        assert written["v"].to_pylist() == expected
        assert written["s"].to_pylist() == list(map(str, expected))


def test_a_damaged_file_among_small_ones_is_named(tmp_path: Path) -> None:
    sources = [_source(tmp_path / f"{v}", pa.table({"v": [v]}), v) for v in range(80)]
    (tmp_path / "70").write_bytes(b"PAR1" * 20)
    with pytest.raises(CorruptTable, match="/70 can't be read"):
        _done(_task(tmp_path, V, threads=2), *sources)
    (tmp_path / "70").unlink()
    with pytest.raises(FileNotFoundError):
        _done(_task(tmp_path, V, threads=2), *sources)
    assert not list(tmp_path.glob("out*"))
