"""The works on transactions over two tables, beside the engine that has such transactions too.

One writer's are timed one by one; of many processes' the time of all over those that were
committed. One that is aborted isn't tried again. Each work checks that what was committed, and no
more, is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from bench.engines.transactions import Transaction, transactions_of
from bench.sources.lakes import new_postgresql
from bench.stage import Stage

EACH = 8
"""Transactions of each of many writers."""
_TABLES = ("orders", "payments")
_READY_S = 300
Told = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Ended:
    """One writer's transactions: milliseconds of each, None for an aborted one."""

    took: Told
    began: float
    ended: float


def one_writer(make: Callable[[int], Transaction]) -> Callable[[Stage, int], float]:
    """The median of a transaction's milliseconds, of one writer who begins with tables of one row.

    The 95th percentile is among the details.
    """

    def run(stage: Stage, number: int) -> float:
        count = stage.sizes.transactions // 80
        folder = stage.scratch / f"{make.__name__} {number}"
        with transactions_of(stage.engine_name, folder) as lake:
            lake.run([_made(1)])
            took = _committed(lake.run([make(one) for one in range(count)]))
            stage.expect(len(took), count, "committed")
            stage.expect(lake.number("SELECT count(*) FROM orders"), 1 + count, "orders")
        stage.details[f"{make.__name__}: p95 ms"] = float(np.percentile(took, 95))
        return float(np.median(took))

    return run


def two_rows(number: int) -> Transaction:
    """A row more in each of two tables."""
    return [f"INSERT INTO {table} VALUES ('o', {number})" for table in _TABLES]


def an_order(number: int) -> Transaction:
    """A row more in one table, and a row changed in the other."""
    return [
        f"INSERT INTO orders VALUES ('o', {number})",
        "UPDATE payments SET n = n + 1 WHERE k = 'row 0'",
    ]


def race(count: int, database: str, *, same_rows: bool) -> Callable[[Stage, int], float]:
    """Milliseconds for each transaction that was committed, of so many processes at once.

    Each changes a row of both tables: rows of its own, or the same as all others.
    """
    name = f"{count} processes, {database}{', same rows' if same_rows else ''}"

    def run(stage: Stage, number: int) -> float:
        folder = stage.scratch / f"{name} {number}"
        catalog = _catalog(stage.engine_name, database)
        with transactions_of(stage.engine_name, folder, catalog) as lake:
            lake.run([_made(count)])
            rows = [0 if same_rows else own for own in range(count)]
            ended = _raced(stage.engine_name, folder, catalog, rows)
            committed = sum(len(_committed(one.took)) for one in ended)
            for table in _TABLES:
                stage.expect(lake.number(f"SELECT sum(n) FROM {table}"), committed, table)
        seconds = max(one.ended for one in ended) - min(one.began for one in ended)
        stage.details[f"{name}: committed"] = float(committed)
        stage.details[f"{name}: aborted"] = float(count * EACH - committed)
        return 1_000 * seconds / max(committed, 1)

    return run


def _made(rows: int) -> Transaction:
    """Both tables with so many rows."""
    values = ", ".join(f"('row {one}', 0)" for one in range(rows))
    makes = [f"CREATE TABLE {table} (k STRING, n BIGINT)" for table in _TABLES]
    return [*makes, *(f"INSERT INTO {table} VALUES {values}" for table in _TABLES)]


def _committed(took: Told) -> list[float]:
    return [one for one in took if one is not None]


def _catalog(engine: str, database: str) -> str | None:
    """What the engine calls a new catalog in that database; None for its own file of SQLite."""
    if database == "SQLite":
        return None
    return new_postgresql(of_libpq=engine == "ducklake")


_start: Barrier


def _raced(engine: str, folder: Path, catalog: str | None, rows: Sequence[int]) -> list[_Ended]:
    context = get_context("spawn")
    start = context.Barrier(len(rows))
    tasks = [(engine, str(folder), catalog, row) for row in rows]
    with context.Pool(len(rows), _wait_at, (start,)) as pool:
        return pool.starmap(_process, tasks, 1)


def _wait_at(start: Barrier) -> None:
    """Each process knows where to meet the others."""
    global _start
    _start = start


def _process(engine: str, folder: str, catalog: str | None, row: int) -> _Ended:
    change = [f"UPDATE {table} SET n = n + 1 WHERE k = 'row {row}'" for table in _TABLES]
    nothing = [f"UPDATE {table} SET n = n + 1 WHERE k = 'nobody'" for table in _TABLES]
    with transactions_of(engine, Path(folder), catalog) as lake:
        lake.run([nothing] * 2)  # has everything loaded
        _start.wait(timeout=_READY_S)
        began = time.monotonic()
        took = lake.run([change] * EACH)
        return _Ended(took, began, time.monotonic())
