"""`spark.readStream` and `df.writeStream` of a session that was given to a lake.

Reader and writer are Spark's own with `load` and `table`, `start` and `toTable` in front: with the
formats `delta` and `txlake`, and with the lake's names, they are the lake's streams
(`lake.streams`). Triggers, names and output modes are told to Spark as ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.lake.lake import LakeSession
from txlake.lake.streams import OutputMode, require_own_checkpoint, started, stream_of, table_sink
from txlake.spark.spark_sessions import is_connect
from txlake.spark_integration.catalog import column_spec
from txlake.spark_integration.door import Door, Meaning, session_for
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.fronts import fronted
from txlake.spark_integration.given import FormatGiven, SchemaGiven, flat
from txlake.spark_integration.options import (
    SinkOptions,
    is_ours,
    sink_options,
    storage_in,
    stream_options,
    table_properties,
)
from txlake.spark_integration.places import at, named
from txlake.spark_integration.reading import one_place, with_schema
from txlake.statements import CreateTable, Table, TableName
from txlake.storage import canonical_url
from txlake.system import System
from txlake.tables.enabled import one_batch_each, starting
from txlake.tables.errors import refused

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader as _Reader
    from pyspark.sql.streaming.readwriter import DataStreamWriter as _Writer
else:
    _Reader = _Writer = object

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_CHECKPOINT = "checkpointLocation"
_MODES: dict[str, OutputMode] = {"append": "append", "complete": "complete"}


# --- reading -------------------------------------------------------------------------------------


class StreamReading(SchemaGiven, _Reader):
    """The part of a stream's reader that a lake has a say in; made by `reader`."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> Any:
        """The stream of the table at a path, or of a name."""
        source = self._lake_format(format)
        if not is_ours(source):
            return super().load(path, format, schema, **options)
        self._lake_given.update(options)
        return self._lake_load(path, source, self._lake_wanted if schema is None else schema)

    @as_spark
    def _lake_load(
        self, path: str | None, source: str | None, schema: StructType | str | None
    ) -> DataFrame:
        door = self._lake_door
        with door.asked():
            place = one_place(path, self._lake_path())
            table = at(door, place, source)
            _require_table(door, table)
            frame = self._lake_stream(table)
        if schema is None:
            return frame
        return with_schema(frame, schema, "DELTA_READ_SOURCE_SCHEMA_CONFLICT")

    def table(self, tableName: str) -> Any:
        """The stream of a table of the lake's, or of Spark's."""
        if not self._lake_has(tableName):
            is_name = isinstance(tableName, str)
            return super().table(self._lake_door.for_spark(tableName) if is_name else tableName)
        return self._lake_table(tableName)

    @as_spark
    def _lake_has(self, name: str) -> bool:
        if not isinstance(name, str):
            return False  # Spark says what it expects
        door = self._lake_door
        with door.asked():
            table = named(name)
            if door.is_temporary(table):
                return False
            return door.meaning(table) is not None or not door.spark_has(table)

    @as_spark
    def _lake_table(self, name: str) -> DataFrame:
        with self._lake_door.asked():
            table = named(name)
            _require_table(self._lake_door, table)
            return self._lake_stream(table)

    def _lake_path(self) -> str | None:
        found = {key.lower(): value for key, value in self._lake_given.items()}.get("path")
        return None if found is None else str(found)

    def _lake_stream(self, table: Table) -> DataFrame:
        options = stream_options(self._lake_given)
        storage = storage_in(self._lake_given)
        return stream_of(session_for(self._lake_door, table, storage), table, options)


def _require_table(door: Door, table: Table) -> None:
    """Raises an AnalysisException unless the lake has a table there: views aren't streams."""
    found = door.meaning(table)
    if found is Meaning.VIEW or (isinstance(table, TableName) and door.is_planned(table)):
        raise refused(
            "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
            f"{table} is a view of the lake, whose rows aren't a stream: read the stream of its "
            "table, and select from that",
        )
    if found is None and isinstance(table, TableName):
        raise door.unknown(table)


