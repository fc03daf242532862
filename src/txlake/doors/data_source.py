"""`format("txlake")` for Spark sessions that aren't enabled: a Python data source.

    spark.dataSource.register(txlake.TxlakeDataSource)
    spark.read.format("txlake").load("/data/orders")
    df.write.format("txlake").mode("append").save("/data/orders")

Spark plans it and runs it in Python processes of its own, which have no Spark session: each opens
the table, or the lake, from its URL, so txlake is installed there. Tasks read and write Parquet by
pyarrow; one process commits once, with the files of all tasks. It is several times slower than a
scan of Spark's and knows no pruning: `txlake.enable` and `lake.read` are the ways to go where they
can be gone.

A failed task removes its own files; those of the others are removed when the write is aborted, or
its commit is known not to stand. Files of a commit whose outcome is unknown stay.

It appends only. Spark doesn't tell a data source what its rows were computed from, so an overwrite
of a table by rows of its own could lose what others wrote meanwhile without anybody noticing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txlake.commands import COMMANDS
from txlake.conflict.locking import LockMode
from txlake.datafiles.files import open_file
from txlake.datafiles.packed_positions import unpack_positions
from txlake.datafiles.parquet import Columns, opened, reading, rows_of
from txlake.datafiles.vectors import load_vectors
from txlake.doors.options import ReadOptions, WriteOptions, read_options, write_options
from txlake.errors import Conflict, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.lake.lake import open_session
from txlake.lake.times import instant_ms
from txlake.log.snapshot import Snapshot
from txlake.protocol import paths
from txlake.protocol.actions import Txn
from txlake.protocol.partition_values import parse_value
from txlake.protocol.types import to_arrow_schema, to_arrow_type
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.spark import inserts
from txlake.spark.arrow_append import ArrowAppend, arrow_append
from txlake.spark.log_columns import held_vector
from txlake.spark.plane import SparkPlane
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema, parquet_field, spark_schema
from txlake.spark.writing import data_fields, partition_fields, written
from txlake.statements import Table, TableName, table_of
from txlake.storage import open_store
from txlake.system import System
from txlake.transaction.change import Change

_logger = logging.getLogger(__name__)

NAME = "txlake"
_PARTITION_BYTES = 128 * 1024 * 1024


class TxlakeDataSource(DataSource):
    """The tables of a lake, and any Delta table by its place, as PySpark's data source `txlake`.

    Options: `path` (what `load` and `save` are given): the path or URL of a table, or its name
    where `lake` says the lake's location, with `catalog` the URL of its database as
    `txlake.connect` takes it; `versionAsOf` and `timestampAsOf` in reading; `txnAppId`,
    `txnVersion` and `userMetadata` in writing; settings of file systems (`fs.s3a.access.key`, ...)
    as Delta Spark takes them.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The table's schema, as of the moment that is read."""
        with _reading(self.options) as found:
            return found.schema

    def reader(self, schema: StructType) -> TxlakeReader:
        """Reads the version that there is now, or the one asked for."""
        with _reading(self.options) as found:
            if found.schema != schema:
                raise InvalidRequest(
                    f"{found.handle.name} has the schema {found.schema.simpleString()}, not "
                    f"{schema.simpleString()}: leave .schema(...) out; where none was given, the "
                    "table changed meanwhile: read it again"
                )
            return found.reader()

    def writer(self, schema: StructType, overwrite: bool) -> TxlakeWriter:
        """Appends. Raises an UnsupportedFeature for mode `overwrite`."""
        if overwrite:
            raise UnsupportedFeature(
                "the data source appends, and can't overwrite, since it doesn't know which version "
                "the rows were computed from: use lake.write, or give the Spark session to the "
                "lake with txlake.enable"
            )
        return _writer(dict(self.options), schema)


# --- opening -------------------------------------------------------------------------------------


def _no_spark() -> SparkSession:
    raise UnsupportedFeature(
        "this needs a Spark session, which a data source's process doesn't have: use txlake.enable "
        "or the lake's own methods"
    )


@contextmanager
def _opened(options: Mapping[str, str], storage: Mapping[str, str]) -> Iterator[Session]:
    """The lake's session, or one on path tables, for as long as this process works with it."""
    session = _open(options, storage)
    try:
        yield session
    finally:
        session.close()
        session.engine.close()


def _open(options: Mapping[str, str], storage: Mapping[str, str]) -> Session:
    lake = options.get("lake")
    if lake is not None:
        return open_session(
            lake, make_spark=_no_spark, catalog=options.get("catalog"), storage_options=storage
        )
    system, settings = System(), Settings()
    plane = SparkPlane(
        make_spark=_no_spark,
        system=system,
        settings=settings,
        open_store=open_store,
        storage_options=storage,
    )
    return Session(
        Engine(
            system=system,
            settings=settings,
            commands=COMMANDS,
            plane=plane,
            storage_options=storage,
        )
    )


