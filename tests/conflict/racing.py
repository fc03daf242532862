"""Transactions that race on one file: what they do, in words short enough for a table of cases."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.conflict.histories import History, Transaction, between
from txlake.protocol.sources import Source

Do = Callable[[Transaction], None]


def delete(low: int, high: int | None = None) -> Do:
    return lambda one: one.change(between(low, low if high is None else high), None)


def update(low: int, high: int | None = None) -> Do:
    ends = between(low, low if high is None else high)
    return lambda one: one.change(ends, lambda row: (row[0], row[1] + 10))


def compact(number: int, *, recorded: bool = True) -> Do:
    return lambda one: one.compact(number, recorded=recorded)


def compact_elsewhere(number: int, *order: int, outputs: int = 1) -> Do:
    return lambda one: one.compact_elsewhere(number, order or (0,), outputs)


def copy(low: int, high: int) -> Do:
    return lambda one: one.insert_select(between(low, high), 100)


def committed(history: History, *work: Do) -> None:
    """One transaction after the other, nobody beside them."""
    for number, do in enumerate(work):
        one = history.begin(f"before {number}")
        do(one)
        assert history.commit(one)


def race(history: History, *work: Do) -> list[bool]:
    """Transactions on one version that commit in this order; which of them did."""
    transactions = [history.begin(f"racer {number}") for number in range(len(work))]
    for one, do in zip(transactions, work, strict=True):
        do(one)
    outcome = [history.commit(one) for one in transactions]
    history.check_rows()
    history.check_order()
    return outcome


def ids(history: History) -> list[int]:
    return sorted(row.id for row in history.rows())


def compacted(history: History, *parts: tuple[int, int, list[tuple[int, int, int]]]) -> Transaction:
    """A compaction whose outputs hold rows from one to another, and say of which (file, first,
    count); no runs say nothing.
    """
    compaction = history.begin("compaction")
    files = list(history.newest.files.adds())
    rows = [row for file in files for row in history.disk.files[file.path]]
    for start, end, runs in parts:
        sources = [
            Source(path=files[number].path, vector_id=None, first=first, rows=count)
            for number, first, count in runs
        ]
        output = history.disk.write(rows[start:end], sources=sources)
        compaction.stage(msgspec.structs.replace(output, data_change=False))
    compaction.stage(*[file.tombstone(timestamp_ms=1, data_change=False) for file in files])
    return compaction
