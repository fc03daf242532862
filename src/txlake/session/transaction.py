"""A transaction as a session holds it: the tables it opened, their staged changes, one commit.

Owns the states of a transaction, its instant, its names and its savepoints. What commits is
`transaction.lake_commit`'s business for tables of the lake, `transaction.table_transaction`'s for a
path table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from txlake.catalog import DatabaseEntry
from txlake.catalog.admission import Admission, RequiredLocks, StatementTransaction
from txlake.catalog.lookup import CatalogView, LookupRequest
from txlake.conflict.footprint import Read
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.errors import Conflict, CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.ports import DroppedTable, NameChange, NewTable, System
from txlake.session.change_files import write_changes
from txlake.session.commit_description import is_described
from txlake.session.engine import Engine, Handle
from txlake.spark.probe import SparkProbe
from txlake.telemetry import count, span, timed
from txlake.transaction.change import Change
from txlake.transaction.commit_loop import CommittedTogether
from txlake.transaction.data_plane import TableData
from txlake.transaction.foreign_commit import (
    Accepted,
    Request,
    Resent,
    Staged,
    Stopped,
    commit_foreign_together,
)
from txlake.transaction.identities import Identities, IdentitiesOf, Reserved
from txlake.transaction.lake_commit import Part, commit_together
from txlake.transaction.membership import is_open, unasked
from txlake.transaction.rebase import Proposal, check_reads, check_same
from txlake.transaction.staging import Staging
from txlake.transaction.table_transaction import Beside, TableTransaction, Token

_logger = logging.getLogger(__name__)
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class State(Enum):
    """Where a transaction stands."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Names:
    """What a transaction did to the catalog: what a name means to it now, and the changes."""

    meanings: dict[tuple[str, str], Handle | None] = field(default_factory=dict)
    changes: tuple[NameChange, ...] = ()

    def then(self, change: NameChange, meanings: dict[tuple[str, str], Handle | None]) -> _Names:
        folded = {(owner.lower(), name.lower()): to for (owner, name), to in meanings.items()}
        return _Names({**self.meanings, **folded}, (*self.changes, change))


@dataclass(frozen=True, slots=True)
class _Mark:
    """A savepoint: each open table's token, the names, and how many effects there were."""

    name: str
    tokens: dict[str, Token]
    effects: int
    names: _Names


