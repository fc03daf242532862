"""The process that is killed: three queries at once over the tables of a place.

`python -m tests.lake.streaming.worker PLACE [sc://...] [once]`: a path table into a path table, a
table of the lake into another, and that one into two tables in one transaction a micro-batch; with
a URL on that Spark Connect server. With `once` the queries run one after another, and end when they
have read what is there; otherwise they go on until the process is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import txlake
from tests.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATH, PATH_SINK = "path_source", "path_sink"
NAME, NAME_SINK = "events", "copies"
ROWS, COUNTS = "of_batches.rows", "of_batches.counts"
FILES = 5


def work(tx: txlake.Transaction, batch: DataFrame) -> None:
    """A micro-batch into two tables."""
    from pyspark.sql import functions as F

    tx.write(batch, ROWS, "append")
    tx.write(batch.agg(F.count("*").alias("n")), COUNTS, "append")


def started(lake: txlake.Lake, place: Path, trigger: Mapping[str, Any]) -> Iterator[StreamingQuery]:
    """The queries, each started when it is asked for."""
    for source, sink in ((str(place / PATH), str(place / PATH_SINK)), (NAME, NAME_SINK)):
        frame = lake.read_stream(source, max_files_per_trigger=FILES)
        folder = str(place / "checkpoints" / Path(sink).name)
        yield lake.write_stream(frame, sink, checkpoint=folder, trigger=trigger)
    frame = lake.read_stream(NAME, max_files_per_trigger=FILES)
    folder = str(place / "checkpoints" / "work")
    yield lake.foreach_batch(frame, work, checkpoint=folder, trigger=trigger)


def client(url: str) -> SparkSession:
    """A session of a Spark Connect server."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(url).getOrCreate()


def main(place: Path, url: str | None, *, once: bool) -> None:
    """Run the queries until they end."""
    spark = spark_session() if url is None else client(url)
    with txlake.connect(str(place / "lake"), spark=spark) as lake:
        if once:
            for query in started(lake, place, {"availableNow": True}):
                query.awaitTermination()
            return
        queries = list(started(lake, place, {"processingTime": "0 seconds"}))
        sys.stdout.write("started\n")
        sys.stdout.flush()
        for query in queries:
            query.awaitTermination()


if __name__ == "__main__":
    given = sys.argv[2:]
    urls = [one for one in given if one.startswith("sc://")]
    main(Path(sys.argv[1]), urls[0] if urls else None, once="once" in given)
