"""Statements by Spark with Hadoop's client for S3, or without: Delta Spark's, and txlake's sums.

The variants are `delta-s3a`, `txlake-s3a` and `txlake`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import txlake
from bench.engines.jars import JARS
from bench.engines.spark import spark_session
from bench.far.engines import tables
from bench.far.engines.lake import MERGE
from bench.far.measuring import Meter, Task
from bench.stage import WrongAnswer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

S3A_JARS = JARS.with_name("s3a-jars")
"""Where `tools/s3a_jars.sh` puts hadoop-aws and its SDK."""


def measure(meter: Meter) -> None:
    """Measure the variant's statements."""
    variant = meter.task.variant
    spark = spark_session(Path(meter.task.scratch), _settings(meter.task))
    if variant == "delta-s3a":
        _DeltaSpark(meter, spark).measure()
        return
    key = "sum_plain" if variant == "txlake" else "sum_client"
    options = meter.task.storage_options
    with txlake.connect(meter.task.url, spark=spark, storage_options=options) as lake:
        _measure_sum(meter, key, lambda query: lake.sql(query).collect(), "s3")


def _settings(task: Task) -> dict[str, str]:
    """Return the settings of a variant's session. Raises FileNotFoundError without its jars."""
    settings: dict[str, str] = {}
    jars: list[Path] = []
    if task.variant.endswith("s3a"):
        jars += _jars(S3A_JARS, "tools/s3a_jars.sh")
        options = task.storage_options
        settings |= {
            "spark.hadoop.fs.s3a.endpoint": options["aws_endpoint_url"],
            "spark.hadoop.fs.s3a.endpoint.region": options["aws_region"],
            "spark.hadoop.fs.s3a.access.key": options["aws_access_key_id"],
            "spark.hadoop.fs.s3a.secret.key": options["aws_secret_access_key"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
    if task.variant.startswith("delta"):
        jars += _jars(JARS, "tools/delta_jars.sh")
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        }
    return settings | ({"spark.jars": ",".join(map(str, jars))} if jars else {})


def _jars(folder: Path, script: str) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise FileNotFoundError(f"no jars in {folder}: {script} brings them")
    return jars


def _measure_sum(meter: Meter, key: str, collect: Callable[[str], list[Row]], scheme: str) -> None:
    """Measure the sum of a column of a path table, which `collect` gives the rows of."""
    url = f"{meter.task.url}-{key}"
    table = f"delta.`{scheme}{url.removeprefix('s3')}`"
    expected = tables.sum_rows(meter.task).total().v

    def work(number: int) -> None:
        [[total]] = collect(f"SELECT sum(v) FROM {table}")
        if total != expected:
            raise WrongAnswer(f"sum(v): expected {expected}, found {total}")

    meter.run(
        key,
        work,
        prepare=lambda: tables.upload(tables.sum_rows(meter.task), url, meter.task.storage_options),
    )


class _DeltaSpark:
    """Delta Spark on path tables of the same rows."""

    def __init__(self, meter: Meter, spark: SparkSession) -> None:
        self._meter, self._spark = meter, spark
        self._url = "s3a" + meter.task.url.removeprefix("s3")
        self._numbers = itertools.count(10**6)

    def measure(self) -> None:
        """Measure the statements that Delta Spark has."""
        table, sql, run = f"delta.`{self._url}`", self._spark.sql, self._meter.run
        if self._meter.wants("insert", "update", "delete", "select", "select_after"):
            with self._meter.undelayed():
                self._write(self._url, self._meter.task.sizes["rows"])
        run("insert", lambda n: self._insert(self._url))
        run("update", lambda n: sql(f"UPDATE {table} SET value = {n} WHERE id = {100 + n}"))
        run("delete", lambda n: sql(f"DELETE FROM {table} WHERE id = {200 + n}"))
        run("select", lambda n: sql(f"SELECT * FROM {table} WHERE id = {300 + n}").collect())
        self._merge()
        self._open()
        _measure_sum(self._meter, "sum_client", lambda query: sql(query).collect(), "s3a")

    def _write(self, url: str, count: int) -> None:
        rows = self._spark.createDataFrame(tables.rows(0, count))
        rows.coalesce(1).write.format("delta").save(url)

    def _insert(self, url: str) -> None:
        self._spark.sql(f"INSERT INTO delta.`{url}` VALUES ({next(self._numbers)}, 0)")

    def _merge(self) -> None:
        task = self._meter.task
        url = f"{task.url}-merged"
        merge = MERGE.format(table=f"delta.`s3a{url.removeprefix('s3')}`")
        number = itertools.count()

        def set_changes() -> None:
            source = self._spark.createDataFrame(tables.changes(task, next(number)))
            source.createOrReplaceTempView("changes")

        self._meter.run(
            "merge",
            lambda n: self._spark.sql(merge),
            prepare=lambda: tables.upload(tables.merge_rows(task), url, task.storage_options),
            before=set_changes,
        )

    def _open(self) -> None:
        url = f"{self._url}-history"

        def prepare() -> None:
            tables.write_commits(self._meter.task, f"{self._meter.task.url}-history")

        def forget() -> None:
            assert self._spark._jvm is not None
            self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

        self._meter.run(
            "open",
            lambda n: self._spark.read.format("delta").load(url).schema,
            prepare=prepare,
            before=forget,
        )
