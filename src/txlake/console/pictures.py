"""What a playground's lake looks like at one moment: sessions, locks, tables as they are committed.

Owns the look itself, which takes no locks, and the names that it has for the catalog's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from txlake.catalog import DatabaseEntry, TableEntry
from txlake.catalog.locks import LockEntry
from txlake.conflict.levels import parse_level, strictest
from txlake.conflict.locking import LockStatus
from txlake.console.players import ROWS_MAX, Player, Told
from txlake.console.resources import Resources
from txlake.console.timelines import LEVELS, Row
from txlake.errors import TxlakeError
from txlake.session.engine import Engine
from txlake.session.transaction import State as TransactionState

_TABLES_MAX = 8


class Standing(Enum):
    """What a session does; the values are how it is told."""

    IDLE = "idle"
    OPEN = "in a transaction"
    WAITS = "waits for a lock"
    RUNS = "runs"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPicture:
    """A session after a step.

    Attributes:
        number: as `sys.dm_tran_locks` has it.
        level: the one in force.
        instant: that its transaction reads; None before its first read, and without one.
        versions: of each table that its transaction has opened, the version that it reads; -1 of
            one that it makes.
        waits_for: the lock, and who is in the way; empty unless it waits.
        error: what it lost with.
    """

    name: str
    number: int
    standing: Standing
    level: str
    instant: int | None
    versions: Mapping[str, int]
    waits_for: str
    error: Told | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockPicture:
    """A row of `sys.dm_tran_locks`, with names for its numbers."""

    session: str
    type: str
    what: str
    mode: str
    status: str
    blocked_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePicture:
    """A table as it is committed. `rows`: None where they can't be shown."""

    name: str
    version: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...] | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A lake after a step.

    Attributes:
        instant: the newest.
    """

    instant: int
    sessions: tuple[SessionPicture, ...]
    locks: tuple[LockPicture, ...]
    tables: tuple[TablePicture, ...]

    @property
    def waits(self) -> Mapping[str, str]:
        """By session, the lock that it waits for, and who is in the way."""
        return {one.name: one.waits_for for one in self.sessions if one.waits_for}


class Looker:
    """Looks at one lake; `players` are the sessions that it shows."""

    def __init__(self, engine: Engine, players: Iterable[Player]) -> None:
        self._engine = engine
        self._catalog = engine.catalog.of_lake()
        self._players = tuple(players)
        self._tables: dict[str, TablePicture] = {}

    def waiting(self) -> frozenset[int]:
        """The numbers of the sessions that wait for a lock which another one holds."""
        return frozenset(_waits(self._catalog.locks.listed()))

    def look(self) -> Picture:
        """What it looks like now."""
        databases = self._catalog.databases()
        tables = [table for one in databases for table in self._catalog.tables(one.name)]
        look = _Look(
            databases=databases,
            tables=tables,
            locks=self._catalog.locks.listed(),
            resources=Resources(databases, tables, _short),
        )
        return Picture(
            instant=self._catalog.ledger.sequence(),
            sessions=tuple(self._session_now(one, look) for one in self._players),
            locks=tuple(self._lock_now(one, look) for one in look.locks),
            tables=tuple(filter(None, map(self._table_now, look.tables[:_TABLES_MAX]))),
        )

    def _session_now(self, player: Player, look: _Look) -> SessionPicture:
        session, lock = player.session, look.waits.get(player.number)
        current = session.current
        if player.asked is not None:
            standing = Standing.RUNS if lock is None else Standing.WAITS
        elif player.lost is not None:
            standing = Standing.LOST
        else:
            standing = Standing.IDLE if current is None else Standing.OPEN
        if current is not None and current.state is not TransactionState.ACTIVE:
            current = None
        asked = (one.isolation for one in look.databases if one.name == session.database)
        of_database = next(asked, None)
        level = session.level if current is None else current.level
        in_force = strictest(None if of_database is None else parse_level(of_database), level)
        versions = {} if current is None else current.versions_read
        return SessionPicture(
            name=player.name,
            number=player.number,
            standing=standing,
            level=LEVELS[in_force.value],
            instant=None if current is None else current.sequence,
            versions={_short(name): version for name, version in versions.items()},
            waits_for="" if lock is None else self._waited_for(lock, look),
            error=player.lost if standing is Standing.LOST else None,
        )

    def _waited_for(self, lock: LockEntry, look: _Look) -> str:
        blocker = self._name_of(lock.blocking_session_id)
        return f"{lock.mode.value} on {look.resources.name_of(lock.resource)}, after {blocker}"

    def _lock_now(self, lock: LockEntry, look: _Look) -> LockPicture:
        status = LockStatus.WAIT if lock.status is LockStatus.VICTIM else lock.status
        return LockPicture(
            session=self._name_of(lock.session_id),
            type=lock.resource.type.value,
            what=look.resources.name_of(lock.resource),
            mode=lock.mode.value,
            status=status.value,
            blocked_by=self._name_of(lock.blocking_session_id),
        )

    def _name_of(self, number: int | None) -> str:
        if number is None:
            return ""
        names = (one.name for one in self._players if one.number == number)
        return next(names, f"session {number}")

    def _table_now(self, entry: TableEntry) -> TablePicture | None:
        """A table as it is committed, read without a lock; None where it is gone meanwhile."""
        known = self._tables.get(entry.id)
        name = _short(f"{entry.database}.{entry.name}")
        if known is not None and (known.name, known.version) == (name, entry.head):
            return known
        try:
            handle = self._engine.at_entry(entry)
            snapshot = handle.log.latest()
            work = self._engine.work(handle, snapshot)
            found = work.plain_rows(work.snapshot.select(None), None, None)
        except TxlakeError:
            return None
        columns = tuple(snapshot.schema.names)
        rows: tuple[Row, ...] | None = None
        if found is not None:
            values = [found.column(place).to_pylist() for place in range(len(columns))]
            # By their values: new images of rows come after the others in a table's files.
            rows = tuple(sorted(zip(*values, strict=True), key=_in_order))
        made = TablePicture(
            name=name,
            version=snapshot.version,
            columns=columns,
            rows=None if rows is None else rows[:ROWS_MAX],
            total=0 if rows is None else len(rows),
        )
        self._tables[entry.id] = made
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the catalog has at one moment."""

    databases: Sequence[DatabaseEntry]
    tables: Sequence[TableEntry]
    locks: Sequence[LockEntry]
    resources: Resources

    @property
    def waits(self) -> Mapping[int, LockEntry]:
        return _waits(self.locks)


def _waits(locks: Sequence[LockEntry]) -> Mapping[int, LockEntry]:
    """By session, the request that it waits with; not one whose way is free meanwhile."""
    return {
        one.session_id: one
        for one in locks
        if one.status in {LockStatus.WAIT, LockStatus.CONVERT}
        and one.blocking_session_id is not None
    }


def _short(name: str) -> str:
    return name.removeprefix("default.")


def _in_order(row: Row) -> tuple[tuple[bool, str, object], ...]:
    """A key to sort rows by, whatever their values are; NULL comes last."""
    return tuple(
        (value is None, type(value).__name__, value if isinstance(value, int | str) else str(value))
        for value in row
    )
