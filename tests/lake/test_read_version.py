"""`read_version`: a statement is judged as part of a transaction that began at that version."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import txlake
from txlake.commit.checkpointing import write_checkpoint
from txlake.errors import Conflict, InvalidRequest, MetadataChangedException
from txlake.protocol.file_names import commit_path
from txlake.sql.statements import TablePath

LEVELS = ("serializable", "write_serializable", "snapshot")
PLACES = ("t", "delta.`memory://elsewhere/t`")
# {t} has (id, v) = (1, 1), (2, 2), (3, 3).
STATEMENTS = {
    "update": "UPDATE {t} SET v = 10 WHERE id = 1",
    "delete": "DELETE FROM {t} WHERE id = 1",
    "merge": (
        "MERGE INTO {t} AS t USING (SELECT 1 AS id, 9 AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (id, v)"
    ),
    "truncate": "TRUNCATE TABLE {t}",
    "optimize": "OPTIMIZE {t}",
    "insert": "INSERT INTO {t} VALUES (8, 8)",
    "overwrite": "INSERT OVERWRITE {t} VALUES (8, 8)",
    "replace": "INSERT INTO {t} REPLACE WHERE id = 1 VALUES (1, 7)",
}
WINNERS = {
    "none": "SELECT 1",
    "insert": "INSERT INTO {t} VALUES (4, 4)",
    "same row": "UPDATE {t} SET v = 20 WHERE id = 1",
    "other row": "UPDATE {t} SET v = 20 WHERE id = 2",
    "delete": "DELETE FROM {t} WHERE id = 1",
    "compaction": "OPTIMIZE {t}",
    "definition": "ALTER TABLE {t} ADD COLUMNS (w INT)",
    "two": "UPDATE {t} SET v = 5 WHERE id = 3; DELETE FROM {t} WHERE id = 2",
}


@pytest.fixture
def lake(row_lake: txlake.Lake) -> txlake.Lake:
    """An empty lake whose rows are Python's."""
    return row_lake


def filled(lake: txlake.Lake, table: str) -> int:
    """Make the table of the cases anew; return its version."""
    lake.sql(
        f"CREATE OR REPLACE TABLE {table} (id INT, v INT); INSERT INTO {table} VALUES (1, 1), "
        f"(2, 2); INSERT INTO {table} VALUES (3, 3)"
    )
    return version_of(lake, table)


def version_of(lake: txlake.Lake, table: str) -> int:
    history: Any = lake.sql(f"DESCRIBE HISTORY {table}")
    return int(history.dicts()[0]["version"])


def rows_of(lake: txlake.Lake, table: str) -> list[tuple[object, ...]]:
    frame: Any = lake.sql(f"SELECT id, v FROM {table}")
    return sorted((row["id"], row["v"]) for row in frame.dicts())


def elsewhere(lake: txlake.Lake, text: str) -> None:
    """What another session does meanwhile."""
    with lake.session() as other:
        other.sql(text)


