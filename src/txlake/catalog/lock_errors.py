"""The errors of lock requests: what they say of the lock's resource, its owners and their deadlock.

The functions that read the catalog for their text run in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy.engine import Connection

from txlake.catalog.lock_rows import owner_text, resource_text
from txlake.catalog.owners import (
    KILLED,
    killed_error,
)
from txlake.conflict.locking import (
    LockStatus,
    Owner,
    Queued,
    Resource,
    cycle_through,
    wait_graph,
)
from txlake.errors import Deadlock, Evidence, LockTimeout, Unavailable

_SAME_ORDER = "Run the transaction again; take locks in the same order everywhere."
_ANOTHER_THREAD = "End the transaction that this thread used, or wait for it in another thread."


def lost_error(owner: Owner) -> Unavailable:
    """Return the error for an owner whose row another session removed."""
    owner_name = f"session {owner.session}"
    if owner.transaction is not None:
        owner_name = f"transaction {owner.transaction} of {owner_name}"
    return Unavailable(
        f"{owner_name} has no locks any more: it was ended by somebody else, or nothing was heard "
        "of it for longer than its lease; run it again"
    )


def require_row(is_there: bool, owner: Owner) -> None:
    """Raise Unavailable unless `is_there`: another session removed a row of the owner."""
    if not is_there:
        raise lost_error(owner)


def require_registered(owner: Owner, states: Mapping[str | None, str]) -> None:
    """Raise Unavailable if the owner's transaction was killed or isn't registered.

    Rows of its locks would belong to no transaction. `states`: of registered transactions, by id.
    """
    if owner.transaction is None:
        return
    state = states.get(owner.transaction)
    if state == KILLED:
        raise killed_error(owner.transaction)
    require_row(state is not None, owner)


def deadlock_error(connection: Connection, victim: Queued, cycle: Sequence[Queued]) -> Deadlock:
    """Return the error for the victim of a deadlock; `cycle`: its requests, in waiting order."""
    steps = "; ".join(
        f"{owner_text(connection, request.owner)} waits for {request.mode.value} on "
        f"{resource_text(connection, request.resource)}"
        for request in cycle
    )
    return Deadlock(
        f"deadlock, each waits for the next and the last for the first: {steps}; "
        f"session {victim.owner.session} began last and was chosen to give up: run it again",
        _evidence(connection, victim.resource, retry=True, advice=_SAME_ORDER),
    )


def own_thread_error(connection: Connection, request: Queued, blocker: Queued) -> Deadlock:
    """Return the error for a request that waits for a transaction of its own thread."""
    return Deadlock(
        f"{resource_text(connection, request.resource)}: {owner_text(connection, request.owner)} "
        f"waits for {request.mode.value}, and {owner_text(connection, blocker.owner)} holds "
        f"{blocker.mode.value}, which this "
        "thread has used itself: end that transaction first, or in another thread",
        _evidence(connection, request.resource, retry=False, advice=_ANOTHER_THREAD),
    )


def timeout_error(
    connection: Connection, request: Queued, ahead: Sequence[Queued], timeout_ms: int
) -> LockTimeout:
    """Return the error for a request that wasn't granted in time; `ahead`: what it waits for."""
    causes = "; ".join(
        f"{owner_text(connection, blocker.owner)} "
        f"{'holds' if blocker.status is LockStatus.GRANT else 'asked before for'} "
        f"{blocker.mode.value}"
        for blocker in ahead
    )
    return LockTimeout(
        f"{resource_text(connection, request.resource)}: {owner_text(connection, request.owner)} "
        f"was not granted {request.mode.value} within {timeout_ms} ms: {causes}; end that first, "
        "or wait longer: SET LOCK_TIMEOUT"
    )


def _evidence(connection: Connection, resource: Resource, *, retry: bool, advice: str) -> Evidence:
    """Return the evidence of a deadlock, in which no version and no isolation level take part."""
    name = resource_text(connection, resource).removeprefix("table ").removeprefix("the name ")
    return Evidence(
        table=name,
        read_version=-1,
        winning_version=-1,
        rule="deadlock",
        isolation="",
        retry=retry,
        advice=advice,
    )


def deadlock_of(connection: Connection, victim: Queued, queue: Sequence[Queued]) -> Deadlock:
    """Return the error for a deadlock's victim, with the cycle that it would be part of if it still
    waited.
    """
    waiting = with_status(victim, victim, LockStatus.WAIT)
    if granted_lock(victim.owner, victim.resource, queue) is not None:
        waiting = with_status(victim, victim, LockStatus.CONVERT)
    graph = wait_graph([waiting if request.id == victim.id else request for request in queue])
    cycle = cycle_through(victim.owner, graph) or (waiting,)
    return deadlock_error(connection, victim, cycle)


def granted_lock(owner: Owner, resource: Resource, queue: Sequence[Queued]) -> Queued | None:
    """Return the owner's granted lock on a resource; None if it has none."""
    for request in queue:
        if (request.owner, request.resource, request.status) == (owner, resource, LockStatus.GRANT):
            return request
    return None


def with_status(request: Queued, target: Queued, status: LockStatus) -> Queued:
    """Return the request, with that status if it is the target."""
    return replace(request, status=status) if request.id == target.id else request
