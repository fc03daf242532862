"""System views: their columns, their rows, and the source of the catalog entries they show."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from txlake.catalog import Catalog, DatabaseEntry, TableEntry
from txlake.catalog.branch_usage import BranchUsage
from txlake.catalog.commits import CommitEntry
from txlake.catalog.journal import ConflictEntry
from txlake.catalog.lock_entries import LockEntry
from txlake.catalog.maintenance_book import MaintenanceEntry
from txlake.catalog.sessions import SessionEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.catalog.views import ViewEntry
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Struct
from txlake.session.views.describe import Rows

RowValues = Mapping[str, object]


class TableLayout(Protocol):
    """The columns and partition columns of a table; a Snapshot has them."""

    @property
    def schema(self) -> Struct:
        """The columns."""
        ...

    @property
    def partition_columns(self) -> Sequence[str]:
        """The names of the partition columns."""
        ...


class EntrySource(Protocol):
    """The source of the entries that views show; each method returns the present entries."""

    def databases(self) -> Sequence[DatabaseEntry]:
        """Return the databases by name."""
        ...

    def tables(self) -> Sequence[TableEntry]:
        """Return the tables of all databases, sorted by database and name."""
        ...

    def views(self) -> Sequence[ViewEntry]:
        """Return the views that users created in all databases, sorted by database and name."""
        ...

    def layout(self, table: TableEntry) -> TableLayout | None:
        """Return the table's layout; None if the table was dropped meanwhile."""
        ...

    def own_session(self) -> int | None:
        """Return the number of the session that reads the view; None without a session."""
        ...

    def sessions(self) -> Sequence[SessionEntry]:
        """Return the live sessions by number."""
        ...

    def locks(self) -> Sequence[LockEntry]:
        """Return the granted and waiting lock requests, in the order of arrival."""
        ...

    def transactions(self) -> Sequence[TransactionEntry]:
        """Return the open transactions, the oldest first."""
        ...

    def conflicts(self) -> Sequence[ConflictEntry]:
        """Return the latest conflicts, the newest first."""
        ...

    def commits(self) -> Sequence[CommitEntry]:
        """Return the latest ratified versions, the newest first."""
        ...

    def branches(self) -> Sequence[BranchUsage]:
        """Return the branches and tags by name."""
        ...

    def maintenance(self) -> Sequence[MaintenanceEntry]:
        """Return the record of maintenance, the oldest entry first."""
        ...

    def kept_alone(self) -> Mapping[int, int | None] | None:
        """Return for the numbers of branches the bytes that only each of them keeps, 0 left out;
        None for what is unknown.
        """
        ...


def objects_of(entries: EntrySource) -> list[TableEntry | ViewEntry]:
    """Return the tables, then the views."""
    return [*entries.tables(), *entries.views()]


@dataclass(frozen=True, slots=True)
class CatalogEntrySource:
    """The entries of a catalog.

    Attributes:
        layout_of: reads a table's columns and partition columns.
        own: returns the number of the session that reads the view.
        kept_by: returns what `kept_alone` does, by the logs of tables; None: nothing is known.
    """

    catalog: Catalog
    layout_of: Callable[[TableEntry], TableLayout | None]
    own: Callable[[], int | None] = lambda: None
    kept_by: Callable[[], Mapping[int, int | None]] | None = None

    def databases(self) -> Sequence[DatabaseEntry]:
        return self.catalog.databases()

    def tables(self) -> Sequence[TableEntry]:
        """Return the tables of all databases, sorted by database and name."""
        return [
            entry
            for database in self.catalog.databases()
            for entry in self.catalog.tables(database.name)
        ]

    def views(self) -> Sequence[ViewEntry]:
        """Return the views that users created in all databases, sorted by database and name."""
        return [
            entry
            for database in self.catalog.databases()
            for entry in self.catalog.views.entries(database.name)
        ]

    def layout(self, table: TableEntry) -> TableLayout | None:
        return self.layout_of(table)

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

    def branches(self) -> Sequence[BranchUsage]:
        return self.catalog.branches.usage()

    def maintenance(self) -> Sequence[MaintenanceEntry]:
        return self.catalog.maintenance.entries()

    def kept_alone(self) -> Mapping[int, int | None] | None:
        return None if self.kept_by is None else self.kept_by()


@dataclass(frozen=True, slots=True)
class View:
    """A view's columns and its rows.

    Attributes:
        source: the title of the page that documents the columns.
        rows: yields a mapping by column name for each row; a column that it lacks is NULL.
    """

    source: str
    schema: Struct
    rows: Callable[[EntrySource], Iterable[RowValues]]

    def read(self, entries: EntrySource) -> Rows:
        """Return the view's present rows, with NULL for columns without a value."""
        names = self.schema.names
        rows = []
        for values in self.rows(entries):
            unknown = values.keys() - set(names)
            assert not unknown, unknown
            rows.append(tuple(values.get(name) for name in names))
        return Rows(schema=self.schema, rows=rows)


def view(source: str, columns: str, rows: Callable[[EntrySource], Iterable[RowValues]]) -> View:
    """Return a view whose columns are given as DDL text."""
    return View(source, parse_columns(columns), rows)


def utc_time(time_ms: int | None) -> datetime.datetime | None:
    """Return a time of the catalog, in milliseconds, as a datetime in UTC; None for None."""
    if time_ms is None:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=time_ms)
