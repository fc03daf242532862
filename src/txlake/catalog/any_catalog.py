"""The port of a catalog: a lake's own, another system's, or none.

`Catalog` is a lake's. `NoCatalog` serves path tables: it has no names, locks or records.
`unity.UnityCatalog` has another system's names, and that system decides the tables' versions. What
only a lake's catalog can do is reached by `of_lake()`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from txlake.catalog.catalog import Catalog
from txlake.catalog.names import DatabaseEntry, TableEntry
from txlake.catalog.ports import (
    Journal,
    Locks,
    NewPlace,
    Schemas,
    Sessions,
    Transactions,
    Views,
)
from txlake.ports import Ledger
from txlake.sql.statements import TableName


class AnyCatalog(Protocol):
    """A catalog: databases, tables and views by name, and what sessions share through it."""

    @property
    def sessions(self) -> Sessions: ...

    @property
    def transactions(self) -> Transactions: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def views(self) -> Views: ...

    @property
    def lake_id(self) -> str | None:
        """The lake's id; None if the catalog isn't a lake's."""
        ...

    @property
    def is_lake(self) -> bool:
        """Whether the catalog is a lake's."""
        ...

    @property
    def schemas(self) -> Schemas | None:
        """The schemas of the system that creates and drops databases; None if that is txlake."""
        ...

    @property
    def branch(self) -> int:
        """The number of the lake's branch whose names these are; 0 if they are no branch's."""
        ...

    @property
    def has_names(self) -> bool:
        """Whether tables can have names in the catalog."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The ledger that decides the named tables' versions.

        Raises InvalidRequest if the catalog has no names.
        """
        ...

    def of_lake(self) -> Catalog:
        """Return the lake's catalog. Raises InvalidRequest if the catalog isn't a lake's."""
        ...

    def close(self) -> None:
        """End the catalog's sessions and close its connections."""
        ...

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        """Return (database, table) of a name, as `name_parts.qualified`; `database` is the
        current one.
        """
        ...

    def database(self, name: str) -> DatabaseEntry | None:
        """Return the database of that name, in any letter case; None if there is none."""
        ...

    def databases(self) -> Sequence[DatabaseEntry]:
        """Return the databases, ordered by name."""
        ...

    def tables(self, database: str) -> Sequence[TableEntry]:
        """Return a database's tables, ordered by name. Raises InvalidRequest if there is no such
        database.
        """
        ...

    def find(self, database: str, name: str) -> TableEntry | None:
        """Return the table of that name, in any letter case; None if there is none."""
        ...

    def new_place(self, database: str, name: str) -> NewPlace | None:
        """Reserve a place for a new table; return None if the caller chooses the place."""
        ...

    def requirements_of(self, table_id: str) -> NewPlace | None:
        """Return the requirements on a new table that came with its place; None if there are
        none.
        """
        ...

    def at_place(self, location: str) -> TableEntry | None:
        """Return the table at a place, the store's URL; None if there is none."""
        ...

    def share(self, location: str, others: Collection[str]) -> None:
        """Allow the table at a location to have files in other places, as a shallow clone does."""
        ...

    def shared_with(self, location: str) -> tuple[str, ...]:
        """Return the other places in which the table at a location may have files."""
        ...
