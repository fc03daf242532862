"""The lake's locks: asked for, waited for, granted in order, released; across processes.

Owns the waiting. The rows are the authority: who is granted what is decided by `conflict.locking`
in a database transaction that keeps all others from deciding meanwhile. A waiter looks again and
again, at once where the lock was released in its own process, and finds the deadlocks that it is
part of. Locks of a session whose lease is over, and of a transaction that was killed or isn't
registered, count for nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from txlake.catalog import lock_rows
from txlake.catalog.database import Database
from txlake.catalog.group_commit import Interrupted
from txlake.catalog.owners import (
    ACTIVE,
    KILLED,
    killed_error,
    reap,
    release_locks,
    send_state_query,
)
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
from txlake.errors import Deadlock, Evidence, LockTimeout, Unavailable
from txlake.telemetry import span, timed

_PAUSE_MS_MIN = 2.0
_PAUSE_MS_MAX = 50.0
_PAUSE_GROWTH = 1.5
# A thread that waits for a transaction which it used last itself would mostly wait for ever, unless
# it gave the transaction to another thread to end.
_OWN_WAIT_MS = 10_000
_SAME_ORDER = "Run the transaction again; take locks in the same order everywhere."
_ANOTHER_THREAD = "End the transaction that this thread used, or wait for it in another thread."


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEntry:
    """A lock that was granted, or is waited for.

    Attributes:
        session_id: whose it is; a lock without a transaction is the session's own.
        transaction_number: for views that need an integer.
        status: VICTIM for a request whose transaction was chosen to end a deadlock.
        blocking_session_id: of the first request that it has to wait for.
    """

    id: int
    session_id: int
    transaction_id: str | None
    transaction_number: int | None
    resource: Resource
    mode: LockMode
    status: LockStatus
    asked_ms: int
    blocking_session_id: int | None


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """An owner's lock requests.

    `is_new`: its transaction is registered before its granted locks are written.
    """

    owner: Owner
    requests: Sequence[LockRequest]
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class LockResult:
    """The result of an owner's requests: the granted ones in order, and the one that has to
    wait.

    Requests after the waiting one weren't made. `wakes_waiters`: other waiters may go on now, a
    deadlock's victims say.
    """

    granted: Sequence[Queued] = ()
    waiting: Queued | None = None
    wakes_waiters: bool = False


@shielded(
    unshielded=("to_acquire", "set_ending_thread", "note_use", "change_count", "remember"),
    waits=("acquire", "wait"),
)
class Locks:
    """The locks of one catalog. Any number of threads may ask; each owner is used by one."""

    def __init__(self, on: Database) -> None:
        self._on = on
        self._changes = _ChangeSignal()
        # What was granted here, by transaction or session: asking for it again costs nothing.
        self._granted: dict[str | int, dict[Resource, LockMode]] = {}
        # Which thread used a transaction last, and which one alone ends it, where that is known.
        # Not their numbers, which a later thread may have again.
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
        try:
            while self._not_held(owner, requests):
                since = self.change_count
                with self._on.writing_relaxed() as connection:
                    answer = self.request(connection, owner, requests, waits=timeout_ms != 0)
                self.remember(owner, answer)
                if answer.waiting is None:
                    return
                self.wait(answer.waiting, since, timeout_ms)
        except BaseException:
            self.withdraw(owner)
            raise

    def to_acquire(self, locks: Sequence[Lock]) -> Sequence[Lock]:
        """All of the wanted locks."""
        return locks

    def note_use(self, transaction_id: str) -> None:
        """Notes that the calling thread uses the transaction."""
        self._last_threads[transaction_id] = self._on.caller()

    def set_ending_thread(self, transaction_id: str) -> None:
        """Says that the calling thread ends the transaction, and no other does."""
        self._ending_threads[transaction_id] = self._on.caller()

    def release(self, transaction_id: str) -> None:
        """Gives up a transaction's locks and its turns to commit."""
        with self._on.writing_relaxed() as connection:
            release_locks(connection, [transaction_id])
        self.forget_owner(transaction_id)

    def release_session_locks(self, session_id: int, kept: Resource) -> None:
        """Gives up the locks that are a session's own, but for those on a thing that is kept."""
        with self._on.writing_relaxed() as connection:
            lock_rows.remove_session_locks(connection, session_id, kept)
        held = self._granted.get(session_id, {})
        self._granted[session_id] = {one: mode for one, mode in held.items() if one == kept}
        self._changes.notify()

    def forget_owner(self, owner: str | int) -> None:
        """Wakes the waiters of this process: a transaction's, or a session's, rows were removed."""
        self._granted.pop(owner, None)
        self._last_threads.pop(owner, None)
        self._ending_threads.pop(owner, None)
        self._changes.notify()

    def is_contested(self, connection: Connection, requests: Sequence[LockRequest]) -> bool:
        """Whether somebody new would have to wait for one of the locks."""
        return bool(self._blocking(connection, _new_owner(), requests))

    def blocking_locks(
        self, session_id: int, transaction_id: str | None, requests: Sequence[LockRequest]
    ) -> list[LockEntry]:
        """The locks of others that keep an owner from having those; nothing is asked for."""
        owner = Owner(session=session_id, transaction=transaction_id)
        with self._on.reading() as connection:
            found = self._blocking(connection, owner, requests)
        return [one for one in found if one.status is LockStatus.GRANT]

    def entries(self) -> list[LockEntry]:
        """The requests of living sessions in the order of asking."""
        with self._on.reading() as connection:
            found = lock_rows.read_queue(connection, self._on, living=True)
        return [_entry(one, found) for one in found.requests]

    # Asking

    def _not_held(self, owner: Owner, requests: Sequence[LockRequest]) -> list[LockRequest]:
        """What isn't held yet, each thing once."""
        held = self._granted.get(owner.transaction or owner.session, {})
        wanted: dict[Resource, LockMode] = {}
        for one in requests:
            if one.resource not in held or not at_least(held[one.resource], one.mode):
                mode = wanted.get(one.resource, one.mode)
                wanted[one.resource] = conversion_mode(mode, one.mode)
        return [LockRequest(resource=resource, mode=mode) for resource, mode in wanted.items()]

    def send_requests(
        self, connection: Connection, asks: Sequence[OwnerRequests]
    ) -> Callable[[], list[LockResult | None]]:
        """Send the requests of several owners; return a function that waits for the results.

        A result is None if the owner can't have all of its locks at once beside the owners before
        it, or if its transaction isn't registered: `request` then finds out why. `write_grants`
        writes the granted locks.
        """
        wanted = [self._not_held(ask.owner, ask.requests) for ask in asks]
        resources = {one.resource for of_one in wanted for one in of_one}
        count = sum(map(len, wanted))
        old = [ask.owner.transaction for ask in asks if not ask.is_new]
        numbered = lock_rows.send_next_ids(connection, count) if count else None
        states = send_state_query(connection, old) if old else dict
        found = lock_rows.send_queue_query(connection, resources) if count else list

        def answered() -> list[LockResult | None]:
            number = numbered() if numbered else 0
            known, seen = states(), found()
            answers: list[LockResult | None] = []
            for ask, of_one in zip(asks, wanted):
                asked = _numbered(ask.owner, of_one, number)
                is_there = ask.is_new or known.get(ask.owner.transaction) == ACTIVE
                if is_there and not any(_is_blocked(one, seen) for one in asked):
                    asked = [replace(one, status=LockStatus.GRANT) for one in asked]
                    answers.append(LockResult(asked))
                else:
                    answers.append(None)
                seen += asked  # nobody overtakes who was refused
                number += len(asked)
            return answers

        return answered

    def write_grants(self, connection: Connection, granted: Sequence[Queued]) -> None:
        """Write the locks that `send_requests` granted; call `remember` after the commit.

        Raises SQLAlchemy's IntegrityError if a session was removed: raise `lost_error`.
        """
        lock_rows.add(connection, self._on, granted)

    def request(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest], *, waits: bool
    ) -> LockResult:
        """Request the locks that the owner doesn't hold yet; call `remember` after the commit.

        Raises as `acquire`; if `waits` is false, LockTimeout at once.
        """
        wanted = self._not_held(owner, requests)
        granted: list[Queued] = []
        waiting: Queued | None = None
        wakes_waiters = False
        with pipelined(connection):
            numbered = lock_rows.send_next_ids(connection, len(wanted))
            states = send_state_query(connection, [owner.transaction])
            found = lock_rows.send_queue_query(connection, {one.resource for one in wanted})
            number = numbered()
            _require_registered(owner, states())
            seen = found()
        new: list[Queued] = []
        for place, request in enumerate(wanted):
            held = _granted_lock(owner, request.resource, seen)
            asked = Queued(
                id=number + place,
                owner=owner,
                resource=request.resource,
                mode=request.mode if held is None else conversion_mode(held.mode, request.mode),
                status=LockStatus.WAIT if held is None else LockStatus.CONVERT,
            )
            if held is not None and asked.mode is held.mode:
                pass
            elif blockers(asked, seen):
                self._add(connection, [*new, asked])
                new = []
                wakes_waiters = True
                if not self._try_grant(connection, asked):
                    if not waits:
                        raise self._timeout(connection, asked, 0)
                    waiting = asked
                    break
            elif held is not None:
                _require(lock_rows.convert(connection, held, asked.mode), owner)
            else:
                new.append(replace(asked, status=LockStatus.GRANT))
            granted.append(asked)
        self._add(connection, new)
        return LockResult(granted, waiting, wakes_waiters)

    def remember(self, owner: Owner, answer: LockResult) -> None:
        """Remembers what was granted: asking for it again costs nothing."""
        if answer.granted:
            held = self._granted.setdefault(owner.transaction or owner.session, {})
            held |= {one.resource: one.mode for one in answer.granted}
        if answer.wakes_waiters:
            self._changes.notify()

    def _add(self, connection: Connection, requests: Sequence[Queued]) -> None:
        try:
            lock_rows.add(connection, self._on, requests)
        except IntegrityError as error:  # the session isn't there any more
            raise lost_error(requests[0].owner) from error

    def _try_grant(self, connection: Connection, asked: Queued) -> bool:
        """Grants a waiting request if that can be. Who calls it has the turn to decide.

        Circles of waiting close only when somebody begins to wait, so that they are found then.

        Raises Deadlock when its transaction has to give up, Unavailable when it is gone.
        """
        found = lock_rows.read_queue(connection, self._on, contested=True)
        if found.needs_reaping:
            reap(self._on, connection)
            found = lock_rows.read_queue(connection, self._on, contested=True)
        requests = found.requests
        mine = _current_state(asked, requests)
        if mine.status is LockStatus.VICTIM:
            raise _deadlock(connection, mine, requests)
        while cycle := cycle_through(mine.owner, wait_graph(requests)):
            victim = youngest(cycle)
            if victim.id == mine.id:
                raise _deadlock(connection, mine, requests)
            lock_rows.mark(connection, victim, LockStatus.VICTIM)
            requests = [_with_status(one, victim, LockStatus.VICTIM) for one in requests]
        if blockers(mine, requests):
            return False
        if mine.status is LockStatus.WAIT:
            _require(lock_rows.mark(connection, mine, LockStatus.GRANT), mine.owner)
        else:
            held = _granted_lock(mine.owner, mine.resource, requests)
            assert held is not None, "a conversion is of something"
            lock_rows.remove(connection, mine)
            _require(lock_rows.convert(connection, held, mine.mode), mine.owner)
        return True

    # Waiting

    @property
    def change_count(self) -> int:
        """How often something changed in this process; noted before asking, `wait` goes by it."""
        return self._changes.count

    @span("lock.wait")
    @timed("txlake.lock.wait")
    def wait(self, asked: Queued, since: int, timeout_ms: int) -> None:
        """Until the request is granted. Raises as `acquire`."""
        system = self._on.system
        begun_ms = system.monotonic_ms()
        pause_ms = _PAUSE_MS_MIN
        while True:
            jittered_ms = pause_ms * (0.5 + system.random())
            left_ms = timeout_ms - (system.monotonic_ms() - begun_ms)
            self._changes.wait(since, jittered_ms if timeout_ms < 0 else min(jittered_ms, left_ms))
            if self._on.is_interrupted():
                raise Interrupted
            is_late = 0 <= timeout_ms <= system.monotonic_ms() - begun_ms
            since = self._changes.count
            with self._on.reading() as connection:
                ahead = self._blockers_of(connection, asked)
                if ahead and is_late:
                    raise self._timeout(connection, asked, timeout_ms)
                is_long = system.monotonic_ms() - begun_ms >= _OWN_WAIT_MS
                self._require_other_threads(connection, asked, ahead, is_long=is_long)
            if not ahead:
                with self._on.writing_relaxed() as connection:
                    lock_rows.lock_queue(connection)
                    is_granted = self._try_grant(connection, asked)
                if is_granted:
                    self.remember(asked.owner, LockResult([asked]))
                    return
            pause_ms = min(pause_ms * _PAUSE_GROWTH, _PAUSE_MS_MAX)

    def _blockers_of(self, connection: Connection, asked: Queued) -> list[Queued]:
        """Whom a request waits for; nobody where it has to be looked at in earnest."""
        found = lock_rows.read_queue(connection, self._on, contested=True)
        mine = _current_state(asked, found.requests)
        if found.needs_reaping or mine.status is LockStatus.VICTIM:
            return []
        return blockers(mine, found.requests)

    def _require_other_threads(
        self, connection: Connection, asked: Queued, ahead: Sequence[Queued], *, is_long: bool
    ) -> None:
        """Raises Deadlock when the waiting thread itself has to end what it waits for.

        Another thread may end what this one used last, and is given time. Not where this thread is
        the one that ends it: nothing moves then.
        """
        here = self._on.caller()
        for one in ahead:
            transaction_id = one.owner.transaction or ""
            if self._last_threads.get(transaction_id) is here and (
                is_long or self._ending_threads.get(transaction_id) is here
            ):
                raise Deadlock(
                    f"{lock_rows.resource_text(connection, asked.resource)}: "
                    f"{lock_rows.owner_text(connection, asked.owner)} waits for "
                    f"{asked.mode.value}, and "
                    f"{lock_rows.owner_text(connection, one.owner)} holds {one.mode.value}, "
                    "which this "
                    "thread has used itself: end that transaction first, or in another thread",
                    _evidence(connection, asked.resource, retry=False, advice=_ANOTHER_THREAD),
                )

    def withdraw(self, owner: Owner) -> None:
        """Asks no longer for what wasn't granted."""
        # Who can't be reached now removes it with its transaction, or when the lease is over.
        with contextlib.suppress(Unavailable), self._on.writing_relaxed() as connection:
            lock_rows.withdraw(connection, owner)
        self._changes.notify()

    def _timeout(self, connection: Connection, asked: Queued, timeout_ms: int) -> LockTimeout:
        found = lock_rows.read_queue(connection, self._on, contested=True, living=True)
        who = "; ".join(
            f"{lock_rows.owner_text(connection, one.owner)} "
            f"{'holds' if one.status is LockStatus.GRANT else 'asked before for'} {one.mode.value}"
            for one in blockers(_current_state(asked, found.requests), found.requests)
        )
        return LockTimeout(
            f"{lock_rows.resource_text(connection, asked.resource)}: "
            f"{lock_rows.owner_text(connection, asked.owner)} was not granted "
            f"{asked.mode.value} within "
            f"{timeout_ms} ms: {who}; end that first, or wait longer: SET LOCK_TIMEOUT"
        )

    def _blocking(
        self, connection: Connection, owner: Owner, requests: Sequence[LockRequest]
    ) -> list[LockEntry]:
        seen = lock_rows.send_queue_query(connection, {one.resource for one in requests})()
        if not _blocking_requests(owner, requests, seen):
            return []
        found = lock_rows.read_queue(connection, self._on, living=True)
        return [_entry(one, found) for one in _blocking_requests(owner, requests, found.requests)]


