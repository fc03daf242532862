"""Rows become data files: by Spark's tasks, or by the driver for what it already holds.

Owns the way from rows in the table's logical columns to finished `add` actions. Which rows, and
whether they fit the table, is decided before (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.datafiles import write_task
from txlake.datafiles.partition_texts import invalid_text_message
from txlake.datafiles.sort_task import SortTask
from txlake.local.types import quote
from txlake.local.writing import TaskColumns, WriteResult, WriteTarget, result_of, run_in_driver
from txlake.log.snapshot import Snapshot
from txlake.protocol.types import Field, Primitive, Struct, has_variant
from txlake.spark.memory_tables import check_reachable
from txlake.spark.shipping import travelling
from txlake.spark.spark_sessions import dataset_in, is_connect, session_with
from txlake.spark.types import all_nullable

_OPTIMIZE_WRITE = "spark.databricks.delta.optimizeWrite.enabled"
_BIN_SIZE = "spark.databricks.delta.optimizeWrite.binSize"


def write_frame(
    frame: DataFrame,
    target: WriteTarget,
    *,
    images: bool = True,
    keep_order: bool = False,
    tell_pieces: bool = False,
    few_rows_max: int = 0,
    held: bool = False,
    is_balanced: bool = False,
    few_rows: Callable[[pa.Table], pa.Table] | None = None,
) -> WriteResult:
    """Write the rows by one Spark job, or here where they are few; the caller commits the result.

    With `tell_pieces` the rows, which come sorted, tell where they come from; row groups keep their
    order, and within a row group rows stand as they stood before.

    Without `images` only the control columns are read, and nothing is written.

    With `few_rows_max` one task, which needs no Python worker, first finds that many rows for this
    process to write; where it finds more, they are dropped and the tasks write all rows. Before
    this process writes them, `few_rows` may replace their columns. With `held` this process writes
    them all: they are few that it gave to Spark itself.

    With `is_balanced` the tasks that write get about as many bytes each, and all rows of a
    partition that aren't too many, if the table is to have that (`is_write_optimized`).

    With `keep_order` the rows of a partitioned table aren't sorted by partition here: they come
    sorted.

    `frame` has the table's columns by logical name, of the types that `rows` gave them, and any of
    the control columns ACTION, FILE, ROW, SOURCE_ROW, VIOLATION, VIOLATION_ROW, ROW_ID,
    ROW_VERSION.

    Raises InvalidRequest with the row when one violates a constraint; nothing stays written.
    """
    check_reachable(frame.sparkSession, target.store)
    given = TaskColumns.of(target.snapshot, frame.columns, images=images)
    columns: list[Column | str] = [quote(item.name) for item in given.data]
    columns += given.tracked
    columns += [partition_text(F.col(quote(item.name)), item) for item in given.partitions]
    columns += given.controls.values()
    selected = frame.select(*columns).toDF(*(f"__c{place}" for place in range(len(columns))))
    task = given.task(target)
    # PySpark gives a process no NULL variants.
    here = not has_variant(Struct(given.data))
    if held and here:
        return result_of(target, run_in_driver(task, _collected(selected)))
    if few_rows_max and here:
        found = _collected(selected.coalesce(1).limit(few_rows_max + 1))
        if found.num_rows <= few_rows_max:
            if few_rows is not None:
                found = _with_values(found, [item.name for item in given.data], few_rows)
            return result_of(target, run_in_driver(task, found))
    keys = [f"__c{index}" for index in task.layout.partition]
    if is_balanced and is_write_optimized(frame.sparkSession, target.snapshot):
        selected = rebalanced(selected, keys)
    if given.partitions and not keep_order:
        selected = selected.sortWithinPartitions(*keys)
    run = travelling(frame.sparkSession, SortTask(task) if tell_pieces else task)
    reports = selected.mapInArrow(run, write_task.REPORT_SCHEMA).collect()
    return result_of(target, (row.asDict() for row in reports))


def is_write_optimized(spark: SparkSession, snapshot: Snapshot) -> bool:
    """Return whether writes into the table make few and large files (optimized write).

    The session's setting comes before the table's properties `delta.autoOptimize.optimizeWrite` and
    `delta.autoOptimize`. Source: Delta Lake's documentation, "Optimized Write".
    """
    properties = snapshot.properties
    chosen = properties.optimize_write or properties.auto_optimize
    setting = spark.conf.get(_OPTIMIZE_WRITE, None)
    return chosen if setting is None else setting.lower() == "true"


def rebalanced(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows shuffled to tasks of about the same size (`rebalancing_settings`).

    Rows with equal keys come to one task; several share the rows of one key that has more.
    """
    spark = frame.sparkSession
    if not is_connect(spark):
        session = session_with(spark, rebalancing_settings(spark))
        frame = type(frame)(dataset_in(frame, session), spark)
    return frame.hint("rebalance", *map(F.col, keys))


