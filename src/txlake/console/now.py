"""The page Now: open transactions, their locks, the wait-for graph, and KILL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from txlake.catalog import Catalog
from txlake.catalog.lock_entries import LockEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.conflict.locking import LockMode, LockStatus, Resource, ResourceType
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.console.resource_names import ResourceNames
from txlake.errors import Deadlock, InvalidRequest
from txlake.session.killing import kill_session

_WRITE_MODES = {LockMode.IX, LockMode.SIX, LockMode.X, LockMode.U, LockMode.SCH_M}
_DEADLOCKS_SHOWN_MAX = 5
_JOURNAL_READ_MAX = 200
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW = 150, 44, 230, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction.

    Attributes:
        reads, writes: the tables that its locks name.
        waits_for: the table whose lock it waits for, and the session that holds it.
        has_turn: whether others let it commit first, because it lost often.
    """

    entry: TransactionEntry
    age_ms: int
    reads: Sequence[str]
    writes: Sequence[str]
    waits_for: str | None
    has_turn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRow:
    """A lock, or a request for one. `blocker`: the number of the session that it waits for."""

    resource: str
    mode: str
    status: str
    session: int
    blocker: int | None
    age_ms: int

    @property
    def waits(self) -> bool:
        """Return whether it isn't granted."""
        return self.status != LockStatus.GRANT.value


@dataclass(slots=True)
class Box:
    """A session in the wait-for graph, and its position."""

    session: int
    note: str
    x: int = 0
    y: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """One session waits for another, for a lock on `resource`."""

    waiter: Box
    holder: Box
    resource: str


@dataclass(slots=True)
class Graph:
    """The wait-for graph, drawn from left to right. Sessions that wait for none are at the left."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    width: int = 0
    height: int = 0
    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def page(request: PageRequest) -> TemplateValues:
    """Return the values of the page, and of its part that is reloaded every two seconds."""
    catalog = request.engine.catalog.of_lake()
    now_ms = request.engine.system.now_ms()
    locks = catalog.locks.entries()
    names = _resource_names(catalog)
    lock_rows = [_lock_row(lock, names, now_ms) for lock in locks]
    return {
        "now_ms": now_ms,
        "transactions": _transactions(catalog, locks, names, now_ms),
        "locks": sorted(lock_rows, key=lambda lock: (not lock.waits, lock.resource, lock.session)),
        "graph": graph(lock_rows),
        "deadlocks": _deadlocks(catalog),
    }


def kill_page(request: PageRequest) -> TemplateValues:
    """Return the values of the page that asks to confirm a KILL of `session`.

    Raises InvalidRequest if the session has no open transaction, and without a number.
    """
    number = request.number("session")
    transactions = [
        transaction
        for transaction in _open_transactions(request)
        if transaction.entry.session_id == number
    ]
    if not transactions:
        raise InvalidRequest(f"session {number} has nothing open any more")
    return {"session": number, "transactions": transactions}


def kill(request: PageRequest) -> str:
    """End the open transactions of the form's `session`, and return the path to redirect to.

    Raises InvalidRequest as `kill_session`, e.g. if nothing is open.
    """
    number = request.number("session")
    kill_session(request.engine.catalog.of_lake(), request.session.number(), number)
    return f"/?killed={quote(str(number))}"


def _open_transactions(request: PageRequest) -> Sequence[OpenTransaction]:
    """Return the open transactions, oldest first."""
    catalog = request.engine.catalog.of_lake()
    now_ms = request.engine.system.now_ms()
    return _transactions(catalog, catalog.locks.entries(), _resource_names(catalog), now_ms)


def _resource_names(catalog: Catalog) -> ResourceNames:
    """Return the names of the lake's current databases and tables."""
    databases = catalog.databases()
    return ResourceNames(
        databases, (table for database in databases for table in catalog.tables(database.name))
    )


def _lock_row(lock: LockEntry, names: ResourceNames, now_ms: int) -> LockRow:
    """Return a lock as the page shows it."""
    return LockRow(
        resource=names.name_of(lock.resource),
        mode=lock.mode.value,
        status=lock.status.value,
        session=lock.session_id,
        blocker=lock.blocking_session_id,
        age_ms=now_ms - lock.asked_ms,
    )


