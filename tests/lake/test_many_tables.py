"""Transactions over many tables and databases: one instant is read, at another all is true."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    InvalidRequest,
    SerializableIsolationViolation,
)

pytestmark = pytest.mark.broad(keep=4)


@pytest.fixture
def bank(lake: txlake.Lake) -> txlake.Lake:
    """Two tables in two databases, three rows each."""
    lake.sql("CREATE DATABASE savings")
    lake.sql("CREATE TABLE checking (id BIGINT, amount BIGINT)")
    lake.sql("CREATE TABLE savings.accounts (id BIGINT, amount BIGINT)")
    for table in ("checking", "savings.accounts"):
        lake.sql(f"INSERT INTO {table} VALUES (1, 100), (2, 100), (3, 100)")
    return lake


def total(on: txlake.Lake | txlake.Transaction) -> object:
    """The money in both tables."""
    return number(
        on,
        "SELECT sum(amount) FROM (SELECT amount FROM checking "
        "UNION ALL SELECT amount FROM savings.accounts)",
    )


def transfer(on: txlake.Lake | txlake.Transaction, account: int, amount: int) -> None:
    """Move money from one table to the other."""
    on.sql(f"UPDATE checking SET amount = amount - {amount} WHERE id = {account}")
    on.sql(f"UPDATE savings.accounts SET amount = amount + {amount} WHERE id = {account}")


def test_all_tables_commit_at_one_instant(bank: txlake.Lake) -> None:
    with bank.transaction() as tx:
        transfer(tx, 1, 30)
        assert total(tx) == 600
        assert query(tx, "SELECT amount FROM checking WHERE id = 1") == [(70,)]
        assert query(bank, "SELECT amount FROM checking WHERE id = 1") == [(100,)]
    assert total(bank) == 600
    assert query(bank, "SELECT amount FROM savings.accounts WHERE id = 1") == [(130,)]
    shown = query(bank, "SELECT sequence, table FROM txlake.commits")
    sequence = max(int(str(one)) for one, _ in shown)
    assert {name for one, name in shown if one == sequence} == {
        "default.checking",
        "savings.accounts",
    }


def test_what_fails_changes_no_table(bank: txlake.Lake) -> None:
    bank.sql("BEGIN; UPDATE checking SET amount = 0")
    with pytest.raises(InvalidRequest, match="nope"):
        bank.sql("UPDATE savings.accounts SET nope = 1")
    with pytest.raises(InvalidRequest, match="rolled back"):
        bank.sql("SELECT * FROM checking")
    bank.sql("ROLLBACK")
    assert total(bank) == 600
    with bank.session() as other:
        other.sql("BEGIN; DELETE FROM checking; DELETE FROM savings.accounts; ROLLBACK")
    assert total(bank) == 600


def test_one_instant_of_the_lake_is_read(bank: txlake.Lake) -> None:
    tx = bank.begin()
    assert tx.sequence is None  # BEGIN alone pins nothing
    transfer(bank, 1, 10)
    assert query(tx, "SELECT amount FROM checking WHERE id = 1") == [(90,)]
    pinned = tx.sequence
    bank.sql("BEGIN")
    transfer(bank, 1, 10)
    bank.sql("COMMIT")
    # The second table is read as of the instant of the first read.
    assert query(tx, "SELECT amount FROM savings.accounts WHERE id = 1") == [(110,)]
    assert total(tx) == 600
    assert tx.sequence == pinned
    tx.commit()
    assert query(bank, "SELECT amount FROM checking WHERE id = 1") == [(80,)]


def test_different_rows_of_both_tables_commit(bank: txlake.Lake) -> None:
    first, second = bank.begin(), bank.begin()
    transfer(first, 1, 10)
    transfer(second, 2, 20)
    second.commit()
    first.commit()
    assert total(bank) == 600
    assert query(bank, "SELECT amount FROM checking") == [(100,), (80,), (90,)]


def test_a_row_of_one_of_the_tables_is_enough_to_lose(bank: txlake.Lake) -> None:
    first = bank.begin()
    transfer(first, 1, 10)
    bank.sql("UPDATE savings.accounts SET amount = 0 WHERE id = 1")
    with pytest.raises(txlake.errors.Conflict) as lost:
        first.commit()
    assert lost.value.evidence is not None
    assert lost.value.evidence.table == "savings.accounts"
    assert query(bank, "SELECT amount FROM checking WHERE id = 1") == [(100,)]
    assert first.state == "rolled back"


LEVELS = ("snapshot", "write_serializable", "serializable")


@pytest.mark.parametrize("level", LEVELS)
def test_write_skew_over_two_tables(bank: txlake.Lake, level: str) -> None:
    first, second = bank.begin(isolation=level), bank.begin(isolation=level)
    for tx in (first, second):
        assert total(tx) == 600
    first.sql("DELETE FROM checking WHERE id = 1")
    second.sql("DELETE FROM savings.accounts WHERE id = 1")
    second.commit()
    if level == "serializable":
        with pytest.raises(SerializableIsolationViolation, match="1023") as lost:
            first.commit()
        assert lost.value.codes == (1023,)
        assert total(bank) == 500
    else:
        first.commit()
        assert total(bank) == 400


@pytest.mark.parametrize("level", LEVELS)
def test_a_cycle_through_a_table_that_is_only_read(bank: txlake.Lake, level: str) -> None:
    bank.sql("CREATE TABLE rates (rate BIGINT); INSERT INTO rates VALUES (1)")
    tx = bank.begin(isolation=level)
    rate = number(tx, "SELECT max(rate) FROM rates")
    tx.sql(f"UPDATE checking SET amount = amount * {rate}")
    bank.sql("BEGIN; UPDATE rates SET rate = 2; INSERT INTO savings.accounts VALUES (4, 1); COMMIT")
    if level == "serializable":
        with pytest.raises(SerializableIsolationViolation):
            tx.commit()
    else:
        tx.commit()


@pytest.mark.parametrize("level", LEVELS)
def test_an_insert_depends_on_what_it_selected(bank: txlake.Lake, level: str) -> None:
    tx = bank.begin(isolation=level)
    tx.sql("INSERT INTO checking SELECT id + 10, amount FROM savings.accounts WHERE id = 1")
    bank.sql("UPDATE savings.accounts SET amount = 7 WHERE id = 1")
    if level == "snapshot":
        tx.commit()
        return
    with pytest.raises(txlake.errors.Conflict) as lost:
        tx.commit()
    assert lost.value.evidence is not None
    assert lost.value.evidence.table == "savings.accounts"
    assert number(bank, "SELECT count(*) FROM checking") == 3


def test_blind_appends_to_what_was_selected(bank: txlake.Lake) -> None:
    for level, error in (("write_serializable", None), ("serializable", ConcurrentAppendException)):
        tx = bank.begin(isolation=level)
        tx.sql("INSERT INTO checking SELECT id + 10, amount FROM savings.accounts")
        bank.sql("INSERT INTO savings.accounts VALUES (4, 0)")
        if error is None:
            tx.commit()
        else:
            with pytest.raises(error):
                tx.commit()


CLEAN = "DELETE FROM checking WHERE id > 1"


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("ours", "commits"),
    [
        ([CLEAN], True),
        ([CLEAN, "CREATE TABLE report AS SELECT * FROM checking"], True),
        (["CREATE TABLE report AS SELECT * FROM checking"], True),
        ([CLEAN, "INSERT INTO third VALUES (1)"], True),
        ([CLEAN, "INSERT INTO savings.accounts VALUES (9, 9)"], False),
        ([CLEAN, "DELETE FROM savings.accounts WHERE id = 3"], False),
        ([CLEAN, "DROP TABLE third"], False),
    ],
)
@pytest.mark.parametrize(
    "theirs",
    [
        "INSERT INTO checking SELECT id + 10, amount FROM savings.accounts",
        "BEGIN; SELECT * FROM savings.accounts; INSERT INTO checking VALUES (11, 1); COMMIT",
    ],
)
def test_an_insert_of_rows_of_another_table_aborts_who_changes_that_one_too(
    bank: txlake.Lake, ours: list[str], commits: bool, theirs: str
) -> None:
    bank.sql("CREATE TABLE third (id BIGINT)")
    tx = bank.begin()
    for text in ours:
        tx.sql(text)
    with bank.session() as other:
        other.sql(theirs)
    if commits:
        tx.commit()
        return
    with pytest.raises(ConcurrentAppendException) as lost:
        tx.commit()
    assert lost.value.evidence is not None
    assert lost.value.evidence.table == "default.checking"


@pytest.mark.parametrize(("changes", "commits"), [("checking", True), ("savings.accounts", False)])
def test_what_an_insert_into_a_path_table_read_elsewhere_counts_too(
    bank: txlake.Lake, tmp_path: Path, changes: str, commits: bool
) -> None:
    place = f"delta.`{tmp_path / 'place'}`"
    bank.sql(f"CREATE TABLE {place} (id BIGINT, amount BIGINT)")
    bank.sql(f"INSERT INTO {place} VALUES (8, 8)")
    tx = bank.begin()
    tx.sql(f"INSERT INTO {changes} SELECT * FROM {place}")
    bank.sql(f"INSERT INTO {place} SELECT * FROM savings.accounts")
    if commits:
        tx.commit()
        return
    with pytest.raises(ConcurrentAppendException):
        tx.commit()


def test_what_an_insert_read_elsewhere_stands_in_its_commit(bank: txlake.Lake) -> None:
    bank.sql("INSERT INTO checking SELECT id + 10, amount FROM savings.accounts")
    place = bank.table("checking").detail().collect()[0]
    source = bank.table("savings.accounts").detail().collect()[0]
    info = bank.table("checking").history(1).collect()[0]
    assert info.isBlindAppend
    text = Path(place.location.removeprefix("file:")) / "_delta_log" / f"{info.version:020}.json"
    [told] = [json.loads(line) for line in text.read_text().splitlines() if "commitInfo" in line]
    assert told["commitInfo"]["tags"] == {"txlake.readsElsewhere": json.dumps([source.id])}


# Two users, as the documentation of SERIALIZABLE and SNAPSHOT databases in Redshift has them.
@pytest.mark.parametrize(("level", "commits"), [("SNAPSHOT", True), ("SERIALIZABLE", False)])
def test_the_documented_timeline(lake: txlake.Lake, level: str, commits: bool) -> None:
    lake.sql(f"CREATE DATABASE d ISOLATION LEVEL {level}")
    lake.sql("CREATE TABLE d.tab1 (id BIGINT); CREATE TABLE d.tab2 (id BIGINT)")
    with lake.session() as one, lake.session() as two:
        one.sql("BEGIN")
        two.sql("BEGIN")
        assert query(one, "SELECT * FROM d.tab1") == []
        assert query(two, "SELECT * FROM d.tab2") == []
        one.sql("INSERT INTO d.tab2 VALUES (1)")
        two.sql("INSERT INTO d.tab1 VALUES (1)")
        one.sql("COMMIT")
        if commits:
            two.sql("COMMIT")
        else:
            with pytest.raises(SerializableIsolationViolation, match="1023"):
                two.sql("COMMIT")
    assert number(lake, "SELECT count(*) FROM d.tab1") == int(commits)
    assert number(lake, "SELECT count(*) FROM d.tab2") == 1


def test_read_only_transactions_take_no_commit(bank: txlake.Lake) -> None:
    before = number(bank, "SELECT max(sequence) FROM txlake.commits")
    with bank.transaction(isolation="serializable", read_only=True) as tx:
        assert total(tx) == 600
        transfer(bank, 1, 1)
        assert total(tx) == 600
    with bank.transaction(isolation="serializable") as tx:
        assert total(tx) == 600
        transfer(bank, 1, 1)
    after = number(bank, "SELECT max(sequence) FROM txlake.commits")
    assert int(str(after)) == int(str(before)) + 4


def test_path_tables_are_committed_alone(bank: txlake.Lake, tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("a", "b")]
    for place in places:
        bank.write(pa.table({"id": [1]}), place)
    for other in (f"INSERT INTO delta.`{places[1]}` VALUES (2)", "DELETE FROM checking"):
        tx = bank.begin()
        tx.sql(f"INSERT INTO delta.`{places[0]}` VALUES (2)")
        with pytest.raises(InvalidRequest, match="attach"):
            tx.sql(other)
        tx.rollback()
    assert number(bank, f"SELECT count(*) FROM delta.`{places[0]}`") == 1
    with bank.transaction() as tx:  # read, it may be beside others
        tx.sql(f"INSERT INTO checking SELECT id, 0 FROM delta.`{places[0]}`")
    assert number(bank, "SELECT count(*) FROM checking") == 4


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_read_in_path_tables_is_checked_before_the_commit(
    bank: txlake.Lake, tmp_path: Path, level: str
) -> None:
    place = str(tmp_path / "plain")
    bank.write(pa.table({"id": [1]}), place)
    bank.write(pa.table({"id": [1]}), f"{place} too")
    for written in ("checking", f"delta.`{place} too`"):
        tx = bank.begin(isolation=level)
        assert number(tx, f"SELECT count(*) FROM delta.`{place}`") is not None
        tx.sql(f"DELETE FROM {written} WHERE id = 1")
        bank.sql(f"INSERT INTO delta.`{place}` VALUES (2)")
        if level == "serializable":
            with pytest.raises(SerializableIsolationViolation):
                tx.commit()
        else:
            tx.commit()


def test_savepoints_reach_over_tables(bank: txlake.Lake) -> None:
    with bank.transaction() as tx:
        transfer(tx, 1, 10)
        tx.savepoint("one")
        tx.sql("CREATE TABLE later (id BIGINT)")
        transfer(tx, 2, 10)
        tx.sql("DROP TABLE savings.accounts")
        tx.rollback_to("one")
        assert total(tx) == 600
        assert query(tx, "SELECT amount FROM checking") == [(100,), (100,), (90,)]
        assert [row[1] for row in query(tx, "SHOW TABLES")] == ["checking"]
    assert query(bank, "SELECT amount FROM savings.accounts") == [(100,), (100,), (110,)]
    assert [row[1] for row in query(bank, "SHOW TABLES")] == ["checking"]


def test_both_change_a_row_of_two_tables_in_turns(bank: txlake.Lake) -> None:
    first, second = bank.begin(isolation="snapshot"), bank.begin(isolation="snapshot")
    first.sql("UPDATE checking SET amount = 1 WHERE id = 1")
    second.sql("UPDATE savings.accounts SET amount = 1 WHERE id = 1")
    first.sql("DELETE FROM savings.accounts WHERE id = 1")
    second.sql("DELETE FROM checking WHERE id = 1")
    first.commit()
    with pytest.raises(ConcurrentDeleteDeleteException):
        second.commit()
    assert query(bank, "SELECT id, amount FROM checking WHERE id = 1") == [(1, 1)]


def test_a_long_commit_gets_its_turn(bank: txlake.Lake) -> None:
    """Others commit between each of its attempts; its rows are nobody's, so it must get through."""
    done = 0

    def others() -> None:
        nonlocal done
        done += 1
        bank.sql(f"UPDATE checking SET amount = amount + {done} WHERE id = 2")

    tx = bank.begin()
    transfer(tx, 1, 10)
    for _ in range(12):
        others()
    tx.commit()
    assert query(bank, "SELECT amount FROM checking WHERE id = 1") == [(90,)]
