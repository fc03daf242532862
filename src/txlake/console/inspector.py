"""The observable state of a playground's lake at one moment: sessions, locks, committed tables.

Owns the inspection, which takes no locks, and the names for the catalog's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from txlake.catalog import DatabaseEntry, TableEntry
from txlake.catalog.lock_entries import LockEntry
from txlake.conflict.levels import parse_level, strictest
from txlake.conflict.locking import LockStatus
from txlake.console.resource_names import ResourceNames
from txlake.console.session_thread import ROWS_MAX, SessionThread, StatementError
from txlake.console.timelines import LEVELS, Row
from txlake.errors import TxlakeError
from txlake.session.engine import Engine
from txlake.session.transaction import State as TransactionState

_TABLES_MAX = 8


class SessionActivity(Enum):
    """The activity of a session; the values are its texts for display."""

    IDLE = "idle"
    OPEN = "in a transaction"
    WAITS = "waits for a lock"
    RUNS = "runs"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """A session's state after a step.

    Attributes:
        number: its number in `sys.dm_tran_locks`.
        level: the isolation level in force.
        instant: the instant that its transaction reads; None before its first read, and without
            one.
        versions: of each table that its transaction has opened, the version that it reads; -1 for a
            table that it creates.
        waits_for: the lock, and the session that blocks it; empty unless it waits.
        error: the error that aborted its transaction.
    """

    name: str
    number: int
    activity: SessionActivity
    level: str
    instant: int | None
    versions: Mapping[str, int]
    waits_for: str
    error: StatementError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReport:
    """A row of `sys.dm_tran_locks`, with names for its numbers."""

    session: str
    type: str
    resource: str
    mode: str
    status: str
    blocked_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """A table's committed state. `rows`: None where they can't be read."""

    name: str
    version: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...] | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReport:
    """A lake's state after a step.

    Attributes:
        instant: the newest instant.
    """

    instant: int
    sessions: tuple[SessionReport, ...]
    locks: tuple[LockReport, ...]
    tables: tuple[TableReport, ...]

    @property
    def waits(self) -> Mapping[str, str]:
        """Return, by the name of each waiting session, a text: the lock that it waits for, and the
        session that blocks it.
        """
        return {session.name: session.waits_for for session in self.sessions if session.waits_for}


class Inspector:
    """The inspection of one lake; `sessions` are the sessions that it reports."""

    def __init__(self, engine: Engine, sessions: Iterable[SessionThread]) -> None:
        self._engine = engine
        self._catalog = engine.catalog.of_lake()
        self._sessions = tuple(sessions)
        self._tables: dict[str, TableReport] = {}

    def waiting_sessions(self) -> frozenset[int]:
        """Return the numbers of the sessions that wait for a lock which another session holds."""
        return frozenset(_waiting_requests(self._catalog.locks.entries()))

    def inspect(self) -> LakeReport:
        """Return the lake's current state, without locking.

        Of the tables only the first eight, without any whose log can't be read.
        """
        databases = self._catalog.databases()
        tables = [table for database in databases for table in self._catalog.tables(database.name)]
        state = _CatalogState(
            databases=databases,
            tables=tables,
            locks=self._catalog.locks.entries(),
            resources=ResourceNames(databases, tables, _short),
        )
        return LakeReport(
            instant=self._catalog.ledger.sequence(),
            sessions=tuple(self._session_report(thread, state) for thread in self._sessions),
            locks=tuple(self._lock_report(lock, state) for lock in state.locks),
            tables=tuple(filter(None, map(self._table_report, state.tables[:_TABLES_MAX]))),
        )

    def _session_report(self, thread: SessionThread, state: _CatalogState) -> SessionReport:
        """Return a session's state; of a transaction that has failed only the error."""
        session, lock = thread.session, state.waits.get(thread.number)
        current = session.current
        if thread.running is not None:
            activity = SessionActivity.RUNS if lock is None else SessionActivity.WAITS
        elif thread.last_error is not None:
            activity = SessionActivity.LOST
        else:
            activity = SessionActivity.IDLE if current is None else SessionActivity.OPEN
        if current is not None and current.state is not TransactionState.ACTIVE:
            current = None
        isolations = (
            database.isolation for database in state.databases if database.name == session.database
        )
        of_database = next(isolations, None)
        level = session.level if current is None else current.level
        in_force = strictest(None if of_database is None else parse_level(of_database), level)
        versions = {} if current is None else current.versions_read
        return SessionReport(
            name=thread.name,
            number=thread.number,
            activity=activity,
            level=LEVELS[in_force.value],
            instant=None if current is None else current.sequence,
            versions={_short(name): version for name, version in versions.items()},
            waits_for="" if lock is None else self._wait_text(lock, state),
            error=thread.last_error if activity is SessionActivity.LOST else None,
        )

    def _wait_text(self, lock: LockEntry, state: _CatalogState) -> str:
        blocker = self._session_name(lock.blocking_session_id)
        return f"{lock.mode.value} on {state.resources.name_of(lock.resource)}, after {blocker}"

    def _lock_report(self, lock: LockEntry, state: _CatalogState) -> LockReport:
        """Return a lock with names for its numbers; a victim's request counts as waiting."""
        status = LockStatus.WAIT if lock.status is LockStatus.VICTIM else lock.status
        return LockReport(
            session=self._session_name(lock.session_id),
            type=lock.resource.type.value,
            resource=state.resources.name_of(lock.resource),
            mode=lock.mode.value,
            status=status.value,
            blocked_by=self._session_name(lock.blocking_session_id),
        )

    def _session_name(self, number: int | None) -> str:
        """Return a session's name; its number for one that isn't reported, empty for None."""
        if number is None:
            return ""
        names = (thread.name for thread in self._sessions if thread.number == number)
        return next(names, f"session {number}")

    def _table_report(self, entry: TableEntry) -> TableReport | None:
        """Return a table's committed state, read without a lock; None if it can't be read.

        The first 20 rows in the order of their values; `rows` is None if only Spark can read them.
        Kept as long as the table's version and name stay.
        """
        cached = self._tables.get(entry.id)
        name = _short(f"{entry.database}.{entry.name}")
        if cached is not None and (cached.name, cached.version) == (name, entry.head):
            return cached
        try:
            handle = self._engine.at_entry(entry)
            snapshot = handle.log.latest()
            work = self._engine.work(handle, snapshot)
            result = work.plain_rows(work.snapshot.select(None), None, None)
        except TxlakeError:
            return None
        columns = tuple(snapshot.schema.names)
        rows: tuple[Row, ...] | None = None
        if result is not None:
            values = [result.column(index).to_pylist() for index in range(len(columns))]
            # By their values: updated rows come after the others in a table's files.
            rows = tuple(sorted(zip(*values, strict=True), key=_sort_key))
        report = TableReport(
            name=name,
            version=snapshot.version,
            columns=columns,
            rows=None if rows is None else rows[:ROWS_MAX],
            total=0 if rows is None else len(rows),
        )
        self._tables[entry.id] = report
        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _CatalogState:
    """The catalog's state at one moment."""

    databases: Sequence[DatabaseEntry]
    tables: Sequence[TableEntry]
    locks: Sequence[LockEntry]
    resources: ResourceNames

    @property
    def waits(self) -> Mapping[int, LockEntry]:
        return _waiting_requests(self.locks)


def _waiting_requests(locks: Sequence[LockEntry]) -> Mapping[int, LockEntry]:
    """Return each session's waiting request, except those that are no longer blocked."""
    return {
        lock.session_id: lock
        for lock in locks
        if lock.status in {LockStatus.WAIT, LockStatus.CONVERT}
        and lock.blocking_session_id is not None
    }


def _short(name: str) -> str:
    return name.removeprefix("default.")


def _sort_key(row: Row) -> tuple[tuple[bool, str, object], ...]:
    """Return a key to sort rows by values of any type; NULL comes last."""
    return tuple(
        (value is None, type(value).__name__, value if isinstance(value, int | str) else str(value))
        for value in row
    )
