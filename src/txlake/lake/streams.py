"""Streams of a lake's sessions: tables as their sources, and what is done with each micro-batch.

Owns `read_stream`, `write_stream` and `foreach_batch`. A micro-batch is one transaction, with a
`txn` action of the query's id and the batch's number in each table that it writes: Spark may run a
batch again, and what was committed isn't committed twice.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException

from txlake.catalog import DEFAULT_DATABASE
from txlake.commit.change import Change
from txlake.errors import InvalidRequest
from txlake.lake.statements import Statements, named_table, one_of
from txlake.lake.streaming.data_source import LAKE_FORMAT, register
from txlake.lake.streaming.feed import require_feed
from txlake.lake.streaming.marks import may_read, stream_mark
from txlake.lake.streaming.options import Place, camel_options, place_options, source_options
from txlake.lake.streaming.progress import Progress, last_batch, require_unbroken
from txlake.protocol.actions import Txn
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.transaction import Transaction as SessionTransaction
from txlake.spark.package_loading import module_loader
from txlake.spark.plane import SparkPlane
from txlake.spark.scan_lineage import analyzed_plan
from txlake.spark.shipping import whole_package
from txlake.spark.spark_sessions import is_connect
from txlake.sql.statements import NativeFrame, StreamBatch, Table, TableName, TimeTravel, Write
from txlake.sql.statements.names import quoted
from txlake.storage import canonical_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OutputMode = Literal["append", "complete"]
Work = Callable[[Any, "DataFrame"], object]
_ATTEMPTS = 5
_FOREACH = "foreach_batch"
_NO_PATH = "PATH_NOT_FOUND"
_STARTING_TIMESTAMP = "startingtimestamp"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PATTERN_SIGN = re.compile(r"[{}\[\]*?\\]")


class BatchTransaction(Protocol):
    """A transaction of the session that commits a micro-batch."""

    _session: Session

    def _own_transaction(self) -> SessionTransaction: ...


class BatchSession(Protocol):
    """A session that commits micro-batches."""

    _session: Session

    def run(
        self,
        work: Callable[[Any], object],
        isolation: str | None = None,
        attempts: int = 5,
    ) -> object:
        """Runs the work in a transaction, again after a conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """A table that a stream writes.

    Attributes:
        table: its name or place, as `Statements.write` takes it.
        checkpoint: where Spark keeps the query's progress.
    """

    table: str
    checkpoint: str
    output_mode: OutputMode
    merge_schema: bool | None = None
    overwrite_schema: bool = False
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    user_metadata: str | None = None
    reads_target: bool = False

    def commit(self, session: BatchSession, query_id: str, batch_id: int, batch: DataFrame) -> None:
        """Writes a micro-batch in a transaction of its own, unless that was done."""
        named = named_table(self.table)
        engine = session._session.engine
        handle = engine.find(named, DEFAULT_DATABASE)
        progress = Progress(engine, query_id, self.table)
        progress.claim(handle)
        if handle is not None and last_batch(handle, query_id) >= batch_id:
            _evaluate(batch)
            return
        require_unbroken(self.table, handle, query_id, batch_id)
        statement = Write(
            table=named,
            source=NativeFrame(batch),
            mode="append" if self.output_mode == "append" else "overwrite",
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            merge_schema=self.merge_schema,
            overwrite_schema=self.overwrite_schema,
            app_id=query_id,
            app_version=batch_id,
            batch=StreamBatch(
                query_id=query_id,
                batch_id=batch_id,
                output_mode=self.output_mode,
                reads_target=self.reads_target,
            ),
        )

        def write(tx: BatchTransaction) -> None:
            held = tx._own_transaction()
            held.user_metadata = self.user_metadata
            tx._session.carry_out(held, statement)

        session.run(write, None, _ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """What a program does with each micro-batch of a stream, in one transaction.

    Attributes:
        database: of names without one, as it was current where the query was started.
    """

    work: Work
    checkpoint: str
    database: str = DEFAULT_DATABASE
    isolation: str | None = None
    attempts: int = _ATTEMPTS

    def commit(self, session: BatchSession, query_id: str, batch_id: int, batch: DataFrame) -> None:
        """Does the work and commits it, unless that was done; a conflict does it again."""
        progress = Progress(session._session.engine, query_id, _FOREACH)
        progress.claim()
        if progress.is_done(batch_id):
            _evaluate(batch)
            return
        progress.require_unbroken(batch_id)
        session._session.database = self.database

        def run(tx: BatchTransaction) -> None:
            held = tx._own_transaction()
            held.before_commit(partial(_sign, held, progress, query_id, batch_id))
            self.work(tx, batch)

        session.run(run, self.isolation, self.attempts)


def _evaluate(batch: DataFrame | pa.Table) -> None:
    """Computes the rows of a micro-batch that is committed, and writes them nowhere.

    Aggregations, joins and deduplications keep the state of each batch as it is computed, and
    since Spark 4.1 a query stops when a batch is done and its state isn't there.
    """
    if not isinstance(batch, pa.Table):
        batch.write.format("noop").mode("overwrite").save()


def _sign(held: SessionTransaction, progress: Progress, query_id: str, batch_id: int) -> None:
    """Makes the micro-batch part of what every table that it changes knows of the query.

    Raises InvalidRequest when a table has it already: another process runs the same query.
    """
    changed = held.changed()
    progress.intend(batch_id, changed)
    for handle in changed:
        held.open(handle).app_version(query_id)  # a commit of it before this one conflicts
        txn = Txn(app_id=query_id, version=batch_id, last_updated=held.engine.system.now_ms())
        held.stage(handle, Change(operation="STREAMING UPDATE", actions=(txn,)))


class Streams(Statements):
    """What a lake and its sessions can be asked about streams."""

    def session(self) -> AbstractContextManager[BatchSession]:
        """Another session on the same lake."""
        raise NotImplementedError

    def _session_on(self, engine: Engine) -> AbstractContextManager[BatchSession]:
        """Another session on the lake of an engine."""
        raise NotImplementedError

    def read_stream(self, table: str, **options: object) -> DataFrame:
        """A table as a stream: all of its rows first, then those that each commit adds.

        `options` are Delta's in snake_case: `starting_version=3` (or "latest"),
        `starting_timestamp`, `max_files_per_trigger` (1000), `max_bytes_per_trigger`,
        `skip_change_commits`, `ignore_deletes`, `ignore_changes`, `fail_on_data_loss`,
        `exclude_regex`. With `read_change_feed=True` its changes instead: the rows that it has at
        first as inserts, then the changes of each version, with the columns `_change_type`,
        `_commit_version` and `_commit_timestamp`.

        Raises InvalidRequest when there is no such table, for an option that can't be, and for two
        that contradict each other; UnsupportedFeature for a table or an option that txlake's
        streams don't have. The stream stops with the same errors for a commit that changes rows,
        unless it reads changes, a table that was replaced, and a schema that changed.
        """
        self._warn_beside("read_stream")
        return stream_of(self._session, named_table(table), camel_options(options))

    def write_stream(
        self,
        df: DataFrame,
        table: str,
        *,
        checkpoint: str,
        output_mode: OutputMode = "append",
        trigger: Mapping[str, object] | None = None,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: str | Sequence[str] | None = None,
        user_metadata: str | None = None,
        query_name: str | None = None,
    ) -> StreamingQuery:
        """Starts a query that writes a stream's rows into a table, each micro-batch once.

        Args:
            df: a streaming DataFrame.
            table: a name or a place; the first micro-batch makes it where there is none.
            checkpoint: a folder or URL where Spark keeps the query's progress, one for each query.
            output_mode: "append", or "complete": each micro-batch replaces all rows.
            trigger: as PySpark's `DataStreamWriter.trigger` takes it, `{"availableNow": True}`.
            merge_schema: columns that the table doesn't have are added to it.
            overwrite_schema: the rows' columns, and `partition_by`, replace those of the table;
                with "complete" alone.
            partition_by: the partition columns of a table that is made.
            user_metadata: a text for the history of the table.
            query_name: what Spark calls the query.

        Raises InvalidRequest for rows that aren't a stream's, for a mode or a trigger that can't
        be, and for a checkpoint that is another sink's, or ahead of the table. The query stops with
        what `write` raises.
        """
        self._warn_beside("write_stream")
        one_of(OutputMode, "output_mode", output_mode)
        if overwrite_schema and output_mode != "complete":
            raise InvalidRequest(
                f"overwrite_schema=True goes with output_mode='complete', found {output_mode!r}: "
                "what appends leaves the table's columns; say merge_schema=True to add some"
            )
        columns = (partition_by,) if isinstance(partition_by, str) else partition_by
        named = named_table(table)
        writer = _writer(df, checkpoint, output_mode, trigger, query_name)
        require_own_checkpoint(self._session, df.sparkSession, checkpoint, named)
        sink = table_sink(
            self._session,
            df,
            named,
            checkpoint=checkpoint,
            output_mode=output_mode,
            merge_schema=merge_schema or None,
            overwrite_schema=overwrite_schema,
            partition_by=None if columns is None else tuple(columns),
            user_metadata=user_metadata,
        )
        return started(self, writer, df.sparkSession, sink)

    def foreach_batch(
        self,
        df: DataFrame,
        work: Work,
        *,
        checkpoint: str,
        output_mode: Literal["append", "complete", "update"] = "append",
        trigger: Mapping[str, object] | None = None,
        isolation: str | None = None,
        attempts: int = _ATTEMPTS,
        query_name: str | None = None,
    ) -> StreamingQuery:
        """Starts a query that does `work(tx, batch)` with each micro-batch of a stream, once.

        `tx` is a transaction over any tables of the lake, which is committed when the work is done:
        all that it writes becomes visible at one instant, once a micro-batch, however often Spark
        runs it. Its SQL knows the temporary views that the work makes of the batch; names without a
        database are of the one that is current here when the query is started. A conflict does the
        work again, as `run` does it; anything else that the work raises stops the query. A work
        that writes nothing may be done again.

        `checkpoint`, `trigger` and `query_name` as in `write_stream`; `isolation` and `attempts` as
        in `run`. With Spark Connect the work runs on the server, where Spark carries it.

        Raises InvalidRequest as `write_stream`.
        """
        self._warn_beside("foreach_batch")
        if not callable(work):
            raise InvalidRequest(f"expected work(tx, batch), found {work!r:.80}")
        if attempts < 1:
            raise InvalidRequest(f"attempts={attempts}: expected at least 1")
        writer = _writer(df, checkpoint, output_mode, trigger, query_name)
        require_own_checkpoint(self._session, df.sparkSession, checkpoint, None)
        batches = BatchWork(
            work=work,
            checkpoint=checkpoint,
            database=self._session.database,
            isolation=isolation,
            attempts=attempts,
        )
        return started(self, writer, df.sparkSession, batches)


def stream_of(session: Session, table: Table, options: Mapping[str, str]) -> DataFrame:
    """A table as a stream; options by Delta's names. Raises as `Streams.read_stream`."""
    asked = source_options(options)
    if asked.starting_timestamp is not None:
        moment = _instant(session, asked.starting_timestamp)
        options = {
            name: moment if name.lower() == _STARTING_TIMESTAMP else value
            for name, value in options.items()
        }
    snapshot = session.snapshot(table)
    if asked.read_change_feed:
        require_feed(snapshot, snapshot.version)
    url = _shown(session, table)
    _require_reachable(url)
    spark = session.spark
    register(spark)
    settings = {**options, **place_options(_place(session, table))}
    frame = spark.readStream.format(LAKE_FORMAT).options(**settings).load()
    return frame.alias(stream_mark(snapshot.table, url))


def _instant(session: Session, text: str) -> str:
    """A moment as TIMESTAMP AS OF takes it, which means the same in another process.

    Without a zone it is in the Spark session's, which a stream's own processes don't have.
    """
    with session.statement_context(session.current, [], pins=False) as context:
        moment_ms = context.timestamp_ms(TimeTravel(timestamp=text))
    return (_EPOCH + datetime.timedelta(milliseconds=moment_ms)).isoformat()


def table_sink(
    session: Session,
    df: DataFrame,
    table: Table,
    *,
    checkpoint: str,
    output_mode: OutputMode,
    merge_schema: bool | None = None,
    overwrite_schema: bool = False,
    partition_by: tuple[str, ...] | None = None,
    cluster_by: tuple[str, ...] | None = None,
    user_metadata: str | None = None,
) -> TableSink:
    """The table as a sink of these rows; `cluster_by` of a table that is made."""
    return TableSink(
        table=_qualified(session, table),
        checkpoint=checkpoint,
        output_mode=output_mode,
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        partition_by=partition_by,
        cluster_by=cluster_by,
        user_metadata=user_metadata,
        reads_target=may_read(analyzed_plan(df), _shown(session, table)),
    )


def require_own_checkpoint(
    session: Session, spark: SparkSession, checkpoint: str, table: Table | None
) -> None:
    """Raises InvalidRequest where a checkpoint is another sink's, or ahead of the table.

    `table`: the one that is written; None for the work of `foreach_batch`. A stream that has
    nothing new to read would end without an error.
    """
    query_id = _known_id(spark, checkpoint)
    if query_id is None:
        return
    engine, following = session.engine, _last_done(spark, checkpoint) + 1
    if table is None:
        progress = Progress(engine, query_id, _FOREACH)
        progress.require_own()
        progress.require_unbroken(following)
        return
    name, handle = _qualified(session, table), engine.find(table, session.database)
    Progress(engine, query_id, name).require_own(handle)
    require_unbroken(name, handle, query_id, following)


def started(
    lake: Streams, writer: DataStreamWriter, spark: SparkSession, batches: TableSink | BatchWork
) -> StreamingQuery:
    """Starts the query of a writer of PySpark's, whose micro-batches the lake commits."""
    if is_connect(spark):
        return writer.foreachBatch(_on_the_server(spark, lake._session, batches)).start()

    known: list[tuple[str, Engine]] = []  # of this one query, once its first batch came

    def here(batch: DataFrame, batch_id: int) -> None:
        if not known:
            query_id = id_of_query(batch.sparkSession, batches.checkpoint)
            known.append((query_id, engine_of_batches(lake._session.engine, batch.sparkSession)))
        [(query_id, engine)] = known
        with lake._session_on(engine) as own:
            batches.commit(own, query_id, batch_id, batch)

    return writer.foreachBatch(here).start()


def engine_of_batches(engine: Engine, spark: SparkSession) -> Engine:
    """The lake at work in the session of a query's micro-batches, whose temporary views it has."""
    assert isinstance(engine.plane, SparkPlane), "a Spark session gives the batches"
    return engine.with_plane(engine.plane.in_session(spark))


def _on_the_server(
    spark: SparkSession, session: Session, batches: TableSink | BatchWork
) -> Callable[[DataFrame, int], None]:
    """What a Spark Connect server does with each micro-batch: it opens the lake by itself.

    Spark carries the function there by value, so it holds plain values, and the user's work.
    """
    engine = session.engine
    assert engine.warehouse is not None
    module = module_loader(whole_package(spark), carries=True)
    connection = {
        "location": engine.warehouse.url,
        "catalog": engine.catalog.of_lake().url,
        "storage_options": dict(engine.storage_options),
        "isolation": None if session.level is None else session.level.value,
        "settings": asdict(engine.settings),
    }
    kind = type(batches).__name__
    given = {item.name: getattr(batches, item.name) for item in fields(batches)}

    def there(batch: DataFrame, batch_id: int) -> None:
        module("lake.server_batches").commit(connection, kind, given, batch, batch_id)

    return there


def id_of_query(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose checkpoint it is, the same after each start.

    Raises InvalidRequest where the checkpoint has none.
    """
    lines = spark.read.text(_in_checkpoint(checkpoint, "metadata"), wholetext=True).collect()
    try:
        return str(json.loads(lines[0][0])["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidRequest(
            f"{checkpoint}/metadata: expected the id of a streaming query, found {lines!r:.100}; "
            "give the query a new checkpoint"
        ) from error


def _known_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query whose checkpoint it is; None where no query has begun."""
    try:
        return id_of_query(spark, checkpoint)
    except AnalysisException as error:
        if error.getCondition() != _NO_PATH:
            raise
        return None


def _last_done(spark: SparkSession, checkpoint: str) -> int:
    """The last micro-batch that Spark has noted as done; -1 for none."""
    try:
        files = spark.read.text(_in_checkpoint(checkpoint, "commits")).inputFiles()
    except AnalysisException as error:
        if error.getCondition() != _NO_PATH:
            raise
        return -1
    names = (file.rpartition("/")[2] for file in files)
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _in_checkpoint(checkpoint: str, name: str) -> str:
    """The path of a file or a folder in a checkpoint, as Spark's readers take it."""
    place = _PATTERN_SIGN.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    return f"{place}/{name}"


def _writer(
    df: DataFrame,
    checkpoint: object,
    output_mode: str,
    trigger: Mapping[str, object] | None,
    query_name: str | None,
) -> DataStreamWriter:
    if not getattr(df, "isStreaming", False):
        raise InvalidRequest(
            f"expected a streaming DataFrame, as spark.readStream and lake.read_stream give them, "
            f"found {type(df).__module__}.{type(df).__qualname__}; lake.write(...) writes others"
        )
    if not (isinstance(checkpoint, str) and checkpoint.strip()):
        raise InvalidRequest(f"checkpoint={checkpoint!r:.80}: expected a folder or a URL")
    writer = df.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is None:
        return writer
    asked: Any = trigger
    try:
        return writer.trigger(**asked)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"trigger={trigger!r:.80}: expected one of {{'availableNow': True}}, "
            f"{{'processingTime': '10 seconds'}} or {{'once': True}}: {error}"
        ) from error


def _qualified(session: Session, table: Table) -> str:
    """The table's text from anywhere: a name with its database, a place as a URL."""
    if isinstance(table, TableName):
        parts = session.engine.qualified(table, session.database)
        return ".".join(quoted(part, always=True) for part in parts)
    return canonical_url(table.location)


def _shown(session: Session, table: Table) -> str:
    """Which table it is, whether there is one or not: its URL."""
    handle = session.engine.find(table, session.database)
    if handle is not None:
        return handle.store.url
    assert isinstance(table, TableName), "a place is found whether or not a table is there"
    return session.engine.place_of(*session.engine.qualified(table, session.database))


def _place(session: Session, table: Table) -> Place:
    """How a process of Spark's opens a table of the session."""
    engine = session.engine
    warehouse = engine.warehouse
    return Place(
        table=_qualified(session, table),
        lake=None if warehouse is None else warehouse.url,
        catalog=None if warehouse is None else engine.catalog.of_lake().url,
        outside_paths=engine.settings.allow_outside_paths,
        storage_options=engine.storage_options,
    )


def _require_reachable(url: str) -> None:
    if url.startswith("memory:"):
        raise InvalidRequest(
            f"{url} is in the memory of this process, which a stream's own processes can't reach; "
            "use a folder or a bucket"
        )
