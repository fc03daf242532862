"""Branches by Spark's own doors: `spark.sql`, readers, writers and the catalog of an enabled
session, by USE BRANCH and by Iceberg's setting.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import txlake
from txlake.errors import InvalidRequest, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

KEY = "spark.wap.branch"


@pytest.fixture
def enabled(enabled: SparkSession, lake: txlake.Lake) -> Iterator[SparkSession]:
    """The enabled session of a lake with a table t of one row, and branches x and y."""
    lake.write(pa.table({"id": [1]}), "t")
    lake.sql("CREATE BRANCH x; CREATE BRANCH y; CREATE TAG first")
    yield enabled
    enabled.conf.unset(KEY)


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def numbered(spark: SparkSession, number: int) -> DataFrame:
    return spark.createDataFrame([(number,)], "id bigint")


def tables_of(spark: SparkSession) -> list[str]:
    """The tables of the line in use; temporary views are the session's."""
    return sorted(table.name for table in spark.catalog.listTables() if not table.isTemporary)


def test_each_door_follows_the_setting(enabled: SparkSession, lake: txlake.Lake) -> None:
    spark = enabled
    spark.sql(f"SET {KEY} = x")
    spark.sql("INSERT INTO t VALUES (2)")
    numbered(spark, 3).write.mode("append").saveAsTable("t")
    numbered(spark, 4).write.insertInto("t")
    numbered(spark, 5).writeTo("t").append()
    lake.sql("INSERT INTO t VALUES (6)")
    lake.write(pa.table({"id": [7]}), "t", mode="append")
    txlake.DeltaTable.forName(spark, "t").update("id = 7", {"id": "8L"})
    place = lake.sql("DESCRIBE DETAIL t").collect()[0].location
    numbered(spark, 9).write.format("delta").mode("append").save(place)
    numbered(spark, 1).write.saveAsTable("made")
    every = [1, 2, 3, 4, 5, 6, 8, 9]
    for rows in (
        spark.table("t"),
        spark.read.table("t"),
        spark.read.format("delta").load(place),
        spark.sql("SELECT * FROM t"),
        lake.read("t"),
        txlake.DeltaTable.forName(spark, "t").toDF(),
    ):
        assert ids(rows) == every
    assert spark.catalog.tableExists("made")
    assert tables_of(spark) == ["made", "t"]
    spark.sql(f"RESET {KEY}")
    assert tables_of(spark) == ["t"]
    assert ids(spark.table("t")) == ids(lake.read("t")) == [1]
    spark.conf.set(KEY, "y")
    assert tables_of(spark) == ["t"]
    assert ids(spark.read.format("delta").load(place)) == [1]
    lake.branch("x").publish()
    assert ids(spark.table("t")) == [1]
    spark.conf.unset(KEY)
    assert ids(spark.table("t")) == every


def test_use_branch_in_spark_sql(enabled: SparkSession, lake: txlake.Lake) -> None:
    spark = enabled
    spark.sql("USE BRANCH x")
    numbered(spark, 2).write.mode("append").saveAsTable("t")
    assert ids(spark.table("t")) == ids(lake.read("t")) == [1, 2]
    assert ids(lake.session().read("t")) == [1, 2]
    with pytest.raises(AnalysisException, match="no branch 'nowhere'"):
        spark.sql("USE BRANCH nowhere")
    spark.conf.set(KEY, "y")
    assert ids(spark.table("t")) == [1]
    with pytest.raises(AnalysisException, match=f"USE BRANCH x: {KEY} is 'y'"):
        spark.sql("USE BRANCH x")
    spark.conf.unset(KEY)
    assert ids(spark.table("t")) == [1, 2]
    spark.sql("USE BRANCH main")
    assert ids(spark.table("t")) == [1]
    spark.sql("PUBLISH BRANCH x")
    assert ids(spark.table("t")) == [1, 2]
    assert [row.name for row in spark.sql("SHOW BRANCHES").collect()] == ["y"]


