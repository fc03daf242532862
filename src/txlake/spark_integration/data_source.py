"""`format("txlake")` for Spark sessions that aren't enabled: a Python data source.

    spark.dataSource.register(txlake.TxlakeDataSource)
    spark.read.format("txlake").load("/data/orders")
    df.write.format("txlake").mode("append").save("/data/orders")
    spark.readStream.format("txlake").option("maxFilesPerTrigger", 10).load("/data/orders")
    df.writeStream.format("txlake").option("checkpointLocation", place).start("/data/copies")

Spark plans it and runs it in Python processes of its own, which have no Spark session: each opens
the table, or the lake, from its URL, so txlake is installed there. Tasks read and write Parquet by
pyarrow; one process commits once, with the files of all tasks. It is several times slower than a
scan of Spark's and knows no pruning: `txlake.enable` and `lake.read` are the ways to go where they
can be gone.

A failed task removes its own files; those of the others are removed when the write is aborted, or
its commit is known not to stand. Files of a commit whose outcome is unknown stay.

Its batches append only. Spark doesn't tell a data source what its rows were computed from, so an
overwrite of a table by rows of its own could lose what others wrote meanwhile without anybody
noticing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txlake.conflict.locking import LockMode
from txlake.datafiles.stream_task import StreamedFile, StreamTask
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.times import instant_ms
from txlake.log.snapshot import Snapshot
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.spark.types import delta_schema
from txlake.spark_integration.options import (
    NULL_PARTITIONS_STAY,
    ReadOptions,
    WriteOptions,
    read_options,
    with_storage,
    without_stream_options,
    write_options,
)
from txlake.statements import table_of
from txlake.streaming.committing import Commit, commit_staged, discard
from txlake.streaming.opening import find_table, opened, require_lake
from txlake.streaming.options import Place, place_of, reads_changes, require_source_options
from txlake.streaming.planning import in_partitions, stream_schema, stream_task, streamed_file
from txlake.streaming.reader import stream_columns, stream_reader
from txlake.streaming.staged import Staged, Staging, is_whole, together
from txlake.streaming.staging import WaysOut, staging
from txlake.streaming.writer import stream_writer

NAME = "txlake"
_INSTEAD = "use lake.write, or give the Spark session to the lake with txlake.enable"
_OUT = WaysOut(of_rules=_INSTEAD, of_columns=f"to add columns {_INSTEAD}")


class TxlakeDataSource(DataSource):
    """The tables of a lake, and any Delta table by its place, as PySpark's data source `txlake`.

    Batches are read and appended, streams are read and written.

    Options: `path` (what `load`, `save` and `start` are given): the path or URL of a table, or its
    name where `lake` says the lake's location, with `catalogUrl` (or `catalog`, which Spark shows
    in messages) the URL of its database as `txlake.connect` takes it; `storage.<key>` storage
    options, and settings of file systems (`fs.s3a.access.key`, ...) as Delta Spark takes them. In
    reading `versionAsOf` and `timestampAsOf`, in writing `txnAppId`, `txnVersion` and
    `userMetadata`; those of streams are Delta Spark's.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The columns of what is read: the table as of a moment, or its changes; all nullable."""
        options = with_storage(self.options)
        require_source_options(options)
        if reads_changes(options):
            return stream_columns(options)  # PySpark doesn't say here that it is a stream
        with _reading(without_stream_options(self.options)) as found:
            return stream_schema(found.snapshot)

    def reader(self, schema: StructType) -> TxlakeReader:
        """Reads the version that there is now, or the one asked for."""
        with _reading(self.options) as found:
            return found.reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> TxlakeWriter:
        """Appends. Raises an UnsupportedFeature for mode `overwrite`."""
        if overwrite:
            raise UnsupportedFeature(
                "the data source appends, and can't overwrite, since it doesn't know which version "
                f"the rows were computed from: {_INSTEAD}"
            )
        return _writer(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads the whole table first, then what each commit adds."""
        return stream_reader(with_storage(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes each micro-batch once; in complete mode it replaces all rows."""
        made: DataSourceStreamWriter = stream_writer(with_storage(self.options), schema, overwrite)
        return made


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """A table as it is read."""

    snapshot: Snapshot
    handle: Handle
    place: Place
    engine: Engine

    def reader(self, schema: StructType) -> TxlakeReader:
        snapshot = self.snapshot
        own = stream_schema(snapshot)
        if own != schema:
            raise InvalidRequest(
                f"{self.handle.name} has the schema {own.simpleString()}, not "
                f"{schema.simpleString()}: leave .schema(...) out; where none was given, the "
                "table changed meanwhile: read it again"
            )
        reach = self.engine.reach(self.handle)
        parts = [
            [streamed_file(snapshot, add, reach) for add in part]
            for part in in_partitions(list(snapshot.files.adds()), lambda add: add.size)
        ]
        return TxlakeReader(stream_task(snapshot, self.place.storage_options), parts)


@contextmanager
def _reading(options: Mapping[str, str]) -> Iterator[_Reading]:
    asked = read_options(options)
    if asked.changes is not None:
        raise UnsupportedFeature(
            "a batch of changes isn't read by the data source, which streams them: use "
            "lake.changes, or give the Spark session to the lake with txlake.enable"
        )
    place = place_of(with_storage(options))
    table = table_of(place.table)
    require_lake(place, table)
    with (
        opened(place) as session,
        session.statement_context(None, [(table, LockMode.SCH_S)]) as context,
    ):
        handle = context.require(table)
        yield _Reading(_at(context, handle, asked), handle, place, session.engine)


def _at(context: Context, handle: Handle, asked: ReadOptions) -> Snapshot:
    if asked.travel is not None and asked.travel.timestamp is not None:
        # A text without a zone is in UTC: there is no session that would have another.
        return handle.log.snapshot(timestamp_ms=instant_ms(asked.travel.timestamp))
    return context.snapshot(handle, asked.travel)


class TxlakeReader(DataSourceReader):
    """Reads data files, each by one task, some small ones together."""

    def __init__(self, task: StreamTask, parts: list[list[StreamedFile]]) -> None:
        self._task = task
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        """Files in their order, a task's together."""
        return [InputPartition(part) for part in self._parts] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The live rows of some files, columns in the table's order."""
        return self._task.rows(partition.value)


# --- writing -------------------------------------------------------------------------------------


def _asked(options: Mapping[str, str]) -> WriteOptions:
    asked = write_options(options)
    for name, value in (
        ("replaceWhere", asked.replace_where),
        ("replaceUsing", asked.replace_using or None),
        ("mergeSchema", asked.merge_schema or None),
        ("overwriteSchema", asked.overwrite_schema or None),
        ("partitionOverwriteMode", asked.partition_overwrite),
        ("dataChange", asked.data_change is False or None),
        (NULL_PARTITIONS_STAY, asked.keep_null_partitions),
    ):
        if value is not None:
            raise UnsupportedFeature(
                f"{name} isn't known to the data source, which appends: {_INSTEAD}"
            )
    return asked


def _writer(options: dict[str, str], schema: StructType) -> TxlakeWriter:
    asked = _asked(options)
    place = place_of(with_storage(options))
    commit = Commit(
        app=(
            None
            if asked.app_id is None or asked.app_version is None
            else (asked.app_id, asked.app_version)
        ),
        user_metadata=asked.user_metadata,
    )
    with opened(place) as session:
        handle = find_table(session, place)
        made = staging(session.engine, handle, delta_schema(schema), _OUT)
    return TxlakeWriter(place, made, commit)


class TxlakeWriter(DataSourceArrowWriter):
    """Tasks write files; then one process makes them part of the table."""

    def __init__(self, place: Place, made: Staging, commit: Commit) -> None:
        self._place = place
        self._staging = made
        self._commit = commit

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: the rows' files, not yet part of the table."""
        return self._staging.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the files of all tasks part of the table, in one commit."""
        staged = together(messages, self._staging.fit)
        with opened(self._place) as session:
            commit_staged(session, table_of(self._place.table), staged, self._commit)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what the tasks wrote, unless a commit was tried, which sees to it itself."""
        if is_whole(messages):
            return
        found = [one.reports for one in messages if isinstance(one, Staged)]
        with opened(self._place) as session:
            discard(session, table_of(self._place.table), [one for part in found for one in part])
