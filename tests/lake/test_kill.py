"""KILL: what another session has open ends, and that session is told."""

from __future__ import annotations

import re
import threading

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest, Unavailable

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def table(lake: txlake.Lake) -> txlake.Lake:
    lake.sql("CREATE TABLE t AS SELECT 1 AS a")
    return lake


@pytest.mark.parametrize(
    "next_statement",
    ["SELECT * FROM t", "INSERT INTO t VALUES (3)", "SELECT 1", "SHOW TABLES", "COMMIT"],
)
@pytest.mark.parametrize("writes", [True, False])
def test_the_killed_session_is_told_by_its_next_statement(
    table: txlake.Lake, next_statement: str, writes: bool
) -> None:
    with table.session() as other:
        other.sql("BEGIN")
        other.sql("INSERT INTO t VALUES (2)" if writes else "SELECT * FROM t").collect()
        spid = number(other, "SELECT @@SPID")
        table.sql(f"KILL {spid}")
        assert (
            query(table, f"SELECT 1 FROM sys.dm_tran_locks WHERE request_session_id = {spid}") == []
        )
        with pytest.raises(Unavailable, match="was killed by somebody else; run it again"):
            other.sql(next_statement)
        if next_statement != "COMMIT":
            with pytest.raises(InvalidRequest, match="was killed by somebody else"):
                other.sql("SELECT 1")
            other.sql("ROLLBACK")
        other.sql("INSERT INTO t VALUES (4)")
    assert query(table, "SELECT a FROM t") == [(1,), (4,)]


def test_all_of_a_sessions_transactions_end(table: txlake.Lake) -> None:
    with table.session() as other:
        first, second = other.begin(), other.begin()
        first.sql("INSERT INTO t VALUES (2)")
        table.sql(f"KILL '{number(other, 'SELECT @@SPID')}'")
        for tx in (first, second):
            with pytest.raises(Unavailable, match="was killed"):
                tx.sql("SELECT 1")
    assert query(table, "SELECT a FROM t") == [(1,)]


def test_a_statement_that_waits_is_told(table: txlake.Lake) -> None:
    told: list[Exception] = []
    table.sql("BEGIN; INSERT INTO t VALUES (2)")
    with table.session() as other, table.session() as admin:
        spid = number(other, "SELECT @@SPID")

        def wait() -> None:
            try:
                other.sql("DROP TABLE t")
            except Unavailable as error:
                told.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        waits = (
            f"SELECT 1 FROM sys.dm_exec_requests WHERE session_id = {spid} AND status = 'suspended'"
        )
        for _ in range(200):
            if query(admin, waits):
                break
        admin.sql(f"KILL {spid}")
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert re.search("(was killed|was ended) by somebody else", str(told[0]))
    table.sql("COMMIT")
    assert query(table, "SELECT a FROM t") == [(1,), (2,)]


def test_what_cannot_be_killed(table: txlake.Lake) -> None:
    own = number(table, "SELECT @@SPID")
    with pytest.raises(InvalidRequest, match=f"KILL {own}: this is the session itself"):
        table.sql(f"KILL {own}")
    with pytest.raises(InvalidRequest, match="KILL 12345: there is no session 12345"):
        table.sql("KILL 12345")
    with table.session() as other:
        idle = number(other, "SELECT @@SPID")
        with pytest.raises(InvalidRequest, match=f"session {idle} has no open transaction"):
            table.sql(f"KILL {idle}")


def test_the_killer_goes_on_in_its_own_transaction(table: txlake.Lake) -> None:
    with table.session() as other:
        other.sql("BEGIN; INSERT INTO t VALUES (2)")
        spid = number(other, "SELECT @@SPID")
        table.sql(f"BEGIN; INSERT INTO t VALUES (3); KILL {spid}; COMMIT")
    assert query(table, "SELECT a FROM t") == [(1,), (3,)]
