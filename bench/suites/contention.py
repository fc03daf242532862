"""The works of many writers at once, who change different rows of one file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.engines.base import Engine
from bench.sources.rows import Total, large_rows
from bench.stage import Stage, timed

UPDATES = 4
"""Statements of each writer; one that is aborted isn't tried again."""


@dataclass(frozen=True, slots=True)
class _Ended:
    committed: int
    aborted: int


def writers(count: int) -> Callable[[Stage, int], float]:
    """The work of that many writers: milliseconds for each UPDATE that was committed."""

    def run(stage: Stage, number: int) -> float:
        rows = large_rows(stage.data, stage.sizes.rows, stage.sizes.row_files)
        table = stage.table(f"contended-{count}", rows.log("live"), rows.data)
        engines = [stage.engine.beside() for _ in range(count)]
        start = threading.Barrier(count)

        def write(own: int) -> _Ended:
            start.wait()
            return _updates(engines[own], table, range(own * UPDATES, (own + 1) * UPDATES))

        with ThreadPoolExecutor(count) as pool:
            seconds, ended = timed(lambda: list(pool.map(write, range(count))))
        committed = sum(one.committed for one in ended)
        total = stage.keep("all", rows.total) + Total(0, 0, float(committed))
        stage.expect(stage.engine.total(table), total, table)
        stage.details[f"aborted of {count * UPDATES}, {count} writers"] = float(
            sum(one.aborted for one in ended)
        )
        return 1_000 * seconds / max(committed, 1)

    return run


def _updates(engine: Engine, table: Path, ids: range) -> _Ended:
    aborted = 0
    for row in ids:
        try:
            engine.update(table, f"id = {row}")
        except Exception as error:  # each engine has its own
            if not engine.is_conflict(error):
                raise
            aborted += 1
    return _Ended(len(ids) - aborted, aborted)
