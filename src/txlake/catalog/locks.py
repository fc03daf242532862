"""The lake's locks, across threads and processes: request, wait, grant in order, release.

The rows of `lock_rows` are the authority: `conflict.locking` decides what is granted, in a database
transaction that has locked the queue. A waiter polls, and is woken at once if a lock was released
in its own process; it also detects the deadlocks that it is part of. Locks of a session whose lease
has expired, and of a transaction that was killed or isn't registered, are void.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from txlake.catalog import lock_rows
from txlake.catalog.database import Database
from txlake.catalog.group_commit import Interrupted
from txlake.catalog.lock_entries import LockEntry, blocking_requests, lock_entry
from txlake.catalog.lock_errors import (
    deadlock_of,
    granted_lock,
    lost_error,
    own_thread_error,
    require_registered,
    require_row,
    timeout_error,
    with_status,
)
from txlake.catalog.owners import ACTIVE, reap, release_locks, send_state_query
from txlake.catalog.ports import Lock
from txlake.catalog.prepared import pipelined
from txlake.catalog.shielding import shielded
from txlake.conflict.locking import (
    LockMode,
    LockRequest,
    LockStatus,
    Owner,
    Queued,
    Resource,
    at_least,
    blockers,
    conversion_mode,
    cycle_through,
    wait_graph,
    youngest,
)
from txlake.errors import LockTimeout, Unavailable
from txlake.telemetry import span, timed

_PAUSE_MS_MIN = 2.0
_PAUSE_MS_MAX = 50.0
# A waiter pauses no longer than this part of the time it has waited, or `_NEXT_PAUSE_MS_MAX`, while
# one request alone is ahead of it: what is short to hold is taken over soon.
_NEXT_PAUSE_PART = 0.05
_NEXT_PAUSE_MS_MAX = 5.0
_PAUSE_GROWTH = 1.5
# How long a thread waits for a transaction that it used last itself. Only another thread could end
# that transaction, if the waiting thread has handed it over.
_OWN_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """An owner's lock requests.

    `is_new`: the owner's transaction is registered in the same database transaction.
    """

    owner: Owner
    requests: Sequence[LockRequest]
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class LockResult:
    """The result of an owner's requests.

    Attributes:
        granted: the granted requests, in order.
        waiting: the request that has to wait; those after it weren't made.
        wakes_waiters: other waiters have to look again, such as the victims of a deadlock.
    """

    granted: Sequence[Queued] = ()
    waiting: Queued | None = None
    wakes_waiters: bool = False


@shielded(
    unshielded=(
        *("to_acquire", "set_ending_thread", "note_use", "change_count", "remember"),
        *("note_granted", "holds", "converts"),
    ),
    waits=("acquire", "wait"),
)
class Locks:
    """The locks of one catalog. Thread-safe, if each owner is used by one thread at a time.

    `ensure_session` inserts the row of a session that requests a lock itself.
    """

    def __init__(
        self,
        database: Database,
        ensure_session: Callable[[Connection, int], None] = lambda _connection, _session_id: None,
    ) -> None:
        self._database = database
        self._ensure_session = ensure_session
        self._changes = _ChangeSignal()
        # Makes this process's transactions take the locks that they need and don't have yet.
        self.before_requests: Callable[[], None] = _nothing
        # Granted locks by transaction or session: requesting one of them again costs nothing.
        self._granted: dict[str | int, dict[Resource, LockMode]] = {}
        # The thread that used a transaction last, and the only thread that ends it, if known. Not
        # their idents, which later threads may have again.
        self._last_threads: dict[str | int, threading.Thread] = {}
        self._ending_threads: dict[str | int, threading.Thread] = {}

    def acquire(
        self,
        session_id: int,
        transaction_id: str | None,
        requests: Sequence[LockRequest],
        timeout_ms: int,
    ) -> None:
        """Acquire all locks, in the order given; wait up to `timeout_ms` for each, -1 without
        limit.

        The locks belong to the transaction until it ends, without one to the session. If this
        raises, the locks granted before may be held, and no request is left in the queue.

        Raises:
            LockTimeout: a lock was not granted in time; names its holders.
            Deadlock: the transaction waits for itself and is the youngest of the cycle, or waits
                for a transaction that its own thread used last: raised at once if that thread
                alone ends it (`set_ending_thread`), else after ten seconds.
            Unavailable: the session's lease has expired, the transaction was killed, or the
                database can't be reached.
        """
        owner = Owner(session=session_id, transaction=transaction_id)
        if transaction_id is not None:
            self.note_use(transaction_id)
        self.before_requests()
        request = self.request if owner.transaction is not None else self._request_for_session
        work = partial(request, owner=owner, requests=requests, waits=timeout_ms != 0)
        try:
            while self._not_held(owner, requests):
                since = self.change_count
                result = self._database.write_relaxed(work)
                self.remember(owner, result)
                if result.waiting is None:
                    return
                self.wait(result.waiting, since, timeout_ms)
        except BaseException:
            self.withdraw(owner)
            raise

    def to_acquire(self, locks: Sequence[Lock]) -> Sequence[Lock]:
        """Return all of `locks`."""
        return locks

    def note_use(self, transaction_id: str) -> None:
        """Record that the calling thread uses the transaction."""
        self._last_threads[transaction_id] = self._database.caller()

    def set_ending_thread(self, transaction_id: str) -> None:
        """Record that only the calling thread ends the transaction."""
        self._ending_threads[transaction_id] = self._database.caller()

    def release(self, transaction_id: str) -> None:
        """Release a transaction's locks and its turns to commit."""
        self._database.write_relaxed(lambda connection: release_locks(connection, [transaction_id]))
        self.forget_owner(transaction_id)

    def release_session_locks(self, session_id: int, except_on: Resource) -> None:
        """Release the locks that belong to a session itself, not to a transaction, except those on
        one resource.
        """
        self._database.write_relaxed(
            lambda connection: lock_rows.remove_session_locks(connection, session_id, except_on)
        )
        modes = self._granted.get(session_id, {})
        self._granted[session_id] = {
            resource: mode for resource, mode in modes.items() if resource == except_on
        }
        self._changes.notify()

    def forget_owner(self, owner: str | int) -> None:
        """Forget the locks of a transaction or session that has ended, and wake the waiters of this
        process.
        """
        self._granted.pop(owner, None)
        self._last_threads.pop(owner, None)
        self._ending_threads.pop(owner, None)
        self._changes.notify()

    def is_contested(self, connection: Connection, requests: Sequence[LockRequest]) -> bool:
        """Return whether a new owner would have to wait for one of the locks."""
        return bool(self._blocking(connection, _new_owner(), requests))

    def send_contest_query(
        self, connection: Connection, requests: Sequence[LockRequest]
    ) -> Callable[[], bool]:
        """Send the query whether a new owner would have to wait for one of the locks; return a
        function that waits for the answer. It is True also where only void requests are ahead.
        """
        read_queue = lock_rows.send_queue_query(
            connection, {request.resource for request in requests}
        )
        return lambda: bool(blocking_requests(_new_owner(), requests, read_queue()))

    def holds(self, owner: Owner, requests: Sequence[LockRequest]) -> bool:
        """Return whether an owner was granted all of the locks. Touches no database."""
        return not self._not_held(owner, requests)

    def converts(self, owner: Owner, requests: Sequence[LockRequest]) -> bool:
        """Return whether an owner has a weaker lock on a resource. Touches no database."""
        modes = self._granted.get(owner.transaction or owner.session, {})
        return any(request.resource in modes for request in self._not_held(owner, requests))

    def entries(self) -> list[LockEntry]:
        """Return the lock requests of living sessions, in the order of the requests."""
        self.before_requests()
        self._database.observe_leases(is_urgent=True)
        with self._database.reading() as connection:
            queue = lock_rows.read_queue(connection, self._database, living=True)
        return [lock_entry(request, queue) for request in queue.requests]

    # Requests

    def _not_held(self, owner: Owner, requests: Sequence[LockRequest]) -> list[LockRequest]:
        """Return the requests for locks that the owner doesn't hold yet, each resource once."""
        modes = self._granted.get(owner.transaction or owner.session, {})
        missing: dict[Resource, LockMode] = {}
        for request in requests:
            resource = request.resource
            if resource not in modes or not at_least(modes[resource], request.mode):
                mode = missing.get(resource, request.mode)
                missing[resource] = conversion_mode(mode, request.mode)
        return [LockRequest(resource=resource, mode=mode) for resource, mode in missing.items()]

    def send_requests(
        self, connection: Connection, batches: Sequence[OwnerRequests]
    ) -> Callable[[], list[LockResult | None]]:
        """Send the requests of several owners; return a function that waits for the results.

        A result is None if an owner's locks can't all be granted now, after those of the owners
        before it, or if its transaction isn't registered: `request` then finds out why.
        `write_grants` writes the granted locks.
        """
        missing = [self._not_held(batch.owner, batch.requests) for batch in batches]
        resources = {request.resource for requests in missing for request in requests}
        count = sum(map(len, missing))
        registered = [batch.owner.transaction for batch in batches if not batch.is_new]
        read_first_id = lock_rows.send_next_ids(connection, count) if count else None
        read_states = send_state_query(connection, registered) if registered else dict
        read_queue = lock_rows.send_queue_query(connection, resources) if count else list

        def read_results() -> list[LockResult | None]:
            next_id = read_first_id() if read_first_id else 0
            states, queue = read_states(), read_queue()
            results: list[LockResult | None] = []
            for batch, requests in zip(batches, missing):
                queued = _numbered(batch.owner, requests, next_id)
                is_open = batch.is_new or states.get(batch.owner.transaction) == ACTIVE
                if is_open and not any(_is_blocked(request, queue) for request in queued):
                    queued = [replace(request, status=LockStatus.GRANT) for request in queued]
                    results.append(LockResult(queued))
                else:
                    results.append(None)
                queue += queued  # later owners don't overtake a request that has to wait
                next_id += len(queued)
            return results

        return read_results

    def write_grants(self, connection: Connection, granted: Sequence[Queued]) -> None:
        """Write the locks that `send_requests` granted; call `remember` after the commit.

        Raises SQLAlchemy's IntegrityError if a session was removed: raise `lost_error`.
        """
        lock_rows.add(connection, self._database, granted)

    def grant_new(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest]
    ) -> None:
        """Grant locks that aren't contested to an owner that is registered in the same transaction;
        call `note_granted` after the commit.
        """
        [result] = self.send_requests(connection, [OwnerRequests(owner, requests, is_new=True)])()
        assert result is not None, "the caller has found that no lock is contested"
        self.write_grants(connection, result.granted)

    def note_granted(self, owner: Owner, requests: Sequence[LockRequest]) -> None:
        """Remember the locks that `grant_new` granted."""
        modes = self._granted.setdefault(owner.transaction or owner.session, {})
        modes |= {request.resource: request.mode for request in requests}

    def request(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest], *, waits: bool
    ) -> LockResult:
        """Request the locks that the owner doesn't hold yet; call `remember` after the commit.

        Raises as `acquire`; if `waits` is false, LockTimeout at once.
        """
        missing = self._not_held(owner, requests)
        granted: list[Queued] = []
        waiting: Queued | None = None
        wakes_waiters = False
        with pipelined(connection):
            read_first_id = lock_rows.send_next_ids(connection, len(missing))
            read_states = send_state_query(connection, [owner.transaction])
            read_queue = lock_rows.send_queue_query(
                connection, {request.resource for request in missing}
            )
            first_id = read_first_id()
            require_registered(owner, read_states())
            queue = read_queue()
        new: list[Queued] = []
        for request_id, request in enumerate(missing, first_id):
            lock = granted_lock(owner, request.resource, queue)
            queued = Queued(
                id=request_id,
                owner=owner,
                resource=request.resource,
                mode=request.mode if lock is None else conversion_mode(lock.mode, request.mode),
                status=LockStatus.WAIT if lock is None else LockStatus.CONVERT,
            )
            if lock is not None and queued.mode is lock.mode:
                pass
            elif blockers(queued, queue):
                self._add(connection, [*new, queued])
                new = []
                wakes_waiters = True
                if not self._try_grant(connection, queued):
                    if not waits:
                        raise self._timeout(connection, queued, 0)
                    waiting = queued
                    break
            elif lock is not None:
                require_row(lock_rows.convert(connection, lock, queued.mode), owner)
            else:
                new.append(replace(queued, status=LockStatus.GRANT))
            granted.append(queued)
        self._add(connection, new)
        return LockResult(granted, waiting, wakes_waiters)

    def _request_for_session(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest], *, waits: bool
    ) -> LockResult:
        """Request locks of a session itself, which may have no row yet; else as `request`."""
        self._ensure_session(connection, owner.session)
        return self.request(connection, owner, requests, waits=waits)

    def remember(self, owner: Owner, result: LockResult) -> None:
        """Remember the granted locks, so that requesting them again costs nothing. Wake the waiters
        of this process if the result requires that.
        """
        if result.granted:
            modes = self._granted.setdefault(owner.transaction or owner.session, {})
            modes |= {request.resource: request.mode for request in result.granted}
        if result.wakes_waiters:
            self._changes.notify()

    def _add(self, connection: Connection, requests: Sequence[Queued]) -> None:
        """Insert new requests of one owner. Raises Unavailable if its session was removed."""
        try:
            lock_rows.add(connection, self._database, requests)
        except IntegrityError as error:  # the session's row was removed
            raise lost_error(requests[0].owner) from error

    def _try_grant(self, connection: Connection, waiting: Queued) -> bool:
        """Grant a waiting request if nothing blocks it; return whether it is granted.

        The caller has locked the queue. A cycle of waiting owners closes only when a request begins
        to wait: looking for cycles here finds all of them.

        Raises Deadlock if the request's owner is the victim, Unavailable if its row was removed.
        """
        queue = lock_rows.read_queue(connection, self._database, contested=True)
        if queue.needs_reaping:
            reap(self._database, connection)
            queue = lock_rows.read_queue(connection, self._database, contested=True)
        requests = queue.requests
        request = _current_state(waiting, requests)
        if request.status is LockStatus.VICTIM:
            raise deadlock_of(connection, request, requests)
        while cycle := cycle_through(request.owner, wait_graph(requests)):
            victim = youngest(cycle)
            if victim.id == request.id:
                raise deadlock_of(connection, request, requests)
            lock_rows.mark(connection, victim, LockStatus.VICTIM)
            requests = [with_status(each, victim, LockStatus.VICTIM) for each in requests]
        if blockers(request, requests):
            return False
        if request.status is LockStatus.WAIT:
            require_row(lock_rows.mark(connection, request, LockStatus.GRANT), request.owner)
        else:
            lock = granted_lock(request.owner, request.resource, requests)
            assert lock is not None, "a conversion has a granted lock"
            lock_rows.remove(connection, request)
            require_row(lock_rows.convert(connection, lock, request.mode), request.owner)
        return True

    # Waiting

    @property
    def change_count(self) -> int:
        """The number of changes in this process. Read it before a request and pass it to `wait`, so
        that no change between the two is missed.
        """
        return self._changes.count

    @span("lock.wait")
    @timed("txlake.lock.wait")
    def wait(self, request: Queued, since: int, timeout_ms: int) -> None:
        """Wait until the request is granted. Raises as `acquire`, and Interrupted if a signal
        handler raised in the thread that called.

        `since`: the change count before the request was made.
        """
        system = self._database.system
        begun_ms = system.monotonic_ms()
        pause_ms = max(_PAUSE_MS_MIN, self._database.poll_pause_ms)
        longest_ms = max(_PAUSE_MS_MAX, 10 * self._database.poll_pause_ms)
        while True:
            jittered_ms = pause_ms * (0.5 + system.random())
            left_ms = timeout_ms - (system.monotonic_ms() - begun_ms)
            self._pause(since, jittered_ms if timeout_ms < 0 else min(jittered_ms, left_ms))
            if self._database.is_interrupted():
                raise Interrupted
            is_late = 0 <= timeout_ms <= system.monotonic_ms() - begun_ms
            since = self._changes.count
            with self._database.reading() as connection:
                ahead = self._blockers_of(connection, request)
                if ahead and is_late:
                    raise self._timeout(connection, request, timeout_ms)
                is_long = system.monotonic_ms() - begun_ms >= _OWN_WAIT_MS
                self._require_other_threads(connection, request, ahead, is_long=is_long)
            if not ahead and self._database.write_relaxed(partial(self._grant, request=request)):
                self.remember(request.owner, LockResult([request]))
                return
            pause_ms = min(pause_ms * _PAUSE_GROWTH, longest_ms)
            if len(ahead) == 1:
                waited_ms = system.monotonic_ms() - begun_ms
                next_ms = max(_NEXT_PAUSE_MS_MAX, waited_ms * _NEXT_PAUSE_PART)
                pause_ms = min(pause_ms, max(next_ms, self._database.poll_pause_ms))

    def _pause(self, since: int, timeout_ms: float) -> None:
        """Wait until a lock was released in this process, or the time is over; then look at the
        leases of other processes.
        """
        self._changes.wait(since, timeout_ms)
        self._database.observe_leases()

    def _grant(self, connection: Connection, request: Queued) -> bool:
        """Lock the queue and grant a waiting request as `_try_grant` does."""
        lock_rows.lock_queue(connection)
        return self._try_grant(connection, request)

    def _blockers_of(self, connection: Connection, waiting: Queued) -> list[Queued]:
        """Return the requests that a request waits for.

        The list is also empty if `_try_grant` has to look: the request is a deadlock's victim, or
        dead sessions have to be removed.
        """
        queue = lock_rows.read_queue(connection, self._database, contested=True)
        request = _current_state(waiting, queue.requests)
        if queue.needs_reaping or request.status is LockStatus.VICTIM:
            return []
        return blockers(request, queue.requests)

    def _require_other_threads(
        self, connection: Connection, request: Queued, ahead: Sequence[Queued], *, is_long: bool
    ) -> None:
        """Raise Deadlock if a request waits for a transaction that the waiting thread has to end.

        That is certain if this thread alone ends the transaction. If this thread only used it last,
        another one may end it: then Deadlock is raised only after a long wait (`is_long`).
        """
        here = self._database.caller()
        for blocker in ahead:
            transaction_id = blocker.owner.transaction or ""
            if self._last_threads.get(transaction_id) is here and (
                is_long or self._ending_threads.get(transaction_id) is here
            ):
                raise own_thread_error(connection, request, blocker)

    def withdraw(self, owner: Owner) -> None:
        """Remove the owner's requests that aren't granted, unless the database can't be reached,
        and wake the waiters of this process.
        """
        # If the database can't be reached, the rows go with their transaction or session.
        with contextlib.suppress(Unavailable):
            self._database.write_relaxed(lambda connection: lock_rows.withdraw(connection, owner))
        self._changes.notify()

    def _timeout(self, connection: Connection, request: Queued, timeout_ms: int) -> LockTimeout:
        """Return the error for a request that wasn't granted in time; it names the holders."""
        queue = lock_rows.read_queue(connection, self._database, contested=True, living=True)
        ahead = blockers(_current_state(request, queue.requests), queue.requests)
        return timeout_error(connection, request, ahead, timeout_ms)

    def _blocking(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest]
    ) -> list[LockEntry]:
        """Return the requests of living sessions that new requests of an owner would wait for."""
        queued = lock_rows.send_queue_query(
            connection, {request.resource for request in requests}
        )()
        if not blocking_requests(owner, requests, queued):
            return []
        queue = lock_rows.read_queue(connection, self._database, living=True)
        blocking = blocking_requests(owner, requests, queue.requests)
        return [lock_entry(request, queue) for request in blocking]