class _ChangeSignal:
    """Wakes the threads of this process that wait for something to change."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def notify(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, since: int, timeout_ms: float) -> None:
        """Wait until the count is no longer `since`, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != since, max(0.0, timeout_ms) / 1000)


def _new_owner() -> Owner:
    return Owner(session=0, transaction="")


def _blocking_requests(
    owner: Owner, wanted: Sequence[LockRequest], requests: Sequence[Queued]
) -> list[Queued]:
    """The requests that an owner who asked now would have to wait for, each once."""
    last = max((one.id for one in requests), default=0) + 1
    status = LockStatus.WAIT
    found = {
        one.id: one
        for want in wanted
        for one in blockers(
            Queued(id=last, owner=owner, resource=want.resource, mode=want.mode, status=status),
            requests,
        )
    }
    return list(found.values())


def _numbered(owner: Owner, wanted: Sequence[LockRequest], first: int) -> list[Queued]:
    """The requests, numbered from the first."""
    return [
        Queued(
            id=number,
            owner=owner,
            resource=request.resource,
            mode=request.mode,
            status=LockStatus.WAIT,
        )
        for number, request in enumerate(wanted, first)
    ]


def _is_blocked(asked: Queued, seen: Sequence[Queued]) -> bool:
    """Whether somebody is in the way, or the owner has another lock on it, to be converted."""
    return (
        bool(blockers(asked, seen)) or _granted_lock(asked.owner, asked.resource, seen) is not None
    )