@dataclass(kw_only=True)
class Transaction:
    """All that was read and staged between BEGIN and COMMIT; used by one thread at a time.

    Attributes:
        id: a UUID.
        session_number: gives the number of its session in the catalog, made on first use.
        level: the isolation level asked for; None leaves it to the tables.
        explicit: whether a user began it; autocommit statements have transactions of their own.
        begin_ms: when it began, milliseconds since the epoch.
        undone: how often it went back to a savepoint.
    """

    id: str
    engine: Engine
    session_number: Callable[[], int]
    level: Level | None = None
    read_only: bool = False
    explicit: bool = True
    state: State = State.ACTIVE
    cause: str | None = None
    user_metadata: str | None = None
    begin_ms: int = 0
    undone: int = 0
    _sequence: int | None = None
    _is_known: bool = False
    # By name; who uses a database keeps others from changing what it is.
    _databases: dict[str, DatabaseEntry | None] = field(default_factory=dict)
    # By table id, at the instant that it reads.
    _versions: dict[str, int] = field(default_factory=dict)
    _tables: dict[str, TableTransaction] = field(default_factory=dict)
    _handles: dict[str, Handle] = field(default_factory=dict)
    _marks: list[_Mark] = field(default_factory=list)
    _effects: list[Callable[[], None]] = field(default_factory=list)
    _preparations: list[Callable[[], None]] = field(default_factory=list)
    # By table name, an older version that a DataFrame shows which the transaction wrote from.
    _outdated: dict[str, int] = field(default_factory=dict)
    _names: _Names = field(default_factory=_Names)

    def __post_init__(self) -> None:
        self.begin_ms = self.engine.system.now_ms()
        if not self.explicit:
            return
        number = self.session_number()
        self._is_known = True  # an interrupt may come as soon as the catalog has it
        self.engine.catalog.transactions.announce(
            self.id,
            number,
            isolation=None if self.level is None else self.level.value,
            read_only=self.read_only,
            holder=self,
        )

    @property
    def staging(self) -> System:
        """The clock, and new ids for the files that are staged: they say whose these are."""
        return Staging(self.engine.system, self.id)

    def make_known(self) -> None:
        """Enters the transaction into the catalog, once: others see it, and it may hold locks."""
        transactions = self.engine.catalog.transactions
        if self._is_known:
            transactions.register_announced()
            return
        number = self.session_number()
        self._is_known = True  # an interrupt may come as soon as the catalog has it
        self.engine.catalog.transactions.begin(
            self.id,
            number,
            isolation=None if self.level is None else self.level.value,
            read_only=self.read_only,
            explicit=self.explicit,
            holder=self,
        )

    @property
    def is_known(self) -> bool:
        """Whether the catalog has it."""
        return self._is_known

    def admitted(
        self, asked: LookupRequest, needs: RequiredLocks, *, pins: bool, timeout_ms: int
    ) -> Admission:
        """Enters it into the catalog as `make_known` does, if it is to hold locks; gets them.

        Raises as `Admissions.admit`.
        """
        who = StatementTransaction(
            id=self.id,
            session_id=self.session_number(),
            is_new=not self._is_known,
            pins=pins,
            sequence=self._sequence,
            isolation=None if self.level is None else self.level.value,
            read_only=self.read_only,
            explicit=self.explicit,
            holder=self,
        )
        self._is_known = True  # an interrupt may come as soon as the catalog has it
        admissions = self.engine.catalog.of_lake().admissions
        admission = admissions.admit(who, asked, needs, timeout_ms=timeout_ms)
        self._is_known = admission.is_known
        return admission

    def learn(self, seen: CatalogView) -> None:
        """Takes over what a statement's admission saw: the instant, and the tables as of then."""
        if seen.instant is None:
            return
        if self._sequence is None:
            self._sequence = seen.instant
        self._versions.update(seen.versions)
        for entry in (*seen.tables.values(), *seen.places.values()):
            self._databases.setdefault(entry.database, seen.databases.get(entry.database.lower()))

    def set_level(self, level: Level | None) -> None:
        """From here on the transaction asks for this level, which is no looser than its own."""
        if level is None or level is self.level:
            return
        self.level = level
        for table in self._tables.values():
            table.raise_level(level)
        if self._is_known:
            self.engine.catalog.transactions.set_isolation(self.id, level.value)

    def ends_in_this_thread(self) -> None:
        """Says that the calling thread ends it, so that it can't wait for the transaction."""
        self.engine.catalog.locks.set_ending_thread(self.id)

    @property
    def sequence(self) -> int | None:
        """The instant of the lake that it reads; None until it reads or writes a lake's table."""
        return self._sequence

    @property
    def versions_read(self) -> Mapping[str, int]:
        """By name, the version of each table that it has opened; -1 of one that it makes itself."""
        opened = list(self._handles.items())
        return {handle.name: self._tables[key].base.version for key, handle in opened}

    def require_active(self) -> None:
        """Raises InvalidRequest unless statements may still run in it."""
        self.engine.require_open()
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
        found = self._tables.get(handle.key)
        if found is None:
            found = self._begun_at(handle, self._base_of(handle))
            self._tables[handle.key] = found
            self._handles[handle.key] = handle
        return found

    def _begun_at(self, handle: Handle, base: Snapshot | None) -> TableTransaction:
        database = self._database_of(handle)
        return TableTransaction(
            handle.log, base, self._level_in(database), self._granularity_in(database)
        )

    def identities(self, handle: Handle) -> Identities:
        """Who gives the values of the table's identity columns.

        Those of a table that the transaction itself makes, or replaces, are its own.
        """
        return IdentitiesOf(lambda table_id: self._identities(handle, table_id))

    def _identities(self, handle: Handle, table_id: str) -> Identities:
        part = self.open(handle)
        known = part.base.metadata.id if part.base.has_metadata else None
        catalog = self.engine.catalog
        if handle.entry is None or not catalog.is_lake or known != table_id:
            return part.drawn
        return Reserved(self.engine.catalog.of_lake().identities, handle.entry.id)

    def writes_from(self, url: str) -> None:
        """Notes that what it writes comes from rows which it has read at that place."""
        for key, handle in self._handles.items():
            if handle.store.url == url:
                self._tables[key].writes_from_reads()

    def shows(self, handle: Handle, version: Snapshot, read: Read) -> None:
        """Counts rows that a DataFrame shows of a version as read.

        The table's part of the transaction begins at that version when it is older than what the
        transaction sees, and the table wasn't used in it yet. Otherwise, and at the level Snapshot,
        which has one instant for all that is read, the rows must be the same in both.

        Raises a Conflict when they aren't.
        """
        self.require_active()
        part = self._tables.get(handle.key)
        base = self._base_of(handle) if part is None else part.base
        if base is None:
            raise InvalidRequest(
                f"the DataFrame shows version {version.version} of {handle.name}, which the "
                "transaction doesn't see; read the table again"
            )
        older, newer = sorted((base, version), key=lambda one: one.version)
        if part is None:
            part = self._begun_at(handle, older)
            is_free = part.level is not Level.SNAPSHOT and version is older
            if not is_free:
                part = self._begun_at(handle, base)
            self._tables[handle.key] = part
            self._handles[handle.key] = handle
        if version.version < base.version:
            self._outdated[handle.name] = version.version
        if part.base is not version and older.version < newer.version:
            try:
                check_same(handle.log, older, newer, read)
            except Conflict as conflict:
                raise self._told(conflict) from None
        part.read_shown(read)

    def _told(self, conflict: Conflict) -> Conflict:
        """The conflict; of a table that a DataFrame showed as it no longer is, it says so."""
        facts = conflict.evidence
        shown = None if facts is None else self._outdated.get(facts.table)
        if facts is None or shown is None:
            return conflict
        advice = f"A DataFrame shows version {shown} of {facts.table}: read the table again."
        conflict.evidence = replace(facts, retry=False, advice=advice)
        told = str(conflict).replace("plain retry can succeed", "plain retry cannot succeed")
        conflict.args = (told.replace(facts.advice, advice),)
        return conflict

    def _base_of(self, handle: Handle) -> Snapshot | None:
        """The table at the transaction's instant; where there is none as it is now.

        Raises UnsupportedFeature for an open table of a catalog that isn't asked.
        """
        if handle.entry is None:
            latest = handle.log.latest_or_none()
            if latest is not None and is_open(latest.protocol):
                raise unasked(latest)
            return latest
        if not self.engine.catalog.is_lake:  # another system's, which has no instants
            return None if handle.is_new else handle.log.latest_or_none()
        if self._sequence is None:
            catalog = self.engine.catalog.of_lake()
            if self._is_known and self.explicit:
                self._sequence = catalog.transactions.pin(self.id)
            else:
                self._sequence = catalog.ledger.sequence()
        if handle.is_new:
            return None
        return handle.log.at_sequence(self._sequence, self._versions.get(handle.entry.id))

    def _database_of(self, handle: Handle) -> DatabaseEntry | None:
        entry = handle.entry
        if entry is None or not self.engine.catalog.is_lake:
            return None
        if entry.database not in self._databases:
            self._databases[entry.database] = self.engine.catalog.database(entry.database)
        return self._databases[entry.database]

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
            table.read(
                read.predicate,
                read.text,
                files=read.files,
                kind=read.kind,
                deletes_all=read.deletes_all,
                condition=read.condition,
            )
        for domain in change.read_domains:
            table.read_domain(domain)
        if not change.actions:
            return
        self._require_writable(handle, change.operation)
        table.stage(
            change.actions,
            operation=change.operation,
            parameters=change.parameters,
            metrics=change.metrics,
            identity_marks=change.identity_marks,
            origins=change.origins,
            brings_back=change.brings_back,
            unmaps=change.unmaps,
        )

    def require_writes(self, handle: Handle, operation: str = "a change of rows") -> None:
        """Raises InvalidRequest in a read-only transaction."""
        if self.read_only:
            raise InvalidRequest(
                f"{handle.name}: {operation} in a read-only transaction; begin one that may write"
            )

    def _require_writable(self, handle: Handle, operation: str) -> None:
        """Raises InvalidRequest where the write can't be part of this transaction."""
        self.require_writes(handle, operation)
        others = [self._handles[key] for key, _ in self._written() if key != handle.key]
        if others and not all(other.in_lake for other in (handle, *others)):
            raise _not_alone(others[0].name, handle.name)
        if not handle.in_lake and self._names.changes:
            raise _not_alone("the lake's names", handle.name)

    def _written(self) -> Iterator[tuple[str, TableTransaction]]:
        return ((key, table) for key, table in self._tables.items() if table.has_changes)

    def discard(self, handle: Handle) -> None:
        """Takes back what was staged on a table, which is dropped; its log may be damaged."""
        self.require_active()
        staged = self._tables.get(handle.key)
        if staged is not None:
            staged.take_back()

    def forget(self, handle: Handle) -> None:
        """Takes a path table out of the transaction: it is read as a table of the lake next."""
        self._tables.pop(handle.key, None)
        self._handles.pop(handle.key, None)

    # Names

    def change_name(
        self, change: NameChange, meanings: dict[tuple[str, str], Handle | None]
    ) -> None:
        """Adds, drops or renames a table of the lake; `meanings`: what names are from here on.

        Raises InvalidRequest in a read-only transaction.
        """
        if self.read_only:
            raise InvalidRequest("tables can't be named or dropped in a read-only transaction")
        for key, _ in self._written():
            if not self._handles[key].in_lake:
                raise _not_alone(self._handles[key].name, "the lake's names")
        self._names = self._names.then(change, meanings)

    def knows(self, name: tuple[str, str]) -> bool:
        """Whether the transaction itself gave or took this name."""
        return _folded(name) in self._names.meanings

    def named(self, name: tuple[str, str]) -> Handle | None:
        """What a name that it knows means."""
        return self._names.meanings[_folded(name)]

    def names_in(self, database: str) -> dict[str, Handle | None]:
        """What it gave and took in a database, by name in lower case."""
        meanings = self._names.meanings.items()
        return {name: handle for (owner, name), handle in meanings if owner == database.lower()}

    def after_commit(self, effect: Callable[[], None]) -> None:
        """What is done once the commit stands: folders removed, caches forgotten."""
        self._effects.append(effect)

    def before_commit(self, work: Callable[[], None]) -> None:
        """What is done when the commit is asked for, by whomever; it may stage more."""
        self._preparations.append(work)

    def changed_names(self) -> list[str]:
        """The names of the tables that something was staged on, whatever became of it."""
        return sorted(self._handles[key].name for key, _ in self._written())

    def changed(self) -> list[Handle]:
        """The tables that something was staged on."""
        return [self._handles[key] for key, _ in self._written()]

    # Savepoints

    def savepoint(self, name: str) -> None:
        """Marks this moment; a name used again marks a new one."""
        self.require_active()
        tokens = {key: table.savepoint() for key, table in self._tables.items()}
        self._marks.append(_Mark(name, tokens, len(self._effects), self._names))

    def rollback_to(self, name: str) -> None:
        """Undoes what was staged since the savepoint; what was read counts as a SELECT's rows."""
        self.require_active()
        place = self._place_of(name)
        mark = self._marks[place]
        self.undone += 1
        for key, table in self._tables.items():
            table.rollback_to(mark.tokens.get(key))
        del self._effects[mark.effects :]
        self._names = mark.names
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

    # The end

    def commit(self) -> None:
        """Makes the changes visible at one instant, all or nothing.

        The commits' `userMetadata` is the transaction's own; without one, what the Spark session's
        `spark.databricks.delta.commitInfo.userMetadata` says now, as in Delta Spark.

        Raises a Conflict when a concurrent transaction stands in the way; the transaction is then
        rolled back. After an OutcomeUnknown, or when Python was stopped in the middle, it is
        unknown whether it was. After a CorruptTable that says so it is committed, and can't be
        published: another writer's file is at its version.
        """
        self.require_active()
        self._tell_changes()
        try:
            for work in self._preparations:
                work()
        except BaseException as error:
            self.fail(error)
            raise
        try:
            # Ctrl-C may come at any instant, before the commit point or after it.
            self.state = State.UNKNOWN
            with span("commit", transaction=self.id), timed("txlake.commit.duration"):
                committed = self._commit()
            occupied = None if committed is None else committed.occupied
            is_doubtful = occupied is not None and occupied.by_txlake
            self.state = State.UNKNOWN if is_doubtful else State.COMMITTED
        except BaseException as error:
            is_open = isinstance(error, OutcomeUnknown) or not isinstance(error, Exception)
            if isinstance(error, Conflict):
                self._told(error)
            if not is_open:
                self.state = State.ROLLED_BACK
            self._fail_as(self.state, error)
            raise
        self._end(self.state)
        count("txlake.commits")
        if is_doubtful:
            raise CorruptTable(
                f"transaction {self.id} was ratified by a catalog that isn't up to date, and may "
                f"not stand: {occupied}. Look at its tables then, before you run it again"
            ) from occupied
        for effect in self._effects:
            effect()
        if occupied is not None:
            raise CorruptTable(
                f"transaction {self.id} is committed, and isn't to be run again; it can't be "
                f"published yet: {occupied}"
            ) from occupied

    def _tell_changes(self) -> None:
        """Writes the change data files that the commit needs; rolled back when that fails."""
        try:
            for key, table in self._written():
                handle = self._handles[key]
                write_changes(table, partial(self.engine.work, handle, system=self.staging))
        except BaseException as error:
            self._fail_as(State.ROLLED_BACK, error)
            raise

    def _commit(self) -> CommittedTogether | None:
        """What the lake ratified; None where nothing had to be."""
        written = dict(self._written())
        if not written and not self._names.changes:
            self.require_unkilled()
            return None
        told = self.user_metadata or self.engine.plane.setting(_USER_METADATA, "") or None
        if not is_described(self.engine):
            told = None
            for table in written.values():
                table.describe_less()
        paths = [key for key in written if not self._handles[key].in_lake]
        beside = {key: table.beside for key, table in self._tables.items()}
        proposed = partial(self._proposal, beside=tuple(beside.values()), user_metadata=told)
        for key, table in self._tables.items():
            if key not in written and (paths or not self._handles[key].in_lake):
                check_reads(table.log, proposed(key))
        if paths:
            [key] = paths
            self.require_alive()
            written[key].read_elsewhere(one for url, one in beside.items() if url != key)
            written[key].commit(user_metadata=told, probe=self._probe(key))
            return None
        catalog = self.engine.catalog
        self.make_known()
        gone = {one.id for one in self._names.changes if isinstance(one, DroppedTable)}
        parts = [
            Part(table.log, proposed(key))
            for key, table in self._tables.items()
            if self._handles[key].in_lake and (key in written or key not in gone)
        ]
        committed = commit_together(
            catalog.ledger,
            parts,
            transaction_id=self.id,
            names=self._names.changes,
            system=self.engine.system,
            settings=self.engine.settings,
        )
        if committed.sequence is not None:
            self._forget_entry()  # which ended with the ratification
            catalog.locks.forget_owner(self.id)
        return committed

    def commit_foreign(
        self,
        asked: Sequence[tuple[Handle, Staged]],
        unchanged: Mapping[str, int],
        *,
        bytes_max: int,
    ) -> Sequence[Accepted | Resent] | Stopped:
        """Makes what another engine staged for open tables their next versions, and ends with that.

        Raises as `foreign_commit.commit_foreign_together`.
        """
        self.require_active()
        self.make_known()
        self.state = State.UNKNOWN
        try:
            outcome = commit_foreign_together(
                [Request(handle.log, staged) for handle, staged in asked],
                unchanged,
                transaction_id=self.id,
                bytes_max=bytes_max,
            )
        except OutcomeUnknown:
            raise
        except Exception:
            self.state = State.ROLLED_BACK
            raise
        if not isinstance(outcome, Stopped) and isinstance(outcome[0], Accepted):
            self._forget_entry()
            self.engine.catalog.locks.forget_owner(self.id)
            self.state = State.COMMITTED
        else:
            self._end(State.ROLLED_BACK)
        return outcome

    def require_unkilled(self) -> None:
        """Raises Unavailable when somebody killed it; asked where nothing else asks the catalog."""
        if self._is_known and self.explicit:
            self.engine.catalog.transactions.require_unkilled(self.id)

    def require_alive(self) -> None:
        """Raises Unavailable when somebody else ended it: VACUUM may have taken its files.

        Asked where no ratification does: a path table's commit, and a file that isn't there.
        """
        if self._is_known:
            self.engine.catalog.transactions.require_open(self.id)

    def _proposal(
        self, key: str, *, beside: Collection[Beside], user_metadata: str | None
    ) -> Proposal:
        return self._tables[key].proposal(
            txn_id=self.id,
            beside=beside,
            names_change=bool(self._names.changes),
            names_go=not all(isinstance(one, NewTable) for one in self._names.changes),
            user_metadata=user_metadata,
            probe=self._probe(key),
        )

    def _probe(self, key: str) -> SparkProbe:
        work = partial(self._work_on, self._handles[key], self._tables[key].base)
        return SparkProbe(work, self.engine.plane.active)

    def _work_on(self, handle: Handle, base: Snapshot) -> TableData | None:
        """The table as it was read; None where that would start Spark."""
        return self.engine.work(handle, base) if self.engine.plane.is_started else None

    def rollback(self) -> None:
        """Forgets everything; files already written are orphans for VACUUM."""
        if self.state in {State.ACTIVE, State.FAILED}:
            self._end(State.ROLLED_BACK)
        elif self._is_known:  # its end was interrupted
            self._end(self.state)

    def _end(self, state: State) -> None:
        self.state = state
        if self.explicit and state in {State.ROLLED_BACK, State.FAILED}:
            self.engine.note_undone(self.id)
        catalog = self.engine.catalog
        if not self._is_known or self.engine.is_closed:
            return  # closing the lake ended it in the catalog
        if self.engine.is_forked:
            return  # the process that began it ends it
        catalog.transactions.abandon(self.id)  # which holds, whatever comes from here on
        try:
            catalog.transactions.end(self.id)
            catalog.locks.forget_owner(self.id)
        except TxlakeError as error:
            _logger.warning("transaction %s: its locks end later: %s", self.id, error)
        self._is_known = False

    def _forget_entry(self) -> None:
        """It has none in the catalog any more."""
        self._is_known = False
        self.engine.catalog.transactions.forget(self.id)

    def _note(self, error: BaseException) -> None:
        """Enters a conflict into the lake's list of them."""
        if isinstance(error, Conflict):
            facts = error.evidence
            if facts is not None:
                facts = error.evidence = replace(facts, operation=self._operation_on(facts.table))
            count(
                "txlake.conflicts",
                error=type(error).__name__,
                rule=None if facts is None else facts.rule,
                table=None if facts is None else facts.table,
            )
            # While the catalog knows it: its number and when it began are noted too.
            self.engine.catalog.journal.record(self.id, self.session_number(), error)

    def _operation_on(self, name: str) -> str | None:
        """What the transaction does to the table of that name, as its history would say it."""
        found = (self._tables[key] for key, one in self._handles.items() if one.name == name)
        return next((one.operation for one in found), None)

    def _fail_as(self, state: State, error: BaseException) -> None:
        self.state = state
        try:
            self._note(error)
        finally:
            self._end(state)

    def fail(self, cause: BaseException) -> None:
        """A statement failed: nothing of the transaction will be committed."""
        if self.state is State.ACTIVE:
            first_line, _, _ = str(cause).partition("\n")
            name = type(cause).__name__
            self.cause = f"{name}: {first_line:.200}" if first_line else name
            self._fail_as(State.FAILED, cause)


def _not_alone(first: str, second: str) -> InvalidRequest:
    return InvalidRequest(
        f"this transaction would write {first} and {second}: a table named by its place is "
        "committed alone; attach it to the lake (lake.attach), or commit them one after the other"
    )


def _folded(name: tuple[str, str]) -> tuple[str, str]:
    return (name[0].lower(), name[1].lower())
