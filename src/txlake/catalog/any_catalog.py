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
    """The names and places that are known, and the books beside them."""

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
        """Which lake this is; None: none."""
        ...

    @property
    def is_lake(self) -> bool:
        """Whether it is a lake's."""
        ...

    @property
    def schemas(self) -> Schemas | None:
        """Who makes and drops databases, where that is another system."""
        ...

    @property
    def has_names(self) -> bool:
        """Whether tables have names here."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Who makes the named tables' versions. Raises InvalidRequest where there are none."""
        ...

    def of_lake(self) -> Catalog:
        """The lake's catalog. Raises InvalidRequest where there is none."""
        ...

    def close(self) -> None:
        """Releases what it holds."""
        ...

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        """(database, table) of a name, as `name_parts` says; `database` is the one in use."""
        ...

    def database(self, name: str) -> DatabaseEntry | None:
        """The database of that name; letter case doesn't count."""
        ...

    def databases(self) -> Sequence[DatabaseEntry]:
        """The databases by name."""
        ...

    def tables(self, database: str) -> Sequence[TableEntry]:
        """A database's tables by name. Raises InvalidRequest when there is no such database."""
        ...

    def find(self, database: str, name: str) -> TableEntry | None:
        """The table of that name; letter case doesn't count."""
        ...

    def new_place(self, database: str, name: str) -> NewPlace | None:
        """A place for a new table; None where the caller chooses it."""
        ...

    def requirements_of(self, table_id: str) -> NewPlace | None:
        """What was asked of a new table, when it got its place; None where nothing was."""
        ...

    def at_place(self, location: str) -> TableEntry | None:
        """The table at a place, the store's URL."""
        ...

    def share(self, location: str, others: Collection[str]) -> None:
        """Allows the table at a location to have files in these places: a shallow clone's."""
        ...

    def shared_with(self, location: str) -> tuple[str, ...]:
        """In which other places the table at a location may have files."""
        ...
