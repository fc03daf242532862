"""Processes that write one log all the time: each gets its share, and the log stays busy."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.replicated.stores import FaultyStore
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.turns import WriterTurns
from txlake.catalog.schema import upgrade
from txlake.storage import open_store
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")
LATENCY_S = 0.01


def written(folder: Path, count: int, seconds: float) -> tuple[list[int], float]:
    """How many entries each of `count` processes wrote, and the longest that one had to wait."""
    databases = [
        ReplicatedDatabase(FaultyStore(open_store(folder), LATENCY_S), System())
        for _ in range(count)
    ]
    databases[0].write(lambda connection: upgrade(databases[0], connection))
    counts, longest = [0] * count, [0.0] * count
    end = time.monotonic() + seconds

    def run(number: int) -> None:
        insert = sa.text("INSERT INTO txlake_facts VALUES (:name, '')")
        while (begun := time.monotonic()) < end:
            row = {"name": f"{number} {counts[number]}"}
            databases[number].write(partial(_execute, insert, row))
            counts[number] += 1
            longest[number] = max(longest[number], time.monotonic() - begun)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for database in databases:
        database.close()
    return counts, max(longest)


def _execute(insert: sa.TextClause, row: dict[str, str], connection: sa.Connection) -> None:
    connection.execute(insert, row)


def shares(counts: list[int]) -> list[float]:
    return [len(counts) * each / sum(counts) for each in counts]


@pytest.mark.parametrize("count", [2, 4])
def test_each_gets_its_share(tmp_path: Path, count: int) -> None:
    counts, longest = written(tmp_path, count, 4.0)
    assert min(shares(counts)) > 0.5, counts
    assert sum(counts) > 0.2 * 4.0 / LATENCY_S, counts
    assert longest < 200 * LATENCY_S


def test_one_alone_waits_for_nobody(tmp_path: Path) -> None:
    counts, _ = written(tmp_path, 1, 2.0)
    assert sum(counts) > 0.5 * 2.0 / LATENCY_S


def test_a_newcomer_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a writer that knows no turns it claims one."""
    wait = WriterTurns.wait
    greedy: set[object] = set()

    def without_turns(self: WriterTurns) -> None:
        if not greedy:
            greedy.add(self)
        if self not in greedy:
            wait(self)

    monkeypatch.setattr(WriterTurns, "wait", without_turns)
    counts, _ = written(tmp_path, 2, 3.0)
    assert min(counts) > 0, counts
