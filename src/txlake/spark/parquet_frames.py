"""Frames that are columns of a few small Parquet files, read by the driver without a Spark job.

Owns when pyarrow reads exactly the rows that Spark would: the frame's plan is Spark's own scan of
local files, without partitions, filters or expressions, and each file has all of the columns in
their types.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from txlake.datafiles.parquet import has_old_time, iter_rows, open_parquet
from txlake.local.file_rows import UNREADABLE, exact_columns
from txlake.local.types import is_plain, parquet_field
from txlake.protocol.types import Primitive, Struct
from txlake.spark.spark_sessions import is_connect
from txlake.spark.types import delta_schema
from txlake.storage import local_path

# Spark reads a file up to this size in one task.
_BYTES_MAX = 4 * 1024 * 1024
# Spark's text of a scan, perhaps of some of its columns. A catalog's table has its name before the
# bracket.
_COLUMN = r"[^,\[\]#]+#\d+L?"
_SCAN = re.compile(rf"(Project \[{_COLUMN}(, {_COLUMN})*\]\n\+- )?Relation \[[^\n]*\] parquet\n?")
_READER = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_LISTING = "org.apache.spark.sql.execution.datasources.InMemoryFileIndex"


def parquet_rows(frame: DataFrame, rows_max: int, files_max: int = 1) -> pa.Table | None:
    """Return the rows of a frame that is a scan of Parquet files, file by file.

    None if Spark has to read them: for any other frame, on Spark Connect, for more rows or files
    than the limits or more than 4 MiB, and where pyarrow might read other values, or fails.
    """
    if is_connect(frame.sparkSession):
        return None
    schema = delta_schema(frame.schema)
    if not all(isinstance(item.type, Primitive) and is_plain(item.type) for item in schema):
        return None
    if not schema.fields or any(item.metadata for item in schema):  # ids, defaults, lengths
        return None
    paths = _paths(frame, files_max)
    try:
        return None if paths is None else _read(paths, schema, rows_max)
    except UNREADABLE:  # Spark says what is wrong with the file
        return None


def _paths(frame: DataFrame, files_max: int) -> list[str] | None:
    """Return the local files of which the frame is a scan; None for any other frame, and for more
    or larger files.
    """
    if not (frame.sparkSession.conf.get("spark.master", "") or "").startswith("local"):
        return None
    java: Any = frame
    plan = java._jdf.queryExecution().optimizedPlan()
    if _SCAN.fullmatch(str(plan)) is None:
        return None
    relation = plan.collectLeaves().head().relation()
    kinds = [part.getClass().getName() for part in (relation.fileFormat(), relation.location())]
    if kinds != [_READER, _LISTING] or not relation.partitionSchema().isEmpty():
        return None
    urls = relation.inputFiles()
    if not 0 < len(urls) <= files_max:
        return None
    paths = [path for path in map(local_path, urls) if path is not None]
    if len(paths) < len(urls) or sum(map(_size, paths)) > _BYTES_MAX:
        return None
    return paths


def _size(path: str) -> int:
    """Return a file's size in bytes; more than `_BYTES_MAX` for one that isn't there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return _BYTES_MAX + 1


def _read(paths: Sequence[str], schema: Struct, rows_max: int) -> pa.Table | None:
    """Return the files' columns of these names; None if they have more rows than `rows_max`.

    Raises one of UNREADABLE, ValueError where Spark might read other values.
    """
    batches: list[pa.RecordBatch] = []
    count = 0
    for path in paths:
        with pa.OSFile(path, "rb") as source:
            file = open_parquet(source)
            count += file.metadata.num_rows
            if count > rows_max:
                return None
            columns = exact_columns(file, list(schema), by_id=False)
            for name, item in zip(columns.sources, columns.schema, strict=True):
                if name is None or not _is_same(file.schema_arrow.field(name).type, item.type):
                    raise ValueError(f"column {item.name!r} isn't in the file, or of another type")
            batches += iter_rows(file, columns)
    if any(has_old_time(column) for batch in batches for column in batch.columns):
        raise ValueError("how Spark reads old times depends on its settings")
    return pa.Table.from_batches(batches, pa.schema(map(parquet_field, schema)))


def _is_same(file_type: pa.DataType, data_type: pa.DataType) -> bool:
    """Return whether a file's type is the column's; text and bytes may have another form in
    Arrow.
    """
    is_bytes = pa.types.is_string(data_type) or pa.types.is_binary(data_type)
    return is_bytes or bool(file_type.equals(data_type))
