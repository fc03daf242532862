"""The page of maintenance: works that run, are due and were done; and a table's own share of them.

Reads the record that rounds of maintenance keep in the catalog, and no table's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlake.catalog.maintenance_book import (
    DUE,
    RUNNING,
    MaintenanceEntry,
    is_claim,
    with_sessions,
)
from txlake.catalog.sessions import SessionEntry
from txlake.conflict.locking import LockStatus
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.console.resource_names import ResourceNames
from txlake.session.engine import Handle

PAGE_SIZE = 100
STATES = ("done", "nothing", "yielded", "failed", "interrupted")
"""The states of works that have ended, as the view `txlake.maintenance` names them."""
_OF_TABLE_MAX = 5
_THE_LAKE = "the lake"


@dataclass(frozen=True, slots=True)
class RecordedWork:
    """A work of maintenance. `session`: the one that does it; None if it isn't being done."""

    entry: MaintenanceEntry
    session: SessionEntry | None

    @property
    def is_bad(self) -> bool:
        """Return whether an operator should look at it."""
        return self.entry.state in ("failed", "interrupted")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a session on the maintenance of a table, or of the lake itself."""

    resource: str
    session: int
    host: str
    process: int | None
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMaintenance:
    """What the record says of one table.

    Attributes:
        due: what is due, in order.
        newest: the newest works.
        quiet_until_ms: until when it needs nothing unless it changes, milliseconds since the epoch;
            None if it has changed since, or has never been looked at.
    """

    quiet_until_ms: int | None
    due: Sequence[RecordedWork]
    newest: Sequence[RecordedWork]


def page(request: PageRequest) -> TemplateValues:
    """Return the claims, what is due in the order in which it is done, and the newest works.

    `table` filters both by a part of the table's name, in any case; `state` the works that have
    ended; `page` counts from 0.
    """
    search = request.query.get("table", "").strip().lower()
    state = request.query.get("state", "")
    matching = [
        work for work in _works(request) if search in (work.entry.table_name or _THE_LAKE).lower()
    ]
    ended = [work for work in reversed(matching) if work.entry.state not in (DUE, RUNNING)]
    shown = [work for work in ended if state in ("", work.entry.state)]
    number = request.number("page", default=0)
    return {
        "now_ms": request.engine.system.now_ms(),
        "claims": _claims(request),
        "running": [work for work in matching if work.entry.state == RUNNING],
        "due": [work for work in matching if work.entry.state == DUE],
        "ended": shown[number * PAGE_SIZE : (number + 1) * PAGE_SIZE],
        "total": len(shown),
        "quiet": len(request.engine.catalog.of_lake().maintenance.quiet_tables()),
        "table": request.query.get("table", ""),
        "state": state,
        "states": STATES,
        "page": number,
        "has_more": (number + 1) * PAGE_SIZE < len(shown),
    }


def of_table(request: PageRequest, handle: Handle) -> TableMaintenance:
    """Return what is due on a table of the lake, and its five newest works."""
    works = [work for work in _works(request) if work.entry.table_name == handle.name]
    begun = [work for work in reversed(works) if work.entry.state != DUE]
    entry = handle.entry
    assert entry is not None, "a table of the console is the lake's"
    quiet = request.engine.catalog.of_lake().maintenance.quiet_tables().get(entry.id)
    return TableMaintenance(
        quiet_until_ms=None if quiet is None or quiet.version != entry.head else quiet.until_ms,
        due=[work for work in works if work.entry.state == DUE],
        newest=begun[:_OF_TABLE_MAX],
    )


def _works(request: PageRequest) -> list[RecordedWork]:
    """Return the works of the record, the oldest first; what is due in its order."""
    catalog = request.engine.catalog.of_lake()
    entries = catalog.maintenance.entries()
    sessions = catalog.sessions.entries() if entries else []
    return [RecordedWork(*found) for found in with_sessions(entries, sessions)]


def _claims(request: PageRequest) -> list[Claim]:
    """Return the claims, the oldest first."""
    catalog = request.engine.catalog.of_lake()
    locks = [
        lock
        for lock in catalog.locks.entries()
        if is_claim(lock.resource) and lock.status is LockStatus.GRANT
    ]
    if not locks:
        return []
    databases = catalog.databases()
    tables = (table for database in databases for table in catalog.tables(database.name))
    names = ResourceNames(databases, tables)
    sessions = {session.id: session for session in catalog.sessions.entries()}
    now_ms = request.engine.system.now_ms()
    claims = []
    for lock in locks:
        session = sessions.get(lock.session_id)
        claims.append(
            Claim(
                resource=names.name_of(lock.resource),
                session=lock.session_id,
                host="" if session is None else session.host,
                process=None if session is None else session.process,
                age_ms=now_ms - lock.asked_ms,
            )
        )
    return sorted(claims, key=lambda claim: -claim.age_ms)
