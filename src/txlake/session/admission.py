"""Admission of statements: the locks that a statement needs, from the names of its tables.

That a name still means the same once the locks are granted is `catalog.admission`'s business. Path
tables take no locks. Source: docs/internals/catalog.md, "Locks"; Fabric's documentation of
transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from txlake.catalog import TableEntry, check_name
from txlake.catalog.admission import Admission
from txlake.catalog.lookup import CatalogView, LookupRequest, Name
from txlake.catalog.views import ViewEntry
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import Deadlock, InvalidRequest, LockTimeout
from txlake.protocol.branching import split_place
from txlake.session.command import TableLock
from txlake.session.conflict_turns import NO_TURNS, TURN_WAIT_MS_MAX
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle, require_no_branch
from txlake.session.view_queries import Viewed, viewed_entry
from txlake.sql.statements import Table, TableName, TablePath
from txlake.sql.statements.text_references import references_of

_ORDER = {ResourceType.DATABASE: 0, ResourceType.KEY: 1, ResourceType.OBJECT: 2}
_READS = frozenset({LockMode.S, LockMode.SCH_S})
# S is only taken on databases, and IX on tables: locks of these modes don't block each other.
_WEAK = _READS | {LockMode.IX}


@dataclass(frozen=True, slots=True)
class _ResolvedLock:
    """A lock on a table whose name is resolved; without a database there is nothing to lock."""

    table: Table
    mode: LockMode
    name: str
    database: int | None
    entry: TableEntry | ViewEntry | None

    def requests(self, *, leaves: bool) -> list[LockRequest]:
        """Return the lock requests, except the one for the database.

        With `leaves` an existing table isn't changed, and Sch-S on it suffices. Otherwise Sch-M on
        a table also locks its name, and a name that doesn't exist is locked alone. Empty for an
        unknown name that is only read, and for a database that doesn't exist.

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
        """Return the table that the name means; None if it means none."""
        if not isinstance(self.entry, TableEntry):
            return None
        return engine.at_entry(self.entry)


