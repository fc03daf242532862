"""A transaction of a session: its state, its savepoints, its commit.

The tables that it has opened are `opened_tables`, its changes of names `name_changes`.
`commit.lake_commit` commits tables of a lake, `commit.table_transaction` a path table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from txlake.catalog.admission import Admission, RequiredLocks, StatementTransaction
from txlake.catalog.lookup import LookupRequest
from txlake.commit.change import Change
from txlake.commit.commit_loop import CommittedTogether
from txlake.commit.foreign_commit import (
    Accepted,
    AlreadyCommitted,
    CommitRequest,
    Rejected,
    StagedFile,
    commit_foreign_together,
)
from txlake.commit.identities import CatalogIdentities, Identities, LazyIdentities
from txlake.commit.lake_commit import Part, commit_together
from txlake.commit.rebase import Proposal, check_reads
from txlake.commit.staging import StagingSystem
from txlake.commit.table_transaction import PartSummary, TableSavepoint, TableTransaction
from txlake.conflict.context import RowProbe
from txlake.conflict.footprint import Read
from txlake.conflict.levels import Level
from txlake.errors import Conflict, CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.ports import DroppedTable, NameChange, NewTable, System
from txlake.session.change_files import write_changes
from txlake.session.commit_description import is_described
from txlake.session.engine import Engine, Handle
from txlake.session.name_changes import NameChanges
from txlake.session.opened_tables import OpenedTables
from txlake.telemetry import count, span, timed

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
class _Savepoint:
    """What `rollback_to` restores: the tables' staged changes, the names, the effects' number."""

    name: str
    tokens: Mapping[str, TableSavepoint]
    effects: int
    names: NameChanges


@dataclass(kw_only=True)
class Transaction:
    """What is read and staged between BEGIN and COMMIT; used by one thread at a time.

    Attributes:
        id: a UUID.
        session_number: returns the number of its session in the catalog, which gets one on first
            use.
        level: the isolation level that it requests; None leaves it to the tables.
        explicit: whether a user began it; autocommit statements have transactions of their own.
        begin_ms: when it began, milliseconds since the epoch.
        undone: how often it was rolled back to a savepoint.
        tables: the tables that it has opened.
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
    tables: OpenedTables = field(init=False)
    _is_known: bool = False
    _savepoints: list[_Savepoint] = field(default_factory=list)
    _effects: list[Callable[[], None]] = field(default_factory=list)
    _preparations: list[Callable[[], None]] = field(default_factory=list)
    _names: NameChanges = field(default_factory=NameChanges)

    def __post_init__(self) -> None:
        self.begin_ms = self.engine.system.now_ms()
        self.tables = OpenedTables(engine=self.engine, level=self.level)
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
        return StagingSystem(self.engine.system, self.id)

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
            sequence=self.tables.instant,
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

    def _pin_instant(self, handle: Handle) -> None:
        """Fix the instant that the transaction reads, if it needs one to open the table."""
        if not self.tables.needs_instant(handle):
            return
        catalog = self.engine.catalog.of_lake()
        if self._is_known and self.explicit:
            self.tables.instant = catalog.transactions.pin(self.id)
        else:
            self.tables.instant = catalog.ledger.sequence()

    def set_level(self, level: Level | None) -> None:
        """From here on the transaction asks for this level, which is no looser than its own."""
        if level is None or level is self.level:
            return
        self.level = level
        self.tables.raise_level(level)
        if self._is_known:
            self.engine.catalog.transactions.set_isolation(self.id, level.value)

    def ends_in_this_thread(self) -> None:
        """Says that the calling thread ends it, so that it can't wait for the transaction."""
        self.engine.catalog.locks.set_ending_thread(self.id)

    @property
    def sequence(self) -> int | None:
        """The instant of the lake that it reads; None until it uses a table of the lake."""
        return self.tables.instant

    @property
    def versions_read(self) -> Mapping[str, int]:
        """By name, the version of each table that it has opened; -1 of one that it creates."""
        return self.tables.versions

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
        """Return the transaction's part on a table; the first call fixes the table's snapshot."""
        self.require_active()
        self._pin_instant(handle)
        return self.tables.open(handle)

    def identities(self, handle: Handle) -> Identities:
        """Return the source of the values of a table's identity columns.

        The values of a table that the transaction itself creates or replaces are its own.
        """
        return LazyIdentities(lambda table_id: self._identities(handle, table_id))

    def _identities(self, handle: Handle, table_id: str) -> Identities:
        part = self.open(handle)
        current_id = part.base.metadata.id if part.base.has_metadata else None
        catalog = self.engine.catalog
        if handle.entry is None or not catalog.is_lake or current_id != table_id:
            return part.drawn
        return CatalogIdentities(catalog.of_lake().identities, handle.entry.id)

    def read_frame(self, handle: Handle, shown: Snapshot, read: Read) -> None:
        """Count the rows of a DataFrame, which shows a version of a table, as read.

        Raises a Conflict when the table has other rows in the transaction.
        """
        self.require_active()
        self._pin_instant(handle)
        self.tables.read_frame(handle, shown, read)

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
        others = [other for other, _ in self.tables.written() if other.key != handle.key]
        if others and not all(other.in_lake for other in (handle, *others)):
            raise _not_alone(others[0].name, handle.name)
        if not handle.in_lake and self._names.changes:
            raise _not_alone("the lake's names", handle.name)

    def discard(self, handle: Handle) -> None:
        """Drop the staged changes of a table that is dropped; its log may be damaged."""
        self.require_active()
        part = self.tables.get(handle)
        if part is not None:
            part.discard_staged()

    # Names

    def change_name(
        self, change: NameChange, meanings: dict[tuple[str, str], Handle | None]
    ) -> None:
        """Create, drop or rename a table of the lake, after which names have these meanings.

        Raises InvalidRequest in a read-only transaction.
        """
        if self.read_only:
            raise InvalidRequest("tables can't be named or dropped in a read-only transaction")
        for handle, _ in self.tables.written():
            if not handle.in_lake:
                raise _not_alone(handle.name, "the lake's names")
        self._names = self._names.then(change, meanings)

    @property
    def names(self) -> NameChanges:
        """The names that the transaction itself changed."""
        return self._names

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Run this once the commit stands: remove folders, clear caches."""
        self._effects.append(effect)

    def before_commit(self, work: Callable[[], None]) -> None:
        """Run this when the commit is requested; it may stage more."""
        self._preparations.append(work)

    def changed(self) -> list[Handle]:
        """Return the tables on which changes are staged."""
        return [handle for handle, _ in self.tables.written()]

    def changed_names(self) -> list[str]:
        """Return the names of the tables on which changes are staged, also after the end."""
        return sorted(handle.name for handle in self.changed())

    # Savepoints

    def savepoint(self, name: str) -> None:
        """Set a savepoint; a name that is used again hides the earlier savepoint."""
        self.require_active()
        tokens = self.tables.savepoint()
        self._savepoints.append(_Savepoint(name, tokens, len(self._effects), self._names))

    def rollback_to(self, name: str) -> None:
        """Undo what was staged since a savepoint; what was read counts as rows of a SELECT."""
        self.require_active()
        place = self._place_of(name)
        savepoint = self._savepoints[place]
        self.undone += 1
        self.tables.rollback_to(savepoint.tokens)
        del self._effects[savepoint.effects :]
        self._names = savepoint.names
        del self._savepoints[place + 1 :]

    def release(self, name: str) -> None:
        """Forget a savepoint and the later ones."""
        self.require_active()
        del self._savepoints[self._place_of(name) :]

    def _place_of(self, name: str) -> int:
        for place in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[place].name.lower() == name.lower():
                return place
        names = ", ".join(savepoint.name for savepoint in self._savepoints) or "none"
        raise InvalidRequest(f"there is no savepoint {name!r}; there are: {names}")

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
                self.tables.explain_outdated(error)
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
            for handle, table in self.tables.written():
                write_changes(table, partial(self.engine.work, handle, system=self.staging))
        except BaseException as error:
            self._fail_as(State.ROLLED_BACK, error)
            raise

    def _commit(self) -> CommittedTogether | None:
        """Commit the changes; return what the lake ratified, None if it had nothing to ratify."""
        written = {handle.key for handle, _ in self.tables.written()}
        if not written and not self._names.changes:
            self.require_unkilled()
            return None
        metadata = self.user_metadata or self.engine.plane.setting(_USER_METADATA, "") or None
        if not is_described(self.engine):
            metadata = None
            for _, part in self.tables.written():
                part.omit_statement_details()
        summaries = {handle.key: part.part_summary for handle, part in self.tables}
        proposed = partial(self._proposal, parts=tuple(summaries.values()), user_metadata=metadata)
        path_tables = [(table, part) for table, part in self.tables.written() if not table.in_lake]
        for handle, part in self.tables:
            if handle.key not in written and (path_tables or not handle.in_lake):
                check_reads(part.log, proposed(handle, part))
        if path_tables:
            [(handle, part)] = path_tables
            self.require_alive()
            part.read_elsewhere(other for key, other in summaries.items() if key != handle.key)
            part.commit(user_metadata=metadata, probe=self._probe(handle, part))
            return None
        catalog = self.engine.catalog
        self.make_known()
        dropped = {change.id for change in self._names.changes if isinstance(change, DroppedTable)}
        parts = [
            Part(part.log, proposed(handle, part))
            for handle, part in self.tables
            if handle.in_lake and (handle.key in written or handle.key not in dropped)
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
        asked: Sequence[tuple[Handle, StagedFile]],
        unchanged: Mapping[str, int],
        *,
        bytes_max: int,
    ) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
        """Makes what another engine staged for open tables their next versions, and ends with that.

        Raises as `foreign_commit.commit_foreign_together`.
        """
        self.require_active()
        self.make_known()
        self.state = State.UNKNOWN
        try:
            outcome = commit_foreign_together(
                [CommitRequest(handle.log, staged) for handle, staged in asked],
                unchanged,
                transaction_id=self.id,
                bytes_max=bytes_max,
            )
        except OutcomeUnknown:
            raise
        except Exception:
            self.state = State.ROLLED_BACK
            raise
        if not isinstance(outcome, Rejected) and isinstance(outcome[0], Accepted):
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
        self,
        handle: Handle,
        part: TableTransaction,
        *,
        parts: Collection[PartSummary],
        user_metadata: str | None,
    ) -> Proposal:
        changes = self._names.changes
        return part.proposal(
            txn_id=self.id,
            parts=parts,
            changes_names=bool(changes),
            drops_names=not all(isinstance(change, NewTable) for change in changes),
            user_metadata=user_metadata,
            probe=self._probe(handle, part),
        )

    def _probe(self, handle: Handle, part: TableTransaction) -> RowProbe:
        return self.engine.plane.row_probe(partial(self.engine.work, handle, part.base))

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
        operations = (part.operation for handle, part in self.tables if handle.name == name)
        return next(operations, None)

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
