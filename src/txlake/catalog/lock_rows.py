"""Lock requests as rows of `txlake_locks`, and their texts in messages.

Owns the SQL. `conflict.locking` decides which requests are granted, `locks` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows
from txlake.catalog.database import Database
from txlake.catalog.engines import clock
from txlake.catalog.owners import ACTIVE, is_expired, needs_reaping
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import (
    counters,
    databases,
    locks,
    sessions,
    tables,
    transactions,
    views,
)
from txlake.conflict.locking import (
    LockMode,
    LockStatus,
    Owner,
    Queued,
    Resource,
    ResourceType,
)

_LOCK_QUEUE = Prepared(
    sa.select(counters.c.value).where(counters.c.name == counter_rows.LOCK).with_for_update()
)
_QUEUE_COLUMNS = (
    locks.c.id,
    locks.c.session_id,
    locks.c.transaction_id,
    locks.c.resource_type,
    locks.c.resource_subtype,
    locks.c.database_number,
    locks.c.entity,
    locks.c.description,
    locks.c.mode,
    locks.c.status,
)
_ON_RESOURCES = Prepared(
    lambda types, entities: sa.select(*_QUEUE_COLUMNS).where(
        locks.c.resource_type.in_(types), locks.c.entity.in_(entities)
    ),
    "types",
    "entities",
)
_place = (locks.c.resource_type, locks.c.entity)
_CONTESTED = sa.tuple_(*_place).in_(
    sa.select(*_place).where(locks.c.status != LockStatus.GRANT.value)
)


@dataclass(frozen=True, slots=True)
class LockQueue:
    """Lock requests, ordered by id.

    Attributes:
        asked_ms: when each request was made, by its id.
        needs_reaping: a request is void, or `reap` would change its session.
    """

    requests: list[Queued]
    asked_ms: dict[int, int]
    needs_reaping: bool


def send_next_ids(connection: Connection, count: int) -> Callable[[], int]:
    """Send the query for `count` new request ids; return a function that waits for the first.

    This locks the queue (`lock_queue`).
    """
    return counter_rows.send_next_number(connection, counter_rows.LOCK, count)


def lock_queue(connection: Connection) -> None:
    """Lock the queue: no other transaction makes or grants requests before this one has ended."""
    _LOCK_QUEUE.rows(connection)


def send_queue_query(
    connection: Connection, resources: Collection[Resource]
) -> Callable[[], list[Queued]]:
    """Send the query for the requests on resources; return a function that waits for them.

    Void requests, and requests on some other resources, may be among them.
    """
    rows = _ON_RESOURCES.send(
        connection,
        types=sorted({resource.type.value for resource in resources}),
        entities=sorted({resource.entity for resource in resources}),
    )
    return lambda: [_queued(*row) for row in rows()]


def read_queue(
    connection: Connection, database: Database, *, contested: bool = False, living: bool = False
) -> LockQueue:
    """Return the lock requests of all owners.

    Args:
        contested: only requests for resources that some request waits for.
        living: without void requests and those of sessions whose lease has expired.
    """
    is_void = locks.c.transaction_id.is_not(None) & transactions.c.state.is_distinct_from(ACTIVE)
    is_due, is_over = is_void | needs_reaping(database), is_void | is_expired(database)
    query = (
        sa.select(*_QUEUE_COLUMNS, transactions.c.number, locks.c.asked_ms, is_due, is_over)
        .join_from(locks, sessions, locks.c.session_id == sessions.c.id)
        .outerjoin(transactions, locks.c.transaction_id == transactions.c.id)
        .order_by(locks.c.id)
    )
    if contested:
        query = query.where(_CONTESTED)
    rows = [row for row in connection.execute(query) if not (living and row[-1])]
    return LockQueue(
        [_queued(*row[:-3]) for row in rows],
        {row[0]: row[-3] for row in rows},
        any(row[-2] for row in rows),
    )


@cache
def _addition(is_sqlite: bool) -> Prepared:
    columns = (column.name for column in locks.c if column.name != "asked_ms")
    return Prepared(sa.insert(locks).values(asked_ms=clock(is_sqlite=is_sqlite)), columns=columns)


def add(connection: Connection, database: Database, requests: Sequence[Queued]) -> None:
    """Insert new requests."""
    rows = [
        {
            "id": request.id,
            "session_id": request.owner.session,
            "transaction_id": request.owner.transaction,
            "resource_type": request.resource.type.value,
            "resource_subtype": request.resource.subtype,
            "database_number": request.resource.database,
            "entity": request.resource.entity,
            "description": request.resource.description,
            "mode": request.mode.value,
            "status": request.status.value,
        }
        for request in requests
    ]
    _addition(database.is_sqlite).run_all(connection, rows)


def convert(connection: Connection, granted: Queued, mode: LockMode) -> bool:
    """Change the mode of a granted lock; return False if its row was removed."""
    change = sa.update(locks).where(locks.c.id == granted.id).values(mode=mode.value)
    return connection.execute(change).rowcount > 0


def mark(connection: Connection, request: Queued, status: LockStatus) -> bool:
    """Change the status of a request; return False if its row was removed."""
    change = sa.update(locks).where(locks.c.id == request.id).values(status=status.value)
    return connection.execute(change).rowcount > 0


def remove(connection: Connection, request: Queued) -> None:
    """Remove a request."""
    connection.execute(sa.delete(locks).where(locks.c.id == request.id))


def withdraw(connection: Connection, owner: Owner) -> None:
    """Remove an owner's requests that aren't granted."""
    connection.execute(
        sa.delete(locks).where(
            locks.c.session_id == owner.session,
            locks.c.transaction_id.is_not_distinct_from(owner.transaction),
            locks.c.status != LockStatus.GRANT.value,
        )
    )


def remove_session_locks(connection: Connection, session_id: int, except_on: Resource) -> None:
    """Remove the locks that belong to a session itself, not to a transaction, except those on one
    resource.
    """
    is_excepted = (locks.c.resource_type == except_on.type.value) & (
        locks.c.entity == except_on.entity
    )
    connection.execute(
        sa.delete(locks).where(
            locks.c.session_id == session_id, locks.c.transaction_id.is_(None), ~is_excepted
        )
    )


def resource_text(connection: Connection, resource: Resource) -> str:
    """Return the text that names a resource in messages, such as `table sales.orders`."""
    by_number = sa.select(databases.c.name).where(databases.c.number == resource.database)
    database = connection.scalar(by_number) or f"number {resource.database}"
    if resource.type is ResourceType.DATABASE:
        return f"database {database}"
    if resource.type is ResourceType.KEY:
        return f"the name {database}.{resource.description}"
    if resource.type is ResourceType.APPLICATION:
        return f"the {resource.description} of {_table_text(connection, resource, database)}"
    view = connection.scalar(sa.select(views.c.name).where(views.c.number == resource.entity))
    if view is not None:
        return f"view {database}.{view}"
    turn = f" ({resource.subtype})" if resource.subtype else ""
    return f"{_table_text(connection, resource, database)}{turn}"


def _table_text(connection: Connection, resource: Resource, database: str) -> str:
    name = connection.scalar(sa.select(tables.c.name).where(tables.c.number == resource.entity))
    return f"table {database}.{name or f'number {resource.entity}'}"


def owner_text(connection: Connection, owner: Owner) -> str:
    """Return the text that names an owner in messages: session, transaction, process and host."""
    row = connection.execute(
        sa.select(sessions.c.process, sessions.c.host).where(sessions.c.id == owner.session)
    ).first()
    place = "" if row is None else f"process {row.process} on {row.host}"
    transaction = "" if owner.transaction is None else f"transaction {owner.transaction}"
    return f"session {owner.session} ({', '.join(filter(None, (transaction, place)))})"


def _queued(
    number: int,
    session_id: int,
    transaction_id: str | None,
    resource_type: str,
    subtype: str,
    database: int,
    entity: int,
    description: str,
    mode: str,
    status: str,
    begun: int | None = None,
) -> Queued:
    """Return the request of a row; `begun` is the number of its transaction, if it was queried."""
    return Queued(
        id=number,
        owner=Owner(session=session_id, transaction=transaction_id),
        resource=Resource(
            type=ResourceType(resource_type),
            database=database,
            entity=entity,
            subtype=subtype,
            description=description,
        ),
        mode=LockMode(mode),
        status=LockStatus(status),
        begun=begun,
    )
