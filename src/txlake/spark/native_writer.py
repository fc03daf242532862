"""Write data files with Spark's own Parquet writer, into a new folder in the table.

Owns when its files are exactly those that txlake would write, the settings for that, and the way
from the files to finished `add` actions. Moving rows to Python costs more than Spark's writer, so
bulk writes go this way.

The folder has a new, random name, so it holds this job's files only, and files of a failed job are
orphans that VACUUM removes. Spark moves into it only the files of the task attempts that its commit
coordinator accepted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.datafiles.exact_footers import change_footer, needs_change
from txlake.datafiles.files import sync
from txlake.datafiles.footers import read_footer
from txlake.datafiles.write_task import COMPRESSION, INSERT
from txlake.errors import InvalidRequest
from txlake.local.control_columns import VIOLATION, VIOLATION_ROW
from txlake.local.types import is_plain, quote
from txlake.local.writing import WriteResult, WriteTarget, add_of, data_fields
from txlake.ports import Store, StoredObject
from txlake.protocol.types import Field, Primitive, Struct, leaf_types
from txlake.spark.spark_sessions import dataset_in, is_connect, session_with
from txlake.spark.types import spark_type
from txlake.storage import local_path

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
# What Spark's writer takes from the session only: the format of txlake's other files, and the
# commit protocol that leaves no file of a failed attempt.
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
# What Spark's writer takes with each write. Bounds of long texts are truncated, since otherwise
# parquet-java omits them (`format_bound` truncates further).
_OPTIONS: Mapping[str, str] = {
    "compression": COMPRESSION,
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "maxRecordsPerFile": "0",
    "parquet.statistics.truncate.length": "256",
    "parquet.summary.metadata.level": "NONE",
}
_SUCCESS_FILE = "_SUCCESS"
_LOCAL = "file://"
_THREADS = 8


def suits(frame: DataFrame, target: WriteTarget) -> bool:
    """Return whether `write` writes exactly what `writing.write_frame` would.

    False for buckets, where moving a file copies it; if Spark's executors may not share this
    machine's file system; for partitioned tables, whose folders must lie directly in the table's;
    for nested columns with ids, which Spark's writer can't be given, and types that Parquet encodes
    in several ways; for a limit of rows in a file; for a frame with other columns than the table's
    and its violations; and on Spark Connect unless the session has the writer's settings.
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
        and _supports_session(frame.sparkSession, Primitive("timestamp") in leaves)
    )


def _supports_session(spark: SparkSession, with_timestamps: bool) -> bool:
    """Return whether Spark runs on this machine and its settings can be, or are, what `write`
    needs.
    """
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        return False
    # Spark Connect has no settings for a single write.
    return not is_connect(spark) or all(
        spark.conf.get(key) == value
        for key, value in _SETTINGS.items()
        if with_timestamps or key != _TIMESTAMPS
    )


def write(
    frame: DataFrame, target: WriteTarget, settings: Mapping[str, str] = MappingProxyType({})
) -> WriteResult:
    """Write the rows of a frame that `suits` by one Spark job; the caller commits the result.
    `settings` are Spark's for this one write.

    Raises what Spark raises, also for a row that violates a constraint, and InvalidRequest if Spark
    writes on another machine; nothing stays written.
    """
    folder = f"part-{target.system.new_id()}"
    path = f"{local_path(target.store.url)}/{folder}"
    # Created here, so that an unwritable folder raises the operating system's error.
    os.makedirs(path)
    try:
        _save(_file_rows(frame, target), f"{_LOCAL}{path}", settings)
        files = _job_files(target.store, folder)
        files, footers = _finish_files(target.store, files, path)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    now_ms = target.system.now_ms()
    adds = [
        add_of(target, file.path, file.size_bytes, footer, now_ms)
        for file, footer in zip(files, footers, strict=True)
        if footer.num_rows
    ]
    _remove_leftovers(target.store, path, {add.path for add in adds})
    if not adds:
        return WriteResult()
    return WriteResult(
        adds=tuple(adds), actions={INSERT: sum(footer.num_rows for footer in footers)}
    )