def outcome(lake: txlake.Lake, table: str, run: Callable[[], object]) -> object:
    """The rows after `run`; or the error's type, its rule and the winner's place among commits."""
    try:
        run()
    except Conflict as conflict:
        facts = conflict.evidence
        assert facts is not None
        return type(conflict), facts.rule, facts.winning_version - facts.read_version
    return rows_of(lake, table)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("place", PLACES, ids=["lake", "path"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_judged_as_a_transaction_that_began_then(
    lake: txlake.Lake, name: str, place: str
) -> None:
    """The oracle: the same statement in a transaction that has opened the table before the winner
    committed. Of INSERTs the transaction also reads the whole table, as `read_version` assumes.
    """
    text = STATEMENTS[name].replace("{t}", place)
    brings = name in ("insert", "overwrite", "replace")
    found: dict[tuple[str, str], object] = {}
    expected: dict[tuple[str, str], object] = {}
    # In a lake an open transaction keeps the definition from changing.
    winners = [one for one in WINNERS if place != "t" or one != "definition"]
    for level, winner in product(LEVELS, winners):
        won = WINNERS[winner].replace("{t}", place)

        version = filled(lake, place)
        tx = lake.begin(level)
        tx.table(place.replace("delta.`", "").rstrip("`"))
        elsewhere(lake, won)

        def began_then(tx: txlake.Transaction = tx) -> None:
            tx.sql(text)
            if brings:
                [(_, part)] = list(tx._own.tables)
                part.read()
            tx.commit()

        expected[level, winner] = outcome(lake, place, began_then)
        tx.rollback()

        version = filled(lake, place)
        elsewhere(lake, won)

        def is_given(level: str = level, version: int = version) -> None:
            with lake.transaction(level) as tx:
                tx.sql(text, read_version=version)

        found[level, winner] = outcome(lake, place, is_given)
    assert found == expected
    verdicts = {winner: isinstance(expected[LEVELS[0], winner], list) for winner in winners}
    assert verdicts["none"]
    assert not verdicts["same row"] or name == "optimize"


def test_a_lost_update_is_refused_with_its_evidence(lake: txlake.Lake) -> None:
    version = filled(lake, "t")
    elsewhere(lake, "UPDATE t SET v = 20 WHERE id = 1")
    told = rf"read_version={version} of default\.t is what was read: read the table again"
    for text in ("UPDATE t SET v = 10 WHERE id = 1", "INSERT OVERWRITE t VALUES (1, 10)"):
        with pytest.raises(Conflict, match=told) as caught:
            lake.sql(text, read_version=version)
        facts = caught.value.evidence
        assert facts is not None
        assert (facts.read_version, facts.winning_version) == (version, version + 1)
        assert facts.winning_operation == "UPDATE"
        assert not facts.retry
        assert "plain retry cannot succeed" in str(caught.value)
    assert rows_of(lake, "t") == [(1, 20), (2, 2), (3, 3)]
    lake.sql("UPDATE t SET v = 10 WHERE id = 1", read_version=version + 1)
    assert rows_of(lake, "t") == [(1, 10), (2, 2), (3, 3)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_definition_that_changed_since(lake: txlake.Lake, name: str) -> None:
    version = filled(lake, "t")
    elsewhere(lake, WINNERS["definition"].replace("{t}", "t"))
    with pytest.raises(MetadataChangedException):
        lake.sql(STATEMENTS[name].replace("{t}", "t"), read_version=version)


def test_work_that_reads_again_gets_through(lake: txlake.Lake) -> None:
    filled(lake, "t")
    versions = []

    def work(tx: txlake.Transaction) -> None:
        versions.append(version_of(lake, "t"))
        if len(versions) == 1:
            elsewhere(lake, "UPDATE t SET v = 20 WHERE id = 1")
        tx.sql("UPDATE t SET v = 10 WHERE id = 1", read_version=versions[-1])

    lake.run(work)
    assert len(versions) == 2
    assert rows_of(lake, "t")[0] == (1, 10)


@pytest.mark.parametrize(
    ("statement", "reads", "stands"),
    [
        ("INSERT INTO t VALUES (8, 8)", None, False),
        ("INSERT INTO t VALUES (8, 8)", "id = 2", False),
        ("INSERT INTO t VALUES (8, 8)", "id = 1", True),
        ("INSERT INTO t VALUES (8, 8)", "id < 2 AND v = 1", True),
        ("INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 7)", None, False),
        ("INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 7)", "id = 1", True),
        ("UPDATE t SET v = 7 WHERE id = 1", None, True),
        ("UPDATE t SET v = 7 WHERE id = 1", "id IN (1, 3)", True),
        ("UPDATE t SET v = 7 WHERE id = 1", "id IN (1, 2)", False),
        ("UPDATE t SET v = 7 WHERE id = 1", "true", False),
        ("OPTIMIZE t", None, True),
    ],
)
def test_what_counts_as_read(
    lake: txlake.Lake, statement: str, reads: str | None, stands: bool
) -> None:
    """The winner updates the row 2."""
    version = filled(lake, "t")
    elsewhere(lake, "UPDATE t SET v = 20 WHERE id = 2")
    before = rows_of(lake, "t")
    if not stands:
        with pytest.raises(Conflict):
            lake.sql(statement, read_version=version, reads=reads)
        assert rows_of(lake, "t") == before
        return
    lake.sql(statement, read_version=version, reads=reads)
    assert (2, 20) in rows_of(lake, "t")
    assert version_of(lake, "t") == version + 2


def test_versions_of_several_tables(lake: txlake.Lake) -> None:
    """A table that the statement doesn't name counts as read too, as a whole unless it is said."""
    t = filled(lake, "t")
    lake.sql("CREATE TABLE u (id INT, v INT); INSERT INTO u VALUES (1, 1), (2, 2)")
    u = version_of(lake, "u")
    elsewhere(lake, "UPDATE u SET v = 20 WHERE id = 2")
    text = "UPDATE t SET v = 10 WHERE id = 1"
    with pytest.raises(Conflict, match=rf"read_version={u} of default\.u"):
        lake.sql(text, read_version={"t": t, "u": u})
    with pytest.raises(Conflict, match=r"default\.u"):
        lake.sql(text, read_version={"t": t, "u": u}, reads={"u": "id = 2"})
    with pytest.raises(Conflict, match=r"default\.u"):
        lake.sql(text, read_version={"u": u})
    assert rows_of(lake, "t")[0] == (1, 1)
    lake.sql(text, read_version={"t": t, "u": u}, reads={"u": "id = 1"})
    assert rows_of(lake, "t")[0] == (1, 10)
    lake.sql(text, read_version={"u": u + 1})


def test_a_statement_reads_the_versions_that_it_is_given(lake: txlake.Lake) -> None:
    version = filled(lake, "t")
    lake.sql("CREATE TABLE copies (id INT, v INT)")
    elsewhere(lake, "INSERT INTO t VALUES (4, 4)")
    lake.sql("INSERT INTO copies SELECT * FROM t", read_version={"t": version})
    assert [id_ for id_, _ in rows_of(lake, "copies")] == [1, 2, 3]
    frame: Any = lake.sql("SELECT count(*) AS n FROM t", read_version=version)
    assert frame.dicts() == [{"n": 3}]
    with lake.transaction() as tx:
        frame = tx.sql("SELECT count(*) AS n FROM t", read_version=version)
        assert frame.dicts() == [{"n": 3}]
        tx.sql("UPDATE t SET v = 0 WHERE id = 1", read_version=version)
        tx.sql("UPDATE t SET v = v + 1 WHERE id = 1")
    assert rows_of(lake, "t")[0] == (1, 1)


@pytest.mark.parametrize("place", PLACES, ids=["lake", "path"])
def test_a_handle_of_a_version(lake: txlake.Lake, place: str) -> None:
    version = filled(lake, place)
    elsewhere(lake, f"UPDATE {place} SET v = 20 WHERE id = 2")
    table = lake.table(place.replace("delta.`", "").rstrip("`"), read_version=version)
    table.update("id = 1", {"v": "10"})
    with pytest.raises(Conflict):
        table.update("id = 2", {"v": "30"})
    with pytest.raises(Conflict):  # it is still of that version, before its own update
        table.delete("id = 1")
    table.delete("id = 3")
    table.optimize().executeCompaction()
    assert rows_of(lake, place) == [(1, 10), (2, 20)]
    frame: Any = table.toDF()
    assert sorted(row["v"] for row in frame.dicts()) == [1, 2, 3]
    with pytest.raises(InvalidRequest, match=r"read_version goes with .* found DESCRIBE HISTORY"):
        table.history()
    with lake.transaction() as tx:
        table = tx.table(place.replace("delta.`", "").rstrip("`"), read_version=version)
        table.update("id = 9", {"v": "0"})
        assert tx._own.tables.versions
    with lake.transaction() as tx:
        tx.table("t" if place == "t" else "memory://elsewhere/t")
        with pytest.raises(InvalidRequest, match="give read_version with its first statement"):
            tx.table("t" if place == "t" else "memory://elsewhere/t", read_version=version)
        tx.rollback()


# What can't be


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"read_version": -1}, "a whole number of 0 or more, found -1"),
        ({"read_version": True}, "a whole number of 0 or more, found True"),
        ({"read_version": "2"}, "a whole number of 0 or more, found '2'"),
        ({"read_version": {"t": 1.0}}, "a whole number of 0 or more, found 1.0"),
        ({"read_version": {}}, "expected a version, or versions by table"),
        ({"read_version": {3: 1}}, "expected a table's name or place, found 3"),
        ({"read_version": 99}, "the newest version that the transaction sees is 3"),
        ({"read_version": {"t": 3, "default.T": 3}}, r"default\.t is given twice"),
        ({"read_version": {"nowhere": 3}}, "nowhere"),
        ({"read_version": {"memory://elsewhere/none": 3}}, "has no version before this"),
        ({"read_version": {"seen": 3}}, "seen is a view"),
        ({"reads": "id = 1"}, "give read_version too"),
        ({"read_version": 3, "reads": "nothing = 1"}, "nothing"),
        ({"read_version": 3, "reads": {"t": "id = 1"}}, "give read_version by table too"),
        ({"read_version": {"t": 3}, "reads": {"u": "id = 1"}}, "which read_version doesn't name"),
        ({"read_version": {"t": 3, "u": 0}, "reads": "id = 1"}, "give the conditions by table"),
    ],
)
def test_versions_that_are_none(lake: txlake.Lake, arguments: dict[str, Any], message: str) -> None:
    version = filled(lake, "t")
    assert version == 3 or "read_version" not in arguments or version
    lake.sql("CREATE VIEW seen AS SELECT * FROM t; CREATE TABLE u (id INT)")
    while version_of(lake, "t") < 3:
        lake.sql("INSERT INTO t VALUES (5, 5)")
    before = version_of(lake, "t")
    with pytest.raises(InvalidRequest, match=message):
        lake.sql("UPDATE t SET v = 0 WHERE id = 1", **arguments)
    assert version_of(lake, "t") == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP TABLE t", "found DROP TABLE"),
        ("ALTER TABLE t ADD COLUMNS (w INT)", "found ADD COLUMNS"),
        ("BEGIN", "found BEGIN"),
        ("VACUUM t", "found VACUUM"),
        ("DELETE FROM t; DELETE FROM u", "goes with one statement, found 2"),
        ("SELECT * FROM t JOIN u ON t.id = u.id", "names 2 tables: give the versions by table"),
        ("SELECT 1", "names 0 tables"),
    ],
)
def test_statements_that_have_no_version(lake: txlake.Lake, text: str, message: str) -> None:
    version = filled(lake, "t")
    lake.sql("CREATE TABLE u (id INT)")
    with pytest.raises(InvalidRequest, match=message):
        lake.sql(text, read_version=version)
    assert lake._session.current is None
    assert version_of(lake, "t") == version


