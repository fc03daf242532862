"""What a transaction does to its own changes: what it sees is what is committed, in one version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import query
from tests.lake.unchanged import newest
from txlake.errors import InvalidRequest, LockTimeout

SEQUENCES = {
    "delete what was inserted": [
        "INSERT INTO t VALUES (5, 'e', 1), (6, 'f', 2)",
        "DELETE FROM t WHERE id = 5",
    ],
    "update what was inserted": [
        "INSERT INTO t VALUES (5, 'e', 1), (6, 'f', 1)",
        "UPDATE t SET name = 'x' WHERE id = 5",
        "UPDATE t SET name = 'y' WHERE id IN (1, 5)",
    ],
    "delete twice from one file": [
        "DELETE FROM t WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET name = 'z' WHERE id = 3",
    ],
    "everything out, then in": [
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 'again', 1)",
        "UPDATE t SET p = 2",
    ],
    "merge after update": [
        "UPDATE t SET name = upper(name)",
        (
            "MERGE INTO t USING (SELECT 1L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET p = 2 "
            "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 2) "
            "WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE"
        ),
        "DELETE FROM t WHERE id = 9",
    ],
    "merge what was merged": [
        "MERGE INTO t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = 2",
        "MERGE INTO t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = 1",
        "MERGE INTO t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
    "overwrite, then append": [
        "INSERT OVERWRITE t VALUES (7, 'g', 7)",
        "INSERT INTO t SELECT id + 1, name, p FROM t",
    ],
    "replace where, twice": [
        "INSERT INTO t REPLACE WHERE p = 1 SELECT 10, 'j', 1",
        "INSERT INTO t REPLACE WHERE p = 1 SELECT 11, 'k', 1",
    ],
    "truncate, then insert": ["TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 'a', 1)"],
    "optimize own changes": [
        "INSERT INTO t VALUES (5, 'e', 1)",
        "INSERT INTO t VALUES (6, 'f', 1)",
        "DELETE FROM t WHERE id = 1",
        "OPTIMIZE t",
        "UPDATE t SET name = 'after' WHERE id = 6",
    ],
    "optimize twice": [
        "INSERT INTO t VALUES (5, 'e', 1)",
        "OPTIMIZE t",
        "INSERT INTO t VALUES (6, 'f', 1)",
        "OPTIMIZE t",
    ],
    "restore, then go on": [
        "DELETE FROM t WHERE id = 1",
        "RESTORE TABLE t TO VERSION AS OF 1",
        "INSERT INTO t VALUES (5, 'e', 1)",
    ],
    "columns, then rows": [
        "ALTER TABLE t ADD COLUMN extra INT",
        "INSERT INTO t VALUES (5, 'e', 1, 50)",
        "UPDATE t SET extra = 0 WHERE extra IS NULL",
        "ALTER TABLE t ADD CONSTRAINT low CHECK (extra < 100)",
    ],
    "properties, then rows": [
        "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE t RENAME COLUMN name TO label",
        "INSERT INTO t VALUES (5, 'e', 1)",
        "UPDATE t SET label = 'x' WHERE id = 5",
    ],
    "mapped, back, and mapped again": [
        "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE t RENAME COLUMN name TO label",
        "INSERT INTO t VALUES (5, 'e', 1)",
        "RESTORE TABLE t TO VERSION AS OF 1",
        "INSERT INTO t VALUES (6, 'f', 1)",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE t DROP COLUMN name",
        "ALTER TABLE t ADD COLUMN name STRING",
        "INSERT INTO t (id, name) VALUES (7, 'g')",
    ],
    "replaced by another": [
        "DELETE FROM t WHERE id = 1",
        "CREATE OR REPLACE TABLE t AS SELECT 1 AS only",
        "INSERT INTO t VALUES (2)",
    ],
}


# Where rows are rewritten instead of marked, these go another way.
COPIED = ("update what was inserted", "delete twice from one file", "merge after update")


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table `t` of four rows in two partitions."""
    lake.sql("CREATE TABLE t (id BIGINT, name STRING, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 2)")
    return lake