def test_a_branch_or_tag_as_version_in_all_doors(enabled: SparkSession, lake: txlake.Lake) -> None:
    spark = enabled
    lake.branch("x").sql("INSERT INTO t VALUES (2)")
    lake.sql("DELETE FROM t")
    place = lake.sql("DESCRIBE DETAIL t").collect()[0].location
    for name, expected in (("x", [1, 2]), ("X", [1, 2]), ("first", [1]), ("main", [])):
        reader = spark.read.option("versionAsOf", name)
        for rows in (
            reader.table("t"),
            reader.format("delta").load(place),
            spark.read.option("tag" if name == "first" else "branch", name).table("t"),
            spark.sql(f"SELECT * FROM t VERSION AS OF '{name}'"),
            lake.sql(f"SELECT * FROM t FOR VERSION AS OF '{name}'"),
            lake.read("t", version=name),
        ):
            assert ids(rows) == expected
    assert ids(spark.read.option("versionAsOf", "0").table("t")) == [1]
    with pytest.raises(AnalysisException, match="no branch or tag 'nowhere'"):
        spark.read.option("versionAsOf", "nowhere").table("t")
    numbered(spark, 1).write.format("delta").save(f"{place}_outside")
    with pytest.raises(AnalysisException, match="t_outside has no branch 'x'"):
        spark.read.format("delta").option("versionAsOf", "x").load(f"{place}_outside")
    with pytest.raises(UnsupportedFeature, match="option 'branch' isn't supported: USE BRANCH"):
        numbered(spark, 1).write.option("branch", "x").mode("append").saveAsTable("t")
    with pytest.raises(UnsupportedFeature, match="option 'branch' isn't supported: USE BRANCH"):
        spark.readStream.option("branch", "x").table("t")


def test_what_the_setting_can_not_name(enabled: SparkSession, lake: txlake.Lake) -> None:
    spark = enabled
    for name, said in (("nowhere", "no such branch"), ("first", "is a tag")):
        spark.sql(f"SET {KEY} = {name}")
        for read in (
            lambda: spark.table("t"),
            lambda: spark.sql("SELECT * FROM t"),
            lambda: spark.catalog.listTables(),
            lambda: numbered(spark, 1).write.mode("append").saveAsTable("t"),
        ):
            with pytest.raises(AnalysisException, match=rf"{KEY} is '{name}'.*{said}.*RESET {KEY}"):
                read()
        with pytest.raises(InvalidRequest, match=said):
            lake.write(pa.table({"id": [7]}), "t", mode="append")
        lake.sql(f"RESET {KEY}")
    assert ids(spark.table("t")) == [1]
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (2)")
    spark.sql(f"SET {KEY} = x")
    with pytest.raises(AnalysisException, match=r"belongs to 'main'.*COMMIT or ROLLBACK first"):
        spark.table("t")
    spark.sql("ROLLBACK")
    assert ids(spark.table("t")) == [1]
    spark.sql("INSERT INTO t VALUES (3)")
    spark.sql(f"RESET {KEY}")
    assert ids(spark.table("t")) == [1]
    assert ids(lake.read("t", version="x")) == [1, 3]


def test_a_temporary_view_is_planned_on_the_branch_in_use(
    enabled: SparkSession, lake: txlake.Lake
) -> None:
    spark = enabled
    spark.sql("CREATE TEMPORARY VIEW v AS SELECT id FROM t")
    spark.sql("USE BRANCH x")
    spark.sql("INSERT INTO t VALUES (2)")
    spark.sql("CREATE TEMPORARY VIEW w AS SELECT id FROM t")
    assert ids(spark.table("v")) == ids(spark.sql("SELECT * FROM w")) == [1, 2]
    spark.sql("USE BRANCH main")
    assert ids(spark.table("v")) == ids(spark.sql("SELECT * FROM w")) == [1]
    for name in "vw":
        spark.catalog.dropTempView(name)


