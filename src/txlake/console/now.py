"""What is open now: transactions, their locks, who waits for whom; and KILL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from txlake.catalog import Catalog
from txlake.catalog.locks import LockEntry
from txlake.catalog.transactions import TransactionEntry
from txlake.conflict.locking import LockMode, LockStatus, ResourceType
from txlake.console.resources import Resources
from txlake.console.visits import Values, Visit
from txlake.errors import Deadlock, InvalidRequest
from txlake.session.killing import kill_session

_WRITING = {LockMode.IX, LockMode.SIX, LockMode.X, LockMode.U, LockMode.SCH_M}
_DEADLOCKS_SHOWN = 5
_JOURNAL_READ = 200
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW = 150, 44, 230, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An open transaction.

    Attributes:
        reads, writes: the tables that its locks name.
        waits_for: the table whose lock it waits for, and the session that has it.
        has_turn: whether others let it commit first, as it lost often.
    """

    entry: TransactionEntry
    age_ms: int
    reads: Sequence[str]
    writes: Sequence[str]
    waits_for: str | None
    has_turn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lock, or a request for one."""

    what: str
    mode: str
    status: str
    session: int
    behind: int | None
    age_ms: int

    @property
    def waits(self) -> bool:
        """Whether it isn't granted."""
        return self.status != LockStatus.GRANT.value


@dataclass(slots=True)
class Box:
    """A session in the graph of those that wait, and where it is drawn."""

    session: int
    note: str
    x: int = 0
    y: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """One session waits for another; what for."""

    waiter: Box
    holder: Box
    what: str


@dataclass(slots=True)
class Graph:
    """Who waits for whom: who waits for nobody is at the left."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    width: int = 0
    height: int = 0
    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def look(visit: Visit) -> Values:
    """The page, and the part of it that is asked for again every two seconds."""
    catalog = visit.engine.catalog.of_lake()
    now_ms = visit.engine.system.now_ms()
    locks = catalog.locks.listed()
    resources = _resources(catalog)
    held = [_held(one, resources, now_ms) for one in locks]
    return {
        "now_ms": now_ms,
        "transactions": _transactions(catalog, locks, resources, now_ms),
        "locks": sorted(held, key=lambda one: (not one.waits, one.what, one.session)),
        "graph": graph(held),
        "deadlocks": _deadlocks(catalog),
    }


def killing(visit: Visit) -> Values:
    """Asks whether a session's transactions are to be ended."""
    number = visit.number("session")
    found = [one for one in _open(visit) if one.entry.session_id == number]
    if not found:
        raise InvalidRequest(f"session {number} has nothing open any more")
    return {"session": number, "transactions": found}


def kill(visit: Visit) -> str:
    """Ends the open transactions of a session."""
    number = visit.number("session")
    kill_session(visit.engine.catalog.of_lake(), visit.session.number(), number)
    return f"/?killed={quote(str(number))}"


def _open(visit: Visit) -> Sequence[Open]:
    catalog = visit.engine.catalog.of_lake()
    now_ms = visit.engine.system.now_ms()
    return _transactions(catalog, catalog.locks.listed(), _resources(catalog), now_ms)


def _resources(catalog: Catalog) -> Resources:
    databases = catalog.databases()
    return Resources(databases, (table for one in databases for table in catalog.tables(one.name)))


def _held(one: LockEntry, resources: Resources, now_ms: int) -> Held:
    return Held(
        what=resources.name_of(one.resource),
        mode=one.mode.value,
        status=one.status.value,
        session=one.session_id,
        behind=one.blocking_session_id,
        age_ms=now_ms - one.asked_ms,
    )


def _transactions(
    catalog: Catalog,
    locks: Sequence[LockEntry],
    resources: Resources,
    now_ms: int,
) -> list[Open]:
    of: dict[str, list[LockEntry]] = {}
    for one in locks:
        if one.transaction_id is not None and one.resource.type is not ResourceType.DATABASE:
            of.setdefault(one.transaction_id, []).append(one)
    found = []
    for entry in sorted(catalog.transactions.listed(), key=lambda one: one.begin_ms):
        own = of.get(entry.id, [])
        tables = [one for one in own if not one.resource.subtype]
        writes = {resources.name_of(one.resource) for one in tables if one.mode in _WRITING}
        waits = next((one for one in own if one.status is not LockStatus.GRANT), None)
        blocker = None if waits is None else waits.blocking_session_id
        found.append(
            Open(
                entry=entry,
                age_ms=now_ms - entry.begin_ms,
                reads=sorted({resources.name_of(one.resource) for one in tables} - writes),
                writes=sorted(writes),
                waits_for=None
                if waits is None
                else f"{resources.name_of(waits.resource)}, of session {blocker or 'unknown'}",
                has_turn=any(one.resource.subtype for one in own),
            )
        )
    return found


def _deadlocks(catalog: Catalog) -> Values:
    """The newest of those that were resolved."""
    found = [one for one in catalog.journal.conflicts(_JOURNAL_READ) if one.error == _DEADLOCK]
    return {"newest": found[:_DEADLOCKS_SHOWN], "count": len(found)}


_DEADLOCK = Deadlock.__name__


# The graph


def graph(held: Sequence[Held]) -> Graph | None:
    """The sessions that wait and those they wait for, drawn from left to right; None: nobody."""
    waits = [one for one in held if one.waits and one.behind is not None]
    if not waits:
        return None
    behind: dict[int, list[Held]] = {}
    for one in waits:
        assert one.behind is not None
        behind.setdefault(one.behind, []).append(one)
    waiting = {one.session for one in waits}
    heads = sorted(set(behind) - waiting) or [min(behind)]  # a cycle that isn't resolved yet
    made = Graph()
    boxes: dict[int, Box] = {}
    level = heads
    column = 0
    while level:
        for row, session in enumerate(level):
            note = "head blocker" if column == 0 else "waits"
            box = Box(session, note, column * _COLUMN, row * _ROW)
            boxes[session] = box
            made.boxes.append(box)
        after = [one.session for session in level for one in behind.get(session, ())]
        made.height = max(made.height, len(level) * _ROW)
        level = [session for session in dict.fromkeys(after) if session not in boxes]
        column += 1
    made.width = column * _COLUMN - (_COLUMN - _BOX_WIDTH)
    for one in waits:
        assert one.behind is not None
        if one.session in boxes and one.behind in boxes:
            made.edges.append(Edge(boxes[one.session], boxes[one.behind], one.what))
    return made