def _transactions(
    catalog: Catalog,
    locks: Sequence[LockEntry],
    names: ResourceNames,
    now_ms: int,
) -> list[OpenTransaction]:
    """Return the open transactions, oldest first, with the tables that their locks name."""
    by_transaction: dict[str, list[LockEntry]] = {}
    for lock in locks:
        if lock.transaction_id is not None and lock.resource.type is not ResourceType.DATABASE:
            by_transaction.setdefault(lock.transaction_id, []).append(lock)
    transactions = []
    for entry in sorted(catalog.transactions.entries(), key=lambda lock: lock.begin_ms):
        own_locks = by_transaction.get(entry.id, [])
        tables = [lock for lock in own_locks if _is_of_table(lock.resource)]
        writes = {names.name_of(lock.resource) for lock in tables if lock.mode in _WRITE_MODES}
        waiting = next((lock for lock in own_locks if lock.status is not LockStatus.GRANT), None)
        blocker = None if waiting is None else waiting.blocking_session_id
        transactions.append(
            OpenTransaction(
                entry=entry,
                age_ms=now_ms - entry.begin_ms,
                reads=sorted({names.name_of(lock.resource) for lock in tables} - writes),
                writes=sorted(writes),
                waits_for=None
                if waiting is None
                else f"{names.name_of(waiting.resource)}, of session {blocker or 'unknown'}",
                has_turn=any(lock.resource.subtype for lock in own_locks),
            )
        )
    return transactions


def _is_of_table(resource: Resource) -> bool:
    """Return whether a lock is on a table or a name; a turn isn't."""
    return not resource.subtype and resource.type is not ResourceType.APPLICATION


def _deadlocks(catalog: Catalog) -> TemplateValues:
    """Return the number of deadlocks among the newest 200 conflicts, and the newest five."""
    deadlocks = [
        conflict
        for conflict in catalog.journal.conflicts(_JOURNAL_READ_MAX)
        if conflict.error == _DEADLOCK
    ]
    return {"newest": deadlocks[:_DEADLOCKS_SHOWN_MAX], "count": len(deadlocks)}


_DEADLOCK = Deadlock.__name__


# The graph


def graph(lock_rows: Sequence[LockRow]) -> Graph | None:
    """Return the waiting sessions and those that they wait for; None if no session waits.

    Each session is once in it, in the column after the first session that blocks it. The first
    column has the sessions that block without waiting, or one session of a cycle if all wait.
    Beside such head blockers, a cycle that doesn't lead to one is left out.
    """
    waiting = [lock for lock in lock_rows if lock.waits and lock.blocker is not None]
    if not waiting:
        return None
    by_blocker: dict[int, list[LockRow]] = {}
    for lock in waiting:
        assert lock.blocker is not None
        by_blocker.setdefault(lock.blocker, []).append(lock)
    sessions = {lock.session for lock in waiting}
    heads = sorted(set(by_blocker) - sessions) or [min(by_blocker)]  # or an unresolved cycle
    drawing = Graph()
    boxes: dict[int, Box] = {}
    level = heads
    column = 0
    while level:
        for row, session in enumerate(level):
            note = "head blocker" if column == 0 else "waits"
            box = Box(session, note, column * _COLUMN, row * _ROW)
            boxes[session] = box
            drawing.boxes.append(box)
        following = [lock.session for session in level for lock in by_blocker.get(session, ())]
        drawing.height = max(drawing.height, len(level) * _ROW)
        level = [session for session in dict.fromkeys(following) if session not in boxes]
        column += 1
    drawing.width = column * _COLUMN - (_COLUMN - _BOX_WIDTH)
    for lock in waiting:
        assert lock.blocker is not None
        if lock.session in boxes and lock.blocker in boxes:
            drawing.edges.append(Edge(boxes[lock.session], boxes[lock.blocker], lock.resource))
    return drawing
