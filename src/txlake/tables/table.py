"""`DeltaTable`: delta-spark's Python API over the statements of txlake.

Every method builds a statement and hands it to an executor; what a statement does is the session's
business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.protocol.type_text import parse_columns, short_text
from txlake.session import Session
from txlake.sql.references import Scope
from txlake.statements import (
    AddFeature,
    Clone,
    ConvertTable,
    ConvertToDelta,
    CreateMode,
    Delete,
    DescribeDetail,
    DescribeHistory,
    DropFeature,
    Generate,
    Optimize,
    Restore,
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
from txlake.tables.arguments import checked, settled
from txlake.tables.builder import DeltaTableBuilder
from txlake.tables.errors import (
    ArgumentTypeRefused,
    ArgumentValueRefused,
    as_delta_spark,
    refuse_text,
    refused,
    unsupported,
)
from txlake.tables.executor import Executor, executor_for, knowing_names, missing
from txlake.tables.expressions import (
    ColumnMapping,
    Parts,
    assignments_of,
    column_path,
    condition_of,
    resolved,
)
from txlake.tables.hadoop import storage_options
from txlake.tables.merge import DeltaMergeBuilder, Target
from txlake.tables.optimize import DeltaOptimizeBuilder
from txlake.tables.spark_catalog import create_named, entry_of, knows_delta
from txlake.views.notebook import card, card_or_error


class DeltaTable:
    """A Delta table: its rows, its history, and what can be done to them.

    Conditions and values are SQL texts or PySpark columns. What can't be done raises errors that
    are txlake's and PySpark's at once (`AnalysisException` and its like); a conflict with another
    writer raises one of `txlake.errors.Conflict`.
    """

    def __init__(
        self,
        executor: Executor,
        table: Table,
        *,
        alias: str | None = None,
        name: TableName | None = None,
    ) -> None:
        """For `forPath`, `forName` and lakes to call.

        Args:
            alias: what qualifies the columns in expressions.
            name: the name that the table was found by, when `table` is its place.
        """
        self._executor = executor
        self._table = settled(table)
        self._alias = alias
        self._name = table if isinstance(table, TableName) else name

    def __repr__(self) -> str:
        return f"DeltaTable({self._name or self._table})"

    def _repr_html_(self) -> str:
        return card_or_error(repr(self), self._html)

    def _html(self) -> str:
        now = self._executor.glance(self._table)
        if now is None:
            return card(repr(self), ())
        facts = [
            ("version", now.version),
            ("files", f"{len(now.files):,}"),
            ("partitioned by", ", ".join(now.partition_columns) or None),
            ("comment", now.metadata.description),
        ]
        columns = [(item.name, short_text(item.type)) for item in now.schema]
        return card(repr(self), facts, ("column", "type"), columns)

    # --- finding ------------------------------------------------------------------------------

    @classmethod
    @as_delta_spark
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str,
        hadoopConf: Mapping[str, str] = {},
    ) -> DeltaTable:
        """The table at a path or URL.

        Args:
            hadoopConf: Hadoop's settings of file systems, keys `fs.` and `dfs.`; credentials and
                endpoints among them are used for the log, the others are Spark's alone.

        Raises an AnalysisException when there is no Delta table, a ValueError for other settings
        or arguments of another type.
        """
        executor = _executor(sparkSession, storage_options(hadoopConf))
        table = TablePath(checked(path, str, "path"))
        _require(executor, table)
        return cls(executor, table)

    @classmethod
    @as_delta_spark
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of a name: of the session's own catalog when it knows Delta, else of the lake.

        The lake is the one that is open in the Spark session, and the table is what `lake.table`
        gives. ``delta.`/path` `` is the table at that place. Raises an AnalysisException for a
        view, when there is no such table or it is no Delta table, and where several lakes are open.
        """
        executor = _executor(sparkSession)
        table = _named(tableOrViewName)
        if isinstance(table, TableName) and not knows_delta(sparkSession, table):
            executor = knowing_names(executor)
            _require(executor, table)
            return cls(executor, table)
        if isinstance(table, TablePath):
            _require(executor, table)
            return cls(executor, table)
        entry = entry_of(sparkSession, table)
        if entry is None or not entry.is_delta or entry.location is None:
            raise _missing(executor, table)
        place = TablePath(entry.location)
        _require(executor, place)
        return cls(executor, place, name=table)

    @classmethod
    @as_delta_spark
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a path or URL is the root of a Delta table.

        Raises an AnalysisException for a location that can't be, a ValueError for another type.
        """
        return _executor(sparkSession).exists(TablePath(checked(identifier, str, "identifier")))

    # --- making -------------------------------------------------------------------------------

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for a new table; there must be none yet.

        Raises a ValueError where no Spark session is given or active.
        """
        return cls._builder(sparkSession, "create")

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for a new table; one that is there stays as it is. Raises as `create`."""
        return cls._builder(sparkSession, "if_not_exists")

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for a table in another one's place; there must be one. Raises as `create`."""
        return cls._builder(sparkSession, "replace")

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for a new table, in another one's place if there is one. Raises as `create`."""
        return cls._builder(sparkSession, "or_replace")

    @classmethod
    @as_delta_spark
    def _builder(cls, spark: SparkSession | None, mode: CreateMode) -> DeltaTableBuilder:
        executor = _executor(spark or SparkSession.getActiveSession())

        def opened(executor: Executor, table: Table, name: TableName | None) -> DeltaTable:
            return cls(executor, table, name=name)

        return DeltaTableBuilder(executor, mode, opened)

    @classmethod
    @as_delta_spark
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Makes a folder of Parquet files a Delta table, in place.

        Args:
            identifier: ``parquet.`/path` ``; in a lake also the name of a Parquet table of Spark's
                own catalog. A Delta table, ``delta.`/path` ``, stays as it is.
            partitionSchema: the partition columns, as DDL (`"day date"`) or as a schema.

        Raises an AnalysisException for a folder without Parquet files, or whose files or folders
        don't fit together; an UnsupportedOperationException for what isn't Parquet; a
        ParseException for a text that is no schema; a ValueError or TypeError for arguments of
        another type.
        """
        executor = _executor(sparkSession)
        parts = column_path(checked(identifier, str, "identifier"))
        if len(parts) == 2 and parts[0].lower() == "delta":
            return cls.forPath(sparkSession, parts[1])
        columns = _partition_columns(partitionSchema)
        if len(parts) == 2 and parts[0].lower() == "parquet":
            executor.execute(ConvertToDelta(location=parts[1], partition_columns=columns))
            return cls(executor, TablePath(parts[1]))
        executor = knowing_names(executor)
        has_names = not isinstance(executor, Session) or executor.engine.warehouse is not None
        if is_place(parts[-1]) or not has_names:
            raise unsupported(
                "DELTA_MISSING_PROVIDER_FOR_CONVERT",
                f"{identifier}: only folders of Parquet files are converted, and in a lake the "
                "Parquet tables of Spark's own catalog; expected parquet.`/path`",
            )
        table = TableName(parts)
        executor.execute(ConvertTable(table=table, partition_columns=columns))
        return cls(executor, table)

    @as_delta_spark
    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """A copy of the table at another path or name.

        Args:
            isShallow: the copy refers to this table's files instead of copying them.
            replace: a table that is there already gives way.
            properties: properties that the copy gets beside the table's own.

        Raises an AnalysisException when there is a table already and `replace` isn't given, when
        the target is neither a name nor an absolute place, and for a property that can't be; a
        Conflict when a concurrent commit stands in the way; a ValueError for arguments of another
        type.
        """
        return self._clone(None, target, isShallow, replace, properties)

    @as_delta_spark
    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """A copy of the table as of a version; else as `clone`.

        Raises an AnalysisException when there is no such version, and as `clone`.
        """
        travel = TimeTravel(version=checked(version, int, "version"))
        return self._clone(travel, target, isShallow, replace, properties)

    @as_delta_spark
    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """A copy of the table as of a time; else as `clone`.

        Raises an AnalysisException when there is no version of that time, and as `clone`.
        """
        travel = TimeTravel(timestamp=checked(timestamp, str, "timestamp"))
        return self._clone(travel, target, isShallow, replace, properties)

    # --- rows ---------------------------------------------------------------------------------

    @as_delta_spark
    def toDF(self) -> DataFrame:
        """The table's rows; columns may be qualified by the alias, or by the table's name.

        Raises an AnalysisException when the table is gone, an UnsupportedOperationException for one
        that txlake doesn't read.
        """
        frame = self._executor.frame(self._table)
        names = self._names
        return frame.alias(names[-1]) if names else frame

    def alias(self, aliasName: str) -> DeltaTable:
        """This table under another name, for expressions. Raises a ValueError for no text."""
        return DeltaTable(
            self._executor,
            self._table,
            alias=checked(aliasName, str, "aliasName"),
            name=self._name,
        )

    @as_delta_spark
    def delete(self, condition: str | Column | None = None) -> None:
        """Deletes the rows for which the condition is true; all rows without one.

        Raises a Conflict when a concurrent commit stands in the way, an AnalysisException for a
        text that is no condition or names a column that isn't there, a TypeError for what is
        neither text nor Column, an UnsupportedOperationException for a table that txlake doesn't
        write.
        """
        found = condition_of(condition, self._scope)
        self._executor.execute(Delete(table=self._table, alias=self._qualifier, condition=found))

    @as_delta_spark
    def update(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> None:
        """Sets columns, in the rows for which the condition is true or in all.

        Args:
            set: the new value of each column that changes; required.

        Raises a ValueError without `set`, an AnalysisException for a column that isn't there or is
        assigned twice and for rows that violate a constraint, and as `delete`.
        """
        assigned = assignments_of(set, self._scope, "'set'")
        found = condition_of(condition, self._scope)
        columns = self._executor.snapshot(self._table).schema.names
        self._executor.execute(
            Update(
                table=self._table,
                alias=self._qualifier,
                assignments=resolved(assigned, self._names, columns),
                condition=found,
            )
        )

    @as_delta_spark
    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """A builder for a MERGE of the source's rows into this table.

        Raises a ValueError where one of the two is None, a TypeError for another type, a
        ParseException for an empty text or one that ends within a quotation.
        """
        if source is None:
            raise ArgumentValueRefused("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise ArgumentTypeRefused(
                f"Type of 'source' in merge must be DataFrame, found {type(source)}"
            )
        found = condition_of(condition, self._scope)
        if found is None:
            raise ArgumentValueRefused("'condition' in merge cannot be None")
        target = Target(
            executor=self._executor,
            table=self._table,
            alias=self._qualifier,
            names=self._names,
            scope=self._scope,
        )
        return DeltaMergeBuilder(target, source, found)

    # --- history and upkeep -------------------------------------------------------------------

    @as_delta_spark
    def history(self, limit: int | None = None) -> DataFrame:
        """The table's commits, newest first.

        Raises an AnalysisException for a limit below 1, a ValueError for one of another type.
        """
        if limit is not None:
            checked(limit, int, "limit")
        return self._executor.execute(DescribeHistory(self._table, limit))

    @as_delta_spark
    def detail(self) -> DataFrame:
        """One row of facts about the table: format, id, location, size, protocol, ...

        Raises an AnalysisException when the table is gone.
        """
        return self._executor.execute(DescribeDetail(self._table))

    @as_delta_spark
    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Deletes files that no version within the retention needs; gives an empty DataFrame.

        Args:
            retentionHours: 168 hours (or the table's own setting) when it isn't given.

        Raises an AnalysisException for a retention below that, unless Spark's session has turned
        the check off; an UnsupportedOperationException for a table that txlake doesn't write; a
        ValueError or TypeError for what is no number.
        """
        hours = None if retentionHours is None else float(retentionHours)
        self._executor.execute(Vacuum(table=self._table, retain_hours=hours))
        return self._executor.spark.createDataFrame([], StructType([]))

    @as_delta_spark
    def optimize(self) -> DeltaOptimizeBuilder:
        """A builder for rewriting the table's files."""
        return DeltaOptimizeBuilder(self._executor, Optimize(table=self._table))

    @as_delta_spark
    def restoreToVersion(self, version: int) -> DataFrame:
        """Brings the table back to an earlier version, as a new one; gives the metrics.

        Raises an AnalysisException when there is no such version, or VACUUM has removed its files;
        a Conflict when a concurrent commit stands in the way; a ValueError for another type.
        """
        travel = TimeTravel(version=checked(version, int, "version"))
        return self._executor.execute(Restore(self._table, travel))

    @as_delta_spark
    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Brings the table back to what it was at a time (`2026-01-31 12:00:00`).

        Raises an AnalysisException for a text that is no time, and as `restoreToVersion`.
        """
        travel = TimeTravel(timestamp=checked(timestamp, str, "timestamp"))
        return self._executor.execute(Restore(self._table, travel))

    @as_delta_spark
    def generate(self, mode: str) -> None:
        """Writes manifests for other readers; `symlink_format_manifest` is the one mode.

        Raises an AnalysisException for another mode, and for a table that a list of files doesn't
        describe: with deletion vectors, or column mapping.
        """
        self._executor.execute(Generate(self._table, checked(mode, str, "mode")))

    # --- protocol -----------------------------------------------------------------------------

    @as_delta_spark
    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Makes the protocol's versions higher; lower ones than the table has change nothing.

        Raises an AnalysisException for versions that there aren't, a Conflict when a concurrent
        commit stands in the way, a ValueError for another type.
        """
        for name, value in (("readerVersion", readerVersion), ("writerVersion", writerVersion)):
            if not isinstance(value, int):
                raise ArgumentValueRefused(
                    f"The {name} needs to be an integer but got '{type(value)}'."
                )
        self._executor.execute(UpgradeProtocol(self._table, readerVersion, writerVersion))

    @as_delta_spark
    def addFeatureSupport(self, featureName: str) -> None:
        """Adds a table feature to the protocol.

        Raises an AnalysisException or an UnsupportedOperationException for a feature that txlake
        doesn't write, a Conflict when a concurrent commit stands in the way, a ValueError for
        another type.
        """
        self._executor.execute(AddFeature(self._table, checked(featureName, str, "featureName")))

    @as_delta_spark
    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Takes a table feature out of the protocol.

        Args:
            truncateHistory: True is refused: a feature is dropped where nothing in the history
                needs it, and no commit is cleaned up for that.

        Raises an AnalysisException for a feature that the table doesn't have or still needs, a
        Conflict when a concurrent commit stands in the way, a ValueError for arguments of another
        type.
        """
        feature = checked(featureName, str, "featureName")
        truncates = (
            False if truncateHistory is None else checked(truncateHistory, bool, "truncateHistory")
        )
        self._executor.execute(DropFeature(self._table, feature, truncates))

    # --- names --------------------------------------------------------------------------------

    @property
    def _names(self) -> Parts:
        """What the table is called in expressions: its alias, or else its name."""
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
        place = checked(target, str, "target")
        statement = Clone(
            table=TablePath(place),
            source=self._table,
            travel=travel,
            shallow=checked(is_shallow, bool, "isShallow"),
            mode="or_replace" if checked(replace, bool, "replace") else "create",
            properties=_properties(properties),
        )

        def write(table: TablePath, mode: CreateMode) -> None:
            self._executor.execute(changed(statement, table=table, mode=mode))

        executor = self._executor
        table = _named(place)
        if isinstance(table, TableName):
            spark = executor.spark
            if knows_delta(spark, table):
                found = create_named(spark, table, None, statement.mode, write)
                return DeltaTable(self._executor, found, name=table)
            executor = knowing_names(executor)
        elif not _is_absolute(table.location):
            raise refused(
                "DELTA_INVALID_CLONE_PATH",
                f"the target of a clone is an absolute path, a URL or a table's name, "
                f"found {target!r}",
            )
        executor.execute(changed(statement, table=table))
        return DeltaTable(executor, table)


def _executor(
    spark: SparkSession | None, storage_options: Mapping[str, str] | None = None
) -> Executor:
    if spark is None:
        raise ArgumentValueRefused("no SparkSession was given and none is active; pass the session")
    return executor_for(spark, storage_options)


def _named(text: str) -> Table:
    try:
        return table_of(checked(text, str, "the table's name"))
    except InvalidRequest as error:
        refuse_text(error)


def _require(executor: Executor, table: Table) -> None:
    if not executor.exists(table):
        raise _missing(executor, table)


def _missing(executor: Executor, table: Table) -> InvalidRequest:
    return refused("DELTA_MISSING_DELTA_TABLE", missing(executor, table))


def _is_absolute(location: str) -> bool:
    return location.startswith("/") or (":" in location and is_place(location))


def _properties(properties: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if properties is None:
        return ()
    return tuple(
        (
            checked(key, str, f"All property keys including {key}"),
            checked(value, str, f"All property values including {value}"),
        )
        for key, value in checked(properties, dict, "properties").items()
    )


def _partition_columns(schema: str | StructType | None) -> tuple[tuple[str, str], ...]:
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
        refuse_text(error)
    return tuple((field.name, short_text(field.type)) for field in fields)
