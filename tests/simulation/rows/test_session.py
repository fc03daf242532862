"""A session on rows works like others: transactions, conflicts, row checks, files for all
readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.conflict.levels import Level
from txlake.errors import ConcurrentAppendException, ConcurrentDeleteDeleteException, InvalidRequest
from txlake.local.control_columns import ROW_ID, ROW_VERSION
from txlake.ports import Store
from txlake.settings import Settings
from txlake.sql.statements import NativeFrame, SqlText, TableName, Write
from txlake.storage import open_store
from txlake.system import System

_numbers = count()


def _engine(warehouse: Store) -> RowEngine:
    system = System()
    catalog = Catalog("sqlite://", system)
    return RowEngine(system=system, settings=Settings(), warehouse=warehouse, catalog=catalog)


@pytest.fixture
def engine() -> Iterator[RowEngine]:
    made = _engine(open_store(f"memory://rows-{next(_numbers)}", {}))
    yield made
    made.close()


@pytest.fixture
def session(engine: RowEngine) -> RowSession:
    opened = RowSession(engine)
    opened.rows("CREATE TABLE t (id BIGINT, p STRING, n INT)")
    opened.rows("INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, NULL)")
    return opened


def _files(engine: RowEngine) -> list[str]:
    assert engine.warehouse is not None
    return [one.path for one in engine.warehouse.list("t") if one.path.endswith(".parquet")]


def test_changes_return_their_counts(session: RowSession) -> None:
    assert session.rows("UPDATE t SET n = n + 1 WHERE id < 3") == [{"num_affected_rows": 2}]
    assert session.rows("DELETE FROM t WHERE n IS NULL") == [{"num_affected_rows": 1}]
    merged = session.rows(
        "MERGE INTO t USING (VALUES (1, 'z'), (7, 'y')) s ON t.id = s.col1 "
        "WHEN MATCHED THEN UPDATE SET p = s.col2 "
        "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.col1, s.col2)"
    )
    assert [list(row.values()) for row in merged] == [[2, 1, 0, 1]]
    assert session.rows("SELECT * FROM t ORDER BY id") == [
        {"id": 1, "p": "z", "n": 11},
        {"id": 2, "p": "b", "n": 21},
        {"id": 7, "p": "y", "n": None},
    ]


def test_a_transaction_reads_its_own_changes_until_rollback(
    session: RowSession,
) -> None:
    session.rows("BEGIN")
    session.rows("CREATE TABLE u AS SELECT id FROM t WHERE n > 5")
    session.rows("DELETE FROM t WHERE id IN (SELECT id FROM u)")
    assert session.rows("SELECT count(*) AS n FROM t") == [{"n": 1}]
    session.rows("ROLLBACK")
    assert session.rows("SELECT count(*) AS n FROM t") == [{"n": 3}]
    assert session.rows("SHOW TABLES LIKE 'u'") == []


@pytest.mark.parametrize(("added", "conflicts"), [(31, False), (32, True)])
def test_conflicts_are_found_row_by_row(
    session: RowSession, engine: RowEngine, added: int, conflicts: bool
) -> None:
    # Statistics say nothing of a remainder: only the row itself does.
    other = RowSession(engine, level=Level.SERIALIZABLE)
    transaction = other.begin()
    other.within(transaction, "UPDATE t SET n = 0 WHERE n % 2 = 0")
    session.rows(f"INSERT INTO t VALUES (9, 'c', {added})")
    if conflicts:
        with pytest.raises(ConcurrentAppendException):
            transaction.commit()
    else:
        transaction.commit()
    found = session.rows("SELECT sum(n) AS total FROM t")
    assert found == [{"total": 62 if conflicts else 31}]


def test_one_row_is_not_changed_twice(session: RowSession, engine: RowEngine) -> None:
    other = RowSession(engine, level=Level.SNAPSHOT)
    transaction = other.begin()
    other.within(transaction, "UPDATE t SET n = 0 WHERE id = 1")
    session.rows("UPDATE t SET n = 1 WHERE id = 1")
    with pytest.raises(ConcurrentDeleteDeleteException):
        transaction.commit()
    assert session.rows("SELECT n FROM t WHERE id = 1") == [{"n": 1}]


def test_a_compaction_keeps_a_concurrent_delete(session: RowSession, engine: RowEngine) -> None:
    session.rows("INSERT INTO t VALUES (4, 'd', 40)")
    other = RowSession(engine)
    transaction = other.begin()
    other.within(transaction, "OPTIMIZE t")
    session.rows("DELETE FROM t WHERE id = 2")
    transaction.commit()
    rows = session.rows("SELECT id FROM t ORDER BY id")
    assert [row["id"] for row in rows] == [1, 3, 4]
    assert session.rows("DESCRIBE HISTORY t LIMIT 1")[0]["operation"] == "OPTIMIZE"


SORTING = pytest.mark.parametrize(
    ("clause", "statement"),
    [("", "OPTIMIZE {} ZORDER BY (n)"), ("CLUSTER BY (n, id)", "OPTIMIZE {} FULL")],
    ids=["Z-order", "clustering"],
)


def _unsorted(session: RowSession, clause: str) -> None:
    """Create a table `u` of three files, one of which has lost a row."""
    session.rows(f"CREATE TABLE u (id INT, n INT) USING delta {clause}")
    for first in range(3):
        values = ", ".join(f"({first * 5 + at}, {(first * 5 + at) * 7 % 15})" for at in range(5))
        session.rows(f"INSERT INTO u VALUES {values}")
    session.rows("DELETE FROM u WHERE id = 6")


@SORTING
def test_sorting_statements_keep_concurrent_changes(
    session: RowSession, engine: RowEngine, clause: str, statement: str
) -> None:
    _unsorted(session, clause)
    other = RowSession(engine)
    transaction = other.begin()
    other.within(transaction, statement.format("u"))
    session.rows("DELETE FROM u WHERE id IN (2, 7, 14)")
    session.rows("UPDATE u SET n = 100 WHERE id = 8")
    transaction.commit()
    left = {id: id * 7 % 15 for id in range(15) if id not in (2, 6, 7, 14)} | {8: 100}
    found = session.rows("SELECT id, n FROM u")
    assert {row["id"]: row["n"] for row in found} == left
    assert len(found) == len(left)
    assert session.rows("DESCRIBE HISTORY u LIMIT 1")[0]["operation"] == "OPTIMIZE"


@SORTING
def test_changes_find_rows_after_sorting(
    session: RowSession, engine: RowEngine, clause: str, statement: str
) -> None:
    _unsorted(session, clause)
    others = [RowSession(engine) for _ in range(2)]
    transactions = [other.begin() for other in others]
    others[0].within(transactions[0], "DELETE FROM u WHERE id IN (0, 5, 10)")
    others[1].within(transactions[1], "UPDATE u SET n = 100 WHERE id IN (4, 9)")
    session.rows(statement.format("u"))
    for transaction in transactions:
        transaction.commit()
    left = {id: id * 7 % 15 for id in range(15) if id not in (0, 5, 6, 10)} | {4: 100, 9: 100}
    found = session.rows("SELECT id, n FROM u")
    assert {row["id"]: row["n"] for row in found} == left
    assert len(found) == len(left)


def test_a_clustered_table_is_clustered_once(session: RowSession) -> None:
    _unsorted(session, "CLUSTER BY (n)")
    session.rows("OPTIMIZE u")
    version = session.rows("DESCRIBE HISTORY u LIMIT 1")[0]["version"]
    session.rows("OPTIMIZE u")
    session.rows("OPTIMIZE u FULL")
    assert session.rows("DESCRIBE HISTORY u LIMIT 1")[0]["version"] == version
    session.rows("INSERT INTO u VALUES (20, 20)")
    session.rows("OPTIMIZE u")
    session.rows("ALTER TABLE u CLUSTER BY (id)")
    session.rows("OPTIMIZE u")
    last = session.rows("DESCRIBE HISTORY u LIMIT 2")
    assert [row["operation"] for row in last] == ["CLUSTER BY", "OPTIMIZE"]
    session.rows("OPTIMIZE u FULL")
    [full] = session.rows("DESCRIBE HISTORY u LIMIT 1")
    told: Any = full["operationParameters"]
    parameters = dict(told)
    assert (parameters["clusterBy"], parameters["isFull"]) == ('["id"]', "true")


@pytest.mark.parametrize(
    ("clause", "statement", "message"),
    [
        ("CLUSTER BY (n)", "OPTIMIZE u WHERE n = 1", r"WHERE: the table is clustered by \(n\)"),
        ("CLUSTER BY (n)", "OPTIMIZE u ZORDER BY (n)", "ZORDER BY: the table is clustered"),
        ("CLUSTER BY NONE", "OPTIMIZE u ZORDER BY (n)", "by no columns.*packs small files"),
        ("CLUSTER BY NONE", "OPTIMIZE u FULL", "clustered by no columns; ALTER TABLE"),
        ("", "OPTIMIZE u FULL", "OPTIMIZE without FULL packs small files"),
    ],
)
def test_clauses_without_meaning_for_a_table_are_refused(
    session: RowSession, clause: str, statement: str, message: str
) -> None:
    none = clause == "CLUSTER BY NONE"
    _unsorted(session, "CLUSTER BY (n)" if none else clause)
    if none:
        session.rows(f"ALTER TABLE u {clause}")
    with pytest.raises(InvalidRequest, match=message):
        session.rows(statement)


def test_rows_that_violate_a_rule_leave_no_file(session: RowSession, engine: RowEngine) -> None:
    session.rows("ALTER TABLE t ADD CONSTRAINT small CHECK (n < 100 OR n IS NULL)")
    before = _files(engine)
    with pytest.raises(InvalidRequest, match="small"):
        session.rows("INSERT INTO t VALUES (5, 'e', 5), (6, 'f', 600)")
    assert _files(engine) == before


def test_rows_with_an_application_version_are_written_once(session: RowSession) -> None:
    rows = NativeFrame(pa.table({"id": [7], "n": pa.array([70], pa.int32())}))
    for version in (1, 1, 2):
        write = Write(
            table=TableName(("t",)), source=rows, mode="append", app_id="load", app_version=version
        )
        session.carry_out(None, write)
    assert session.rows("SELECT n FROM t WHERE id = 7") == [{"n": 70}, {"n": 70}]


def test_a_table_is_read_by_name(session: RowSession) -> None:
    frame = session.read(TableName(("t",)), None, SqlText("n > 10 OR n IS NULL"), ["p", "id"])
    assert frame.collect() == [("b", 2), (None, 3)]


def test_a_file_is_copied_once(session: RowSession, engine: RowEngine) -> None:
    assert engine.warehouse is not None
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [8, 9]}), sink)
    engine.warehouse.put("in/one.parquet", sink.getvalue().to_pybytes())
    place = f"{engine.warehouse.url}/in"
    counts = [
        session.rows(f"COPY INTO t FROM '{place}' FILEFORMAT = PARQUET")[0]["num_inserted_rows"]
        for _ in range(2)
    ]
    assert counts == [2, 0]
    assert session.rows("SELECT count(*) AS n FROM t") == [{"n": 5}]


def test_an_unknown_query_is_an_assertion_error(session: RowSession) -> None:
    with pytest.raises(AssertionError, match="soundex"):
        session.rows("SELECT soundex(p) FROM t")


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_keep_their_ids(session: RowSession, vectors: str) -> None:
    session.rows(
        "CREATE TABLE r (k INT, v INT) TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
        f"'delta.enableDeletionVectors' = '{vectors}')"
    )
    session.rows("INSERT INTO r VALUES (0, 0), (1, 1), (2, 2)")
    session.rows("INSERT INTO r VALUES (3, 3), (4, 4)")
    session.rows("UPDATE r SET v = v + 1 WHERE k IN (1, 3)")
    session.rows(
        "MERGE INTO r USING (VALUES (4, 9), (7, 7)) s ON r.k = s.col1 "
        "WHEN MATCHED THEN UPDATE SET v = s.col2 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.col1)"
    )
    before = _ids(session)
    assert {key: row_id for key, (row_id, _) in before.items() if key < 7} == {
        key: key for key in range(5)
    }
    assert {key: version for key, (_, version) in before.items()} == {
        0: 1,
        1: 3,
        2: 1,
        3: 3,
        4: 4,
        7: 4,
    }
    session.rows("OPTIMIZE r")
    assert _ids(session) == before


def _ids(session: RowSession) -> dict[int, tuple[int, int]]:
    """Return each row's id and the version of its last change, by key."""
    snapshot = session.snapshot(TableName(("r",)))
    handle = session.engine.find(TableName(("r",)), "default")
    assert handle is not None
    frame: Any = session.engine.work(handle, snapshot).scan(snapshot.select(None), positions=True)
    return {row[0]: row[1:] for row in frame.select("k", ROW_ID, ROW_VERSION).collect()}


