"""Bugs that others published about compactions: rows doubled, lost, or back from the dead."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import txlake
from tests.bugs_of_others.conftest import Maker
from tests.lake.rows import query
from txlake.errors import Conflict, CorruptTable

pytestmark = pytest.mark.broad(keep=2)


def test_delta_550_a_compaction_beside_appends_doubles_no_row(
    lake: txlake.Lake, make: Maker
) -> None:
    """A compaction isn't checked against what was appended or compacted while it read."""
    t = make()
    for number in (1, 2, 3):
        lake.sql(f"INSERT INTO {t.sql} VALUES ({number}, 0)")
    one, two = lake.begin(), lake.begin()
    for tx in (one, two):
        tx.sql(f"OPTIMIZE {t.sql}")
    lake.sql(f"INSERT INTO {t.sql} VALUES (4, 0)")
    one.commit()
    two.commit()
    assert query(lake, f"SELECT id FROM {t.sql}") == [(1,), (2,), (3,), (4,)]


def test_delta_550_a_table_overwritten_with_its_own_rows_keeps_the_append(
    lake: txlake.Lake, make: Maker
) -> None:
    """The same by hand: read all, overwrite with it; an append in between is lost or doubled."""
    t = make()
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 0), (2, 0)")
    tx = lake.begin()
    frame = tx.read(t.name)
    lake.sql(f"INSERT INTO {t.sql} VALUES (3, 0)")
    tx.write(frame, t.name, mode="overwrite")
    tx.commit()
    assert query(lake, f"SELECT id FROM {t.sql}") == [(1,), (2,), (3,)]


def test_trino_31253_a_compaction_removes_files_with_their_vectors(
    lake: txlake.Lake, make: Maker
) -> None:
    """A `remove` without the file's deletion vector is another file's to readers that go by the
    protocol: the old rows stay beside the compacted ones."""
    t = make()
    for first in (0, 10):
        lake.sql(f"INSERT INTO {t.sql} SELECT CAST(id AS INT), 0 FROM range({first}, {first + 10})")
    lake.sql(f"DELETE FROM {t.sql} WHERE id IN (1, 12)")
    lake.sql(f"OPTIMIZE {t.sql}")
    assert len(_active(t.log)) == 1
    # delta-rs reads the log by itself.
    engine = QueryBuilder().register("t", DeltaTable(str(t.folder)))
    rows = engine.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").read_all()
    assert pa.table(rows).to_pylist() == [{"n": 18, "ids": 18}]


def _active(log: Path) -> set[tuple[str, str | None]]:
    """The files after all commits, keyed as PROTOCOL.md says; every removed one was there."""
    found: set[tuple[str, str | None]] = set()
    for commit in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for kind in ("remove", "add"):
            for fields in (action[kind] for action in actions if kind in action):
                vector = fields.get("deletionVector")
                key = (fields["path"], vector and vector["pathOrInlineDv"])
                (found.remove if kind == "remove" else found.add)(key)
    return found


def test_paimon_9096_an_update_that_follows_a_compaction_keeps_the_other_rows(
    lake: txlake.Lake, make: Maker
) -> None:
    """A staged update is carried over to the compacted file, which holds more rows than its own:
    those were lost, or went back to older values; and an update after the compaction was missed."""
    t = make()
    for row in ((1, 10), (2, 20)):
        lake.sql(f"INSERT INTO {t.sql} VALUES {row}")
    first, second = lake.begin(), lake.begin()
    for tx in (first, second):
        tx.sql(f"UPDATE {t.sql} SET value = value + 1 WHERE id = 1")
    lake.sql(f"OPTIMIZE {t.sql}")
    lake.sql(f"UPDATE {t.sql} SET value = 99 WHERE id = 2")
    first.commit()
    assert query(lake, f"SELECT * FROM {t.sql}") == [(1, 11), (2, 99)]
    with pytest.raises(Conflict):
        second.commit()
    assert query(lake, f"SELECT * FROM {t.sql}") == [(1, 11), (2, 99)]


def test_lance_6653_a_compaction_brings_no_deleted_row_back(lake: txlake.Lake, make: Maker) -> None:
    """A compaction is checked from the version that is newest at its commit, not from the one that
    it read: what was deleted between is in its files."""
    t = make()
    for rows in ("(1, 10)", "(2, 20), (3, 30)"):
        lake.sql(f"INSERT INTO {t.sql} VALUES {rows}")
    tx = lake.begin()
    tx.sql(f"OPTIMIZE {t.sql}")
    lake.sql(f"DELETE FROM {t.sql} WHERE id = 2")
    lake.sql(f"UPDATE {t.sql} SET value = 31 WHERE id = 3")
    tx.commit()
    assert query(lake, f"SELECT * FROM {t.sql}") == [(1, 10), (3, 31)]


def test_ducklake_1472_history_that_is_gone_is_no_empty_history(
    lake: txlake.Lake, make: Maker
) -> None:
    """The versions after the one that a transaction read are expired. There is nothing to check it
    against any more, and its delete of a compacted file's row is lost without a word."""
    t = make(more="TBLPROPERTIES ('delta.checkpointInterval' = '6')")
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 1)")
    tx = lake.begin()
    assert query(tx, f"SELECT id FROM {t.sql}") == [(1,)]
    lake.sql(f"INSERT INTO {t.sql} VALUES (2, 1); OPTIMIZE {t.sql}")
    while not list(t.log.glob("*.checkpoint.parquet")):
        lake.sql(f"INSERT INTO {t.sql} VALUES (3, 1)")
    newest = max(t.log.glob("*.json"))
    for commit in set(t.log.glob("*.json")) - {newest}:
        commit.unlink()
    left = query(lake, f"SELECT id FROM {t.sql}")
    tx.sql(f"DELETE FROM {t.sql} WHERE id = 1")
    with pytest.raises(CorruptTable, match=r"is missing .expected every commit from"):
        tx.commit()
    assert query(lake, f"SELECT id FROM {t.sql}") == left
