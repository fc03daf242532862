"""The views of Redshift and Fabric on a lake: what their users ask of them, in SQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

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


WITHOUT_SPARK = """
import sys
import pyspark
from pyspark.sql import SparkSession

def started(*_, **__):
    raise AssertionError("Spark is started")

pyspark.SparkContext.__init__ = pyspark.SparkContext._ensure_initialized = started
SparkSession.Builder.getOrCreate = started

import txlake
from txlake.session.views import VIEWS

log = txlake.Log(sys.argv[1] + "/t")
fields = '[{"name":"id","type":"long","nullable":true,"metadata":{}}]'
metadata = {"schemaString": '{"type":"struct","fields":' + fields + "}"}
log.start_transaction().commit([{"metaData": metadata}], operation="CREATE TABLE")
with txlake.connect(sys.argv[1] + "/warehouse") as lake:
    lake.attach(sys.argv[1] + "/t", "t")
    for name in VIEWS:
        shown = lake.view(name)
        assert shown.schema.names == list(VIEWS[name].schema.names), name
    assert lake.view("PG_Catalog.PG_Tables")["tablename"].to_pylist() == ["t"]
    [column] = lake.view("sys.columns").to_pylist()
    assert (column["name"], column["is_nullable"]) == ("id", True)
    assert lake.view("txlake.commits")["table"].to_pylist() == ["default.t"]
    assert lake.view("txlake.conflicts").num_rows == 0
    for name in ("t", "sys.nothing", None):
        try:
            lake.view(name)
        except txlake.errors.InvalidRequest as error:
            print(error)
"""


def test_the_lakes_own_views_need_no_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    table, nothing, none = done.stdout.splitlines()
    assert table.startswith("'t' is none of the lake's own views: there are sys.dm_tran_locks, ")
    assert nothing.startswith("'sys.nothing' is none of the lake's own views")
    assert none == "expected a view's name, found None"


def test_a_view_as_arrow_shows_what_sql_shows(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, at DATE) PARTITIONED BY (at)")
    tx = lake.begin()
    tx.sql("INSERT INTO t VALUES (1, DATE '2026-01-31')")
    for name in ("sys.columns", "sys.tables", "txlake.transactions", "svv_tables"):
        shown = lake.view(name).to_pylist()
        assert [tuple(row.values())[:3] for row in shown] == [
            row[:3] for row in map(tuple, lake.sql(f"SELECT * FROM {name}").collect())
        ]
    tx.rollback()
