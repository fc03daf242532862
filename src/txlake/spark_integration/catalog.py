"""`spark.catalog` of an enabled session.

It shows the lake's databases, tables and views, beside the temporary views of the session and the
tables of Spark's own catalog. Spark still handles what a lake doesn't have: functions, and caches
of Spark's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.catalog import Column, Database, Table
from pyspark.sql.types import StructField, StructType

from txlake.catalog import TableEntry, matches
from txlake.errors import InvalidRequest
from txlake.lake.tables.errors import refusal
from txlake.protocol.clustering import clustered_by
from txlake.session.unknown_names import tables_in
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, NameKind
from txlake.spark_integration.options import is_lake_format, table_properties
from txlake.spark_integration.table_references import parse_table
from txlake.sql.statements import (
    ColumnSpec,
    CreateTable,
    NativeType,
    TableName,
    UseDatabase,
)
from txlake.sql.statements import Table as AnyTable

if TYPE_CHECKING:
    from pyspark.sql.catalog import Catalog as _Catalog
else:
    _Catalog = object

_CATALOG = "spark_catalog"


class LakeCatalog(_Catalog):
    """The methods of `spark.catalog` that a lake overrides."""

    _lake_binding: LakeBinding

    # Databases

    @with_spark_errors
    def currentDatabase(self) -> str:
        """Return the database of unqualified names."""
        return self._lake_binding.session.database

    @with_spark_errors
    def setCurrentDatabase(self, dbName: str) -> None:
        """Carry out USE. Raises an AnalysisException when there is no such database."""
        self._lake_require_database(dbName)
        self._lake_binding.session.execute(UseDatabase(_plain(dbName)))

    @with_spark_errors
    def listDatabases(self, pattern: str | None = None) -> list[Database]:
        """Return the lake's databases whose names match the pattern."""
        entries = self._lake_binding.engine.catalog.of_lake().databases(pattern)
        return [self._lake_database(entry.name, entry.comment) for entry in entries]

    @with_spark_errors
    def getDatabase(self, dbName: str) -> Database:
        """Return one database. Raises an AnalysisException when there is none."""
        return self._lake_require_database(dbName)

    @with_spark_errors
    def databaseExists(self, dbName: str) -> bool:
        """Return whether the lake has a database."""
        return self._lake_find_database(dbName) is not None

    # Tables

    @with_spark_errors
    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:
        """Return the tables and views of a database, and the session's temporary views.

        First the lake's by name, then Spark's own of this database and the temporary ones. Raises
        an AnalysisException when the lake has no such database.
        """
        binding = self._lake_binding
        database = (
            binding.session.database if dbName is None else self._lake_require_database(dbName).name
        )
        lake = binding.engine.catalog.of_lake()
        current = binding.session.current
        tables = [_table_row(entry) for entry in tables_in(binding.engine, current, database)]
        tables += [
            Table(view.name, _CATALOG, [view.database], view.comment, "VIEW", False)
            for view in lake.views.entries(database)
        ]
        tables = sorted(tables, key=lambda table: table.name.lower())
        lake_names = {table.name.lower() for table in tables}
        in_spark = super().databaseExists(database)
        # Not None: PySpark would call our `currentDatabase` for it.
        for table in super().listTables(database if in_spark else super().currentDatabase()):
            if table.isTemporary or (in_spark and table.name.lower() not in lake_names):
                tables.append(table)
        return [table for table in tables if matches(table.name, pattern)]

    @with_spark_errors
    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:
        """Return whether the lake or Spark has a table, view or temporary view of that name."""
        table = _table(tableName, dbName)
        if self._lake_binding.kind_of(table) is not None:
            return True
        return bool(super().tableExists(self._lake_spark_name(tableName, dbName)))

    @with_spark_errors
    def getTable(self, tableName: str) -> Table:
        """Return one table or view. Raises an AnalysisException when there is none."""
        table = parse_table(tableName)
        if self._lake_defers_to_spark(table):
            return super().getTable(self._lake_binding.spark_name(tableName))
        if not isinstance(table, TableName):
            return Table(tableName, _CATALOG, ["delta"], None, "EXTERNAL", False)
        session = self._lake_binding.session
        owner, name = session.engine.qualified(table, session.database)
        for entry in tables_in(session.engine, session.current, owner):
            if entry.name.lower() == name.lower():
                described = session.snapshot(table).metadata.description
                return _table_row(entry)._replace(description=described)
        view = session.engine.catalog.of_lake().views.find(owner, name)
        comment = None if view is None else view.comment
        return Table(name if view is None else view.name, _CATALOG, [owner], comment, "VIEW", False)

    @with_spark_errors
    def listColumns(self, tableName: str, dbName: str | None = None) -> list[Column]:
        """Return the columns of a table or view. Raises an AnalysisException when there is none."""
        table = _table(tableName, dbName)
        if self._lake_defers_to_spark(table):
            return super().listColumns(self._lake_spark_name(tableName, dbName))
        binding = self._lake_binding
        partitions: set[str] = set()
        clusters: set[str] = set()
        if binding.kind_of(table) is NameKind.TABLE:
            snapshot = binding.session.snapshot(table)
            partitions = {name.lower() for name in snapshot.partition_columns}
            paths = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
            clusters = {path[0].lower() for path in paths if len(path) == 1}
        return [
            Column(
                field.name,
                field.metadata.get("comment"),
                field.dataType.simpleString(),
                field.nullable,
                field.name.lower() in partitions,
                False,
                field.name.lower() in clusters,
            )
            for field in binding.read(table).schema
        ]

    @with_spark_errors
    def createTable(
        self,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: StructType | None = None,
        description: str | None = None,
        **options: str,
    ) -> DataFrame:
        """Create an empty table, in the lake unless another format is given; return its rows.

        Raises an AnalysisException if the lake has the table.
        """
        if source is not None and not is_lake_format(source):
            tableName = self._lake_binding.spark_name(tableName)
            return super().createTable(tableName, path, source, schema, description, **options)
        table = parse_table(tableName)
        columns = () if schema is None else tuple(column_spec(field) for field in schema)
        self._lake_binding.carry_out(
            CreateTable(
                table=table,
                columns=columns,
                location=path,
                comment=description,
                properties=table_properties(options),
            )
        )
        return self._lake_binding.read(table)

    @with_spark_errors
    def createExternalTable(
        self,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: StructType | None = None,
        **options: str,
    ) -> DataFrame:
        """Create a table, as `createTable`."""
        return self.createTable(tableName, path, source, schema, **options)

    def listFunctions(self, dbName: str | None = None, pattern: str | None = None) -> list[Any]:
        """Return Spark's functions; a lake has none."""
        # Not None: PySpark would call our `currentDatabase` for it.
        database = super().currentDatabase() if dbName is None else dbName
        return super().listFunctions(database, pattern)

    # Methods that do nothing for a lake's table

    @with_spark_errors
    def refreshTable(self, tableName: str) -> None:
        """Refresh a table of Spark's own; a lake's is looked up at every use."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            super().refreshTable(self._lake_binding.spark_name(tableName))

    @with_spark_errors
    def recoverPartitions(self, tableName: str) -> None:
        """Recover partitions of a table of Spark's own; a Delta table's are in its log."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            super().recoverPartitions(self._lake_binding.spark_name(tableName))

    @with_spark_errors
    def isCached(self, tableName: str) -> bool:
        """Return whether Spark has cached a table; False for a lake's."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            return super().isCached(self._lake_binding.spark_name(tableName))
        return False

    @with_spark_errors
    def cacheTable(self, tableName: str, storageLevel: Any = None) -> None:
        """Cache a table of Spark's own; a lake's is still read at its newest version."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            super().cacheTable(self._lake_binding.spark_name(tableName), storageLevel)

    @with_spark_errors
    def uncacheTable(self, tableName: str) -> None:
        """Uncache a table of Spark's own; a lake's isn't cached by name."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            super().uncacheTable(self._lake_binding.spark_name(tableName))

    # Helpers

    def _lake_defers_to_spark(self, table: AnyTable) -> bool:
        """Return whether Spark handles the table: a temporary view, or one that the lake lacks.

        Raises InvalidRequest for a name that neither side has, and for a path without a Delta
        table.
        """
        binding = self._lake_binding
        if binding.is_temporary(table):
            return True
        if binding.kind_of(table) is not None:
            return False
        if isinstance(table, TableName) and not binding.spark_has(table):
            raise binding.not_found(table)
        if not isinstance(table, TableName):
            raise InvalidRequest(f"{table.location} is not a Delta table; check the path")
        return True

    def _lake_spark_name(self, name: str, database: str | None) -> str:
        """Return the name by which Spark finds the table, in `database` if that is given."""
        return self._lake_binding.spark_name(name) if database is None else f"{database}.{name}"

    def _lake_find_database(self, name: str) -> Database | None:
        entry = self._lake_binding.engine.catalog.of_lake().database(_plain(name))
        return None if entry is None else self._lake_database(entry.name, entry.comment)

    def _lake_require_database(self, name: str) -> Database:
        """Return a database. Raises an AnalysisException when there is none."""
        database = self._lake_find_database(name)
        if database is None:
            raise refusal(
                "SCHEMA_NOT_FOUND",
                f"there is no database {name!r} in the lake; CREATE DATABASE {name} makes it",
            )
        return database

    def _lake_database(self, name: str, comment: str | None) -> Database:
        """Return PySpark's description of a database, with its folder in the warehouse."""
        warehouse = self._lake_binding.session.engine.warehouse
        assert warehouse is not None, "a lake has a warehouse"
        is_default = name.lower() == "default"
        location = warehouse.url if is_default else warehouse.at(f"{name}.db").url
        return Database(name, _CATALOG, comment, location)


def _table(name: str, database: str | None) -> AnyTable:
    """Return the table of a name, in `database` if that is given. Raises as `parse_table`."""
    table = parse_table(name)
    if database is None or not isinstance(table, TableName):
        return table
    return TableName((_plain(database), *table.parts))


def _table_row(entry: TableEntry) -> Table:
    kind = "MANAGED" if entry.managed else "EXTERNAL"
    return Table(entry.name, _CATALOG, [entry.database], None, kind, False)


def column_spec(field: StructField) -> ColumnSpec:
    """Return the column of a new table for a field of a DataFrame's schema.

    Of the field's metadata only the comment is kept.
    """
    return ColumnSpec(
        name=field.name,
        data_type=NativeType(field.dataType),
        nullable=field.nullable,
        comment=field.metadata.get("comment"),
    )


def _plain(database: str) -> str:
    """Return a database's name without a catalog's name and backquotes; a path's text as it is.

    Raises a ParseException for a text that is no name.
    """
    table = parse_table(database)
    return table.name if isinstance(table, TableName) else database