def _table(options: Mapping[str, str], path: str | None) -> Table:
    if path is None:
        raise InvalidRequest("give the path or the name of a table: load(path), or save(path)")
    table = table_of(path)
    if isinstance(table, TableName) and options.get("lake") is None:
        raise InvalidRequest(
            f"{path} is a name, and no lake is given: .option('lake', <its location>), or write "
            f"the place of a table, ./{path}"
        )
    return table


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """A table as it is read."""

    snapshot: Snapshot
    handle: Handle
    storage: Mapping[str, str]
    session: Session

    @property
    def schema(self) -> StructType:
        return spark_schema(self.snapshot.schema)

    def reader(self) -> TxlakeReader:
        snapshot = self.snapshot
        reach = self.session.engine.reach(self.handle)
        adds = list(snapshot.files.adds())
        vectors = {
            number: add.deletion_vector
            for number, add in enumerate(adds)
            if add.deletion_vector is not None
        }
        elsewhere = self.handle.log.elsewhere
        bitmaps = load_vectors(self.handle.store, vectors.items(), elsewhere)
        partition = partition_fields(snapshot)
        files = [
            File(
                url=reach.url(add.path),
                size=add.size,
                partition=tuple(
                    parse_value(add.partition_values.get(item.physical_name), item.type)
                    for item in partition
                ),
                deleted=held_vector(bitmaps[number]).data if number in bitmaps else None,
            )
            for number, add in enumerate(adds)
        ]
        stored = pa.schema([parquet_field(item) for item in data_fields(snapshot)])
        return TxlakeReader(
            schema=to_arrow_schema(snapshot.schema).serialize().to_pybytes(),
            stored=stored.serialize().to_pybytes(),
            names=tuple(item.name for item in data_fields(snapshot)),
            partition=tuple((item.name, to_arrow_type(item.type)) for item in partition),
            by_id=snapshot.column_mapping_mode == "id",
            storage=dict(self.storage),
            files=tuple(files),
        )


@contextmanager
def _reading(options: Mapping[str, str]) -> Iterator[_Reading]:
    asked = read_options(options)
    if asked.changes is not None:
        raise UnsupportedFeature("readChangeFeed isn't read by the data source")
    table = _table(options, asked.path)
    with (
        _opened(options, asked.storage) as session,
        session.statement_context(None, [(table, LockMode.SCH_S)]) as context,
    ):
        handle = context.require(table)
        yield _Reading(_at(context, handle, asked), handle, asked.storage, session)


def _at(context: Context, handle: Handle, asked: ReadOptions) -> Snapshot:
    if asked.travel is not None and asked.travel.timestamp is not None:
        # A text without a zone is in UTC: there is no session that would have another.
        return handle.log.snapshot(timestamp_ms=instant_ms(asked.travel.timestamp))
    return context.snapshot(handle, asked.travel)


@dataclass(frozen=True, slots=True)
class File:
    """A data file: `deleted` are packed positions, `partition` the values of its partition."""

    url: str
    size: int
    partition: tuple[object, ...]
    deleted: bytes | None