@contextmanager
def beside(other: txlake.LakeSession, texts: list[str]) -> Iterator[None]:
    """What another session does on `t`, which waits for definitions, and not for changed rows."""
    other.sql("SET LOCK_TIMEOUT 0")
    if not any(text.startswith(("ALTER", "CREATE", "RESTORE", "TRUNCATE")) for text in texts):
        yield
        return
    with pytest.raises(LockTimeout, match="1222"):
        yield


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("case", "vectors"),
    [*((case, "true") for case in SEQUENCES), *((case, "false") for case in COPIED)],
)
def test_what_it_sees_is_what_is_committed(
    t: txlake.Lake, tmp_path: Path, case: str, vectors: str
) -> None:
    t.sql(f"ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
    folder = tmp_path / "warehouse" / "t"
    before, version = query(t, "SELECT * FROM t"), newest(folder)
    t.sql("CREATE TABLE u DEEP CLONE t")
    for text in SEQUENCES[case]:
        t.sql(re.sub(r"\bt\b", "u", text).replace("AS OF 1", "AS OF 0"))
    expected = query(t, "SELECT * FROM u")
    with t.transaction() as tx:
        for text in SEQUENCES[case]:
            tx.sql(text)
        assert query(tx, "SELECT * FROM t") == expected
        with t.session() as other, beside(other, SEQUENCES[case]):
            assert query(other, "SELECT * FROM t") == before
        assert newest(folder) == version
    assert query(t, "SELECT * FROM t") == expected
    assert newest(folder) == version + 1
    assert query(t, f"SELECT * FROM t VERSION AS OF {version}") == before


def test_a_savepoint_undoes_data_and_columns(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("DELETE FROM t WHERE id = 1; SAVEPOINT a; ALTER TABLE t ADD COLUMN x INT")
        tx.sql("INSERT INTO t VALUES (5, 'e', 1, 1); SAVEPOINT b; DELETE FROM t")
        tx.sql("ROLLBACK TO b")
        assert query(tx, "SELECT id, x FROM t") == [(2, None), (3, None), (4, None), (5, 1)]
        tx.sql("ROLLBACK TO a")
        assert tx.read("t").columns == ["id", "name", "p"]
        with pytest.raises(InvalidRequest, match="no savepoint 'b'"):
            tx.rollback_to("b")
        tx.sql("INSERT INTO t VALUES (6, 'f', 1)")
    assert query(t, "SELECT id FROM t") == [(2,), (3,), (4,), (6,)]


def test_names_change_in_a_transaction_and_with_it(t: txlake.Lake, tmp_path: Path) -> None:
    with t.transaction() as tx:
        tx.sql("ALTER TABLE t RENAME TO u; DELETE FROM u WHERE id = 1")
        assert query(tx, "SELECT id FROM u") == [(2,), (3,), (4,)]
        with pytest.raises(InvalidRequest, match="no table 't'"):
            tx.table("t")
        with t.session() as other:
            other.sql("SET LOCK_TIMEOUT 0")
            with pytest.raises(LockTimeout, match="1222"):
                other.read("t")
        assert newest(tmp_path / "warehouse" / "t") == 1
    assert t.read("u").count() == 3
    tx = t.begin()
    tx.sql("DROP TABLE u; CREATE TABLE made (x INT)")
    tx.rollback()
    assert [row[1] for row in query(t, "SHOW TABLES")] == ["u"]
    assert t.read("u").count() == 3


def test_written_frames_and_statements_mix(t: txlake.Lake, tmp_path: Path) -> None:
    rows = pa.table({"id": [7], "name": ["g"], "p": pa.array([7], pa.int32())})
    with t.transaction() as tx:
        tx.write(rows, "t", "append")
        tx.table("t").update("id = 7", {"name": "'h'"})
        tx.write(rows.append_column("x", pa.array([1])), "t", "append", merge_schema=True)
        tx.write(rows, "t", "overwrite", replace_where="p = 1 AND id < 0 OR p = 7")
        tx.table("t").delete("id < 4")
    assert query(t, "SELECT id, name, x FROM t") == [(4, "d", None), (7, "g", None)]
    assert newest(tmp_path / "warehouse" / "t") == 2


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_that_changes_nothing_adds_no_version(
    t: txlake.Lake, tmp_path: Path, end: str
) -> None:
    tx = t.begin(isolation="serializable")
    tx.read("t").collect()
    tx.sql("DELETE FROM t WHERE id = 99")
    tx.sql("INSERT INTO t VALUES (99, 'z', 1); DELETE FROM t WHERE id = 99")
    t.sql("DELETE FROM t WHERE id = 1")
    getattr(tx, end)()
    assert newest(tmp_path / "warehouse" / "t") == 2
