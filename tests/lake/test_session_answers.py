"""What a session answers about itself: as T-SQL, Redshift and Spark name it."""

from __future__ import annotations

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=3)


def test_a_transaction_is_counted(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT)")
    asked = "SELECT @@TRANCOUNT, XACT_STATE()"
    assert query(lake, asked) == [(0, 0)]
    lake.sql("BEGIN")
    assert query(lake, asked) == [(1, 1)]
    with lake.transaction() as tx:
        assert query(tx, asked) == [(1, 1)]
    lake.sql("COMMIT")
    assert query(lake, asked) == [(0, 0)]


def test_a_failed_transaction_says_so_and_nothing_else(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT); BEGIN")
    with pytest.raises(InvalidRequest):
        lake.sql("INSERT INTO missing VALUES (1)")
    assert query(lake, "SELECT @@TRANCOUNT, XACT_STATE()") == [(1, -1)]
    for other in ("SELECT XACT_STATE() FROM t", "SELECT 1", "INSERT INTO t SELECT XACT_STATE()"):
        with pytest.raises(InvalidRequest, match="was rolled back because a statement failed"):
            lake.sql(other)
    lake.sql("ROLLBACK")
    assert query(lake, "SELECT @@TRANCOUNT, XACT_STATE()") == [(0, 0)]


def test_each_session_has_its_number(lake: txlake.Lake) -> None:
    mine = number(lake, "SELECT @@SPID")
    with lake.session() as other:
        assert number(other, "SELECT @@spid") not in {mine, None}
        other.sql("BEGIN")
        assert number(other, "SELECT @@SPID") == number(
            lake, f"SELECT session_id FROM txlake.transactions WHERE session_id <> {mine}"
        )
    assert number(lake, "SELECT @@SPID") == mine


def test_the_current_database_follows_use(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE Sales; CREATE TABLE t (name STRING, a INT)")
    both = lake.sql("SELECT current_database(), current_schema() AS s, DB_NAME() AS d")
    assert both.columns == ["current_schema()", "s", "d"]
    assert [tuple(row) for row in both.collect()] == [("default",) * 3]
    lake.sql("USE sales")
    assert query(lake, "SELECT current_database(), current_schema(), DB_NAME()") == [("Sales",) * 3]
    lake.sql("INSERT INTO default.t SELECT current_database(), 1")
    lake.sql("INSERT INTO default.t VALUES (current_schema(), 2), ('other', 3)")
    counted = "SELECT count(*) FROM default.t WHERE name = current_database()"
    assert number(lake, counted) == 2
    lake.sql("UPDATE default.t SET name = upper(current_schema()) WHERE name = current_schema()")
    assert number(lake, "DELETE FROM default.t WHERE name = upper(current_database())") == 2
    with lake.session() as other:
        assert number(other, "SELECT current_database()") == "default"


def test_objects_and_databases_have_numbers_and_names(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE Sales; CREATE TABLE Orders (a INT); CREATE TABLE Sales.Lines (a INT)")
    [(orders, default), (lines, sales)] = [
        lake.sql(f"SELECT object_id, schema_id FROM sys.tables WHERE name = '{name}'").collect()[0]
        for name in ("Orders", "Lines")
    ]
    assert query(lake, "SELECT OBJECT_ID('orders'), OBJECT_ID(N'SALES.Lines', 'U')") == [
        (orders, lines)
    ]
    assert query(lake, "SELECT OBJECT_ID('lines'), OBJECT_ID('orders', 'P')") == [(None, None)]
    named = f"SELECT OBJECT_NAME({lines}), OBJECT_NAME({lines}, {sales})"
    assert query(lake, named) == [("Lines", "Lines")]
    assert query(lake, f"SELECT OBJECT_NAME({lines}, {default}), OBJECT_NAME(-1)") == [(None, None)]
    assert query(lake, "SELECT DB_ID(), DB_ID('SALES'), DB_ID('none')") == [(default, sales, None)]
    assert query(lake, f"SELECT DB_NAME({sales}), DB_NAME(NULL)") == [("Sales", None)]
    lake.sql("BEGIN; INSERT INTO orders VALUES (1)")
    locked = """
        SELECT OBJECT_NAME(resource_associated_entity_id), DB_NAME(resource_database_id)
        FROM sys.dm_tran_locks
        WHERE resource_type = 'OBJECT' AND request_session_id = @@SPID
    """
    assert query(lake, locked) == [("Orders", "default")]
    lake.sql("ROLLBACK")


def test_a_transaction_sees_the_objects_that_it_makes_and_drops(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE old (a INT); BEGIN; CREATE TABLE new (a INT); DROP TABLE old")
    [(made, gone)] = query(lake, "SELECT OBJECT_ID('new'), OBJECT_ID('old')")
    assert made is not None
    assert gone is None
    with lake.session() as other:
        [(hidden, there)] = query(other, "SELECT OBJECT_ID('new'), OBJECT_ID('old')")
        assert hidden is None
        assert there is not None
    lake.sql("COMMIT")
    assert query(lake, "SELECT OBJECT_ID('new'), OBJECT_ID('old')") == [(made, None)]


def test_a_condition_that_asks_is_checked_by_what_it_meant(lake: txlake.Lake) -> None:
    """The answer of its own session is what a concurrent append is compared with."""
    lake.sql("CREATE DATABASE sales; CREATE TABLE t (name STRING)")
    lake.sql("INSERT INTO t VALUES ('default'), ('sales')")
    with lake.session() as other:
        other.sql("USE sales; BEGIN ISOLATION LEVEL SERIALIZABLE")
        other.sql("DELETE FROM default.t WHERE name = current_database()")
        lake.sql("INSERT INTO t VALUES ('default')")
        other.sql("COMMIT")
        other.sql("BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO default.t VALUES ('mine')")
        other.sql("DELETE FROM default.t WHERE name = current_database()")
        lake.sql("INSERT INTO t VALUES ('sales')")
        with pytest.raises(txlake.errors.ConcurrentAppendException, match="sales"):
            other.sql("COMMIT")
    assert query(lake, "SELECT name FROM t") == [("default",), ("default",), ("sales",)]
