"""What the tests of locks share: owners of locks on one catalog, and things to lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.catalog.ledgers import prepared
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.fence import Fence
from txlake.catalog.lock_entries import LockEntry
from txlake.catalog.locks import Locks
from txlake.catalog.opening import open_database
from txlake.catalog.sessions import Sessions
from txlake.catalog.transactions import Transactions
from txlake.conflict.locking import LockMode, LockRequest, LockStatus, Owner, Resource, ResourceType
from txlake.system import System

LEASE_MS = 30_000


def table(number: int = 1, subtype: str = "") -> Resource:
    """A table that isn't in the catalog."""
    return Resource(type=ResourceType.OBJECT, database=1, entity=number, subtype=subtype)


def blocking_locks(
    locks: Locks, session: int, transaction: str, requests: Sequence[LockRequest]
) -> list[LockEntry]:
    """Return the granted locks that the requests would have to wait for; request nothing."""
    owner = Owner(session=session, transaction=transaction)

    def read() -> list[LockEntry]:
        with locks._database.reading() as connection:
            return locks._blocking(connection, owner, requests)

    blocking = locks._database.run_shielded(read)
    return [entry for entry in blocking if entry.status is LockStatus.GRANT]


def wants(mode: str, *numbers: int) -> list[LockRequest]:
    """The mode on tables, the first one without a number."""
    return [LockRequest(resource=table(one), mode=LockMode(mode)) for one in numbers or (1,)]


@dataclass(kw_only=True)
class Party:
    """A transaction of a session of its own, in one process's eyes."""

    locks: Locks
    session: int
    transaction: str
    pool: ThreadPoolExecutor

    def takes(self, mode: str, *numbers: int, timeout_ms: int = 0) -> None:
        """Get locks at once, or waits so long."""
        self.locks.acquire(self.session, self.transaction, wants(mode, *numbers), timeout_ms)

    def asks(self, mode: str, *numbers: int, timeout_ms: int = 60_000) -> Future[None]:
        """Asks in a thread of its own, and comes back when it waits or was answered."""
        answer = self.pool.submit(self.takes, mode, *numbers, timeout_ms=timeout_ms)
        until(lambda: answer.done() or self.waits())
        return answer

    def waits(self) -> bool:
        """Whether a request of it waits."""
        return any(one.status is not LockStatus.GRANT for one in self.entries())

    def entries(self) -> list[LockEntry]:
        """Its requests."""
        return [one for one in self.locks.entries() if one.transaction_id == self.transaction]

    def ends(self) -> None:
        """Releases all that it has."""
        self.locks.release(self.transaction)


@dataclass(kw_only=True)
class Parties:
    """Makes them; each new process has its own objects."""

    url: str
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))
    opened: list[Process] = field(default_factory=list)

    def process(self, lease_ms: int = LEASE_MS) -> Process:
        """What one more process has."""
        database = open_database(self.url, System(), lease_ms=lease_ms)
        sessions = Sessions(database, lease_ms)
        transactions = Transactions(database, Fence(database.display_url), sessions)
        made = Process(
            database=database,
            sessions=sessions,
            transactions=transactions,
            locks=Locks(database, sessions.ensure_row),
            pool=self.pool,
        )
        self.opened.append(made)
        return made


@dataclass(kw_only=True)
class Process:
    """One process's objects on the catalog."""

    database: Database
    sessions: Sessions
    transactions: Transactions
    locks: Locks
    pool: ThreadPoolExecutor

    def party(self, transaction: str) -> Party:
        """A new transaction, younger than those before."""
        session = self.sessions.open()
        self.transactions.begin(transaction, session)
        return Party(locks=self.locks, session=session, transaction=transaction, pool=self.pool)

    def awaits_nobody(self, requests: Sequence[LockRequest]) -> bool:
        """Whether somebody new could have the locks at once."""

        def look() -> bool:
            with self.database.reading() as connection:
                return not self.locks.is_contested(connection, requests)

        return self.database.run_shielded(look)


@contextmanager
def parties_on(url: str) -> Iterator[Parties]:
    """Parties on a new catalog."""
    Catalog(prepared(url), System()).close()
    made = Parties(url=url)
    try:
        yield made
    finally:
        # When a test has failed, those who still wait for a lock learn that they have no session.
        for one in made.opened:
            one.sessions.stop()
        for one in made.opened:
            one.locks.forget_owner("")
        made.pool.shutdown()
        for one in made.opened:
            one.database.close()


def until(happened: Callable[[], bool]) -> None:
    """Look until it happened, which others bring about."""
    pause = threading.Event()
    for _ in range(20_000):
        if happened():
            return
        pause.wait(0.001)
    raise AssertionError("it didn't happen")
