"""A lake's branches as users hold them, on Spark."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlake
from txlake.errors import ConcurrentAppendException, Conflict, InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Row = tuple[object, ...]


def rows(session: txlake.LakeSession, query: str) -> list[Row]:
    return sorted(tuple(row) for row in session.sql(query).collect())


@pytest.mark.parametrize("catalog", [None, "warehouse"])
def test_a_night_on_a_branch(spark: SparkSession, tmp_path: Path, catalog: str | None) -> None:
    """Load two tables, check them, meet a conflict, rebase on the other's work, publish."""
    with txlake.connect(str(tmp_path / "lake"), catalog=catalog, spark=spark) as lake:
        lake.write(pa.table({"id": list(range(10)), "pieces": [1] * 10}), "orders")
        lake.sql("CREATE TABLE loads (n BIGINT)")
        spark.createDataFrame(
            [(1, -5), (20, 2)], "id bigint, pieces bigint"
        ).createOrReplaceTempView("incoming")
        merge = (
            "MERGE INTO orders o USING incoming i ON o.id = i.id WHEN MATCHED THEN UPDATE SET "
            "pieces = i.pieces WHEN NOT MATCHED THEN INSERT (id, pieces) VALUES (i.id, i.pieces)"
        )
        with lake.branch("failed", create=True, retention_ms=10**9) as b:
            b.sql(merge)
            assert rows(b, "SELECT id FROM orders WHERE pieces < 0") == [(1,)]
            b.drop()
        assert rows(lake, "SELECT count(*) FROM orders") == [(10,)]
        with lake.branch("nightly", create=True) as b:
            b.sql(merge)
            b.sql("UPDATE orders SET pieces = 5 WHERE pieces < 0")
            b.write(pa.table({"n": [2]}), "loads", mode="append")
            assert rows(
                b, "SELECT * FROM orders EXCEPT SELECT * FROM orders VERSION AS OF 'main'"
            ) == [
                (1, 5),
                (20, 2),
            ]
            lake.sql("UPDATE orders SET pieces = 7 WHERE id = 7; OPTIMIZE orders")
            b.rebase()
            b.sql("CREATE TABLE report AS SELECT count(*) AS n FROM orders")
            assert rows(b, "SELECT pieces FROM orders WHERE id IN (1, 7)") == [(5,), (7,)]
            changed = [tuple(row)[:2] for row in b.changes().collect()]
            assert changed == [
                ("default.loads", "changed"),
                ("default.orders", "changed"),
                ("default.report", "created"),
            ]
            lake.sql("OPTIMIZE orders")
            answers = {row.answer for row in b.explain_publish().collect()}
            assert answers == {"publishes"}
            b.publish()
            assert rows(b, "SELECT * FROM report") == [(11,)], "it is on main now"
        assert lake.branches().count() == 0
        assert rows(lake, "SELECT id, pieces FROM orders WHERE pieces > 1") == [
            (1, 5),
            (7, 7),
            (20, 2),
        ]
        late = lake.branch("late", create=True)
        late.sql("UPDATE orders SET pieces = 0 WHERE pieces > 4")
        lake.sql("INSERT INTO orders SELECT 30, max(pieces) FROM orders")
        [answer] = late.explain_publish().where("answer <> 'publishes'").collect()
        assert (answer.table, answer.answer) == ("default.orders", "ConcurrentAppendException")
        with pytest.raises(ConcurrentAppendException, match=r"default\.orders"):
            late.publish()
        with pytest.raises(InvalidRequest, match="no branch 'nightly'"):
            lake.branch("nightly")


FEED = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', {vectors})"
VECTORS = "'delta.enableDeletionVectors' = 'true'"
NO_VECTORS = "'delta.enableDeletionVectors' = 'false'"
MODES = pytest.mark.parametrize("vectors", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])


def feed_of(lake: txlake.Lake, table: str, version: int) -> list[tuple[object, ...]]:
    """The changes of the versions from this one on."""
    found = lake.changes(table, version).select("id", "v", "_change_type").collect()
    return sorted(tuple(row) for row in found)


