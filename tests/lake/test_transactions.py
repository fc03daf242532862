"""Transactions: what they see, what commits together, who loses to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import number, query
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    Conflict,
    InvalidRequest,
    LockTimeout,
    MetadataChangedException,
    SerializableIsolationViolation,
    UpdateConflict,
)

pytestmark = pytest.mark.broad(keep=6)


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table `t` of two partitions, a file each."""
    lake.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    return lake


def test_a_transaction_sees_its_own_changes_and_nobody_elses(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (3, 3)")
        tx.sql("UPDATE t SET id = 30 WHERE id = 3")
        assert query(tx, "SELECT id FROM t") == [(1,), (2,), (30,)]
        assert query(t, "SELECT id FROM t") == [(1,), (2,)]
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (30,)]
    assert t.read("t", version=1).count() == 2
    with pytest.raises(InvalidRequest, match="2"):
        t.read("t", version=3)  # one commit for both statements


def test_a_commit_carries_the_sessions_user_metadata(t: txlake.Lake, spark: SparkSession) -> None:
    name = "spark.databricks.delta.commitInfo.userMetadata"
    told: list[tuple[object, ...]] = [(0, None), (1, None)]
    try:
        tx = t.begin()
        tx.sql("INSERT INTO t VALUES (3, 3)")
        spark.conf.set(name, "load 7")
        tx.commit()
        t.sql("DELETE FROM t WHERE id = 1")
    finally:
        spark.conf.unset(name)
    t.sql("DELETE FROM t WHERE id = 2")
    told += [(2, "load 7"), (3, "load 7"), (4, None)]
    history = t.table("t").history()
    assert sorted(tuple(row) for row in history.select("version", "userMetadata").collect()) == told


def test_reads_stay_on_one_snapshot(t: txlake.Lake) -> None:
    tx = t.begin()
    assert number(tx, "SELECT count(*) FROM t") == 2
    t.sql("INSERT INTO t VALUES (9, 9)")
    assert number(tx, "SELECT count(*) FROM t") == 2
    tx.commit()
    assert tx.state == "committed"


def test_an_exception_rolls_back(t: txlake.Lake) -> None:
    def fails(tx: txlake.Transaction) -> None:
        tx.sql("DELETE FROM t")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), t.transaction() as tx:
        fails(tx)
    assert tx.state == "rolled back"
    assert number(t, "SELECT count(*) FROM t") == 2


def test_a_failed_statement_fails_the_transaction(t: txlake.Lake) -> None:
    t.sql("BEGIN")
    t.sql("DELETE FROM t WHERE id = 1")
    with pytest.raises(InvalidRequest):
        t.sql("DELETE FROM t WHERE nope = 1")
    with pytest.raises(InvalidRequest, match="nope"):
        t.sql("SELECT * FROM t")
    with pytest.raises(InvalidRequest, match="rolled back"):
        t.sql("COMMIT")
    assert number(t, "SELECT count(*) FROM t") == 2


def test_a_syntax_error_fails_the_transaction(t: txlake.Lake) -> None:
    t.sql("BEGIN TRANSACTION")
    with pytest.raises(InvalidRequest):
        t.sql("DELETE FRM t")
    with pytest.raises(InvalidRequest, match="rolled back"):
        t.sql("COMMIT")


