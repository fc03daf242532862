"""`DeltaTable`: delta-spark's Python API over txlake's statements.

Every method builds a statement and hands it to an executor; the session implements statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as replace_fields

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.lake.tables.arguments import require_type, with_absolute_path
from txlake.lake.tables.branch import TableBranch
from txlake.lake.tables.builder import DeltaTableBuilder
from txlake.lake.tables.errors import (
    ArgumentTypeRefused,
    ArgumentValueRefused,
    raise_parse_error,
    raises_delta_spark_errors,
    refusal,
    unsupported_error,
)
from txlake.lake.tables.executor import Executor, executor_of, lake_executor, missing_table_message
from txlake.lake.tables.expressions import (
    ColumnMapping,
    Parts,
    assignments_of,
    column_path,
    condition_of,
    resolve_assignments,
)
from txlake.lake.tables.hadoop import storage_options
from txlake.lake.tables.merge import DeltaMergeBuilder, MergeTarget
from txlake.lake.tables.optimize import DeltaOptimizeBuilder
from txlake.lake.tables.spark_catalog import catalog_entry, create_named, has_delta_catalog
from txlake.protocol.branching import branch_place
from txlake.protocol.type_text import parse_columns, short_text
from txlake.session import Session
from txlake.session.views.notebook import card, card_or_error
from txlake.spark.spark_sessions import create_frame
from txlake.sql.references import Scope
from txlake.sql.statements import (
    AddFeature,
    Clone,
    ConvertTable,
    ConvertToDelta,
    CreateBranch,
    CreateMode,
    Delete,
    DescribeDetail,
    DescribeHistory,
    DropFeature,
    Generate,
    Optimize,
    Restore,
    ShowBranches,
    Table,
    TableName,
    TablePath,
    TimeTravel,
    Update,
    UpgradeProtocol,
    Vacuum,
    is_place,
    table_of,
)
from txlake.sql.statements.branches import branch_name


class DeltaTable:
    """A Delta table: its rows, its history, and operations on them.

    Conditions and values are SQL texts or PySpark columns. Errors are txlake's and PySpark's at
    once (`AnalysisException` and others); a conflict with another writer raises one of
    `txlake.errors.Conflict`.
    """

    def __init__(
        self,
        executor: Executor,
        table: Table,
        *,
        alias: str | None = None,
        name: TableName | None = None,
    ) -> None:
        """Make a table; called by `forPath`, `forName` and lakes.

        Args:
            alias: the qualifier of the columns in expressions.
            name: the name by which the table was found, if `table` is its location.
        """
        self._executor = executor
        self._table = with_absolute_path(table)
        self._alias = alias
        self._name = table if isinstance(table, TableName) else name

    def __repr__(self) -> str:
        return f"DeltaTable({self._name or self._table})"

    def _repr_html_(self) -> str:
        return card_or_error(repr(self), self._html)

    def _html(self) -> str:
        """Return HTML with the table's facts and columns; only its name in a transaction."""
        snapshot = self._executor.glance(self._table)
        if snapshot is None:
            return card(repr(self), ())
        facts = [
            ("version", snapshot.version),
            ("files", f"{len(snapshot.files):,}"),
            ("partitioned by", ", ".join(snapshot.partition_columns) or None),
            ("comment", snapshot.metadata.description),
        ]
        columns = [(item.name, short_text(item.type)) for item in snapshot.schema]
        return card(repr(self), facts, ("column", "type"), columns)

    # --- lookup -------------------------------------------------------------------------------

    @classmethod
    @raises_delta_spark_errors
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str,
        hadoopConf: Mapping[str, str] = {},
    ) -> DeltaTable:
        """Return the table at a path or URL.

        Args:
            hadoopConf: Hadoop's settings of file systems, keys `fs.` and `dfs.`; credentials and
                endpoints among them are used for the log, the others only by Spark.

        Raises an AnalysisException if there is no Delta table, a ValueError for other settings or
        arguments of another type.
        """
        executor = _executor(sparkSession, storage_options(hadoopConf))
        table = TablePath(require_type(path, str, "path"))
        _require(executor, table)
        return cls(executor, table)

    @classmethod
    @raises_delta_spark_errors
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """Return a named table, of the session's own catalog if it knows Delta, else of the lake.

        The lake is the one that is open in the Spark session, and the table is what `lake.table`
        returns. ``delta.`/path` `` is the table at that path. Raises an AnalysisException for a
        view, if the table doesn't exist or isn't a Delta table, and if several lakes are open.
        """
        executor = _executor(sparkSession)
        table = _named(tableOrViewName)
        if isinstance(table, TableName) and not has_delta_catalog(sparkSession, table):
            executor = lake_executor(executor)
            _require(executor, table)
            return cls(executor, table)
        if isinstance(table, TablePath):
            _require(executor, table)
            return cls(executor, table)
        entry = catalog_entry(sparkSession, table)
        if entry is None or not entry.is_delta or entry.location is None:
            raise _missing_table(executor, table)
        place = TablePath(entry.location)
        _require(executor, place)
        return cls(executor, place, name=table)

    @classmethod
    @raises_delta_spark_errors
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Return whether a path or URL is the root of a Delta table.

        Raises an AnalysisException for an invalid location, a ValueError for another type.
        """
        return _executor(sparkSession).exists(
            TablePath(require_type(identifier, str, "identifier"))
        )

    # --- creation -----------------------------------------------------------------------------

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder for a new table, which must not exist yet.

        Raises a ValueError if no Spark session is given or active.
        """
        return cls._builder(sparkSession, "create")

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder for a new table; an existing one is kept. Raises as `create`."""
        return cls._builder(sparkSession, "if_not_exists")

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder that replaces a table, which must exist. Raises as `create`."""
        return cls._builder(sparkSession, "replace")

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder that creates a table or replaces it. Raises as `create`."""
        return cls._builder(sparkSession, "or_replace")

    @classmethod
    @raises_delta_spark_errors
    def _builder(cls, spark: SparkSession | None, mode: CreateMode) -> DeltaTableBuilder:
        """Return a builder for a mode. Raises a ValueError if no Spark session is given and none
        active.
        """
        executor = _executor(spark or SparkSession.getActiveSession())

        def open_table(executor: Executor, table: Table, name: TableName | None) -> DeltaTable:
            return cls(executor, table, name=name)

        return DeltaTableBuilder(executor, mode, open_table)

    @classmethod
    @raises_delta_spark_errors
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Convert a folder of Parquet files to a Delta table, in place.

        Args:
            identifier: ``parquet.`/path` ``; in a lake also the name of a Parquet table of Spark's
                own catalog. A Delta table, ``delta.`/path` ``, stays as it is.
            partitionSchema: the partition columns, as DDL (`"day date"`) or as a schema.

        Raises an AnalysisException for a folder without Parquet files, or with files or folders
        that don't fit together; an UnsupportedOperationException for other formats; a
        ParseException for a text that is no schema; a ValueError or TypeError for arguments of
        another type.
        """
        executor = _executor(sparkSession)
        parts = column_path(require_type(identifier, str, "identifier"))
        if len(parts) == 2 and parts[0].lower() == "delta":
            return cls.forPath(sparkSession, parts[1])
        columns = _partition_columns(partitionSchema)
        if len(parts) == 2 and parts[0].lower() == "parquet":
            executor.execute(ConvertToDelta(location=parts[1], partition_columns=columns))
            return cls(executor, TablePath(parts[1]))
        executor = lake_executor(executor)
        has_names = not isinstance(executor, Session) or executor.engine.warehouse is not None
        if is_place(parts[-1]) or not has_names:
            raise unsupported_error(
                "DELTA_MISSING_PROVIDER_FOR_CONVERT",
                f"{identifier}: only folders of Parquet files are converted, and in a lake the "
                "Parquet tables of Spark's own catalog; expected parquet.`/path`",
            )
        table = TableName(parts)
        executor.execute(ConvertTable(table=table, partition_columns=columns))
        return cls(executor, table)

    @raises_delta_spark_errors
    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table to another path or name.

        Args:
            isShallow: the copy refers to this table's files instead of copying them.
            replace: replace an existing table.
            properties: properties of the copy, in addition to the table's own.

        Raises an AnalysisException if the target exists and `replace` isn't given, if it is neither
        a name nor an absolute path or URL, and for an invalid property; a Conflict with a
        concurrent commit; a ValueError for arguments of another type.
        """
        return self._clone(None, target, isShallow, replace, properties)

    @raises_delta_spark_errors
    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table as of a version to another path or name; the arguments are `clone`'s.

        Raises an AnalysisException if the version doesn't exist, and as `clone`.
        """
        travel = TimeTravel(version=require_type(version, int, "version"))
        return self._clone(travel, target, isShallow, replace, properties)

    @raises_delta_spark_errors
    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table as of a time to another path or name; the arguments are `clone`'s.

        Raises an AnalysisException if there is no version of that time, and as `clone`.
        """
        travel = TimeTravel(timestamp=require_type(timestamp, str, "timestamp"))
        return self._clone(travel, target, isShallow, replace, properties)

    # --- rows ---------------------------------------------------------------------------------

    @raises_delta_spark_errors
    def toDF(self) -> DataFrame:
        """Return the table's rows; columns may be qualified by the alias, or by the table's name.

        Raises an AnalysisException if the table no longer exists, an UnsupportedOperationException
        for one that txlake doesn't read.
        """
        frame = self._executor.frame(self._table)
        names = self._names
        return frame.alias(names[-1]) if names else frame

    def alias(self, aliasName: str) -> DeltaTable:
        """Return this table under another name, for expressions.

        Raises a ValueError for a name that isn't text.
        """
        return DeltaTable(
            self._executor,
            self._table,
            alias=require_type(aliasName, str, "aliasName"),
            name=self._name,
        )

    @raises_delta_spark_errors
    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which the condition is true; all rows without a condition.

        Raises a Conflict with a concurrent commit, an AnalysisException for a text that is no
        condition or names a column that doesn't exist, a TypeError for what is neither text nor
        Column, an UnsupportedOperationException for a table that txlake doesn't write.
        """
        expression = condition_of(condition, self._scope)
        self._executor.perform(
            Delete(table=self._table, alias=self._qualifier, condition=expression)
        )

    @raises_delta_spark_errors
    def update(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> None:
        """Set columns in the rows for which the condition is true, or in all rows.

        Args:
            set: the new value of each column that changes; required.

        Raises a ValueError without `set`, an AnalysisException for a column that doesn't exist or
        is assigned twice and for rows that violate a constraint, and as `delete`.
        """
        assignments = assignments_of(set, self._scope, "'set'")
        expression = condition_of(condition, self._scope)
        columns = self._executor.snapshot(self._table).schema.names
        self._executor.perform(
            Update(
                table=self._table,
                alias=self._qualifier,
                assignments=resolve_assignments(assignments, self._names, columns),
                condition=expression,
            )
        )

    @raises_delta_spark_errors
    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Return a builder for a MERGE of the source's rows into this table.

        Raises a ValueError if either argument is None, a TypeError for another type, a
        ParseException for an empty text or one that ends within a quotation.
        """
        if source is None:
            raise ArgumentValueRefused("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise ArgumentTypeRefused(
                f"Type of 'source' in merge must be DataFrame, found {type(source)}"
            )
        expression = condition_of(condition, self._scope)
        if expression is None:
            raise ArgumentValueRefused("'condition' in merge cannot be None")
        target = MergeTarget(
            executor=self._executor,
            table=self._table,
            alias=self._qualifier,
            names=self._names,
            scope=self._scope,
        )
        return DeltaMergeBuilder(target, source, expression)

    # --- branches -----------------------------------------------------------------------------

    @raises_delta_spark_errors
    def branch(self, name: str, create: bool = False) -> TableBranch:
        """Return a branch of the table, for work that readers see once it is published.

        Args:
            create: create it, from the table's newest version. The table gets the table feature
                `tableBranching-dev`, so that writers that don't know branches refuse it.

        Raises an AnalysisException for a table that has a name in a lake (`lake.branch` is for
        those), if there is no such branch, or there is one already with `create`; a ValueError for
        arguments of another type.
        """
        name = branch_name(require_type(name, str, "name"))
        if not isinstance(self._table, TablePath):
            raise InvalidRequest(
                f"{self._table}: the branches of a lake have all of its tables: use lake.branch"
            )
        if create:
            self._executor.perform(CreateBranch(name=name, table=self._table))
        place = TablePath(branch_place(self._table.location, name))
        self._executor.snapshot(place)
        opened = DeltaTable(self._executor, place, alias=self._alias)
        return TableBranch(self._executor, self._table, name, opened)

    @raises_delta_spark_errors
    def branches(self) -> DataFrame:
        """Return the table's open branches, as `SHOW BRANCHES FOR TABLE`.

        Raises an AnalysisException for a table that has a name in a lake.
        """
        return self._executor.execute(ShowBranches(table=self._table))

    # --- history and maintenance --------------------------------------------------------------

    @raises_delta_spark_errors
    def history(self, limit: int | None = None) -> DataFrame:
        """Return the table's commits, newest first.

        Raises an AnalysisException for a limit below 1, a ValueError for one of another type.
        """
        if limit is not None:
            require_type(limit, int, "limit")
        return self._executor.execute(DescribeHistory(self._table, limit))

    @raises_delta_spark_errors
    def detail(self) -> DataFrame:
        """Return one row of facts about the table: format, id, location, size, protocol, ...

        Raises an AnalysisException if the table no longer exists.
        """
        return self._executor.execute(DescribeDetail(self._table))

    @raises_delta_spark_errors
    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no version within the retention needs. Returns an empty DataFrame.

        Args:
            retentionHours: defaults to the table's own setting, else 168 hours.

        Raises an AnalysisException for a shorter retention, unless Spark's session has turned the
        check off; an UnsupportedOperationException for a table that txlake doesn't write; a
        ValueError or TypeError for what is no number.
        """
        hours = None if retentionHours is None else float(retentionHours)
        self._executor.execute(Vacuum(table=self._table, retain_hours=hours))
        return create_frame(self._executor.spark, [], StructType([]))

    @raises_delta_spark_errors
    def optimize(self) -> DeltaOptimizeBuilder:
        """Return a builder for rewriting the table's files."""
        return DeltaOptimizeBuilder(self._executor, Optimize(table=self._table))

    @raises_delta_spark_errors
    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to an earlier version, as a new version. Returns the metrics.

        Raises an AnalysisException if the version doesn't exist or VACUUM has removed its files; a
        Conflict with a concurrent commit; a ValueError for another type.
        """
        travel = TimeTravel(version=require_type(version, int, "version"))
        return self._executor.execute(Restore(self._table, travel))

    @raises_delta_spark_errors
    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the table to its state at a time (`2026-01-31 12:00:00`). Returns the metrics.

        Raises an AnalysisException for a text that is no time, and as `restoreToVersion`.
        """
        travel = TimeTravel(timestamp=require_type(timestamp, str, "timestamp"))
        return self._executor.execute(Restore(self._table, travel))

    @raises_delta_spark_errors
    def generate(self, mode: str) -> None:
        """Write manifests for other readers; `symlink_format_manifest` is the only mode.

        Raises an AnalysisException for another mode, and for a table that a list of files can't
        describe: with deletion vectors, or column mapping; a ValueError for another type.
        """
        self._executor.execute(Generate(self._table, require_type(mode, str, "mode")))

    # --- protocol -----------------------------------------------------------------------------

    @raises_delta_spark_errors
    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the protocol's versions; versions below the table's change nothing.

        Raises an AnalysisException for versions that don't exist, a Conflict with a concurrent
        commit, a ValueError for another type.
        """
        for name, value in (("readerVersion", readerVersion), ("writerVersion", writerVersion)):
            if not isinstance(value, int):
                raise ArgumentValueRefused(
                    f"The {name} needs to be an integer but got '{type(value)}'."
                )
        self._executor.execute(UpgradeProtocol(self._table, readerVersion, writerVersion))

    @raises_delta_spark_errors
    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature to the protocol.

        Raises an AnalysisException or an UnsupportedOperationException for a feature that txlake
        doesn't write, a Conflict with a concurrent commit, a ValueError for another type.
        """
        self._executor.execute(
            AddFeature(self._table, require_type(featureName, str, "featureName"))
        )

    @raises_delta_spark_errors
    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Remove a table feature from the protocol, and first its traces from the table.

        Files that use the feature are rewritten, in commits of their own.

        Args:
            truncateHistory: True deletes the versions whose readers have to know the feature.
                Without it they stay readable, and the table gets the feature checkpointProtection.

        Raises an AnalysisException for a feature that the table doesn't have or that can't be
        dropped, for `truncateHistory` if the feature leaves nothing in the history, and while
        versions to delete are younger than `delta.dropFeatureTruncateHistory.retentionDuration`; a
        Conflict with a concurrent commit; a ValueError for arguments of another type.
        """
        feature = require_type(featureName, str, "featureName")
        truncate = (
            False
            if truncateHistory is None
            else require_type(truncateHistory, bool, "truncateHistory")
        )
        self._executor.execute(DropFeature(self._table, feature, truncate))

    # --- names --------------------------------------------------------------------------------

    @property
    def _names(self) -> Parts:
        """The table's name in expressions: its alias, or else its name."""
        if self._alias is not None:
            return (self._alias,)
        return () if self._name is None else self._name.parts

    @property
    def _qualifier(self) -> str | None:
        names = self._names
        return names[-1] if names else None

    @property
    def _scope(self) -> Scope:
        names = self._names
        return tuple((TableName(names[start:]), names[-1]) for start in range(len(names) - 1))

    def _clone(
        self,
        travel: TimeTravel | None,
        target: str,
        is_shallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
    ) -> DeltaTable:
        """Copy the table, at a version or time if given, to another path or name. Raises as
        `clone`.
        """
        place = require_type(target, str, "target")
        statement = Clone(
            table=TablePath(place),
            source=self._table,
            travel=travel,
            shallow=require_type(is_shallow, bool, "isShallow"),
            mode="or_replace" if require_type(replace, bool, "replace") else "create",
            properties=_properties(properties),
        )

        def write(table: TablePath, mode: CreateMode) -> None:
            self._executor.execute(replace_fields(statement, table=table, mode=mode))

        executor = self._executor
        table = _named(place)
        if isinstance(table, TableName):
            spark = executor.spark
            if has_delta_catalog(spark, table):
                location = create_named(spark, table, None, statement.mode, write)
                return DeltaTable(self._executor, location, name=table)
            executor = lake_executor(executor)
        elif not _is_absolute(table.location):
            raise refusal(
                "DELTA_INVALID_CLONE_PATH",
                f"the target of a clone is an absolute path, a URL or a table's name, "
                f"found {target!r}",
            )
        executor.execute(replace_fields(statement, table=table))
        return DeltaTable(executor, table)


def _executor(
    spark: SparkSession | None, storage_options: Mapping[str, str] | None = None
) -> Executor:
    """Return the session for a Spark session. Raises a ValueError for None."""
    if spark is None:
        raise ArgumentValueRefused("no SparkSession was given and none is active; pass the session")
    return executor_of(spark, storage_options)


def _named(text: str) -> Table:
    """Return the table of a name or path. Raises a ParseException for any other text.

    Raises a ValueError for another type.
    """
    try:
        return table_of(require_type(text, str, "the table's name"))
    except InvalidRequest as error:
        raise_parse_error(error)


def _require(executor: Executor, table: Table) -> None:
    """Raise an AnalysisException unless the table exists."""
    if not executor.exists(table):
        raise _missing_table(executor, table)


def _missing_table(executor: Executor, table: Table) -> InvalidRequest:
    return refusal("DELTA_MISSING_DELTA_TABLE", missing_table_message(executor, table))


def _is_absolute(location: str) -> bool:
    return location.startswith("/") or (":" in location and is_place(location))


def _properties(properties: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return properties as pairs. Raises a ValueError for keys or values that aren't text."""
    if properties is None:
        return ()
    return tuple(
        (
            require_type(key, str, f"All property keys including {key}"),
            require_type(value, str, f"All property values including {value}"),
        )
        for key, value in require_type(properties, dict, "properties").items()
    )


def _partition_columns(schema: str | StructType | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of names and types, empty for None.

    Raises a ParseException for a text that is no schema, a TypeError for another type.
    """
    if schema is None:
        return ()
    if isinstance(schema, StructType):
        return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)
    if not isinstance(schema, str):
        raise ArgumentTypeRefused(
            f"partitionSchema must be str or StructType, found {schema!r} of type {type(schema)}"
        )
    try:
        fields = parse_columns(schema)
    except InvalidRequest as error:
        raise_parse_error(error)
    return tuple((field.name, short_text(field.type)) for field in fields)
