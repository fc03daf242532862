"""DataFrames and views that a write uses: what they show counts as read, at its version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.rows import query, rows
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    Conflict,
    InvalidRequest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broad(keep=2)

Frame = Callable[[txlake.Lake], "DataFrame"]


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """The lake with t (1, 1), (2, 2) and an empty u."""
    lake.sql("CREATE TABLE t (id INT, v INT); CREATE TABLE u (id INT, v INT)")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    return lake


@pytest.fixture
def view(t: txlake.Lake, spark: SparkSession) -> Iterator[str]:
    """A temporary view of Spark's over t as it is at first."""
    t.read("t").createOrReplaceTempView("shown_view")
    yield "shown_view"
    spark.catalog.dropTempView("shown_view")


def elsewhere(lake: txlake.Lake, text: str) -> None:
    """What another session does meanwhile."""
    with lake.session() as other:
        other.sql(text)


FRAMES: dict[str, Frame] = {
    "read": lambda lake: lake.read("t"),
    "query": lambda lake: lake.sql("SELECT * FROM t"),
    "handle": lambda lake: lake.table("t").toDF(),
    "derived": lambda lake: lake.read("t").groupBy("id").max("v").toDF("id", "v"),
    "cached": lambda lake: lake.read("t").cache(),
    "joined": lambda lake: (
        lake.sql("SELECT 1 AS id").crossJoin(lake.read("t").select("v")).distinct()
    ),
}


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("kind", "level"),
    [
        *((kind, "write_serializable") for kind in FRAMES),
        ("read", "serializable"),
        ("read", "snapshot"),
    ],
)
def test_stale_rows_are_not_written(t: txlake.Lake, kind: str, level: str) -> None:
    shown = FRAMES[kind](t)
    elsewhere(t, "UPDATE t SET v = 20 WHERE id = 2")
    for table in ("t", "u"):
        told = pytest.raises(Conflict, match=r"cannot succeed\)\. A DataFrame shows version 1 of")
        with told, t.transaction(level) as tx:
            tx.write(shown, table, "overwrite")
    assert query(t, "SELECT * FROM t") == [(1, 1), (2, 20)]
    assert query(t, "SELECT * FROM u") == []
    t.write(FRAMES[kind](t), "u", mode="overwrite")
    assert 20 in {v for _, v in query(t, "SELECT * FROM u")}


def test_an_overwrite_keeps_rows_that_came_after_what_it_shows(t: txlake.Lake) -> None:
    """By the level: before the INSERT in the serial order, or not at all."""
    shown = t.read("t")
    elsewhere(t, "INSERT INTO t VALUES (3, 3)")
    with pytest.raises(Conflict):
        t.run(lambda tx: tx.write(shown, "t", "overwrite"), isolation="serializable", attempts=1)
    with pytest.raises(Conflict):
        t.run(lambda tx: tx.write(shown, "t", "overwrite"), isolation="snapshot", attempts=1)
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (3,)]
    t.write(shown, "t", mode="overwrite")
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO u SELECT * FROM shown_view",
        "MERGE INTO t USING shown_view s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 1",
        "UPDATE t SET v = (SELECT max(v) FROM shown_view)",
        "DELETE FROM t WHERE id IN (SELECT id FROM shown_view WHERE v = 2)",
        "CREATE TABLE w AS SELECT * FROM shown_view",
    ],
)
def test_a_view_of_sparks_is_a_dataframe(t: txlake.Lake, view: str, text: str) -> None:
    elsewhere(t, "UPDATE t SET v = 20 WHERE id = 2")
    before = query(t, "SELECT * FROM t")
    with pytest.raises(Conflict, match=r"A DataFrame shows version 1 of default\.t"):
        t.sql(text)
    assert query(t, "SELECT * FROM t") == before
    t.read("t").createOrReplaceTempView(view)
    t.sql(text)


def test_the_rows_shown_are_those_of_its_condition(t: txlake.Lake) -> None:
    one, two = t.read("t", where="id = 1"), t.sql("SELECT * FROM t WHERE id = 2")
    elsewhere(t, "UPDATE t SET v = 20 WHERE id = 2")
    t.write(one, "u", mode="append")
    with pytest.raises(Conflict):
        t.write(two, "u", mode="append")
    assert query(t, "SELECT * FROM u") == [(1, 1)]


def test_what_was_read_has_to_hold_until_the_commit(t: txlake.Lake) -> None:
    """The winner commits after the statement: the read is in the transaction's read set."""
    shown = t.read("t")
    tx = t.begin()
    tx.write(shown, "u", "append")
    elsewhere(t, "DELETE FROM t WHERE id = 1")
    with pytest.raises(ConcurrentDeleteReadException):
        tx.commit()


