"""Many writers at once: processes and threads, on tables by name and by place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import txlake
from tests.lake.programs import together
from tests.lake.rows import number, query, rows
from txlake.errors import ConcurrentAppendException, ConcurrentDeleteDeleteException, Conflict

Value = TypeVar("Value")

# Appends without Spark: what the driver holds it writes itself.
APPENDS = """
import sys
import pyarrow as pa
import txlake

warehouse, table, worker, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lake = txlake.connect(warehouse)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    rows = pa.table({"worker": [worker], "number": [number]})
    lake.run(lambda tx: tx.write(rows, table, "append"), attempts=20)
assert not lake._session.engine.plane.is_started
"""


@pytest.mark.broad
@pytest.mark.parametrize(("kind", "count"), [("name", 3), ("place", 10)])
def test_processes_append_to_a_table_that_one_of_them_makes(
    lake: txlake.Lake, tmp_path: Path, kind: str, count: int
) -> None:
    warehouse = tmp_path / "warehouse"
    table = "sales.hits" if kind == "name" else str(tmp_path / "by place")
    together(APPENDS, [(warehouse, table, worker, count) for worker in range(4)])
    assert rows(lake.read(table)) == [(w, n) for w in range(4) for n in range(count)]
    history = lake.table(table).history().collect()
    assert [row.version for row in history] == list(range(4 * count - 1, -1, -1))
    if kind == "name":
        assert query(lake, "SHOW TABLES IN sales") == [("sales", "hits", False)]


@pytest.mark.broad
def test_no_update_is_lost(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE counters (id INT, n INT)")
    lake.sql("INSERT INTO counters VALUES (1, 0), (2, 0)")
    barrier = threading.Barrier(3)
    tried: Counter[int] = Counter()

    def worker(own: int) -> None:
        def add(tx: txlake.Transaction) -> None:
            tried[own] += 1
            before = number(tx, "SELECT n FROM counters WHERE id = 1")
            assert isinstance(before, int)
            tx.sql("UPDATE counters SET n = :n WHERE id = 1", args={"n": before + 1})

        with lake.session() as session:
            barrier.wait(120)
            for _ in range(3):
                session.run(add, attempts=50)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(worker, range(3)))
    assert query(lake, "SELECT * FROM counters") == [(1, 9), (2, 0)]
    assert sum(tried.values()) > 9  # some lost, and ran again
    assert lake.table("counters").history(1).collect()[0].version == 10


class Actor:
    """A session in a thread of its own; what it is told to do is done before the next is told."""

    def __init__(self, lake: txlake.Lake) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.session = self.does(lake.session)

    def does(self, work: Callable[[], Value]) -> Value:
        return self._pool.submit(work).result(300)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return self.does(lambda: rows(self.session.sql(text)))

    def close(self) -> None:
        self.does(self.session.close)
        self._pool.shutdown()


@pytest.fixture
def two(lake: txlake.Lake) -> Callable[[], tuple[Actor, Actor]]:
    """Two sessions in two threads, on a lake with a table `t` of two partitions."""
    lake.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    return lambda: (Actor(lake), Actor(lake))


def test_two_sessions_in_two_threads(two: Callable[[], tuple[Actor, Actor]]) -> None:
    one, other = two()
    one.sql("BEGIN")
    other.sql("BEGIN")
    assert one.sql("UPDATE t SET id = 10 WHERE p = 1") == [(1,)]
    assert other.sql("UPDATE t SET id = 20 WHERE p = 2") == [(1,)]
    assert one.sql("SELECT * FROM t") == [(10, 1), (2, 2)]
    assert other.sql("SELECT * FROM t") == [(1, 1), (20, 2)]
    other.sql("COMMIT")
    assert one.sql("SELECT * FROM t") == [(10, 1), (2, 2)]
    one.sql("COMMIT")
    assert other.sql("SELECT * FROM t") == [(10, 1), (20, 2)]
    one.close()
    other.close()


def test_the_first_to_commit_wins(two: Callable[[], tuple[Actor, Actor]]) -> None:
    one, other = two()
    for actor in (one, other):
        actor.sql("BEGIN")
        actor.sql("DELETE FROM t WHERE p = 1")
    one.sql("COMMIT")
    with pytest.raises((ConcurrentDeleteDeleteException, Conflict)):
        other.sql("COMMIT")
    assert other.sql("SELECT * FROM t") == [(2, 2)]
    other.sql("BEGIN; DELETE FROM t WHERE p = 2; COMMIT")
    assert one.sql("SELECT * FROM t") == []
    one.close()
    other.close()


def test_a_level_holds_for_its_own_session(two: Callable[[], tuple[Actor, Actor]]) -> None:
    one, other = two()
    one.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    for actor in (one, other):
        actor.sql("BEGIN")
        actor.sql("DELETE FROM t WHERE p = 1 AND id < 0")
        actor.sql("DELETE FROM t WHERE p = 1" if actor is one else "DELETE FROM t WHERE p = 2")
    third = one.does(one.session.session)
    third.write(pa.table({"id": [7], "p": pa.array([1], pa.int32())}), "t", "append")
    with pytest.raises(ConcurrentAppendException):
        one.sql("COMMIT")
    other.sql("COMMIT")
    assert other.sql("SELECT * FROM t") == [(1, 1), (7, 1)]
    one.close()
    other.close()
