"""The Python data source `txlake`, for Spark sessions that aren't enabled.

    spark.dataSource.register(txlake.TxlakeDataSource)
    spark.read.format("txlake").load("/data/orders")
    df.write.format("txlake").mode("append").save("/data/orders")
    spark.readStream.format("txlake").option("maxFilesPerTrigger", 10).load("/data/orders")
    df.writeStream.format("txlake").option("checkpointLocation", place).start("/data/copies")

Spark plans and runs it in Python processes without a Spark session. Each opens the table or the
lake from its URL, so txlake has to be installed there. Tasks read and write Parquet with pyarrow;
one process makes a single commit with the files of all tasks. The data source is several times
slower than Spark's own scan and doesn't prune files: prefer `txlake.enable` or `lake.read`.

A failed task removes its own files. The other tasks' files are removed when the write is aborted or
its commit has certainly failed. Files of a commit with an unknown outcome stay.

Batches only append. Spark doesn't tell a data source which rows its input was computed from, so
overwriting a table with rows derived from it could silently lose concurrent writes.
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
from txlake.lake.streaming.committing import CommitDetails, commit_staged, discard
from txlake.lake.streaming.opening import find_table, open_session, require_lake
from txlake.lake.streaming.options import Place, place_of, reads_changes, require_source_options
from txlake.lake.streaming.planning import stream_schema, stream_task, task_file, task_partitions
from txlake.lake.streaming.reader import stream_columns, stream_reader
from txlake.lake.streaming.staged import StagedFiles, StagingPlan, all_staged, merge_messages
from txlake.lake.streaming.staging import ErrorAdvice, plan_staging
from txlake.lake.streaming.writer import stream_writer
from txlake.lake.times import instant_ms
from txlake.log.snapshot import Snapshot
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.spark.types import delta_schema
from txlake.spark_integration.options import (
    BRANCH,
    NULL_PARTITIONS_STAY,
    READ_VERSION,
    READS,
    ReadOptions,
    WriteOptions,
    drop_stream_options,
    prefix_storage_options,
    read_options,
    write_options,
)
from txlake.sql.statements import table_of

NAME = "txlake"
_INSTEAD = "use lake.write, or give the Spark session to the lake with txlake.enable"
_ADVICE = ErrorAdvice(for_rules=_INSTEAD, for_columns=f"to add columns {_INSTEAD}")


class TxlakeDataSource(DataSource):
    """PySpark's data source `txlake`: a lake's tables by name, and any Delta table by its path.

    It reads and appends batches, and reads and writes streams.

    Options: `path` (the argument of `load`, `save` and `start`), the path or URL of a table, or its
    name together with `lake`, the lake's location, and `branch`, a branch of that lake;
    `catalogUrl` (or `catalog`, which Spark shows in messages), the URL of the lake's database as
    for `txlake.connect`; `storage.<key>`, storage options; settings of file systems
    (`fs.s3a.access.key`, ...) as in Delta Spark. Readers take `versionAsOf` and `timestampAsOf`,
    writers `txnAppId`, `txnVersion` and `userMetadata`; streams take Delta Spark's options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the table at the version read, or of its changes; all nullable.

        Raises InvalidRequest for invalid options, and if there is no table.
        """
        options = prefix_storage_options(self.options)
        require_source_options(options)
        if reads_changes(options):
            return stream_columns(options)  # PySpark doesn't say here whether it is a stream
        with _open_table(drop_stream_options(self.options)) as table:
            return stream_schema(table.snapshot)

    def reader(self, schema: StructType) -> TxlakeReader:
        """Return a reader of the newest version, or of the one that the options name.

        Raises InvalidRequest for another schema than the table's, UnsupportedFeature for changes.
        """
        with _open_table(self.options) as table:
            return table.reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> TxlakeWriter:
        """Return a writer that appends.

        Raises UnsupportedFeature for mode `overwrite`, and as `plan_staging`.
        """
        if overwrite:
            raise UnsupportedFeature(
                "the data source appends, and can't overwrite, since it doesn't know which version "
                f"the rows were computed from: {_INSTEAD}"
            )
        return _writer(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of the whole table first, then of the rows that each commit adds."""
        return stream_reader(prefix_storage_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer that commits each micro-batch once; complete mode replaces all rows."""
        options = prefix_storage_options(self.options)
        writer: DataSourceStreamWriter = stream_writer(options, schema, overwrite)
        return writer


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OpenTable:
    """An open table, at the version that is read."""

    snapshot: Snapshot
    handle: Handle
    place: Place
    engine: Engine

    def reader(self, schema: StructType) -> TxlakeReader:
        """Return the reader of all files.

        Raises InvalidRequest unless the schema is the table's.
        """
        snapshot = self.snapshot
        actual = stream_schema(snapshot)
        if actual != schema:
            raise InvalidRequest(
                f"{self.handle.name} has the schema {actual.simpleString()}, not "
                f"{schema.simpleString()}: leave .schema(...) out; where none was given, the "
                "table changed meanwhile: read it again"
            )
        reach = self.engine.reach(self.handle)
        parts = [
            [task_file(snapshot, add, reach) for add in part]
            for part in task_partitions(list(snapshot.files.adds()), lambda add: add.size)
        ]
        return TxlakeReader(stream_task(snapshot, self.place.storage_options), parts)


@contextmanager
def _open_table(options: Mapping[str, str]) -> Iterator[_OpenTable]:
    """Yield the table that the options name, at the version to read; it is closed afterwards.

    Raises InvalidRequest for invalid options, and if there is no table or version;
    UnsupportedFeature for a read of changes.
    """
    parsed = read_options(options)
    if parsed.changes is not None:
        raise UnsupportedFeature(
            "a batch of changes isn't read by the data source, which streams them: use "
            "lake.changes, or give the Spark session to the lake with txlake.enable"
        )
    place = place_of(prefix_storage_options(options))
    table = table_of(place.table)
    require_lake(place, table)
    with (
        open_session(place) as session,
        session.statement_context(None, [(table, LockMode.SCH_S)]) as context,
    ):
        handle = context.tables.require(table)
        yield _OpenTable(_snapshot(context, handle, parsed), handle, place, session.engine)


def _snapshot(context: Context, handle: Handle, options: ReadOptions) -> Snapshot:
    """Return the table at the options' version or time; a time without a zone is in UTC."""
    if options.travel is not None and options.travel.timestamp is not None:
        # A text without a zone is in UTC: no Spark session defines another zone here.
        return handle.log.snapshot(timestamp_ms=instant_ms(options.travel.timestamp))
    return context.snapshot(handle, options.travel)


class TxlakeReader(DataSourceReader):
    """Reads each data file in one task, and several small files together."""

    def __init__(self, task: StreamTask, parts: list[list[StreamedFile]]) -> None:
        self._task = task
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        """Return the files of each task, in order."""
        return [InputPartition(part) for part in self._parts] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the live rows of a task's files, columns in the table's order."""
        return self._task.rows(partition.value)


# --- writing -------------------------------------------------------------------------------------


def _append_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse a writer's options.

    Raises UnsupportedFeature for an option that an append can't obey, and as `write_options`.
    """
    parsed = write_options(options)
    for name, value in (
        ("replaceWhere", parsed.replace_where),
        ("replaceUsing", parsed.replace_using or None),
        ("mergeSchema", parsed.merge_schema or None),
        ("overwriteSchema", parsed.overwrite_schema or None),
        ("partitionOverwriteMode", parsed.partition_overwrite),
        ("dataChange", parsed.data_change is False or None),
        (NULL_PARTITIONS_STAY, parsed.keep_null_partitions),
        (READ_VERSION, parsed.read_version),
        (READS, parsed.reads),
    ):
        if value is not None:
            raise UnsupportedFeature(
                f"{name} isn't known to the data source, which appends: {_INSTEAD}"
            )
    return parsed


def _writer(options: dict[str, str], schema: StructType) -> TxlakeWriter:
    """Return a writer that appends to the table, which must exist.

    Raises as `_append_options`, `find_table` and `plan_staging`.
    """
    place = place_of(prefix_storage_options(options))
    parsed = _append_options(
        {name: value for name, value in options.items() if name.lower() != BRANCH}
    )
    commit = CommitDetails(
        app=(
            None
            if parsed.app_id is None or parsed.app_version is None
            else (parsed.app_id, parsed.app_version)
        ),
        user_metadata=parsed.user_metadata,
    )
    with open_session(place) as session:
        handle = find_table(session, place)
        plan = plan_staging(session.engine, handle, delta_schema(schema), _ADVICE)
    return TxlakeWriter(place, plan, commit)


class TxlakeWriter(DataSourceArrowWriter):
    """Writes files in tasks; then one process commits them to the table."""

    def __init__(self, place: Place, plan: StagingPlan, commit: CommitDetails) -> None:
        self._place = place
        self._plan = plan
        self._commit = commit

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        """Stage a task's rows as files, which aren't part of the table yet."""
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the files of all tasks to the table in one commit.

        Raises as `merge_messages` and `commit_staged`.
        """
        staged = merge_messages(messages, self._plan.fingerprint)
        with open_session(self._place) as session:
            commit_staged(session, table_of(self._place.table), staged, self._commit)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files that tasks reported, unless every task reported its files.

        Then Spark has called `commit`, which removes the files itself if the commit has certainly
        failed.
        """
        if all_staged(messages):
            return
        reports = [
            report
            for message in messages
            if isinstance(message, StagedFiles)
            for report in message.reports
        ]
        with open_session(self._place) as session:
            discard(session, table_of(self._place.table), reports)
