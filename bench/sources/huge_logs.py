"""Logs of millions of files and of commits, made column by column or by links, not one by one.

Their data files needn't exist. A file stands in one of the table's days, which follow each other in
the log as they do where each day is loaded once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.delta_log import (
    CHECKPOINT,
    MODIFIED_MS,
    PLAIN,
    commit_info,
    metadata,
    write_checkpoint,
    write_commit,
)
from bench.sources.logs import CHECKPOINT_VERSION, DAYS, SCHEMA, day_text, logged_files

_FILES_PER_PART = 1_000_000
_FILES_PER_ROW_GROUP = 100_000
_LINKS = 50_000
"""Names of one file: a file system has a limit."""
FILES_AT_COMMITS = 1_000
COMMITS_AFTER_CHECKPOINT = 5


def make_huge_checkpoint(folder: Path, files: int) -> None:
    """Make a log of one checkpoint, in parts, of that many files."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    settings = metadata(SCHEMA, partitioned_by=["day"])
    parts = -(-files // _FILES_PER_PART)
    for part in range(parts):
        name = f"{CHECKPOINT_VERSION:020}.checkpoint.{part + 1:010}.{parts:010}.parquet"
        first, end = part * files // parts, (part + 1) * files // parts
        with pq.ParquetWriter(log / name, CHECKPOINT, compression="snappy") as writer:
            if part == 0:
                writer.write_table(pa.Table.from_pylist([PLAIN, settings], schema=CHECKPOINT))
            for start in range(first, end, _FILES_PER_ROW_GROUP):
                added = _adds(start, min(start + _FILES_PER_ROW_GROUP, end), files)
                columns = [
                    added if column.name == "add" else pa.nulls(len(added), column.type)
                    for column in CHECKPOINT
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=CHECKPOINT))
    write_commit(log, CHECKPOINT_VERSION, [])
    pointer = {"version": CHECKPOINT_VERSION, "size": files + 2, "parts": parts}
    (log / "_last_checkpoint").write_text(json.dumps(pointer), encoding="utf-8")


def make_huge_history(folder: Path, commits: int) -> None:
    """Make a log of that many commit files, a checkpoint of 1,000 files at one of the last.

    The files before it are links to few: their content isn't read any more.
    """
    log, contents = folder / "_delta_log", folder / "contents"
    log.mkdir(parents=True)
    contents.mkdir()
    checkpoint = commits - 1 - COMMITS_AFTER_CHECKPOINT
    settings = metadata(SCHEMA, partitioned_by=["day"])
    line = json.dumps(commit_info(0), separators=(",", ":")) + "\n"
    for version in range(checkpoint + 1):
        content = contents / str(version // _LINKS)
        if version % _LINKS == 0:
            content.write_text(line, encoding="utf-8")
        os.link(content, log / f"{version:020}.json")
    for version in range(checkpoint + 1, commits):
        write_commit(log, version, [])
    files = logged_files(0, FILES_AT_COMMITS)
    write_checkpoint(log, checkpoint, settings, files, FILES_AT_COMMITS)


def day_of(number: int, files: int) -> int:
    """The day of one of so many files."""
    return number * DAYS // max(files, DAYS)


def _adds(start: int, end: int, files: int) -> pa.StructArray:
    """The column `add` of the files from `start` to `end`."""
    count = end - start
    numbers = np.arange(start, end)
    days = pa.array([day_text(day) for day in range(DAYS)])
    day = days.take(pa.array(numbers * DAYS // max(files, DAYS)))
    low, high = (pa.array(numbers * 1000 + more).cast(pa.string()) for more in (0, 999))
    kind = CHECKPOINT.field("add").type
    texts = kind.field("partitionValues").type
    keys = pa.array(["day"]).take(pa.array(np.zeros(count, np.int64)))
    values = {
        "path": _joined("day=", day, "/part-00000-", _names(count, start), ".c000.snappy.parquet"),
        "partitionValues": pa.MapArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)), keys, day, texts
        ),
        "size": pa.array(1_000_000 + numbers % 100_000),
        "modificationTime": pa.array(np.full(count, MODIFIED_MS)),
        "dataChange": pa.array(np.zeros(count, np.bool_)),
        "tags": pa.nulls(count, kind.field("tags").type),
        "stats": _joined(
            '{"numRecords":1000,"minValues":{"id":',
            low,
            ',"customer":17,"amount":0.25,"note":"a note"},"maxValues":{"id":',
            high,
            ',"customer":99983,"amount":9999.5,"note":"words"},'
            '"nullCount":{"id":0,"customer":0,"amount":12,"note":40}}',
        ),
    }
    return pa.StructArray.from_arrays([values[item.name] for item in kind], fields=list(kind))


def _joined(*parts: str | pa.Array) -> pa.Array:
    texts = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def _names(count: int, seed: int) -> pa.Array:
    """Random texts of 32 hexadecimal digits."""
    digits = np.random.default_rng(seed).bytes(16 * count).hex().encode()
    offsets = pa.py_buffer(np.arange(0, 32 * count + 1, 32, dtype=np.int32))
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(digits))
