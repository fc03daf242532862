"""What ends with its owner, as statements on a connection: a session's and a transaction's rows.

A session whose lease is over is void, its transactions and their locks with it. Who needs to know
that it is (a waiter for its lock, VACUUM) removes it first, in the same database transaction: a
heartbeat that comes late finds nothing to renew. Rows are always locked in the order sessions,
transactions, locks.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.tables import locks, sessions, transactions
from txlake.errors import Unavailable

ACTIVE = "active"
KILLED = "killed"

_IDS: sa.BindParameter[object] = sa.bindparam("ids", expanding=True)
_END = sa.delete(transactions).where(transactions.c.id.in_(_IDS))
_RELEASE = sa.delete(locks).where(locks.c.transaction_id.in_(_IDS))
_STATE = sa.select(transactions.c.state).where(transactions.c.id == sa.bindparam("which"))


def is_killed(connection: Connection, transaction_id: str) -> bool:
    """Whether a transaction was killed and isn't ended yet."""
    return connection.scalar(_STATE, {"which": transaction_id}) == KILLED


def killed(transaction_id: str) -> Unavailable:
    """What to raise for a transaction that somebody ended by its id."""
    return Unavailable(f"transaction {transaction_id} was killed by somebody else; run it again")


def reap(on: Database, connection: Connection) -> tuple[int, ...]:
    """Removes the sessions whose lease is over and gives their numbers."""
    over = sa.select(sessions.c.id).where(sessions.c.lease_ms <= on.now()).with_for_update()
    dead = tuple(connection.scalars(over.order_by(sessions.c.id)))
    end_sessions(connection, dead)
    return dead


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
        connection.execute(_END, {"ids": list(transaction_ids)})
        release_locks(connection, transaction_ids)


def release_locks(connection: Connection, transaction_ids: Collection[str]) -> None:
    """Removes transactions' locks and reservations."""
    connection.execute(_RELEASE, {"ids": list(transaction_ids)})
