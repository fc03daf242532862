"""What ends with its owner, as statements on a connection: a session's and a transaction's rows.

A session is there until its row is removed, its transactions and their locks with it. Who needs to
know that it is dead (a waiter for its lock, VACUUM) removes it first, in the same database
transaction, where its lease is over: a heartbeat that comes late finds nothing to renew, and a
transaction that is ratified was there. A lock whose transaction was killed or isn't there is void.
Rows are always locked in the order sessions, transactions, locks.

A clock of leases that is set must neither keep the dead nor end the living. No lease is longer than
its length from now: one that seems to be was made before the clock went back, and is cut. Where the
clock may go forward too, a lease that is over is followed by a last one, in which a living session
is heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import locks, sessions, transactions
from txlake.errors import Unavailable

ACTIVE = "active"
KILLED = "killed"

_END = Prepared(lambda ids: sa.delete(transactions).where(transactions.c.id.in_(ids)), "ids")
_RELEASE = Prepared(lambda ids: sa.delete(locks).where(locks.c.transaction_id.in_(ids)), "ids")
_STATES = Prepared(
    lambda ids: sa.select(transactions.c.id, transactions.c.state).where(
        transactions.c.id.in_(ids)
    ),
    "ids",
)
_LIVES = sa.exists().where(
    transactions.c.id == locks.c.transaction_id, transactions.c.state == ACTIVE
)
_RELEASE_VOID = sa.delete(locks).where(locks.c.transaction_id.is_not(None), ~_LIVES)


def state_of(connection: Connection, transaction_id: str) -> str | None:
    """ACTIVE or KILLED; None for a transaction that isn't there (any more)."""
    return send_state_query(connection, [transaction_id])().get(transaction_id)


def send_state_query(
    connection: Connection, transaction_ids: Collection[str | None]
) -> Callable[[], Mapping[str | None, str]]:
    """Asks for transactions' states, and gives what waits for those that there are."""
    found = _STATES.send(connection, ids=transaction_ids)
    return lambda: {row.id: str(row.state) for row in found()}


def killed_error(transaction_id: str) -> Unavailable:
    """What to raise for a transaction that somebody ended by its id."""
    return Unavailable(f"transaction {transaction_id} was killed by somebody else; run it again")


def ended_error(transaction_id: str) -> Unavailable:
    """What to raise for a transaction that isn't open any more."""
    return Unavailable(
        f"transaction {transaction_id} was ended while it was open: nothing was heard of its "
        "session for longer than its lease, and VACUUM may have taken its files; run it again"
    )


def is_expired(on: Database, since_ms: int = 0) -> sa.ColumnElement[bool]:
    """Whether a session's lease is over, for so long at least."""
    return sessions.c.lease_ms <= on.lease_now() - since_ms


def needs_reaping(on: Database, since_ms: int = 0) -> sa.ColumnElement[bool]:
    """Whether `reap` has something to do with a session: its lease is over, or too long."""
    return sa.or_(
        is_expired(on, since_ms), sessions.c.lease_ms - sessions.c.length_ms > on.lease_now()
    )


def reap(on: Database, connection: Connection, *, since_ms: int = 0) -> tuple[int, ...]:
    """Removes the sessions whose lease, and last lease, is over, and gives their numbers.

    Void locks go too. `since_ms`: for so long at least.
    """
    due = (
        sa.select(sessions.c.id, sessions.c.warned, is_expired(on).label("is_over"))
        .where(needs_reaping(on, since_ms))
        .order_by(sessions.c.id)
        .with_for_update()
    )
    found = connection.execute(due).all()
    dead = tuple(row.id for row in found if row.is_over and (row.warned or not on.leases_may_step))
    end_sessions(connection, dead)
    connection.execute(_RELEASE_VOID)
    for row in [row for row in found if row.id not in dead]:
        length = sessions.c.length_ms // 2 if row.is_over else sessions.c.length_ms
        connection.execute(
            sa.update(sessions)
            .where(sessions.c.id == row.id)
            .values(lease_ms=on.lease_now() + length, warned=row.warned or row.is_over)
        )
    return dead


def reap_due(on: Database, since_ms: int = 0) -> None:
    """Reaps in a transaction of its own, where there is something to do."""
    due = sa.select(sessions.c.id).where(needs_reaping(on, since_ms)).limit(1)
    with on.reading() as connection:
        if connection.execute(due).first() is None:
            return
    with on.writing() as connection:
        reap(on, connection, since_ms=since_ms)


def end_sessions(connection: Connection, session_ids: Collection[int]) -> None:
    """Removes sessions with their transactions and locks."""
    if session_ids:
        for relation in (transactions, locks):
            ended = sa.delete(relation).where(relation.c.session_id.in_(session_ids))
            connection.execute(ended)
        connection.execute(sa.delete(sessions).where(sessions.c.id.in_(session_ids)))


def end_transactions(connection: Connection, transaction_ids: Collection[str]) -> None:
    """Removes transactions with their locks and reservations."""
    if transaction_ids:
        _END.run(connection, ids=transaction_ids)
        release_locks(connection, transaction_ids)


def release_locks(connection: Connection, transaction_ids: Collection[str]) -> None:
    """Removes transactions' locks and reservations."""
    _RELEASE.run(connection, ids=transaction_ids)