def reader(door: Door, plain: Any) -> Any:
    """Spark's stream reader with the lake's `load` and `table`."""
    return fronted(
        plain, StreamReading, _lake_door=door, _lake_source=None, _lake_given={}, _lake_wanted=None
    )


# --- writing -------------------------------------------------------------------------------------


class StreamWriting(FormatGiven, _Writer):
    """The part of a stream's writer that a lake has a say in; made by `writer`."""

    _lake_rows: DataFrame
    _lake_partitions: tuple[str, ...] | None
    _lake_clusters: tuple[str, ...] | None
    _lake_mode: str
    _lake_name: str | None

    def outputMode(self, outputMode: str) -> Any:
        """What a micro-batch writes."""
        self._lake_mode = outputMode
        return super().outputMode(outputMode)

    def queryName(self, queryName: str) -> Any:
        """The query's name."""
        self._lake_name = queryName
        return super().queryName(queryName)

    def partitionBy(self, *cols: Any) -> Any:
        """The partition columns of a table that is made; Spark's own sink isn't told yet."""
        self._lake_partitions = flat(cols)
        return self

    def clusterBy(self, *cols: Any) -> Any:
        """The clustering columns of a table that is made; Spark's own sink isn't told yet."""
        self._lake_clusters = flat(cols)
        return self

    def foreach(self, f: Any) -> Any:
        """A function a row, which is Spark's."""
        self._lake_source = "foreach"
        return super().foreach(f)

    def foreachBatch(self, func: Any) -> Any:
        """A function a micro-batch, which is Spark's: its writes find the lake by themselves."""
        self._lake_source = "foreachBatch"
        if is_connect(self._lake_door.spark) or not callable(func):
            return super().foreachBatch(func)
        return super().foreachBatch(one_batch_each(func))

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        """Starts the query that writes the table at a path, or of a name."""
        source = self._lake_format(format)
        self._lake_say(outputMode, partitionBy, queryName, options)
        if not is_ours(source):
            self._lake_tell_partitions()
            with starting(self._lake_door.spark, self._lake_door.session.database):
                return super().start(path, format)
        return self._lake_start(path, source)

    @as_spark
    def _lake_start(self, path: str | None, source: str | None) -> Any:
        with self._lake_door.asked():
            asked = sink_options(self._lake_given)
            if path is not None and asked.path is not None:
                raise refused(
                    "_LEGACY_ERROR_TEMP_1188",
                    f"start({path!r}) has a path, and the option 'path' is {asked.path!r}: leave "
                    "one of the two out",
                )
            place = asked.path if path is None else path
            if not isinstance(place, str):
                raise InvalidRequest(
                    f"{source} needs the path of the table, or its name: start(path), or "
                    "toTable(name)"
                )
            return self._lake_query(at(self._lake_door, place, source), asked)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        """Starts the query that writes a table by its name, which is made where there is none."""
        self._lake_say(outputMode, partitionBy, queryName, options)
        if not self._lake_has(tableName, format or self._lake_source):
            self._lake_tell_partitions()
            self._lake_tell_format()
            return super().toTable(self._lake_door.for_spark(tableName), format)
        return self._lake_to_table(tableName)

    @as_spark
    def _lake_has(self, name: str, source: str | None) -> bool:
        door = self._lake_door
        table = named(name)
        if isinstance(table, TableName) and not door.may_be_of_lake(table):
            return False
        found = door.meaning(table)
        if found is not None and source is not None and not is_ours(source):
            raise refused(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a {found.value} of the lake, and {source} is the format of another; "
                "leave the format out, or choose another name",
            )
        if found is not None or is_ours(source):
            return True
        return source is None and not door.spark_has(table)

    @as_spark
    def _lake_to_table(self, name: str) -> Any:
        table = named(name)
        with self._lake_door.asked():
            if self._lake_door.is_temporary(table):
                raise refused(
                    "_LEGACY_ERROR_TEMP_1190",
                    f"{table} is a temporary view, into which no stream is written: choose another "
                    "name, or drop the view",
                )
            self._lake_door.require_makeable(table)
            return self._lake_query(table, sink_options(self._lake_given), makes=True)

    def _lake_make(self, table: Table, path: str | None) -> None:
        """Makes the table where there is none, as Spark does before a query starts.

        Raises an AnalysisException for one that is there, at another path than is asked for.
        """
        session = self._lake_door.session
        found = session.engine.find(table, session.database)
        if found is None:
            columns = (column_spec(item) for item in self._lake_rows.schema)
            statement = CreateTable(
                table=table,
                columns=tuple(replace(one, nullable=True) for one in columns),
                partition_by=self._lake_partitions,
                cluster_by=self._lake_clusters,
                properties=table_properties(self._lake_given),
                location=path,
                mode="if_not_exists",
            )
            # Not in the program's own transaction: the query's must find it.
            session.carry_out(None, statement)
        elif path is not None and found.store.url != canonical_url(path):
            raise InvalidRequest(
                f"{table} is at {found.store.url}, not at {path}: leave the path out, or choose "
                "another name"
            )

    def _lake_query(self, table: Table, asked: SinkOptions, *, makes: bool = False) -> Any:
        door = self._lake_door
        if door.meaning(table) is Meaning.VIEW:
            raise refused("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
        mode = _MODES.get(self._lake_mode.lower())
        if mode is None:
            raise refused(
                "DELTA_UNSUPPORTED_OUTPUT_MODE",
                f"{table}: output mode {self._lake_mode!r}: expected 'append' or 'complete'; "
                "for 'update' use foreachBatch with a MERGE",
            )
        checkpoint = asked.checkpoint or self._lake_default_checkpoint()
        self._lake_tell_option(_CHECKPOINT, checkpoint)
        require_own_checkpoint(door.session, door.spark, checkpoint, table)
        if makes:
            self._lake_make(table, asked.path)
        sink = table_sink(
            door.session,
            self._lake_rows,
            table,
            checkpoint=checkpoint,
            output_mode=mode,
            merge_schema=asked.merge_schema,
            overwrite_schema=bool(asked.overwrite_schema) and mode == "complete",
            partition_by=self._lake_partitions,
            cluster_by=self._lake_clusters,
            user_metadata=asked.user_metadata,
        )
        # Spark is given a function; the writer stays as it is, and may be started again.
        kept = self._lake_source, self._lake_partitions, self._lake_clusters
        self._lake_partitions = self._lake_clusters = None
        try:
            return started(LakeSession(door.session), self, door.spark, sink)
        finally:
            self._lake_source, self._lake_partitions, self._lake_clusters = kept

    def _lake_default_checkpoint(self) -> str:
        """Where the session keeps the progress of queries that don't say where, as Spark has it."""
        folder = self._lake_door.spark.conf.get(_CHECKPOINTS, None)
        if not folder:
            raise InvalidRequest(
                f"{_CHECKPOINT} isn't given, and {_CHECKPOINTS} isn't set: say "
                f'.option("{_CHECKPOINT}", folder), one for each query'
            )
        return f"{folder.rstrip('/')}/{self._lake_name or System().new_id()}"

    def _lake_say(
        self, mode: str | None, partitions: Any, name: str | None, options: dict[str, Any]
    ) -> None:
        """Arguments of `start` that stand for calls before it."""
        self.options(**options)
        if mode is not None:
            self.outputMode(mode)
        if partitions is not None:
            self.partitionBy(partitions)
        if name is not None:
            self.queryName(name)

    def _lake_tell_partitions(self) -> None:
        if self._lake_partitions is not None:
            super().partitionBy(*self._lake_partitions)
        if self._lake_clusters is not None:
            super().clusterBy(*self._lake_clusters)


def writer(door: Door, rows: DataFrame, plain: Any) -> Any:
    """Spark's stream writer of these rows with the lake's ways out."""
    return fronted(
        plain,
        StreamWriting,
        _lake_door=door,
        _lake_rows=rows,
        _lake_source=None,
        _lake_given={},
        _lake_partitions=None,
        _lake_clusters=None,
        _lake_mode="append",
        _lake_name=None,
    )
