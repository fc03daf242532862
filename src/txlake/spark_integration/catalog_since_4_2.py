"""Methods of `spark.catalog` that PySpark has since 4.2, in a session that was given to a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.catalog import Table

from txlake.spark_integration.catalog import Cataloguing
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.places import named
from txlake.sql import parse, sql_literal
from txlake.statements import (
    DropTable,
    ShowCreateTable,
    ShowPartitions,
    ShowProperties,
    Statement,
    TableName,
    Truncate,
    quoted,
)

if TYPE_CHECKING:
    from pyspark.sql.catalog import TablePartition


class CataloguingSince42(Cataloguing):
    """The rest of the catalog that a lake has a say in."""

    @as_spark
    def createDatabase(
        self, dbName: str, ifNotExists: bool = False, properties: dict[str, str] | None = None
    ) -> None:
        """CREATE DATABASE."""
        options = "IF NOT EXISTS " if ifNotExists else ""
        self._lake_run(f"CREATE DATABASE {options}{_quoted(dbName)}{_properties(properties)}")

    @as_spark
    def dropDatabase(self, dbName: str, ifExists: bool = False, cascade: bool = False) -> None:
        """DROP DATABASE."""
        options = "IF EXISTS " if ifExists else ""
        self._lake_run(f"DROP DATABASE {options}{_quoted(dbName)}{' CASCADE' if cascade else ''}")

    @as_spark
    def dropTable(self, tableName: str, ifExists: bool = False, purge: bool = False) -> None:
        """DROP TABLE."""
        table = named(tableName)
        if self._lake_door.meaning(table) is None and self._lake_door.spark_has(table):
            super().dropTable(self._lake_door.for_spark(tableName), ifExists, purge)
            return
        self._lake_door.carry_out(DropTable(table=table, if_exists=ifExists, purge=purge))

    @as_spark
    def dropView(self, viewName: str, ifExists: bool = False) -> None:
        """DROP VIEW, of the lake's or of Spark's."""
        if self._lake_door.meaning(named(viewName)) is None:
            super().dropView(self._lake_door.for_spark(viewName), ifExists)
            return
        self._lake_run(f"DROP VIEW {_quoted(viewName)}")

    @as_spark
    def listViews(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:
        """The views of a database, and the temporary ones."""
        kinds = ("VIEW", "TEMPORARY")
        return [one for one in self.listTables(dbName, pattern) if one.tableType in kinds]

    @as_spark
    def listPartitions(self, tableName: str) -> list[TablePartition]:
        """The partitions of a table, `column=value/...`."""
        from pyspark.sql.catalog import TablePartition  # not in PySpark 4.0 and 4.1

        table = named(tableName)
        if self._lake_is_of_spark(table):
            return super().listPartitions(self._lake_door.for_spark(tableName))
        rows = self._lake_door.session.execute(ShowPartitions(table)).collect()
        return [
            TablePartition("/".join(f"{name}={value}" for name, value in row.asDict().items()))
            for row in rows
        ]

    @as_spark
    def getTableProperties(self, tableName: str) -> dict[str, str]:
        """SHOW TBLPROPERTIES."""
        table = named(tableName)
        if self._lake_is_of_spark(table):
            return super().getTableProperties(self._lake_door.for_spark(tableName))
        return dict(map(tuple, self._lake_door.session.execute(ShowProperties(table)).collect()))

    @as_spark
    def getCreateTableString(self, tableName: str, asSerde: bool = False) -> str:
        """SHOW CREATE TABLE."""
        table = named(tableName)
        if self._lake_is_of_spark(table):
            return super().getCreateTableString(self._lake_door.for_spark(tableName), asSerde)
        return str(self._lake_door.session.execute(ShowCreateTable(table)).collect()[0][0])

    @as_spark
    def truncateTable(self, tableName: str) -> None:
        """TRUNCATE TABLE."""
        table = named(tableName)
        if self._lake_is_of_spark(table):
            super().truncateTable(self._lake_door.for_spark(tableName))
            return
        self._lake_door.carry_out(Truncate(table))

    @as_spark
    def analyzeTable(self, tableName: str, noScan: bool = False) -> None:
        """ANALYZE TABLE."""
        if self._lake_is_of_spark(named(tableName)):
            super().analyzeTable(self._lake_door.for_spark(tableName), noScan)
            return
        self._lake_run(f"ANALYZE TABLE {_quoted(tableName)} COMPUTE STATISTICS")

    def _lake_run(self, text: str) -> None:
        statement: Statement
        [statement] = parse(text)
        self._lake_door.carry_out(statement)


def _quoted(name: str) -> str:
    table = named(name)
    if not isinstance(table, TableName):
        return str(table)
    return ".".join(quoted(part, always=True) for part in table.parts)


def _properties(given: dict[str, str] | None) -> str:
    if not given:
        return ""
    pairs = ", ".join(f"{sql_literal(key)} = {sql_literal(value)}" for key, value in given.items())
    return f" WITH DBPROPERTIES ({pairs})"
