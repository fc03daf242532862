"""Delta Spark and txlake in one Spark session: each executes steps and reads tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import txlake
from tests.differential.steps import (
    ApiDelete,
    ApiMerge,
    ApiUpdate,
    Clause,
    FrameWrite,
    Step,
    fill_placeholders,
)
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_QUERIES = ("select",)


class Engine(Protocol):
    """An engine as the machine uses it."""

    name: str

    def frame(self, text: str) -> DataFrame:
        """Execute a SQL statement."""

    def call(self, step: Step, text: str, folder: str) -> None:
        """Make a step's call; `text` is its query without placeholders."""

    def changes(self, folder: str, first: int, last: int) -> DataFrame:
        """Return the change data feed of these versions of a table."""

    def clear_caches(self) -> None:
        """Forget the tables of a finished program."""


def start(scratch: Path, jars: list[str]) -> SparkSession:
    """Return a Spark session in which both engines work."""
    from tests.shared_tables.worker import spark

    session = spark(
        str(scratch),
        {
            "spark.jars": ",".join(jars),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": _CATALOG,
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.shuffle.partitions": "1",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def run(
    engine: Engine, spark: SparkSession, step: Step, places: Mapping[str, str], versions: Any
) -> list[Any]:
    """Execute a step; return a query's rows. Raises what the engine raises."""
    text = fill_placeholders(step.text, places, versions)
    with _set(spark, step.settings):
        if step.call is not None:
            engine.call(step, text, places["t"])
            return []
        rows = engine.frame(text).collect()
    return rows if step.kind in _QUERIES else []


@contextmanager
def _set(spark: SparkSession, settings: tuple[tuple[str, str], ...]) -> Iterator[None]:
    for key, value in settings:
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, _ in settings:
            spark.conf.unset(key)


class DeltaSpark:
    """Delta Spark; its DeltaTable is called in the JVM, as its Python package does."""

    name = "delta"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm = spark._jvm
        assert jvm is not None
        self._tables = jvm.io.delta.tables.DeltaTable
        self._map = jvm.java.util.LinkedHashMap
        self._logs = jvm.org.apache.spark.sql.delta.DeltaLog

    def frame(self, text: str) -> DataFrame:
        return self._spark.sql(text)

    def call(self, step: Step, text: str, folder: str) -> None:
        call = step.call
        if isinstance(call, FrameWrite):
            self._write(call, self.frame(text), folder)
            return
        table = self._tables.forPath(self._spark._jsparkSession, folder)
        match call:
            case ApiDelete(condition):
                table.delete(*_arguments(condition))
            case ApiUpdate(condition, values):
                table.updateExpr(*_arguments(condition), self._pairs(values))
            case ApiMerge(condition, clauses, is_evolved):
                builder = table.alias("t").merge(self.frame(text).alias("s")._jdf, condition)
                if is_evolved:
                    builder = builder.withSchemaEvolution()
                for clause in clauses:
                    builder = self._clause(builder, clause)
                builder.execute()

    def changes(self, folder: str, first: int, last: int) -> DataFrame:
        options = {"readChangeFeed": True, "startingVersion": first, "endingVersion": last}
        return self._spark.read.format("delta").options(**options).load(folder)

    def clear_caches(self) -> None:
        # Hundreds of snapshots with their plans would fill the driver's memory.
        self._logs.clearCache()

    def _clause(self, builder: Any, clause: Clause) -> Any:
        one = getattr(builder, f"when{clause.when}")(*_arguments(clause.condition))
        if clause.action == "delete":
            return one.delete()
        if clause.values is None:
            return getattr(one, f"{clause.action}All")()
        return getattr(one, f"{clause.action}Expr")(self._pairs(clause.values))

    def _pairs(self, values: tuple[tuple[str, str], ...]) -> Any:
        pairs = self._map()
        for key, value in values:
            pairs.put(key, value)
        return pairs

    def _write(self, write: FrameWrite, rows: DataFrame, folder: str) -> None:
        writer = rows.write.format("delta").mode(write.mode)
        if write.partition_by is not None:
            writer = writer.partitionBy(*write.partition_by)
        if write.replace_where is not None:
            writer = writer.option("replaceWhere", write.replace_where)
        if write.replace_using is not None:
            writer = writer.option("replaceUsing", ", ".join(write.replace_using))
        if write.is_schema_merged:
            writer = writer.option("mergeSchema", "true")
        if write.is_schema_replaced:
            writer = writer.option("overwriteSchema", "true")
        if write.is_dynamic:
            writer = writer.option("partitionOverwriteMode", "dynamic")
        writer.save(folder)


class Txlake:
    """txlake, on path tables."""

    name = "txlake"

    def __init__(self, spark: SparkSession, warehouse: Path) -> None:
        settings = Settings(
            allow_outside_paths=("*",)
        )  # for shallow clones of Delta Spark's tables
        self._lake = txlake.connect(str(warehouse), spark=spark, settings=settings)

    def frame(self, text: str) -> DataFrame:
        return self._lake.sql(text)

    def call(self, step: Step, text: str, folder: str) -> None:
        call = step.call
        match call:
            case FrameWrite(replace_using=(_, *_) as columns):
                self.frame(
                    f"INSERT INTO delta.`{folder}` REPLACE USING ({_column_list(columns)}) {text}"
                )
            case FrameWrite():
                self._lake.write(
                    self.frame(text),
                    folder,
                    call.mode,
                    partition_by=call.partition_by,
                    replace_where=call.replace_where,
                    overwrite_schema=call.is_schema_replaced,
                    merge_schema=call.is_schema_merged,
                    partition_overwrite="dynamic" if call.is_dynamic else "static",
                )
            case ApiDelete(condition):
                self._lake.table(folder).delete(condition)
            case ApiUpdate(condition, values):
                self._lake.table(folder).update(condition, dict(values))
            case ApiMerge(condition, clauses, is_evolved):
                source = self.frame(text).alias("s")
                builder = self._lake.table(folder).alias("t").merge(source, condition)
                if is_evolved:
                    builder = builder.withSchemaEvolution()
                for clause in clauses:
                    builder = _clause(builder, clause)
                builder.execute()

    def changes(self, folder: str, first: int, last: int) -> DataFrame:
        return self._lake.changes(folder, first, last)

    def clear_caches(self) -> None:
        """Do nothing: the caches are bounded."""


def _clause(builder: Any, clause: Clause) -> Any:
    method = f"when{clause.when}{clause.action.title()}"
    if clause.action == "delete":
        return getattr(builder, method)(clause.condition)
    if clause.values is None:
        return getattr(builder, f"{method}All")(clause.condition)
    return getattr(builder, method)(clause.condition, dict(clause.values))


def _column_list(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _arguments(condition: str | None) -> tuple[str, ...]:
    return () if condition is None else (condition,)
