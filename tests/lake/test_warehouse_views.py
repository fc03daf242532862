"""The views of Redshift and Fabric on a lake: what their users ask of them, in SQL."""

from __future__ import annotations

import threading

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=2)


def test_the_example_of_redshifts_documents(lake: txlake.Lake) -> None:
    """ "Isolation levels in Amazon Redshift": PG_TABLES is read committed, whatever reads it."""
    lake.sql("CREATE TABLE A (id INT); CREATE TABLE b (id INT)")
    listed = "SELECT tablename FROM PG_TABLES WHERE schemaname = 'default'"
    with lake.session() as second:
        second.sql("BEGIN")
        assert query(second, listed) == [("a",), ("b",)]
        lake.sql("DROP TABLE A")
        assert query(second, listed) == [("b",)]
        with pytest.raises(InvalidRequest, match="no table 'A'"):
            second.sql("SELECT * FROM A").collect()


def test_the_catalogs_join_by_number(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE Sales; CREATE TABLE Sales.Orders (id BIGINT NOT NULL, at DATE)")
    joined = (
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE c.relkind = 'r'"
    )
    assert query(lake, joined) == [("sales", "orders")]
    columns = (
        "SELECT s.name, t.name, c.name, c.is_nullable FROM sys.schemas s "
        "JOIN sys.tables t ON t.schema_id = s.schema_id "
        "JOIN sys.columns c ON c.object_id = t.object_id "
        "WHERE c.object_id = OBJECT_ID('sales.orders')"
    )
    assert query(lake, columns) == [
        ("Sales", "Orders", "at", True),
        ("Sales", "Orders", "id", False),
    ]
    assert query(lake, "SELECT table_schema, table_type FROM svv_tables") == [
        ("sales", "BASE TABLE")
    ]


def test_who_waits_for_whom(lake: txlake.Lake) -> None:
    """Fabric's question: which session holds up which."""
    lake.sql("CREATE TABLE t (id INT); BEGIN; INSERT INTO t VALUES (1)")
    holder = number(lake, "SELECT @@SPID")
    waits = (
        "SELECT r.session_id, r.status, r.wait_type, s.host_process_id IS NOT NULL "
        "FROM sys.dm_exec_requests r JOIN sys.dm_exec_sessions s ON r.session_id = s.session_id "
        f"WHERE r.blocking_session_id = {holder}"
    )
    with lake.session() as other, lake.session() as third:
        waiter = number(other, "SELECT @@SPID")
        thread = threading.Thread(target=lambda: other.sql("ALTER TABLE t ADD COLUMN b INT"))
        thread.start()
        found: list[tuple[object, ...]] = []
        for _ in range(200):
            found = query(third, waits)
            if found:
                break
        assert found == [(waiter, "suspended", "LCK_M_SCH_M", True)]
        assert query(third, "SELECT lock_status FROM stv_locks") == [
            ("Holding write lock",),
            ("Waiting for write lock",),
        ]
        lake.sql("COMMIT")
        thread.join(timeout=60)
        assert not thread.is_alive()
        assert query(third, waits) == []


def test_a_session_sees_itself(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE sales")
    with lake.session() as other:
        seen = query(other, "SELECT session_id, status FROM sys.dm_exec_sessions")
        other.sql("USE sales; BEGIN")
        own = "SELECT DB_NAME(database_id), open_transaction_count FROM sys.dm_exec_sessions"
        assert query(other, f"{own} WHERE session_id = @@SPID") == [("sales", 1)]
        assert (number(other, "SELECT @@SPID"), "running") in seen
        mine = "SELECT is_user_transaction FROM sys.dm_tran_session_transactions"
        assert query(other, f"{mine} WHERE session_id = @@SPID") == [(True,)]
