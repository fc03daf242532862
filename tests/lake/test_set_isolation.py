"""SET TRANSACTION ISOLATION LEVEL on a lake: it answers, counts, and a database can ignore it."""

from __future__ import annotations

import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest, SerializableIsolationViolation

pytestmark = pytest.mark.broad(keep=2)


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


def test_in_an_open_transaction_it_raises_the_level_and_the_transaction_goes_on(
    lake: txlake.Lake,
) -> None:
    lake.sql("CREATE TABLE t (id INT); CREATE TABLE u (id INT); INSERT INTO t VALUES (1)")
    lake.sql("BEGIN ISOLATION LEVEL SNAPSHOT; SELECT * FROM t WHERE id = 2")
    ((_, level, message),) = query(lake, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert level == "serializable"
    assert "the open transaction" in str(message)
    (one,) = lake.transactions().collect()
    assert one["isolation"] == "serializable"
    query(lake, "SET TRANSACTION ISOLATION LEVEL SNAPSHOT")  # and it is never lowered
    lake.sql("INSERT INTO u VALUES (1)")
    with lake.session() as other:
        other.sql("INSERT INTO t VALUES (2)")
    with pytest.raises(SerializableIsolationViolation):
        lake.sql("COMMIT")
    assert query(lake, "SELECT * FROM u") == []
    assert level_of_a_transaction(lake) == "snapshot"


def test_it_is_heard_in_a_transaction_that_is_an_object(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    tx = lake.begin()
    tx.sql("SELECT * FROM t")
    tx.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; INSERT INTO u VALUES (1)")
    with lake.session() as other:
        other.sql("INSERT INTO t VALUES (2)")
    with pytest.raises(SerializableIsolationViolation):
        tx.commit()


def test_one_that_is_ignored_leaves_the_transaction_open(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE DATABASE deaf WITH DBPROPERTIES ('txlake.ignoreSetTransactionIsolation' = 'true')"
    )
    lake.sql("USE deaf; CREATE TABLE t (id INT); BEGIN; INSERT INTO t VALUES (1)")
    ((_, level, message),) = query(lake, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert level == "write_serializable"
    assert "ignored" in str(message)
    lake.sql("COMMIT")
    assert query(lake, "SELECT * FROM t") == [(1,)]


def test_a_failed_transaction_does_not_hear_it(lake: txlake.Lake) -> None:
    lake.sql("BEGIN")
    with pytest.raises(InvalidRequest, match="nowhere"):
        lake.sql("SELECT * FROM nowhere")
    with pytest.raises(InvalidRequest, match="was rolled back because a statement failed"):
        lake.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    lake.sql("ROLLBACK")


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


def test_show_transaction_isolation(lake: txlake.Lake) -> None:
    shown = lake.sql("SHOW transaction_isolation")
    assert shown.columns == ["transaction_isolation"]
    assert [tuple(row) for row in shown.collect()] == [("write_serializable",)]
    lake.sql("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    assert lake.sql("SHOW TRANSACTION ISOLATION LEVEL").collect()[0][0] == "snapshot"
    lake.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert lake.sql("SHOW transaction_isolation").collect()[0][0] == "serializable"
    lake.sql("ROLLBACK; CREATE DATABASE strict ISOLATION LEVEL SERIALIZABLE; USE strict")
    assert lake.sql("SHOW transaction_isolation").collect()[0][0] == "serializable"
    lake.sql("USE default")
    with lake.transaction(isolation="serializable") as tx:
        assert tx.sql("SHOW transaction_isolation").collect()[0][0] == "serializable"
