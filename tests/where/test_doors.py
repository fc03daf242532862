"""Spark's own doors to a lake, wherever Spark's tasks run: classic sessions and Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import rows
from tests.where.marks import everywhere
from txlake import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broad(keep=3), everywhere]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        txlake.enable(spark, opened)
        yield opened
        txlake.disable(spark)


def test_sql_reads_and_writes_the_lake(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, v STRING) USING delta")
    counts = spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')").collect()
    assert counts[0]["num_inserted_rows"] == 2
    spark.sql(
        "MERGE INTO t USING (SELECT 2 id, 'c' v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    assert rows(spark.sql("SELECT * FROM t WHERE id >= :low", {"low": 2})) == [(2, "c")]
    assert rows(spark.sql("SELECT id FROM t WHERE v = ?", ["a"])) == [(1,)]
    more = spark.createDataFrame([(3, "d")], "id bigint, v string")
    spark.sql("INSERT INTO t SELECT * FROM {more}", more=more)
    assert rows(spark.sql("SELECT t.v FROM t JOIN {more} m USING (id)", more=more)) == [("d",)]
    assert lake.read("t").count() == 3


def test_readers_of_names_and_places(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "at a place")
    frame = spark.range(3)
    frame.write.format("delta").save(place)
    frame.write.format("delta").mode("append").save(place)
    frame.write.saveAsTable("t")
    assert spark.read.format("delta").load(place).count() == 6
    assert spark.read.format("delta").option("versionAsOf", 0).load(place).count() == 3
    assert spark.read.load(place, format="txlake", versionAsOf="0").count() == 3
    assert spark.read.format("delta").load(f"{place}@v0").count() == 3
    assert spark.table("t").count() == spark.read.table("t").count() == 3
    assert spark.read.format("txlake").load("default.t").count() == 3
    assert spark.table(f"delta.`{place}`").count() == 6
    assert rows(spark.sql(f"SELECT max(id) FROM delta.`{place}`")) == [(2,)]


def test_writers_and_their_modes(lake: txlake.Lake, spark: SparkSession) -> None:
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").saveAsTable("t")
    with pytest.raises(AnalysisException, match="exists"):
        frame.write.format("delta").saveAsTable("t")
    frame.write.format("delta").mode("ignore").saveAsTable("t")
    odd = frame.where("p = 1").selectExpr("id + 100 AS id", "p")
    odd.write.mode("overwrite").option("replaceWhere", "p = 1").saveAsTable("t")
    assert rows(spark.table("t").select("id")) == [(0,), (101,), (103,), (2,)]
    odd.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").saveAsTable("t")
    assert spark.table("t").count() == 4
    frame.withColumn("x", F.lit("x")).write.mode("append").option(
        "mergeSchema", "true"
    ).saveAsTable("t")
    assert spark.table("t").columns == ["id", "p", "x"]
    spark.range(2).write.mode("overwrite").option("overwriteSchema", True).saveAsTable("t")
    assert spark.table("t").columns == ["id"]
    spark.range(7, 8).toDF("other").write.insertInto("t")
    assert rows(spark.table("t")) == [(0,), (1,), (7,)]
    spark.range(7, 8).toDF("other").write.insertInto("t", overwrite=True)
    assert rows(spark.table("t")) == [(7,)]


def test_write_to(lake: txlake.Lake, spark: SparkSession) -> None:
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.writeTo("t").using("delta").partitionedBy(F.col("p")).tableProperty("k", "v").create()
    frame.where("p = 0").writeTo("t").append()
    assert spark.table("t").count() == 6
    frame.where("p = 1").writeTo("t").overwrite(F.col("p") == 1)
    frame.where("p = 0").writeTo("t").overwritePartitions()
    assert spark.table("t").count() == 4
    spark.range(1).writeTo("t").createOrReplace()
    spark.range(2).writeTo("t").replace()
    assert rows(spark.table("t")) == [(0,), (1,)]
    with pytest.raises(AnalysisException):
        spark.range(2).writeTo("nothing").append()


def test_the_catalog(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.sql("CREATE DATABASE shop")
    spark.catalog.setCurrentDatabase("shop")
    assert spark.catalog.currentDatabase() == "shop"
    spark.range(1).write.saveAsTable("items")
    spark.range(1).createOrReplaceTempView("on_the_side")
    found = {one.name: one.tableType for one in spark.catalog.listTables()}
    assert found["items"] == "MANAGED"
    assert found["on_the_side"] == "TEMPORARY"
    assert spark.catalog.tableExists("shop.items")
    assert not spark.catalog.tableExists("default.items")
    assert [one.name for one in spark.catalog.listColumns("items")] == ["id"]
    assert {one.name for one in spark.catalog.listDatabases()} == {"default", "shop"}
    spark.catalog.dropTempView("on_the_side")


def test_what_is_sparks_stays_sparks(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "files")
    spark.range(3).write.parquet(place)
    assert spark.read.parquet(place).count() == spark.read.load(place).count() == 3
    spark.range(3).createOrReplaceTempView("seen")
    try:
        spark.range(1).write.saveAsTable("seen_too")
        assert rows(spark.sql("SELECT count(*) FROM seen JOIN seen_too USING (id)")) == [(1,)]
        assert spark.table("seen").count() == 3
        assert spark.sql("SHOW FUNCTIONS").count() > 100
        assert spark.sql("SELECT upper('a')").collect()[0][0] == "A"
    finally:
        spark.catalog.dropTempView("seen")


def test_errors_are_sparks_too(lake: txlake.Lake, spark: SparkSession) -> None:
    with pytest.raises(ParseException):
        spark.sql("SELEC 1")
    with pytest.raises(ParseException, match="one statement"):
        spark.sql("SELECT 1; SELECT 2")
    for ask in ("SELECT * FROM nothing", "DELETE FROM nothing", "DESCRIBE nothing"):
        with pytest.raises(AnalysisException) as caught:
            spark.sql(ask).collect()
        assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"


def test_a_delta_table_of_the_session(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.range(3).write.saveAsTable("t")
    DeltaTable.forName(spark, "t").delete("id = 0")
    assert spark.table("t").count() == 2


def test_streams(lake: txlake.Lake, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.saveAsTable("t")
    for _ in range(2):
        query = (
            spark.readStream.format("delta")
            .table("t")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .toTable("copy")
        )
        query.awaitTermination()
        spark.range(3, 4).write.mode("append").saveAsTable("t")
    assert rows(spark.table("copy")) == [(0,), (1,), (2,), (3,)]


def test_stale_rows_are_not_written(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.range(3).write.saveAsTable("t")
    old = spark.table("t")
    spark.sql("DELETE FROM t WHERE id = 0")
    with pytest.raises(txlake.errors.Conflict):
        old.write.mode("overwrite").saveAsTable("t")
    with pytest.raises(txlake.errors.Conflict):
        old.writeTo("t").append()
    with pytest.raises(txlake.errors.Conflict):
        old.writeTo("copy").create()
    assert spark.table("t").count() == 2


def test_disabled_it_is_sparks_again(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.range(3).write.saveAsTable("t")
    frame = spark.range(1)
    txlake.disable(spark)
    try:
        assert not spark.catalog.tableExists("t")
        with pytest.raises(AnalysisException):
            spark.table("t").collect()
        assert "Lake" not in type(frame.write).__name__
    finally:
        txlake.enable(spark, lake)
    assert spark.table("t").count() == 3


def test_the_branch_by_use_by_icebergs_setting_and_as_version(
    lake: txlake.Lake, spark: SparkSession
) -> None:
    spark.sql("CREATE TABLE t (id BIGINT)")
    spark.sql("CREATE BRANCH x")
    for turn_on, turn_off in (
        ("USE BRANCH x", "USE BRANCH main"),
        ("SET spark.wap.branch = x", "RESET spark.wap.branch"),
    ):
        spark.sql(turn_on)
        spark.sql("INSERT INTO t VALUES (1)")
        spark.range(2, 3).write.mode("append").saveAsTable("t")
        DeltaTable.forName(spark, "t").delete("id = 1")
        assert rows(spark.table("t")) == rows(lake.read("t")) == [(2,)]
        spark.sql("DELETE FROM t WHERE id = 2")
        spark.sql(turn_off)
        assert rows(spark.table("t")) == []
    lake.branch("x").sql("INSERT INTO t VALUES (7)")
    assert rows(spark.read.option("versionAsOf", "x").table("t")) == [(7,)]
    spark.conf.set("spark.wap.branch", "nowhere")
    with pytest.raises(AnalysisException, match="no such branch"):
        spark.table("t")
    spark.conf.unset("spark.wap.branch")
