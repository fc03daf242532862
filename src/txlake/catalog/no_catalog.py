"""The empty catalog, for path tables.

It has no names and no other sessions, requires no locks, and touches no database.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from txlake.catalog.names import MAIN, DatabaseEntry, TableEntry
from txlake.catalog.ports import Lock, NewPlace, Schemas
from txlake.errors import Conflict, InvalidRequest
from txlake.ports import Ledger, OpenTransactions
from txlake.sql.statements import TableName


class _NoSessions:
    def open(self, holder: object = None) -> int:
        """Return 0, the number of all sessions."""
        return 0

    def close(self, session_id: int) -> None: ...

    def end_abandoned(self) -> None: ...


class _NoTransactions:
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
        return 0

    def announce(
        self,
        transaction_id: str,
        session_id: int,
        *,
        isolation: str | None = None,
        read_only: bool = False,
        holder: object = None,
    ) -> None: ...

    def register_announced(self) -> None: ...

    def set_isolation(self, transaction_id: str, isolation: str) -> None: ...

    def end(self, transaction_id: str) -> None: ...

    def abandon(self, transaction_id: str) -> None: ...

    def forget(self, transaction_id: str) -> None: ...

    def end_abandoned(self) -> Sequence[str]:
        return ()

    def require_unkilled(self, transaction_id: str) -> None: ...

    def require_open(self, transaction_id: str) -> None: ...

    def others_open(self, besides: str) -> OpenTransactions:
        return OpenTransactions()


class _NoLocks:
    def to_acquire(self, locks: Sequence[Lock]) -> Sequence[Lock]:
        return ()

    def set_ending_thread(self, transaction_id: str) -> None: ...

    def forget_owner(self, owner: str | int) -> None: ...


class _NoJournal:
    def record(self, transaction_id: str, session_id: int | None, conflict: Conflict) -> None: ...


class _NoViews:
    def find(self, database: str, name: str) -> None: ...


class NoCatalog:
    """An `AnyCatalog` without names, sessions, locks or records."""

    lake_id: None = None
    is_lake = False
    has_names = False
    branch = MAIN

    @property
    def schemas(self) -> Schemas | None:
        return None

    def __init__(self) -> None:
        self.sessions = _NoSessions()
        self.transactions = _NoTransactions()
        self.locks = _NoLocks()
        self.journal = _NoJournal()
        self.views = _NoViews()

    def of_lake(self) -> NoReturn:
        raise InvalidRequest("there is no lake here; open one with txlake.connect")

    @property
    def ledger(self) -> Ledger:
        return self.of_lake()

    def close(self) -> None: ...

    def new_place(self, database: str, name: str) -> NewPlace | None: ...

    def requirements_of(self, table_id: str) -> NewPlace | None: ...

    def qualified(self, table: TableName, database: str, lakes: Collection[str]) -> tuple[str, str]:
        """Return the name as it is, without resolving its parts."""
        return database, str(table)

    def database(self, name: str) -> DatabaseEntry | None: ...

    def databases(self) -> Sequence[DatabaseEntry]:
        return ()

    def tables(self, database: str) -> Sequence[TableEntry]:
        return ()

    def find(self, database: str, name: str) -> TableEntry | None: ...

    def at_place(self, location: str) -> None: ...

    def share(self, location: str, others: Collection[str]) -> None: ...

    def shared_with(self, location: str) -> tuple[str, ...]:
        return ()
