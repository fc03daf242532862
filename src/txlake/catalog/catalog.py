"""The catalog of a lake: databases and tables by name, each change one database transaction.

Owns the lake's id and is the facade of the catalog's database. Any number of processes may share a
catalog.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Mapping
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, name_parts, names, place_facts
from txlake.catalog.admission import Admissions
from txlake.catalog.branches import Branches
from txlake.catalog.commits import CommitLedger
from txlake.catalog.contents import Contents
from txlake.catalog.database import Database
from txlake.catalog.dropped import DroppedTables
from txlake.catalog.fact_rows import fact, set_fact
from txlake.catalog.fence import Fence, epoch_of
from txlake.catalog.identities import IdentityMarks
from txlake.catalog.journal import Journal
from txlake.catalog.locks import Locks
from txlake.catalog.maintenance_book import MaintenanceBook
from txlake.catalog.names import MAIN, DatabaseEntry, TableEntry, matches
from txlake.catalog.opening import open_database as database_at
from txlake.catalog.ports import NewPlace
from txlake.catalog.pruning import Pruner
from txlake.catalog.recovering import Recovery
from txlake.catalog.relations import databases, tables
from txlake.catalog.schema import is_current, upgrade
from txlake.catalog.sessions import Sessions
from txlake.catalog.shielding import shielded
from txlake.catalog.transactions import Transactions
from txlake.catalog.unregistered import UnregisteredWriters
from txlake.catalog.views import Views
from txlake.errors import InvalidRequest
from txlake.ports import System
from txlake.sql.statements import TableName

DEFAULT_DATABASE = "default"
_DATABASES = sa.select(databases).order_by(databases.c.folded_name)
_LAKE = "lake"


@shielded(
    unshielded=(
        *("display_url", "url", "epoch", "of_lake", "on_branch", "qualified"),
        "defers_registration",
    )
)
class Catalog:
    """The catalog of one lake. `url` is SQLAlchemy's, `sqlite:///path` or
    `postgresql+psycopg://...`, or that of a folder in a store, which is opened with
    `storage_options`; `open_database` opens the database at that URL.

    Safe to use from many threads and processes. A database in memory (`sqlite://`) lives until the
    catalog is no longer referenced.

    Attributes:
        branch: the number of the branch whose names these are, 0 for the lake's own.

    Raises InvalidRequest for a malformed URL, an unusable database or the catalog of a newer
    txlake, Unavailable when the database can't be reached or is busy for too long.
    """

    is_lake = True
    has_names = True
    schemas = None
    branch = MAIN

    def __init__(
        self,
        url: str | sa.URL,
        system: System,
        *,
        default_database: str = DEFAULT_DATABASE,
        busy_timeout_s: float = 30.0,
        lease_ms: int = 30_000,
        commits_kept: int = 100_000,
        log_retention_ms: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        open_database: Callable[..., Database] | None = None,
    ) -> None:
        self._system = system
        self._default = default_database
        open_at = open_database or partial(
            database_at,
            lease_ms=lease_ms,
            log_retention_ms=log_retention_ms,
            storage_options=storage_options,
        )
        self._database = open_at(url, system, busy_timeout_s=busy_timeout_s)
        self._fence = Fence(self._database.display_url)
        # In an epoch, the id that the warehouse has too; another process's recovery may change it.
        self._checked_lake: tuple[int, str] | None = None
        pruner = Pruner(self._database, commits_kept)
        try:
            if not self._database.run_shielded(self._is_ready):
                self._database.run_shielded(self._make_ready)
        except BaseException:
            self._database.close()
            raise
        self.sessions = Sessions(self._database, lease_ms, pruner.step)
        self.transactions = Transactions(self._database, self._fence, self.sessions)
        self.recovery = Recovery(self._database, self._fence)
        self.locks = Locks(self._database, self.sessions.ensure_row)
        self.unregistered = UnregisteredWriters(self._database, self.transactions, self.locks)
        self.transactions.deferred = self.unregistered
        self.locks.before_requests = self.unregistered.register_all
        self.ledger = CommitLedger(self._database, self._fence, self.unregistered)
        self.admissions = Admissions(
            self._database, self._fence, self.transactions, self.locks, self.unregistered
        )
        self.journal = Journal(self._database)
        self.views = Views(self._database)
        self.dropped = DroppedTables(self._database)
        self.identities = IdentityMarks(self._database)
        self.contents = Contents(self._database)
        self.branches = Branches(self._database, system)
        self.maintenance = MaintenanceBook(self._database)

    @property
    def display_url(self) -> str:
        """The database's URL without its password."""
        return self._database.display_url

    @property
    def url(self) -> str:
        """The database's URL for SQLAlchemy, password included: not for messages."""
        return self._database.url.render_as_string(hide_password=False)

    def of_lake(self) -> Catalog:
        """Return this catalog."""
        return self

    def on_branch(self, number: int) -> Catalog:
        """Return the catalog whose names are a branch's. All else is shared with this one."""
        made = copy.copy(self)
        made.branch = number
        made.views = Views(self._database, number)
        made.admissions = Admissions(
            self._database, self._fence, self.transactions, self.locks, self.unregistered
        )
        return made

    @property
    def defers_registration(self) -> bool:
        """Whether autocommitted writers register at their commit, as each change of the catalog is
        a request to a store.
        """
        return self._database.is_replicated

    @property
    def lake_id(self) -> str:
        """The lake's id, which its warehouse's marker and its tables also carry."""
        known = self._checked_lake
        if known is not None and known[0] == self.epoch:
            return known[1]
        with self._database.reading_once(known=True) as connection:
            return self._lake(connection) or ""

    @property
    def epoch(self) -> int:
        """The catalog's epoch when it was opened: 1 plus the number of recoveries."""
        return self._fence.epoch

    def check_warehouse(self, marked: str, warehouse: str) -> None:
        """Raise InvalidRequest unless `marked`, the lake's id in the warehouse's marker, is this
        lake's. `warehouse`: its URL, for the message.
        """
        with self._database.reading() as connection:
            epoch, lake_id = epoch_of(connection), self._lake(connection)
        self._checked_lake = (epoch, marked) if lake_id == marked else None
        if lake_id != marked:
            raise InvalidRequest(
                f"warehouse {warehouse}: it is lake {marked}'s, and catalog "
                f"{self._database.display_url} is lake {lake_id}'s; connect with the warehouse's "
                "own catalog, or rebuild a lost one by lake.recover"
            )

    def is_empty(self) -> bool:
        """Return whether the catalog has no table, not even a dropped one that isn't removed."""
        with self._database.reading_once() as connection:
            return connection.execute(sa.select(tables.c.id).limit(1)).first() is None

    def _is_ready(self) -> bool:
        """Return whether the database has this txlake's schema, a lake's id and the default
        database. Sets the fence's epoch. Raises as `is_current`.
        """
        with self._database.reading() as connection:
            if not is_current(self._database, connection):
                return False
            self._fence.epoch = epoch_of(connection)
            return (
                self._lake(connection) is not None
                and names.database(connection, self._default) is not None
            )

    def _make_ready(self) -> None:
        """Create or upgrade the schema, and create the lake's id and the default database if they
        are missing. Sets the fence's epoch. Raises as `upgrade`.
        """

        def work(connection: Connection) -> int:
            upgrade(self._database, connection)
            counter_rows.lock_sequence(connection)
            if self._lake(connection) is None:
                set_fact(connection, _LAKE, self._system.new_id())
            return epoch_of(connection)

        self._fence.epoch = self._database.write(work)
        self.create_database(self._default, if_not_exists=True)

    def _lake(self, connection: Connection) -> str | None:
        return fact(connection, _LAKE)

    def close(self) -> None:
        """Write the deferred publication notes, end this object's sessions and close its
        connections. A database in memory stays open, with its sessions, for other lakes.
        """
        self.unregistered.close()
        self.ledger.close()
        if not self._database.is_in_memory:
            self.sessions.stop()
            self._database.close()

    # Databases

    def create_database(
        self,
        name: str,
        *,
        if_not_exists: bool = False,
        comment: str | None = None,
        isolation: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a database and return whether it is new.

        Raises InvalidRequest if the name is too long, or is taken and `if_not_exists` isn't set.
        """

        def work(connection: Connection) -> bool:
            counter_rows.lock_sequence(connection)
            if names.database(connection, name, self.branch) is not None:
                if if_not_exists:
                    return False
                raise InvalidRequest(f"database {name!r} exists already; use IF NOT EXISTS")
            names.add_database(
                connection,
                self._system.new_id(),
                name,
                self._database.now_ms(connection),
                comment=comment,
                isolation=isolation,
                properties=properties or {},
                branch=self.branch,
            )
            return True

        return self._database.change(work)

    def database(self, name: str) -> DatabaseEntry | None:
        """Return the database of that name, in any letter case; None if there is none."""
        with self._database.reading_once() as connection:
            return names.database(connection, name, self.branch)

    def databases(self, pattern: str | None = None) -> list[DatabaseEntry]:
        """Return the databases whose names match SHOW's `pattern`, ordered by name; all without
        one. `*` and `%` stand for any text, and `|` separates alternatives.
        """
        with self._database.reading_once() as connection:
            rows = connection.execute(_DATABASES.where(databases.c.branch == self.branch))
            entries = [names.database_entry(row) for row in rows]
        return [entry for entry in entries if matches(entry.name, pattern)]

    def set_isolation(self, name: str, isolation: str) -> None:
        """Set a database's isolation level. Raises InvalidRequest if there is no such database."""

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            entry = names.require_database(connection, name, self.branch)
            changed = sa.update(databases).where(databases.c.id == entry.id)
            connection.execute(changed.values(isolation=isolation))

        self._database.change(work)

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add or replace properties of a database. Raises InvalidRequest if there is no such
        database.
        """

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            entry = names.require_database(connection, name, self.branch)
            text = json.dumps({**entry.properties, **properties})
            changed = sa.update(databases).where(databases.c.id == entry.id)
            connection.execute(changed.values(properties=text))

        self._database.change(work)

    def require_droppable(self, name: str, *, cascade: bool = False) -> None:
        """Raise InvalidRequest for the default database, for a missing one, and without `cascade`
        for one that holds tables or views.
        """
        if name.lower() == self._default.lower():
            raise InvalidRequest(f"database {name!r} is the default one, which can't be dropped")
        members = [table.name for table in self.tables(name)]
        members += [view.name for view in self.views.entries(name)]
        if members and not cascade:
            raise InvalidRequest(
                f"database {name!r} holds {len(members)} table(s) and view(s), {members[0]!r} "
                "among them; drop them first or say CASCADE"
            )

    def drop_database(self, name: str) -> None:
        """Remove an empty database. Raises InvalidRequest if it holds tables or views, is the
        default one or doesn't exist.
        """
        self.require_droppable(name)

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            entry = names.require_database(connection, name, self.branch)
            names.lock_tables_of(connection, entry)
            if names.tables_of(connection, entry):
                raise InvalidRequest(f"database {name!r} got a table meanwhile; drop it again")
            names.drop_database(connection, entry)

        self._database.change(work)

    # Tables

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        """Return (database, table) of a name, as `name_parts` says; `database` is the current
        one.

        Raises InvalidRequest for a name of another catalog.
        """
        return name_parts.qualified(
            table, database, lakes, lambda name: self.database(name) is not None
        )

    def new_place(self, database: str, name: str) -> NewPlace | None:
        """Return None: the lake chooses the places of its tables itself."""

    def requirements_of(self, table_id: str) -> NewPlace | None:
        """Return None: a lake's catalog has no requirements on a new table."""

    def find(self, database: str, name: str) -> TableEntry | None:
        """Return the table of that name, in any letter case; None if there is none."""
        with self._database.reading_once() as connection:
            return names.table(connection, database, name, self.branch)

    def at_place(self, location: str) -> TableEntry | None:
        """Return the table at a place, the store's URL; None if there is none."""
        with self._database.reading() as connection:
            return names.table_at(connection, location, self.branch)

    def is_used(self, location: str) -> bool:
        """Return whether any branch, or main, has a table at a location that isn't dropped
        there.
        """
        with self._database.reading_once() as connection:
            return names.is_used(connection, location)

    def other_lines(self, entry: TableEntry) -> list[TableEntry]:
        """Return the tables at a table's location on the other branches, main included."""
        with self._database.reading() as connection:
            return names.other_lines(connection, entry)

    def managed_outside(self, folder: str) -> str | None:
        """Return the location of a managed table that isn't below this folder; None if all are."""
        with self._database.reading_once() as connection:
            return names.managed_outside(connection, folder)

    def is_cleared(self, location: str) -> bool:
        """Return whether a dropped table's folder was removed there, is retained, or is to be
        removed.
        """
        with self._database.reading() as connection:
            return place_facts.is_cleared(connection, location)

    def share(self, location: str, others: Collection[str]) -> None:
        """Allow the table at a location to have files in other places, as a shallow clone does."""

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            place_facts.share(connection, location, others)

        self._database.change(work)

    def shared_with(self, location: str) -> tuple[str, ...]:
        """Return the other places in which the table at a location may have files."""
        with self._database.reading_once() as connection:
            return place_facts.shared_with(connection, location)

    def unattached(self) -> list[TableEntry]:
        """Return the tables that an older txlake named, whose commits the catalog doesn't have
        yet.
        """
        with self._database.reading() as connection:
            return names.unattached(connection)

    def new_number(self) -> int:
        """Return a number for a table that a transaction creates."""
        return self._database.write_relaxed(names.new_number)

    def tables(self, database: str) -> list[TableEntry]:
        """Return a database's tables, ordered by name. Raises InvalidRequest if there is no such
        database.
        """
        with self._database.reading() as connection:
            return names.tables_of(
                connection, names.require_database(connection, database, self.branch)
            )
