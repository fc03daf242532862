"""What a statement has to hold before it runs.

Owns the way from names to locks. That a name still means the same once they are granted is
`catalog.admission`'s business. Path tables take none. Source: docs/internals/catalog.md, "Locks";
Fabric's documentation of transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from txlake.catalog import TableEntry, check_name
from txlake.catalog.admission import Admission
from txlake.catalog.lookup import CatalogView, LookupRequest, Name
from txlake.catalog.views import ViewEntry
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest, LockTimeout
from txlake.session.command import TableLock
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.session.view_queries import Viewed, viewed_entry
from txlake.statements import Table, TableName
from txlake.statements.text_references import references_of

_ORDER = {ResourceType.DATABASE: 0, ResourceType.KEY: 1, ResourceType.OBJECT: 2}
_READS = frozenset({LockMode.S, LockMode.SCH_S})


@dataclass(frozen=True, slots=True)
class _Found:
    """A wanted lock, and what its table's name means; without a database it means nothing."""

    table: Table
    mode: LockMode
    name: str
    database: int | None
    entry: TableEntry | ViewEntry | None

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

    def handle(self, engine: Engine) -> Handle | None:
        """The table that the name means, if it means one."""
        if not isinstance(self.entry, TableEntry):
            return None
        return engine.at_entry(self.entry)


@dataclass(frozen=True, slots=True)
class _Want:
    """A wanted lock, before the catalog says what its table's name means.

    Attributes:
        within: the statement, or the view in it whose query names the table.
        views: the names of the views on the way there, from the outermost.
        name: (database, table); None for a place.
        place: the URL of a place.
        temporary: the view of Spark's that it names where the lake has nothing of that name.
    """

    table: Table
    mode: LockMode
    within: Context
    views: tuple[str, ...] = ()
    name: tuple[str, str] | None = None
    place: str | None = None
    temporary: Viewed | None = None

    @property
    def key(self) -> Name:
        """The name as the catalog is asked for it."""
        assert self.name is not None, "a place has none"
        return (self.name[0].lower(), self.name[1].lower())


class _Wants:
    """The locks that a statement wants, and what it asks of the catalog for them."""

    def __init__(self, context: Context, wanted: Sequence[TableLock], *, leaves: bool) -> None:
        self._leaves = leaves
        self._wants = [_want(context, table, mode) for table, mode in wanted]
        # By the names of the views on the way there: what the last one's query names.
        self._behind: dict[tuple[str, ...], list[_Want]] = {}
        self._met: dict[tuple[str, ...], tuple[_Want, Viewed]] = {}

    @property
    def asked(self) -> LookupRequest:
        """What the catalog is asked for."""
        wants = [*self._wants, *(one for inside in self._behind.values() for one in inside)]
        return LookupRequest(
            names=frozenset(one.key for one in wants if one.name is not None),
            places=frozenset(one.place for one in wants if one.place is not None),
        )

    def locks(self, seen: CatalogView) -> list[LockRequest] | None:
        """The locks that are needed; None where a view was met whose query isn't known yet."""
        found = self.found(seen)
        return None if self._met else _requests(found, leaves=self._leaves)

    def reads(self, seen: CatalogView) -> list[LockRequest] | None:
        """As `locks`; None also for those that are for more than reading."""
        locks = self.locks(seen)
        if locks is None or any(one.mode not in _READS for one in locks):
            return None
        return locks

    @property
    def may_only_read(self) -> bool:
        """Whether the locks may turn out to keep nobody from reading or writing."""
        return self._leaves or all(one.mode in _READS for one in self._wants)

    @property
    def has_met_views(self) -> bool:
        """Whether there are views whose queries aren't known yet."""
        return bool(self._met)

    def look_behind(self) -> None:
        """Takes in what the queries of the views name that were met."""
        assert self._met, "a statement is refused, or granted, unless it meets a view"
        for views, (want, view) in self._met.items():
            inside = want.within.within(view)
            if inside is None:  # it reads itself
                self._behind[views] = []
                continue
            names = (reference.table for reference in references_of(view.query))
            self._behind[views] = [_want(inside, one, LockMode.SCH_S, views) for one in names]

    def found(self, seen: CatalogView) -> list[_Found]:
        """What the names mean to others.

        A name that the transaction itself gave, or took away, is locked already by what did that.
        """
        self._met.clear()
        return [found for want in self._wants for found in self._found(want, seen)]

    def _found(self, want: _Want, seen: CatalogView) -> Iterator[_Found]:
        table, mode = want.table, want.mode
        if want.place is not None:
            entry = seen.places.get(want.place)
            if entry is not None:
                yield _Found(table, mode, entry.name, entry.database_number, entry)
            return
        assert want.name is not None
        entry = seen.tables.get(want.key)
        if entry is not None:
            yield _Found(table, mode, entry.name, entry.database_number, entry)
            return
        listed = seen.views.get(want.key)
        reader = want.within.plane.relations
        view = want.temporary if listed is None else viewed_entry(listed, reader)
        if view is not None:
            yield from self._found_behind(want, view, seen)
            return
        database = seen.databases.get(want.key[0])
        number = None if database is None else database.number
        yield _Found(table, mode, want.name[1], number, None)

    def _found_behind(self, want: _Want, view: Viewed, seen: CatalogView) -> Iterator[_Found]:
        """A view, and the tables that its query reads."""
        if view.entry is not None:
            number = view.entry.database_number
            yield _Found(want.table, want.mode, view.entry.name, number, view.entry)
        views = (*want.views, view.name.lower())
        if views not in self._behind:
            self._met[views] = (want, view)
            return
        for one in self._behind[views]:
            for found in self._found(one, seen):
                yield replace(found, table=view.within(found.table))


