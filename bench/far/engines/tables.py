"""Tables that the engines begin with, put into the store as they are on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from bench.far.measuring import Task
from bench.sources.rows import Rows, large_rows
from txlake.storage import open_store

UPDATED = 500
INSERTED = 500
"""Of the rows of a MERGE's source, those that are in the table and those that aren't."""


def rows(first: int, count: int) -> pa.Table:
    """Return rows of two columns, `id` and `value`, from a first number on."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": numbers, "value": numbers})


def merge_rows(task: Task) -> Rows:
    """Return the rows that a MERGE goes into: columns `id`, `k`, `v` and `s`."""
    return large_rows(Path(task.data), task.sizes["merge_rows"], task.sizes["merge_files"])


def sum_rows(task: Task) -> Rows:
    """Return the rows that are summed, of the same columns."""
    return large_rows(Path(task.data), task.sizes["sum_rows"], task.sizes["sum_files"])


def changes(task: Task, number: int) -> pa.Table:
    """Return the source of the numbered MERGE: `id` and `v`, half of them new rows."""
    count = task.sizes["merge_rows"]
    step = count // UPDATED
    updated = range(number, count, step)[:UPDATED]
    inserted = range(count + number * INSERTED, count + (number + 1) * INSERTED)
    ids = pa.array([*updated, *inserted], pa.int64())
    return pa.table({"id": ids, "v": pa.array([0.5] * len(ids), pa.float64())})


def upload(source: Rows, url: str, options: Mapping[str, str]) -> None:
    """Put the rows' files and their log into a folder of the store."""
    store = open_store(url, options)
    for file in source.files:
        store.put(file.name, file.read_bytes())
    store.put(f"_delta_log/{0:020}.json", source.log("live").read_bytes())


def delta_rs_options(task: Task) -> dict[str, str]:
    """Return the storage options with which delta-rs commits by put-if-absent."""
    on_s3 = task.url.startswith("s3:")
    return {**task.storage_options, **({"conditional_put": "etag"} if on_s3 else {})}


def write_commits(task: Task, url: str) -> None:
    """Make a table of as many commits of one row as the task says, by delta-rs."""
    from deltalake import write_deltalake

    for number in range(task.sizes["commits"]):
        write_deltalake(url, rows(number, 1), mode="append", storage_options=delta_rs_options(task))