@dataclass(frozen=True, slots=True)
class _LockTarget:
    """A lock to request, before the catalog resolves its table's name.

    Attributes:
        within: the context of the statement, or of the view whose query names the table.
        views: the names of the views that lead to the table, from the outermost.
        name: (database, table); None for a path table.
        place: the URL of a path table.
        temporary: Spark's temporary view of this name, if the lake has nothing of that name.
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
        """The name in the form that lookups use."""
        assert self.name is not None, "a place has none"
        return (self.name[0].lower(), self.name[1].lower())


class _LockTargets:
    """The locks that a statement needs, and the lookup that resolves their tables.

    A view takes two rounds: the first lookup finds the view, the second one the tables that its
    query names.
    """

    def __init__(self, context: Context, requested: Sequence[TableLock], *, leaves: bool) -> None:
        self._leaves = leaves
        self._branch = context.engine.catalog.branch
        self._targets = [_target(context, table, mode) for table, mode in requested]
        # By the names of the views that lead there: the tables that the last view's query names.
        self._targets_of_views: dict[tuple[str, ...], list[_LockTarget]] = {}
        self._unexpanded: dict[tuple[str, ...], tuple[_LockTarget, Viewed]] = {}

    @property
    def lookup(self) -> LookupRequest:
        """The names and places to resolve."""
        targets = list(self._targets)
        for inside in self._targets_of_views.values():
            targets += inside
        return LookupRequest(
            names=frozenset(target.key for target in targets if target.name is not None),
            places=frozenset(target.place for target in targets if target.place is not None),
            branch=self._branch,
        )

    def locks(self, view: CatalogView) -> list[LockRequest] | None:
        """Return the locks to request; None if a view has to be expanded first."""
        resolved = self.resolve(view)
        return None if self._unexpanded else _requests(resolved, leaves=self._leaves)

    def read_locks(self, view: CatalogView) -> list[LockRequest] | None:
        """Return the locks to request; None if a view has to be expanded first, or if one has
        another mode than S or Sch-S.
        """
        locks = self.locks(view)
        if locks is None or any(lock.mode not in _READS for lock in locks):
            return None
        return locks

    def weak_locks(self, view: CatalogView) -> list[LockRequest] | None:
        """Return the locks to request; None if a view has to be expanded first, or if one would
        block other readers or writers of rows.
        """
        locks = self.locks(view)
        if locks is None or any(lock.mode not in _WEAK for lock in locks):
            return None
        return locks

    @property
    def may_only_read(self) -> bool:
        """Whether the locks may turn out to block no reader and no writer."""
        return self._leaves or all(target.mode in _READS for target in self._targets)

    @property
    def has_unexpanded_views(self) -> bool:
        """Whether there are views whose queries' tables aren't among the targets yet."""
        return bool(self._unexpanded)

    def expand_views(self) -> None:
        """Add the tables named by the queries of the views that the last lookup found."""
        assert self._unexpanded, "a statement is refused, or granted, unless it meets a view"
        for views, (target, view) in self._unexpanded.items():
            inside = target.within.within(view)
            if inside is None:  # it reads itself
                self._targets_of_views[views] = []
                continue
            names = (reference.table for reference in references_of(view.query))
            self._targets_of_views[views] = [
                _target(inside, name, LockMode.SCH_S, views) for name in names
            ]

    def resolve(self, view: CatalogView) -> list[_ResolvedLock]:
        """Return the locks with what their names mean in the catalog.

        A name that the transaction itself changed is locked already by the statement that did so.
        """
        self._unexpanded.clear()
        return [lock for target in self._targets for lock in self._resolve(target, view)]

    def path_tables(self, view: CatalogView) -> dict[Table, Handle]:
        """Return the handles of the places where the lake has no table."""
        return {
            target.table: target.within.engine.at_path(target.table)
            for target in self._targets
            if isinstance(target.table, TablePath)
            and target.place is not None
            and target.place not in view.places
        }

    def _resolve(self, target: _LockTarget, view: CatalogView) -> Iterator[_ResolvedLock]:
        """Yield the locks of a target with what its name means in the view of the catalog.

        A path that isn't a table of the lake has none. A view, also one that the transaction wrote,
        has its own lock and those of its tables. A name that means nothing has a lock without an
        entry.
        """
        table, mode = target.table, target.mode
        if target.place is not None:
            entry = view.places.get(target.place)
            if entry is not None:
                assert isinstance(table, TablePath), "only a path has a place"
                require_no_branch(table.location)
                yield _ResolvedLock(table, mode, entry.name, entry.database_number, entry)
            return
        assert target.name is not None
        own = target.within.transaction.names
        view_entry = own.view_of(target.key) if own.has_view(target.key) else None
        entry = view.tables.get(target.key) if view_entry is None else None
        if entry is not None:
            yield _ResolvedLock(table, mode, entry.name, entry.database_number, entry)
            return
        view_entry = view_entry or view.views.get(target.key)
        reader = target.within.plane.relations
        viewed = target.temporary if view_entry is None else viewed_entry(view_entry, reader)
        if viewed is not None:
            yield from self._resolve_view(target, viewed, view)
            return
        database = view.databases.get(target.key[0])
        number = None if database is None else database.number
        yield _ResolvedLock(table, mode, target.name[1], number, None)

    def _resolve_view(
        self, target: _LockTarget, viewed: Viewed, view: CatalogView
    ) -> Iterator[_ResolvedLock]:
        """Yield the lock on a view, and those on the tables that its query reads.

        A temporary view has no lock of its own. A view whose query's tables aren't targets yet is
        noted for `expand_views`.
        """
        entry = viewed.entry
        if entry is not None:
            # A view that the transaction creates has a name alone to lock.
            known = entry if entry.number else None
            number = entry.database_number
            yield _ResolvedLock(target.table, target.mode, entry.name, number, known)
        views = (*target.views, viewed.name.lower())
        if views not in self._targets_of_views:
            self._unexpanded[views] = (target, viewed)
            return
        for inside in self._targets_of_views[views]:
            for lock in self._resolve(inside, view):
                yield replace(lock, table=viewed.within(lock.table))


def _target(
    context: Context, table: Table, mode: LockMode, views: tuple[str, ...] = ()
) -> _LockTarget:
    """Return the target for a table that a statement, or the query of a view in it, names.

    Raises InvalidRequest for a name of another catalog.
    """
    engine = context.engine
    if not isinstance(table, TableName):
        location, _ = split_place(table.location)
        place = engine.at(location, TablePath(location)).store.url
        return _LockTarget(table, mode, context, views, place=place)
    name = context.tables.qualified(table)
    temporary = engine.temporary_view(table) if len(table.parts) <= 2 else None
    return _LockTarget(table, mode, context, views, name, temporary=temporary)


def admit(
    context: Context, requested: Sequence[TableLock], *, leaves: bool = False, pins: bool = True
) -> None:
    """Wait until the transaction holds the locks that the statement needs.

    Admission also resolves the names, fixes the instant that the transaction reads, and gives the
    transaction the tables' versions at that instant. With `leaves` a table that exists isn't
    changed; without `pins` the statement doesn't fix the instant. A statement in its own
    transaction that only reads, and doesn't have to wait, leaves no row in the catalog. Without
    requested locks, and without a lake, it only checks that the transaction wasn't killed.

    Raises LockTimeout, Deadlock, InvalidRequest for a name of another catalog or a new name that is
    too long, and Unavailable for a transaction that was killed.
    """
    transaction, requested = context.transaction, context.engine.catalog.locks.to_acquire(requested)
    if not requested:
        transaction.registration.require_unkilled()
        return
    targets = _LockTargets(context, requested, leaves=leaves)
    while not (admission := _admission(context, targets, pins=pins)).is_granted:
        targets.expand_views()
    transaction.tables.learn(admission.view)
    locks = targets.resolve(admission.view)
    handles = {lock.table: lock.handle(context.engine) for lock in locks}
    handles.update(targets.path_tables(admission.view))
    meanings = {table: handle for table, handle in handles.items() if handle is not None}
    transaction.tables.read_ahead(meanings.values())
    context.tables.fix_meanings(
        meanings,
        without_database=[lock.table for lock in locks if lock.database is None],
    )


def _admission(context: Context, targets: _LockTargets, *, pins: bool) -> Admission:
    """Return the next admission; it isn't granted if a view has to be expanded first."""
    transaction = context.transaction
    is_fresh = not transaction.registration.is_made and transaction.sequence is None
    if is_fresh and targets.may_only_read:
        admissions = context.engine.catalog.of_lake().admissions
        admission = admissions.admit_without_locks(targets.lookup, targets.read_locks)
        if admission.is_granted or targets.has_unexpanded_views:
            return admission
    elif pins and transaction.registration.may_defer:
        admission = transaction.registration.defer(targets.lookup, targets.weak_locks)
        if admission.is_granted or targets.has_unexpanded_views:
            return admission
    elif context.turns.locks:
        try:
            return _admission_in_turn(context, targets, pins=pins)
        except (LockTimeout, Deadlock):
            context.turns.give_up()
            context.turns = NO_TURNS
    timeout_ms = context.lock_timeout_ms
    return transaction.registration.admit(
        targets.lookup, targets.locks, pins=pins, timeout_ms=timeout_ms
    )


