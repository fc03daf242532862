"""The tables and views that the names of one statement mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from txlake.catalog import looking_once
from txlake.catalog.views import ViewEntry
from txlake.errors import InvalidRequest
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.session.unknown_names import unknown_table
from txlake.session.view_queries import Viewed, viewed_entry
from txlake.sql.statements import Table, TableName

# The prefix of the temporary views that stand for tables in a statement's texts.
OWN_VIEW = "txlake_"
# Spark's database of the temporary views of all its sessions.
_GLOBAL = "global_temp"


@dataclass(kw_only=True)
class StatementTables:
    """Resolves the names of one statement in its transaction.

    Attributes:
        database: the database of unqualified names.
        begun_ms: when the statement began, by the monotonic clock: its names mean what they meant
            then, or later.
    """

    engine: Engine
    transaction: Transaction
    database: str
    begun_ms: float
    _meanings: Mapping[Table, Handle] = field(default_factory=dict)
    _without_database: Collection[Table] = ()

    def in_database(self, database: str) -> StatementTables:
        """Return the resolution for a view's query, whose unqualified names are of this database.

        Its names are resolved anew, when they are read.
        """
        return replace(self, database=database, _meanings={}, _without_database=())

    def qualified(self, table: TableName) -> tuple[str, str]:
        """Return the database and the name that a table's name means.

        Raises InvalidRequest for a name of another catalog.
        """
        return self.engine.qualified(table, self.database)

    def fix_meanings(
        self, meanings: Mapping[Table, Handle], *, without_database: Collection[Table] = ()
    ) -> None:
        """Fix the meanings of the statement's table names, once it holds its locks.

        `without_database` are names in databases that don't exist: they aren't locked, and mean no
        table to the statement, even if the database is created meanwhile.
        """
        self._meanings = meanings
        self._without_database = without_database

    def lacks_database(self, table: Table) -> bool:
        """Return whether the name's database didn't exist when the statement got its locks."""
        return table in self._without_database

    def find(self, table: Table) -> Handle | None:
        """Return the table's handle; None for a name that means no table, such as a view's.

        A path always has a handle. The transaction's own name changes come first, then the meanings
        that `fix_meanings` fixed. Raises InvalidRequest for a name of another catalog.
        """
        if isinstance(table, TableName):
            name = self.qualified(table)
            if self.transaction.names.has(name):
                return self.transaction.names.meaning_of(name)
        if self.lacks_database(table):
            return None
        found = self._meanings.get(table)
        if found is None:
            with looking_once(self.begun_ms):
                found = self.engine.find(table, self.database)
        if found is not None and not self.engine.catalog.is_lake:
            # Nothing is locked there: a name means the same to the whole statement.
            self._meanings = {**self._meanings, table: found}
        return found

    def exists(self, handle: Handle | None) -> bool:
        """Return whether the table exists for the transaction, which opens it; False for None."""
        if handle is None:
            return False
        return self.transaction.open(handle).view.is_created

    def require(self, table: Table) -> Handle:
        """Return the handle of an existing table.

        Raises InvalidRequest for a path without a table, and as `handle`.
        """
        handle = self.handle(table)
        if not self.exists(handle):
            raise InvalidRequest(
                f"{handle.store.url} is not a Delta table: it has no _delta_log with a commit; "
                "create the table first, or check the path"
            )
        return handle

    def handle(self, table: Table) -> Handle:
        """Return the table's handle, for a path whether or not a table exists there.

        Raises InvalidRequest for a name that the lake lacks, for a view, and for a name of another
        catalog.
        """
        handle = self.find(table)
        if handle is None and isinstance(table, TableName) and self.viewed(table) is not None:
            raise InvalidRequest(
                f"{table} is a view: it has no rows, versions and settings of its own; name a "
                "table that it reads"
            )
        if handle is None:
            assert isinstance(table, TableName), "a place is found whether or not a table is there"
            raise unknown_table(self.engine, self.transaction, self.database, table)
        return handle

    @contextmanager
    def tables_named(self) -> Iterator[None]:
        """Translate Spark's error for a missing table into the error for an unknown name.

        Both are InvalidRequest. The new error names similar tables, or says that a Column can't
        read a table of the lake. Other errors pass unchanged.
        """
        try:
            yield
        except InvalidRequest as error:
            parts = self.engine.plane.missing_table(error)
            if parts is None or len(parts) > 2 or not self.engine.catalog.has_names:
                raise
            name = TableName(parts)
            if self.find(name) is not None:
                raise InvalidRequest(
                    f"{name} is a table of the lake, which a Column can't read: Spark looks for it "
                    "in its own catalog; give the condition or the value as a text in SQL"
                ) from error.__cause__
            raise unknown_table(
                self.engine, self.transaction, self.database, name
            ) from error.__cause__

    def is_same(self, name: TableName, other: TableName) -> bool:
        """Return whether two names mean the same table, in any letter case, existing or not.

        False for names of another catalog.
        """
        try:
            first, second = (
                [part.lower() for part in self.qualified(table)] for table in (name, other)
            )
        except InvalidRequest:  # of another catalog
            return False
        return first == second

    def viewed(self, table: TableName) -> Viewed | None:
        """Return the view of a name: the lake's, or else a temporary view over its tables.

        None without one, and for names of three parts.
        """
        if len(table.parts) > 2 or self.lacks_database(table):
            return None
        entry = self.lake_view(*self.qualified(table))
        if entry is not None:
            return viewed_entry(entry, self.engine.plane.relations)
        return self.engine.temporary_view(table)

    def lake_view(self, database: str, name: str) -> ViewEntry | None:
        """Return the lake's view of a name, as the transaction's own changes leave it; None without
        one.
        """
        if self.transaction.names.has_view((database, name)):
            return self.transaction.names.view_of((database, name))
        with looking_once(self.begun_ms):
            return self.engine.catalog.views.find(database, name)

    def lake_views(self, database: str) -> list[ViewEntry]:
        """Return a database's views sorted by name, as the transaction's own changes leave them.

        Raises InvalidRequest if there is no such database.
        """
        own = self.transaction.names.views_in(database)
        found = self.engine.catalog.of_lake().views.entries(database)
        kept = [entry for entry in found if entry.name.lower() not in own]
        made = [entry for entry in own.values() if entry is not None]
        return sorted((*kept, *made), key=lambda entry: entry.name.lower())

    def is_temporary(self, table: TableName) -> bool:
        """Return whether a name means one of Spark's temporary views.

        False for a table of the lake, and while Spark isn't started.
        """
        if self.find(table) is not None or not self.engine.plane.is_started:
            return False
        if len(table.parts) == 2 and table.parts[0].lower() == _GLOBAL:
            return self.engine.plane.spark_relation(str(table)) is not None
        return len(table.parts) == 1 and bool(self.engine.plane.temporary_views((table.name,)))

    def temporary_names(self) -> list[str]:
        """Return the sorted names of Spark's temporary views, except running statements' own."""
        found = self.engine.plane.temporary_views()
        return sorted(name for name in found if not name.startswith(OWN_VIEW))
