"""End sessions and transactions, the owners of locks, with all their rows.

The functions run in the caller's transaction, except `reap_due`. Rows are always locked in the
order sessions, transactions, locks.

A session exists until its row is removed, along with its transactions and locks. A waiter for its
lock, or VACUUM, treats an expired session as dead only after removing its row (`reap`) in the same
database transaction: a late heartbeat then finds no row to renew, and a transaction that was
ratified before was still registered. A lock is void if its transaction was killed or isn't
registered.

If the clock of leases is set, dead sessions must still end and living ones must not. A lease that
ends later than its length from now was made before the clock went back: it is cut. If the clock may
also go forward, an expired session gets one last lease, during which a living session renews it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

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
    """Return ACTIVE or KILLED; None for a transaction that isn't registered."""
    return send_state_query(connection, [transaction_id])().get(transaction_id)


def send_state_query(
    connection: Connection, transaction_ids: Collection[str | None]
) -> Callable[[], Mapping[str | None, str]]:
    """Send the query for transactions' states; return a function that waits for them.

    That function returns the states by id; transactions that aren't registered are left out.
    """
    rows = _STATES.send(connection, ids=transaction_ids)
    return lambda: {row.id: str(row.state) for row in rows()}


def killed_error(transaction_id: str) -> Unavailable:
    """Return the error for a transaction that another session killed."""
    return Unavailable(f"transaction {transaction_id} was killed by somebody else; run it again")


def ended_error(transaction_id: str) -> Unavailable:
    """Return the error for a transaction whose row was removed because its lease expired."""
    return Unavailable(
        f"transaction {transaction_id} was ended while it was open: nothing was heard of its "
        "session for longer than its lease, and VACUUM may have taken its files; run it again"
    )


def _lease_end(database: Database) -> sa.ColumnElement[int]:
    columns = sessions.c
    return database.lease_end(columns.lease_ms, columns.length_ms, columns.holder)


def is_expired(database: Database, since_ms: int = 0) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a session's lease expired at least `since_ms` ago."""
    return _lease_end(database) <= database.lease_now() - since_ms


def needs_reaping(database: Database, since_ms: int = 0) -> sa.ColumnElement[bool]:
    """Return the SQL condition that `reap` would change a session: its lease expired at least
    `since_ms` ago, or is longer than its length.
    """
    return sa.or_(
        is_expired(database, since_ms),
        _lease_end(database) - sessions.c.length_ms > database.lease_now(),
    )


def reap(database: Database, connection: Connection, *, since_ms: int = 0) -> tuple[int, ...]:
    """Remove dead sessions and void locks; return the numbers of the sessions.

    A session is dead if its lease expired at least `since_ms` ago, and, if the clock of leases may
    step, its last lease too. A session with another expired lease gets its last one, and a lease
    that is too long is cut.
    """
    due = (
        sa.select(sessions.c.id, sessions.c.warned, is_expired(database).label("is_over"))
        .where(needs_reaping(database, since_ms))
        .order_by(sessions.c.id)
        .with_for_update()
    )
    rows = connection.execute(due).all()
    dead = tuple(
        row.id for row in rows if row.is_over and (row.warned or not database.leases_may_step)
    )
    end_sessions(connection, dead)
    connection.execute(_RELEASE_VOID)
    for row in [row for row in rows if row.id not in dead]:
        length = sessions.c.length_ms // 2 if row.is_over else sessions.c.length_ms
        connection.execute(
            sa.update(sessions)
            .where(sessions.c.id == row.id)
            .values(lease_ms=database.lease_now() + length, warned=row.warned or row.is_over)
        )
    return dead


def reap_due(database: Database, since_ms: int = 0) -> None:
    """Call `reap` in a transaction of its own, if a session needs it."""
    database.observe_leases(is_urgent=True)
    _reap_due(database, since_ms)


def _reap_due(database: Database, since_ms: int) -> None:
    """Call `reap` as `reap_due`, going by what is known of leases."""
    due = sa.select(sessions.c.id).where(needs_reaping(database, since_ms)).limit(1)
    with database.reading() as connection:
        if connection.execute(due).first() is None:
            return
    database.write(lambda connection: reap(database, connection, since_ms=since_ms))


def end_sessions(connection: Connection, session_ids: Collection[int]) -> None:
    """Remove sessions with their transactions and locks."""
    if session_ids:
        for relation in (transactions, locks):
            ended = sa.delete(relation).where(relation.c.session_id.in_(session_ids))
            connection.execute(ended)
        connection.execute(sa.delete(sessions).where(sessions.c.id.in_(session_ids)))


def end_transactions(connection: Connection, transaction_ids: Collection[str]) -> None:
    """Remove transactions with their locks and reservations."""
    if transaction_ids:
        _END.run(connection, ids=transaction_ids)
        release_locks(connection, transaction_ids)


def release_locks(connection: Connection, transaction_ids: Collection[str]) -> None:
    """Remove the locks and reservations of transactions."""
    _RELEASE.run(connection, ids=transaction_ids)


def registered_among(connection: Connection, transaction_ids: Sequence[str]) -> frozenset[str]:
    """Return which of these transactions are registered."""
    query = sa.select(transactions.c.id).where(transactions.c.id.in_(transaction_ids))
    return frozenset(connection.scalars(query))
