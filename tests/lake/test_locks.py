"""Locks of the lake's tables: definitions and changes wait for each other, nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.catalog import locks as locks_module
from txlake.conflict.locking import LockMode
from txlake.errors import Deadlock, InvalidRequest, LockTimeout
from txlake.session.admission import database_lock

pytestmark = pytest.mark.broad(keep=3)

Session = txlake.LakeSession


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with two tables."""
    for name in ("t", "u"):
        lake.sql(f"CREATE TABLE {name} (id BIGINT); INSERT INTO {name} VALUES (1)")
    return lake


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Where statements wait."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def locks(lake: txlake.Lake, status: str = "GRANT") -> list[tuple[object, ...]]:
    """(type, mode, status) of the locks on tables and names."""
    return query(
        lake,
        "SELECT resource_type, request_mode, request_status FROM sys.dm_tran_locks "
        f"WHERE resource_type <> 'DATABASE' AND request_status = '{status}'",
    )


def until(holds: Callable[[], object]) -> None:
    """Look again and again; the test's own timeout ends it."""
    while not holds():
        pass


def waits(lake: txlake.Lake, done: Future[Any], mode: str) -> None:
    """Comes back when a request of that mode waits."""
    until(lambda: done.done() or any(row[1] == mode for row in locks(lake, "WAIT")))
    assert not done.done()


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("statement", "held"),
    [
        ("SELECT * FROM t", [("OBJECT", "Sch-S")]),
        ("INSERT INTO t VALUES (2)", [("OBJECT", "IX")]),
        ("UPDATE t SET id = 2", [("OBJECT", "IX")]),
        ("DELETE FROM t", [("OBJECT", "IX")]),
        (
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
            [("OBJECT", "IX"), ("OBJECT", "Sch-S")],
        ),
        ("INSERT INTO t SELECT * FROM u", [("OBJECT", "IX"), ("OBJECT", "Sch-S")]),
        ("DELETE FROM t WHERE id IN (SELECT id FROM u)", [("OBJECT", "IX"), ("OBJECT", "Sch-S")]),
        ("ALTER TABLE t ADD COLUMN x INT", [("KEY", "X"), ("OBJECT", "Sch-M")]),
        ("TRUNCATE TABLE t", [("KEY", "X"), ("OBJECT", "Sch-M")]),
        ("DROP TABLE t", [("KEY", "X"), ("OBJECT", "Sch-M")]),
        ("CREATE TABLE v (id INT)", [("KEY", "X"), ("OBJECT", "Sch-M")]),
        (
            "CREATE TABLE v AS SELECT * FROM t",
            [("KEY", "X"), ("OBJECT", "Sch-M"), ("OBJECT", "Sch-S")],
        ),
        (
            "CREATE TABLE v DEEP CLONE t",
            [("KEY", "X"), ("OBJECT", "Sch-M"), ("OBJECT", "Sch-S")],
        ),
        ("LOCK TABLE t", [("OBJECT", "X")]),
    ],
)
def test_what_a_statement_holds_to_the_end(
    t: txlake.Lake, statement: str, held: list[tuple[str, str]]
) -> None:
    tx = t.begin()
    tx.sql(statement)
    assert sorted(row[:2] for row in locks(t)) == sorted(held)
    tx.rollback()
    assert locks(t) == []


def test_changes_do_not_wait_for_changes(t: txlake.Lake) -> None:
    first, second = t.begin(), t.begin()
    first.sql("INSERT INTO t VALUES (2)")
    second.sql("INSERT INTO t VALUES (3)")
    assert number(t, "SELECT count(*) FROM t") == 1
    second.commit()
    first.commit()
    assert number(t, "SELECT count(*) FROM t") == 3


def test_a_definition_waits_for_a_change_and_readers_for_it(
    t: txlake.Lake, threads: ThreadPoolExecutor
) -> None:
    tx = t.begin()
    tx.sql("INSERT INTO t VALUES (2)")
    with t.session() as one, t.session() as two:
        altered = threads.submit(one.sql, "ALTER TABLE t ADD COLUMN x INT")
        waits(t, altered, "Sch-M")
        blocked = query(
            t,
            "SELECT w.blocking_session_id, h.request_session_id FROM sys.dm_tran_locks w "
            "JOIN sys.dm_tran_locks h ON h.request_mode = 'IX' WHERE w.request_status = 'WAIT'",
        )
        assert len(blocked) == 1
        assert blocked[0][0] == blocked[0][1]
        read = threads.submit(lambda: query(two, "SELECT * FROM t"))  # behind the one that waits
        waits(t, read, "Sch-S")
        tx.commit()
        altered.result(300)
        assert read.result(300) == [(1, None), (2, None)]
    assert locks(t) == []