def test_other_readers_read_the_tables(tmp_path: Path) -> None:
    """After the test, delta-rs and Spark read every version (tests/conftest.py)."""
    engine = _engine(open_store(str(tmp_path / "lake"), {}))
    session = RowSession(engine)
    vectors = "'delta.enableDeletionVectors' = '{}'"
    for name, by, has in (("t", "", "true"), ("u", "PARTITIONED BY (p)", "false")):
        properties = f"TBLPROPERTIES ({vectors.format(has)}, 'delta.checkpointInterval' = '3')"
        session.rows(
            f"CREATE TABLE {name} (id BIGINT, p STRING, d DOUBLE, m DECIMAL(9, 2), y DATE, "
            f"w TIMESTAMP, a ARRAY<INT>) {by} {properties}"
        )
        session.rows(
            f"INSERT INTO {name} SELECT id, if(id % 2 = 0, 'a b', NULL), id / 3, id * 1.25, "
            "DATE '2024-02-29', TIMESTAMP '2024-02-29 10:00:00.5', array(1, NULL) FROM range(6)"
        )
        session.rows(f"UPDATE {name} SET d = double('nan'), a = array_append(a, 7) WHERE id = 2")
        session.rows(f"DELETE FROM {name} WHERE id IN (1, 4)")
        session.rows(f"OPTIMIZE {name}")
    assert session.rows("SELECT count(*) AS n FROM u WHERE p IS NULL") == [{"n": 2}]
    engine.close()