def test_an_error_fails_the_open_transaction(lake: txlake.Lake) -> None:
    filled(lake, "t")
    for arguments in ({"read_version": 99}, {"read_version": "x"}, {"reads": "id = 1"}):
        tx = lake.begin()
        with pytest.raises(InvalidRequest):
            tx.sql("DELETE FROM t", **arguments)
        assert tx.state == "failed"
        tx.rollback()


def test_a_transaction_reads_one_version_of_a_table(lake: txlake.Lake) -> None:
    version = filled(lake, "t")
    elsewhere(lake, "INSERT INTO t VALUES (4, 4)")
    tx = lake.begin()
    tx.sql("SELECT * FROM t")
    with pytest.raises(InvalidRequest, match=f"the transaction reads version {version + 1}"):
        tx.sql("DELETE FROM t WHERE id = 1", read_version=version)
    tx.rollback()
    tx = lake.begin()
    tx.sql("DELETE FROM t WHERE id = 1", read_version=version)
    with pytest.raises(InvalidRequest, match=f"the transaction reads version {version};"):
        tx.sql("DELETE FROM t WHERE id = 1", read_version=version + 1)
    tx.rollback()
    tx = lake.begin()
    lake.sql("CREATE TABLE u (id INT)")
    tx.sql("SELECT * FROM u")  # fixes the instant
    elsewhere(lake, "INSERT INTO t VALUES (5, 5)")
    with pytest.raises(InvalidRequest, match=f"the transaction sees is {version + 1}"):
        tx.sql("DELETE FROM t WHERE id = 1", read_version=version + 2)
    tx.rollback()
    tx = lake.begin()
    tx.sql("CREATE TABLE mine (id INT)")
    with pytest.raises(InvalidRequest, match="has no version before this"):
        tx.sql("INSERT INTO mine VALUES (1)", read_version=0)
    tx.rollback()


