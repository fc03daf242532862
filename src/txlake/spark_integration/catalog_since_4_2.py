"""Methods of `spark.catalog` since PySpark 4.2, in an enabled session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.catalog import Table

from txlake.spark_integration.catalog import LakeCatalog
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.table_references import parse_table
from txlake.sql import parse, sql_literal
from txlake.sql.statements import (
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


class LakeCatalogSince42(LakeCatalog):
    """Adds the methods since PySpark 4.2 that a lake overrides."""

    @with_spark_errors
    def createDatabase(
        self, dbName: str, ifNotExists: bool = False, properties: dict[str, str] | None = None
    ) -> None:
        """Carry out CREATE DATABASE."""
        options = "IF NOT EXISTS " if ifNotExists else ""
        self._lake_execute(
            f"CREATE DATABASE {options}{_quoted(dbName)}{_properties_clause(properties)}"
        )

    @with_spark_errors
    def dropDatabase(self, dbName: str, ifExists: bool = False, cascade: bool = False) -> None:
        """Carry out DROP DATABASE."""
        options = "IF EXISTS " if ifExists else ""
        self._lake_execute(
            f"DROP DATABASE {options}{_quoted(dbName)}{' CASCADE' if cascade else ''}"
        )

    @with_spark_errors
    def dropTable(self, tableName: str, ifExists: bool = False, purge: bool = False) -> None:
        """Carry out DROP TABLE, of a table of the lake or else of Spark's."""
        table = parse_table(tableName)
        if self._lake_binding.kind_of(table) is None and self._lake_binding.spark_has(table):
            super().dropTable(self._lake_binding.spark_name(tableName), ifExists, purge)
            return
        self._lake_binding.carry_out(DropTable(table=table, if_exists=ifExists, purge=purge))

    @with_spark_errors
    def dropView(self, viewName: str, ifExists: bool = False) -> None:
        """Carry out DROP VIEW, of a view of the lake or else of Spark's."""
        if self._lake_binding.kind_of(parse_table(viewName)) is None:
            super().dropView(self._lake_binding.spark_name(viewName), ifExists)
            return
        self._lake_execute(f"DROP VIEW {_quoted(viewName)}")

    @with_spark_errors
    def listViews(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:
        """Return the views of a database, and the temporary views."""
        kinds = ("VIEW", "TEMPORARY")
        return [table for table in self.listTables(dbName, pattern) if table.tableType in kinds]

    @with_spark_errors
    def listPartitions(self, tableName: str) -> list[TablePartition]:
        """Return the partitions of a table as `column=value/...`."""
        from pyspark.sql.catalog import TablePartition  # not in PySpark 4.0 and 4.1

        table = parse_table(tableName)
        if self._lake_defers_to_spark(table):
            return super().listPartitions(self._lake_binding.spark_name(tableName))
        rows = self._lake_binding.session.execute(ShowPartitions(table)).collect()
        return [
            TablePartition("/".join(f"{name}={value}" for name, value in row.asDict().items()))
            for row in rows
        ]

    @with_spark_errors
    def getTableProperties(self, tableName: str) -> dict[str, str]:
        """Carry out SHOW TBLPROPERTIES, and return the values by key."""
        table = parse_table(tableName)
        if self._lake_defers_to_spark(table):
            return super().getTableProperties(self._lake_binding.spark_name(tableName))
        return dict(map(tuple, self._lake_binding.session.execute(ShowProperties(table)).collect()))

    @with_spark_errors
    def getCreateTableString(self, tableName: str, asSerde: bool = False) -> str:
        """Carry out SHOW CREATE TABLE, and return its text; `asSerde` counts only for Spark's
        tables.
        """
        table = parse_table(tableName)
        if self._lake_defers_to_spark(table):
            return super().getCreateTableString(self._lake_binding.spark_name(tableName), asSerde)
        return str(self._lake_binding.session.execute(ShowCreateTable(table)).collect()[0][0])

    @with_spark_errors
    def truncateTable(self, tableName: str) -> None:
        """Carry out TRUNCATE TABLE."""
        table = parse_table(tableName)
        if self._lake_defers_to_spark(table):
            super().truncateTable(self._lake_binding.spark_name(tableName))
            return
        self._lake_binding.carry_out(Truncate(table))

    @with_spark_errors
    def analyzeTable(self, tableName: str, noScan: bool = False) -> None:
        """Carry out ANALYZE TABLE, which changes nothing for a table of the lake."""
        if self._lake_defers_to_spark(parse_table(tableName)):
            super().analyzeTable(self._lake_binding.spark_name(tableName), noScan)
            return
        self._lake_execute(f"ANALYZE TABLE {_quoted(tableName)} COMPUTE STATISTICS")

    def _lake_execute(self, text: str) -> None:
        """Run a statement's text in the lake."""
        statement: Statement
        [statement] = parse(text)
        self._lake_binding.carry_out(statement)


def _quoted(name: str) -> str:
    """Return a name with each part in backquotes; a path as its SQL text. Raises a ParseException
    for any other text.
    """
    table = parse_table(name)
    if not isinstance(table, TableName):
        return str(table)
    return ".".join(quoted(part, always=True) for part in table.parts)


def _properties_clause(properties: dict[str, str] | None) -> str:
    """Return the clause WITH DBPROPERTIES, with a space before; empty without properties."""
    if not properties:
        return ""
    pairs = ", ".join(
        f"{sql_literal(key)} = {sql_literal(value)}" for key, value in properties.items()
    )
    return f" WITH DBPROPERTIES ({pairs})"
