"""Branches of path tables by Spark's doors: DeltaTable, `spark.sql`, readers, writers, streams."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

import txlake
from tests.interop import DuckDB
from tests.peers import need
from txlake.errors import Conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path: Path, enabled: SparkSession) -> str:
    """A path table of the rows 1, 2 and 3."""
    folder = str(tmp_path / "t")
    numbered(enabled, 1, 2, 3).write.format("delta").save(folder)
    return folder


def numbered(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(number, 0) for number in numbers], "id bigint, v bigint")


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def test_a_branch_is_written_audited_and_published(enabled: SparkSession, place: str) -> None:
    spark = enabled
    table = txlake.DeltaTable.forPath(spark, place)
    with table.branch("nightly", create=True) as b:
        numbered(spark, 4).write.format("delta").mode("append").save(b.path)
        b.table.update("id = 1", {"v": "5L"})
        b.table.delete("id = 2")
        (
            b.table.alias("t")
            .merge(numbered(spark, 3, 6).alias("s"), "t.id = s.id")
            .whenMatchedUpdate(set={"v": "t.v + 9"})
            .whenNotMatchedInsertAll()
            .execute()
        )
        spark.sql(f"INSERT INTO delta.`{b.path}` VALUES (7, 7)")
        assert ids(b.toDF()) == ids(spark.read.format("delta").load(b.path)) == [1, 3, 4, 6, 7]
        assert ids(table.toDF()) == [1, 2, 3]
        shown = spark.sql(f"SELECT id FROM delta.`{place}` VERSION AS OF 'nightly'")
        assert ids(shown) == [1, 3, 4, 6, 7]
        at = spark.sql(f"SELECT id FROM delta.`{b.path}@v3`")
        assert ids(at) == [1, 2, 3, 4]
        assert ids(spark.read.option("versionAsOf", 4).format("delta").load(b.path)) == [1, 3, 4]
        [change] = b.changes().collect()
        assert (change.change, change.base_version, change.version) == ("changed", 1, 6)
        counts = (change.rows_inserted, change.rows_updated, change.rows_deleted)
        assert counts == (3, 2, 1)
        assert [row.name for row in table.branches().collect()] == ["nightly"]
        assert [row.answer for row in b.explain_publish().collect()] == ["publishes"]
        b.publish()
    assert ids(table.toDF()) == [1, 3, 4, 6, 7]
    assert table.branches().count() == 0
    [last] = table.history(1).collect()
    assert (last.operation, last.operationParameters["branch"]) == ("PUBLISH BRANCH", "nightly")
    for use in (b.publish, b.toDF, b.rebase, b.drop, lambda: table.branch("nightly")):
        with pytest.raises(AnalysisException, match="was published as version 3"):
            use()


def test_a_conflict_a_rebase_and_a_drop(enabled: SparkSession, place: str) -> None:
    table = txlake.DeltaTable.forPath(enabled, place)
    b = table.branch("b", create=True)
    b.table.delete("id = 1")
    table.delete("id = 3")
    b.rebase()
    assert ids(b.toDF()) == [2]
    table.delete("id = 1")
    with pytest.raises(Conflict):
        b.publish()
    b.drop()
    with pytest.raises(AnalysisException, match="has ended"):
        b.toDF()
    assert repr(table.branch("c", create=True)) == f"TableBranch({place}@branch:c)"
    with pytest.raises(AnalysisException, match="has a branch 'c' already"):
        table.branch("c", create=True)
    with pytest.raises(ValueError, match="name needs to be a string"):
        table.branch(1)  # type: ignore[arg-type]


def test_a_frame_of_a_branch_is_judged_where_it_is_written(
    enabled: SparkSession, place: str, tmp_path: Path
) -> None:
    b = txlake.DeltaTable.forPath(enabled, place).branch("b", create=True)
    rows = b.toDF()
    b.table.delete("id = 1")
    with pytest.raises(Conflict):
        rows.write.format("delta").mode("overwrite").save(b.path)
    rows = b.toDF()
    rows.write.format("delta").save(str(tmp_path / "copy"))
    assert ids(enabled.read.format("delta").load(str(tmp_path / "copy"))) == [2, 3]


def test_a_lakes_table_has_no_branches_of_its_own(enabled: SparkSession, lake: txlake.Lake) -> None:
    lake.write(numbered(enabled, 1), "t")
    table = txlake.DeltaTable.forName(enabled, "t")
    with pytest.raises(AnalysisException, match=r"use lake\.branch"):
        table.branch("b", create=True)
    with pytest.raises(AnalysisException, match="leave FOR TABLE out"):
        table.branches()


def test_the_change_feed_of_a_publication_is_that_of_its_rows(
    enabled: SparkSession, place: str
) -> None:
    spark = enabled
    feed_on = "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"ALTER TABLE delta.`{place}` {feed_on}")
    b = txlake.DeltaTable.forPath(spark, place).branch("b", create=True)
    b.table.update("id = 1", {"v": "1L"})
    b.table.update("id = 1", {"v": "2L"})
    b.table.optimize().executeCompaction()
    b.publish()
    newest = txlake.DeltaTable.forPath(spark, place).history(1).collect()[0].version
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", newest)
        .load(place)
    )
    rows = sorted((row._change_type, row.id, row.v) for row in feed.collect())
    assert rows == [("update_postimage", 1, 2), ("update_preimage", 1, 0)]


def test_other_engines_read_main_and_write_nothing(enabled: SparkSession, place: str) -> None:
    b = txlake.DeltaTable.forPath(enabled, place).branch("b", create=True)
    b.table.delete("id = 1")
    numbered(enabled, 4).write.format("delta").mode("append").save(b.path)
    table = deltalake.DeltaTable(place)
    rows = deltalake.QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    assert sorted(pa.table(rows)["id"].to_pylist()) == [1, 2, 3]
    assert sorted(pl.read_delta(place)["id"].to_list()) == [1, 2, 3]
    with pytest.raises(DeltaError, match="tableBranching-dev"):
        deltalake.write_deltalake(place, pl.DataFrame({"id": [9], "v": [9]}), mode="append")
    with pytest.raises(DeltaError, match="tableBranching-dev"):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert ids(b.toDF()) == [2, 3, 4]
    b.publish()
    assert sorted(pl.read_delta(place)["id"].to_list()) == [2, 3, 4]


@pytest.mark.peer("duckdb")
def test_duckdb_reads_main_beside_a_branch(enabled: SparkSession, place: str) -> None:
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    b = txlake.DeltaTable.forPath(enabled, place).branch("b", create=True)
    b.table.delete("id = 1")
    with closing(DuckDB(python)) as duckdb:
        rows = duckdb.rows(Path(place))
    assert isinstance(rows, pa.Table)
    assert sorted(rows["id"].to_pylist()) == [1, 2, 3]
