"""A transaction as a session holds it: the tables it opened, their staged changes, one commit.

Owns the states of a transaction and its savepoints; the commit of one table is
`transaction.table_transaction`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from txlake.catalog import DatabaseEntry
from txlake.conflict.footprint import ReadKind
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.errors import Conflict, InvalidRequest, OutcomeUnknown
from txlake.log.snapshot import Snapshot
from txlake.session.engine import Engine, Handle
from txlake.session.journal import Open
from txlake.spark.probe import SparkProbe
from txlake.spark.work import Work
from txlake.transaction.change import Change
from txlake.transaction.commit import Committed
from txlake.transaction.table_transaction import TableTransaction, Token

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class State(Enum):
    """Where a transaction stands."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A savepoint: each open table's token, and how many effects there were."""

    name: str
    tokens: dict[str, Token]
    effects: int
    named: dict[tuple[str, str], Handle | None]


@dataclass(kw_only=True)
class Transaction:
    """All that was read and staged between BEGIN and COMMIT; used by one thread at a time.

    Attributes:
        id: a UUID.
        level: the isolation level asked for; None leaves it to the tables.
        explicit: whether a user began it; autocommit statements have transactions of their own.
        begin_ms: when it began, milliseconds since the epoch.
    """

    id: str
    engine: Engine
    level: Level | None = None
    read_only: bool = False
    explicit: bool = True
    state: State = State.ACTIVE
    cause: str | None = None
    user_metadata: str | None = None
    begin_ms: int = 0
    _tables: dict[str, TableTransaction] = field(default_factory=dict)
    _handles: dict[str, Handle] = field(default_factory=dict)
    _marks: list[_Mark] = field(default_factory=list)
    _effects: list[Callable[[], None]] = field(default_factory=list)
    _named: dict[tuple[str, str], Handle | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin_ms = self.engine.system.now_ms()
        if self.explicit:
            self.engine.journal.began(self.id, self.look)

    def look(self) -> Open:
        """The transaction as others see it."""
        return Open(
            id=self.id,
            begin_ms=self.begin_ms,
            state=self.state.value,
            isolation=None if self.level is None else self.level.value,
            read_only=self.read_only,
            tables=tuple(handle.name for handle in self._handles.values()),
        )

    @property
    def sequence(self) -> int | None:
        """The version of the table that it touched first: the instant that it reads."""
        return next((table.base.version for table in self._tables.values()), None)

    def require_active(self) -> None:
        """Raises InvalidRequest unless statements may still run in it."""
        if self.state is State.FAILED:
            raise InvalidRequest(
                f"transaction {self.id} was rolled back because a statement failed ({self.cause}); "
                "end it with ROLLBACK, then begin again"
            )
        if self.state is State.UNKNOWN:
            raise InvalidRequest(
                f"whether transaction {self.id} was committed is unknown; look into the table's "
                "history before you begin it again"
            )
        if self.state is not State.ACTIVE:
            raise InvalidRequest(f"transaction {self.id} is {self.state.value}; begin a new one")

    def open(self, handle: Handle) -> TableTransaction:
        """The transaction's part on one table; its snapshot is pinned by the first call."""
        self.require_active()
        found = self._tables.get(handle.store.url)
        if found is None:
            base = handle.log.latest_or_none()
            database = self._database_of(handle)
            found = TableTransaction(
                handle.log, base, self._level_in(database), self._granularity_in(database)
            )
            if self._tables:
                found.read_elsewhere()
                for other in self._tables.values():
                    other.read_elsewhere()
            self._tables[handle.store.url] = found
            self._handles[handle.store.url] = handle
        return found

    def _database_of(self, handle: Handle) -> DatabaseEntry | None:
        catalog, entry = self.engine.catalog, handle.entry
        return None if catalog is None or entry is None else catalog.database(entry.database)

    def _level_in(self, database: DatabaseEntry | None) -> Level | None:
        """The stricter of what the table's database and the transaction ask for."""
        if database is None or database.isolation is None:
            return self.level
        return strictest(parse_level(database.isolation), self.level)

    def _granularity_in(self, database: DatabaseEntry | None) -> Granularity:
        """The coarser of what the table's database and the lake ask for."""
        lake = parse_granularity(self.engine.settings.conflict_granularity)
        text = None if database is None else database.properties.get(GRANULARITY)
        return coarsest(lake, None if text is None else parse_granularity(text))

    def stage(self, handle: Handle, change: Change) -> None:
        """Adds what a statement did. Raises InvalidRequest in a read-only transaction."""
        table = self.open(handle)
        for read in change.reads:
            kind = ReadKind.GUARD if read.guard else ReadKind.FOR_WRITE
            table.read(
                read.predicate,
                read.text,
                files=read.files,
                kind=kind,
                takes_all=read.takes_all,
                condition=read.condition,
            )
        if not change.actions:
            return
        if self.read_only:
            raise InvalidRequest(
                f"{handle.name}: {change.operation} in a read-only transaction; begin one that "
                "may write"
            )
        written = [url for url, other in self._tables.items() if other.has_changes]
        if written and handle.store.url not in written:
            names = f"{self._handles[written[0]].name} and {handle.name}"
            raise InvalidRequest(
                f"a transaction can write one table, this one would write {names}; commit them "
                "one after the other"
            )
        table.stage(
            change.actions,
            operation=change.operation,
            parameters=change.parameters,
            metrics=change.metrics,
        )

    def after_commit(self, effect: Callable[[], None]) -> None:
        """What is done once the commit stands: names registered, folders removed."""
        self._effects.append(effect)

    def name_table(self, name: tuple[str, str], handle: Handle | None) -> None:
        """What a name means in this transaction from here on; None for a dropped table."""
        self._named = {**self._named, _folded(name): handle}

    def knows(self, name: tuple[str, str]) -> bool:
        """Whether the transaction itself gave or took this name."""
        return _folded(name) in self._named

    def named(self, name: tuple[str, str]) -> Handle | None:
        """What a name that it knows means."""
        return self._named[_folded(name)]

    def savepoint(self, name: str) -> None:
        """Marks this moment; a name used again marks a new one."""
        self.require_active()
        tokens = {url: table.savepoint() for url, table in self._tables.items()}
        self._marks.append(_Mark(name, tokens, len(self._effects), self._named))

    def rollback_to(self, name: str) -> None:
        """Undoes what was staged since the savepoint; what was read stays read."""
        self.require_active()
        place = self._place_of(name)
        mark = self._marks[place]
        for url, table in self._tables.items():
            table.rollback_to(mark.tokens.get(url))
        del self._effects[mark.effects :]
        self._named = mark.named
        del self._marks[place + 1 :]

    def release(self, name: str) -> None:
        """Forgets a savepoint and those after it."""
        self.require_active()
        del self._marks[self._place_of(name) :]

    def _place_of(self, name: str) -> int:
        for place in range(len(self._marks) - 1, -1, -1):
            if self._marks[place].name.lower() == name.lower():
                return place
        known = ", ".join(mark.name for mark in self._marks) or "none"
        raise InvalidRequest(f"there is no savepoint {name!r}; there are: {known}")

    def commit(self) -> Committed | None:
        """Makes the changes visible, all or nothing; None when nothing changed.

        The commit's `userMetadata` is the transaction's own; without one, what the Spark session's
        `spark.databricks.delta.commitInfo.userMetadata` says now, as in Delta Spark.

        Raises a Conflict when a concurrent transaction stands in the way; the transaction is then
        rolled back. After an OutcomeUnknown nobody knows whether it was.
        """
        self.require_active()
        committed = None
        try:
            for url, table in self._tables.items():
                if table.has_changes:
                    told = self.user_metadata or self.engine.spark_setting(_USER_METADATA, "")
                    probe = SparkProbe(partial(self._work_on, self._handles[url], table.base))
                    committed = table.commit(user_metadata=told or None, probe=probe)
        except BaseException as error:
            is_open = isinstance(error, OutcomeUnknown)
            self._end(State.UNKNOWN if is_open else State.ROLLED_BACK)
            if isinstance(error, Conflict):
                self.engine.journal.met(self.id, error)
            raise
        self._end(State.COMMITTED)
        for effect in self._effects:
            effect()
        return committed

    def _work_on(self, handle: Handle, base: Snapshot) -> Work | None:
        """The table as it was read; None where that would start Spark."""
        return self.engine.work(handle, base) if self.engine.has_spark else None

    def rollback(self) -> None:
        """Forgets everything; files already written are orphans for VACUUM."""
        if self.state in {State.ACTIVE, State.FAILED}:
            self._end(State.ROLLED_BACK)

    def _end(self, state: State) -> None:
        self.state = state
        self.engine.journal.ended(self.id)

    def fail(self, cause: BaseException) -> None:
        """A statement failed: nothing of the transaction will be committed."""
        if self.state is State.ACTIVE:
            self.state = State.FAILED
            first_line, _, _ = str(cause).partition("\n")
            name = type(cause).__name__
            self.cause = f"{name}: {first_line:.200}" if first_line else name


def _folded(name: tuple[str, str]) -> tuple[str, str]:
    return (name[0].lower(), name[1].lower())