@MODES
def test_the_feed_of_a_published_branch(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    """It is that of one transaction with the branch's statements."""
    statements = (
        "UPDATE t SET v = 10 WHERE id = 1; DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (9, 9); UPDATE t SET v = 11 WHERE id IN (1, 3)",
        "OPTIMIZE t; DELETE FROM t WHERE id = 9; INSERT INTO t VALUES (8, 8)",
        "UPDATE t SET v = 12 WHERE id = 1; OPTIMIZE t",
    )
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        for table in ("t", "u"):
            lake.sql(f"CREATE TABLE {table} (id BIGINT, v BIGINT) {FEED.format(vectors=vectors)}")
            lake.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)")
        with lake.branch("x", create=True) as b:
            for text in statements:
                b.sql(text)
            lake.sql("INSERT INTO t VALUES (40, 40); INSERT INTO u VALUES (40, 40)")
            b.publish()
        with lake.transaction() as once:
            for text in statements:
                once.sql(text.replace(" t", " u"))
        found = feed_of(lake, "t", 3)
        assert found == feed_of(lake, "u", 3)
        assert found == [
            (1, 1, "update_preimage"),
            (1, 12, "update_postimage"),
            (2, 2, "delete"),
            (3, 3, "update_preimage"),
            (3, 11, "update_postimage"),
            (8, 8, "insert"),
        ]


@pytest.mark.parametrize("changes", [False, True])
def test_files_that_the_branch_compacted_and_main_changed(
    spark: SparkSession, tmp_path: Path, changes: bool
) -> None:
    """Both stand unless the branch changed rows of them too."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.sql(f"CREATE TABLE t (id BIGINT, v BIGINT) TBLPROPERTIES ({VECTORS})")
        lake.sql("INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO t VALUES (3, 3), (4, 4)")
        with lake.branch("x", create=True) as b:
            if changes:
                b.sql("UPDATE t SET v = 0 WHERE id = 1")
            b.sql("OPTIMIZE t")
            lake.sql("UPDATE t SET v = 9 WHERE id = 3; DELETE FROM t WHERE id = 4")
            if changes:
                with pytest.raises(Conflict, match=r"version \d+ \(UPDATE\)"):
                    b.publish()
            else:
                b.publish()
        assert rows(lake, "SELECT id, v FROM t") == [(1, 1), (2, 2), (3, 9)]


def test_the_feed_of_a_branch_that_goes_through_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    """VACUUM between the two takes what only the first branch kept."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        kept = f"{VECTORS}, 'delta.deletedFileRetentionDuration' = 'interval 0 hours'"
        lake.sql(f"CREATE TABLE t (id BIGINT, v BIGINT) {FEED.format(vectors=kept)}")
        lake.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        outer = lake.branch("outer", create=True)
        outer.sql("UPDATE t SET v = 10 WHERE id = 1")
        outer.sql("CREATE BRANCH inner FROM BRANCH outer")
        with lake.branch("inner") as inner:
            inner.sql("UPDATE t SET v = 20 WHERE id IN (1, 2)")
            inner.sql("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (7, 7); OPTIMIZE t")
            inner.sql("UPDATE t SET v = 30 WHERE id IN (1, 3)")
            inner.publish()
        lake.sql("VACUUM t RETAIN 0 HOURS")
        outer.rebase()
        with lake.branch("outer") as outer:
            outer.publish()
        assert feed_of(lake, "t", 2) == [
            (1, 1, "update_preimage"),
            (1, 30, "update_postimage"),
            (2, 2, "delete"),
            (3, 3, "update_preimage"),
            (3, 30, "update_postimage"),
            (7, 7, "insert"),
        ]


