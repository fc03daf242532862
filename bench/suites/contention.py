"""The works of many writers at once: rows of their own in one file, the same rows, a compactor.

Each UPDATE changes one row. One that is aborted isn't tried again. Every table is checked: as many
changes as were committed are in it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from bench.engines import ENGINES
from bench.engines.base import Engine
from bench.points import note, typical, worst_step
from bench.sources.rows import Total, large_rows
from bench.stage import Stage

UPDATES = 4
"""Statements of each writer."""
COMPACTED_ROWS, COMPACTED_FILES = 200_000, 10
COMPACTED_UPDATES = 20
_READY_S = 300


@dataclass(frozen=True, slots=True)
class _Ended:
    """One writer's statements: seconds of each that was committed, and when it began and ended."""

    committed: tuple[float, ...]
    aborted: int
    began: float
    ended: float


def writers(
    count: int, *, same_rows: bool = False, processes: bool = False
) -> Callable[[Stage, int], float]:
    """The work of that many writers: milliseconds for each UPDATE that was committed.

    Each writer has rows of its own, unless they have the `same_rows`; they are threads, or
    `processes`, each with an engine of its own.
    """
    name = (
        f"{count} writers"
        + (", same rows" if same_rows else "")
        + (", processes" if processes else "")
    )

    def run(stage: Stage, number: int) -> float:
        rows = large_rows(stage.data, stage.sizes.rows, stage.sizes.row_files)
        table = stage.table(f"contended {name}", rows.log("live"), rows.data)
        ids = [
            range(0 if same_rows else own * UPDATES, _last(own, same_rows)) for own in range(count)
        ]
        ended = _processes(stage, table, ids) if processes else _threads(stage, table, ids)
        _check(stage, table, stage.keep("all", rows.total), ended)
        _tell(stage, name, table, ended)
        return _ms_each(ended)

    return run


REAL_WRITERS = (1, 2, 4, 8, 16)
COMMITS = 64
"""Statements at each number of writers in a round."""
ROUNDS, ROUNDS_S = 9, 280


def more_writers(stage: Stage, number: int) -> float:
    """By how much a committed UPDATE costs more, at worst, than with fewer writers: commits a
    second never fall where it is 1.

    The writers are threads that change rows of their own, as many statements together whatever
    their number. The numbers take turns, for some rounds, in which a machine's pace changes by
    more than the numbers differ: what counts of each is the median of its costs in proportion to
    their round's.
    """
    rounds: list[list[float]] = []
    began = time.monotonic()
    while len(rounds) < ROUNDS and time.monotonic() < began + ROUNDS_S:
        turns = REAL_WRITERS[:: -1 if len(rounds) % 2 else 1]
        costs = {count: _as_many(stage, count, len(rounds)) for count in turns}
        rounds.append([costs[count] for count in REAL_WRITERS])
    took = typical(rounds)
    for count, cost in zip(REAL_WRITERS, took, strict=True):
        note(stage, "writers", "an UPDATE of 1 row", count, cost)
    return worst_step(took)


def _as_many(stage: Stage, count: int, turn: int) -> float:
    """The milliseconds of each of as many statements by that many writers.

    Before, each writer has changed one row of another table: a session's and a thread's first
    statement count for nobody.
    """
    rows = large_rows(stage.data, stage.sizes.rows, stage.sizes.row_files)
    name = f"{COMMITS} rows, {count} writers"
    each = COMMITS // count
    ids = [range(own * each, (own + 1) * each) for own in range(count)]
    table, other = (
        stage.table(f"contended {name} {turn}{which}", rows.log("live"), rows.data)
        for which in ("", " before")
    )
    ended = _threads(stage, table, ids, before=other)
    _check(stage, table, stage.keep("all", rows.total), ended)
    _tell(stage, name, table, ended)
    return _ms_each(ended)


def _ms_each(ended: Sequence[_Ended]) -> float:
    """Milliseconds for each statement that was committed."""
    return 1_000 * _seconds(ended) / max(sum(len(one.committed) for one in ended), 1)


def _last(own: int, same_rows: bool) -> int:
    return UPDATES if same_rows else (own + 1) * UPDATES


