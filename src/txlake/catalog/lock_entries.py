"""Lock requests as entries for views and messages, with the request that each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlake.catalog.lock_rows import LockQueue
from txlake.conflict.locking import (
    LockMode,
    LockRequest,
    LockStatus,
    Owner,
    Queued,
    Resource,
    blockers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEntry:
    """A granted or waiting lock request.

    Attributes:
        session_id: the session of its owner.
        transaction_id: the transaction that owns it; None for a lock of the session itself.
        transaction_number: the transaction's integer id, for views that need one.
        status: VICTIM for a request whose transaction was chosen to end a deadlock.
        asked_ms: when it was requested, by the database's clock.
        blocking_session_id: the session of the first request that it waits for.
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


def lock_entry(request: Queued, queue: LockQueue) -> LockEntry:
    """Return the entry of a request in the queue."""
    is_granted = request.status is LockStatus.GRANT
    ahead = [] if is_granted else blockers(request, queue.requests)
    return LockEntry(
        id=request.id,
        session_id=request.owner.session,
        transaction_id=request.owner.transaction,
        transaction_number=request.begun,
        resource=request.resource,
        mode=request.mode,
        status=request.status,
        asked_ms=queue.asked_ms[request.id],
        blocking_session_id=ahead[0].owner.session if ahead else None,
    )


def blocking_requests(
    owner: Owner, requests: Sequence[LockRequest], queue: Sequence[Queued]
) -> list[Queued]:
    """Return the queued requests that new requests of an owner would wait for, each once."""
    last = max((queued.id for queued in queue), default=0) + 1
    status = LockStatus.WAIT
    blocking = {
        blocker.id: blocker
        for request in requests
        for blocker in blockers(
            Queued(
                id=last, owner=owner, resource=request.resource, mode=request.mode, status=status
            ),
            queue,
        )
    }
    return list(blocking.values())