def test_an_interrupted_statement_fails_the_transaction(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt  # which has no message

    t.sql("BEGIN; DELETE FROM t WHERE id = 1")
    with monkeypatch.context() as patched:
        patched.setattr("txlake.spark.plane.SparkTable.delete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            t.sql("DELETE FROM t")
    with pytest.raises(InvalidRequest, match=r"statement failed \(KeyboardInterrupt\); end it"):
        t.sql("SELECT 1")
    t.sql("ROLLBACK")
    assert number(t, "SELECT count(*) FROM t") == 2


def test_control_statements_in_all_spellings(t: txlake.Lake) -> None:
    for begin, end in (
        ("BEGIN", "COMMIT"),
        ("BEGIN TRAN", "COMMIT TRANSACTION"),
        ("START TRANSACTION", "END"),
        ("BEGIN WORK", "COMMIT WORK"),
    ):
        before = number(t, "SELECT count(*) FROM t")
        t.sql(f"{begin}; INSERT INTO t VALUES (5, 5); {end}")
        assert number(t, "SELECT count(*) FROM t") == before + 1  # type: ignore[operator]
    t.sql("BEGIN; DELETE FROM t; ROLLBACK")
    assert number(t, "SELECT count(*) FROM t") == 6
    t.sql("BEGIN ATOMIC INSERT INTO t VALUES (6, 6); DELETE FROM t WHERE id = 5; END")
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (6,)]


def test_transactions_do_not_nest(t: txlake.Lake) -> None:
    t.sql("BEGIN")
    with pytest.raises(InvalidRequest, match="open already"):
        t.sql("BEGIN")
    t.sql("ROLLBACK")
    with pytest.raises(InvalidRequest, match="no transaction"):
        t.sql("COMMIT")


def test_savepoints_undo_a_part(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (3, 3)")
        tx.savepoint("before")
        tx.sql("DELETE FROM t")
        assert number(tx, "SELECT count(*) FROM t") == 0
        tx.rollback_to("before")
        assert number(tx, "SELECT count(*) FROM t") == 3
        with pytest.raises(InvalidRequest, match="nope"):
            tx.rollback_to("nope")
    assert number(t, "SELECT count(*) FROM t") == 3
    t.sql("BEGIN; SAVE TRAN a; DELETE FROM t; ROLLBACK TRAN a; COMMIT")
    assert number(t, "SELECT count(*) FROM t") == 3


@pytest.mark.parametrize(
    ("isolation", "error"),
    [
        ("snapshot", None),
        ("write_serializable", None),
        ("serializable", SerializableIsolationViolation),
    ],
)
def test_what_an_undone_statement_read_counts_under_serializable(
    t: txlake.Lake, isolation: str, error: type[Conflict] | None
) -> None:
    tx = t.begin(isolation=isolation)
    tx.sql("INSERT INTO t VALUES (3, 3); SAVEPOINT a; UPDATE t SET id = 9 WHERE p = 1")
    tx.sql("ROLLBACK TO a")
    t.sql("DELETE FROM t WHERE p = 1")
    if error is None:
        tx.commit()
        assert query(t, "SELECT id FROM t") == [(2,), (3,)]
        return
    with pytest.raises(error):
        tx.commit()


def test_sessions_have_transactions_of_their_own(t: txlake.Lake) -> None:
    with t.session() as other:
        t.sql("BEGIN; INSERT INTO t VALUES (3, 3)")
        assert number(other, "SELECT count(*) FROM t") == 2
        t.sql("COMMIT")
        assert number(other, "SELECT count(*) FROM t") == 3


def test_read_only_transactions_write_nothing(t: txlake.Lake) -> None:
    tx = t.begin(read_only=True)
    assert number(tx, "SELECT count(*) FROM t") == 2
    with pytest.raises(InvalidRequest, match="read-only"):
        tx.sql("DELETE FROM t")
    folder = Path(str(t.table("t").detail().collect()[0]["location"]).removeprefix("file:"))
    before = sorted(folder.rglob("*"))
    assert any(path.suffix == ".parquet" for path in before)
    for statement in (
        "INSERT INTO t VALUES (7, 7)",
        "INSERT INTO t SELECT * FROM t",
        "UPDATE t SET p = 7 WHERE id = 1",
        "DELETE FROM t WHERE false",
        "CREATE TABLE made AS SELECT * FROM t",
    ):
        tx = t.begin(read_only=True)
        with pytest.raises(InvalidRequest, match="read-only transaction; begin one that may write"):
            tx.sql(statement)
        assert tx.state == "failed"
    assert sorted(folder.rglob("*")) == before


def test_a_path_table_is_committed_alone(t: txlake.Lake, tmp_path: Path) -> None:
    first, second = (f"delta.`{tmp_path / name}`" for name in ("first", "second"))
    for place in (first, second):
        t.sql(f"CREATE TABLE {place} (id BIGINT)")
    for written in ((first, second), ("t (id)", first), (first, "t (id)")):
        both = "; ".join(f"INSERT INTO {table} VALUES (3)" for table in written)
        with pytest.raises(InvalidRequest, match="committed alone; attach"), t.transaction() as tx:
            tx.sql(both)
        assert tx.state == "rolled back"
    with t.transaction() as tx:  # what is only read may be any other
        tx.sql(f"INSERT INTO {first} SELECT id FROM t; INSERT INTO {first} SELECT 7 FROM {second}")
    assert [number(t, f"SELECT count(*) FROM {one}") for one in ("t", first, second)] == [2, 2, 0]


def test_databases_and_vacuum_stay_outside(t: txlake.Lake) -> None:
    for text in ("CREATE DATABASE d", "VACUUM t"):
        with (
            pytest.raises(InvalidRequest, match="can't run in a transaction"),
            t.transaction() as tx,
        ):
            tx.sql(text)


def test_tables_made_in_a_transaction_appear_at_its_end(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("CREATE TABLE made AS SELECT 1 AS id")
        assert number(tx, "SELECT count(*) FROM made") == 1
        with pytest.raises(InvalidRequest):
            t.sql("SELECT * FROM made")
    assert number(t, "SELECT count(*) FROM made") == 1
    with t.session() as other, t.transaction() as tx:
        tx.sql("DROP TABLE made")
        other.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(LockTimeout, match="1222"):  # whether it goes isn't known yet
            other.sql("SELECT count(*) FROM made")
        assert query(other, "SELECT name FROM sys.tables") == [("made",), ("t",)]
    with pytest.raises(InvalidRequest):
        t.sql("SELECT * FROM made")


W, S, N = "write_serializable", "serializable", "snapshot"


@pytest.mark.parametrize("level", [N, W, S])
def test_a_column_is_added_to_a_path_table(t: txlake.Lake, tmp_path: Path, level: str) -> None:
    """Which takes no locks: the definition doesn't wait for the insert to end."""
    place = f"delta.`{tmp_path / 'place'}`"
    t.sql(f"CREATE TABLE {place} (id BIGINT, p INT)")
    tx = t.begin(isolation=level)
    tx.sql(f"INSERT INTO {place} VALUES (3, 1)")
    t.sql(f"ALTER TABLE {place} ADD COLUMN x INT")
    with pytest.raises(MetadataChangedException) as raised:
        tx.commit()
    evidence = raised.value.evidence
    assert evidence is not None
    assert (evidence.read_version, evidence.winning_version) == (0, 1)
    assert evidence.isolation == level
    assert evidence.retry
    assert evidence.advice in str(raised.value)


def test_serializable_keeps_selects_true(t: txlake.Lake) -> None:
    for select, holds in (("WHERE p = 1", False), ("WHERE p = 2", True), ("", False)):
        tx = t.begin(isolation="serializable")
        tx.sql(f"SELECT * FROM t {select}").collect()
        tx.sql("INSERT INTO t VALUES (50, 50)")
        t.sql("INSERT INTO t VALUES (10, 1)")
        if holds:
            tx.commit()
            continue
        with pytest.raises(SerializableIsolationViolation, match="1023"):
            tx.commit()


def test_the_tables_level_counts_when_it_is_stricter(t: txlake.Lake) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    tx = t.begin(isolation="snapshot")
    tx.sql("DELETE FROM t WHERE p = 1")
    t.sql("INSERT INTO t VALUES (10, 1)")
    with pytest.raises(ConcurrentAppendException):
        tx.commit()


def test_the_databases_level_counts_when_it_is_stricter(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE strict ISOLATION LEVEL SERIALIZABLE")
    lake.sql("CREATE TABLE strict.t (id BIGINT, p INT); INSERT INTO strict.t VALUES (1, 1)")
    tx = lake.begin(isolation="snapshot")
    tx.sql("DELETE FROM strict.t WHERE p = 1")
    lake.sql("INSERT INTO strict.t VALUES (10, 1)")
    with pytest.raises(ConcurrentAppendException) as raised:
        tx.commit()
    assert raised.value.evidence is not None
    assert raised.value.evidence.isolation == "serializable"
    lake.sql("ALTER DATABASE strict ISOLATION LEVEL SNAPSHOT")
    tx = lake.begin()
    tx.sql("DELETE FROM strict.t WHERE p = 1")
    lake.sql("INSERT INTO strict.t SELECT id + 1, 1 FROM strict.t")
    tx.commit()


def change_two_files(lake: txlake.Lake, table: str) -> None:
    """Two transactions delete rows of two files, and the second commits."""
    lake.sql(f"CREATE TABLE {table} (id BIGINT, p INT) PARTITIONED BY (p)")
    lake.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    tx = lake.begin()
    tx.sql(f"DELETE FROM {table} WHERE p = 1")
    lake.sql(f"DELETE FROM {table} WHERE p = 2")
    tx.commit()


def test_the_databases_granularity_counts_when_it_is_coarser(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE d WITH DBPROPERTIES ('txlake.conflictGranularity' = 'table')")
    with pytest.raises(UpdateConflict) as raised:
        change_two_files(lake, "d.t")
    assert raised.value.codes == (24556, 24706)
    lake.sql("ALTER DATABASE d SET DBPROPERTIES ('txlake.conflictGranularity' = 'file')")
    change_two_files(lake, "d.t2")
    change_two_files(lake, "t")
    with pytest.raises(InvalidRequest, match="'rows': expected one of row, file, table"):
        lake.sql("ALTER DATABASE d SET DBPROPERTIES ('txlake.conflictGranularity' = 'rows')")
    described = query(lake, "DESCRIBE DATABASE EXTENDED d")
    assert ("Properties", "((txlake.conflictGranularity,file))") in described


def test_the_lakes_granularity_counts_when_it_is_coarser(tmp_path: Path) -> None:
    settings = txlake.Settings(conflict_granularity="table")
    with (
        txlake.connect(str(tmp_path / "lake"), settings=settings) as lake,
        pytest.raises(UpdateConflict),
    ):
        change_two_files(lake, "t")
    with pytest.raises(InvalidRequest, match="expected one of row, file, table"):
        txlake.connect(str(tmp_path), settings=txlake.Settings(conflict_granularity="rows"))


def test_a_session_sets_its_level(t: txlake.Lake) -> None:
    t.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    t.sql("BEGIN; DELETE FROM t WHERE p = 1")
    with t.session() as other:
        other.sql("INSERT INTO t VALUES (10, 1)")
    with pytest.raises(ConcurrentAppendException):
        t.sql("COMMIT")


def test_run_retries_a_conflict(t: txlake.Lake) -> None:
    attempts = []

    def work(tx: txlake.Transaction) -> int:
        attempts.append(1)
        tx.sql("UPDATE t SET id = id + 1 WHERE p = 1")
        if len(attempts) == 1:
            t.sql("UPDATE t SET id = id + 10 WHERE p = 1")
        return len(attempts)

    assert t.run(work) == 2
    assert number(t, "SELECT id FROM t WHERE p = 1") == 12


def test_run_gives_up_after_its_attempts(t: txlake.Lake) -> None:
    def work(tx: txlake.Transaction) -> None:
        tx.sql("UPDATE t SET id = id + 1 WHERE p = 1")
        t.sql("UPDATE t SET id = id + 10 WHERE p = 1")

    with pytest.raises(Conflict):
        t.run(work, attempts=2)
    assert number(t, "SELECT id FROM t WHERE p = 1") == 21


def test_an_application_version_is_written_once(t: txlake.Lake) -> None:
    frame = t.sql("SELECT 5L AS id, 5 AS p")
    for version in (1, 1, 2, 1):
        t.write(frame, "t", mode="append", app_id="job", app_version=version)
    assert number(t, "SELECT count(*) FROM t WHERE id = 5") == 2
    tx = t.begin()
    tx.write(frame, "t", mode="append", app_id="job", app_version=3)
    t.write(frame, "t", mode="append", app_id="job", app_version=3)
    with pytest.raises(ConcurrentTransactionException):
        tx.commit()
    assert number(t, "SELECT count(*) FROM t WHERE id = 5") == 3
