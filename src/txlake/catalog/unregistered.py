"""Writers that the catalog doesn't know before they commit.

Where each change of the catalog is a request to a store, a transaction that reads or changes rows
first registers nothing and takes no locks: its commit is one change. What the catalog replied to it
is checked again in the database transaction that ratifies it: its names mean the same tables,
nobody holds a lock against it, and no VACUUM has looked for open transactions since. Otherwise it
is outdated, and has to run again.

A transaction that is open for a second is registered with its locks, and so are all of this process
as soon as one of its threads requests a lock or lists transactions or locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.fact_rows import fact, set_fact
from txlake.catalog.heartbeat import DelayedCall
from txlake.catalog.lookup import CatalogView, LookupRequest, look_up
from txlake.catalog.owners import registered_among
from txlake.catalog.relations import bare, commits
from txlake.catalog.shielding import shielded
from txlake.conflict.locking import LockRequest, Owner
from txlake.errors import TxlakeError, Unavailable

_log = logging.getLogger(__name__)

REGISTERED_MS = 1_000

_FENCE = "unregistered_writers_fence"
_RATIFIED = tuple(
    sa.select(relation.c.sequence).where(relation.c.transaction_id == sa.bindparam("id")).limit(1)
    for relation in (commits, bare)
)


class AdmissionOutdated(Unavailable):
    """What the catalog replied to a transaction that isn't registered isn't true any more: nothing
    was committed, and it has to run again.
    """


@dataclass(frozen=True, slots=True)
class CatalogReply:
    """What the catalog replied to one statement.

    Attributes:
        lookup: the names and places that the statement refers to.
        required_locks: returns the locks that it requires for a view; None if that can't be said.
        locks: those that it required.
        ids: the tables that the names meant.
    """

    lookup: LookupRequest
    required_locks: Callable[[CatalogView], Sequence[LockRequest] | None]
    locks: tuple[LockRequest, ...]
    ids: frozenset[str]


@dataclass(slots=True)
class _Writer:
    """A transaction that isn't registered.

    Attributes:
        row: its row, for the registration.
        is_explicit: it was begun by BEGIN, and announced.
        fence: the number of the last VACUUM that looked for open transactions before it began.
        since_ms: when it began, by the monotonic clock.
    """

    owner: Owner
    row: Mapping[str, Any]
    is_explicit: bool
    fence: int
    since_ms: float
    replies: list[CatalogReply] = field(default_factory=list)

    @property
    def locks(self) -> list[LockRequest]:
        """The locks that its statements required, each once."""
        locks = [lock for reply in self.replies for lock in reply.locks]
        return list(dict.fromkeys(locks))


class Registrar(Protocol):
    """Registers transactions in the catalog."""

    def register(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Register new transactions, and return their numbers."""
        ...

    def is_announced(self, transaction_id: str) -> bool:
        """Return whether an explicit transaction is open, and not registered yet."""
        ...

    def withdraw(self, transaction_id: str) -> bool:
        """Withdraw an announced transaction; return False if it isn't announced."""
        ...


class LockQueue(Protocol):
    """Grants locks in the caller's database transaction."""

    def is_contested(self, connection: Connection, requests: Sequence[LockRequest]) -> bool:
        """Return whether a new owner would have to wait for one of the locks."""
        ...

    def grant_new(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest]
    ) -> None:
        """Grant locks that are free to an owner that is new."""
        ...

    def note_granted(self, owner: Owner, requests: Sequence[LockRequest]) -> None:
        """Remember locks that were granted so, after the commit."""
        ...


def read_fence(connection: Connection) -> int:
    """Return the number of the last VACUUM that looked for open transactions."""
    return int(fact(connection, _FENCE) or 0)


def raise_fence(connection: Connection) -> None:
    """Make all writers outdated that aren't registered, before their files are looked for.

    The caller has locked the sequence.
    """
    set_fact(connection, _FENCE, str(read_fence(connection) + 1))


