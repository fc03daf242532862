"""`spark.readStream` and `df.writeStream` of an enabled session.

Reader and writer are Spark's own with `load` and `table`, `start` and `toTable` overridden: the
formats `delta` and `txlake` and the lake's names make streams of the lake (`lake.streams`). Spark
still handles triggers, query names and output modes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.lake.lake import LakeSession
from txlake.lake.micro_batches import OutputMode
from txlake.lake.streams import require_own_checkpoint, started, stream_of, table_sink
from txlake.lake.tables.enabled_sessions import end_transactions_per_batch, stream_start
from txlake.lake.tables.errors import refusal
from txlake.spark.spark_sessions import is_connect
from txlake.spark_integration.catalog import column_spec
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, NameKind, session_for
from txlake.spark_integration.option_recorders import FormatRecorder, SchemaRecorder, flatten_names
from txlake.spark_integration.options import (
    StreamWriterOptions,
    find_storage_options,
    is_lake_format,
    stream_reader_options,
    stream_writer_options,
    table_properties,
)
from txlake.spark_integration.overrides import with_overrides
from txlake.spark_integration.reading import one_path, with_schema
from txlake.spark_integration.table_references import parse_table, resolve_table
from txlake.sql.statements import CreateTable, Table, TableName
from txlake.storage import canonical_url
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader as _Reader
    from pyspark.sql.streaming.readwriter import DataStreamWriter as _Writer
else:
    _Reader = _Writer = object

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_CHECKPOINT = "checkpointLocation"
_MODES: dict[str, OutputMode] = {"append": "append", "complete": "complete"}


# --- reading -------------------------------------------------------------------------------------


class LakeStreamReader(SchemaRecorder, _Reader):
    """The methods of a stream's reader that a lake overrides; made by `reader`."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> Any:
        """Return the stream of the table at a path or of a name; Spark reads other formats.

        Raises as `Lake.read_stream`, and an AnalysisException for a view and for a schema that
        isn't the table's.
        """
        source = self._lake_format(format)
        if not is_lake_format(source):
            return super().load(path, format, schema, **options)
        self._lake_options.update(options)
        return self._lake_load(path, source, self._lake_schema if schema is None else schema)

    @with_spark_errors
    def _lake_load(
        self, path: str | None, source: str | None, schema: StructType | str | None
    ) -> DataFrame:
        """Return the stream of a table of the lake or at a path, as `load`."""
        binding = self._lake_binding
        with binding.fail_on_error():
            table = resolve_table(binding, one_path(path, self._lake_path()), source)
            _require_table(binding, table)
            frame = self._lake_stream(table)
        if schema is None:
            return frame
        return with_schema(frame, schema, "DELTA_READ_SOURCE_SCHEMA_CONFLICT")

    def table(self, tableName: str) -> Any:
        """Return the stream of a table of the lake or of Spark.

        Raises an AnalysisException for a view of the lake.
        """
        if not self._lake_owns(tableName):
            is_name = isinstance(tableName, str)
            return super().table(self._lake_binding.spark_name(tableName) if is_name else tableName)
        return self._lake_table(tableName)

    @with_spark_errors
    def _lake_owns(self, name: str) -> bool:
        """Return whether the lake makes the stream of a name.

        False for temporary views and for tables that only Spark has. A name that neither has is the
        lake's to refuse.
        """
        if not isinstance(name, str):
            return False  # Spark raises its own error
        binding = self._lake_binding
        with binding.fail_on_error():
            table = parse_table(name)
            if binding.is_temporary(table):
                return False
            return binding.kind_of(table) is not None or not binding.spark_has(table)

    @with_spark_errors
    def _lake_table(self, name: str) -> DataFrame:
        """Return the stream of a table of the lake.

        Raises an AnalysisException if there is none.
        """
        with self._lake_binding.fail_on_error():
            table = parse_table(name)
            _require_table(self._lake_binding, table)
            return self._lake_stream(table)

    def _lake_path(self) -> str | None:
        path = {key.lower(): value for key, value in self._lake_options.items()}.get("path")
        return None if path is None else str(path)

    def _lake_stream(self, table: Table) -> DataFrame:
        """Return the stream of a table, by the recorded options."""
        options = stream_reader_options(self._lake_options)
        storage = find_storage_options(self._lake_options)
        return stream_of(session_for(self._lake_binding, table, storage), table, options)


def _require_table(binding: LakeBinding, table: Table) -> None:
    """Raise an AnalysisException unless the lake has such a table: a view can't be streamed."""
    kind = binding.kind_of(table)
    if kind is NameKind.VIEW or (isinstance(table, TableName) and binding.is_planned_view(table)):
        raise refusal(
            "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
            f"{table} is a view of the lake, whose rows aren't a stream: read the stream of its "
            "table, and select from that",
        )
    if kind is None and isinstance(table, TableName):
        raise binding.not_found(table)


