"""The works on growth: a cost at a hundredth of a size, a tenth of it, and all of it.

The value is by how much the cost grows with the last tenfold. Growth in commits, in the tables of
a transaction and in writers is measured by works of other suites.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from bench.engines.base import FEW
from bench.points import note, tenths
from bench.sources.rows import Rows, Total, large_rows, small_files
from bench.stage import Held, Stage, timed

_TIMES = 3
Cost = Callable[[Stage, Held, int], float]


def in_rows(cost: Cost, name: str) -> Callable[[Stage, int], float]:
    """The work on a cost as the rows grow, in as many files."""

    def sources(stage: Stage) -> dict[int, Rows]:
        files = stage.sizes.row_files
        return {each: large_rows(stage.data, each, files) for each in tenths(stage.sizes.rows)}

    return _work("rows", cost, name, sources)


def in_files(cost: Cost, name: str) -> Callable[[Stage, int], float]:
    """The work on a cost as files of a hundred rows grow in number."""

    def sources(stage: Stage) -> dict[int, Rows]:
        return {each: small_files(stage.data, each) for each in tenths(stage.sizes.small_files)}

    return _work("files", cost, name, sources)


def total(stage: Stage, held: Held, number: int) -> float:
    """Sum over all rows."""
    seconds, found = timed(lambda: stage.engine.total(held.folder))
    stage.expect(found, held.total, held.folder)
    return seconds


def update(stage: Stage, held: Held, number: int) -> float:
    """One row is changed."""
    seconds, _ = timed(lambda: stage.engine.update(held.folder, f"id = {7 * number + 3}"))
    held.total += Total(0, 0, 1.0)
    stage.expect(stage.engine.total(held.folder), held.total, held.folder)
    return seconds


def insert(stage: Stage, held: Held, number: int) -> float:
    """A few rows given in the statement."""
    first = 10 * stage.sizes.rows * (number + 1)
    seconds, _ = timed(lambda: stage.engine.insert(held.folder, first))
    held.total += Total(FEW, FEW, FEW * 0.5)
    stage.expect(stage.engine.total(held.folder), held.total, held.folder)
    return seconds


def _work(
    axis: str, cost: Cost, name: str, sources: Callable[[Stage], dict[int, Rows]]
) -> Callable[[Stage, int], float]:
    def run(stage: Stage, number: int) -> float:
        took = []
        for size, rows in sources(stage).items():
            held = Held(_table(stage, axis, rows), rows.total())
            once = cost(stage, held, 0)  # has the table's log open, as the next one's would be
            each = [cost(stage, held, 1 + more) for more in range(_TIMES)]
            took.append(1_000 * statistics.median(each))
            note(stage, axis, name, size, took[-1])
            stage.details[f"first on {size} {axis}: {name}"] = 1_000 * once
        return took[-1] / took[-2]

    return run


def _table(stage: Stage, axis: str, rows: Rows) -> Path:
    return stage.table(f"growing {axis}", rows.log("live"), rows.data)