class TxlakeReader(DataSourceReader):
    """Reads data files, each by one task, some small ones together.

    Schemas are serialised Arrow: `schema` the table's, `stored` that of the columns in its files.
    """

    def __init__(
        self,
        *,
        schema: bytes,
        stored: bytes,
        names: tuple[str, ...],
        partition: tuple[tuple[str, pa.DataType], ...],
        by_id: bool,
        storage: Mapping[str, str],
        files: tuple[File, ...],
    ) -> None:
        self._schema = schema
        self._stored = stored
        self._names = names
        self._partition = partition
        self._by_id = by_id
        self._storage = storage
        self._files = files

    def partitions(self) -> list[InputPartition]:
        """Files in their order, until a part is large enough."""
        parts: list[list[File]] = []
        size = 0
        for file in self._files:
            if not parts or size + file.size > _PARTITION_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(file)
            size += file.size
        return [InputPartition(part) for part in parts] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The live rows of some files, columns in the table's order."""
        wanted = pa.ipc.read_schema(pa.py_buffer(self._schema))
        columns = Columns(pa.ipc.read_schema(pa.py_buffer(self._stored)), by_id=self._by_id)
        for file in partition.value:
            deleted = _positions(file.deleted)
            start = 0
            with open_file(file.url, self._storage) as source, reading(file.url):
                parquet = opened(source)
                columns.find(parquet)
                for rows in rows_of(parquet, columns):
                    live = _live(rows, start, deleted)
                    start += rows.num_rows
                    yield self._whole(live, file, wanted)

    def _whole(self, rows: pa.RecordBatch, file: File, wanted: pa.Schema) -> pa.RecordBatch:
        """The rows with the partition's values, as Spark has the table's columns."""
        found = dict(zip(self._names, rows.columns, strict=True))
        for (name, kind), value in zip(self._partition, file.partition, strict=True):
            found[name] = pa.array([value] * rows.num_rows, kind)
        arrays = [found[item.name].view(item.type) for item in wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _positions(packed: bytes | None) -> np.ndarray:
    return np.empty(0, np.uint64) if packed is None else unpack_positions(packed)


def _live(rows: pa.RecordBatch, start: int, deleted: np.ndarray) -> pa.RecordBatch:
    first, last = np.searchsorted(deleted, [start, start + rows.num_rows])
    if first == last:
        return rows
    live = np.ones(rows.num_rows, dtype=bool)
    live[deleted[first:last].astype(np.int64) - start] = False
    return rows.filter(pa.array(live))


# --- writing -------------------------------------------------------------------------------------


Reports = list[dict[str, Any]]


@dataclass
class Staged(WriterCommitMessage):
    """What one task wrote: reports of `write_task`."""

    reports: Reports


def _writer(options: dict[str, str], schema: StructType) -> TxlakeWriter:
    asked = write_options(options)
    for name, value in (
        ("replaceWhere", asked.replace_where),
        ("replaceUsing", asked.replace_using or None),
        ("mergeSchema", asked.merge_schema or None),
        ("overwriteSchema", asked.overwrite_schema or None),
        ("partitionOverwriteMode", asked.partition_overwrite),
    ):
        if value is not None:
            raise UnsupportedFeature(
                f"{name} isn't known to the data source, which appends: use lake.write, or give "
                "the Spark session to the lake with txlake.enable"
            )
    table = _table(options, asked.path)
    with (
        _opened(options, asked.storage) as session,
        _writing(session, table) as (_, _, work),
    ):
        append = arrow_append(work.target(), to_arrow_schema(delta_schema(schema)))
        definition = _definition(work.snapshot)
    return TxlakeWriter(options=options, append=append, definition=definition)


@contextmanager
def _writing(session: Session, table: Table) -> Iterator[tuple[Context, Handle, TableAccess]]:
    with session.statement_context(None, [(table, LockMode.IX)], writes=True) as context:
        handle = context.require(table)
        work = context.work(handle)
        assert isinstance(work, TableAccess), "Spark's data plane"
        yield context, handle, work


def _definition(snapshot: Snapshot) -> tuple[object, ...]:
    """What the files were written for.

    With another schema, partitioning, constraint or feature they may be wrong, and nobody looks at
    their rows again.
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return (
        metadata.id,
        metadata.schema_string,
        tuple(metadata.partition_columns),
        tuple(sorted(metadata.configuration.items())),
        tuple(sorted(protocol.writer_features or ())),
        protocol.min_writer_version,
    )


class TxlakeWriter(DataSourceArrowWriter):
    """Tasks write files; then one process makes them part of the table."""

    def __init__(
        self,
        *,
        options: dict[str, str],
        append: ArrowAppend,
        definition: tuple[object, ...],
    ) -> None:
        self._options = options
        self._append = append
        self._definition = definition

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: the rows' files, not yet part of the table."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        # Each attempt has names of its own: no file is written over.
        name = f"part-{part:05d}-{System().new_id()}"
        return Staged(self._append(iterator, name))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the files of all tasks part of the table, in one commit."""
        asked = write_options(self._options)
        table = _table(self._options, asked.path)
        reports = [report for one in messages if isinstance(one, Staged) for report in one.reports]
        with _opened(self._options, asked.storage) as session:
            try:
                self._commit(session, table, reports, asked)
            except (Conflict, InvalidRequest):  # it is known not to stand
                self._give_up(session, table, reports)
                raise

    def _commit(
        self, session: Session, table: Table, reports: Reports, asked: WriteOptions
    ) -> None:
        with _writing(session, table) as (context, handle, work):
            if _definition(work.snapshot) != self._definition:
                raise InvalidRequest(
                    f"{handle.name}: the table's definition changed while the rows were written; "
                    "write them again"
                )
            transaction = context.transaction
            if asked.app_id is not None and asked.app_version is not None:
                newest = transaction.open(handle).app_version(asked.app_id)
                if newest is not None and newest >= asked.app_version:
                    _remove(work, reports)
                    return
                txn = Txn(
                    app_id=asked.app_id,
                    version=asked.app_version,
                    last_updated=session.engine.system.now_ms(),
                )
                transaction.stage(handle, Change(operation="WRITE", actions=(txn,)))
            transaction.user_metadata = asked.user_metadata
            new = written(work.target(), reports)
            transaction.stage(handle, inserts.appending(work, new))
            transaction.commit()

    def _give_up(self, session: Session, table: Table, reports: Reports) -> None:
        """Removes the files of a commit that doesn't stand, as far as that can be done now."""
        try:
            with _writing(session, table) as (_, _, work):
                _remove(work, reports)
        except TxlakeError as error:
            _logger.warning("%s: files of a failed commit stay for VACUUM: %s", table, error)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what the tasks wrote, unless a commit was tried, which sees to it itself."""
        if all(isinstance(one, Staged) for one in messages):
            return
        asked = write_options(self._options)
        table = _table(self._options, asked.path)
        with (
            _opened(self._options, asked.storage) as session,
            _writing(session, table) as (_, _, work),
        ):
            for one in messages:
                if isinstance(one, Staged):
                    _remove(work, one.reports)


def _remove(work: TableAccess, reports: Reports) -> None:
    work.store.delete(
        paths.decode_path(str(report["text"])) for report in reports if report["kind"] == "file"
    )