def test_a_feed_that_is_turned_on_after_changes_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.sql(f"CREATE TABLE t (id BIGINT, v BIGINT) TBLPROPERTIES ({VECTORS})")
        lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        with lake.branch("x", create=True) as b:
            b.sql("UPDATE t SET v = 10 WHERE id = 1")
            b.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
            with pytest.raises(InvalidRequest, match="while the table had no change data feed"):
                b.publish()
            b.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
            b.publish()
        assert rows(lake, "SELECT id, v FROM t") == [(1, 10), (2, 2)]


@MODES
def test_rows_keep_their_ids(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    """As on main: rows keep the ids that the branch gave them, no id is given twice, and rows that
    the branch changed have the version that published them.
    """
    ids = "SELECT id, _metadata.row_id, _metadata.row_commit_version FROM t"
    tracked = f"TBLPROPERTIES ('delta.enableRowTracking' = 'true', {vectors})"
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.sql(f"CREATE TABLE t (id BIGINT, v BIGINT) {tracked}")
        lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        x, y = lake.branch("x", create=True), lake.branch("y", create=True)
        x.sql("INSERT INTO t VALUES (3, 3); UPDATE t SET v = 9 WHERE id IN (1, 3); OPTIMIZE t")
        y.sql("INSERT INTO t VALUES (5, 5), (6, 6); UPDATE t SET v = 7 WHERE id = 5")
        lake.sql("INSERT INTO t VALUES (4, 4)")
        given = {row[0]: row[1] for branch in (x, y) for row in rows(branch, ids)}
        y.rebase()
        x.publish()
        lake.sql("INSERT INTO t VALUES (7, 7)")
        with lake.branch("y") as y:
            y.sql("UPDATE t SET v = v + 1 WHERE id = 6; INSERT INTO t VALUES (8, 8)")
            y.publish()
        lake.sql("UPDATE t SET v = 0 WHERE id = 2; INSERT INTO t VALUES (9, 9)")
        found = {row[0]: row[1] for row in rows(lake, ids)}
        assert len(set(found.values())) == len(found) == 9
        assert found.items() >= given.items()
        changed = {row[0]: row[2] for row in rows(lake, ids)}
        assert changed == {1: 3, 2: 6, 3: 3, 4: 2, 5: 5, 6: 5, 7: 4, 8: 5, 9: 7}


@pytest.mark.parametrize("feed", ["true", "false"])
@MODES
def test_the_rows_that_a_branch_changed(
    spark: SparkSession, tmp_path: Path, vectors: str, feed: str
) -> None:
    """By the feed, or by difference: then an updated row is a deleted and an inserted one."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        properties = f"{vectors}, 'delta.enableChangeDataFeed' = '{feed}'"
        lake.sql(
            f"CREATE TABLE t (id BIGINT, v STRING, p INT) PARTITIONED BY (p) "
            f"TBLPROPERTIES ({properties})"
        )
        lake.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (2, 'b', 1), (3, NULL, 2)")
        with lake.branch("x", create=True) as b:
            shown = b.changes("t")
            assert (shown.columns, shown.count()) == (["id", "v", "p", "_change_type"], 0)
            b.sql("UPDATE t SET v = 'c' WHERE id = 1; DELETE FROM t WHERE id = 3; OPTIMIZE t")
            b.sql("INSERT INTO t VALUES (2, 'b', 1), (4, 'd', 2); DELETE FROM t WHERE id = 4")
            b.sql("CREATE TABLE n AS SELECT 7 AS id; DROP TABLE IF EXISTS gone")
            lake.sql("INSERT INTO t VALUES (9, 'z', 1)")
            images = ("update_preimage", "update_postimage")
            before, after = images if feed == "true" else ("delete", "insert")
            found = {tuple(row) for row in b.changes("default.t").collect()}
            assert found == {
                (1, "a", 1, before),
                (1, "c", 1, after),
                (2, "b", 1, "insert"),
                (3, None, 2, "delete"),
            }
            assert [tuple(row) for row in b.changes("n").collect()] == [(7, "insert")]
            path = f"delta.`{tmp_path}/path`"
            b.sql(f"CREATE TABLE {path} (id BIGINT)")
            with pytest.raises(InvalidRequest, match="is no table of a branch"):
                b.changes(path)


def test_a_branch_that_exists_does_not_begin_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.branch("x", create=True, at=0)
        assert lake.branch("x", create=True).name == "x"
        for where in ({"at": 0}, {"origin": "x"}):
            with pytest.raises(InvalidRequest, match="there is a branch 'x' already"):
                lake.branch("x", create=True, **where)


def test_the_nightly_example(spark: SparkSession, tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "nightly.py"))
    first, second, third = example["main"](str(tmp_path / "shop"))
    assert first == "night 1: published by attempt 1"
    assert second == "night 2: not published: orders without a customer: [2]"
    assert third == "night 3: published by attempt 2"
    with txlake.connect(str(tmp_path / "shop"), spark=spark) as lake:
        assert [row[0] for row in rows(lake, "SELECT night FROM loads")] == [1, 3]
        assert lake.branches().count() == 0


def test_a_branch_ends_with_its_time(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "lake")
    with txlake.connect(place, spark=spark) as lake:
        branches = lake._session.engine.catalog.of_lake().branches
        lake.sql("CREATE BRANCH long RETAIN 1 DAY; CREATE BRANCH kept")
        branches.create("short", retention_ms=1)
        branches.create("short_tag", retention_ms=1, is_tag=True)
        while len(branches.expired()) < 2:
            continue
    with txlake.connect(place, spark=spark) as lake:
        assert rows(lake.session(), "SHOW TAGS") == []
        assert sorted(row.name for row in lake.branches().collect()) == ["kept", "long"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        (3, {}, "expected a branch's name, found 3"),
        ("Main", {}, "'main' is the lake itself, no branch"),
        ("main", {"create": True}, "'main' is the lake itself, no branch"),
        ("x", {"create": True, "at": "now"}, "at: expected a whole number of 0 or more"),
        ("x", {"create": True, "at": True}, "at: expected a whole number of 0 or more"),
        ("x", {"create": True, "retention_ms": -1}, "retention_ms: expected a whole number of 1"),
        ("x", {"create": True, "retention_ms": 1.5}, "retention_ms: expected a whole number of 1"),
        ("x", {"create": True, "origin": 1}, "origin: expected a branch's name, found 1"),
        ("x", {"create": True, "origin": ""}, "can't name a branch or a tag: it is empty"),
        ("x", {"retention_ms": 1}, "give create=True"),
    ],
)
def test_what_is_no_branch_is_refused(
    tmp_path: Path, name: str, arguments: dict[str, Any], says: str
) -> None:
    with (
        txlake.connect(str(tmp_path / "lake")) as lake,
        pytest.raises(InvalidRequest, match=says),
    ):
        lake.branch(name, **arguments)


def test_rows_of_another_branch_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    """By name, and as a DataFrame, whose version isn't one of the table where it is written."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.write(pa.table({"id": [1]}), "t")
        lake.sql("CREATE TAG `2026-01`")
        b = lake.branch("nightly", create=True)
        b.write(pa.table({"id": [2]}), "t", mode="append")
        lake.sql("DELETE FROM t")
        for version, ids in (("nightly", [1, 2]), ("2026-01", [1]), ("main", [])):
            assert [row.id for row in b.read("t", version=version).sort("id").collect()] == ids
        with pytest.raises(InvalidRequest, match="no branch or tag 'nowhere'"):
            lake.read("t", version="nowhere")
        with pytest.raises(InvalidRequest, match="expected a number, or the name of a branch"):
            lake.read("t", version=1.5)  # type: ignore[arg-type]
        b.write(pa.table({"id": [3]}), "t", mode="append")
        on_branch, on_main = b.read("t"), lake.read("t")
        b.write(pa.table({"id": [4]}), "t", mode="append")
        lake.write(on_branch, "copy")
        b.write(on_main, "copy")
        assert rows(lake, "SELECT id FROM copy") == [(1,), (2,), (3,)]
        assert rows(b, "SELECT id FROM copy") == []
