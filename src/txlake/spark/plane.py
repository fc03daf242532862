"""The data plane by Spark: implements `commit.data_plane` with sessions, frames and jobs.

Owns the Spark session, which is started or found on first use. The operations on a table's rows
have modules of their own.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.commit.data_plane import Rows, ScanLineage, TableData
from txlake.commit.identities import Identities, LocalIdentities
from txlake.commit.table_log import TableLog
from txlake.errors import InvalidRequest
from txlake.local import plain_rows
from txlake.local.caller_rows import as_arrow, schema_of
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.log.time_zones import TimeZone
from txlake.ports import Store, System
from txlake.protocol.partition_values import PartitionScalar, arrow_values, parse_value
from txlake.protocol.times import FarTime
from txlake.protocol.types import DataType, Field, Struct, to_arrow_type
from txlake.settings import Settings
from txlake.spark import (
    change_files,
    constants,
    dml,
    driver_frames,
    inserts,
    missing_files,
    rearranging,
    replacing,
    scan_lineage,
    sorting,
    view_columns,
    whole_partitions,
)
from txlake.spark import compact as compacting
from txlake.spark import merge as merging
from txlake.spark.manifest import Manifests
from txlake.spark.probe import SparkProbe
from txlake.spark.query_names import relations_in
from txlake.spark.reading import spark_url
from txlake.spark.session_rules import session_settings, text_rules
from txlake.spark.session_zones import session_zone
from txlake.spark.spark_errors import missing_table, spark_errors
from txlake.spark.spark_sessions import (
    active,
    create_frame,
    default_properties,
    is_connect,
    is_stopped,
)
from txlake.spark.table_access import TableAccess, plain_column
from txlake.spark.types import delta_schema, spark_schema, spark_type
from txlake.spark.writing import partition_text
from txlake.sql.statements import (
    ChangeRange,
    ComputedValues,
    Expression,
    NativeColumn,
    Reference,
    RelationName,
    TimeTravel,
    Values,
    ViewSchema,
)

_DEFAULT_PYTHON = "python3"
_GLOB_CHARACTER = re.compile(r"[{}\[\]*?\\]")
_CONSTANT_FRAMES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable(TableAccess):
    """Implements `TableData` by Spark."""

    delete = dml.delete
    update = dml.update
    append = inserts.append
    overwrite = inserts.overwrite
    overwrite_partitions = inserts.overwrite_partitions
    replace_where = inserts.replace_where
    replace_using = replacing.replace_using
    replace_on = replacing.replace_on
    write_changes = change_files.write_changes
    changed_rows = change_files.changed_rows
    differing_rows = change_files.differing_rows
    merge = merging.merge
    merge_read = merging.target_read
    compact = compacting.compact
    zorder = sorting.zorder
    cluster = sorting.cluster
    rewrite = compacting.rewrite
    rearranged = rearranging.rearranged
    files_of_partitions = whole_partitions.files_of_partitions
    plain_rows = plain_rows.plain_rows

    def few_rows(self, files: pa.Table, predicate: Predicate) -> DataFrame | None:
        return driver_frames.few_rows(self, files, predicate)

    def violating_row(self, condition: str) -> Mapping[str, object] | None:
        """Return a row for which the condition isn't true, as nested dicts; None where there is
        none.

        Runs a Spark job over the whole table.
        """
        frame = self.qualified(self.scan(self.snapshot.select(None)), None)
        rows = frame.where(~F.coalesce(F.expr(condition), F.lit(False))).limit(1).collect()
        return rows[0].asDict(recursive=True) if rows else None

    def to_frame(self, rows: Rows, names: Sequence[str]) -> DataFrame:
        """Return rows to write as a DataFrame; `names` are the columns of VALUES. Raises as
        `named_values`.
        """
        if isinstance(rows, Values | ComputedValues):
            rows = inserts.named_values(self, rows, names)
        return rows if isinstance(rows, DataFrame) else driver_frames.to_spark(self.spark, rows)

    def with_constants(self, frame: DataFrame, literals: Mapping[str, str]) -> DataFrame:
        """Return the rows with a column for each literal, as `TableData.with_constants`.

        Raises InvalidRequest for an unknown column.
        """
        for item, value in self._constants(literals):
            frame = frame.withColumn(item.name, value)
        return frame

    @spark_errors()
    def constants(self, literals: Mapping[str, str]) -> Mapping[str, PartitionScalar]:
        """Return the values that `with_constants` gives to partition columns, computed by Spark."""
        values = self._constants(literals)
        texts = [partition_text(value, item).alias(item.name) for item, value in values]
        row = self.spark.sql("SELECT 1").select(*texts).collect()[0]
        return {
            item.name: parse_value(text, item.type)
            for (item, _), text in zip(values, row, strict=True)
        }

    def _constants(self, literals: Mapping[str, str]) -> list[tuple[Field, Column]]:
        """Return the columns with their values.

        As in Spark's PARTITION clause, each literal becomes a text first, then the column's type.
        Raises InvalidRequest for an unknown column.
        """
        constants = []
        for name, literal in literals.items():
            item = self.snapshot.schema.find(name)
            if item is None:
                raise unknown_column(name, self.snapshot)
            constants.append((item, F.expr(literal).cast("string").cast(spark_type(item.type))))
        return constants


@dataclass(slots=True)
class _HeldSettings:
    """What was read of a session's settings.

    Attributes:
        settings: as `session_settings`; None before they are read.
        active: the active session, once `has_looked`.
    """

    settings: Mapping[str, str] | None = None
    rules: TextRules | None = None
    active: SparkSession | None = None
    has_looked: bool = False


class _Held(threading.local):
    """What a thread holds.

    Attributes:
        state: the settings in `settings_held`; None outside of it.
        on_spark: what a statement in `running` wants to be told; None outside of it.
    """

    state: _HeldSettings | None = None
    on_spark: Callable[[], None] | None = None


@dataclass(slots=True, kw_only=True)
class SparkPlane:
    """Implements `DataPlane` by Spark.

    Attributes:
        make_spark: returns the session when the first statement needs one.
        open_store: opens the store at a URL, with storage options.
        takes_active: whether `make_spark` returns the session that is active in this process, whose
            settings apply before a statement needs Spark.
        options_at: the storage options of a table at a URL, if each table has its own.
    """

    make_spark: Callable[[], SparkSession]
    system: System
    settings: Settings
    open_store: Callable[[str, Mapping[str, str]], Store]
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    takes_active: bool = True
    options_at: Callable[[str], Mapping[str, str]] | None = None
    _spark: SparkSession | None = None
    _manifests: Manifests | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # Held while Spark starts, for which what needs no Spark doesn't wait.
    _starting: threading.RLock = field(default_factory=threading.RLock)
    _constant_frames: dict[str, DataFrame] = field(default_factory=dict)
    _rules: TextRules = DEFAULT_RULES
    _held: _Held = field(default_factory=lambda: _Held())

    @property
    def spark(self) -> SparkSession:
        """The Spark session, made at the first use.

        Sets the interpreter of its Python workers, and installs the explanations of missing files.
        """
        if self._held.on_spark is not None:
            self._held.on_spark()
        if (spark := self._spark) is not None:
            return spark
        with self._starting:
            if (spark := self._spark) is None:
                spark = self.make_spark()
                use_this_python(spark)
                if not is_connect(spark):
                    missing_files.install_explanations()
                self._spark = spark
            return spark

    def in_session(self, spark: SparkSession) -> SparkPlane:
        """Return a plane for a clone of this plane's Spark session, `spark`.

        Both share the scan manifests, so only this plane is closed.
        """
        return replace(
            self,
            make_spark=lambda: spark,
            _spark=spark,
            _manifests=self._scratch_manifests(),
            _lock=threading.RLock(),
            _starting=threading.RLock(),
            _constant_frames={},
            _held=_Held(),
        )

    @property
    def time_zone(self) -> TimeZone:
        return session_zone(self.spark)

    @property
    def is_started(self) -> bool:
        return self._spark is not None

    @property
    def text_rules(self) -> TextRules:
        """How the session reads SQL text now; without a running session the last known rules, at
        first Spark's defaults.

        The session is the plane's own; before that is made, with `takes_active`, the one that is
        active. Raises InvalidRequest as `session_rules.rules_of`.
        """
        spark = self._present()
        if spark is None:
            return self._rules
        held = self._held.state
        if held is None or held.rules is None:
            with spark_errors():
                self._rules = rules = text_rules(spark, self._session_settings(spark))
            if held is None:
                return rules
            held.rules = rules
        return held.rules

    def _session_settings(self, spark: SparkSession) -> Mapping[str, str]:
        """Return the session's settings, as `session_settings`; they are read once in each
        `settings_held`.
        """
        held = self._held.state
        if held is None:
            return session_settings(spark)
        if held.settings is None:
            held.settings = session_settings(spark)
        return held.settings

    def _present(self) -> SparkSession | None:
        """Return the plane's session; before that is made, with `takes_active`, the active one;
        None for none, and if it was stopped.
        """
        spark = self._spark
        if spark is None and self.takes_active:
            spark = self._active_session()
        return None if spark is None or is_stopped(spark) else spark

    def _active_session(self) -> SparkSession | None:
        """Return the session that is active; in `settings_held` the one that was at first."""
        held = self._held.state
        if held is None:
            return SparkSession.getActiveSession()
        if not held.has_looked:
            held.active, held.has_looked = SparkSession.getActiveSession(), True
        return held.active

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this plane's session the thread's active one in the block; no-op without a running
        session.
        """
        spark = self._spark
        if spark is None or is_stopped(spark):
            yield
            return
        with active(spark):
            yield

    @contextmanager
    def running(self, on_spark: Callable[[], None]) -> Iterator[None]:
        outer = self._held.on_spark
        self._held.on_spark = on_spark
        try:
            with spark_errors(), self.active():
                yield
        finally:
            self._held.on_spark = outer

    def setting(self, key: str, default: str) -> str:
        """Return a setting of the session, or before that is made, with `takes_active`, of the
        active one; `default` where it is unset or empty, or there is no session.
        """
        spark = self._present()
        if spark is None:
            return default
        if self._held.state is not None and not is_connect(spark):
            return self._session_settings(spark).get(key) or default
        # No default argument: Spark would check it against the setting's type.
        return spark.conf.get(key, None) or default

    @contextmanager
    def settings_held(self) -> Iterator[None]:
        if self._held.state is not None:
            yield
            return
        self._held.state = _HeldSettings()
        try:
            yield
        finally:
            self._held.state = None

    def forget_settings(self) -> None:
        if self._held.state is not None:
            self._held.state = _HeldSettings()

    def table_defaults(self) -> Mapping[str, str]:
        spark = self._spark
        return {} if spark is None else default_properties(spark)

    def close(self) -> None:
        """Remove the remaining scan manifests; Spark goes on."""
        with self._lock:
            if self._manifests is not None:
                self._manifests.close()

    def table(
        self,
        snapshot: Snapshot,
        store: Store,
        *,
        system: System,
        name: str | None,
        allowed: Callable[[], Iterable[str]],
        column_of: Callable[[Expression], Column] | None = None,
        identities: Identities | None = None,
        rules: TextRules | None = None,
    ) -> SparkTable:
        """Return a table as it was at a snapshot (`DataPlane.table`); doesn't start Spark."""
        return SparkTable(
            start=lambda: self.spark,
            manifests=self._scratch_manifests(),
            system=system,
            settings=self.settings,
            snapshot=snapshot.in_zone(lambda: self.time_zone),
            store=store,
            storage_options=self._options_at(store.url),
            allowed=allowed,
            column_of=column_of or plain_column,
            name=name,
            identities=identities or LocalIdentities(),
            rules=self.text_rules if rules is None else rules,
        )

    def _options_at(self, url: str) -> Mapping[str, str]:
        return self.storage_options if self.options_at is None else self.options_at(url)

    def _scratch_manifests(self) -> Manifests:
        """Return where scan manifests are written, made at the first call."""
        with self._lock:
            if self._manifests is None:
                scratch = self.settings.scratch_url
                store = None if scratch is None else self.open_store(scratch, self.storage_options)
                self._manifests = Manifests(self.system, store)
            return self._manifests

    def row_probe(self, table: Callable[[], TableData]) -> SparkProbe:
        return SparkProbe(lambda: table() if self.is_started else None, self.active)

    def record_read(self, log: TableLog, version: int) -> None:
        missing_files.record_read(log, version)

    def with_lineage(self, frame: DataFrame, lineage: ScanLineage) -> DataFrame:
        return scan_lineage.with_lineage(frame, lineage)

    def column(self, expression: Expression, view: Callable[[Reference], str | None]) -> Column:
        """Return the column of an expression.

        `view` returns the view that replaces a table named in it, None if none does.
        """
        if isinstance(expression, NativeColumn):
            return plain_column(expression)
        return F.expr(expression.rewritten(view))

    def timestamp_ms(self, travel: TimeTravel) -> int:
        return constants.timestamp_ms(travel, lambda: self.time_zone, lambda: self.spark)

    def constant_range(self, requested: ChangeRange) -> ChangeRange:
        return constants.constant_range(requested, lambda: self.spark)

    def type_of(self, text: str, schema: Struct) -> DataType:
        """Return the type of an expression over columns of a schema, as Spark analyses it.

        Raises InvalidRequest with Spark's reason for an expression that it refuses.
        """
        empty = create_frame(self.spark, [], spark_schema(schema))
        try:
            result = empty.select(F.expr(text).alias("value"))
            return delta_schema(result.schema).fields[0].type
        except (AnalysisException, ParseException) as error:
            reason = str(error).splitlines()[0]
            raise InvalidRequest(f"expression {text!r}: {reason}") from error

    def relations(self, text: str) -> tuple[RelationName, ...] | None:
        return relations_in(self.spark, text)

    def query(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        return self.spark.sql(text, args=None, **frames) if frames else self.spark.sql(text)

    def make_view(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)

    def drop_view(self, name: str) -> None:
        with spark_errors():
            self.spark.catalog.dropTempView(name)

    def spark_relation(self, name: str) -> DataFrame | None:
        """Return what Spark itself has by a name, as SQL text; None if there is nothing."""
        try:
            frame = self.spark.table(name)
            _ = frame.schema  # Connect resolves the name only now
        except AnalysisException:
            return None
        return frame

    def temporary_views(self, names: Collection[str] | None = None) -> Collection[str]:
        spark = self._present()
        if spark is None:
            return ()
        with spark_errors():
            return temporary_views(spark, names)

    def reads_view(self, frame: DataFrame, mark: str) -> bool:
        return scan_lineage.reads_view(frame, mark)

    def with_view_columns(self, view: str, frame: DataFrame, schema: ViewSchema) -> DataFrame:
        return view_columns.with_view_columns(lambda: self.spark, view, frame, schema)

    def missing_table(self, error: BaseException) -> tuple[str, ...] | None:
        return missing_table(error)

    def files(self, file_format: str, options: Mapping[str, str], urls: Sequence[str]) -> DataFrame:
        reader = self.spark.read.format(file_format.lower()).options(**options)
        return reader.load([_escaped_path(url) for url in urls])

    def caller_rows(self, frame: object) -> DataFrame | pa.Table:
        """Return the rows of a caller's frame: Arrow for pandas, pyarrow and polars, or Spark's
        frame itself.

        Raises InvalidRequest for any other object.
        """
        table = as_arrow(frame)
        if table is not None:
            return table
        if isinstance(frame, DataFrame):
            use_this_python(frame.sparkSession)
            return frame
        raise InvalidRequest(
            f"expected a DataFrame of Spark, pandas, pyarrow or polars, "
            f"found {type(frame).__module__}.{type(frame).__qualname__}"
        )

    @spark_errors()
    def frame(self, schema: Struct, rows: Sequence[tuple[object, ...]]) -> DataFrame:
        """Return rows of a given schema as a Spark frame; times beyond Python's range pass as
        FarTime.
        """
        if not any(isinstance(value, FarTime) for row in rows for value in row):
            return create_frame(self.spark, list(rows), spark_schema(schema))
        columns = [
            arrow_values(values, to_arrow_type(item.type))
            for item, values in zip(schema, zip(*rows, strict=True), strict=True)
        ]
        table = pa.Table.from_arrays(columns, names=list(schema.names))
        return create_frame(self.spark, table, spark_schema(schema))

    def schema_of(self, rows: DataFrame | pa.Table) -> Struct:
        return schema_of(rows) if isinstance(rows, pa.Table) else delta_schema(rows.schema)

    @spark_errors()
    def counts(self, counts: Mapping[str, int]) -> DataFrame:
        """Return one row of counts, which needs no Spark job."""
        columns = (f"CAST({count} AS BIGINT) AS {name}" for name, count in counts.items())
        return self._constant_frame(f"SELECT {', '.join(columns)}")

    @spark_errors()
    def nothing(self) -> DataFrame:
        return self._constant_frame("SELECT 1 WHERE false", with_columns=False)

    def _constant_frame(self, query: str, *, with_columns: bool = True) -> DataFrame:
        """Return the result of a query without tables, cached to save round trips to Spark.

        Without `with_columns` the rows have no columns.
        """
        cached = self._constant_frames.get(query)
        if cached is None:
            spark = self.spark
            frame = spark.sql(query)
            cached = frame if with_columns else frame.select()
            with self._lock:
                # Spark may have been ended since, and its frames with it.
                is_current = self._spark is spark
                if is_current and len(self._constant_frames) < _CONSTANT_FRAMES_MAX:
                    self._constant_frames[query] = cached
        return cached


def _escaped_path(url: str) -> str:
    """Return the path of a file for Spark's readers: decoded, its glob characters escaped."""
    return _GLOB_CHARACTER.sub(r"\\\g<0>", unquote(spark_url(url)))


def use_this_python(spark: SparkSession) -> None:
    """Let a local Spark run Python workers with this interpreter, unless another is configured.

    PySpark's default is the `python3` of the PATH, which outside an activated environment lacks
    pyarrow.
    """
    if is_connect(spark):
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local") and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable


def temporary_views(spark: SparkSession, names: Collection[str] | None = None) -> Collection[str]:
    """Return the names of a session's temporary views, as `DataPlane.temporary_views` does.

    Raises Spark's own errors.
    """
    # Not `catalog.listTables`: without generated code Spark can't decode its rows.
    pattern = ""
    if names is not None and all(name.isidentifier() for name in names):
        pattern = f" LIKE '{'|'.join(names)}'"  # no other name can stand in a pattern
    rows = spark.sql(f"SHOW TABLES{pattern}").collect()
    view_names = [row["tableName"] for row in rows if row["isTemporary"]]
    if names is None:
        return view_names
    lower_names = {name.lower() for name in names}
    return [name for name in view_names if name.lower() in lower_names]