def test_an_autocommit_statement_reads_what_it_waited_for(
    t: txlake.Lake, threads: ThreadPoolExecutor
) -> None:
    tx = t.begin()
    tx.sql("TRUNCATE TABLE t")
    with t.session() as other:
        inserted = threads.submit(other.sql, "INSERT INTO t SELECT count(*) + 10 FROM t")
        waits(t, inserted, "IX")
        tx.commit()
        inserted.result(300)
    assert query(t, "SELECT * FROM t") == [(10,)]


def test_a_table_that_was_dropped_meanwhile_does_not_exist(
    t: txlake.Lake, threads: ThreadPoolExecutor
) -> None:
    tx = t.begin()
    tx.sql("DROP TABLE t")
    with t.session() as other:
        read = threads.submit(other.sql, "SELECT * FROM t")
        waits(t, read, "Sch-S")
        tx.commit()
        with pytest.raises(InvalidRequest, match="there is no table"):
            read.result(300)


def test_the_lists_are_read_committed_in_an_open_transaction(t: txlake.Lake) -> None:
    tx = t.begin()
    assert number(tx, "SELECT count(*) FROM u") == 1
    named = "SELECT name FROM sys.tables"
    assert query(tx, named) == [("t",), ("u",)]
    t.sql("DROP TABLE t")
    assert query(tx, named) == [("u",)]
    with pytest.raises(InvalidRequest, match="there is no table"):
        tx.sql("SELECT * FROM t")


def test_a_lock_timeout(t: txlake.Lake) -> None:
    tx = t.begin()
    tx.sql("DELETE FROM t")
    with t.session() as other:
        for timeout_ms in (0, 20):
            other.sql(f"SET LOCK_TIMEOUT {timeout_ms}")
            with pytest.raises(LockTimeout, match="1222") as late:
                other.sql("DROP TABLE t")
            assert late.value.codes == (1222,)
        other.sql("BEGIN; DELETE FROM u")
        with pytest.raises(LockTimeout):
            other.sql("ALTER TABLE t ADD COLUMN x INT")
        with pytest.raises(InvalidRequest, match="rolled back"):
            other.sql("COMMIT")
    assert locks(t) == [("OBJECT", "IX", "GRANT")]
    tx.rollback()
    assert number(t, "SELECT count(*) FROM u") == 1


def test_of_a_deadlock_the_youngest_is_told(t: txlake.Lake, threads: ThreadPoolExecutor) -> None:
    older, younger = t.begin(), t.begin()
    older.sql("INSERT INTO t VALUES (2)")
    younger.sql("INSERT INTO u VALUES (2)")
    altered = threads.submit(older.sql, "ALTER TABLE u ADD COLUMN x INT")
    waits(t, altered, "Sch-M")
    with pytest.raises(Deadlock, match="1205") as victim:
        younger.sql("ALTER TABLE t ADD COLUMN x INT")
    assert victim.value.codes == (1205,)
    altered.result(300)
    older.commit()
    assert younger.state == "failed"
    assert number(t, "SELECT count(*) FROM u") == 1
    noted = query(t, "SELECT error, table, rule, retry FROM txlake.conflicts")
    assert noted == [("Deadlock", "default.t", "deadlock", True)]
    shown = "SELECT table_id = object_id FROM stl_tr_conflict, sys.tables WHERE name = 't'"
    assert query(t, shown) == [(True,)]


def test_who_waits_for_his_own_transaction_is_told(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "_OWN_WAIT_MS", 30)
    tx = t.begin()
    tx.sql("INSERT INTO t VALUES (2)")
    with pytest.raises(Deadlock, match="which this thread has used itself") as told:
        t.sql("DROP TABLE t")
    assert told.value.evidence is not None
    assert (told.value.evidence.table, told.value.evidence.retry) == ("default.t", False)
    tx.commit()
    assert number(t, "SELECT count(*) FROM t") == 2