@shielded(unshielded=("has",))
class UnregisteredWriters:
    """The unregistered writers of this process in one catalog, by the ids of their transactions.

    Thread-safe.
    """

    def __init__(self, database: Database, registrar: Registrar, locks: LockQueue) -> None:
        self._database = database
        self._registrar = registrar
        self._locks = locks
        self._writers: dict[str, _Writer] = {}
        # Those that were registered since, or may have been.
        self._registered: set[str] = set()
        self._registering = threading.RLock()  # taken within the database's turn, if both are
        self._later = DelayedCall(self._register_due, REGISTERED_MS)
        _of_process.setdefault(database.display_url, WeakSet()).add(self)

    def add(self, owner: Owner, row: Mapping[str, Any], fence: int, reply: CatalogReply) -> None:
        """Add a reply of the catalog to a writer, which is new with its first one.

        `row`: the transaction's, with its instant. `fence`: as `read_fence` returned it with the
        reply.
        """
        assert owner.transaction is not None, "sessions don't commit"
        with self._registering:
            writer = self._writers.get(owner.transaction)
            if writer is None:
                now_ms = self._database.system.monotonic_ms()
                writer = _Writer(owner, row, bool(row["explicit"]), fence, now_ms)
                self._writers[owner.transaction] = writer
            writer.replies.append(reply)
        self._later.schedule()

    def has(self, transaction_id: str) -> bool:
        """Return whether the transaction is an unregistered writer's. Touches no database."""
        return transaction_id in self._writers

    def forget(self, transaction_id: str) -> bool:
        """Forget a writer; return whether the catalog may have its row."""
        with self._registering:
            self._writers.pop(transaction_id, None)
            was_registered = transaction_id in self._registered
            self._registered.discard(transaction_id)
            return was_registered

    def forget_ratified(self, transaction_ids: Sequence[str]) -> None:
        """Forget writers that were ratified."""
        with self._registering:
            for transaction_id in transaction_ids:
                if self._writers.pop(transaction_id, None) is not None:
                    self._registrar.withdraw(transaction_id)

    def require_registered(self, transaction_id: str) -> None:
        """Register the transaction with its locks, unless it is. Raises AdmissionOutdated."""
        self.register()
        if self.has(transaction_id):
            raise _outdated(transaction_id, "its tables have changed since its first statement")
        self._registered.discard(transaction_id)

    def require_undisturbed(self, transaction_id: str) -> None:
        """Raise AdmissionOutdated if a VACUUM may have deleted what the writer reads or wrote."""
        writer = self._writers.get(transaction_id)
        if writer is None:
            return
        with self._database.reading() as connection:
            if read_fence(connection) != writer.fence:
                raise _outdated(transaction_id, "a VACUUM didn't know of it")

    def check(self, connection: Connection, transaction_id: str) -> None:
        """Raise AdmissionOutdated unless the replies to the writer are still true; the caller's
        transaction ratifies it. Do nothing for other transactions.
        """
        writer = self._writers.get(transaction_id)
        if writer is not None:
            self._check(connection, transaction_id, writer)

    def register_all(self) -> None:
        """Register all writers of this process in this catalog, also those of other lakes' objects,
        unless they are outdated.
        """
        for writers in list(_of_process.get(self._database.display_url, ())):
            writers.register()

    def register(self, older_than_ms: float = 0.0) -> None:
        """Register this object's writers that are at least so old, with their locks, unless they
        are outdated.
        """
        if not self._writers:
            return
        with self._database.turn(), self._registering:
            self._drop_ended()
            latest = self._database.system.monotonic_ms() - older_than_ms
            due = {one: each for one, each in self._writers.items() if each.since_ms <= latest}
            if not due:
                return

            def work(connection: Connection) -> list[str]:
                return [one for one in due if self._write(connection, one, due[one])]

            try:
                made = self._database.write_relaxed(work)
            except CommitUnsettled:
                # The catalog may have them: who ends one removes its row, and none is added again.
                for transaction_id in due:
                    self._note_registered(transaction_id)
                raise
            for transaction_id in made:
                writer = self._note_registered(transaction_id)
                self._locks.note_granted(writer.owner, writer.locks)

    def _note_registered(self, transaction_id: str) -> _Writer:
        """Record that the catalog has, or may have, a writer's row; return the writer."""
        self._registered.add(transaction_id)
        writer = self._writers.pop(transaction_id)
        self._registrar.withdraw(transaction_id)
        return writer

    def close(self) -> None:
        """Register no writers any more."""
        self._later.stop()
        _of_process[self._database.display_url].discard(self)
        self._writers.clear()

    def _write(self, connection: Connection, transaction_id: str, writer: _Writer) -> bool:
        """Write a writer's row and locks; return False if it is outdated, or ratified already, or
        was registered without its locks by another thread that shares the database transaction.
        """
        try:
            self._check(connection, transaction_id, writer)
        except AdmissionOutdated:
            return False
        if _is_ratified(connection, transaction_id):
            return False
        if registered_among(connection, [transaction_id]):
            return False
        self._registrar.register(connection, [dict(writer.row)])
        self._locks.grant_new(connection, writer.owner, writer.locks)
        return True

    def _check(self, connection: Connection, transaction_id: str, writer: _Writer) -> None:
        """Raise AdmissionOutdated unless the replies are still true."""
        if read_fence(connection) != writer.fence:
            raise _outdated(transaction_id, "a VACUUM didn't know of it")
        for reply in writer.replies:
            view = look_up(connection, reply.lookup)()
            locks = reply.required_locks(view)
            if locks is None or tuple(locks) != reply.locks or view.ids != reply.ids:
                raise _outdated(transaction_id, "its tables' names have changed")
        if self._locks.is_contested(connection, writer.locks):
            raise _outdated(transaction_id, "another transaction has locked its tables")

    def _drop_ended(self) -> None:
        """Forget explicit transactions that have ended."""
        for transaction_id, writer in list(self._writers.items()):
            if writer.is_explicit and not self._registrar.is_announced(transaction_id):
                del self._writers[transaction_id]

    def _register_due(self) -> None:
        """Register the writers that are open for a second; log a failure."""
        try:
            self._database.run_shielded(lambda: self.register(0.9 * REGISTERED_MS))
        except TxlakeError as error:
            _log.warning("transactions aren't registered yet: %s", error)
        if self._writers:
            self._later.schedule()


_of_process: dict[str, WeakSet[UnregisteredWriters]] = {}


def _is_ratified(connection: Connection, transaction_id: str) -> bool:
    """Return whether a transaction is in the ledger."""
    given = {"id": transaction_id}
    return any(connection.execute(query, given).first() is not None for query in _RATIFIED)


def _outdated(transaction_id: str, reason: str) -> AdmissionOutdated:
    return AdmissionOutdated(
        f"transaction {transaction_id}: {reason}; nothing was committed, run it again"
    )
