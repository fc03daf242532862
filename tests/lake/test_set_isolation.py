"""SET TRANSACTION ISOLATION LEVEL on a lake: it answers, counts, and a database can ignore it."""

from __future__ import annotations

import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest


def level_of_a_transaction(lake: txlake.Lake) -> object:
    lake.sql("BEGIN")
    (one,) = lake.transactions().collect()
    lake.sql("ROLLBACK")
    return one["isolation"]


def test_it_says_what_it_did_and_a_database_can_ignore_it(lake: txlake.Lake) -> None:
    ((said, level, message),) = query(lake, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert (said, level) == ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "serializable")
    assert "run at this level" in str(message)
    assert level_of_a_transaction(lake) == "serializable"
    lake.sql(
        "CREATE DATABASE deaf WITH DBPROPERTIES ('txlake.ignoreSetTransactionIsolation' = 'true')"
    )
    lake.sql("USE deaf")
    ((_, level, message),) = query(lake, "SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    assert level == "serializable"
    assert "ignored: database deaf" in str(message)
    assert level_of_a_transaction(lake) == "serializable"
    with pytest.raises(InvalidRequest, match="expected true or false"):
        lake.sql(
            "ALTER DATABASE deaf SET DBPROPERTIES ('txlake.ignoreSetTransactionIsolation' = '1')"
        )


def test_a_transaction_that_is_open_keeps_its_level(lake: txlake.Lake) -> None:
    lake.sql("BEGIN")
    with pytest.raises(InvalidRequest, match="comes before BEGIN"):
        lake.sql("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")


def test_names_of_transactions_are_refused_and_savepoints_are_not(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    with pytest.raises(InvalidRequest, match="no name, as in Fabric"):
        lake.sql("BEGIN TRAN transfer")
    lake.sql("BEGIN TRAN; SAVE TRAN here; INSERT INTO t VALUES (1); ROLLBACK TRAN here; COMMIT")
    assert query(lake, "SELECT * FROM t") == []
    tx = lake.begin()
    tx.sql("INSERT INTO t VALUES (1); SAVE TRAN here; INSERT INTO t VALUES (2)")
    tx.sql("ROLLBACK TRAN here; COMMIT")
    assert query(lake, "SELECT * FROM t") == [(1,)]


def test_only_one_statement_is_explained_and_none_is_run(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
    with pytest.raises(InvalidRequest, match="one statement"):
        lake.explain_conflicts("DELETE FROM t WHERE id = 2; DELETE FROM t")
    with pytest.raises(InvalidRequest, match="EXPLAIN CONFLICTS takes INSERT"):
        lake.explain_conflicts("")
    assert query(lake, "SELECT * FROM t") == [(1,)]
