"""Streams wherever Spark's processes run: without txlake on their machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import query
from tests.where.marks import everywhere, on_connect
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.broad(keep=1), everywhere]
NOW = {"availableNow": True}
LEAVES = """\
import sys
import txlake
from pyspark.sql import SparkSession
url, warehouse, checkpoint = sys.argv[1:]
lake = txlake.connect(warehouse, spark=SparkSession.builder.remote(url).getOrCreate())
lake.write_stream(lake.read_stream("t"), "copy", checkpoint=checkpoint)
"""


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        opened.sql("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
        opened.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b'); DELETE FROM t WHERE id = 3")
        yield opened


def test_a_table_streams_into_another(lake: txlake.Lake, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    for _ in range(2):
        stream = lake.read_stream("t", max_files_per_trigger=1)
        rows = stream.where("id <> 7").withColumn("q", F.upper("p"))
        lake.write_stream(rows, "copy", checkpoint=checkpoint, trigger=NOW).awaitTermination()
        lake.sql("INSERT INTO t VALUES (7, 'x'), (4, 'd')")
    assert query(lake, "SELECT * FROM copy") == [(1, "a", "A"), (2, "b", "B"), (4, "d", "D")]


def test_a_micro_batch_is_one_transaction_over_two_tables(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        tx.write(batch, "rows", "append")
        tx.write(batch.groupBy("p").count(), "counts", "append")

    checkpoint = str(tmp_path / "checkpoint")
    for _ in range(2):
        stream = lake.read_stream("t")
        lake.foreach_batch(stream, work, checkpoint=checkpoint, trigger=NOW).awaitTermination()
        lake.sql("INSERT INTO t VALUES (4, 'b')")
    assert query(lake, "SELECT * FROM rows") == [(1, "a"), (2, "b"), (4, "b")]
    assert query(lake, "SELECT * FROM counts") == [("a", 1), ("b", 1), ("b", 1)]


def read_into_nothing(own: txlake.LakeSession, checkpoint: str) -> None:
    """A query of Spark's own that reads a table."""
    writer = own.read_stream("t").writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def test_streams_of_a_branch(lake: txlake.Lake, tmp_path: Path) -> None:
    """They read and write the branch, go on with it, and don't outlive it."""

    def work(tx: txlake.Transaction, batch: DataFrame) -> None:
        tx.write(batch, "rows", "append")
        tx.write(batch.groupBy("p").count(), "counts", "append")

    place = str(tmp_path)

    def run(own: txlake.LakeSession) -> None:
        stream = own.read_stream("t")
        folder = f"{place}/copy"
        own.write_stream(stream, "copy", checkpoint=folder, trigger=NOW).awaitTermination()
        own.foreach_batch(
            own.read_stream("t"), work, checkpoint=f"{place}/work", trigger=NOW
        ).awaitTermination()

    b = lake.branch("nightly", create=True)
    b.sql("INSERT INTO t VALUES (4, 'b')")
    run(b)
    lake.sql("INSERT INTO t VALUES (9, 'main')")
    b.sql("INSERT INTO t VALUES (5, 'c')")
    run(b)
    run(b)
    found = [(1, "a"), (2, "b"), (4, "b"), (5, "c")]
    assert query(b, "SELECT * FROM copy") == query(b, "SELECT * FROM rows") == found
    assert query(b, "SELECT * FROM counts") == [("a", 1), ("b", 2), ("c", 1)]
    assert query(lake, "SHOW TABLES") == [("default", "t", False)]
    b.publish()
    assert query(lake, "SELECT * FROM copy") == query(lake, "SELECT * FROM rows") == found
    with pytest.raises(InvalidRequest, match=r"writes to branch 'nightly'.*writes to main"):
        run(lake)
    other = lake.branch("other", create=True)
    read_into_nothing(other, f"{place}/noop")
    with pytest.raises(StreamingQueryException, match="of a stream that reads branch 'other'"):
        read_into_nothing(lake, f"{place}/noop")
    assert query(lake, "SELECT * FROM copy") == found


@on_connect
def test_a_query_goes_on_when_its_client_ended(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession
) -> None:
    client: Any = spark.client
    lake.sql("CREATE TABLE copy (id INT, p STRING)")
    checkpoint = str(tmp_path / "checkpoint")
    given = [f"sc://{client._builder.endpoint}", str(tmp_path / "lake"), checkpoint]
    subprocess.run([sys.executable, "-c", LEAVES, *given], check=True)
    lake.sql("INSERT INTO t VALUES (4, 'd')")
    rows = [(1, "a"), (2, "b"), (4, "d")]
    deadline = time.monotonic() + 120
    while query(lake, "SELECT * FROM copy") != rows:
        assert time.monotonic() < deadline, "the query doesn't go on"
        time.sleep(0.5)
    # Who starts it again ends the other run.
    stream = lake.read_stream("t")
    lake.write_stream(stream, "copy", checkpoint=checkpoint, trigger=NOW).awaitTermination()
    assert query(lake, "SELECT * FROM copy") == rows
