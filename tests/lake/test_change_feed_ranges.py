"""Which versions of a change data feed can be asked for, and what is refused; on rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import txlake
from txlake.errors import InvalidRequest

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"


@pytest.fixture
def lake(row_lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table of a feed since version 2: 0 made it, 1 has rows, 2 turned it on."""
    row_lake.sql("CREATE TABLE t (id BIGINT, n INT)")
    row_lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    row_lake.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    row_lake.sql("UPDATE t SET n = 10 WHERE id = 1")
    row_lake.sql("DELETE FROM t WHERE id = 2")
    row_lake.sql("INSERT INTO t VALUES (3, 3)")
    return row_lake


def told(lake: txlake.Lake, *asked: object, **more: object) -> list[tuple[object, ...]]:
    """Key, kind and version of each change."""
    frame = lake.changes("t", *asked, **more)  # type: ignore[arg-type]
    return sorted((row[0], row[-3], row[-2]) for row in frame.collect())


ALL = [
    (1, "update_postimage", 3),
    (1, "update_preimage", 3),
    (2, "delete", 4),
    (3, "insert", 5),
]


def test_both_ends_belong_to_the_range(lake: txlake.Lake) -> None:
    assert told(lake, 2) == ALL
    assert told(lake, 3, 4) == ALL[:3]
    assert told(lake, 4, 4) == [ALL[2]]
    assert told(lake, from_version=5, to_version=99) == [ALL[3]]
    assert told(lake, 2, 2) == []
    assert lake.changes("t", 2, 2).columns == [
        *("id", "n", "_change_type", "_commit_version", "_commit_timestamp")
    ]


def test_times_are_versions(lake: txlake.Lake) -> None:
    history = lake.sql("DESCRIBE HISTORY t").collect()
    moments = {row[0]: row[1] for row in history}
    assert told(lake, from_timestamp=moments[4]) == ALL[2:]
    assert told(lake, from_timestamp=moments[3], to_timestamp=moments[4]) == ALL[:3]
    assert told(lake, 3, to_timestamp=moments[3]) == ALL[:2]
    shown = lake.changes("t", 4, 4).collect()[0][-1]
    assert shown == moments[4]


