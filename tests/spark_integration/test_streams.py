"""Streams and the change feed in an enabled session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException

import txlake
from tests.lake.rows import rows
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def ended(query: Any) -> None:
    query.awaitTermination()  # raises what stopped it


def test_a_stream_goes_from_table_to_table(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str, tmp_path: Path
) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.range(3, 5).write.mode("append").saveAsTable("t")
    place = str(tmp_path / "copy")
    for _ in range(2):
        read = enabled.readStream.format("delta").option("maxFilesPerTrigger", 1).load("t")
        written = read.selectExpr("id", "id % 2 AS p").writeStream.format("delta")
        written = written.option("checkpointLocation", checkpoint).option("userMetadata", "mine")
        ended(written.partitionBy("p").trigger(availableNow=True).start(place))
        assert rows(lake.read(place).select("id")) == [(0,), (1,), (2,), (3,), (4,)]
    [newest] = txlake.Log(place).history(1)
    assert (newest["operation"], newest["userMetadata"]) == ("STREAMING UPDATE", "mine")
    assert txlake.Log(place).snapshot().partition_columns == ["p"]


def test_names_are_the_lakes_and_other_streams_sparks(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str, tmp_path: Path
) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.conf.set("spark.sql.streaming.checkpointLocation", checkpoint)
    try:
        query = enabled.readStream.table("t").groupBy().count().writeStream
        ended(
            query.outputMode("complete")
            .queryName("counts")
            .trigger(availableNow=True)
            .toTable("shown", format="delta")
        )
    finally:
        enabled.conf.unset("spark.sql.streaming.checkpointLocation")
    assert rows(lake.read("shown")) == [(3,)]
    assert Path(checkpoint, "counts", "metadata").exists()
    files = str(tmp_path / "files")
    ended(
        enabled.readStream.table("t")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{checkpoint} 2")
        .trigger(availableNow=True)
        .start(files)
    )
    assert enabled.read.parquet(files).count() == 3


def test_to_table_makes_the_table_before_any_row_comes(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str, tmp_path: Path
) -> None:
    enabled.range(3).selectExpr("id", "id AS p").write.saveAsTable("t")
    place = str(tmp_path / "place")
    latest = enabled.readStream.option("startingVersion", "latest").table("t")
    made = latest.writeStream.format("delta").partitionBy("p").option("path", place)
    made = made.option("delta.appendOnly", "true").option("checkpointLocation", checkpoint)
    lake.sql("BEGIN")
    query = made.trigger(availableNow=True).toTable("copy")
    lake.sql("ROLLBACK")
    ended(query)
    assert rows(enabled.table("copy")) == []
    assert enabled.table("copy").columns == ["id", "p"]
    assert txlake.Log(place).snapshot().partition_columns == ["p"]
    assert txlake.Log(place).snapshot().properties["delta.appendOnly"] == "true"
    enabled.range(3, 4).selectExpr("id", "id AS p").write.insertInto("t")
    ended(made.trigger(availableNow=True).toTable("copy"))
    assert rows(enabled.read.format("delta").load(place)) == [(3, 3)]
    [newest] = lake.sql("DESCRIBE HISTORY copy LIMIT 1").collect()
    assert newest["operationMetrics"]["numAddedFiles"] == "1"
    assert newest["operationMetrics"]["numRemovedFiles"] == "0"
    with pytest.raises(AnalysisException, match="place, not at"):
        made.option("path", place + "2").toTable("copy")
    enabled.range(1).createOrReplaceTempView("shown")
    with pytest.raises(AnalysisException, match="shown is a temporary view"):
        latest.writeStream.format("delta").toTable("shown")
    with pytest.raises(InvalidRequest, match="checkpointLocation isn't given"):
        latest.writeStream.format("delta").toTable("never")
    enabled.catalog.dropTempView("shown")
    assert not enabled.catalog.tableExists("never")
    assert not enabled.catalog.tableExists("shown")


def test_to_table_makes_no_table_for_the_checkpoint_of_another(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str
) -> None:
    enabled.range(3).write.saveAsTable("t")
    copied = enabled.readStream.table("t").writeStream.option("checkpointLocation", checkpoint)
    copied = copied.trigger(availableNow=True)
    ended(copied.toTable("copy"))
    with pytest.raises(InvalidRequest, match="checkpoint of its own"):
        copied.toTable("other")
    assert not enabled.catalog.tableExists("other")
    ended(copied.toTable("copy"))
    assert lake.read("copy").count() == 3


def test_what_a_stream_cannot_be(enabled: SparkSession, lake: txlake.Lake, checkpoint: str) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.sql("CREATE VIEW v AS SELECT * FROM t")
    stream = enabled.readStream.format("delta")
    with pytest.raises(AnalysisException, match="nothing"):
        enabled.readStream.table("nothing")
    with pytest.raises(AnalysisException, match="is a view of the lake"):
        enabled.readStream.table("v")
    with pytest.raises(InvalidRequest, match="startingVersion=1 and startingTimestamp"):
        stream.option("startingVersion", 1).option("startingTimestamp", "2026-01-01").load("t")
    with pytest.raises(InvalidRequest, match="versionAsOf goes with a read, not with a stream"):
        enabled.readStream.format("delta").option("versionAsOf", 0).load("t")
    with pytest.raises(InvalidRequest, match="recorded no changes"):
        enabled.readStream.option("readChangeFeed", "true").table("t")
    read = enabled.readStream.option("mode", "passed over").table("t")
    with pytest.raises(InvalidRequest, match="checkpointLocation isn't given"):
        read.writeStream.format("delta").start("./nothing")
    named = read.writeStream.option("checkpointLocation", checkpoint)
    with pytest.raises(AnalysisException, match="expected 'append' or 'complete'"):
        named.outputMode("update").toTable("copy")
    with pytest.raises(UnsupportedOperationException, match="replaceWhere isn't an option of a"):
        read.writeStream.option("replaceWhere", "id = 1").toTable("copy")
    with pytest.raises(AnalysisException, match="is a view, not a table"):
        read.writeStream.toTable("v")
    with pytest.raises(AnalysisException, match="the format of another"):
        read.writeStream.toTable("t", format="parquet")


def test_the_change_feed(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str, tmp_path: Path
) -> None:
    enabled.sql(
        "CREATE TABLE t (id INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    enabled.sql("INSERT INTO t VALUES (1), (2)")
    enabled.sql("UPDATE t SET id = 3 WHERE id = 2")
    enabled.sql("DELETE FROM t WHERE id = 1")
    expected = rows(lake.changes("t", 1))
    assert len(expected) == 5
    read = enabled.read.format("delta").option("readChangeFeed", "true")
    assert rows(read.option("startingVersion", 1).table("t")) == expected
    place = lake.table("t").detail().collect()[0]["location"]
    assert rows(read.option("endingVersion", 1).load(place)) == rows(lake.changes("t", 1, 1))
    moment = lake.sql("DESCRIBE HISTORY t").where("version = 2").collect()[0]["timestamp"]
    timed = enabled.read.option("readChangeFeed", "true").option("startingTimestamp", str(moment))
    assert rows(timed.table("t")) == rows(lake.changes("t", 2))
    until = enabled.read.option("readChangeFeed", "true").option("startingVersion", 0)
    assert rows(until.option("endingTimestamp", str(moment)).table("t")) == rows(
        lake.changes("t", 0, 2)
    )
    assert rows(enabled.sql("SELECT * FROM table_changes('t', 1)")) == expected
    with pytest.raises(PySparkException, match="newest version"):
        enabled.read.option("readChangeFeed", "true").option("startingVersion", 9).table("t")
    stream = enabled.readStream.option("readChangeFeed", "true").option("startingVersion", 1)
    copied = stream.table("t").writeStream.option("checkpointLocation", checkpoint)
    ended(copied.trigger(availableNow=True).toTable("copy"))
    assert rows(lake.read("copy")) == expected


def in_batches(enabled: SparkSession, checkpoint: str, function: Callable[[Any, int], None]) -> Any:
    """Run a function on the one micro-batch of a stream of three rows."""
    files = f"{checkpoint}.files"
    if not Path(files).exists():
        enabled.range(3).coalesce(1).write.parquet(files)
    read = enabled.readStream.schema("id BIGINT").parquet(files).writeStream.foreachBatch(function)
    return read.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def test_a_micro_batch_is_merged_by_its_own_temporary_view(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str
) -> None:
    lake.sql("CREATE DATABASE shop; CREATE TABLE shop.merged (id BIGINT); USE shop")
    enabled.range(90, 91).createOrReplaceTempView("updates")  # what the batch must not see
    seen: list[int] = []

    def upsert(batch: Any, batch_id: int) -> None:
        batch.createOrReplaceTempView("updates")
        own = batch.sparkSession
        own.sql(
            "MERGE INTO merged USING updates AS s ON merged.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        own.sql("USE default")
        batch.writeTo("made").createOrReplace()
        seen.append(own.sql("SELECT * FROM updates").count())
        seen.append(own.sql("SELECT * FROM {b}", b=batch).count())

    try:
        query = in_batches(enabled, checkpoint, upsert)
        lake.sql("USE default")  # the stream began in shop
        ended(query)
    finally:
        enabled.catalog.dropTempView("updates")
    assert rows(lake.read("shop.merged")) == rows(lake.read("made")) == [(0,), (1,), (2,)]
    assert seen == [3, 3]
    assert lake._session.database == "default"


def test_a_micro_batch_is_in_no_transaction_of_the_program(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str
) -> None:

    def write(batch: Any, batch_id: int) -> None:
        batch.write.saveAsTable("own")
        enabled.sql("CREATE TABLE held AS SELECT * FROM own")  # by the session that is at hand

    enabled.sql("BEGIN")
    ended(in_batches(enabled, checkpoint, write))
    enabled.sql("ROLLBACK")
    assert rows(lake.read("own")) == rows(lake.read("held")) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("by_clone", [True, False])
def test_a_micro_batch_that_leaves_a_transaction_open_is_not_done(
    enabled: SparkSession, lake: txlake.Lake, checkpoint: str, *, by_clone: bool
) -> None:
    tries = []

    def write(batch: Any, batch_id: int) -> None:
        session = batch.sparkSession if by_clone else enabled
        tries.append(batch_id)
        session.sql("BEGIN")
        session.sql("CREATE TABLE made (id INT)")
        if len(tries) > 1:
            session.sql("COMMIT")

    with pytest.raises(PySparkException, match="left a transaction open"):
        in_batches(enabled, checkpoint, write).awaitTermination()
    assert not enabled.catalog.tableExists("made")
    ended(in_batches(enabled, checkpoint, write))
    assert tries == [0, 0]
    assert enabled.catalog.tableExists("made")
