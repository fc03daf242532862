"""The record of maintenance: what was done to which table and why, and what is due; and the claims
by which processes share the tables.

A claim is a lock of a session, of the type APPLICATION. It ends with its session: that of a process
that was killed is taken over once its lease has expired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows
from txlake.catalog.database import Database
from txlake.catalog.fact_rows import facts_named, remove_fact, set_fact
from txlake.catalog.relations import commits, maintenance, tables
from txlake.catalog.sessions import SessionEntry
from txlake.catalog.shielding import shielded
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType

ROWS_MAX = 1_000
DUE, RUNNING, INTERRUPTED = "due", "running", "interrupted"
_UNPUBLISHED_MS = 600_000
_QUIET = "needs no maintenance: "


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEntry:
    """Work on a table, or on the whole lake, that is due, is being done or was done.

    Attributes:
        time_ms: when it began, or was found due, by the catalog's clock.
        table_name: `database.table`; None for the whole lake.
        need: the kind of work.
        state: due, running, done, nothing, yielded or failed.
        action: the statement, or what is done in its place.
        reason: why, in numbers.
        files, size_bytes, row_count: what was gained; of work that is due, what is expected.
        session_id: the session that does it or did it.
        error: the error that ended it.
    """

    id: str
    time_ms: int = 0
    table_name: str | None
    need: str
    state: str
    action: str
    reason: str
    files: int = 0
    size_bytes: int = 0
    row_count: int = 0
    duration_ms: int | None = None
    session_id: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QuietTable:
    """A table that needs nothing for a while, unless it changes.

    Attributes:
        version: its newest version when it was surveyed.
        until_ms: when time alone may bring a need, milliseconds since the epoch.
        basis: names what its needs hang on besides its versions; another text makes this void.
    """

    version: int
    until_ms: int
    basis: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What killed processes left: how many tables have commits that wait to be published, and how
    many dropped tables are past their retention.
    """

    unpublished: int
    dropped: int


def claim_on(database: int, table: int) -> LockRequest:
    """Return the request for the claim on a table's maintenance, by the numbers of database and
    table; 0 and 0 are the lake's own.
    """
    resource = Resource(
        type=ResourceType.APPLICATION, database=database, entity=table, description="maintenance"
    )
    return LockRequest(resource=resource, mode=LockMode.X)


def is_claim(resource: Resource) -> bool:
    """Return whether a lock's resource is the maintenance of a table or lake."""
    return resource == claim_on(resource.database, resource.entity).resource


def with_sessions(
    entries: Iterable[MaintenanceEntry], sessions: Iterable[SessionEntry]
) -> Iterator[tuple[MaintenanceEntry, SessionEntry | None]]:
    """Yield each entry with the live session that works on it, None if none does.

    An entry that is recorded as running, and whose session has ended, is yielded as interrupted.
    """
    living = {session.id: session for session in sessions}
    for entry in entries:
        if entry.state != RUNNING:
            yield entry, None
        elif (session := living.get(entry.session_id or 0)) is None:
            yield replace(entry, state=INTERRUPTED), None
        else:
            yield entry, session


@shielded()
class MaintenanceBook:
    """The record of one lake's maintenance, of all processes; the newest 1,000 entries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entries(self) -> list[MaintenanceEntry]:
        """Return the entries, the oldest first."""
        query = sa.select(maintenance).order_by(maintenance.c.time_ms, maintenance.c.id)
        with self._database.reading() as connection:
            return [MaintenanceEntry(**row._mapping) for row in connection.execute(query)]

    def add(self, entry: MaintenanceEntry) -> None:
        """Record work that begins or was done now. Its time is the catalog's."""

        def work(connection: Connection) -> None:
            self._insert(connection, entry)
            newest = maintenance.c.time_ms.desc(), maintenance.c.id.desc()
            old = sa.select(maintenance.c.id).order_by(*newest).offset(ROWS_MAX)
            too_old = list(connection.scalars(old))
            if too_old:
                connection.execute(sa.delete(maintenance).where(maintenance.c.id.in_(too_old)))

        self._database.write_relaxed(work)

    def end(self, entry: MaintenanceEntry) -> None:
        """Record the end of work whose beginning was recorded."""
        values = asdict(entry)
        own_id = values.pop("id")
        del values["time_ms"]
        change = sa.update(maintenance).where(maintenance.c.id == own_id).values(**values)
        self._database.write_relaxed(lambda connection: connection.execute(change))

    def replace_due(self, entries: Sequence[MaintenanceEntry]) -> None:
        """Replace what is due, in its order; write nothing if it is the same as before."""
        is_due = maintenance.c.state == DUE
        columns = (maintenance.c.table_name, maintenance.c.need, maintenance.c.reason)
        with self._database.reading() as connection:
            known = {tuple(row) for row in connection.execute(sa.select(*columns).where(is_due))}
        if known == {(entry.table_name, entry.need, entry.reason) for entry in entries}:
            return

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            connection.execute(sa.delete(maintenance).where(is_due))
            for place, entry in enumerate(entries):
                self._insert(connection, replace(entry, id=f"{DUE} {place:06}"))

        self._database.write_relaxed(work)

    def quiet_tables(self) -> dict[str, QuietTable]:
        """Return the tables that need nothing, by table id, as rounds have found them."""
        with self._database.reading() as connection:
            texts = facts_named(connection, _QUIET)
        return {table_id: QuietTable(*json.loads(text)) for table_id, text in texts.items()}

    def replace_quiet(self, found: Mapping[str, QuietTable]) -> None:
        """Record these tables, by table id, and no others; write only what has changed."""
        known = self.quiet_tables()
        gone = known.keys() - found.keys()
        changed = {key: quiet for key, quiet in found.items() if known.get(key) != quiet}
        if not gone and not changed:
            return

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            for key in gone:
                remove_fact(connection, _QUIET + key)
            for key, quiet in changed.items():
                set_fact(connection, _QUIET + key, json.dumps(astuple(quiet)))

        self._database.write_relaxed(work)

    def leftovers(self) -> Leftovers:
        """Return what killed processes left, as far as it is ten minutes old."""
        with self._database.reading() as connection:
            now_ms = self._database.now_ms(connection)
            waiting = (
                sa.select(sa.func.count(sa.distinct(tables.c.id)))
                .select_from(tables.join(commits, commits.c.table_id == tables.c.id))
                .where(
                    commits.c.version > tables.c.published,
                    commits.c.time_ms < now_ms - _UNPUBLISHED_MS,
                )
            )
            forks = tables.alias()
            is_used = sa.exists().where(
                forks.c.root_id == tables.c.id, forks.c.dropped_sequence.is_(None)
            )
            is_over = tables.c.kept_until_ms.is_(None) & ~is_used
            dropped = sa.select(sa.func.count()).where(
                tables.c.dropped_sequence.is_not(None),
                tables.c.origin_id.is_(None),
                is_over | (tables.c.kept_until_ms <= now_ms),
            )
            return Leftovers(
                int(connection.scalar(waiting) or 0), int(connection.scalar(dropped) or 0)
            )

    def _insert(self, connection: Connection, entry: MaintenanceEntry) -> None:
        values = {**asdict(entry), "time_ms": self._database.now()}
        connection.execute(sa.insert(maintenance).values(**values))
