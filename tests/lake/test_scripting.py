"""SQL scripting in BEGIN ATOMIC ... END: all or nothing, with variables, branches and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import Conflict, InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def accounts(lake: txlake.Lake) -> txlake.Lake:
    """A lake with the tables `accounts` (id, amount) and `notes` (note)."""
    lake.sql("CREATE TABLE accounts (id INT, amount INT, CONSTRAINT some CHECK (amount >= 0))")
    lake.sql("INSERT INTO accounts VALUES (1, 10), (2, 20)")
    lake.sql("CREATE TABLE notes (note STRING)")
    return lake


def _notes(lake: txlake.Lake) -> list[object]:
    return [note for (note,) in query(lake, "SELECT note FROM notes")]


def test_variables_branches_and_loops(accounts: txlake.Lake) -> None:
    accounts.sql("""
        BEGIN ATOMIC
            DECLARE total INT DEFAULT 5;
            DECLARE left, right INT;
            SET total = (SELECT sum(amount) FROM accounts) + total;
            SET (left, right) = (SELECT min(id), max(id) FROM accounts);
            IF total = 36 THEN INSERT INTO notes VALUES ('wrong');
            ELSEIF total = 35 AND right = 2 THEN INSERT INTO notes VALUES (concat('sum ', total));
            END IF;
            CASE left WHEN 7 THEN INSERT INTO notes VALUES ('seven');
                ELSE INSERT INTO notes SELECT 'one'; END CASE;
            again: WHILE true DO
                SET left = left + 1;
                IF left = 2 THEN ITERATE again; END IF;
                IF left > 3 THEN LEAVE again; END IF;
                INSERT INTO notes VALUES (concat('loop ', left));
            END WHILE again;
            FOR account AS SELECT id AS key, amount FROM accounts ORDER BY id DO
                UPDATE accounts SET amount = account.amount + key WHERE id = account.key;
            END FOR;
        END
    """)
    assert _notes(accounts) == ["loop 3", "one", "sum 35"]
    assert query(accounts, "SELECT * FROM accounts") == [(1, 11), (2, 22)]
    assert number(accounts, "SELECT count(*) FROM (DESCRIBE HISTORY notes) WHERE version > 0") == 1
    with pytest.raises(InvalidRequest, match="total"):
        accounts.sql("SELECT total")  # a variable ends with its block


def test_what_fails_undoes_the_whole_script(accounts: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"SQLSTATE 45000\] not 30"):
        accounts.sql("""
            BEGIN ATOMIC
                DECLARE total INT;
                DELETE FROM accounts WHERE id = 1;
                SET total = (SELECT 30);
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = concat('not ', total);
            END
        """)
    assert len(query(accounts, "SELECT * FROM accounts")) == 2
    with pytest.raises(InvalidRequest, match="no branch of this CASE"):
        accounts.sql(
            "BEGIN ATOMIC DELETE FROM accounts; CASE WHEN false THEN SELECT 1; END CASE; END"
        )
    assert len(query(accounts, "SELECT * FROM accounts")) == 2
    accounts.sql("SELECT 1")


def test_a_handler_finds_the_lake_as_the_failed_step_did(accounts: txlake.Lake) -> None:
    accounts.sql("""
        BEGIN ATOMIC
            DECLARE kind STRING DEFAULT 'other';
            DECLARE CONTINUE HANDLER FOR SQLSTATE '45001' SET kind = 'mine';
            DECLARE EXIT HANDLER FOR SQLEXCEPTION
                INSERT INTO notes SELECT concat(kind, ' ', count(*)) FROM accounts;
            INSERT INTO accounts VALUES (3, 30);
            SIGNAL SQLSTATE '45001';
            UPDATE accounts SET amount = amount - 15;
            INSERT INTO notes VALUES ('not reached');
        END
    """)
    assert _notes(accounts) == ["mine 3"]
    assert query(accounts, "SELECT amount FROM accounts") == [(10,), (20,), (30,)]


def test_an_inner_handler_comes_first_and_resignal_leaves_it(accounts: txlake.Lake) -> None:
    accounts.sql("""
        BEGIN ATOMIC
            DECLARE EXIT HANDLER FOR SQLEXCEPTION INSERT INTO notes VALUES ('outer');
            BEGIN
                DECLARE EXIT HANDLER FOR DIVIDE_BY_ZERO BEGIN
                    INSERT INTO notes VALUES ('inner');
                    RESIGNAL;
                END;
                IF 1 / 0 > 1 THEN INSERT INTO notes VALUES ('no'); END IF;
            END;
            INSERT INTO notes VALUES ('not reached');
        END
    """)
    assert _notes(accounts) == ["inner", "outer"]


def test_a_conflict_is_no_handlers_business(accounts: txlake.Lake) -> None:
    with accounts.session() as other:
        other.sql("BEGIN; LOCK TABLE accounts")
        accounts.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(txlake.errors.LockTimeout):
            accounts.sql(
                "BEGIN ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION "
                "INSERT INTO notes VALUES ('no'); DELETE FROM accounts; END"
            )
        other.sql("ROLLBACK")
    assert _notes(accounts) == []
    assert not issubclass(Conflict, InvalidRequest)


def test_a_variable_that_was_there_before_is_there_again(accounts: txlake.Lake) -> None:
    accounts.sql("DECLARE VARIABLE told STRING DEFAULT 'before'")
    accounts.sql("""
        BEGIN ATOMIC
            DECLARE told INT DEFAULT 1;
            BEGIN DECLARE told INT DEFAULT 2; INSERT INTO notes SELECT told; END;
            INSERT INTO notes SELECT told;
        END
    """)
    assert _notes(accounts) == ["1", "2"]
    assert number(accounts, "SELECT told") == "before"
    accounts.sql("DROP TEMPORARY VARIABLE told")


def test_execute_immediate(accounts: txlake.Lake) -> None:
    accounts.sql("DECLARE VARIABLE found INT; DECLARE VARIABLE named STRING DEFAULT 'notes'")
    accounts.sql(
        "EXECUTE IMMEDIATE 'SELECT max(amount) FROM accounts WHERE id < ?' INTO found USING 1 + 1"
    )
    assert number(accounts, "SELECT found") == 10
    accounts.sql("EXECUTE IMMEDIATE 'INSERT INTO ' || named || ' VALUES (:a)' USING 'it' AS a")
    assert _notes(accounts) == ["it"]
    accounts.sql("BEGIN; EXECUTE IMMEDIATE 'DELETE FROM ' || named; EXECUTE IMMEDIATE 'ROLLBACK'")
    assert accounts.sql("SELECT * FROM notes").count() == 1
    with accounts.transaction() as transaction:
        transaction.sql("EXECUTE IMMEDIATE 'DELETE FROM ' || named")
        assert query(transaction, "SELECT * FROM notes") == []
    assert _notes(accounts) == []
    for text, problem in (
        ("EXECUTE IMMEDIATE 'SELECT 1; SELECT 2'", "takes one statement"),
        ("EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE 1'", "expected a text"),
        ("EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE \\'SELECT 1\\'' INTO found", "takes a query"),
        ("EXECUTE IMMEDIATE 'DELETE FROM notes' INTO found", "takes a query"),
        ("EXECUTE IMMEDIATE 'SELECT 1, 2' INTO found", "expected 1 columns"),
        ("EXECUTE IMMEDIATE 'SELECT ?' USING 1, 2", "2 values were given"),
        ("EXECUTE IMMEDIATE 'SELECT ?' USING 1 AS a, 2", "2 values were given"),
        ("EXECUTE IMMEDIATE 'SELECT :a' USING 1 AS a, 2", "for each value or for none"),
        ("EXECUTE IMMEDIATE 'SELECT amount FROM accounts WHERE id = ?' USING id", "`id`"),
        ("EXECUTE IMMEDIATE 1", "expected a text"),
        ("EXECUTE IMMEDIATE 'SELEC'", "is not understood"),
    ):
        with pytest.raises(InvalidRequest, match=problem):
            accounts.sql(text)
    accounts.sql("BEGIN; DELETE FROM accounts")
    with pytest.raises(InvalidRequest, match="is not understood"):
        accounts.sql("EXECUTE IMMEDIATE 'SELEC'")
    with pytest.raises(InvalidRequest, match="rolled back"):
        accounts.sql("SELECT * FROM accounts")
    accounts.sql("ROLLBACK; DROP TEMPORARY VARIABLE found; DROP TEMPORARY VARIABLE named")


def test_what_execute_immediate_is_given_are_values_before_columns(
    lake: txlake.Lake, spark: SparkSession
) -> None:
    lake.sql("CREATE TABLE taken (id INT, at TIMESTAMP, name STRING)")
    lake.sql("INSERT INTO taken VALUES (1, TIMESTAMP'2024-10-27 01:30:00Z', 'a'), (2, NULL, 'b')")
    values = {
        "id": "2",
        "at": "TIMESTAMP'2024-10-27 01:30:00Z'",
        "name": "'a\\'b'",
        "wall": "TIMESTAMP_NTZ'2024-03-31 02:30:00'",
        "small": "CAST(3 AS TINYINT)",
        "none": "CAST(NULL AS DATE)",
        "half": "double('NaN')",
        "list": "array(1, 2)",
    }
    try:
        for name, value in values.items():
            lake.sql(f"DECLARE VARIABLE {name} = {value}")
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        found = lake.sql("EXECUTE IMMEDIATE 'SELECT id FROM taken WHERE ? = id' USING id")
        assert found.collect() == [(2,)]
        found = lake.sql("EXECUTE IMMEDIATE 'SELECT id FROM taken WHERE at = :at' USING at")
        assert found.collect() == [(1,)]
        for name in values:
            found = lake.sql(f"EXECUTE IMMEDIATE 'SELECT :v AS v' USING {name} AS v")
            plain = spark.sql(f"SELECT {name} AS v")
            assert found.schema[0].dataType == plain.schema[0].dataType, name
            assert str(found.selectExpr("string(v)").collect()) == str(
                plain.selectExpr("string(v)").collect()
            ), name
        nested = "EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE \\'SELECT ?\\' USING id'"
        assert lake.sql(nested).collect() == [(2,)]
        lake.sql("DECLARE VARIABLE again = 'EXECUTE IMMEDIATE again'")
        with pytest.raises(InvalidRequest, match="evaluates itself"):
            lake.sql("EXECUTE IMMEDIATE again")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
        for name in (*values, "again"):
            lake.sql(f"DROP TEMPORARY VARIABLE IF EXISTS {name}")
