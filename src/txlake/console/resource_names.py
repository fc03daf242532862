"""Names of the resources that locks are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txlake.catalog import DatabaseEntry, TableEntry
from txlake.conflict.locking import Resource, ResourceType


class ResourceNames:
    """The names of one moment's databases and tables. `format_table` formats a table's name
    `database.table`.
    """

    def __init__(
        self,
        databases: Iterable[DatabaseEntry],
        tables: Iterable[TableEntry],
        format_table: Callable[[str], str] = str,
    ) -> None:
        self._databases = {database.number: database.name for database in databases}
        self._tables = {
            table.number: format_table(f"{table.database}.{table.name}") for table in tables
        }

    def name_of(self, resource: Resource) -> str:
        """Return the name of a lock's resource, in words.

        An unknown database keeps its number, and an unknown table is `a new table`.
        """
        match resource.type:
            case ResourceType.KEY:
                return f"the name {resource.description}"
            case ResourceType.DATABASE:
                return f"database {self._databases.get(resource.database, resource.database)}"
            case ResourceType.APPLICATION:
                table = self._tables.get(resource.entity, "the lake")
                return f"the {resource.description} of {table}"
            case ResourceType.OBJECT:
                table = self._tables.get(resource.entity, "a new table")
                return f"the turn to commit to {table}" if resource.subtype else table