REFUSED: dict[str, tuple[Callable[[txlake.Lake], object], str]] = {
    "no start": (lambda lake: lake.changes("t"), "from which version on"),
    "two starts": (
        lambda lake: lake.changes("t", 3, from_timestamp="2026-01-01"),
        "from_version or from_timestamp, not both",
    ),
    "two ends": (
        lambda lake: lake.changes("t", 3, 4, to_timestamp="2026-01-01"),
        "to_version or to_timestamp, not both",
    ),
    "a negative version": (lambda lake: lake.changes("t", -1), "0 or more, found -1"),
    "no number": (lambda lake: lake.changes("t", "3"), "found '3'"),  # type: ignore[arg-type]
    "a start beyond the newest": (
        lambda lake: lake.changes("t", 6),
        "from version 6 on were asked for, and the newest version is 5",
    ),
    "an end before the start": (lambda lake: lake.changes("t", 4, 3), "DELTA_INVALID_CDC_RANGE"),
    "a version without a feed": (
        lambda lake: lake.changes("t", 1, 3),
        r"DELTA_MISSING_CHANGE_DATA\] default.t: .* version 1 recorded none",
    ),
    "an end after the newest": (
        lambda lake: lake.changes("t", 3, to_timestamp="2999-01-01"),
        "is after the latest version",
    ),
    "no table": (lambda lake: lake.changes("nosuch", 1), "there is no table 'nosuch'"),
    "no instant": (lambda lake: lake.changes_of(999), "there is no instant 999"),
    "an instant that is no number": (
        lambda lake: lake.changes_of("3"),  # type: ignore[arg-type]
        "expected the number of an instant",
    ),
    "SQL without a start": (
        lambda lake: lake.sql("SELECT * FROM table_changes('t')"),
        "a version or a timestamp from which on",
    ),
    "SQL with a negative version": (
        lambda lake: lake.sql("SELECT * FROM table_changes('t', -1)"),
        "a version is a whole number, 0 or more",
    ),
    "SQL with a query": (
        lambda lake: lake.sql("SELECT * FROM table_changes('t', (SELECT 1))"),
        "is a constant, no query",
    ),
    "a start after the newest version": (
        lambda lake: lake.changes("t", from_timestamp="2999-01-01"),
        "changes from 2999-01-01 on were asked for, and the newest version, 5, was committed bef",
    ),
    "SQL without a table": (
        lambda lake: lake.sql("SELECT * FROM table_changes(1, 2)"),
        "the name of a table as a string",
    ),
    "SQL with too much": (
        lambda lake: lake.sql("SELECT * FROM table_changes('t', 1, 2, 3)"),
        r"expected \)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(lake: txlake.Lake, name: str) -> None:
    ask, message = REFUSED[name]
    with pytest.raises(InvalidRequest, match=message):
        ask(lake)


def test_a_feed_that_was_off_in_between(lake: txlake.Lake) -> None:
    lake.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    lake.sql("UPDATE t SET n = 0")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    lake.sql("UPDATE t SET n = 1 WHERE id = 1")
    with pytest.raises(InvalidRequest, match="version 6 recorded none"):
        lake.changes("t", 3)
    assert told(lake, 8) == [(1, "update_postimage", 9), (1, "update_preimage", 9)]


def test_columns_are_those_of_the_end(lake: txlake.Lake) -> None:
    lake.sql("ALTER TABLE t ADD COLUMN more STRING")
    lake.sql("INSERT INTO t VALUES (4, 4, 'x')")
    assert lake.changes("t", 3, 5).columns[:3] == ["id", "n", "_change_type"]
    found = {row[0]: row[2] for row in lake.changes("t", 5).collect()}
    assert found == {3: None, 4: "x"}


def test_a_change_that_the_columns_cant_show(row_lake: txlake.Lake) -> None:
    row_lake.sql(
        "CREATE TABLE t (id BIGINT, n INT) TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true, delta.columnMapping.mode = name)"
    )
    row_lake.sql("INSERT INTO t VALUES (1, 1)")
    row_lake.sql("ALTER TABLE t RENAME COLUMN n TO m")
    row_lake.sql("UPDATE t SET m = 2")
    with pytest.raises(InvalidRequest, match=r"version 1 .*column n was dropped or renamed"):
        row_lake.changes("t", 1)
    assert len(row_lake.changes("t", 0, 1).collect()) == 1
    assert len(row_lake.changes("t", 2).collect()) == 2


def test_a_transaction_reads_the_feed_at_its_instant(lake: txlake.Lake) -> None:
    with lake.transaction() as tx:
        assert len(tx.changes("t", 5).collect()) == 1
        lake.session().sql("INSERT INTO t VALUES (9, 9)")
        tx.sql("INSERT INTO t VALUES (8, 8)")
        assert len(tx.changes("t", 5).collect()) == 1
        with pytest.raises(InvalidRequest, match="the newest version is 5"):
            tx.changes("t", 6)
        tx.rollback()
    assert len(lake.changes("t", 6).collect()) == 1


def test_a_feed_of_the_newest_versions_is_a_read(lake: txlake.Lake) -> None:
    """Under Serializable it must still be the newest when the transaction commits."""
    lake.sql("CREATE TABLE sink (id BIGINT)")
    newest = 5
    for beyond, holds in ((None, False), (0, True), (90, False)):
        tx = lake.begin("serializable")
        last = None if beyond is None else newest + beyond
        assert tx.changes("t", newest, last).collect()
        tx.sql("INSERT INTO sink VALUES (1)")
        lake.session().sql("INSERT INTO t VALUES (7, 7)")
        newest += 1
        if holds:
            tx.commit()
        else:
            with pytest.raises(txlake.errors.SerializableIsolationViolation):
                tx.commit()


def test_the_changes_of_one_instant(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE shop")
    lake.sql(f"CREATE TABLE shop.u (id BIGINT) {FEED}")
    lake.sql("CREATE TABLE plain (id BIGINT)")
    with lake.transaction() as tx:
        tx.sql("UPDATE t SET n = 7 WHERE id = 3")
        tx.sql("INSERT INTO shop.u VALUES (1)")
        tx.sql("INSERT INTO plain VALUES (1)")
    instants = lake.view("txlake.commits").to_pylist()
    sequence = max(row["sequence"] for row in instants)
    found = lake.changes_of(sequence)
    assert sorted(found) == ["default.t", "shop.u"]
    kinds = {name: sorted(row[-3] for row in frame.collect()) for name, frame in found.items()}
    assert kinds == {"default.t": ["update_postimage", "update_preimage"], "shop.u": ["insert"]}


def test_settings_in_one_transaction_with_changes(row_lake: txlake.Lake) -> None:
    row_lake.sql("CREATE TABLE t (id BIGINT, n INT)")
    row_lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    turn_on = "ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    tx = row_lake.begin()
    tx.sql("UPDATE t SET n = 3 WHERE id = 1")
    with pytest.raises(InvalidRequest, match="can't be turned on after rows were changed"):
        tx.sql(turn_on)
    with row_lake.transaction() as tx:
        tx.sql(turn_on)
        tx.sql("UPDATE t SET n = 3 WHERE id = 1")
    assert sorted(row[-3] for row in row_lake.changes("t", 2).collect()) == [
        *("update_postimage", "update_preimage")
    ]
    with row_lake.transaction() as tx:
        tx.sql("UPDATE t SET n = 4 WHERE id = 1")
        tx.sql("OPTIMIZE t ZORDER BY (id)")
        tx.sql("UPDATE t SET n = 5 WHERE id = 1")
    assert sorted((row[-3], row[1]) for row in row_lake.changes("t", 3).collect()) == [
        ("update_postimage", 5),
        ("update_preimage", 3),
    ]


def test_columns_of_the_feeds_names(row_lake: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="'_change_type' has a name of the change data feed"):
        row_lake.sql(f"CREATE TABLE t (id BIGINT, _change_type STRING) {FEED}")
    row_lake.sql("CREATE TABLE t (id BIGINT, _commit_version STRING)")
    with pytest.raises(InvalidRequest, match="'_commit_version' has a name"):
        row_lake.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")


def test_a_feed_that_is_turned_on_after_a_compaction(row_lake: txlake.Lake) -> None:
    """The rows' way through the packed file is known, also from before it was turned on."""
    row_lake.sql("CREATE TABLE t (id BIGINT, n INT)")
    for number in (1, 2):
        row_lake.sql(f"INSERT INTO t VALUES ({number}, {number})")
    with row_lake.transaction() as tx:
        tx.sql("OPTIMIZE t")
        tx.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        tx.sql("UPDATE t SET n = 9 WHERE id = 1")
    assert sorted((row[0], row[-3]) for row in row_lake.changes("t", 3).collect()) == [
        (1, "update_postimage"),
        (1, "update_preimage"),
    ]


def test_a_null_before_the_column_refuses_it(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE t (id BIGINT, n INT) {FEED}")
    row_lake.sql("INSERT INTO t VALUES (1, NULL), (2, 2)")
    with row_lake.transaction() as tx:
        tx.sql("UPDATE t SET n = 0 WHERE n IS NULL")
        tx.sql("ALTER TABLE t ALTER COLUMN n SET NOT NULL")
    found = {row[-3]: (row[0], row[1]) for row in row_lake.changes("t", 2, 2).collect()}
    assert found == {"update_preimage": (1, None), "update_postimage": (1, 0)}
    assert len(row_lake.changes("t", 1).collect()) == 4


def test_rows_of_former_columns_that_went_with_them(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE t (id BIGINT, n INT) {FEED}")
    row_lake.sql("INSERT INTO t VALUES (1, 1)")
    row_lake.sql(f"CREATE OR REPLACE TABLE t (id STRING) {FEED}")
    row_lake.sql("INSERT INTO t VALUES ('a')")
    for first in (1, 2):
        with pytest.raises(InvalidRequest, match=r"INCOMPATIBLE_SCHEMA_CHANGE.*since version 1"):
            row_lake.changes("t", first)
    assert len(row_lake.changes("t", 1, 1).collect()) == 1
    assert len(row_lake.changes("t", 3).collect()) == 1


def test_a_copy_tells_what_it_began_with(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE t (id BIGINT, n INT) {FEED}")
    row_lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    for kind in ("SHALLOW", "DEEP"):
        row_lake.sql(f"CREATE TABLE {kind} {kind} CLONE t")
        row_lake.sql(f"UPDATE {kind} SET n = 3 WHERE id = 2")
        row_lake.sql(f"DELETE FROM {kind} WHERE id = 1")
        found = [(row[-2], row[-3], row[0], row[1]) for row in row_lake.changes(kind, 0).collect()]
        assert sorted(found) == [
            (0, "insert", 1, 1),
            (0, "insert", 2, 2),
            (1, "update_postimage", 2, 3),
            (1, "update_preimage", 2, 2),
            (2, "delete", 1, 1),
        ]


def test_the_feed_where_a_query_has_tables(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE sink (id BIGINT, kind STRING)")
    lake.sql("INSERT INTO sink SELECT id, _change_type FROM table_changes('default.t', 4)")
    found = [tuple(row) for row in lake.sql("SELECT id, kind FROM sink").collect()]
    assert sorted(found) == [(2, "delete"), (3, "insert")]
    lake.sql("CREATE VIEW news AS SELECT id, _change_type FROM table_changes('t', 4)")
    assert len(lake.sql("SELECT * FROM news").collect()) == 2
    lake.sql("DELETE FROM t WHERE id = 3")
    assert len(lake.sql("SELECT * FROM news").collect()) == 3
    joined = lake.sql(
        "WITH c AS (SELECT * FROM TABLE_CHANGES(`t`, 5, 5)) SELECT c.id FROM c JOIN t ON t.id = 1"
    )
    assert [tuple(row) for row in joined.collect()] == [(3,)]


def test_identity_columns_are_told_as_any(row_lake: txlake.Lake) -> None:
    """Their mark is in the schema, which so changes with each INSERT."""
    row_lake.sql(f"CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, n INT) {FEED}")
    row_lake.sql("INSERT INTO t (n) VALUES (1)")
    with row_lake.transaction() as tx:
        tx.sql("INSERT INTO t (n) VALUES (2), (3)")
        tx.sql("UPDATE t SET n = n + 10 WHERE n < 3")
    kinds = sorted((row[-2], row[-3], row[1]) for row in row_lake.changes("t", 0).collect())
    assert kinds == [
        (1, "insert", 1),
        (2, "insert", 3),
        (2, "insert", 12),
        (2, "update_postimage", 11),
        (2, "update_preimage", 1),
    ]
