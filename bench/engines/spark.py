"""The engines on Spark: raw, Delta Spark and txlake, with the same settings but Delta's own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import txlake
from bench.engines.base import FEW, Engine, Row
from bench.engines.jars import JARS
from bench.sources.rows import Total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOTAL = "SELECT count(*), sum(k), sum(v) FROM {table}"
_UPDATE = "UPDATE {table} SET v = v + 1 WHERE {where}"
_DELETE = "DELETE FROM {table} WHERE {where}"
_MERGE = (
    "MERGE INTO {table} t USING changes c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET v = t.v + c.v "
    "WHEN NOT MATCHED THEN INSERT (id, k, v, s) VALUES (c.id, 0, c.v, '')"
)
_MERGE_CASE = "MERGE INTO {table} t USING changes c ON t.id = c.id AND t.k = c.k {clauses}"
_CLAUSES = {
    "insert": "WHEN NOT MATCHED THEN INSERT *",
    "insert by two clauses": (
        "WHEN NOT MATCHED AND c.k % 2 = 0 THEN INSERT * WHEN NOT MATCHED THEN INSERT *"
    ),
    "delete": "WHEN MATCHED THEN DELETE",
    "upsert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
}
_ROW = "SELECT id, k, v, s FROM {table} WHERE id = {row}"
_DELETE_KEYS = (
    "MERGE INTO {table} t USING changes c ON t.{column} = c.orderkey WHEN MATCHED THEN DELETE"
)
_INSERT = "INSERT INTO {table} VALUES {rows}"


class SparkEngine(Engine):
    """What the three have in common: SQL on Delta tables by their folders."""

    def __init__(self, scratch: Path) -> None:
        self.spark = spark_session(scratch, self.settings())

    def settings(self) -> dict[str, str]:
        """Those that this engine needs besides the common ones."""
        return {}

    def sql(self, text: str) -> DataFrame:
        """Run a statement."""
        return self.spark.sql(text)

    def named(self, table: Path) -> str:
        """The table in SQL."""
        return f"delta.`{table}`"

    def total(self, table: Path) -> Total:
        (row,) = self.sql(_TOTAL.format(table=self.named(table))).collect()
        return Total(*row)

    def row(self, table: Path, row: int) -> list[Row]:
        return self.query(_ROW.format(table=self.named(table), row=row))

    def query(self, text: str) -> list[Row]:
        return [tuple(row) for row in self.sql(text).collect()]

    def update(self, table: Path, where: str) -> None:
        self.sql(_UPDATE.format(table=self.named(table), where=where))

    def delete(self, table: Path, where: str) -> None:
        self.sql(_DELETE.format(table=self.named(table), where=where))

    def merge(self, table: Path, changes: Path) -> None:
        self.spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        self.sql(_MERGE.format(table=self.named(table)))

    def merge_case(self, table: Path, changes: Path, kind: str) -> None:
        self.spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        self.sql(_MERGE_CASE.format(table=self.named(table), clauses=_CLAUSES[kind]))

    def delete_keys(self, table: Path, column: str, keys: Path) -> None:
        self.spark.read.parquet(str(keys)).createOrReplaceTempView("changes")
        self.sql(_DELETE_KEYS.format(table=self.named(table), column=column))

    def insert(self, table: Path, first: int) -> None:
        rows = ", ".join(f"({first + number}, 1, 0.5D, 'few')" for number in range(FEW))
        self.sql(_INSERT.format(table=self.named(table), rows=rows))

    def compact(self, table: Path) -> None:
        self.sql(f"OPTIMIZE {self.named(table)}")

    def read(self, files: Sequence[Path]) -> DataFrame:
        """The rows of Parquet files."""
        return self.spark.read.parquet(*map(str, files))


class RawSpark(SparkEngine):
    """Spark on Parquet files, which is what has no transactions and can't change a row."""

    def named(self, table: Path) -> str:
        return f"parquet.`{table}`"

    def append(self, table: Path, files: Sequence[Path]) -> None:
        self.read(files).write.mode("append").parquet(str(table))

    def attach(self, tables: Mapping[str, Path]) -> None:
        for name, table in tables.items():
            self.spark.read.parquet(str(table)).createOrReplaceTempView(name)


class DeltaSpark(SparkEngine):
    """Delta Spark, with deletion vectors and otherwise its defaults."""

    def settings(self) -> dict[str, str]:
        """Raise SystemExit when its jars aren't there."""
        jars = sorted(str(path) for path in JARS.glob("delta-*.jar"))
        if not jars:
            raise SystemExit(f"Delta Spark's jars aren't in {JARS}: run tools/delta_jars.sh")
        return {
            "spark.jars": ",".join(jars),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        }

    def is_conflict(self, error: Exception) -> bool:
        return "[DELTA_CONCURRENT_" in str(error)

    def append(self, table: Path, files: Sequence[Path]) -> None:
        self.read(files).write.format("delta").mode("append").save(str(table))

    def attach(self, tables: Mapping[str, Path]) -> None:
        for name, table in tables.items():
            self.sql(f"DROP TABLE IF EXISTS {name}")
            self.sql(f"CREATE TABLE {name} USING DELTA LOCATION '{table}'")


class Txlake(SparkEngine):
    """txlake, on path tables."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.lake: txlake.LakeSession = txlake.connect(str(scratch / "lake"), spark=self.spark)

    @contextmanager
    def as_one(self) -> Iterator[None]:
        self.sql("BEGIN")
        try:
            yield
        except BaseException:
            self.sql("ROLLBACK")
            raise
        self.sql("COMMIT")

    def beside(self) -> Txlake:
        other = copy(self)
        other.lake = self.lake.session()
        return other

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, txlake.errors.Conflict)

    def sql(self, text: str) -> DataFrame:
        return self.lake.sql(text)

    def append(self, table: Path, files: Sequence[Path]) -> None:
        self.lake.write(self.read(files), str(table), mode="append")

    def attach(self, tables: Mapping[str, Path]) -> None:
        for name, table in tables.items():
            self.sql(f"DROP TABLE IF EXISTS {name}")
            self.sql(f"CREATE TABLE {name} USING DELTA LOCATION '{table}'")

    def maintain(self) -> None:
        assert isinstance(self.lake, txlake.Lake)
        self.lake.maintain()


def spark_session(scratch: Path, settings: Mapping[str, str]) -> SparkSession:
    """Return a new local session with the bench's settings and these."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    # Imported here, so that engines without Spark don't wait for it.
    from pyspark.sql import SparkSession

    common = {
        "spark.app.name": "txlake-bench",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.local.dir": str(scratch / "spark"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[*]").config(map={**common, **settings}).getOrCreate()
