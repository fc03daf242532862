"""What locks are on, by the names that people know."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txlake.catalog import DatabaseEntry, TableEntry
from txlake.conflict.locking import Resource, ResourceType


class Resources:
    """The names of one moment. `shown` makes the text for a table's name, `database.table`."""

    def __init__(
        self,
        databases: Iterable[DatabaseEntry],
        tables: Iterable[TableEntry],
        shown: Callable[[str], str] = str,
    ) -> None:
        self._databases = {one.number: one.name for one in databases}
        self._tables = {one.number: shown(f"{one.database}.{one.name}") for one in tables}

    def name_of(self, resource: Resource) -> str:
        """The name of what a lock is on."""
        match resource.type:
            case ResourceType.KEY:
                return f"the name {resource.description}"
            case ResourceType.DATABASE:
                return f"database {self._databases.get(resource.database, resource.database)}"
            case ResourceType.OBJECT:
                table = self._tables.get(resource.entity, "a new table")
                return f"the turn to commit to {table}" if resource.subtype else table
