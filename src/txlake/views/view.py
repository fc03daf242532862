"""What a view is: columns, and rows from the catalog's entries; and where those come from."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from txlake.catalog import Catalog, DatabaseEntry, TableEntry
from txlake.catalog.commits import CommitEntry
from txlake.catalog.journal import ConflictEntry
from txlake.catalog.locks import LockEntry
from txlake.catalog.sessions import SessionEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.catalog.views import ViewEntry
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Struct
from txlake.views.describe import Rows

Values = Mapping[str, object]


class Shape(Protocol):
    """A table's columns; a Snapshot is one."""

    @property
    def schema(self) -> Struct:
        """The columns."""
        ...

    @property
    def partition_columns(self) -> Sequence[str]:
        """The names of the partition columns."""
        ...


class Entries(Protocol):
    """What views show; each list is as of now."""

    def databases(self) -> Sequence[DatabaseEntry]:
        """The databases by name."""
        ...

    def tables(self) -> Sequence[TableEntry]:
        """The tables of all databases, by the databases' names and theirs."""
        ...

    def views(self) -> Sequence[ViewEntry]:
        """The lake's views, those of all databases, by the databases' names and theirs."""
        ...

    def shape(self, table: TableEntry) -> Shape | None:
        """The table's columns; None when it is gone meanwhile."""
        ...

    def own_session(self) -> int | None:
        """The number of the session that looks; None where none does."""
        ...

    def sessions(self) -> Sequence[SessionEntry]:
        """The living sessions by number."""
        ...

    def locks(self) -> Sequence[LockEntry]:
        """The requests for locks, in the order of asking."""
        ...

    def transactions(self) -> Sequence[TransactionEntry]:
        """The open transactions, the oldest first."""
        ...

    def conflicts(self) -> Sequence[ConflictEntry]:
        """The newest conflicts, the newest first."""
        ...

    def commits(self) -> Sequence[CommitEntry]:
        """The newest ratified versions, the newest first."""
        ...


def objects_of(entries: Entries) -> list[TableEntry | ViewEntry]:
    """The tables, then the views."""
    return [*entries.tables(), *entries.views()]


@dataclass(frozen=True, slots=True)
class CatalogEntries:
    """Entries of a catalog; `shape_of` reads a table's columns, `own` gives who looks a number."""

    catalog: Catalog
    shape_of: Callable[[TableEntry], Shape | None]
    own: Callable[[], int | None] = lambda: None

    def databases(self) -> Sequence[DatabaseEntry]:
        return self.catalog.databases()

    def tables(self) -> Sequence[TableEntry]:
        return [
            entry
            for database in self.catalog.databases()
            for entry in self.catalog.tables(database.name)
        ]

    def views(self) -> Sequence[ViewEntry]:
        return [
            entry
            for database in self.catalog.databases()
            for entry in self.catalog.views.entries(database.name)
        ]

    def shape(self, table: TableEntry) -> Shape | None:
        return self.shape_of(table)

    def own_session(self) -> int | None:
        return self.own()

    def sessions(self) -> Sequence[SessionEntry]:
        return self.catalog.sessions.entries()

    def locks(self) -> Sequence[LockEntry]:
        return self.catalog.locks.entries()

    def transactions(self) -> Sequence[TransactionEntry]:
        return self.catalog.transactions.entries()

    def conflicts(self) -> Sequence[ConflictEntry]:
        return self.catalog.journal.conflicts()

    def commits(self) -> Sequence[CommitEntry]:
        return self.catalog.ledger.newest_commits()


@dataclass(frozen=True, slots=True)
class View:
    """Columns, and the rows by column name; what a row leaves out is NULL.

    Attributes:
        source: the title of the page that documents the columns.
    """

    source: str
    schema: Struct
    rows: Callable[[Entries], Iterable[Values]]

    def look(self, entries: Entries) -> Rows:
        """What it shows now."""
        names = self.schema.names
        found = []
        for values in self.rows(entries):
            unknown = values.keys() - set(names)
            assert not unknown, unknown
            found.append(tuple(values.get(name) for name in names))
        return Rows(schema=self.schema, rows=found)


def view(source: str, columns: str, rows: Callable[[Entries], Iterable[Values]]) -> View:
    """A view of columns given as DDL text."""
    return View(source, parse_columns(columns), rows)


def moment(time_ms: int | None) -> datetime.datetime | None:
    """A time of the catalog as a value of a row."""
    if time_ms is None:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=time_ms)
