"""Rows become data files by Spark's own Parquet writer, in a folder of their own in the table.

Owns when that is exact, what makes it so, and the way from what Spark left in the folder to
finished `add` actions. Moving rows to Python costs more than Spark's writer: bulk goes this way.

The folder has a new, plain name, so it holds this job's files alone, and what a job that failed
leaves there is an orphan for VACUUM like any other. Spark moves into it just the files of the one
attempt of each task that its commit coordinator let through.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.datafiles.exact_footers import change_footer, needs_change
from txlake.datafiles.files import sync
from txlake.datafiles.footers import read_footer
from txlake.datafiles.write_task import COMPRESSION, INSERT
from txlake.errors import InvalidRequest
from txlake.ports import Store, StoredObject
from txlake.protocol.types import Field, Primitive, Struct, leaf_types
from txlake.spark.spark_sessions import dataset_in, is_connect, session_with
from txlake.spark.types import quote, spark_type
from txlake.spark.writing import (
    VIOLATION,
    VIOLATION_ROW,
    Target,
    Written,
    add_of,
    data_fields,
)
from txlake.storage import local_path

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
# What Spark's writer takes from the session alone: files as this engine's others are, and the
# commit protocol that lists no file of a failed attempt.
_SETTINGS: Mapping[str, str] = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    _TIMESTAMPS: "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
# What it takes with each write. Bounds of long texts are cut, since otherwise they have none
# (`format_bound` cuts them shorter still).
_OPTIONS: Mapping[str, str] = {
    "compression": COMPRESSION,
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "maxRecordsPerFile": "0",
    "parquet.statistics.truncate.length": "256",
    "parquet.summary.metadata.level": "NONE",
}
_MARKER = "_SUCCESS"
_PLAIN = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)
_LOCAL = "file://"
_THREADS = 8


def suits(frame: DataFrame, target: Target) -> bool:
    """Whether `write` writes exactly what `writing.write_frame` would.

    Not in buckets, where a file is moved by copying it; not where Spark's machines may not see the
    files of this one; not into partitions, whose folders must lie in the table's own; not types
    inside of which columns have ids, which Spark's writer can't be told.
    """
    snapshot = target.snapshot
    data = data_fields(snapshot)
    leaves = list(leaf_types(Struct(tuple(data))))
    return (
        (folder := local_path(target.store.url)) is not None
        and folder.isprintable()
        and not snapshot.partition_columns
        and target.rows_max is None
        and len(data) > 0
        and all(is_plain(leaf) for leaf in leaves)
        and not any(item.column_id and not isinstance(item.type, Primitive) for item in data)
        and set(frame.columns) <= {*snapshot.schema.names, VIOLATION, VIOLATION_ROW}
        and _suits_session(frame.sparkSession, Primitive("timestamp") in leaves)
    )


def is_plain(leaf: Primitive) -> bool:
    """Whether Parquet holds the type's values in one way, which Spark and pyarrow share."""
    return leaf.name in _PLAIN or leaf.is_string or leaf.decimal is not None


def _suits_session(spark: SparkSession, with_timestamps: bool) -> bool:
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        return False
    # Spark Connect can't give one write settings of its own.
    return not is_connect(spark) or all(
        spark.conf.get(key) == value
        for key, value in _SETTINGS.items()
        if with_timestamps or key != _TIMESTAMPS
    )


def write(frame: DataFrame, target: Target) -> Written:
    """Runs one Spark job that writes the rows of a frame that `suits`.

    Raises InvalidRequest with the row when one violates a constraint; nothing stays written.
    """
    folder = f"part-{target.system.new_id()}"
    place = f"{local_path(target.store.url)}/{folder}"
    # Made here, so that a place where nothing can be written is refused in the system's words.
    os.makedirs(place)
    try:
        _save(_file_rows(frame, target), f"{_LOCAL}{place}")
        files = _found(target.store, folder)
        files, footers = _durable(target.store, files, place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    now_ms = target.system.now_ms()
    adds = [
        add_of(target, file.path, file.size_bytes, footer, now_ms)
        for file, footer in zip(files, footers, strict=True)
        if footer.num_rows
    ]
    _tidy(target.store, place, {add.path for add in adds})
    if not adds:
        return Written()
    return Written(adds=tuple(adds), actions={INSERT: sum(footer.num_rows for footer in footers)})


def _file_rows(frame: DataFrame, target: Target) -> DataFrame:
    """The rows with the columns of the files; the first one fails at a row that violates a rule."""
    fields = data_fields(target.snapshot)
    as_they_are = frame.columns == [item.name for item in fields] and not any(
        item.physical_name != item.name or item.column_id is not None or column.metadata
        for item, column in zip(fields, frame.schema, strict=True)
    )
    return frame if as_they_are else frame.select(*_columns(frame, fields))


def _columns(frame: DataFrame, fields: Sequence[Field]) -> Iterator[Column]:
    for place, item in enumerate(fields):
        column = F.col(quote(item.name))
        if place == 0 and VIOLATION in frame.columns:
            column = _unless_violated(column, item)
        ids = {} if item.column_id is None else {"parquet.field.id": item.column_id}
        yield column.alias(item.physical_name, metadata=ids)


def _unless_violated(column: Column, item: Field) -> Column:
    message = F.concat(F.col(VIOLATION), F.lit(" is violated by the row "), F.col(VIOLATION_ROW))
    failed = F.raise_error(message).cast(spark_type(item.type))
    return F.when(F.col(VIOLATION).isNull(), column).otherwise(failed)


def _save(frame: DataFrame, url: str) -> None:
    if is_connect(frame.sparkSession):
        frame.write.options(**_OPTIONS).parquet(url, mode="append")
        return
    dataset = dataset_in(frame, session_with(frame.sparkSession, _SETTINGS))
    dataset.write().options(dict(_OPTIONS)).mode("append").parquet(url)


def _found(store: Store, folder: str) -> list[StoredObject]:
    """The job's files. Raises InvalidRequest when Spark wrote on another machine."""
    found = list(store.list(folder))
    if not any(file.path == f"{folder}/{_MARKER}" for file in found):
        raise InvalidRequest(
            f"{store.url}: Spark's files for the table aren't in this machine's folder; "
            "use a folder or a bucket that both reach"
        )
    parts = ((file, file.path.removeprefix(f"{folder}/").split("/")) for file in found)
    return [file for file, names in parts if not any(name.startswith(("_", ".")) for name in names)]


def _tidy(store: Store, place: str, kept: Collection[str]) -> None:
    """Removes what Spark leaves beside the files kept: marker, checksums, a file without rows."""
    if not kept:
        shutil.rmtree(place, ignore_errors=True)
        return
    found = store.list(os.path.basename(place))
    store.delete([file.path for file in found if file.path not in kept])


def _durable(
    store: Store, files: list[StoredObject], place: str
) -> tuple[list[StoredObject], list[pq.FileMetaData]]:
    """The files, and their footers as they should be, once the files would outlive a power cut."""

    def finished(file: StoredObject) -> tuple[StoredObject, pq.FileMetaData]:
        path = os.path.join(os.path.dirname(place), file.path)
        footer = read_footer(partial(store.get_range, file.path), file.size_bytes)
        if needs_change(footer):
            with open(path, "r+b") as written:
                footer, size = change_footer(written)
            file = replace(file, size_bytes=size)
        sync(path)
        return file, footer

    with ThreadPoolExecutor(min(_THREADS, len(files) or 1)) as pool:
        done = list(pool.map(finished, files))
    sync(place)
    sync(os.path.dirname(place))
    return [file for file, _ in done], [footer for _, footer in done]