class _ChangeSignal:
    """Wakes the threads of this process that wait for a lock. `count`: the number of changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def notify(self) -> None:
        """Count a change and wake all waiting threads."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, since: int, timeout_ms: float) -> None:
        """Wait until the count is no longer `since`, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != since, max(0.0, timeout_ms) / 1000)


def _nothing() -> None:
    """Do nothing."""


def _new_owner() -> Owner:
    return Owner(session=0, transaction="")


def _numbered(owner: Owner, requests: Sequence[LockRequest], first_id: int) -> list[Queued]:
    """Return the owner's requests as waiting ones, with ids from `first_id` on."""
    return [
        Queued(
            id=request_id,
            owner=owner,
            resource=request.resource,
            mode=request.mode,
            status=LockStatus.WAIT,
        )
        for request_id, request in enumerate(requests, first_id)
    ]


def _is_blocked(request: Queued, queue: Sequence[Queued]) -> bool:
    """Return whether a request has to wait, or is a conversion of a lock that its owner has."""
    return (
        bool(blockers(request, queue))
        or granted_lock(request.owner, request.resource, queue) is not None
    )


def _current_state(waiting: Queued, queue: Sequence[Queued]) -> Queued:
    """Return the request as it is in the queue now. Raises Unavailable if its row was removed."""
    for request in queue:
        if request.id == waiting.id:
            return request
    raise lost_error(waiting.owner)