def _file_rows(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Return the rows with the columns of the files, by physical name and with field ids.

    The first column fails the job at a violating row.
    """
    fields = data_fields(target.snapshot)
    unchanged = frame.columns == [item.name for item in fields] and not any(
        item.physical_name != item.name or item.column_id is not None or column.metadata
        for item, column in zip(fields, frame.schema, strict=True)
    )
    return frame if unchanged else frame.select(*_columns(frame, fields))


def _columns(frame: DataFrame, fields: Sequence[Field]) -> Iterator[Column]:
    """Yield the columns of the files; the first fails the job at a violating row."""
    for position, item in enumerate(fields):
        column = F.col(quote(item.name))
        if position == 0 and VIOLATION in frame.columns:
            column = _raise_if_violated(column, item)
        ids = {} if item.column_id is None else {"parquet.field.id": item.column_id}
        yield column.alias(item.physical_name, metadata=ids)


def _raise_if_violated(column: Column, item: Field) -> Column:
    """Return the column, which fails the job in a row that has a VIOLATION."""
    message = F.concat(F.col(VIOLATION), F.lit(" is violated by the row "), F.col(VIOLATION_ROW))
    error = F.raise_error(message).cast(spark_type(item.type))
    return F.when(F.col(VIOLATION).isNull(), column).otherwise(error)


def _save(frame: DataFrame, url: str, settings: Mapping[str, str]) -> None:
    """Write the rows as Parquet files into the folder `url`, with txlake's and the given settings
    for this one write.
    """
    if is_connect(frame.sparkSession):
        frame.write.options(**_OPTIONS).parquet(url, mode="append")
        return
    dataset = dataset_in(frame, session_with(frame.sparkSession, {**settings, **_SETTINGS}))
    dataset.write().options(dict(_OPTIONS)).mode("append").parquet(url)


def _job_files(store: Store, folder: str) -> list[StoredObject]:
    """Return the job's data files, without markers and checksums.

    Raises InvalidRequest if the job's marker is missing here: Spark wrote on another machine.
    """
    listed = list(store.list(folder))
    if not any(file.path == f"{folder}/{_SUCCESS_FILE}" for file in listed):
        raise InvalidRequest(
            f"{store.url}: Spark's files for the table aren't in this machine's folder; "
            "use a folder or a bucket that both reach"
        )
    parts = ((file, file.path.removeprefix(f"{folder}/").split("/")) for file in listed)
    return [file for file, names in parts if not any(name.startswith(("_", ".")) for name in names)]


def _remove_leftovers(store: Store, path: str, added: Collection[str]) -> None:
    """Remove what Spark leaves beside the files added: marker, checksums, a file without rows.

    Removes the whole folder `path` if no file was added.
    """
    if not added:
        shutil.rmtree(path, ignore_errors=True)
        return
    listed = store.list(os.path.basename(path))
    store.delete([file.path for file in listed if file.path not in added])


def _finish_files(
    store: Store, files: list[StoredObject], folder_path: str
) -> tuple[list[StoredObject], list[pq.FileMetaData]]:
    """Correct the files' footers and sync files and folders, so that they survive a power cut.

    Returns the files with their new sizes, and their footers, in the same order.
    """

    def finish(file: StoredObject) -> tuple[StoredObject, pq.FileMetaData]:
        """Correct one file's footer if it needs that, sync the file, and return both."""
        path = os.path.join(os.path.dirname(folder_path), file.path)
        footer = read_footer(partial(store.get_range, file.path), file.size_bytes)
        if needs_change(footer):
            with open(path, "r+b") as written:
                footer, size = change_footer(written)
            file = replace(file, size_bytes=size)
        sync(path)
        return file, footer

    with ThreadPoolExecutor(min(_THREADS, len(files) or 1)) as pool:
        finished = list(pool.map(finish, files))
    sync(folder_path)
    sync(os.path.dirname(folder_path))
    return [file for file, _ in finished], [footer for _, footer in finished]
