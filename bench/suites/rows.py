"""The works on the large table, on one of the size that most have, and on many small files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import txlake
from bench.engines.base import FEW
from bench.sources.rows import (
    KEYS,
    MERGE_STEP,
    Rows,
    Total,
    large_rows,
    names,
    scattered_rows,
    small_files,
    values,
)
from bench.stage import Held, Stage, timed

_ROW_OF_NO_MERGE = 50  # of each MERGE_STEP; sources for MERGE begin at 0, 1 and 2
_ROW_OF_NO_UPDATE = 500  # of each 1,000; UPDATE changes tenths from the lowest `k` on


def _large(stage: Stage) -> Rows:
    return large_rows(stage.data, stage.sizes.rows, stage.sizes.row_files)


def _small(stage: Stage) -> Rows:
    return small_files(stage.data, stage.sizes.small_files)


def _sum(stage: Stage, name: str, make: Callable[[str], Path], expected: Total) -> float:
    table = stage.keep(name, lambda: make(name))
    seconds, found = timed(lambda: stage.engine.total(table))
    stage.expect(found, expected, table)
    return seconds


def _live(stage: Stage, name: str, rows: Rows) -> Path:
    return stage.table(name, rows.log("live"), rows.data)


def _deleted(stage: Stage, name: str, rows: Rows) -> Path:
    return stage.table(name, rows.log("deleted"), rows.data, rows.vectors)


def of_few(work: Callable[[Stage, int], float]) -> Callable[[Stage, int], float]:
    """A work on the large table, done on one of `few_rows`."""
    return lambda stage, number: work(_with_few(stage), number)


def inserted_into_few(stage: Stage) -> None:
    """As `inserted_few`, of the table of `few_rows`."""
    inserted_few(_with_few(stage))


def _with_few(stage: Stage) -> Stage:
    """The stage whose large table has `few_rows`."""

    def make() -> Stage:
        sizes = replace(stage.sizes, rows=stage.sizes.few_rows, row_files=stage.sizes.few_files)
        scratch = stage.scratch / "few"
        scratch.mkdir()
        return Stage(stage.engine_name, stage.make_engine, sizes, stage.data, scratch)

    return stage.keep("few", make)


def cold_sum(stage: Stage, number: int) -> float:
    """The first statement of all that an engine gets, which has started: sums of `few_rows`."""
    few = _with_few(stage)
    few.engine.is_conflict(Exception())  # started before the clock is
    return sum_rows(few, number)


def clustered_row(stage: Stage, number: int) -> float:
    """One row by its key, of files that have keys of their own. Milliseconds."""
    rows = _large(stage)
    table = stage.keep("clustered", lambda: _live(stage, "clustered", rows))
    return _row_by_key(stage, table, number)


def scattered_row(stage: Stage, number: int) -> float:
    """The same where each file has keys from all over the table, in no order. Milliseconds."""
    rows = scattered_rows(stage.data, stage.sizes.rows, stage.sizes.row_files)
    table = stage.keep("scattered", lambda: _live(stage, "scattered", rows))
    return _row_by_key(stage, table, number)


def _row_by_key(stage: Stage, table: Path, number: int) -> float:
    row = (number * 7_919_111 + stage.sizes.rows // 3) % stage.sizes.rows
    seconds, found = timed(lambda: stage.engine.row(table, row))
    [name] = names(np.array([row], dtype=np.int64))
    stage.expect(found, [(row, row % KEYS, _value(row), name)], f"{table}, {row}")
    return 1_000 * seconds


def sum_rows(stage: Stage, number: int) -> float:
    """The sums of the large table, whose files no engine has written."""
    rows = _large(stage)
    return _sum(stage, "sum", lambda name: _live(stage, name, rows), stage.keep("all", rows.total))


def sum_deleted(stage: Stage, number: int) -> float:
    """The same with a hundredth of the rows deleted by a vector on every file."""
    rows = _large(stage)
    left = stage.keep("left", rows.left)
    return _sum(stage, "sum-deleted", lambda name: _deleted(stage, name, rows), left)


def sum_small_files(stage: Stage, number: int) -> float:
    """The sums of the small files."""
    rows = _small(stage)
    total = stage.keep("small", rows.total)
    return _sum(stage, "sum-small", lambda name: _live(stage, name, rows), total)


def append(stage: Stage, number: int) -> float:
    """Half of the files into a new table, which this makes."""
    rows = _large(stage)
    half = rows.files[: stage.sizes.row_files // 2]
    table = stage.scratch / "appended"
    shutil.rmtree(table, ignore_errors=True)
    seconds, _ = timed(lambda: stage.engine.append(table, half))
    expected = stage.keep("half", Rows(rows.folder, rows.rows // 2).total)
    stage.expect(stage.engine.total(table), expected, table)
    return seconds


def update_one(stage: Stage, number: int) -> float:
    """One row, of a file that no other repeat changes."""
    row = _row(stage, number, 1)
    held = _changing(stage)
    return _changed(stage, held, Total(0, 0, 1.0), lambda: _update(stage, held, f"id = {row}"))


def delete_one(stage: Stage, number: int) -> float:
    """One row, which neither MERGE nor the UPDATE of a tenth would meet."""
    row = _row(stage, number, 2)
    row += (_ROW_OF_NO_MERGE - row) % MERGE_STEP
    while row % 1000 < _ROW_OF_NO_UPDATE:
        row += MERGE_STEP
    held = _changing(stage)
    gone = Total(-1, -(row % 1000), -_value(row))
    return _changed(stage, held, gone, lambda: stage.engine.delete(held.folder, f"id = {row}"))


def update_tenth(stage: Stage, number: int) -> float:
    """The rows of a hundred `k`, which are in every file."""
    low = 100 * number
    held = _changing(stage)
    where = f"k >= {low} AND k < {low + 100}"
    more = Total(0, 0, stage.sizes.rows / 10)
    return _changed(stage, held, more, lambda: _update(stage, held, where))


def merge(stage: Stage, number: int) -> float:
    """A hundredth as many rows as the table has: 99 % matched, 1 % new."""
    held = _changing(stage)
    changes = _large(stage).changes(number)
    rows = stage.sizes.rows // 100
    inserted = sum(1 for i in range(rows) if i * MERGE_STEP + number >= stage.sizes.rows)
    more = Total(inserted, 0, rows * 0.5)
    return _changed(stage, held, more, lambda: stage.engine.merge(held.folder, changes))


def insert_few(stage: Stage, number: int) -> float:
    """A few rows given in the statement."""
    held = _changing(stage)
    first = 10 * stage.sizes.rows * (number + 1)
    seconds, _ = timed(lambda: stage.engine.insert(held.folder, first))
    held.total += Total(FEW, FEW, FEW * 0.5)
    return seconds


def inserted_few(stage: Stage) -> None:
    """Once after all of them: they are there."""
    held = _changing(stage)
    stage.expect(stage.engine.total(held.folder), held.total, held.folder)


def compact_deleted(stage: Stage, number: int) -> float:
    """The large table with a deletion vector on every file."""
    rows = _large(stage)
    table = _deleted(stage, "compacted", rows)
    return _compacted(stage, table, stage.keep("left", rows.left))


def compact_small_files(stage: Stage, number: int) -> float:
    """The small files."""
    rows = _small(stage)
    table = _live(stage, "compacted", rows)
    return _compacted(stage, table, stage.keep("small", rows.total))


def _compacted(stage: Stage, table: Path, expected: Total) -> float:
    before = txlake.Log(table).snapshot().files()
    seconds, _ = timed(lambda: stage.engine.compact(table))
    after = txlake.Log(table).snapshot().files()
    kept = set(before["path"].to_pylist()) & set(after["path"].to_pylist())
    stage.expect(len(kept), 0, f"{table}: files left as they were")
    stage.expect(stage.engine.total(table), expected, table)
    return seconds


def _changing(stage: Stage) -> Held:
    def make() -> Held:
        rows = _large(stage)
        table = _live(stage, "changing", rows)
        return Held(table, stage.keep("all", rows.total))

    return stage.keep("changing", make)


def _update(stage: Stage, held: Held, where: str) -> None:
    stage.engine.update(held.folder, where)


def _row(stage: Stage, number: int, of: int) -> int:
    """A row in the middle of one of the files, each repeat in another."""
    files = stage.sizes.row_files
    per_file = stage.sizes.rows // files
    return ((2 * number + of) % files) * per_file + per_file // 2


def _value(row: int) -> float:
    return float(values(np.array([row], dtype=np.int64))[0])


def _changed(stage: Stage, held: Held, more: Total, change: Callable[[], None]) -> float:
    seconds, _ = timed(change)
    held.total += more
    stage.expect(stage.engine.total(held.folder), held.total, held.folder)
    return seconds