def reader(binding: LakeBinding, plain: Any) -> Any:
    """Return Spark's stream reader with the lake's `load` and `table`."""
    return with_overrides(
        plain,
        LakeStreamReader,
        _lake_binding=binding,
        _lake_source=None,
        _lake_options={},
        _lake_schema=None,
    )


# --- writing -------------------------------------------------------------------------------------


class LakeStreamWriter(FormatRecorder, _Writer):
    """The methods of a stream's writer that a lake overrides; made by `writer`."""

    _lake_rows: DataFrame
    _lake_partitions: tuple[str, ...] | None
    _lake_clusters: tuple[str, ...] | None
    _lake_mode: str
    _lake_name: str | None

    def outputMode(self, outputMode: str) -> Any:
        """Set which rows a micro-batch writes."""
        self._lake_mode = outputMode
        return super().outputMode(outputMode)

    def queryName(self, queryName: str) -> Any:
        """Set the query's name."""
        self._lake_name = queryName
        return super().queryName(queryName)

    def partitionBy(self, *cols: Any) -> Any:
        """Set the partition columns of a new table; passed to Spark when the query starts."""
        self._lake_partitions = flatten_names(cols)
        return self

    def clusterBy(self, *cols: Any) -> Any:
        """Set the clustering columns of a new table; passed to Spark when the query starts."""
        self._lake_clusters = flatten_names(cols)
        return self

    def foreach(self, f: Any) -> Any:
        """Set a function for each row, which Spark calls."""
        self._lake_source = "foreach"
        return super().foreach(f)

    def foreachBatch(self, func: Any) -> Any:
        """Set a function for each micro-batch, which Spark calls; its writes reach the lake.

        Its transactions end with the batch (`end_transactions_per_batch`), except with Spark
        Connect.
        """
        self._lake_source = "foreachBatch"
        if is_connect(self._lake_binding.spark) or not callable(func):
            return super().foreachBatch(func)
        return super().foreachBatch(end_transactions_per_batch(func))

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        """Start the query that writes the table at a path or of a name; Spark writes other formats.

        Raises as `Lake.write_stream`.
        """
        source = self._lake_format(format)
        self._lake_apply_arguments(outputMode, partitionBy, queryName, options)
        if not is_lake_format(source):
            self._lake_forward_partitions()
            with stream_start(self._lake_binding.spark, self._lake_binding.session):
                return super().start(path, format)
        return self._lake_start(path, source)

    @with_spark_errors
    def _lake_start(self, path: str | None, source: str | None) -> Any:
        """Start the query that writes a table of the lake or at a path.

        Raises an AnalysisException without a path, or with two.
        """
        with self._lake_binding.fail_on_error():
            options = stream_writer_options(self._lake_options)
            if path is not None and options.path is not None:
                raise refusal(
                    "_LEGACY_ERROR_TEMP_1188",
                    f"start({path!r}) has a path, and the option 'path' is {options.path!r}: leave "
                    "one of the two out",
                )
            target = options.path if path is None else path
            if not isinstance(target, str):
                raise InvalidRequest(
                    f"{source} needs the path of the table, or its name: start(path), or "
                    "toTable(name)"
                )
            return self._lake_query(resolve_table(self._lake_binding, target, source), options)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        """Start the query that writes a table by its name; create the table if there is none.

        Spark does so for its own tables and other formats. Raises as `Lake.write_stream`.
        """
        self._lake_apply_arguments(outputMode, partitionBy, queryName, options)
        if not self._lake_owns(tableName, format or self._lake_source):
            self._lake_forward_partitions()
            self._lake_forward_format()
            return super().toTable(self._lake_binding.spark_name(tableName), format)
        return self._lake_to_table(tableName)

    @with_spark_errors
    def _lake_owns(self, name: str, source: str | None) -> bool:
        """Return whether the lake writes the table of a name: it has it, or creates it.

        Raises an AnalysisException for the lake's table with another format.
        """
        binding = self._lake_binding
        table = parse_table(name)
        if isinstance(table, TableName) and not binding.may_be_in_lake(table):
            return False
        kind = binding.kind_of(table)
        if kind is not None and source is not None and not is_lake_format(source):
            raise refusal(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a {kind.value} of the lake, and {source} is the format of another; "
                "leave the format out, or choose another name",
            )
        if kind is not None or is_lake_format(source):
            return True
        return source is None and not binding.spark_has(table)

    @with_spark_errors
    def _lake_to_table(self, name: str) -> Any:
        """Start the query that writes a table of the lake, and create the table if there is none.

        Raises an AnalysisException for a temporary view, and as `require_creatable`.
        """
        table = parse_table(name)
        with self._lake_binding.fail_on_error():
            if self._lake_binding.is_temporary(table):
                raise refusal(
                    "_LEGACY_ERROR_TEMP_1190",
                    f"{table} is a temporary view, into which no stream is written: choose another "
                    "name, or drop the view",
                )
            self._lake_binding.require_creatable(table)
            return self._lake_query(
                table, stream_writer_options(self._lake_options), creates_table=True
            )

    def _lake_create_table(self, table: Table, path: str | None) -> None:
        """Create the table if there is none, at once, as Spark does before a query starts.

        Raises InvalidRequest for an existing table at another path than requested.
        """
        session = self._lake_binding.session
        handle = session.engine.find(table, session.database)
        if handle is None:
            columns = (column_spec(field) for field in self._lake_rows.schema)
            statement = CreateTable(
                table=table,
                columns=tuple(replace(column, nullable=True) for column in columns),
                partition_by=self._lake_partitions,
                cluster_by=self._lake_clusters,
                properties=table_properties(self._lake_options),
                location=path,
                mode="if_not_exists",
            )
            # Not in the program's own transaction: the query's transactions must see the table.
            session.carry_out(None, statement)
        elif path is not None and handle.store.url != canonical_url(path):
            raise InvalidRequest(
                f"{table} is at {handle.store.url}, not at {path}: leave the path out, or choose "
                "another name"
            )

    def _lake_query(
        self, table: Table, options: StreamWriterOptions, *, creates_table: bool = False
    ) -> Any:
        """Start the query that writes a table, after checking its checkpoint.

        With `creates_table` a missing table is created now, otherwise by the first micro-batch.
        Raises InvalidRequest for a view, the output mode `update`, no checkpoint, and as
        `require_own_checkpoint`.
        """
        binding = self._lake_binding
        if binding.kind_of(table) is NameKind.VIEW:
            raise refusal("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
        mode = _MODES.get(self._lake_mode.lower())
        if mode is None:
            raise refusal(
                "DELTA_UNSUPPORTED_OUTPUT_MODE",
                f"{table}: output mode {self._lake_mode!r}: expected 'append' or 'complete'; "
                "for 'update' use foreachBatch with a MERGE",
            )
        checkpoint = options.checkpoint or self._lake_default_checkpoint()
        self._lake_forward_option(_CHECKPOINT, checkpoint)
        require_own_checkpoint(binding.session, binding.spark, checkpoint, table)
        if creates_table:
            self._lake_create_table(table, options.path)
        sink = table_sink(
            binding.session,
            self._lake_rows,
            table,
            checkpoint=checkpoint,
            output_mode=mode,
            merge_schema=options.merge_schema,
            overwrite_schema=bool(options.overwrite_schema) and mode == "complete",
            partition_by=self._lake_partitions,
            cluster_by=self._lake_clusters,
            user_metadata=options.user_metadata,
        )
        # Spark gets a foreachBatch function instead; the writer may be started again afterwards.
        saved = self._lake_source, self._lake_partitions, self._lake_clusters
        self._lake_partitions = self._lake_clusters = None
        try:
            return started(LakeSession(binding.session), self, binding.spark, sink)
        finally:
            self._lake_source, self._lake_partitions, self._lake_clusters = saved

    def _lake_default_checkpoint(self) -> str:
        """Return a folder below Spark's setting for checkpoints of queries without their own.

        It has the query's name or else a new one. Raises InvalidRequest without the setting.
        """
        folder = self._lake_binding.spark.conf.get(_CHECKPOINTS, None)
        if not folder:
            raise InvalidRequest(
                f"{_CHECKPOINT} isn't given, and {_CHECKPOINTS} isn't set: say "
                f'.option("{_CHECKPOINT}", folder), one for each query'
            )
        return f"{folder.rstrip('/')}/{self._lake_name or System().new_id()}"

    def _lake_apply_arguments(
        self, mode: str | None, partitions: Any, name: str | None, options: dict[str, Any]
    ) -> None:
        """Apply arguments of `start` that are short for separate calls."""
        self.options(**options)
        if mode is not None:
            self.outputMode(mode)
        if partitions is not None:
            self.partitionBy(partitions)
        if name is not None:
            self.queryName(name)

    def _lake_forward_partitions(self) -> None:
        """Pass the partition and clustering columns to Spark's writer."""
        if self._lake_partitions is not None:
            super().partitionBy(*self._lake_partitions)
        if self._lake_clusters is not None:
            super().clusterBy(*self._lake_clusters)


def writer(binding: LakeBinding, rows: DataFrame, plain: Any) -> Any:
    """Return Spark's stream writer of the rows with the lake's methods."""
    return with_overrides(
        plain,
        LakeStreamWriter,
        _lake_binding=binding,
        _lake_rows=rows,
        _lake_source=None,
        _lake_options={},
        _lake_partitions=None,
        _lake_clusters=None,
        _lake_mode="append",
        _lake_name=None,
    )
