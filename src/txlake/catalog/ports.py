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
    """The place that another system's catalog has chosen for a new table, and its requirements.

    Attributes:
        entry: the table's id, place and name.
        features: the table features that the first commit has to enable.
        properties: the table properties that the first commit has to set.
    """

    entry: TableEntry
    features: frozenset[str]
    properties: Mapping[str, str]


class Schemas(Protocol):
    """The schemas of another system's catalog, which are a session's databases."""

    def create(
        self, name: str, *, comment: str | None = None, properties: Mapping[str, str]
    ) -> None:
        """Create a schema. Raises InvalidRequest if the name is taken."""
        ...

    def drop(self, name: str, *, cascade: bool) -> None:
        """Drop a schema. Raises InvalidRequest for one with tables, unless `cascade` is set."""
        ...


class Sessions(Protocol):
    """The sessions of a catalog, visible to all its users."""

    def open(self, holder: object = None) -> int:
        """Open a session and return its number. The session ends when `holder` is
        garbage-collected.
        """
        ...

    def close(self, session_id: int) -> None:
        """End a session with its transactions and locks."""
        ...

    def end_abandoned(self) -> None:
        """End the sessions whose holders were garbage-collected."""
        ...


class Transactions(Protocol):
    """The open transactions of a catalog, visible to all its users."""

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
        """Register a new transaction and return its number.

        The transaction ends when `holder` is garbage-collected. `explicit`: begun by BEGIN.
        """
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
        """Prepare an explicit transaction, which is registered (`begin`) when it is needed."""
        ...

    def register_announced(self) -> None:
        """Register the announced transactions."""
        ...

    def set_isolation(self, transaction_id: str, isolation: str) -> None:
        """Record the isolation level that an open transaction now has."""
        ...

    def end(self, transaction_id: str) -> None:
        """End a transaction with its locks and reservations, if it is open."""
        ...

    def abandon(self, transaction_id: str) -> None:
        """Mark a transaction as abandoned, for `end_abandoned` to end."""
        ...

    def forget(self, transaction_id: str) -> None:
        """Stop tracking a transaction, which was ratified or left no trace."""
        ...

    def end_abandoned(self) -> Sequence[str]:
        """End the abandoned transactions, and those whose holders were garbage-collected.

        Returns their ids.
        """
        ...

    def require_unkilled(self, transaction_id: str) -> None:
        """Raise Unavailable if the transaction was killed."""
        ...

    def require_open(self, transaction_id: str) -> None:
        """Raise Unavailable if another session ended or killed the transaction."""
        ...

    def others_open(self, besides: str) -> OpenTransactions:
        """Return the transactions that may still be ratified, except the one with the id
        `besides`.
        """
        ...


class Locks(Protocol):
    """The locks of statements."""

    def to_acquire(self, locks: Sequence[Lock]) -> Sequence[Lock]:
        """Return the locks that have to be acquired: all of `locks`, or none without a lake."""
        ...

    def set_ending_thread(self, transaction_id: str) -> None:
        """Record that only the calling thread ends the transaction."""
        ...

    def forget_owner(self, owner: str | int) -> None:
        """Wake the waiters of this process after a transaction or session has ended."""
        ...


class Journal(Protocol):
    """The conflict journal."""

    def record(self, transaction_id: str, session_id: int | None, conflict: Conflict) -> None:
        """Record a conflict that ended the transaction."""
        ...


class Views(Protocol):
    """Views by name."""

    def find(self, database: str, name: str) -> ViewEntry | None:
        """Return the view of that name, in any letter case; None if there is none."""
        ...