def test_snapshot_has_one_instant(lake: txlake.Lake) -> None:
    """At the level snapshot nothing else may be read beside an older version."""
    version = filled(lake, "t")
    lake.sql("CREATE TABLE u (id INT, v INT); INSERT INTO u VALUES (1, 1)")
    elsewhere(lake, "UPDATE t SET v = 20 WHERE id = 2")
    text = "UPDATE t SET v = (SELECT max(v) FROM u) WHERE id = 1"
    message = r"default\.t: read_version=.* at the level snapshot all reads are of one instant"
    for arguments in ({"t": version}, {"t": version, "u": 1}, {"u": 1, "t": version}):
        with pytest.raises(InvalidRequest, match=message), lake.transaction("snapshot") as tx:
            tx.sql(text, read_version=arguments)
    with lake.transaction("snapshot") as tx:
        tx.sql("UPDATE t SET v = 10 WHERE id = 1", read_version=version)
    with lake.transaction("snapshot") as tx:
        tx.sql("UPDATE t SET v = 11 WHERE id = 1", read_version={"t": version + 2, "u": 1})
    assert rows_of(lake, "t")[:2] == [(1, 11), (2, 20)]


def test_a_table_that_was_dropped_and_created_anew(lake: txlake.Lake) -> None:
    version = filled(lake, "t")
    lake.sql("DROP TABLE t")
    with pytest.raises(InvalidRequest, match="t"):
        lake.sql("DELETE FROM t WHERE id = 1", read_version=version)
    lake.sql("CREATE TABLE t (id INT, v INT)")
    with pytest.raises(InvalidRequest, match="the newest version that the transaction sees is 0"):
        lake.sql("DELETE FROM t WHERE id = 1", read_version=version)
    lake.sql("CREATE OR REPLACE TABLE t (id INT, v INT)")
    with pytest.raises(MetadataChangedException):
        lake.sql("INSERT INTO t VALUES (1, 1)", read_version=0)


def test_a_version_whose_log_was_cleaned_up(lake: txlake.Lake) -> None:
    """Nothing says what was committed since, so nothing is written."""
    place = "memory://cleaned-up/t"
    table = f"delta.`{place}`"
    version = filled(lake, table)
    handle = lake._session.engine.find(TablePath(place), "default")
    assert handle is not None
    lake.sql(f"INSERT INTO {table} VALUES (4, 4)")
    write_checkpoint(handle.log)
    lake.sql(f"INSERT INTO {table} VALUES (5, 5)")
    handle.store.delete([commit_path(each) for each in range(version + 1)])
    handle.log.forget()
    before = rows_of(lake, table)
    with pytest.raises(InvalidRequest, match=f"version {version}"):
        lake.sql(f"DELETE FROM {table} WHERE id = 1", read_version=version)
    assert rows_of(lake, table) == before
    lake.sql(f"DELETE FROM {table} WHERE id = 1", read_version=version + 1)
    assert len(rows_of(lake, table)) == len(before) - 1
