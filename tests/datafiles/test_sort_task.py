"""Sorted rows in files: the report says of every row where it came from."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlake.datafiles.packed_positions import unpack_positions
from txlake.datafiles.sort_task import SortTask
from txlake.datafiles.write_task import Layout, WriteTask

SCHEMA = pa.schema([("v", pa.int64())])
# Rows come in the order of their values: (file, place) of each.
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), unique=True, max_size=60)


def _task(folder: Path, *, rows: int, partitioned: bool) -> SortTask:
    layout = Layout(data=1, file=1, row=2, partition=(3,) if partitioned else ())
    return SortTask(
        WriteTask(
            schema=SCHEMA.serialize().to_pybytes(),
            layout=layout,
            root=folder.as_uri(),
            job_id="job",
            folder_of=lambda values: "/".join(f"p={value}" for value in values),
            row_group_rows=rows,
        )
    )


def _batches(found: list[tuple[int, int]], ends: list[int], parts: int) -> list[pa.RecordBatch]:
    table = pa.RecordBatch.from_pydict(
        {
            "v": pa.array(range(len(found)), pa.int64()),
            "file": pa.array([file for file, _ in found], pa.int64()),
            "row": pa.array([row for _, row in found], pa.int64()),
            "p": [str(number * parts // max(1, len(found))) for number in range(len(found))],
        }
    )
    edges = [0, *sorted({end for end in ends if end < len(found)}), len(found)]
    return [table.slice(start, end - start) for start, end in pairwise(edges)]


@settings(deadline=None, max_examples=60)
@given(
    ROWS,
    st.lists(st.integers(1, 60), max_size=4),
    st.integers(1, 9),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_report_gives_the_place_of_every_row(
    found: list[tuple[int, int]], ends: list[int], group: int, parts: int, partitioned: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        task = _task(Path(folder), rows=group, partitioned=partitioned)
        reports = list(task(iter(_batches(found, ends, parts)), 0, 0))
        rows: list[dict[str, Any]] = [row for batch in reports for row in batch.to_pylist()]
        written = {row["text"]: row for row in rows if row["kind"] == "file"}
        pieces: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            if row["kind"] == "piece":
                places = unpack_positions(row["data"]).tolist()
                pieces[row["text"]] += [(row["key"], place) for place in places]
        assert set(pieces) == set(written)
        everything = []
        for path, positions in pieces.items():
            file = pq.ParquetFile(Path(folder) / path)
            values = file.read()["v"].to_pylist()
            assert [found[value] for value in values] == positions
            assert written[path]["count"] == len(positions)
            everything += values
            low = -1
            for number in range(file.num_row_groups):  # row groups keep the order
                inside = file.read_row_group(number)["v"].to_pylist()
                assert min(inside) > low
                low = max(inside)
                assert [found[value] for value in inside] == sorted(
                    found[value] for value in inside
                )
        assert sorted(everything) == list(range(len(found)))


def test_a_row_group_ends_when_it_is_full(tmp_path: Path) -> None:
    task = _task(tmp_path, rows=10, partitioned=False)
    rows = [(number % 2, number) for number in np.random.default_rng(1).permutation(25).tolist()]
    list(task(iter(_batches(rows, [5, 10, 15, 20], 1)), 0, 0))
    [path] = tmp_path.rglob("*.parquet")
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(number).num_rows for number in range(3)] == [10, 10, 5]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    batches = _batches([(0, place) for place in range(4)], [2], 1)

    def broken() -> Any:
        yield batches[0]
        raise RuntimeError("the rows end here")

    with pytest.raises(RuntimeError):
        list(_task(tmp_path, rows=1, partitioned=False)(broken(), 0, 0))
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_end_with_their_partition(tmp_path: Path) -> None:
    """Positions are reported per partition, which has to have a single file."""
    write = _task(tmp_path, rows=3, partitioned=False).write
    with pytest.raises(ValueError, match="rows_max=2"):
        SortTask(replace(write, rows_max=2))