def test_work_that_waits_for_itself_is_told_at_once_and_once(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "_OWN_WAIT_MS", float("inf"))
    runs: list[str] = []

    def work(tx: txlake.Transaction) -> None:
        runs.append(tx.id)
        tx.sql("INSERT INTO t VALUES (2)")
        t.sql("DROP TABLE t")

    with pytest.raises(Deadlock, match="which this thread has used itself"):
        t.run(work)
    assert len(runs) == 1
    assert number(t, "SELECT count(*) FROM t") == 1
    assert locks(t) == []
    with pytest.raises(Deadlock), t.transaction() as tx:
        work(tx)


def test_a_commit_of_which_nothing_is_left_keeps_no_lock(t: txlake.Lake) -> None:
    t.sql("INSERT INTO t VALUES (2)")
    tx = t.begin()
    tx.sql("OPTIMIZE t")
    t.sql("OPTIMIZE t")
    tx.commit()
    assert tx.state == "committed"
    assert locks(t) == []
    assert t.transactions().count() == 0
    t.sql("SET LOCK_TIMEOUT 0; ALTER TABLE t ADD COLUMN x INT")


def test_lock_table_keeps_writers_out(t: txlake.Lake, threads: ThreadPoolExecutor) -> None:
    with pytest.raises(InvalidRequest, match="BEGIN"):
        t.sql("LOCK TABLE t")
    with t.session() as one, t.session() as two:
        one.sql("BEGIN; LOCK TABLE t, u IN EXCLUSIVE MODE")
        assert number(two, "SELECT count(*) FROM t") == 1
        waiting = threads.submit(two.sql, "UPDATE t SET id = id + 1")
        waits(t, waiting, "IX")
        one.sql("UPDATE t SET id = 10; COMMIT")
        waiting.result(300)
    assert query(t, "SELECT * FROM t") == [(11,)]


def test_a_database_in_use_keeps_its_level(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT)")
    tx = t.begin()
    tx.sql("SELECT * FROM d.t")
    for text in ("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE", "DROP DATABASE d CASCADE"):
        with pytest.raises(InvalidRequest, match="other sessions use database 'd'"):
            t.sql(text)
    tx.commit()
    with t.session() as other:
        other.sql("USE d")
        with pytest.raises(InvalidRequest, match="other sessions use"):
            t.sql("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE")
        other.sql("ALTER DATABASE d ISOLATION LEVEL SNAPSHOT")  # its own use is no hindrance
        other.sql("USE default")
        t.sql("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE")
    t.sql("ALTER DATABASE d ISOLATION LEVEL SERIALIZABLE")
    shown = query(t, "SELECT db_name, isolation_level FROM stv_db_isolation_level")
    assert ("d", "Serializable") in shown
    t.sql("DROP DATABASE d CASCADE")


def test_a_database_that_cannot_be_used_leaves_the_one_in_use(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE one; CREATE DATABASE two")
    catalog = t._session.engine.catalog.of_lake()
    two = catalog.database("two")
    assert two is not None
    in_use = (
        "SELECT name FROM sys.databases JOIN sys.dm_tran_locks "
        "ON database_id = resource_database_id WHERE request_owner_type = 'SESSION'"
    )
    with t.session() as session:
        session.sql("USE one")
        owner = catalog.sessions.open()
        catalog.transactions.begin("owner", owner)
        catalog.locks.acquire(owner, "owner", [database_lock(two.number, LockMode.X)], 0)
        session.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(LockTimeout):
            session.sql("USE two")
        assert query(t, in_use) == [("one",)]
        catalog.sessions.close(owner)
        session.sql("USE two")
        assert query(t, in_use) == [("two",)]


def test_path_tables_take_none(t: txlake.Lake, tmp_path: object) -> None:
    place = f"delta.`{tmp_path}/plain`"
    t.sql(f"CREATE TABLE {place} (id INT)")
    tx = t.begin()
    tx.sql(f"INSERT INTO {place} VALUES (1)")
    t.sql(f"ALTER TABLE {place} ADD COLUMN x INT")
    assert locks(t) == []
    with pytest.raises(InvalidRequest, match="no locks"):
        tx.sql(f"LOCK TABLE {place}")