def _granted_lock(owner: Owner, resource: Resource, requests: Sequence[Queued]) -> Queued | None:
    for one in requests:
        if (one.owner, one.resource, one.status) == (owner, resource, LockStatus.GRANT):
            return one
    return None


def _current_state(asked: Queued, requests: Sequence[Queued]) -> Queued:
    for one in requests:
        if one.id == asked.id:
            return one
    raise lost_error(asked.owner)


def _with_status(one: Queued, which: Queued, status: LockStatus) -> Queued:
    return replace(one, status=status) if one.id == which.id else one


def _entry(one: Queued, found: lock_rows.LockQueue) -> LockEntry:
    in_the_way = [] if one.status is LockStatus.GRANT else blockers(one, found.requests)
    return LockEntry(
        id=one.id,
        session_id=one.owner.session,
        transaction_id=one.owner.transaction,
        transaction_number=one.begun,
        resource=one.resource,
        mode=one.mode,
        status=one.status,
        asked_ms=found.asked_ms[one.id],
        blocking_session_id=in_the_way[0].owner.session if in_the_way else None,
    )


def _require_registered(owner: Owner, states: Mapping[str | None, str]) -> None:
    """Raises Unavailable for a transaction that may hold no locks: its rows would be nobody's."""
    if owner.transaction is None:
        return
    state = states.get(owner.transaction)
    if state == KILLED:
        raise killed_error(owner.transaction)
    _require(state is not None, owner)