def _admission_in_turn(context: Context, targets: _LockTargets, *, pins: bool) -> Admission:
    """Return the next admission as `_admission`, of a statement that has its turns.

    They are requested first, while the transaction holds nothing, so that nobody waits for it.
    Raises LockTimeout and Deadlock if the turns, or the locks, aren't granted soon.
    """
    turns, wait_ms = context.turns.locks, context.lock_timeout_ms

    def turns_and_locks(view: CatalogView) -> list[LockRequest] | None:
        locks = targets.locks(view)
        return locks and [*turns, *locks]

    return context.transaction.registration.admit(
        targets.lookup,
        turns_and_locks,
        pins=pins,
        timeout_ms=TURN_WAIT_MS_MAX if wait_ms < 0 else min(TURN_WAIT_MS_MAX, wait_ms),
    )


def admit_alone(context: Context, database: str, what: str) -> None:
    """Lock a database exclusively, so that no other session uses it or begins to.

    Do nothing if there is no such database. Raises InvalidRequest, without waiting, if another
    session uses it; `what` begins the message.
    """
    catalog, transaction = context.engine.catalog, context.transaction
    entry = catalog.database(database)
    if entry is None:
        return
    transaction.registration.make()
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
    """Lock a table that the transaction creates, which no other session can know yet."""
    locks, transaction = context.engine.catalog.of_lake().locks, context.transaction
    transaction.registration.make()
    request = LockRequest(resource=_object(entry), mode=LockMode.SCH_M)
    locks.acquire(transaction.session_number(), transaction.id, [request], -1)


def database_lock(number: int, mode: LockMode) -> LockRequest:
    """Return a lock on a database: S to use it, X to change its definition."""
    resource = Resource(type=ResourceType.DATABASE, database=number, entity=number)
    return LockRequest(resource=resource, mode=mode)


def _object(entry: TableEntry | ViewEntry) -> Resource:
    return Resource(type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number)


def _requests(locks: Sequence[_ResolvedLock], *, leaves: bool) -> list[LockRequest]:
    """Return the lock requests, each once: databases first, then names, then tables by number.

    `leaves`: the statement doesn't change a table that exists.
    All sessions request in this order, which prevents most deadlocks.
    """
    requests: dict[LockRequest, None] = {}

    def order(lock: _ResolvedLock) -> tuple[int, str]:
        return (lock.entry.number if lock.entry else -1, lock.name)

    for lock in sorted(locks, key=order):
        needed = lock.requests(leaves=leaves)
        if needed:
            assert lock.database is not None, "there is nothing to lock outside of a database"
            requests[database_lock(lock.database, LockMode.S)] = None
        requests.update(dict.fromkeys(needed))
    return sorted(requests, key=lambda request: _ORDER[request.resource.type])