def test_copy_into_a_branch(enabled: SparkSession, lake: txlake.Lake, tmp_path: Path) -> None:
    """A file is copied once a line, and not again after the branch is published."""
    spark = enabled
    numbered(spark, 5).coalesce(1).write.parquet(str(tmp_path / "files"))
    copy = f"COPY INTO t FROM '{tmp_path / 'files'}' FILEFORMAT = PARQUET"
    spark.sql(f"SET {KEY} = x")
    for _ in range(2):
        spark.sql(copy)
    assert ids(spark.table("t")) == [1, 5]
    spark.sql(f"RESET {KEY}")
    assert ids(spark.table("t")) == [1]
    spark.sql("PUBLISH BRANCH x")
    spark.sql(copy)
    assert ids(spark.table("t")) == [1, 5]


@pytest.mark.broad
def test_streams_of_an_enabled_session(
    enabled: SparkSession, lake: txlake.Lake, tmp_path: Path
) -> None:
    """Each stays on the branch on which it was started: the lake's sink, and Spark's own
    foreachBatch, whose function writes by the session of its batch.
    """
    spark = enabled

    def write(batch: DataFrame, number: int) -> None:
        started.wait(60)
        batch.write.mode("append").saveAsTable("of_function")
        numbered(spark, 1).write.mode("append").saveAsTable("of_the_programs_session")

    started = threading.Event()
    spark.sql("USE BRANCH x")
    spark.sql("INSERT INTO t VALUES (2)")
    stream = spark.readStream.table("t")
    queries = []
    for name, writer in (
        ("function", stream.writeStream.foreachBatch(write)),
        ("sink", spark.readStream.table("t").writeStream),
    ):
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(
            availableNow=True
        )
        queries.append(writer.start() if name == "function" else writer.toTable("of_sink"))
    spark.sql("USE BRANCH main")
    started.set()
    for query in queries:
        query.awaitTermination(120)
    assert tables_of(spark) == ["t"]
    for name in ("of_function", "of_sink"):
        assert ids(lake.branch("x").read(name)) == [1, 2]
    assert ids(lake.branch("x").read("of_the_programs_session")) == [1]
    spark.conf.set(KEY, "x")
    assert ids(spark.table("of_sink")) == [1, 2]
    spark.table("t").sparkSession.sql("INSERT INTO t VALUES (3)")
    writer = spark.readStream.table("t").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "sink")).toTable(
        "of_sink"
    ).awaitTermination()
    spark.conf.unset(KEY)
    assert ids(lake.branch("x").read("of_sink")) == [1, 2, 3]
    with pytest.raises(AnalysisException, match=r"writes to branch 'x'.*this one writes to main"):
        writer.toTable("of_sink")


def test_the_setting_of_a_session_that_is_not_enabled(spark: SparkSession, tmp_path: Path) -> None:
    """It counts from the first statement, which needs no Spark."""
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.sql("CREATE TABLE t (id BIGINT); CREATE BRANCH x")
    spark.conf.set(KEY, "x")
    try:
        with txlake.connect(str(tmp_path / "lake")) as lake:
            lake.sql("INSERT INTO t VALUES (1)")
            assert ids(lake.read("t", version="main")) == []
            assert ids(lake.read("t")) == [1]
            with lake.transaction() as tx:
                tx.sql("INSERT INTO t VALUES (2)")
            y = lake.branch("y", create=True)
            with pytest.raises(InvalidRequest, match="this session writes on 'y'"):
                y.sql("INSERT INTO t VALUES (3)")
            assert ids(y.read("t")) == []
    finally:
        spark.conf.unset(KEY)
    with txlake.connect(str(tmp_path / "lake")) as lake:
        assert ids(lake.read("t")) == []
        assert ids(lake.read("t", version="x")) == [1, 2]
