"""Names of a real catalog that knows Delta, from creation to DROP and again; a program of its own.

Arguments: `classic` or `connect`, a scratch folder, the paths of Delta Spark's jars.
test_spark_catalog.py runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from txlake import DeltaTable


def main(kind: str, folder: str, jars: list[str]) -> None:
    builder = SparkSession.builder
    spark = (
        (builder.remote("local[2]") if kind == "connect" else builder.master("local[2]"))
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .config("spark.sql.catalog.spark_catalog", _CATALOG)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/ware house%20")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config(f"{_DEFAULTS}.checkpointInterval", "7")
        .config(f"{_DEFAULTS}.enableDeletionVectors", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        managed(spark)
        external(spark, folder)
    finally:
        spark.stop()


def managed(spark: SparkSession) -> None:
    table = (
        DeltaTable.create(spark)
        .tableName("default.t")
        .addColumn("key", "string", nullable=False, comment="the key")
        .addColumn("value", "int")
        .property("foo", "bar")
        .property("delta.checkpointInterval", "5")
        .comment("ours")
        .partitionedBy("key")
        .execute()
    )
    spark.sql("INSERT INTO t VALUES ('a', 1)")
    table.update("t.key IS NOT NULL", {"default.t.value": "t.value + 1"})
    assert rows(spark.table("t")) == [("a", 2)]
    detail = spark.sql("DESCRIBE DETAIL t").first()
    assert detail is not None
    assert (detail["description"], detail["partitionColumns"]) == ("ours", ["key"])
    assert detail["properties"] == {
        "foo": "bar",
        "delta.checkpointInterval": "5",
        "delta.enableDeletionVectors": "false",
    }
    assert rows(DeltaTable.forName(spark, "t").toDF().select("t.value")) == [(2,)]
    refused(lambda: DeltaTable.create(spark).tableName("t").addColumn("x", "int").execute())
    DeltaTable.replace(spark).tableName("t").addColumn("x", "int").execute()
    assert spark.table("t").columns == ["x"]

    # A dropped table leaves nothing behind.
    spark.sql("DROP TABLE t")
    refused(lambda: DeltaTable.forName(spark, "t"))
    table = DeltaTable.create(spark).tableName("t").addColumn("y", "int").execute()
    assert (table.toDF().columns, rows(table.toDF())) == (["y"], [])
    spark.sql("DROP TABLE t")

    refused(lambda: DeltaTable.create(spark).tableName("t").partitionedBy("nope").execute())
    assert not spark.catalog.tableExists("t")


def external(spark: SparkSession, folder: str) -> None:
    place = f"{folder}/it's 100%25"
    DeltaTable.create(spark).tableName("e").location(place).addColumn("x", "int").execute()
    spark.sql("INSERT INTO e VALUES (1), (2)")
    DeltaTable.forName(spark, "e").delete("e.x = 1")
    assert rows(DeltaTable.forPath(spark, place).toDF()) == rows(spark.table("e")) == [(2,)]
    spark.sql("DROP TABLE e")
    assert Path(place, "_delta_log").is_dir()
    DeltaTable.createIfNotExists(spark).tableName("e").location(place).execute()
    assert rows(spark.table("e")) == [(2,)]


def refused(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except AnalysisException:
        return
    raise AssertionError("not refused")


def rows(frame: object) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]  # type: ignore[attr-defined]


_DEFAULTS = "spark.databricks.delta.properties.defaults"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