def _want(context: Context, table: Table, mode: LockMode, views: tuple[str, ...] = ()) -> _Want:
    engine = context.engine
    if not isinstance(table, TableName):
        place = engine.at(table.location, table).store.url
        return _Want(table, mode, context, views, place=place)
    name = engine.qualified(table, context.database)
    temporary = engine.temporary_view(table) if len(table.parts) <= 2 else None
    return _Want(table, mode, context, views, name, temporary=temporary)


def admit(
    context: Context, wanted: Sequence[TableLock], *, leaves: bool = False, pins: bool = True
) -> None:
    """Waits until the transaction holds what the statement needs.

    With it come what the names mean, the instant that the transaction reads, and the versions that
    the tables had then. With `leaves` a table that exists is only looked at; without `pins` the
    statement makes no instant the transaction's. A SELECT of its own transaction that nobody makes
    wait leaves no trace.

    Raises LockTimeout, Deadlock, InvalidRequest for a new name that is too long, and Unavailable
    for a transaction that was killed.
    """
    transaction, wanted = context.transaction, context.engine.catalog.locks.to_acquire(wanted)
    if not wanted:
        transaction.require_unkilled()
        return
    wants = _Wants(context, wanted, leaves=leaves)
    while not (admission := _admission(context, wants, pins=pins)).is_granted:
        wants.look_behind()
    seen = admission.view
    transaction.tables.learn(seen)
    found = wants.found(seen)
    handles = {one.table: one.handle(context.engine) for one in found}
    context.settle(
        {table: handle for table, handle in handles.items() if handle is not None},
        homeless=[one.table for one in found if one.database is None],
    )


def _admission(context: Context, wants: _Wants, *, pins: bool) -> Admission:
    """The next one; it isn't granted where a view was met whose query isn't known yet."""
    transaction = context.transaction
    is_fresh = not transaction.is_known and transaction.sequence is None
    if is_fresh and wants.may_only_read:
        admission = context.engine.catalog.of_lake().admissions.admit_without_locks(
            wants.asked, wants.reads
        )
        if admission.is_granted or wants.has_met_views:
            return admission
    timeout_ms = context.lock_timeout_ms
    return transaction.admitted(wants.asked, wants.locks, pins=pins, timeout_ms=timeout_ms)


def admit_alone(context: Context, database: str, what: str) -> None:
    """Makes sure that nobody else uses a database, and that nobody starts to.

    Raises InvalidRequest when somebody does.
    """
    catalog, transaction = context.engine.catalog, context.transaction
    entry = catalog.database(database)
    if entry is None:
        return
    transaction.make_known()
    request = database_lock(entry.number, LockMode.X)
    try:
        locks = catalog.of_lake().locks
        locks.acquire(transaction.session_number(), transaction.id, [request], 0)
    except LockTimeout as error:
        raise InvalidRequest(
            f"{what}: other sessions use database {entry.name!r}; wait until their transactions "
            "ended and they use another database (sys.dm_tran_locks lists them)"
        ) from error


def admit_new(context: Context, entry: TableEntry) -> None:
    """Locks a table that the transaction makes; nobody else can know it yet."""
    locks, transaction = context.engine.catalog.of_lake().locks, context.transaction
    transaction.make_known()
    request = LockRequest(resource=_object(entry), mode=LockMode.SCH_M)
    locks.acquire(transaction.session_number(), transaction.id, [request], -1)


def database_lock(number: int, mode: LockMode) -> LockRequest:
    """A lock on a database: S for who uses it, X for who changes what it is."""
    resource = Resource(type=ResourceType.DATABASE, database=number, entity=number)
    return LockRequest(resource=resource, mode=mode)


def _object(entry: TableEntry | ViewEntry) -> Resource:
    return Resource(type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number)


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