def test_rows_read_in_the_transaction_are_written_from_its_own_view(t: txlake.Lake) -> None:
    tx = t.begin()
    before = tx.read("t")
    tx.sql("DELETE FROM t WHERE id = 1")
    tx.write(before.where("id = 1"), "u", "append")
    tx.write(tx.read("t"), "u", "append")
    tx.commit()
    assert query(t, "SELECT id FROM u") == [(1,), (2,)]


def test_rows_that_were_undone_are_not_written(t: txlake.Lake) -> None:
    tx = t.begin()
    before = tx.read("t")
    tx.savepoint("s")
    tx.sql("INSERT INTO t VALUES (3, 3)")
    changed = tx.read("t")
    tx.rollback_to("s")
    tx.write(before, "u", "append")
    with pytest.raises(InvalidRequest, match="from before a ROLLBACK TO"):
        tx.write(changed, "u", "append")
    tx.rollback()
    assert query(t, "SELECT * FROM u") == []


def test_a_select_whose_rows_are_written_counts_at_every_level_that_checks_reads(
    t: txlake.Lake,
) -> None:
    tx = t.begin()
    tx.write(tx.read("t"), "u", "append")
    elsewhere(t, "UPDATE t SET v = 0 WHERE id = 1")
    with pytest.raises((ConcurrentAppendException, ConcurrentDeleteReadException)):
        tx.commit()


def test_a_dataframe_that_outlives_its_transaction_says_so(t: txlake.Lake) -> None:
    tx = t.begin()
    plain = tx.read("t")
    tx.sql("INSERT INTO t VALUES (3, 3)")
    changed = tx.read("t")
    with pytest.raises(InvalidRequest, match=r"changes to default\.t that transaction .* made"):
        t.write(changed, "u", mode="append")
    tx.rollback()
    for frame in (plain, changed):
        with pytest.raises(InvalidRequest, match=r"transaction \S+, which was rolled back"):
            t.write(frame, "u", mode="append")
    assert query(t, "SELECT * FROM u") == []
    with t.transaction() as other:
        kept = other.read("t")
    t.write(kept, "u", mode="append")
    assert query(t, "SELECT id FROM u") == [(1,), (2,)]


def test_what_was_shown_may_be_gone(t: txlake.Lake) -> None:
    shown = t.read("t")
    t.sql("DROP TABLE t; CREATE TABLE t (id INT, v INT)")
    t.sql("INSERT INTO t VALUES (5, 5)")
    with pytest.raises(InvalidRequest, match=r"version 1 of default\.t, which is gone"):
        t.write(shown, "u", mode="append")
    assert query(t, "SELECT * FROM u") == []


def test_a_transaction_that_sees_less_than_was_shown(t: txlake.Lake) -> None:
    tx = t.begin()
    tx.sql("SELECT * FROM u").collect()
    elsewhere(t, "UPDATE t SET v = 20 WHERE id = 2")
    shown = t.read("t")
    with pytest.raises(Conflict):
        tx.write(shown, "u", "append")
    tx.rollback()
    t.run(lambda tx: tx.write(shown, "u", "append"))
    assert query(t, "SELECT v FROM u") == [(1,), (20,)]


def test_old_versions_that_were_asked_for_are_not_stale(t: txlake.Lake) -> None:
    elsewhere(t, "DELETE FROM t")
    t.write(t.read("t", version=1), "t", mode="append")
    assert query(t, "SELECT id FROM t") == [(1,), (2,)]


def test_path_tables_too(t: txlake.Lake, tmp_path: object) -> None:
    place = f"{tmp_path}/plain"
    t.write(t.read("t"), place)
    shown = t.read(place)
    elsewhere(t, f"DELETE FROM delta.`{place}` WHERE id = 1")
    with pytest.raises(Conflict):
        t.write(shown, place, mode="overwrite")
    assert rows(t.read(place)) == [(2, 2)]
    with pytest.raises(Conflict):
        t.write(shown, "u", mode="append")


def test_what_cannot_be_told_is_refused(t: txlake.Lake, spark: SparkSession) -> None:
    shown = t.read("t")
    spark.conf.set("spark.sql.maxPlanStringLength", 20)
    try:
        with pytest.raises(InvalidRequest, match="maxPlanStringLength"):
            t.write(shown, "u", mode="append")
    finally:
        spark.conf.unset("spark.sql.maxPlanStringLength")
    forged = shown.alias("default.t@1#txlake-999999999")
    with pytest.raises(InvalidRequest, match="known here any more"):
        t.write(forged, "u", mode="append")
    t.write(shown, "u", mode="append")