def rebalancing_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the settings by which Spark sizes the tasks of `rebalanced`.

    A task gets `spark.databricks.delta.optimizeWrite.binSize` bytes of shuffled rows, by default
    512 MiB, also where that leaves cores idle. On Spark Connect, which has no settings for a single
    query, the session's own hold.
    """
    size = spark.conf.get(_BIN_SIZE, None) or "512"
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{size}m" if size.isdigit() else size,
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


def _collected(frame: DataFrame) -> pa.Table:
    """Return the frame's rows; fields that must not be null may be where their struct is.

    PySpark's own `toArrow` fails on such a struct.
    """
    columns = []
    for item in frame.schema:
        nullable = all_nullable(item.dataType)
        column = F.col(item.name)
        columns.append(column if nullable == item.dataType else column.cast(nullable))
    return frame.select(*columns).toArrow()


def _with_values(
    held: pa.Table, names: Sequence[str], change: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """Return the rows after `change` of their first columns, which have the `names` for it.

    Column names are the same afterwards.
    """
    rest = held.column_names[len(names) :]
    return change(held.rename_columns([*names, *rest])).rename_columns(held.column_names)


def partition_value(value: Column, item: Field) -> Column:
    """Return a partition value as the table has it, once it was a text.

    Empty texts and bytes become null, and -0.0 becomes 0.0. Values of other types are returned as
    the same object. What judges or computes by a partition column has to see this;
    `datafiles.partition_texts.partition_values` is Arrow's way.
    """
    if not isinstance(item.type, Primitive):
        return value
    if item.type.name in {"float", "double"}:
        return value + F.lit(0).cast(item.type.name)
    if item.type.is_string or item.type.name == "binary":
        return F.when(F.octet_length(value) > 0, value)
    return value


def partition_text(value: Column, item: Field) -> Column:
    """Return a partition value as text, as the log has it; the empty string is null, zero unsigned.

    Timestamps are in UTC with six digits. Bytes that are no text in UTF-8 fail the job. Source:
    PROTOCOL.md, "Partition Value Serialization".
    """
    name = item.type.name if isinstance(item.type, Primitive) else ""
    if name == "timestamp":
        # Not by a wall time of the session's zone, which has no text for some and one for two.
        micros = F.unix_micros(value)
        clock, _ = _clock(_wall_time(micros))
        fraction = F.lpad(F.pmod(micros, F.lit(1_000_000)).cast("string"), 6, "0")
        return F.concat(F.replace(clock, F.lit(" "), F.lit("T")), F.lit("."), fraction, F.lit("Z"))
    if name == "timestamp_ntz":
        clock, fraction = _clock(value)
        digits = F.when(fraction == "", "").otherwise(
            F.concat(F.lit("."), F.rpad(fraction, 6, "0"))
        )
        return F.concat(clock, digits)
    if name in {"float", "double"}:
        value = value + F.lit(0).cast(name)
    text = F.nullif(value.cast("string"), F.lit(""))
    if name != "binary" and not (isinstance(item.type, Primitive) and item.type.is_string):
        return text
    refused = F.raise_error(F.concat(F.lit(invalid_text_message(item)), F.hex(value)))
    return F.when(F.is_valid_utf8(text), text).when(text.isNotNull(), refused)


def _wall_time(micros: Column) -> Column:
    """Return microseconds since 1970-01-01 as a TIMESTAMP_NTZ."""
    seconds = (micros.cast("decimal(20,0)") / F.lit(1_000_000)).cast("decimal(18,6)")
    interval = F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), seconds)
    return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + interval


def _clock(wall: Column) -> tuple[Column, Column]:
    """Return a TIMESTAMP_NTZ's text up to the second, and the digits after it ('' for none)."""
    text = wall.cast("string")
    digits = F.when(F.contains(text, F.lit(".")), F.substring_index(text, ".", -1)).otherwise("")
    return F.substring_index(text, ".", 1), digits
