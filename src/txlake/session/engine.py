"""The engine: stores, logs, catalog and data plane, shared by the sessions of one lake.

Owns wiring and caches; knows no statement.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from txlake.catalog import DEFAULT_DATABASE, AnyCatalog, NoCatalog, TableEntry, forked
from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry
from txlake.catalog.name_parts import lake_names
from txlake.catalog.names import Chain
from txlake.commit.branch_store import BranchStore
from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.data_plane import DataPlane, TableData
from txlake.commit.identities import Identities
from txlake.commit.publication import publish
from txlake.commit.table_log import TableLog
from txlake.datafiles.vectors import ExternalVectors
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.log.text_rules import TextRules
from txlake.ports import Store, System
from txlake.protocol.branching import TableBranch, branch_place, registry_of, split_place
from txlake.protocol.file_names import LOG_FOLDER
from txlake.protocol.reach import ANYWHERE, Reach
from txlake.session.bounded_cache import BoundedCache
from txlake.session.statement_slots import StatementSlots
from txlake.session.view_queries import TemporaryViews, Viewed
from txlake.settings import Settings
from txlake.sql.statements import Expression, Table, TableName, TablePath
from txlake.storage import canonical_url, open_store

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_logger = logging.getLogger(__name__)
# Of a warehouse: the lake's marker, and the catalog if it is in the warehouse.
LAKE_FOLDER = "_txlake"
_OWN_FOLDERS = {LAKE_FOLDER, LOG_FOLDER}
# On every file system that a lake is likely to be copied to; buckets take more.
_FOLDER_BYTES_MAX = 255
# Rolled back transactions that are remembered, for the DataFrames that outlive them.
_UNDONE_KEPT = 10_000


def require_outside_lake_folder(url: str) -> None:
    """Raise InvalidRequest for the URL of a table or warehouse in a lake's own folder."""
    if f"/{LAKE_FOLDER}/" in f"{url}/":
        raise InvalidRequest(
            f"{url}: expected a folder for tables, found a lake's own folder {LAKE_FOLDER}, which "
            "is for the lake's catalog: choose another folder"
        )


