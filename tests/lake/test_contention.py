"""Many writers of one file and a compactor: in threads that race, and in schedules by seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import txlake
from tests.lake.rows import query
from txlake.errors import Conflict

pytestmark = pytest.mark.broad(keep=1)


def filled(lake: txlake.Lake, files: Sequence[range]) -> str:
    """A table `t` with a file for each range of ids, `n` 0 everywhere; its place."""
    lake.sql("CREATE TABLE t (id BIGINT, n BIGINT)")
    for ids in files:
        lake.write(pa.table({"id": pa.array(ids, pa.int64()), "n": [0] * len(ids)}), "t", "append")
    location = lake.table("t").detail().collect()[0].location
    assert isinstance(location, str)
    return location


def rows_of(lake: txlake.Lake, place: str) -> dict[int, int]:
    """The rows, of which delta-rs and Spark say the same."""
    table = QueryBuilder().register("t", DeltaTable(place))
    rows = pa.table(table.execute("SELECT id, n FROM t").read_all())
    found = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    assert dict(query(lake, "SELECT id, n FROM t")) == found  # type: ignore[arg-type]
    return found


def together(lake: txlake.Lake, programs: Sequence[Sequence[str]]) -> None:
    """Each list of statements in a session and a thread of its own, all at once."""
    barrier = threading.Barrier(len(programs))

    def run(statements: Sequence[str]) -> None:
        with lake.session() as session:
            barrier.wait(120)
            for statement in statements:
                session.sql(statement)

    with ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(run, programs))


def adding(ids: Sequence[int]) -> list[str]:
    return [f"UPDATE t SET n = n + 1 WHERE id = {one}" for one in ids]


def test_none_of_31_updates_of_one_file_is_aborted(lake: txlake.Lake) -> None:
    place = filled(lake, [range(31)])
    together(lake, [adding(range(first, 31, 4)) for first in range(4)])
    assert rows_of(lake, place) == dict.fromkeys(range(31), 1)
    assert lake.table("t").history(1).collect()[0].version == 1 + 31
    assert lake.conflicts().count() == 0


def test_a_compactor_disturbs_no_writer_and_no_writer_it(lake: txlake.Lake) -> None:
    place = filled(lake, [range(8), range(8, 16)])
    writers = [adding(range(first, 16, 4)) for first in range(4)]
    together(lake, [*writers, ["OPTIMIZE t"] * 4])
    assert rows_of(lake, place) == dict.fromkeys(range(16), 1)
    assert lake.conflicts().count() == 0


# Schedules


@dataclass(frozen=True)
class Statement:
    """A statement over some rows, and what it makes of them."""

    text: str
    ids: frozenset[int] = frozenset()
    inserts: bool = False
    value: Callable[[int], int | None] = lambda _: None

    def touches(self, rows: dict[int, int]) -> frozenset[int]:
        """The rows that it changes or inserts."""
        return self.ids if self.inserts else self.ids & rows.keys()

    def run(self, rows: dict[int, int]) -> None:
        for one in self.touches(rows):
            value = self.value(rows.get(one, 0))
            if value is None:
                del rows[one]
            else:
                rows[one] = value


@dataclass(frozen=True)
class Held:
    """A transaction that has run its statement, and commits when it is its turn."""

    tx: txlake.Transaction
    statement: Statement
    touched: frozenset[int]
    began: int


MERGE = (
    "MERGE INTO t USING (SELECT * FROM VALUES {} AS v (id, n)) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def drawn(dice: random.Random) -> Statement:
    low = dice.randrange(8)
    ids = frozenset(range(low, low + dice.choice([1, 1, 3])))
    condition = f"id >= {low} AND id <= {max(ids)}"
    source = ", ".join(f"({one}L, 50L)" for one in sorted(ids))
    kinds = [
        Statement(f"UPDATE t SET n = n + 1 WHERE {condition}", ids, value=lambda n: n + 1),
        Statement(f"DELETE FROM t WHERE {condition}", ids),
        Statement(MERGE.format(source), ids, inserts=True, value=lambda _: 50),
        Statement("OPTIMIZE t"),
    ]
    return dice.choices(kinds, [4, 1, 2, 2])[0]


@pytest.mark.parametrize("seed", range(4))
def test_who_meets_nobody_commits_and_who_meets_another_does_not(
    lake: txlake.Lake, seed: int
) -> None:
    dice = random.Random(seed)
    place = filled(lake, [range(4), range(4, 8)])
    rows = dict.fromkeys(range(8), 0)
    held: list[Held] = []
    committed: list[frozenset[int]] = []
    outcomes: list[bool] = []
    for _ in range(20):
        if len(held) < 3 or (len(held) < 5 and dice.random() < 0.5):
            statement, tx = drawn(dice), lake.begin()
            tx.sql(statement.text)
            held.append(Held(tx, statement, statement.touches(rows), began=len(committed)))
            continue
        one = held.pop(dice.randrange(len(held)))
        since = frozenset[int]().union(*committed[one.began :])
        meets = bool(one.touched) and not since.isdisjoint(one.statement.ids)
        try:
            one.tx.commit()
        except Conflict:
            assert meets, one
        else:
            assert not meets, one
            committed.append(one.touched)
            if one.touched:
                one.statement.run(rows)
        outcomes.append(meets)
    for one in held:
        one.tx.rollback()
    assert rows_of(lake, place) == rows
    assert set(outcomes) == {True, False}
