"""What is asked of a catalog where there may be none.

`Catalog` is a lake's, `NoCatalog` stands where tables are named by their places alone: it knows no
name, takes no locks and keeps no book; `unity.UnityCatalog` has another system's names, and that
system makes the versions. All that only a lake can do is asked of `of_lake()`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from txlake.catalog.names import DatabaseEntry, TableEntry
from txlake.catalog.views import ViewEntry
from txlake.errors import Conflict
from txlake.ports import Ledger, OpenTransactions
from txlake.sql.statements import TableName

if TYPE_CHECKING:
    from txlake.catalog.catalog import Catalog

Lock = TypeVar("Lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """Where another system's catalog wants a new table.

    Attributes:
        entry: the table's id, place and name.
        features: the table features that its first commit has to have.
        properties: the properties that its first commit has to set.
    """

    entry: TableEntry
    features: frozenset[str]
    properties: Mapping[str, str]


class Schemas(Protocol):
    """Another system's schemas, which are a session's databases."""

    def create(
        self, name: str, *, comment: str | None = None, properties: Mapping[str, str]
    ) -> None:
        """Makes a schema. Raises InvalidRequest where there is one of that name."""
        ...

    def drop(self, name: str, *, cascade: bool) -> None:
        """Drops a schema. Raises InvalidRequest for one with tables, unless `cascade`."""
        ...


class Sessions(Protocol):
    """The sessions that others see."""

    def open(self, holder: object = None) -> int:
        """A new session's number; it ends when its holder is gone."""
        ...

    def close(self, session_id: int) -> None:
        """Ends a session, its transactions and its locks."""
        ...

    def end_abandoned(self) -> None:
        """Ends the sessions that nobody holds any more."""
        ...


class Transactions(Protocol):
    """The transactions that others see."""

    def begin(
        self,
        transaction_id: str,
        session_id: int,
        *,
        isolation: str | None = None,
        read_only: bool = False,
        explicit: bool = True,
        holder: object = None,
    ) -> int:
        """Notes a new transaction and gives its number; it ends when its holder is gone."""
        ...

    def announce(
        self,
        transaction_id: str,
        session_id: int,
        *,
        isolation: str | None = None,
        read_only: bool = False,
        holder: object = None,
    ) -> None:
        """As `begin`, for an explicit transaction, when it is needed."""
        ...

    def register_announced(self) -> None:
        """Notes the transactions that were announced."""
        ...

    def set_isolation(self, transaction_id: str, isolation: str) -> None:
        """Notes which level an open transaction asks for now."""
        ...

    def end(self, transaction_id: str) -> None:
        """Ends a transaction, its locks and its reservations; one that isn't there is no error."""
        ...

    def abandon(self, transaction_id: str) -> None:
        """Notes that a transaction has to end."""
        ...

    def forget(self, transaction_id: str) -> None:
        """Notes that a transaction has ended, by its ratification."""
        ...

    def end_abandoned(self) -> Sequence[str]:
        """Ends the transactions that nobody holds any more; their ids."""
        ...

    def require_unkilled(self, transaction_id: str) -> None:
        """Raises Unavailable for one that was killed."""
        ...

    def require_open(self, transaction_id: str) -> None:
        """Raises Unavailable for one that was ended, or killed, by somebody else."""
        ...

    def others_open(self, besides: str) -> OpenTransactions:
        """The other transactions that may still be ratified."""
        ...


class Locks(Protocol):
    """The locks of statements."""

    def to_acquire(self, locks: Sequence[Lock]) -> Sequence[Lock]:
        """Those of the wanted locks that are taken, if need be."""
        ...

    def set_ending_thread(self, transaction_id: str) -> None:
        """Says that the calling thread ends the transaction, and no other does."""
        ...

    def forget_owner(self, owner: str | int) -> None:
        """Wakes who waits for a transaction, or a session, that has ended."""
        ...


class Journal(Protocol):
    """The conflicts that there were."""

    def record(self, transaction_id: str, session_id: int | None, conflict: Conflict) -> None:
        """Notes a conflict."""
        ...


class Views(Protocol):
    """The views by name."""

    def find(self, database: str, name: str) -> ViewEntry | None:
        """The view of that name; letter case doesn't count."""
        ...


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
