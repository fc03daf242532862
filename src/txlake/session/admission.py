"""What a statement has to hold before it runs.

Owns the way from names to locks, and that a name still means the same once they are granted. Path
tables take none. Source: DESIGN section 5, "Locks"; Fabric's documentation of transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from txlake.catalog import Catalog, TableEntry, check_name
from txlake.catalog.views import ViewEntry
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest, LockTimeout
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.locking import TableLock, references_of
from txlake.session.viewed import Viewed
from txlake.statements import Table, TableName

_ORDER = {ResourceType.DATABASE: 0, ResourceType.KEY: 1, ResourceType.OBJECT: 2}


@dataclass(frozen=True, slots=True)
class _Found:
    """A wanted lock, and what its table's name means now; without a database it means nothing."""

    table: Table
    mode: LockMode
    name: str
    database: int | None
    entry: TableEntry | ViewEntry | None
    handle: Handle | None = field(compare=False)

    def requests(self, *, leaves: bool) -> list[LockRequest]:
        """`leaves`: what is there already isn't changed.

        Raises InvalidRequest for a new name that is too long.
        """
        if self.entry is not None and (leaves or self.mode is not LockMode.SCH_M):
            return [self._on_object(LockMode.SCH_S if leaves else self.mode)]
        if self.mode is LockMode.SCH_S:
            return []  # a name that means nothing here: a view of Spark's, or a mistake
        if self.database is None:
            return []
        if self.entry is None:
            check_name(self.name)
        key = Resource(
            type=ResourceType.KEY,
            database=self.database,
            entity=self.database,
            description=self.name.lower(),
        )
        name = LockRequest(resource=key, mode=LockMode.X)
        return [name] if self.entry is None else [name, self._on_object(self.mode)]

    def _on_object(self, mode: LockMode) -> LockRequest:
        assert self.entry is not None
        return LockRequest(resource=_object(self.entry), mode=mode)


def admit(context: Context, wanted: Sequence[TableLock], *, leaves: bool = False) -> None:
    """Waits until the transaction holds what the statement needs.

    With `leaves` a table that exists is only looked at. A SELECT of its own transaction that nobody
    makes wait leaves no trace.

    Raises LockTimeout, Deadlock, and InvalidRequest for a new name that is too long.
    """
    catalog, transaction = context.engine.catalog, context.transaction
    if catalog is None:
        return
    context.settle({})
    found = _look(context, catalog, wanted)
    while requests := _requests(found, leaves=leaves):
        reads_only = all(one.mode in {LockMode.S, LockMode.SCH_S} for one in requests)
        if reads_only and not transaction.explicit and catalog.locks.awaits_nobody(requests):
            break
        transaction.make_known()
        number = transaction.session_number()
        catalog.locks.acquire(number, transaction.id, requests, context.lock_timeout_ms)
        again = _look(context, catalog, wanted)
        if again == found:
            break
        found = again  # dropped, made or renamed while it waited
    context.settle(
        {one.table: one.handle for one in found if one.handle is not None},
        homeless=[one.table for one in found if one.database is None],
    )


def admit_alone(context: Context, database: str, what: str) -> None:
    """Makes sure that nobody else uses a database, and that nobody starts to.

    Raises InvalidRequest when somebody does.
    """
    catalog, transaction = context.engine.catalog, context.transaction
    entry = None if catalog is None else catalog.database(database)
    if catalog is None or entry is None:
        return
    transaction.make_known()
    request = database_lock(entry.number, LockMode.X)
    try:
        catalog.locks.acquire(transaction.session_number(), transaction.id, [request], 0)
    except LockTimeout as error:
        raise InvalidRequest(
            f"{what}: other sessions use database {entry.name!r}; wait until their transactions "
            "ended and they use another database (sys.dm_tran_locks lists them)"
        ) from error


def admit_new(context: Context, entry: TableEntry) -> None:
    """Locks a table that the transaction makes; nobody else can know it yet."""
    catalog, transaction = context.engine.catalog, context.transaction
    assert catalog is not None
    request = LockRequest(resource=_object(entry), mode=LockMode.SCH_M)
    catalog.locks.acquire(transaction.session_number(), transaction.id, [request], -1)


def database_lock(number: int, mode: LockMode) -> LockRequest:
    """A lock on a database: S for who uses it, X for who changes what it is."""
    resource = Resource(type=ResourceType.DATABASE, database=number, entity=number)
    return LockRequest(resource=resource, mode=mode)


def _object(entry: TableEntry | ViewEntry) -> Resource:
    return Resource(type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number)


def _look(context: Context, catalog: Catalog, wanted: Sequence[TableLock]) -> list[_Found]:
    """What the names mean now; those that nobody else can know yet are left out."""
    found = []
    for table, mode in wanted:
        handle = context.find(table)
        if handle is not None and handle.is_new:
            continue
        if handle is not None and handle.entry is not None:
            entry = handle.entry
            found.append(_Found(table, mode, entry.name, entry.database_number, entry, handle))
        elif isinstance(table, TableName):
            owner, name = context.engine.qualified(table, context.database)
            view = context.viewed(table)
            if view is not None:
                found += _look_behind(context, catalog, table, mode, view)
                continue
            database = catalog.database(owner)
            number = None if database is None else database.number
            found.append(_Found(table, mode, name, number, None, None))
    return found


def _look_behind(
    context: Context, catalog: Catalog, table: TableName, mode: LockMode, view: Viewed
) -> list[_Found]:
    """A view, and the tables that its query reads."""
    found = []
    if view.entry is not None:
        number = view.entry.database_number
        found.append(_Found(table, mode, view.entry.name, number, view.entry, None))
    inside = context.within(view)
    if inside is not None:
        reads = [(one.table, LockMode.SCH_S) for one in references_of(view.query)]
        behind = _look(inside, catalog, reads)
        # Which of its own tables a name means is the view's affair.
        found += [replace(one, table=view.within(one.table), handle=None) for one in behind]
    return found


def _requests(found: Sequence[_Found], *, leaves: bool) -> list[LockRequest]:
    """Databases first, then names, then tables by number: everybody asks in the same order."""
    requests: dict[LockRequest, None] = {}
    for one in sorted(found, key=lambda one: (one.entry.number if one.entry else -1, one.name)):
        needed = one.requests(leaves=leaves)
        if needed:
            assert one.database is not None, "there is nothing to lock outside of a database"
            requests[database_lock(one.database, LockMode.S)] = None
        requests.update(dict.fromkeys(needed))
    return sorted(requests, key=lambda one: _ORDER[one.resource.type])
