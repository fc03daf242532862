"""Histories by seeds: each version's change data feed leads from the previous rows to its own.

Rows have a key that no statement changes, so that each row's own history is known, with the kind of
each change. OVERWRITE and RESTORE replace rows by others of the same key, and are tested apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.commit.table_log import TableLog
from txlake.errors import Conflict
from txlake.protocol.actions import Action, Add, Remove
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

_numbers = count()
FEED = "delta.enableChangeDataFeed = true"
KINDS = ("insert", "delete", "update_preimage", "update_postimage")

TABLES = {
    "vectors": ("", FEED),
    "copies": ("", f"{FEED}, delta.enableDeletionVectors = false"),
    "partitions": ("PARTITIONED BY (p)", FEED),
    "copies in partitions": ("PARTITIONED BY (p)", f"{FEED}, delta.enableDeletionVectors = false"),
    "tracked rows": ("", f"{FEED}, delta.enableRowTracking = true"),
    "mapped by name": ("PARTITIONED BY (p)", f"{FEED}, delta.columnMapping.mode = name"),
}
Row = tuple[object, ...]


@pytest.fixture
def session() -> Iterator[RowSession]:
    warehouse = open_store(f"memory://feed-{next(_numbers)}", {})
    system = System()
    catalog = Catalog("sqlite://", system)
    engine = RowEngine(system=system, settings=Settings(), warehouse=warehouse, catalog=catalog)
    yield RowSession(engine)
    engine.close()


def create(session: RowSession, kind: str) -> None:
    clause, properties = TABLES[kind]
    session.rows(
        f"CREATE TABLE t (id BIGINT, p STRING, n INT) {clause} TBLPROPERTIES ({properties})"
    )


def rows_at(session: RowSession, version: int) -> Counter[Row]:
    return Counter(
        tuple(row.values()) for row in session.rows(f"SELECT * FROM t VERSION AS OF {version}")
    )


def feed(session: RowSession, version: int) -> dict[str, Counter[Row]]:
    """Return the rows of a version's changes, by kind."""
    found: dict[str, Counter[Row]] = {kind: Counter() for kind in KINDS}
    for row in session.rows(f"SELECT * FROM table_changes('t', {version}, {version})"):
        *values, kind, told, moment = row.values()
        assert told == version
        assert moment is not None
        found[str(kind)][tuple(values)] += 1
    return found


def check_difference(session: RowSession, version: int) -> dict[str, Counter[Row]]:
    """Check that a version's feed leads from the previous rows to its own."""
    changes = feed(session, version)
    before, after = rows_at(session, version - 1), rows_at(session, version)
    gone = changes["delete"] + changes["update_preimage"]
    new = changes["insert"] + changes["update_postimage"]
    assert not gone - before, version
    assert before - gone + new == after, version
    return changes


def check_kinds(session: RowSession, version: int) -> None:
    """Check that each row's change has the right kind, and that unchanged rows aren't in the
    feed.
    """
    changes = check_difference(session, version)
    before = {row[0]: row for row in rows_at(session, version - 1)}
    after = {row[0]: row for row in rows_at(session, version)}
    assert {row[0] for row in changes["delete"]} == before.keys() - after.keys()
    assert {row[0] for row in changes["insert"]} == after.keys() - before.keys()
    changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    told = {row[0] for row in changes["update_preimage"]}
    assert told == {row[0] for row in changes["update_postimage"]}
    assert changed <= told
    assert all(number == 1 for rows in changes.values() for number in rows.values())


def actions_of(session: RowSession, version: int) -> tuple[Action, ...]:
    """Return the actions of a version's commit."""
    [place] = {str(row["location"]) for row in session.rows("DESCRIBE DETAIL t")}
    log = TableLog(open_store(place, {}), session.engine.system, Settings())
    [commit] = log.commits(version - 1, version)
    return commit.actions


def newest(session: RowSession) -> int:
    return max(int(str(row["version"])) for row in session.rows("DESCRIBE HISTORY t"))


