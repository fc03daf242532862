"""How rows become data files: files are whole or gone, reports are exact."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.datafiles import write_task
from txlake.datafiles.packed_positions import pack_positions, unpack_positions
from txlake.datafiles.vectors import bitmap_of_report
from txlake.datafiles.write_task import Layout, Materialized, WriteTask, run
from txlake.protocol.types import Primitive
from txlake.storage import open_store

SCHEMA = pa.schema([("v", pa.int32())])


def _task(folder: Path, layout: Layout, **options: Any) -> WriteTask:
    return WriteTask(
        schema=SCHEMA.serialize().to_pybytes(),
        layout=layout,
        root=folder.as_uri(),
        job_id="job",
        folder_of=lambda values: "/".join(f"p={value}" for value in values),
        **options,
    )


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def _run(task: WriteTask, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in run(task, iter(batches), "part") for row in batch.to_pylist()]


def _files(folder: Path) -> dict[str, list[int]]:
    found = sorted(folder.rglob("*.parquet"))
    return {
        str(path.relative_to(folder)): pq.ParquetFile(path).read()["v"].to_pylist()
        for path in found
    }


def test_replaced_positions_are_reported_in_order_and_once() -> None:
    replaced = write_task.ReplacedPositions()
    for files, rows in (([4, 4], [7, 9]), ([4, 5, None], [7, 1, None]), ([4, 4], [3, 8])):
        replaced.collect(pa.array(files, pa.int64()), pa.array(rows, pa.int64()))
    found: dict[Any, Any] = {table["key"]: table for table in replaced.report()}
    assert {key: table["count"] for key, table in found.items()} == {4: 5, 5: 1}
    assert [unpack_positions(found[key]["data"]).tolist() for key in (4, 5)] == [[3, 7, 8, 9], [1]]


V = pa.int32()


def test_rows_keep_their_order_over_batches(tmp_path: Path) -> None:
    batches = [_batch(v=pa.array([i, i + 1], V)) for i in (3, 1, 2)]
    (file, action) = _run(_task(tmp_path, Layout(data=1)), *batches)
    assert _files(tmp_path) == {file["text"]: [3, 4, 1, 2, 2, 3]}
    assert (file["count"], file["key"]) == (6, (tmp_path / file["text"]).stat().st_size)
    assert (action["kind"], action["key"], action["count"]) == ("action", write_task.INSERT, 6)


def test_the_footer_that_is_reported_is_the_file_s_and_hides_no_nan(tmp_path: Path) -> None:
    rows = {
        "x": pa.array([1.0, 2.0] * 600 + [math.nan, -0.0] * 600),
        "s": pa.array([{"i": 1, "y": 5.0}] * 2399 + [{"i": 2, "y": math.nan}]),
        "l": pa.array([[0.5, 1.5]] * 2399 + [[math.nan]]),
    }
    schema = pa.schema([(name, column.type) for name, column in rows.items()])
    task = replace(
        _task(tmp_path, Layout(data=3), row_group_rows=1200),
        schema=schema.serialize().to_pybytes(),
    )
    every = _batch(**rows)
    file, _ = _run(task, every.slice(0, 700), every.slice(700, 500), every.slice(1200))
    written = tmp_path / file["text"]
    assert file["key"] == written.stat().st_size
    footer = pq.read_metadata(written)
    assert footer.equals(pq.read_metadata(pa.BufferReader(file["data"])))
    assert footer.num_row_groups == 2
    bounds = [
        [
            (chunk.statistics.min, chunk.statistics.max) if chunk.statistics.has_min_max else None
            for chunk in (footer.row_group(group).column(place) for place in range(4))
        ]
        for group in range(2)
    ]
    assert bounds == [
        [(1.0, 2.0), (1, 1), (5.0, 5.0), (0.5, 1.5)],
        [None, (1, 2), None, None],
    ]
    assert repr(pq.read_table(written).to_pydict()) == repr(every.to_pydict())


def test_the_footer_in_a_bucket_hides_no_nan_either() -> None:
    schema = pa.schema([("x", pa.float64())])
    task = replace(
        _task(Path("/"), Layout(data=1)),
        schema=schema.serialize().to_pybytes(),
        root="memory://write-task",
    )
    file, _ = _run(task, _batch(x=[1.0, math.nan]))
    data = open_store("memory://write-task").get(file["text"])
    assert len(data) == file["key"]
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert not chunk.statistics.has_min_max


def test_a_new_file_for_each_partition_and_limit(tmp_path: Path) -> None:
    task = _task(tmp_path, Layout(data=1, partition=(1,)), rows_max=2)
    rows = _batch(v=pa.array([1, 2, 3, 4, 5], V), p=["a", "a", "a", "b", None])
    files = [row for row in _run(task, rows) if row["kind"] == "file"]
    assert [(f["values"], f["count"]) for f in files] == [
        (["a"], 2), (["a"], 1), (["b"], 1), ([None], 1)
    ]  # fmt: skip
    assert sorted(_files(tmp_path).values()) == [[1, 2], [3], [4], [5]]


def test_materialized_partition_columns_are_in_files(tmp_path: Path) -> None:
    day = pa.schema([pa.field("p-day", pa.date32(), metadata={"PARQUET:field_id": "7"})])
    materialized = Materialized(day.serialize().to_pybytes(), (Primitive("date"),))
    task = _task(tmp_path, Layout(data=1, partition=(1,)), materialized=materialized)
    rows = _batch(v=pa.array([1, 2, 3], V), p=["2020-01-02", "2020-01-02", None])
    files = [row for row in _run(task, rows) if row["kind"] == "file"]
    assert [file["values"] for file in files] == [["2020-01-02"], [None]]
    tables = [pq.read_table(tmp_path / file["text"], partitioning=None) for file in files]
    assert [table.to_pydict() for table in tables] == [
        {"v": [1, 2], "p-day": [datetime.date(2020, 1, 2)] * 2},
        {"v": [3], "p-day": [None]},
    ]
    assert all(
        table.schema.field("p-day").metadata == {b"PARQUET:field_id": b"7"} for table in tables
    )


def test_only_rows_with_an_image_are_written(tmp_path: Path) -> None:
    layout = Layout(data=1, action=1, file=2, row=3, partition=(4,))
    task = _task(tmp_path, layout)
    rows = _batch(
        v=pa.array([1, 2, 3], V),
        action=pa.array([write_task.UPDATE, write_task.DELETE, write_task.INSERT], pa.int32()),
        file=pa.array([0, 5, None], pa.int64()),
        row=pa.array([10, 20, None], pa.int64()),
        p=["a", "a", "a"],
    )
    only_deleted = rows.slice(1, 1)
    reports = _run(task, rows, only_deleted)
    assert list(_files(tmp_path).values()) == [[1, 3]]
    replaced = {r["key"]: (list(bitmap_of_report(r["data"])), r["count"]) for r in reports
                if r["kind"] == "rows"}  # fmt: skip
    assert replaced == {0: ([10], 1), 5: ([20], 2)}
    counts = {row["key"]: row["count"] for row in reports if row["kind"] == "action"}
    assert counts == {write_task.UPDATE: 1, write_task.DELETE: 2, write_task.INSERT: 1}


def test_a_violation_stops_the_task_and_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(data=1, violation=1, violation_row=2)
    task = _task(tmp_path, layout)
    good = _batch(
        v=pa.array([1], V), why=pa.array([None], pa.string()), row=pa.array([None], pa.string())
    )
    bad = _batch(v=pa.array([2, 3], V), why=[None, "rule"], row=[None, '{"v":3}'])
    (report,) = _run(task, good, bad, good)
    assert (report["kind"], report["text"], report["values"]) == ("violation", "rule", ['{"v":3}'])
    assert _files(tmp_path) == {}


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_task_leaves_no_file(tmp_path: Path, failing: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            if number == failing:
                raise RuntimeError("killed")
            yield _batch(v=pa.array([number], V), p=[str(number)])

    task = _task(tmp_path, Layout(data=1, partition=(1,)))
    with pytest.raises(RuntimeError, match="killed"):
        list(run(task, batches(), "part"))
    assert _files(tmp_path) == {}


def test_an_empty_task_reports_nothing(tmp_path: Path) -> None:
    assert _run(_task(tmp_path, Layout(data=1)), _batch(v=pa.array([], V))) == []
    assert list(tmp_path.iterdir()) == []


@given(st.sets(st.integers(0, 2_000)) | st.sets(st.integers(0, 2**40), max_size=20))
def test_positions_survive_the_report(positions: set[int]) -> None:
    ordered = np.array(sorted(positions), dtype=np.int64)
    data = pack_positions(ordered)
    assert unpack_positions(data).tolist() == ordered.tolist()
    assert list(bitmap_of_report(data)) == ordered.tolist()
    assert len(data) <= 1 + 8 * max(1, len(positions))