def beside_a_compactor(stage: Stage, number: int) -> float:
    """The 99th percentile of an UPDATE's milliseconds while another compacts the table, again and
    again; among the details the same without.
    """
    rows = large_rows(stage.data, COMPACTED_ROWS, COMPACTED_FILES)
    total = stage.keep("compacted", rows.total)
    ids = [range(0, COMPACTED_ROWS, COMPACTED_ROWS // COMPACTED_UPDATES)]
    values = []
    for name in ("1 writer alone", "1 writer, a compactor"):
        table = stage.table(f"contended {name}", rows.log("live"), rows.data)
        with compacted(stage.engine.beside(), table, name.endswith("compactor")) as lost:
            ended = _threads(stage, table, ids)
        _check(stage, table, total, ended)
        _tell(stage, name, table, ended)
        stage.details[f"{name}: compactions aborted"] = float(len(lost))
        values.append(_percentile(ended, 99))
    return values[-1]


@contextmanager
def compacted(engine: Engine, table: Path, is_wanted: bool) -> Iterator[list[Exception]]:
    """Compacts the table over and over in a thread meanwhile; gives the conflicts that it met."""
    lost: list[Exception] = []
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            try:
                engine.compact(table)
            except Exception as error:  # each engine has its own
                if not engine.is_conflict(error):
                    raise
                lost.append(error)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run) if is_wanted else None
        try:
            yield lost
        finally:
            over.set()
    if running is not None:
        running.result()


def _check(stage: Stage, table: Path, before: Total, ended: Sequence[_Ended]) -> None:
    changes = sum(len(one.committed) for one in ended)
    stage.expect(stage.engine.total(table), before + Total(0, 0, float(changes)), table)


def _tell(stage: Stage, name: str, table: Path, ended: Sequence[_Ended]) -> None:
    committed = sum(len(one.committed) for one in ended)
    stage.details[f"{name}: versions that commits were rebased over"] = float(_rebased(table))
    stage.details[f"{name}: committed"] = float(committed)
    stage.details[f"{name}: aborted"] = float(sum(one.aborted for one in ended))
    stage.details[f"{name}: committed a second"] = committed / _seconds(ended)
    for percent in (50, 99):
        stage.details[f"{name}: p{percent} ms"] = _percentile(ended, percent)


def _rebased(table: Path) -> int:
    """How many versions came between those that were read and those that were made."""
    between = 0
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            read = json.loads(line).get("commitInfo", {}).get("readVersion")
            if read is not None:
                between += int(commit.stem) - 1 - int(read)
    return between


def _seconds(ended: Sequence[_Ended]) -> float:
    return max(one.ended for one in ended) - min(one.began for one in ended)


def _percentile(ended: Sequence[_Ended], percent: int) -> float:
    """Of the milliseconds of statements that were committed; 0 when none was."""
    seconds = [each for one in ended for each in one.committed]
    return 1_000 * float(np.percentile(seconds, percent)) if seconds else 0.0


def _threads(
    stage: Stage, table: Path, ids: Sequence[range], *, before: Path | None = None
) -> list[_Ended]:
    """Each writer's statements, in a thread of its own; `before`: a table where each changes one
    row first.
    """
    engines = [stage.engine.beside() for _ in ids]
    start = threading.Barrier(len(ids))

    def write(own: int) -> _Ended:
        if before is not None:
            _updates(engines[own], before, ids[own][:1])
        start.wait()
        return _updates(engines[own], table, ids[own])

    with ThreadPoolExecutor(len(ids)) as pool:
        return list(pool.map(write, range(len(ids))))


_start: Barrier


def _processes(stage: Stage, table: Path, ids: Sequence[range]) -> list[_Ended]:
    context = get_context("spawn")
    start = context.Barrier(len(ids))
    tasks = [
        (stage.engine_name, str(stage.scratch / f"process {own}"), str(table), each)
        for own, each in enumerate(ids)
    ]
    with context.Pool(len(ids), _wait_at, (start,)) as pool:
        return pool.starmap(_process, tasks, 1)


def _wait_at(start: Barrier) -> None:
    """Each process knows where to meet the others."""
    global _start
    _start = start


def _process(engine_name: str, scratch: str, table: str, ids: range) -> _Ended:
    """One process's statements; an engine that has run some begins when all have."""
    engine = ENGINES[engine_name](Path(scratch))
    for _ in range(2):
        engine.update(Path(table), "id < 0")
    _start.wait(timeout=_READY_S)
    return _updates(engine, Path(table), ids)


def _updates(engine: Engine, table: Path, ids: range) -> _Ended:
    aborted, committed = 0, []
    began = time.monotonic()
    for row in ids:
        start = time.monotonic()
        try:
            engine.update(table, f"id = {row}")
        except Exception as error:  # each engine has its own
            if not engine.is_conflict(error):
                raise
            aborted += 1
        else:
            committed.append(time.monotonic() - start)
    return _Ended(tuple(committed), aborted, began, time.monotonic())
