"""Streams on Spark: every type, what runs again, tables that change, bad input."""

from __future__ import annotations

import datetime
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import number, query, rows
from txlake.errors import InvalidRequest, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.broad(keep=2)
NOW = {"availableNow": True}
EVERY_TYPE = """
    CAST(id AS TINYINT) AS a_byte, CAST(id AS SMALLINT) AS a_short, CAST(id AS INT) AS an_int, id,
    CAST(id AS FLOAT) / 3 AS a_float, CAST(id AS DOUBLE) / 3 AS a_double, id > 2 AS a_boolean,
    CAST(id AS DECIMAL(5, 2)) AS small, CAST(id AS DECIMAL(38, 10)) AS large,
    'v' || id AS a_text, X'00FF' AS bytes, DATE'1500-02-28' + CAST(id AS INT) AS day,
    TIMESTAMP'2026-02-28 01:02:03.000004' AS at, TIMESTAMP_NTZ'1500-01-01 00:00:00' AS ntz,
    named_struct('a', 1, 'b', array('x', NULL)) AS a_struct,
    map('k', named_struct('v', id, 'w', CAST(NULL AS STRING))) AS a_map,
    IF(id = 1, NULL, array(array(id))) AS lists,
    DATE'2026-01-01' + CAST(id % 2 AS INT) AS p, IF(id = 2, NULL, 'é=/ ' || id % 2) AS q,
    TIMESTAMP'2026-02-28 01:02:03.5' AS r
"""


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


@pytest.fixture
def events(lake: txlake.Lake) -> txlake.Lake:
    lake.sql("CREATE TABLE t (id INT, p STRING)")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return lake


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "a checkpoint [1]")


def ended(asked: StreamingQuery) -> StreamingQuery:
    asked.awaitTermination()
    return asked


def stopped(asked: StreamingQuery) -> str:
    """What stops a query."""
    with pytest.raises(StreamingQueryException) as found:
        asked.awaitTermination()
    return str(found.value)


def forget_commits(checkpoint: str) -> None:
    """As if the query was killed when its last micro-batch was committed, and Spark not told."""
    commits = sorted(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)