class Program:
    """Random statements by a seed; keys are never reused or changed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._keys = count(1)

    def values(self, number: int) -> str:
        draw = self._random
        rows = [
            f"({next(self._keys)}, '{draw.choice('abc')}', {draw.randint(0, 9)})"
            for _ in range(number)
        ]
        return ", ".join(rows)

    def insert(self) -> str:
        return f"INSERT INTO t VALUES {self.values(self._random.randint(1, 4))}"

    def condition(self) -> str:
        draw = self._random
        return draw.choice(
            [
                f"n > {draw.randint(0, 9)}",
                f"id % 3 = {draw.randint(0, 2)}",
                f"p = '{draw.choice('abc')}'",
                f"id = {draw.randint(1, 20)}",
                "true",
            ]
        )

    def update(self) -> str:
        draw = self._random
        change = draw.choice(["n = n + 1", "n = 5", f"p = '{draw.choice('abc')}'"])
        return f"UPDATE t SET {change} WHERE {self.condition()}"

    def delete(self) -> str:
        return f"DELETE FROM t WHERE {self.condition()}"

    def merge(self) -> str:
        draw = self._random
        known = [f"({draw.randint(1, 12)}, 'm', {draw.randint(0, 9)})"]
        clauses = [
            "WHEN MATCHED AND t.n < 3 THEN DELETE",
            "WHEN MATCHED THEN UPDATE SET n = s.col3",
        ]
        if draw.random() < 0.5:
            clauses.append("WHEN NOT MATCHED BY SOURCE AND t.n = 9 THEN UPDATE SET n = 0")
        if draw.random() < 0.3:
            clauses.append("WHEN NOT MATCHED BY SOURCE AND t.n = 0 THEN DELETE")
        if draw.random() < 0.7:
            known = [self.values(2)]
            clauses.append(
                "WHEN NOT MATCHED THEN INSERT (id, p, n) VALUES (s.col1, s.col2, s.col3)"
            )
        return f"MERGE INTO t USING (VALUES {', '.join(known)}) s ON t.id = s.col1 " + " ".join(
            clauses
        )

    def optimize(self) -> str:
        return self._random.choice(["OPTIMIZE t", "REORG TABLE t APPLY (PURGE)"])

    def statements(self, numbers: Sequence[int]) -> list[str]:
        """Return the statements of one commit: a single one, or a transaction, sometimes with
        savepoints.

        `numbers`: the possible numbers of statements.
        """
        draw = self._random
        makers: list[Callable[[], str]] = [
            *(self.insert, self.insert, self.update, self.update, self.delete, self.merge),
            self.optimize,
        ]
        chosen = [draw.choice(makers)() for _ in range(draw.choice(numbers))]
        if len(chosen) == 1:
            return chosen
        if draw.random() < 0.3:
            place = draw.randrange(len(chosen))
            undone = draw.choice(makers)()
            chosen[place:place] = ["SAVEPOINT s", undone, "ROLLBACK TO s"]
        return ["BEGIN", *chosen, "COMMIT"]


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", TABLES)
def test_feeds_lead_from_version_to_version(session: RowSession, kind: str, seed: int) -> None:
    create(session, kind)
    program = Program(seed)
    session.rows(f"INSERT INTO t VALUES {program.values(8)}")
    known = newest(session)
    # The row plane has no ids for rows that a transaction inserted itself.
    numbers = [1] if kind == "tracked rows" else [1, 1, 2, 3, 5]
    for _ in range(12):
        for statement in program.statements(numbers):
            session.rows(statement)
        now = newest(session)
        for version in range(known + 1, now + 1):
            check_kinds(session, version)
        known = now


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["vectors", "partitions", "tracked rows"])
def test_feeds_after_a_rebase(session: RowSession, kind: str, seed: int) -> None:
    """While a transaction is open, another one commits; then the first one commits or loses."""
    create(session, kind)
    other = RowSession(session.engine)
    program, draw = Program(seed), Random(seed)
    session.rows(f"INSERT INTO t VALUES {program.values(9)}")
    known, rebased = newest(session), 0
    for _ in range(12):
        whole = [draw.choice([program.update, program.delete, program.optimize, program.merge])()]
        whole += [program.insert()] if draw.random() < 0.3 else []
        session.rows("BEGIN")
        for statement in whole:
            session.rows(statement)
        winner = draw.choice([program.update, program.delete, program.optimize, program.insert])()
        other.rows(winner)
        before = newest(other)
        try:
            session.rows("COMMIT")
            rebased += newest(other) - before
        except Conflict:
            pass
        for version in range(known + 1, newest(session) + 1):
            check_kinds(session, version)
        known = newest(session)
    assert rebased


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["vectors", "copies", "copies in partitions"])
def test_feeds_of_replaced_rows(session: RowSession, kind: str, seed: int) -> None:
    create(session, kind)
    program, draw = Program(seed), Random(seed)
    session.rows(f"INSERT INTO t VALUES {program.values(5)}")
    for _ in range(10):
        version = newest(session)
        replacing = draw.choice(
            [
                f"INSERT OVERWRITE t VALUES {program.values(3)}",
                f"INSERT INTO t REPLACE WHERE n < 50 VALUES {program.values(2)}",
                f"RESTORE TABLE t TO VERSION AS OF {draw.randint(1, version)}",
                "TRUNCATE TABLE t",
            ]
        )
        others = [program.update(), program.delete(), program.insert()]
        whole = draw.choice([[replacing], [others[0], replacing], [replacing, others[0]], others])
        for statement in ["BEGIN", *whole, "COMMIT"]:
            session.rows(statement)
        for made in range(version + 1, newest(session) + 1):
            check_difference(session, made)


# The row plane has no ids for rows that a transaction inserted itself.
@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "tracked rows"])
def test_a_row_inserted_compacted_and_deleted_in_one_transaction_leaves_no_feed(
    session: RowSession, kind: str
) -> None:
    """The other rows stay: a stream that follows the table meets no change of them."""
    create(session, kind)
    session.rows("INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2)")
    for statement in (
        "BEGIN",
        "INSERT INTO t VALUES (9, 'a', 9)",
        "OPTIMIZE t",
        "DELETE FROM t WHERE id = 9",
        "COMMIT",
    ):
        session.rows(statement)
    assert newest(session) == 2
    assert not any(feed(session, 2).values())
    assert [row["id"] for row in session.rows("SELECT id FROM t ORDER BY id")] == [1, 2]
    files = [one for one in actions_of(session, 2) if isinstance(one, Add | Remove)]
    assert [one.data_change for one in files] == [False] * len(files)


@pytest.mark.parametrize("first", [True, False])
def test_a_row_inserted_and_deleted_beside_a_delete_leaves_no_feed(
    session: RowSession, first: bool
) -> None:
    """Both orders of the commits keep the other's deletion, and the feed shows only that."""
    create(session, "vectors")
    session.rows("INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2), (3, 'a', 3)")
    other = RowSession(session.engine)
    packing, deleting = (session, other) if first else (other, session)
    for own in (packing, deleting):
        own.rows("BEGIN")
    deleting.rows("DELETE FROM t WHERE id = 2")
    for statement in (
        "INSERT INTO t VALUES (9, 'a', 9)",
        "OPTIMIZE t",
        "DELETE FROM t WHERE n = 9",
    ):
        packing.rows(statement)
    winner, loser = (packing, deleting) if first else (deleting, packing)
    winner.rows("COMMIT")
    loser.rows("COMMIT")
    told = [check_difference(session, version)["delete"] for version in (2, 3)]
    assert sorted(map(len, told)) == [0, 1]
    assert [row["id"] for row in session.rows("SELECT id FROM t ORDER BY id")] == [1, 3]
