"""Streams of a lake's sessions: `read_stream`, `write_stream` and `foreach_batch`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Literal

from txlake.errors import InvalidRequest
from txlake.lake.micro_batches import (
    ATTEMPTS,
    FOREACH_BATCH,
    BatchSession,
    BatchWork,
    OutputMode,
    TableSink,
    Work,
)
from txlake.lake.read_versions import named_table
from txlake.lake.statements import Statements, one_of
from txlake.lake.streaming.checkpoints import find_query_id, id_of_query, last_batch_done
from txlake.lake.streaming.data_source import LAKE_FORMAT, register
from txlake.lake.streaming.feed import require_feed
from txlake.lake.streaming.marks import may_read, stream_mark
from txlake.lake.streaming.options import Place, camel_options, place_options, source_options
from txlake.lake.streaming.progress import Progress, require_unbroken
from txlake.session.branch_use import mark_of, require_branch_open
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.spark.package_loading import module_loader
from txlake.spark.plane import SparkPlane
from txlake.spark.scan_lineage import analyzed_plan
from txlake.spark.shipping import whole_package
from txlake.spark.spark_sessions import is_connect
from txlake.sql.statements import Table, TableName, TimeTravel
from txlake.sql.statements.names import quoted
from txlake.storage import canonical_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STARTING_TIMESTAMP = "startingtimestamp"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Streams(Statements):
    """The methods of a lake and its sessions that make streams."""

    def session(self) -> AbstractContextManager[BatchSession]:
        """Open another session on the same lake."""
        raise NotImplementedError

    def _session_on(self, engine: Engine) -> AbstractContextManager[BatchSession]:
        """Open another session on the lake of an engine."""
        raise NotImplementedError

    def read_stream(self, table: str, **options: object) -> DataFrame:
        """Return a table as a stream: first all of its rows, then the rows that each commit adds.

        `options` are Delta's in snake_case: `starting_version=3` (or "latest"),
        `starting_timestamp`, `max_files_per_trigger` (1000), `max_bytes_per_trigger`,
        `skip_change_commits`, `ignore_deletes`, `ignore_changes`, `fail_on_data_loss`,
        `exclude_regex`. With `read_change_feed=True` the stream has the table's changes: the rows
        at the start as inserts, then the changes of each version, with the columns `_change_type`,
        `_commit_version` and `_commit_timestamp`.

        Raises InvalidRequest when there is no such table, for an invalid option, and for two that
        contradict each other; UnsupportedFeature for a table or an option that txlake's streams
        don't support. The stream stops with the same errors at a commit that changes rows, unless
        it reads changes, at a table that was replaced, at a schema that changed, and when the
        branch that it reads has ended.
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
        """Start a query that writes a stream's rows to a table, each micro-batch once.

        Args:
            df: a streaming DataFrame.
            table: a name, path or URL; the first micro-batch creates it if there is none.
            checkpoint: a folder or URL where Spark keeps the query's progress, one for each query.
            output_mode: "append", or "complete": each micro-batch replaces all rows.
            trigger: as PySpark's `DataStreamWriter.trigger` takes it, `{"availableNow": True}`.
            merge_schema: columns that the table doesn't have are added to it.
            overwrite_schema: the rows' columns, and `partition_by`, replace those of the table;
                with "complete" alone.
            partition_by: the partition columns of a table that is created.
            user_metadata: a text for the history of the table.
            query_name: what Spark calls the query.

        Raises InvalidRequest for rows that aren't a stream's, for an invalid mode or trigger, and
        for a checkpoint that belongs to another sink or is ahead of the table. The query stops with
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
        attempts: int = ATTEMPTS,
        query_name: str | None = None,
    ) -> StreamingQuery:
        """Start a query that calls `work(tx, batch)` with each micro-batch of a stream.

        `tx` is a transaction over any tables of the lake, which is committed when `work` returns:
        all that it writes becomes visible at one instant, and once for a micro-batch, however often
        Spark runs it. Its SQL knows the temporary views that `work` makes of the batch; unqualified
        names are of the database that is current when the query is started. After a conflict `work`
        is called again, as by `run`; any other error stops the query. If `work` writes nothing, it
        may be called again for the same batch.

        `checkpoint`, `trigger` and `query_name` as in `write_stream`; `isolation` and `attempts` as
        in `run`. With Spark Connect the work runs on the server, where Spark carries it.

        Raises InvalidRequest as `write_stream`, and for `attempts` below 1 or a `work` that can't
        be called.
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
    """Return a table as a stream, by options with Delta's names, in any letter case.

    Raises as `Streams.read_stream`.
    """
    session.follow_setting()
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
    """Return a timestamp, as TIMESTAMP AS OF takes it, as ISO text in UTC.

    Without a zone it is in the Spark session's, which a stream's own processes don't have. Raises
    InvalidRequest for a text that is no timestamp.
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
    """Return a table as the sink of these rows.

    `merge_schema` and `overwrite_schema` as for `Lake.write_stream`. `partition_by` and
    `cluster_by` are for a table that is created.
    """
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
    """Raise InvalidRequest if a checkpoint belongs to another sink, or is ahead of the table.

    `table` is the table that is written, or None for `foreach_batch`. Checked before the query
    starts, since a stream that has nothing new to read would end without an error. A checkpoint of
    no query passes. Raises InvalidRequest too if the session's branch has ended.
    """
    session.follow_setting()
    require_branch_open(session.engine)
    query_id = find_query_id(spark, checkpoint)
    if query_id is None:
        return
    engine, following = session.engine, last_batch_done(spark, checkpoint) + 1
    if table is None:
        progress = Progress(engine, query_id, FOREACH_BATCH)
        progress.require_own()
        progress.require_unbroken(following)
        return
    name, handle = _qualified(session, table), engine.find(table, session.database)
    Progress(engine, query_id, name).require_own(handle)
    require_unbroken(name, handle, query_id, following)


def started(
    lake: Streams, writer: DataStreamWriter, spark: SparkSession, batches: TableSink | BatchWork
) -> StreamingQuery:
    """Start the query of one of PySpark's writers, whose micro-batches the lake commits.

    Each batch has a session of its own on the lake, and on the branch that its session uses now.
    With Spark Connect the server commits them.
    """
    if is_connect(spark):
        return writer.foreachBatch(_on_the_server(spark, lake._session, batches)).start()

    engine_now = lake._session.engine
    known: list[tuple[str, Engine]] = []  # of this one query, once its first batch came

    def here(batch: DataFrame, batch_id: int) -> None:
        """Commit a micro-batch in this process."""
        if not known:
            query_id = id_of_query(batch.sparkSession, batches.checkpoint)
            known.append((query_id, engine_of_batches(engine_now, batch.sparkSession)))
        [(query_id, engine)] = known
        with lake._session_on(engine) as own:
            batches.commit(own, query_id, batch_id, batch)

    return writer.foreachBatch(here).start()


def engine_of_batches(engine: Engine, spark: SparkSession) -> Engine:
    """Return an engine that works in the Spark session of a query's micro-batches.

    The session has temporary views of its own.
    """
    assert isinstance(engine.plane, SparkPlane), "a Spark session gives the batches"
    return engine.with_plane(engine.plane.in_session(spark))


def _on_the_server(
    spark: SparkSession, session: Session, batches: TableSink | BatchWork
) -> Callable[[DataFrame, int], None]:
    """Return the function that a Spark Connect server calls with each micro-batch.

    It opens the lake there. Spark sends the function by value, so it holds only plain values and
    the user's function.
    """
    engine = session.engine
    assert engine.warehouse is not None
    module = module_loader(whole_package(spark), carries=True)
    mark = mark_of(engine)
    connection = {
        "location": engine.warehouse.url,
        "catalog": engine.catalog.of_lake().url,
        "storage_options": dict(engine.storage_options),
        "isolation": None if session.level is None else session.level.value,
        "settings": asdict(engine.settings),
        "branch": None if mark is None else (mark.id, mark.name),
    }
    kind = type(batches).__name__
    given = {item.name: getattr(batches, item.name) for item in fields(batches)}

    def there(batch: DataFrame, batch_id: int) -> None:
        module("lake.server_batches").commit(connection, kind, given, batch, batch_id)

    return there


def _writer(
    df: DataFrame,
    checkpoint: object,
    output_mode: str,
    trigger: Mapping[str, object] | None,
    query_name: str | None,
) -> DataStreamWriter:
    """Return a stream's writer without its sink.

    Raises InvalidRequest for a frame that doesn't stream, an empty checkpoint and a bad trigger.
    """
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
    """Return a table's text that doesn't depend on the session: a qualified name, or a URL."""
    if isinstance(table, TableName):
        parts = session.engine.qualified(table, session.database)
        return ".".join(quoted(part, always=True) for part in parts)
    return canonical_url(table.location)


def _shown(session: Session, table: Table) -> str:
    """Return the URL of a table, whether or not it exists."""
    handle = session.engine.find(table, session.database)
    if handle is not None:
        return handle.store.url
    assert isinstance(table, TableName), "a place is found whether or not a table is there"
    return session.engine.place_of(*session.engine.qualified(table, session.database))


def _place(session: Session, table: Table) -> Place:
    """Return the location and options by which a process of Spark opens a table of the session."""
    engine = session.engine
    warehouse = engine.warehouse
    handle = engine.find(table, session.database)
    mark = mark_of(engine) if handle is not None and handle.in_lake else None
    return Place(
        table=_qualified(session, table),
        lake=None if warehouse is None else warehouse.url,
        catalog=None if warehouse is None else engine.catalog.of_lake().url,
        outside_paths=engine.settings.allow_outside_paths,
        storage_options=engine.storage_options,
        branch=None if mark is None else mark.name,
        branch_id=None if mark is None else mark.id,
    )


def _require_reachable(url: str) -> None:
    """Raise InvalidRequest for a table in memory, which a stream's own processes can't read."""
    if url.startswith("memory:"):
        raise InvalidRequest(
            f"{url} is in the memory of this process, which a stream's own processes can't reach; "
            "use a folder or a bucket"
        )