# --- what is read and written ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "zone"), [("none", "UTC"), ("name", "Asia/Tokyo"), ("id", "America/New_York")]
)
def test_every_type_goes_through_as_it_is(
    lake: txlake.Lake, spark: SparkSession, checkpoint: str, tmp_path: Path, mode: str, zone: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.range(0, 6, 1, 2).selectExpr(*_split(EVERY_TYPE))
        lake.write(frame, "t", partition_by=["p", "q", "r"])
        if mode == "name":
            lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
            lake.sql("ALTER TABLE t RENAME COLUMN a_struct TO renamed")
            lake.sql("ALTER TABLE t RENAME COLUMN q TO parted")
        if mode == "id":
            lake.sql("DROP TABLE t")
            definition = ", ".join(
                f"{one.name} {one.dataType.simpleString()}" for one in frame.schema
            )
            lake.sql(
                f"CREATE TABLE t ({definition}) PARTITIONED BY (p, q, r) "
                "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
            )
            lake.write(frame, "t", "append")
        lake.sql("DELETE FROM t WHERE id IN (3, 5)")
        lake.sql("ALTER TABLE t ADD COLUMN more INT")
        expected = rows(lake.read("t"))
        assert len(expected) == 4
        stream = lake.read_stream("t", max_files_per_trigger=2)
        ended(lake.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW))
        assert rows(lake.read("copy")) == expected
        spark.dataSource.register(txlake.TxlakeDataSource)
        place = str(tmp_path / "copy by the format")
        for number_of_run in range(2):
            read = (
                spark.readStream.format("txlake").option("lake", str(tmp_path / "lake")).load("t")
            )
            ended(
                read.writeStream.format("txlake")
                .option("checkpointLocation", f"{checkpoint} 2")
                .trigger(availableNow=True)
                .start(place)
            )
            assert rows(lake.read(place)) == expected, number_of_run
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def _split(text: str) -> list[str]:
    """Its expressions, split at commas outside of brackets."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [one.strip() for one in found]


def test_a_limit_makes_several_micro_batches_of_what_is_there(
    events: txlake.Lake, checkpoint: str
) -> None:
    for value in range(3, 7):
        events.sql(f"INSERT INTO t VALUES ({value}, 'c')")
    stream = events.read_stream("t", max_files_per_trigger=2)
    done = ended(events.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW))
    assert [one["numInputRows"] for one in done.recentProgress if one["numInputRows"]] == [3, 2, 1]
    assert number(events, "SELECT count(*) FROM copy") == 6


def test_complete_mode_replaces_all_rows(events: txlake.Lake, checkpoint: str) -> None:
    for total in (2, 3):
        counts = events.read_stream("t").groupBy().count()
        ended(
            events.write_stream(
                counts, "counts", checkpoint=checkpoint, output_mode="complete", trigger=NOW
            )
        )
        assert query(events, "SELECT * FROM counts") == [(total,)]
        events.sql("INSERT INTO t VALUES (3, 'c')")


def test_complete_mode_may_replace_the_schema(events: txlake.Lake, checkpoint: str) -> None:
    counts = events.read_stream("t").groupBy("p").count()
    events.sql("CREATE TABLE counts (total STRING)")
    asked: dict[str, Any] = {"checkpoint": checkpoint, "trigger": NOW, "output_mode": "complete"}
    assert "DELTA_METADATA_MISMATCH" in stopped(events.write_stream(counts, "counts", **asked))
    ended(
        events.write_stream(counts, "counts", **asked, overwrite_schema=True, partition_by="p"),
    )
    assert query(events, "SELECT p, count FROM counts") == [("a", 1), ("b", 1)]
    assert query(events, "SHOW PARTITIONS counts") == [("a",), ("b",)]
    assert events.read("counts").columns == ["p", "count"]
    operations = query(events, "SELECT DISTINCT operation FROM (DESCRIBE HISTORY counts LIMIT 1)")
    assert operations == [("STREAMING UPDATE",)]


def test_a_starting_timestamp_is_in_the_sessions_time_zone(
    events: txlake.Lake, spark: SparkSession, checkpoint: str
) -> None:
    events.sql("INSERT INTO t VALUES (3, 'c')")
    newest = events.sql("DESCRIBE HISTORY t").collect()[0]["timestamp"]  # in UTC
    kept = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "+05:00")
    try:
        there = (newest + datetime.timedelta(hours=5)).isoformat(sep=" ")
        ended(
            events.write_stream(
                events.read_stream("t", starting_timestamp=there),
                "copy",
                checkpoint=checkpoint,
                trigger=NOW,
            )
        )
        with pytest.raises(InvalidRequest, match="cannot be converted to a valid timestamp"):
            events.read_stream("t", starting_timestamp="never")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(kept))
    assert query(events, "SELECT id FROM copy") == [(3,)]


def test_a_table_is_made_with_partitions_and_gets_new_columns(
    events: txlake.Lake, checkpoint: str
) -> None:
    def write(frame: DataFrame, **options: Any) -> None:
        ended(
            events.write_stream(
                frame, "copy", checkpoint=checkpoint, trigger=NOW, user_metadata="mine", **options
            )
        )

    write(events.read_stream("t"), partition_by="p")
    events.sql("INSERT INTO t VALUES (3, 'b')")
    write(events.read_stream("t").withColumn("more", F.lit(1)), merge_schema=True)
    assert query(events, "SELECT id, p, more FROM copy") == [
        (1, "a", None),
        (2, "b", None),
        (3, "b", 1),
    ]
    assert query(events, "SHOW PARTITIONS copy") == [("a",), ("b",)]
    newest = events.sql("DESCRIBE HISTORY copy").collect()[0]
    assert (newest["operation"], newest["userMetadata"]) == ("STREAMING UPDATE", "mine")
    assert newest["operationParameters"]["outputMode"] == "Append"


def test_a_running_query_reads_what_comes(events: txlake.Lake, checkpoint: str) -> None:
    running = events.write_stream(events.read_stream("t"), "copy", checkpoint=checkpoint)
    try:
        running.processAllAvailable()
        events.sql("INSERT INTO t VALUES (3, 'c')")
        events.sql("OPTIMIZE t")
        running.processAllAvailable()
        assert query(events, "SELECT id FROM copy") == [(1,), (2,), (3,)]
    finally:
        running.stop()


def test_changes_come_as_a_stream(
    lake: txlake.Lake, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    """In the order of the columns of `lake.changes`, by either door, over two runs."""
    lake.sql(
        "CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    lake.sql("UPDATE t SET p = 'c' WHERE id = 2")
    spark.dataSource.register(txlake.TxlakeDataSource)
    made = spark.readStream.format("txlake").option("lake", str(tmp_path / "lake"))
    for changes, name in (
        (lake.read_stream("t", read_change_feed=True, starting_version=0), "copy1"),
        (made.option("readChangeFeed", "true").option("startingVersion", 0).load("t"), "copy2"),
        (lake.read_stream("t", read_change_feed=True), "copy3"),
    ):
        ended(lake.write_stream(changes, name, checkpoint=f"{checkpoint}{name}", trigger=NOW))
    lake.sql("DELETE FROM t WHERE id = 3")
    lake.sql("INSERT INTO t VALUES (4, 'd')")
    for name in ("copy1", "copy3"):
        again = lake.read_stream("t", read_change_feed=True, starting_version=0)
        ended(lake.write_stream(again, name, checkpoint=f"{checkpoint}{name}", trigger=NOW))
    expected = rows(lake.changes("t", 0))
    assert lake.read("copy1").columns == lake.changes("t", 0).columns
    assert rows(lake.read("copy1")) == expected
    assert rows(lake.read("copy2")) == rows(lake.changes("t", 0, 2))
    first = "SELECT id, p, _change_type FROM copy3 WHERE _commit_version = 2"
    assert query(lake, first) == [(1, "a", "insert"), (2, "c", "insert"), (3, "b", "insert")]
    assert rows(lake.read("copy3").where("_commit_version > 2")) == rows(lake.changes("t", 3))


def test_a_table_without_a_feed_has_no_stream_of_changes(
    events: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=r"recorded no changes, as delta\.enable"):
        events.read_stream("t", read_change_feed=True)
    spark.dataSource.register(txlake.TxlakeDataSource)
    made = spark.readStream.format("txlake").option("lake", str(tmp_path / "lake"))
    with pytest.raises(Exception, match="recorded no changes"):
        made.option("readChangeData", "true").load("t")


# --- once ----------------------------------------------------------------------------------------


def test_a_micro_batch_that_runs_again_is_written_once(
    events: txlake.Lake, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    spark.dataSource.register(txlake.TxlakeDataSource)
    place = str(tmp_path / "copies")
    calls = []

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        calls.append(batch.count())
        tx.write(batch, "rows", "append")
        tx.write(batch.groupBy().count(), "counts", "append")

    def write_all() -> None:
        stream = events.read_stream("t")
        ended(events.write_stream(stream, "copy", checkpoint=f"{checkpoint}1", trigger=NOW))
        ended(events.foreach_batch(stream, work, checkpoint=f"{checkpoint}2", trigger=NOW))
        made = stream.writeStream.format("txlake").trigger(availableNow=True)
        ended(made.option("checkpointLocation", f"{checkpoint}3").start(place))

    write_all()
    for name in "123":
        forget_commits(f"{checkpoint}{name}")
    write_all()
    assert calls == [2]
    assert query(events, "SELECT id FROM copy") == [(1,), (2,)]
    assert query(events, "SELECT id FROM rows") == [(1,), (2,)]
    assert query(events, "SELECT * FROM counts") == [(2,)]
    assert rows(events.read(place).select("id")) == [(1,), (2,)]
    events.sql("INSERT INTO t VALUES (3, 'c')")
    write_all()
    assert calls == [2, 1]
    assert query(events, "SELECT id FROM rows") == [(1,), (2,), (3,)]
    assert rows(events.read(place).select("id")) == [(1,), (2,), (3,)]


def test_a_stateful_batch_that_runs_again_keeps_its_state(
    events: txlake.Lake, checkpoint: str
) -> None:
    """Spark looks since 4.1 whether a batch that is done left the state that it should have."""

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        tx.write(batch, "counts2", "overwrite")

    def count_all() -> None:
        counts = events.read_stream("t").groupBy("p").count()
        ended(
            events.write_stream(
                counts, "counts1", checkpoint=f"{checkpoint}1", output_mode="complete", trigger=NOW
            )
        )
        ended(
            events.foreach_batch(
                counts, work, checkpoint=f"{checkpoint}2", output_mode="complete", trigger=NOW
            )
        )

    count_all()
    for name in "12":
        forget_commits(f"{checkpoint}{name}")
    count_all()
    events.sql("INSERT INTO t VALUES (3, 'b')")
    count_all()
    for name in "12":
        assert query(events, f"SELECT * FROM counts{name}") == [("a", 1), ("b", 2)]


def test_a_batch_is_merged_into_tables_and_a_conflict_does_it_again(
    events: txlake.Lake, checkpoint: str
) -> None:
    events.sql("CREATE TABLE state AS SELECT 1 AS id, 'old' AS p")
    events.sql("CREATE TABLE log (ids INT)")
    attempts = []

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        merge = tx.table("state").alias("s").merge(batch.alias("b"), "s.id = b.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        tx.write(batch.selectExpr("CAST(count(*) AS INT) AS ids"), "log", "append")
        attempts.append(tx.id)
        if len(attempts) == 1:
            with events.session() as other:
                other.sql("UPDATE state SET p = 'winner' WHERE id = 1")

    ended(events.foreach_batch(events.read_stream("t"), work, checkpoint=checkpoint, trigger=NOW))
    assert len(attempts) == 2
    assert query(events, "SELECT * FROM state") == [(1, "a"), (2, "b")]
    assert query(events, "SELECT * FROM log") == [(2,)]


def test_the_works_sql_knows_the_views_of_its_batch(events: txlake.Lake, checkpoint: str) -> None:
    events.sql("CREATE TABLE state (id INT, p STRING)")
    events.sql("SELECT 9 AS id, 'no' AS p").createOrReplaceTempView("updates")

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        batch.createOrReplaceTempView("updates")
        tx.sql("CREATE OR REPLACE TEMP VIEW some AS SELECT id, upper(p) AS p FROM updates")
        tx.sql(
            "MERGE INTO state s USING some u ON s.id = u.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    for added in (3, 4):
        read = events.read_stream("t")
        ended(events.foreach_batch(read, work, checkpoint=checkpoint, trigger=NOW))
        events.sql(f"INSERT INTO t VALUES ({added}, 'c')")
    assert query(events, "SELECT * FROM state") == [(1, "A"), (2, "B"), (3, "C")]
    assert query(events, "SELECT * FROM updates") == [(9, "no")]


def test_the_works_names_are_of_the_database_that_was_current_at_the_start(
    events: txlake.Lake, checkpoint: str
) -> None:
    events.sql("CREATE DATABASE shop; USE shop; CREATE TABLE state (id INT, p STRING)")

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        tx.write(batch, "copy", "append")
        batch.createOrReplaceTempView("updates")
        tx.sql("INSERT INTO state SELECT * FROM updates")

    asked = events.foreach_batch(
        events.read_stream("default.t"), work, checkpoint=checkpoint, trigger=NOW
    )
    events.sql("USE default")
    ended(asked)
    assert query(events, "SELECT * FROM shop.copy") == [(1, "a"), (2, "b")]
    assert query(events, "SELECT * FROM shop.state") == [(1, "a"), (2, "b")]


def test_what_the_work_raises_stops_the_query_and_undoes_its_writes(
    events: txlake.Lake, checkpoint: str
) -> None:
    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        tx.write(batch, "t", "append")
        raise ValueError("not today")

    said = stopped(
        events.foreach_batch(events.read_stream("t"), work, checkpoint=checkpoint, trigger=NOW)
    )
    assert "not today" in said
    assert number(events, "SELECT count(*) FROM t") == 2


def test_a_sink_that_reads_its_own_target_is_no_blind_append(
    events: txlake.Lake, checkpoint: str
) -> None:
    events.sql("CREATE TABLE copy (id INT, p STRING)")
    for table, is_blind in (("copy", True), ("t", False)):
        stream = events.read_stream("t")
        ended(events.write_stream(stream, table, checkpoint=f"{checkpoint}{table}", trigger=NOW))
        [newest, *_] = events.sql(f"DESCRIBE HISTORY {table}").collect()
        assert newest["operation"] == "STREAMING UPDATE"
        assert newest["isBlindAppend"] is is_blind
    assert number(events, "SELECT count(*) FROM t") == 4


# --- what stops a stream --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM t WHERE id = 1", "DELETE) deleted rows"),
        ("UPDATE t SET p = 'z' WHERE id = 1", "UPDATE) changed rows"),
        (
            "CREATE OR REPLACE TABLE t (id INT, p STRING)",
            "the stream began on the table with id",
        ),
        ("ALTER TABLE t ADD COLUMN more INT", "Start the query again"),
        ("DROP TABLE t", "t"),
    ],
)
def test_a_change_of_the_table_stops_the_stream(
    events: txlake.Lake, checkpoint: str, change: str, said: str
) -> None:
    stream = events.read_stream("t")
    running = events.write_stream(stream, "copy", checkpoint=checkpoint)
    try:
        running.processAllAvailable()
        events.sql(change)
        if "ALTER" in change:
            events.sql("INSERT INTO t VALUES (3, 'c', 1)")
        assert said in stopped(running)
    finally:
        running.stop()
    assert query(events, "SELECT id FROM copy") == [(1,), (2,)]


def test_an_option_goes_on_behind_a_change(events: txlake.Lake, checkpoint: str) -> None:
    for _ in range(2):
        stream = events.read_stream("t", skip_change_commits=True)
        ended(events.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW))
        events.sql("UPDATE t SET p = 'z' WHERE id = 1; INSERT INTO t VALUES (3, 'c')")
    assert query(events, "SELECT id, p FROM copy") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_checkpoint_is_that_of_one_sink(events: txlake.Lake, checkpoint: str) -> None:
    stream = events.read_stream("t")
    ended(events.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW))
    events.sql("INSERT INTO t VALUES (3, 'c')")
    for _ in range(2):  # with a row that is new to the checkpoint, and without one
        with pytest.raises(InvalidRequest, match="Give each sink a checkpoint of its own"):
            events.write_stream(stream, "other", checkpoint=checkpoint, trigger=NOW)
        with pytest.raises(InvalidRequest, match="Give each sink a checkpoint of its own"):
            events.foreach_batch(stream, lambda tx, batch: None, checkpoint=checkpoint)
        ended(events.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW))
    events.sql("CREATE TABLE another AS SELECT * FROM t")
    moved = events.read_stream("another")
    said = stopped(events.write_stream(moved, "copy", checkpoint=checkpoint, trigger=NOW))
    assert "the checkpoint is that of another table's stream" in said
    shutil.rmtree(checkpoint)
    ended(events.write_stream(stream, "other", checkpoint=checkpoint, trigger=NOW))
    assert number(events, "SELECT count(*) FROM other") == 3


def test_a_table_that_was_renamed_is_written_on(events: txlake.Lake, checkpoint: str) -> None:
    for table in ("copy", "renamed"):
        stream = events.read_stream("t")
        ended(events.write_stream(stream, table, checkpoint=checkpoint, trigger=NOW))
        events.sql("INSERT INTO t VALUES (3, 'c')")
        if table == "copy":
            events.sql("ALTER TABLE copy RENAME TO renamed")
    assert query(events, "SELECT id FROM renamed") == [(1,), (2,), (3,)]


# --- bad input -----------------------------------------------------------------------------------


def test_bad_calls_are_refused_before_anything_runs(
    events: txlake.Lake, spark: SparkSession, checkpoint: str
) -> None:
    stream = events.read_stream("t")
    with pytest.raises(InvalidRequest, match="nothing"):
        events.read_stream("nothing")
    with pytest.raises(InvalidRequest, match="did you mean maxFilesPerTrigger"):
        events.read_stream("t", max_file_per_trigger=1)
    with pytest.raises(UnsupportedFeature, match="schemaTrackingLocation"):
        events.read_stream("t", schema_tracking_location="x")
    with pytest.raises(InvalidRequest, match="expected a streaming DataFrame"):
        events.write_stream(events.read("t"), "copy", checkpoint=checkpoint)
    with pytest.raises(InvalidRequest, match="overwrite_schema=True goes with output_mode="):
        events.write_stream(stream, "copy", checkpoint=checkpoint, overwrite_schema=True)
    mode: Any = "update"
    with pytest.raises(InvalidRequest, match="output_mode='update': expected"):
        events.write_stream(stream, "copy", checkpoint=checkpoint, output_mode=mode)
    with pytest.raises(InvalidRequest, match="trigger="):
        events.write_stream(stream, "copy", checkpoint=checkpoint, trigger={"often": True})
    with pytest.raises(InvalidRequest, match="checkpoint=''"):
        events.write_stream(stream, "copy", checkpoint="")
    with pytest.raises(InvalidRequest, match=r"expected work\(tx, batch\)"):
        events.foreach_batch(stream, "no work", checkpoint=checkpoint)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="attempts=0"):
        events.foreach_batch(stream, print, checkpoint=checkpoint, attempts=0)
    with txlake.connect("memory://streams", spark=spark) as other:
        other.sql("CREATE OR REPLACE TABLE t (id INT)")
        with pytest.raises(InvalidRequest, match="in the memory of this process"):
            other.read_stream("t")


def test_rows_that_dont_fit_stop_the_query(events: txlake.Lake, checkpoint: str) -> None:
    events.sql("CREATE TABLE copy (id INT, p STRING)")
    events.sql("ALTER TABLE copy ADD CONSTRAINT large CHECK (id > 1)")
    said = stopped(
        events.write_stream(events.read_stream("t"), "copy", checkpoint=checkpoint, trigger=NOW)
    )
    assert "CHECK" in said.upper()
    assert number(events, "SELECT count(*) FROM copy") == 0


def test_streams_stop_where_the_lake_was_put_back(spark: SparkSession, tmp_path: Path) -> None:
    place, kept, outside = (tmp_path / name for name in ("lake", "kept", "outside"))
    calls: list[Callable[[txlake.Lake], StreamingQuery]] = [
        lambda lake: lake.write_stream(
            lake.read_stream("t"), "copy", checkpoint=f"{tmp_path}/0", trigger=NOW
        ),
        lambda lake: lake.foreach_batch(
            lake.read_stream("t"),
            lambda tx, batch: tx.write(batch, "booked", mode="append"),
            checkpoint=f"{tmp_path}/1",
            trigger=NOW,
        ),
        lambda lake: lake.write_stream(
            lake.read_stream("t"), str(outside), checkpoint=f"{tmp_path}/2", trigger=NOW
        ),
    ]
    for row in (1, 2):
        with txlake.connect(str(place), spark=spark) as lake:
            if row == 1:
                lake.sql("CREATE TABLE t (id INT)")
            lake.sql(f"INSERT INTO t VALUES ({row})")
            for call in calls:
                ended(call(lake))
        if row == 1:
            shutil.copytree(place, kept)
    shutil.rmtree(place)
    kept.rename(place)
    with txlake.connect(str(place), spark=spark) as lake:
        for call in calls[:2]:
            with pytest.raises(InvalidRequest, match=r"micro-batches up to 0 .* goes on with .* 2"):
                call(lake)
        assert "read it up to version 2, and its newest version is 1" in stopped(calls[2](lake))
        lake.sql("INSERT INTO t VALUES (3)")
        for checkpoint, folder, name in itertools.product(
            "01", ("offsets", "commits"), ("1", ".1.crc")
        ):
            (tmp_path / checkpoint / folder / name).unlink()
        for call in calls[:2]:
            ended(call(lake))
        assert rows(lake.read("copy")) == rows(lake.read("booked")) == [(1,), (3,)]
        lake.sql("DROP TABLE copy")
        with pytest.raises(InvalidRequest, match="has no micro-batch of query"):
            calls[0](lake)
    with txlake.connect(str(tmp_path / "another"), spark=spark) as lake:
        lake.sql("CREATE TABLE t (id INT)")
        with pytest.raises(InvalidRequest, match="the lake has no micro-batch of query"):
            calls[1](lake)


def test_a_checkpoint_of_sparks_own_sink_is_not_taken_over(
    events: txlake.Lake, checkpoint: str, tmp_path: Path
) -> None:
    written = events.read_stream("t").writeStream.option("checkpointLocation", checkpoint)
    ended(written.trigger(availableNow=True).format("parquet").start(str(tmp_path / "files")))
    with pytest.raises(InvalidRequest, match="or the checkpoint is that of another sink"):
        events.write_stream(events.read_stream("t"), "copy", checkpoint=checkpoint)