def _require(is_there: bool, owner: Owner) -> None:
    """Raises Unavailable where an owner's row was removed by somebody else."""
    if not is_there:
        raise lost_error(owner)


def lost_error(owner: Owner) -> Unavailable:
    """What to raise for an owner whose row was removed by somebody else."""
    owner_name = f"session {owner.session}"
    if owner.transaction is not None:
        owner_name = f"transaction {owner.transaction} of {owner_name}"
    return Unavailable(
        f"{owner_name} has no locks any more: it was ended by somebody else, or nothing was "
        "heard of it "
        "for longer than its lease; run it again"
    )


def _deadlock(connection: Connection, mine: Queued, requests: Sequence[Queued]) -> Deadlock:
    waiting = _with_status(mine, mine, LockStatus.WAIT)
    if _granted_lock(mine.owner, mine.resource, requests) is not None:
        waiting = _with_status(mine, mine, LockStatus.CONVERT)
    graph = wait_graph([waiting if one.id == mine.id else one for one in requests])
    cycle = cycle_through(mine.owner, graph) or (waiting,)
    steps = "; ".join(
        f"{lock_rows.owner_text(connection, one.owner)} waits for {one.mode.value} on "
        f"{lock_rows.resource_text(connection, one.resource)}"
        for one in cycle
    )
    return Deadlock(
        f"deadlock, each waits for the next and the last for the first: {steps}; "
        f"session {mine.owner.session} began last and was chosen to give up: run it again",
        _evidence(connection, mine.resource, retry=True, advice=_SAME_ORDER),
    )


def _evidence(connection: Connection, resource: Resource, *, retry: bool, advice: str) -> Evidence:
    """The facts of a deadlock: what was waited for. No version and no level have a part in it."""
    name = (
        lock_rows.resource_text(connection, resource)
        .removeprefix("table ")
        .removeprefix("the name ")
    )
    return Evidence(
        table=name,
        read_version=-1,
        winning_version=-1,
        rule="deadlock",
        isolation="",
        retry=retry,
        advice=advice,
    )
