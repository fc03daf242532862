"""The parts that every catalog has: sessions, transactions, locks, journal, views, schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from txlake.catalog.names import TableEntry
from txlake.catalog.views import ViewEntry
from txlake.errors import Conflict
from txlake.ports import OpenTransactions

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
