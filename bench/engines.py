"""The engines, each made to do the same three things to a table of its own.

An engine is measured in a process of its own, which `python -m bench.engines` is: it warms up on a
small table, then times each step on the large one and prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import txlake
from bench.data import STORES, Source, make_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPEATS = 3
SCAN = (
    "SELECT store, count(*) AS sales, sum(amount_cents) AS amount_cents FROM {table} GROUP BY store"
)


class Engine(ABC):
    """One engine with one table, which `append` makes when it isn't there."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / "table"

    @abstractmethod
    def append(self, source: Source) -> None:
        """Appends the source's rows."""

    @abstractmethod
    def scan(self) -> tuple[int, int]:
        """Groups all rows by store; gives the number of rows and the sum of `amount_cents`."""

    @abstractmethod
    def update(self, row: int) -> None:
        """Adds one to `amount_cents` of the row with this id."""


class Txlake(Engine):
    """txlake, on a path table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.spark = _spark()
        self.lake = txlake.connect(str(folder / "warehouse"), spark=self.spark)

    def append(self, source: Source) -> None:
        """By the session's own writer."""
        rows = self.spark.read.parquet(str(source.folder))
        self.lake.write(rows, str(self.table), mode="append")

    def scan(self) -> tuple[int, int]:
        """By SQL."""
        return _total(self.lake.sql(SCAN.format(table=f"delta.`{self.table}`")))

    def update(self, row: int) -> None:
        """By SQL, with a deletion vector."""
        change = "SET amount_cents = amount_cents + 1"
        self.lake.sql(f"UPDATE delta.`{self.table}` {change} WHERE id = {row}").collect()


class RawSpark(Engine):
    """Spark on a folder of Parquet files, which is what has no transactions at all.

    It can't change a row in place: its update writes all rows to a new folder and reads that one.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.spark = _spark()
        self.rewrites = 0

    def append(self, source: Source) -> None:
        """By Spark's own writer."""
        self.spark.read.parquet(str(source.folder)).write.mode("append").parquet(str(self.table))

    def scan(self) -> tuple[int, int]:
        """By SQL."""
        return _total(self.spark.sql(SCAN.format(table=f"parquet.`{self.table}`")))

    def update(self, row: int) -> None:
        """A rewrite of everything."""
        self.rewrites += 1
        anew = self.table.with_name(f"table-{self.rewrites}")
        changed = f"CASE WHEN id = {row} THEN amount_cents + 1 ELSE amount_cents END"
        rows = self.spark.read.parquet(str(self.table))
        rows.selectExpr("id", "store", "item", f"{changed} AS amount_cents", "note").write.parquet(
            str(anew)
        )
        self.table = anew


class DeltaRs(Engine):
    """delta-rs, without Spark."""

    def append(self, source: Source) -> None:
        """Streams the source's record batches."""
        batches = ds.dataset(source.files).scanner().to_reader()
        write_deltalake(str(self.table), batches, mode="append")

    def scan(self) -> tuple[int, int]:
        """By SQL, in DataFusion."""
        query = QueryBuilder().register("t", DeltaTable(str(self.table)))
        groups = pa.table(query.execute(SCAN.format(table="t")).read_all())
        return sum(groups["sales"].to_pylist()), sum(groups["amount_cents"].to_pylist())

    def update(self, row: int) -> None:
        """With copy-on-write, the way that it has."""
        DeltaTable(str(self.table)).update(
            updates={"amount_cents": "amount_cents + 1"}, predicate=f"id = {row}"
        )


ENGINES: dict[str, type[Engine]] = {"txlake": Txlake, "spark": RawSpark, "delta-rs": DeltaRs}


def measure(engine: Engine, source: Source) -> dict[str, float]:
    """Seconds by step: `append` once, the medians of three of `scan` and `update`.

    Raises:
        AssertionError: an engine came to another answer than the source's.
    """
    seconds = {"append": _timed(lambda: engine.append(source))}

    def scan() -> None:
        answer = engine.scan()
        assert answer == (source.rows, expected), f"{engine.table}: {answer}"

    expected = source.amount_cents
    seconds["scan"] = statistics.median(_timed(scan) for _ in range(REPEATS))
    rows = [source.rows * part // (REPEATS + 1) for part in range(1, REPEATS + 1)]
    seconds["update"] = statistics.median(_timed(partial(engine.update, row)) for row in rows)
    expected += REPEATS
    seconds["scan after updates"] = statistics.median(_timed(scan) for _ in range(REPEATS))
    return seconds


def _timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _total(groups: DataFrame) -> tuple[int, int]:
    rows = groups.collect()
    assert len(rows) <= STORES
    return sum(row["sales"] for row in rows), sum(row["amount_cents"] for row in rows)


def _spark() -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[*]")
        .appName("txlake-bench")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def main(name: str, scratch: Path, source: Source) -> None:
    """Measures the engine below `scratch`, an empty folder, and prints the seconds."""
    small = make_source(scratch / "small", 2_000)
    measure(ENGINES[name](scratch / "warm-up"), small)
    print(json.dumps(measure(ENGINES[name](scratch / "run"), source)), flush=True)


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        Source(Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])),
    )