def require_no_branch(location: str) -> None:
    """Raise InvalidRequest for a place that names a branch, where a table's place is expected."""
    if split_place(location)[1] is not None:
        raise InvalidRequest(
            f"{location}: expected the place of a table, found one with a branch. Only an existing "
            "path table can be named with a branch of its own; branches of a lake are used by USE "
            "BRANCH"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A resolved table, or the place where a table would be created.

    Attributes:
        name: as messages name it.
        entry: the catalog's entry; None for a path table.
        is_new: whether the open transaction makes the table: the catalog doesn't have it yet.
        branch: of a path table, the branch of its registry that the log is; None for main.
    """

    table: Table
    name: str
    log: TableLog
    store: Store
    entry: TableEntry | None = None
    is_new: bool = False
    branch: TableBranch | None = None

    @property
    def key(self) -> str:
        """The table's identity: the catalog's id, or the URL of a path table, with its branch."""
        if self.entry is not None:
            return self.entry.id
        return self.store.url if self.branch is None else _branch_key(self.store.url, self.branch)

    @property
    def place(self) -> str:
        """The table's URL, by which `Engine.find` finds a path table, with its branch."""
        if self.branch is None:
            return self.store.url
        return branch_place(self.store.url, self.branch.name)

    @property
    def chain(self) -> Chain:
        """By branch, the version that it began the table with (`TableEntry.chain`)."""
        if self.branch is not None:
            return ((self.branch.id, self.branch.base),)
        return () if self.entry is None else self.entry.chain

    @property
    def in_lake(self) -> bool:
        """Whether the lake's catalog decides the table's versions."""
        return self.entry is not None

    @property
    def is_managed(self) -> bool:
        """Whether the table's folder belongs to the lake."""
        return self.entry is not None and self.entry.managed

    @property
    def qualifier(self) -> str | None:
        """The qualifier of the table's columns in a statement without an alias; None for a table
        that is addressed by its path.
        """
        return self.table.name if isinstance(self.table, TableName) else None


def _branch_key(url: str, branch: TableBranch) -> str:
    return branch_place(url, branch.id)


@dataclass(frozen=True, slots=True)
class RecoveryRequired:
    """The reason why a lake can't be used before its catalog is recovered.

    Attributes:
        lake: the lake's id, which the recovered catalog gets.
        epoch: the newest epoch that the lake has had; the recovered catalog gets a later one.
        error: the error that statements raise before the recovery.
    """

    lake: str
    epoch: int
    error: TxlakeError

    @staticmethod
    def new(display_url: str, warehouse: str, lake: str, epoch: int) -> RecoveryRequired:
        """Return the reason for an empty catalog in place of the lake's own."""
        return RecoveryRequired(
            lake,
            epoch,
            InvalidRequest(
                f"catalog {display_url} is new, and {warehouse} is the warehouse of lake {lake}, "
                "whose catalog knows its tables: give that catalog, or, when it is lost, rebuild "
                "it from the tables' logs with lake.recover()"
            ),
        )

    @staticmethod
    def older(display_url: str, lake: str, catalog_epoch: int, epoch: int) -> RecoveryRequired:
        """Return the reason for a catalog from before a recovery."""
        return RecoveryRequired(
            lake,
            epoch,
            CorruptTable(
                f"catalog {display_url} has epoch {catalog_epoch}, and its lake has had epoch "
                f"{epoch}: it is a copy from before a recovery. Give the recovered catalog, or "
                "bring this one up to the tables' logs with lake.recover()"
            ),
        )

    @staticmethod
    def moved(display_url: str, lake: str, epoch: int, to: str) -> RecoveryRequired:
        """Return the reason for a catalog whose lake has its catalog at another place now."""
        return RecoveryRequired(
            lake,
            epoch,
            InvalidRequest(
                f"catalog {display_url}: the lake's catalog was moved to {to}: connect with that "
                "one; if it is lost, lake.recover() makes this one the lake's again"
            ),
        )

    @staticmethod
    def unfinished(display_url: str, lake: str, epoch: int) -> RecoveryRequired:
        """Return the reason for a recovery that is running or was interrupted."""
        return RecoveryRequired(
            lake,
            epoch,
            CorruptTable(
                f"catalog {display_url}: a recovery has begun and didn't end; connect again when "
                "lake.recover() has ended in the process that runs it, or run it again"
            ),
        )


@dataclass(slots=True)
class _State:
    """The state that all engines of one lake in this process share."""

    is_closed: bool = False
    recovery_required: RecoveryRequired | None = None


@dataclass(kw_only=True)
class Engine:
    """What all sessions of a lake share; thread-safe.

    Attributes:
        plane: reads and writes the rows of tables.
        warehouse: the store of the lake's own folder; None where only places are known.
        catalog: the names.
        branch: the branch whose names they are; None for the lake's own.
        trunk: of a branch's engine, the one that it was made from, with the lake's own names.
        open_store: gives the store at a place, with the storage options.
        outside_paths: where files of tables may lie besides what the settings allow.
    """

    system: System
    settings: Settings
    plane: DataPlane
    warehouse: Store | None = None
    catalog: AnyCatalog = field(default_factory=NoCatalog)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    open_store: Callable[[str, Mapping[str, str]], Store] = open_store
    outside_paths: Callable[[], Sequence[str]] = tuple
    branch: BranchEntry | None = None
    trunk: Engine | None = None
    _state: _State = field(default_factory=_State)
    slots: StatementSlots = field(init=False)
    _sessions: set[int] = field(default_factory=set)
    _logs: BoundedCache[str, TableLog] = field(init=False)
    _shared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _process: int = field(default_factory=os.getpid)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    temporary_views: TemporaryViews = field(default_factory=TemporaryViews)
    _undone: deque[str] = field(default_factory=lambda: deque(maxlen=_UNDONE_KEPT))

    def __post_init__(self) -> None:
        self._logs = BoundedCache(self.settings.tables_cached)
        self.slots = StatementSlots(self.system)

    def with_plane(self, plane: DataPlane) -> Engine:
        """Return an engine for the same lake with another data plane.

        All else is shared, the closed state included. The temporary views are copied, and differ
        from here on: a clone of a Spark session begins with the views of the original.
        """
        made = copy.copy(self)
        made.plane, made.temporary_views = plane, self.temporary_views.copy()
        return made

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.is_closed

    @property
    def recovery_required(self) -> RecoveryRequired | None:
        """The reason why the catalog has to be recovered first; None if it hasn't to."""
        return self._state.recovery_required

    @recovery_required.setter
    def recovery_required(self, required: RecoveryRequired | None) -> None:
        self._state.recovery_required = required

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started or found on first use."""
        return self.plane.spark

    def temporary_view(self, name: TableName) -> Viewed | None:
        """Return Spark's temporary view of this name if the lake's SQL made it over tables of the
        lake.

        None for any other, and while Spark isn't started.
        """
        return self.temporary_views.find(self.plane, name) if self.plane.is_started else None

    def note_undone(self, transaction_id: str) -> None:
        """Record that a transaction was rolled back. The latest 10,000 records are kept."""
        self._undone.append(transaction_id)

    def was_undone(self, transaction_id: str) -> bool:
        """Return whether a transaction was rolled back in this process, as far as recorded."""
        return transaction_id in self._undone

    def work(
        self,
        handle: Handle,
        snapshot: Snapshot,
        *,
        system: System | None = None,
        column_of: Callable[[Expression], Column] | None = None,
        identities: Identities | None = None,
        rules: TextRules | None = None,
    ) -> TableData:
        """Return the data plane's access to a table's rows at a snapshot.

        `system` gives the names of new files, by default the engine's; `column_of` makes columns of
        expressions that name tables; `identities` gives the values of identity columns; by `rules`
        the statement's texts are read.
        """
        return self.plane.table(
            snapshot,
            handle.store,
            system=system or self.system,
            name=handle.qualifier,
            allowed=self.reach(handle).allowed,
            column_of=column_of,
            identities=identities,
            rules=rules,
        )

    def reach(self, handle: Handle) -> Reach:
        """Return the places where a table's files may lie.

        In its own folder, and where the settings allow it; a shallow clone that this lake made also
        where its source has them. A table that the lake knows by its name shares files with the
        lake's other tables.
        """
        return self._reach(handle.store, handle.table, handle.entry)

    def _reach(self, store: Store, table: Table, entry: TableEntry | None) -> Reach:
        is_named = entry is not None or isinstance(table, TableName)
        return Reach(store.url, partial(self._allowed, store.url, is_named=is_named))

    def share(self, handle: Handle, places: Collection[str]) -> None:
        """Allow a shallow clone to have files in these places, beside the ones allowed before.

        The lake's catalog records it; without a lake it holds only for this engine.
        """
        with self._lock:
            self._shared[handle.store.url] = self._shared.get(handle.store.url, ()) + tuple(places)
        self.catalog.share(handle.store.url, places)

    @property
    def has_shared(self) -> bool:
        """Whether this engine has met shallow clones, whose files belong to other tables."""
        return bool(self._shared)

    def _allowed(self, root: str, *, is_named: bool) -> Iterator[str]:
        """Yield the places beside its own folder where files of the table at `root` may lie.

        These are a shallow clone's sources and the places that the settings allow; for a named
        table also the warehouse and all tables of the lake. `ANYWHERE` allows every place.
        """
        yield from self._shared.get(root, ())
        for place in (*self.settings.allow_outside_paths, *self.outside_paths()):
            yield place if place == ANYWHERE else canonical_url(place.strip())
        shared = self.catalog.shared_with(root)
        if shared:  # few tables are shallow clones
            self._shared[root] = shared
        yield from shared
        if not is_named:
            return
        if self.warehouse is None:
            return
        yield self.warehouse.url
        for database in self.catalog.databases():
            for table in self.catalog.tables(database.name):
                yield canonical_url(table.location)

    def require_open(self) -> None:
        """Raise InvalidRequest if the lake is closed, or this process is a fork of the engine's."""
        if self.is_forked:
            raise forked("the lake", self._process)
        if self.is_closed:
            raise InvalidRequest("the lake is closed; open another with txlake.connect(...)")

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the engine."""
        return os.getpid() != self._process

    def store_at(self, location: str) -> Store:
        """Return the store at a folder or URL."""
        return self.open_store(location, self.storage_options)

    def store_of(self, location: str, chain: Chain) -> Store:
        """Return the store of the table at a folder or URL, whose log is that of a chain's last
        branch (`TableEntry.chain`).
        """
        store = self.store_at(location)
        for place, (branch_id, base) in enumerate(chain):
            publish_parent = partial(self._publish_at, location, chain[:place])
            store = BranchStore(store, branch_id, base, publish_parent)
        return store

    def _publish_at(self, location: str, chain: Chain) -> None:
        """Publish the ratified commits of the table whose log is that of a chain's last branch.

        Raises as `publish`.
        """
        ledger = self.main.catalog.of_lake().ledger
        for table in ledger.pending_tables():
            if table.location == location and table.chain == chain:
                publish(self.store_of(location, chain), ledger, table.pending, table=location)

    def on_branch(self, branch: BranchEntry) -> Engine:
        """Return an engine whose names are a branch's; all else is shared with this one."""
        made = copy.copy(self)
        made.branch, made.trunk = branch, self.main
        made.catalog = self.catalog.of_lake().on_branch(branch.number)
        return made

    def other_lines(self, handle: Handle, without: Collection[int] = ()) -> list[TableLog]:
        """Return a table's logs on the other branches of the lake, main's included, except those
        of the branches with the numbers `without`.
        """
        if handle.entry is None or not self.catalog.is_lake:
            return []
        entries = self.catalog.of_lake().other_lines(handle.entry)
        return [self.at_entry(entry).log for entry in entries if entry.branch not in without]

    def open_branches(self) -> list[str]:
        """Return the ids of the lake's branches and tags."""
        return [entry.id for entry in self.catalog.of_lake().branches.entries()]

    def require_main(self, what: str) -> None:
        """Raise InvalidRequest if the names are a branch's. `what`: what is done on main only."""
        if self.branch is not None:
            raise InvalidRequest(
                f"{what} isn't done on a branch, and this is {self.branch.name!r}: it would change "
                "what other branches and main have at once; USE BRANCH main first"
            )

    @property
    def main(self) -> Engine:
        """The engine with the lake's own names: this one, unless it is a branch's."""
        return self if self.trunk is None else self.trunk

    def open_session(self, holder: object) -> int:
        """Register a session in the catalog, and return its number.

        The session ends when `holder` is garbage-collected, or with `close_session`.
        """
        number = self.catalog.sessions.open(holder)
        with self._lock:
            self._sessions.add(number)
        return number

    def end_abandoned(self) -> None:
        """End the sessions and transactions whose objects were garbage-collected.

        Sessions that can't be ended now are logged, and end when their leases expire.
        """
        for gone in self.catalog.transactions.end_abandoned():
            self.catalog.locks.forget_owner(gone)
        try:
            self.catalog.sessions.end_abandoned()
        except TxlakeError as error:
            _logger.warning("abandoned sessions end when their leases do: %s", error)

    def close_session(self, number: int) -> None:
        """End a session, its transactions and its locks, unless it has ended.

        If the catalog fails, that is logged, and the session ends when its lease expires.
        """
        if number not in self._sessions:
            return
        try:
            self.catalog.sessions.close(number)
            self.catalog.locks.forget_owner(number)
        except TxlakeError as error:
            _logger.warning("session %d ends when its lease does: %s", number, error)
        self._sessions.discard(number)

    def close(self) -> None:
        """End this engine's sessions and close the data plane and the catalog; Spark keeps running.

        In a forked process only the closed state is set: the resources are the parent's.
        """
        if self.is_forked:
            self._state.is_closed = True
            return
        for number in list(self._sessions):
            self.close_session(number)
        with self._lock:
            logs = self._logs.values()
        for log in logs:
            log.following.wait()
        with self._lock:
            self._state.is_closed = True
            self.plane.close()
            self.catalog.close()

    def at(
        self, location: str, table: Table, entry: TableEntry | None = None, *, is_new: bool = False
    ) -> Handle:
        """Return the handle of the table at a place, whether it exists or not; nothing is read.

        With an `entry` the handle has the entry's name, and the catalog decides the table's
        versions. `is_new`: the transaction creates the table.
        """
        require_no_branch(location)
        store = self.store_of(location, () if entry is None else entry.chain)
        name = str(table) if isinstance(table, TableName) else store.url
        key = store.url
        if entry is not None:
            name, key = str(TableName((entry.database, entry.name))), entry.id
        log = self._log_of(key, name, store, table, entry)
        return Handle(table=table, name=name, log=log, store=store, entry=entry, is_new=is_new)

    def at_branch(self, main: Handle, branch: TableBranch) -> Handle:
        """Return the handle of a path table on a branch of its registry; nothing is read."""
        table = TablePath(branch_place(main.store.url, branch.name))
        store = BranchStore(main.store, branch.id, branch.base)
        log = self._log_of(_branch_key(main.store.url, branch), table.location, store, table, None)
        return Handle(table=table, name=table.location, log=log, store=store, branch=branch)

    def at_path(self, table: TablePath) -> Handle:
        """Return the handle of the path table at a place, on the branch that the place names.

        A branch is looked up in the table's newest version. Raises InvalidRequest if there is no
        such branch, or no table.
        """
        place, name = split_place(table.location)
        if name is None:
            return self.at(place, table)
        main = self.at(place, TablePath(place))
        if name.lower() == MAIN_NAME:
            return main
        return self.at_branch(
            main, registry_of(main.log.latest().domains, table=main.name).require(name)
        )

    def _log_of(
        self, key: str, name: str, store: Store, table: Table, entry: TableEntry | None
    ) -> TableLog:
        """Return the log in a store from the cache, or a new one."""
        with self._lock:
            log = self._logs.get(key)
            if log is None or log.name != name:  # a table may have been renamed
                log = TableLog(
                    store,
                    self.system,
                    self.settings,
                    name=name,
                    catalog_table=self._governed(entry),
                    external_vectors=ExternalVectors(
                        self._reach(store, table, entry), self.store_at
                    ),
                )
                self._logs.put(key, log)
        return log

    def _governed(self, entry: TableEntry | None) -> CatalogTable | None:
        return None if entry is None else CatalogTable(self.catalog.ledger, entry.id)

    def at_entry(self, entry: TableEntry, *, is_new: bool = False) -> Handle:
        """Return the handle of a catalog entry's table."""
        table = TableName((entry.database, entry.name))
        return self.at(entry.location, table, entry, is_new=is_new)

    def forget(self, handle: Handle) -> None:
        """Remove a table from the caches, after it was removed."""
        with self._lock:
            self._logs.pop(handle.key)
            self._shared.pop(handle.store.url, None)

    def forget_all(self) -> None:
        """Clear the caches of all tables."""
        with self._lock:
            self._logs.clear()

    def find(self, table: Table, database: str) -> Handle | None:
        """Return the table's handle; None for a name that the lake doesn't have.

        A path always has a handle, whether or not a table exists there; if it is the place of a
        lake's table, the handle is that table's. Raises InvalidRequest for a name of another
        catalog, for a path in a lake's own folder, and as `at_path`.
        """
        if isinstance(table, TablePath):
            handle = self.at_path(table)
            require_outside_lake_folder(handle.store.url)
            entry = self.catalog.at_place(handle.store.url)
            if entry is None:
                return handle
            require_no_branch(table.location)
            return self.at(table.location, table, entry)
        entry = self.catalog.find(*self.qualified(table, database))
        if entry is not None and entry.head is None and not self.catalog.is_lake:
            return self.at(entry.location, table)  # another system's name for a path table
        return None if entry is None else self.at_entry(entry)

    def qualified(self, table: TableName, database: str) -> tuple[str, str]:
        """Return (database, table) of a name, which may have three parts (`name_parts`).

        Raises InvalidRequest for a name of another catalog.
        """
        return self.catalog.qualified(table, database, self.lake_names)

    @property
    def lake_names(self) -> frozenset[str]:
        """The names that stand for the lake in three-part names, in lower case."""
        return lake_names(None if self.warehouse is None else self.warehouse.url)

    def place_of(self, database: str, name: str) -> str:
        """Return the URL of the warehouse's folder for a new table of the lake.

        Raises InvalidRequest without a lake, and for a name that would leave the warehouse, is
        reserved for a folder of txlake or of a database, or is longer than 255 bytes.
        """
        if self.warehouse is None:
            raise InvalidRequest(
                f"{name}: there is no lake to hold named tables; name the table by its path, or "
                "connect to a lake with txlake.connect"
            )
        for part in (database, name):
            if not part or part in {".", ".."} or set(part) & set("/\\\0"):
                raise InvalidRequest(f"{part!r} can't name a database or table: it is no file name")
        if {database.lower(), name.lower()} & _OWN_FOLDERS:
            raise InvalidRequest(f"{name!r} can't name a table: a folder of that name is txlake's")
        if name.lower().endswith(".db"):
            raise InvalidRequest(f"{name!r} can't name a table: databases have such folders")
        if self.branch is not None:  # main and other branches may make a table of this name
            name = f"{name}@{self.branch.id[:8]}"
        parts = [name] if database.lower() == DEFAULT_DATABASE else [f"{database}.db", name]
        for part in parts:
            if (size := len(part.encode("utf-8", "surrogateescape"))) > _FOLDER_BYTES_MAX:
                raise InvalidRequest(
                    f"{part[:40]!r}... can't be a folder of the warehouse: its name has {size} "
                    f"bytes, and a folder's at most {_FOLDER_BYTES_MAX}; use a shorter name, or "
                    "give the table a LOCATION"
                )
        folder = "/".join(parts)
        return self.warehouse.at(folder).url
