"""`spark.catalog` of a session that was given to a lake.

Databases are the lake's; tables and views are the lake's, with the temporary views of the session
and the tables of Spark's own catalog beside them. What the lake has no word for (functions, caches
of Spark's tables) is Spark's as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.catalog import Column, Database, Table
from pyspark.sql.types import StructField, StructType

from txlake.catalog import TableEntry, matches
from txlake.errors import InvalidRequest
from txlake.protocol.clustering import clustered_by
from txlake.session.unknown_names import tables_in
from txlake.spark_integration.door import Door, Meaning
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.options import is_ours, table_properties
from txlake.spark_integration.places import named
from txlake.statements import (
    ColumnSpec,
    CreateTable,
    NativeType,
    TableName,
    UseDatabase,
)
from txlake.statements import Table as AnyTable
from txlake.tables.errors import refused

if TYPE_CHECKING:
    from pyspark.sql.catalog import Catalog as _Catalog
else:
    _Catalog = object

_CATALOG = "spark_catalog"


class Cataloguing(_Catalog):
    """The part of the catalog that a lake has a say in."""

    _lake_door: Door

    # Databases

    @as_spark
    def currentDatabase(self) -> str:
        """The database that unqualified names belong to."""
        return self._lake_door.session.database

    @as_spark
    def setCurrentDatabase(self, dbName: str) -> None:
        """USE."""
        self._lake_required(dbName)
        self._lake_door.session.execute(UseDatabase(_plain(dbName)))

    @as_spark
    def listDatabases(self, pattern: str | None = None) -> list[Database]:
        """The lake's databases."""
        found = self._lake_door.session.engine.catalog.of_lake().databases(pattern)
        return [self._lake_database(entry.name, entry.comment) for entry in found]

    @as_spark
    def getDatabase(self, dbName: str) -> Database:
        """One database. Raises an AnalysisException when there is none."""
        return self._lake_required(dbName)

    @as_spark
    def databaseExists(self, dbName: str) -> bool:
        """Whether the lake has a database."""
        return self._lake_find(dbName) is not None

    # Tables

    @as_spark
    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:
        """The tables and views of a database, and the session's temporary views."""
        door = self._lake_door
        database = door.session.database if dbName is None else self._lake_required(dbName).name
        lake = door.session.engine.catalog.of_lake()
        current = door.session.current
        found = [_of(entry) for entry in tables_in(door.session.engine, current, database)]
        found += [
            Table(one.name, _CATALOG, [one.database], one.comment, "VIEW", False)
            for one in lake.views.entries(database)
        ]
        found = sorted(found, key=lambda one: one.name.lower())
        known = {one.name.lower() for one in found}
        there = super().databaseExists(database)
        # Not None: PySpark would ask us which database that is.
        for one in super().listTables(database if there else super().currentDatabase()):
            if one.isTemporary or (there and one.name.lower() not in known):
                found.append(one)
        return [one for one in found if matches(one.name, pattern)]

    @as_spark
    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:
        """Whether there is a table or view of that name, temporary ones included."""
        table = _table(tableName, dbName)
        if self._lake_door.meaning(table) is not None:
            return True
        return bool(super().tableExists(self._lake_full(tableName, dbName)))

    @as_spark
    def getTable(self, tableName: str) -> Table:
        """One table or view. Raises an AnalysisException when there is none."""
        table = named(tableName)
        if self._lake_is_of_spark(table):
            return super().getTable(self._lake_door.for_spark(tableName))
        if not isinstance(table, TableName):
            return Table(tableName, _CATALOG, ["delta"], None, "EXTERNAL", False)
        session = self._lake_door.session
        owner, name = session.engine.qualified(table, session.database)
        for entry in tables_in(session.engine, session.current, owner):
            if entry.name.lower() == name.lower():
                described = session.snapshot(table).metadata.description
                return _of(entry)._replace(description=described)
        view = session.engine.catalog.of_lake().views.find(owner, name)
        comment = None if view is None else view.comment
        return Table(name if view is None else view.name, _CATALOG, [owner], comment, "VIEW", False)

    @as_spark
    def listColumns(self, tableName: str, dbName: str | None = None) -> list[Column]:
        """The columns of a table or view."""
        table = _table(tableName, dbName)
        if self._lake_is_of_spark(table):
            return super().listColumns(self._lake_full(tableName, dbName))
        door = self._lake_door
        partitions: set[str] = set()
        clusters: set[str] = set()
        if door.meaning(table) is Meaning.TABLE:
            now = door.session.snapshot(table)
            partitions = {name.lower() for name in now.partition_columns}
            paths = clustered_by(now.schema, now.domains, table=now.table)
            clusters = {path[0].lower() for path in paths if len(path) == 1}
        return [
            Column(
                item.name,
                item.metadata.get("comment"),
                item.dataType.simpleString(),
                item.nullable,
                item.name.lower() in partitions,
                False,
                item.name.lower() in clusters,
            )
            for item in door.read(table).schema
        ]

    @as_spark
    def createTable(
        self,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: StructType | None = None,
        description: str | None = None,
        **options: str,
    ) -> DataFrame:
        """A new, empty table; the lake's unless another format is given."""
        if source is not None and not is_ours(source):
            tableName = self._lake_door.for_spark(tableName)
            return super().createTable(tableName, path, source, schema, description, **options)
        table = named(tableName)
        columns = () if schema is None else tuple(column_spec(item) for item in schema)
        self._lake_door.carry_out(
            CreateTable(
                table=table,
                columns=columns,
                location=path,
                comment=description,
                properties=table_properties(options),
            )
        )
        return self._lake_door.read(table)

    @as_spark
    def createExternalTable(
        self,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: StructType | None = None,
        **options: str,
    ) -> DataFrame:
        """As `createTable`."""
        return self.createTable(tableName, path, source, schema, **options)

    def listFunctions(self, dbName: str | None = None, pattern: str | None = None) -> list[Any]:
        """The functions that Spark has, which the lake's databases have no part in."""
        # Not None: PySpark would ask us which database is current.
        database = super().currentDatabase() if dbName is None else dbName
        return super().listFunctions(database, pattern)

    # What is nothing to do, or of frames alone

    @as_spark
    def refreshTable(self, tableName: str) -> None:
        """Nothing: a table of the lake is looked up whenever it is named."""
        if self._lake_is_of_spark(named(tableName)):
            super().refreshTable(self._lake_door.for_spark(tableName))

    @as_spark
    def recoverPartitions(self, tableName: str) -> None:
        """Nothing: a Delta table's log has its partitions."""
        if self._lake_is_of_spark(named(tableName)):
            super().recoverPartitions(self._lake_door.for_spark(tableName))

    @as_spark
    def isCached(self, tableName: str) -> bool:
        """Whether Spark has a table in its cache; never one of the lake."""
        if self._lake_is_of_spark(named(tableName)):
            return super().isCached(self._lake_door.for_spark(tableName))
        return False

    @as_spark
    def cacheTable(self, tableName: str, storageLevel: Any = None) -> None:
        """Caches a table of Spark's own; a lake's is read as before, at its newest version."""
        if self._lake_is_of_spark(named(tableName)):
            super().cacheTable(self._lake_door.for_spark(tableName), storageLevel)

    @as_spark
    def uncacheTable(self, tableName: str) -> None:
        """Uncaches a table of Spark's own; a lake's isn't cached by name."""
        if self._lake_is_of_spark(named(tableName)):
            super().uncacheTable(self._lake_door.for_spark(tableName))

    # Helpers

    def _lake_is_of_spark(self, table: AnyTable) -> bool:
        """Whether it is for Spark to answer. Raises for a name that neither has."""
        door = self._lake_door
        if door.is_temporary(table):
            return True
        if door.meaning(table) is not None:
            return False
        if isinstance(table, TableName) and not door.spark_has(table):
            raise door.unknown(table)
        if not isinstance(table, TableName):
            raise InvalidRequest(f"{table.location} is not a Delta table; check the path")
        return True

    def _lake_full(self, name: str, database: str | None) -> str:
        """The name as Spark is told it."""
        return self._lake_door.for_spark(name) if database is None else f"{database}.{name}"

    def _lake_find(self, name: str) -> Database | None:
        entry = self._lake_door.session.engine.catalog.of_lake().database(_plain(name))
        return None if entry is None else self._lake_database(entry.name, entry.comment)

    def _lake_required(self, name: str) -> Database:
        found = self._lake_find(name)
        if found is None:
            raise refused(
                "SCHEMA_NOT_FOUND",
                f"there is no database {name!r} in the lake; CREATE DATABASE {name} makes it",
            )
        return found

    def _lake_database(self, name: str, comment: str | None) -> Database:
        warehouse = self._lake_door.session.engine.warehouse
        assert warehouse is not None, "a lake has one"
        is_default = name.lower() == "default"
        location = warehouse.url if is_default else warehouse.at(f"{name}.db").url
        return Database(name, _CATALOG, comment, location)


def _table(name: str, database: str | None) -> AnyTable:
    table = named(name)
    if database is None or not isinstance(table, TableName):
        return table
    return TableName((_plain(database), *table.parts))


def _of(entry: TableEntry) -> Table:
    kind = "MANAGED" if entry.managed else "EXTERNAL"
    return Table(entry.name, _CATALOG, [entry.database], None, kind, False)


def column_spec(item: StructField) -> ColumnSpec:
    """A column of a new table, as a DataFrame's schema has it."""
    return ColumnSpec(
        name=item.name,
        data_type=NativeType(item.dataType),
        nullable=item.nullable,
        comment=item.metadata.get("comment"),
    )


def _plain(database: str) -> str:
    """A database's name, which may stand behind the catalog's and in backquotes."""
    table = named(database)
    return table.name if isinstance(table, TableName) else database
