"""CREATE, ALTER, DROP, TRUNCATE, CTAS and CLONE in a transaction: seen by it, undone with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=4)


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table of two rows."""
    lake.sql("CREATE TABLE t (id BIGINT, name STRING)")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return lake


EVERYTHING = """
    CREATE TABLE made (id BIGINT);
    INSERT INTO made VALUES (1);
    CREATE TABLE chosen AS SELECT id FROM t WHERE id = 2;
    CREATE TABLE cloned DEEP CLONE t;
    CREATE TABLE alike LIKE t;
    ALTER TABLE t ADD COLUMN more INT;
    UPDATE t SET more = 5 WHERE id = 1;
    ALTER TABLE cloned RENAME TO copied;
    TRUNCATE TABLE copied;
"""


def tables(
    on: txlake.Lake | txlake.Transaction | txlake.LakeSession, more: str = ""
) -> list[object]:
    """The names that SHOW TABLES lists."""
    return [row[1] for row in query(on, f"SHOW TABLES {more}")]


def test_a_transaction_sees_its_definitions(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql(EVERYTHING)
        assert number(tx, "SELECT count(*) FROM made") == 1
        assert query(tx, "SELECT * FROM chosen") == [(2,)]
        assert query(tx, "SELECT * FROM copied") == []
        assert query(tx, "SELECT * FROM t") == [(1, "a", 5), (2, "b", None)]
        for gone in ("cloned", "copied", "made"):
            with t.session() as other, pytest.raises(InvalidRequest, match="there is no table"):
                other.sql(f"SELECT * FROM {gone}")
        assert tables(t) == ["t"]
    assert tables(t) == ["alike", "chosen", "copied", "made", "t"]
    assert query(t, "SELECT * FROM t") == [(1, "a", 5), (2, "b", None)]
    assert query(t, "SELECT * FROM made") == [(1,)]
    history = t.table("made").history().collect()
    assert [row["version"] for row in history] == [0]


def test_a_transaction_lists_its_own_tables(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE other; CREATE TABLE other.kept (id INT)")
    with t.transaction() as tx:
        tx.sql("CREATE TABLE Made (id INT); ALTER TABLE t RENAME TO other.moved")
        tx.savepoint("before")
        tx.sql("CREATE TABLE t (id INT); DROP TABLE Made; CREATE TABLE made2 LIKE t")
        assert tables(tx) == ["made2", "t"]
        assert tables(tx, "LIKE 'm*'") == ["made2"]
        tx.rollback_to("before")
        assert tables(tx) == ["Made"]
        assert tables(tx, "IN OTHER") == ["kept", "moved"]
        assert tables(t) == ["t"]
        tx.sql("DROP TABLE other.moved")
        assert tables(tx, "IN other") == ["kept"]
        assert query(tx, "SELECT name FROM sys.tables ORDER BY name") == [("kept",), ("t",)]
    assert (tables(t), tables(t, "IN other")) == (["Made"], ["kept"])


@pytest.mark.parametrize("end", ["ROLLBACK", "SELECT nope FROM nope"])
def test_rolled_back_it_never_was(t: txlake.Lake, end: str) -> None:
    with t.session() as session:
        session.sql("BEGIN;" + EVERYTHING + "; DROP TABLE t")
        if end == "ROLLBACK":
            session.sql(end)
        else:
            with pytest.raises(InvalidRequest):
                session.sql(end)
    assert tables(t) == ["t"]
    assert query(t, "SELECT * FROM t") == [(1, "a"), (2, "b")]
    t.sql("CREATE TABLE made (other STRING)")  # its name and its place are free
    assert query(t, "SELECT * FROM made") == []


def test_drop_and_create_again_in_one_transaction(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("DROP TABLE t; CREATE TABLE t (other DOUBLE); INSERT INTO t VALUES (0.5)")
        assert query(tx, "SELECT * FROM t") == [(0.5,)]
        tx.sql("DROP TABLE t")
        assert tables(t) == ["t"]
        tx.sql("CREATE TABLE t AS SELECT 7 AS seven")
    assert query(t, "SELECT * FROM t") == [(7,)]
    t.sql("DROP TABLE t; CREATE TABLE t (id INT)")
    assert query(t, "SELECT * FROM t") == []


def test_a_purged_tables_folder_goes_after_the_commit(t: txlake.Lake) -> None:
    place = Path(str(query(t, "DESCRIBE DETAIL t")[0][4]).removeprefix("file://"))
    tx = t.begin()
    tx.sql("DROP TABLE t PURGE")
    assert len(list(place.rglob("*.parquet"))) == 1
    tx.commit()
    assert not list(place.rglob("*.parquet"))


def test_a_renamed_table_keeps_its_rows_and_history(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE other; ALTER TABLE t RENAME TO other.moved")
    assert query(t, "SELECT id FROM other.moved") == [(1,), (2,)]
    t.sql("INSERT INTO other.moved VALUES (3, 'c')")
    with t.transaction() as tx:
        tx.sql("ALTER TABLE other.moved RENAME TO t")
        tx.sql("DELETE FROM other.t WHERE id = 1")
    assert query(t, "SELECT id FROM other.t") == [(2,), (3,)]


def test_what_stays_outside(t: txlake.Lake) -> None:
    for text in ("CREATE DATABASE d", "DROP DATABASE d", "VACUUM t"):
        with (
            pytest.raises(InvalidRequest, match="can't run in a transaction"),
            t.transaction() as tx,
        ):
            tx.sql(text)


@pytest.mark.parametrize("order", [1, -1])
def test_a_path_table_is_not_written_beside_a_definition(
    t: txlake.Lake, tmp_path: Path, order: int
) -> None:
    t.write(t.read("t"), str(tmp_path / "place"))
    write = f"INSERT INTO delta.`{tmp_path / 'place'}` VALUES (3, 'c')"
    for definition in ("DROP TABLE t", "CREATE TABLE v (id INT)", "ALTER TABLE t RENAME TO v"):
        with pytest.raises(InvalidRequest, match="committed alone"), t.transaction() as tx:
            tx.sql(";".join((definition, write)[::order]))
    assert tables(t) == ["t"]
    assert number(t, "SELECT count(*) FROM t") == 2
    assert number(t, f"SELECT count(*) FROM delta.`{tmp_path / 'place'}`") == 2


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("CREATE OR REPLACE TABLE made (z INT)", []),
        ("CREATE OR REPLACE TABLE made AS SELECT 5 AS z", [(5,)]),
        ("REPLACE TABLE made SHALLOW CLONE t", [(1, "a"), (2, "b")]),
        ("CREATE TABLE IF NOT EXISTS made (z INT)", [(1,)]),
        ("ALTER TABLE made ADD COLUMN z INT; UPDATE made SET z = 2", [(1, 2)]),
        ("INSERT OVERWRITE made VALUES (9)", [(9,)]),
        ("OPTIMIZE made", [(1,)]),
        ("DROP TABLE made; CREATE TABLE made (z INT)", []),
        ("ALTER TABLE made RENAME TO other; ALTER TABLE other RENAME TO made", [(1,)]),
    ],
)
def test_what_becomes_of_a_table_that_the_transaction_made(
    t: txlake.Lake, text: str, after: list[tuple[object, ...]]
) -> None:
    with t.transaction() as tx:
        tx.sql("CREATE TABLE made (id BIGINT); INSERT INTO made VALUES (1)")
        tx.sql(text)
        assert query(tx, "SELECT * FROM made") == after
    assert query(t, "SELECT * FROM made") == after
    assert [row.version for row in t.table("made").history().collect()] == [0]
    assert tables(t) == ["made", "t"]
    t.sql("DROP TABLE made; CREATE TABLE made (id INT)")
    assert query(t, "SELECT * FROM made") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM made VERSION AS OF 0", "no versions before COMMIT"),
        ("SELECT * FROM made TIMESTAMP AS OF '2026-01-01'", "no versions before COMMIT"),
        ("DESCRIBE HISTORY made", "no versions before COMMIT"),
        ("RESTORE TABLE made TO VERSION AS OF 0", "no versions before COMMIT"),
        ("EXPLAIN CONFLICTS DELETE FROM made", "until COMMIT nobody else can write it"),
        ("CREATE TABLE made (id INT)", "exists already"),
    ],
)
def test_what_a_table_that_is_only_being_made_does_not_have(
    t: txlake.Lake, text: str, said: str
) -> None:
    with (
        pytest.raises(InvalidRequest, match=f"made.*{said}"),
        t.transaction() as tx,
    ):
        tx.sql(f"CREATE TABLE made (id BIGINT); {text}")
    assert tables(t) == ["t"]


def test_a_copy_is_anybodys(t: txlake.Lake, tmp_path: Path) -> None:
    for how in ("DEEP CLONE", "SHALLOW CLONE", "LIKE"):
        place = tmp_path / how
        t.sql(f"CREATE TABLE delta.`{place}` {how} t")
        t.sql(f"INSERT INTO delta.`{place}` VALUES (3, 'c')")
        protocol = json.dumps(txlake.Log(str(place)).snapshot().protocol)
        assert not any(feature in protocol for feature in ("txlakeCatalog", "domainMetadata"))


def test_two_creators_of_one_name(t: txlake.Lake) -> None:
    tx = t.begin()
    tx.sql("CREATE TABLE made (id INT)")
    with t.session() as other:
        other.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(txlake.errors.LockTimeout, match="1222"):
            other.sql("CREATE TABLE made (id INT)")
    tx.commit()
    with pytest.raises(InvalidRequest, match="exists"):
        t.sql("CREATE TABLE made (id INT)")
