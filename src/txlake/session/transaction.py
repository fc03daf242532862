"""A transaction of a session: its state, its savepoints, its commit.

The tables that it has opened are `opened_tables`, its changes of names `name_changes`.
`commit.lake_commit` commits tables of a lake, `commit.table_transaction` a path table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import islice

from txlake.catalog.views import ViewEntry
from txlake.commit.branch_store import fork_version
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
from txlake.commit.parallel import is_far
from txlake.commit.part_states import PartSummaries
from txlake.commit.rebase import Proposal, check_now, check_reads
from txlake.commit.row_tracking import first_in, reserve_ids
from txlake.commit.staging import StagingSystem
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.context import RowProbe
from txlake.conflict.footprint import Read
from txlake.conflict.levels import Level
from txlake.datafiles.files import DeferredUploads, deferring_uploads
from txlake.errors import (
    Conflict,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import DroppedTable, NameChange, NewTable, Ratification, System, ViewChange
from txlake.session.branch_use import require_branch_open
from txlake.session.change_files import write_changes
from txlake.session.commit_description import is_described, user_metadata
from txlake.session.engine import Engine, Handle
from txlake.session.lineage import (
    WRITES_MAX,
    Reading,
    TransactionFacts,
    emitter_of,
    facts_of,
)
from txlake.session.name_changes import NameChanges, QualifiedName
from txlake.session.opened_tables import OpenedTables
from txlake.session.registration import Registration
from txlake.session.savepoints import Savepoint, Savepoints, Writes
from txlake.sql.statements import Statement
from txlake.telemetry import count, span, timed

_logger = logging.getLogger(__name__)


class State(Enum):
    """The states of a transaction."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(kw_only=True)
class Transaction:
    """Reads and staged changes between BEGIN and COMMIT; used by one thread at a time.

    Attributes:
        id: a UUID.
        session_number: returns the number of its session in the catalog, which gets one on first
            use.
        level: the isolation level that it requests; None leaves it to the tables.
        explicit: whether a user began it; autocommit statements have transactions of their own.
        begin_ms: when it began, milliseconds since the epoch.
        undone: how often it was rolled back to a savepoint.
        first_statement: the one that it began with; None before it, and of an autocommit statement.
        note_identity: is called with the last value that a statement generated in the first
            identity column.
        note_conflict: is called with each conflict that the transaction meets.
        tables: the tables that it has opened.
        registration: its entry in the catalog.
        writes: by the keys of their tables, in order, the writes of statements, each with what
            reads of which columns it made others; empty unless lineage is told.
        follow_up: what is done after its commit, which is told whatever comes of that.
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
    follow_up: Callable[[Transaction], None] | None = None
    undone: int = 0
    writes: Writes = ()
    first_statement: Statement | None = None
    note_identity: Callable[[int], None] = lambda _: None
    note_conflict: Callable[[Transaction, Conflict], None] = lambda _transaction, _conflict: None
    tables: OpenedTables = field(init=False)
    registration: Registration = field(init=False)
    _uploads: DeferredUploads = field(default_factory=DeferredUploads)
    _savepoints: Savepoints = field(default_factory=Savepoints)
    _effects: list[Callable[[], None]] = field(default_factory=list)
    _preparations: list[Callable[[], None]] = field(default_factory=list)
    _names: NameChanges = field(default_factory=NameChanges)
    # By the key of a table's handle.
    _versions_made: dict[str, int] = field(default_factory=dict)
    _is_reported: bool = False

    def __post_init__(self) -> None:
        self.begin_ms = self.engine.system.now_ms()
        self.tables = OpenedTables(engine=self.engine, level=self.level)
        self.registration = Registration(self)
        if self.explicit:
            self.registration.announce()

    @contextmanager
    def writing_files(self, *, appends: bool) -> Iterator[None]:
        """Let the files of a statement that only appends go out while the next statements come;
        others wait for the files of earlier statements first, which they may read.
        """
        if appends:
            with deferring_uploads(self._uploads):
                yield
        else:
            self._uploads.wait()
            yield

    @property
    def staging(self) -> System:
        """The clock, and ids for new files that name the transaction."""
        return StagingSystem(self.engine.system, self.id)

    def _pin_instant(self, handle: Handle) -> None:
        """Fix the instant that the transaction reads, if it needs one to open the table."""
        if self.tables.needs_instant(handle):
            self.tables.instant = self.registration.instant()

    def set_level(self, level: Level | None) -> None:
        """Set the isolation level, which has to be at least as strict as before; ignore None.

        It holds for the tables that are open too, and is shown in the catalog.
        """
        if level is None or level is self.level:
            return
        self.level = level
        self.tables.raise_level(level)
        self.registration.show_level()

    @property
    def sequence(self) -> int | None:
        """The instant that it reads; None until it uses a table of the lake."""
        return self.tables.instant

    @property
    def versions_read(self) -> Mapping[str, int]:
        """The version read of each opened table, by name; -1 for a table that didn't exist."""
        return self.tables.versions

    def require_active(self) -> None:
        """Raise InvalidRequest unless the transaction is active and the lake open."""
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
        """Return the transaction's part on a table; the first call fixes the table's snapshot.

        The first table of a lake also fixes the transaction's instant. Raises InvalidRequest unless
        the transaction is active.
        """
        self.require_active()
        self._pin_instant(handle)
        return self.tables.open(handle)

    def identities(self, handle: Handle) -> Identities:
        """Return the source of the values of a table's identity columns.

        The values of a table that the transaction itself creates or replaces are its own.
        """
        return LazyIdentities(lambda table_id: self._identities(handle, table_id))

    def _identities(self, handle: Handle, table_id: str) -> Identities:
        """Return the source of the identity values of a table as of a metadata id.

        The catalog hands out the values of a table of the lake; a path table's and those of a table
        that the transaction creates or replaces are counted in the transaction's part.
        """
        part = self.open(handle)
        current_id = part.base.metadata.id if part.base.has_metadata else None
        catalog = self.engine.catalog
        if handle.entry is None or not catalog.is_lake or current_id != table_id:
            return part.drawn
        entry = handle.entry
        return CatalogIdentities(catalog.of_lake().identities, entry.root_id or entry.id)

    def read_frame(self, handle: Handle, shown: Snapshot, read: Read) -> None:
        """Record as read the rows of a DataFrame that shows a version of a table.

        Raises a Conflict or InvalidRequest as `OpenedTables.read_frame`.
        """
        self.require_active()
        self._pin_instant(handle)
        self.tables.read_frame(handle, shown, read)

    def begin_at(self, handle: Handle, version: int) -> TableTransaction:
        """Return the part on a table, which reads it at a version that the caller read elsewhere.

        Raises InvalidRequest as `OpenedTables.begin_at`.
        """
        self.require_active()
        self._pin_instant(handle)
        return self.tables.begin_at(handle, version)

    def stage(self, handle: Handle, change: Change) -> None:
        """Record a statement's reads and stage its actions; without actions only the reads.

        Raises InvalidRequest for actions in a read-only transaction, or on a path table together
        with changes of other tables or of the lake's names: a path table is committed alone.
        """
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
        if self.engine.settings.openlineage is not None:
            self.writes = (*self.writes, (handle.key, None))
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
        for mark in islice(change.identity_marks.values(), 1):
            self.note_identity(mark)

    def note_writes(self, before: Writes, reading: Callable[[], Reading | None]) -> None:
        """Note what tells of the columns that a statement wrote, after `before`."""
        new = self.writes[len(before) :]
        if not new or self.writes[: len(before)] != before or len(before) > WRITES_MAX:
            return
        found = reading()
        self.writes = (*before, *((key, found) for key, _ in new))

    def require_writes(self, handle: Handle, operation: str = "a change of rows") -> None:
        """Raise InvalidRequest in a read-only transaction."""
        if self.read_only:
            raise InvalidRequest(
                f"{handle.name}: {operation} in a read-only transaction; begin one that may write"
            )

    def _require_writable(self, handle: Handle, operation: str) -> None:
        """Raise InvalidRequest when the write can't be part of this transaction.

        It is read-only, or would write a path table together with something else.
        """
        self.require_writes(handle, operation)
        written = self.tables.written(outside_lake_only=handle.in_lake)
        other = next((other for other, _ in written if other.key != handle.key), None)
        if other is not None:
            raise _not_alone(other.name, handle.name)
        if not handle.in_lake and self._names.changes:
            raise _not_alone("the lake's names", handle.name)

    def discard(self, handle: Handle) -> None:
        """Drop the staged changes of a table, if it was opened; its log isn't read."""
        self.require_active()
        part = self.tables.get(handle)
        if part is not None:
            part.discard_staged()
            self.writes = tuple(one for one in self.writes if one[0] != handle.key)

    # Names

    def change_name(
        self,
        change: NameChange,
        tables: Mapping[QualifiedName, Handle | None] | None = None,
        views: Mapping[QualifiedName, ViewEntry | None] | None = None,
    ) -> None:
        """Stage the creation, drop or renaming of a table or view of the lake.

        `tables` and `views` are what the changed names mean after it. Raises InvalidRequest in a
        read-only transaction, and in one that writes a path table.
        """
        if self.read_only:
            raise InvalidRequest(
                "tables and views can't be named or dropped in a read-only transaction"
            )
        for handle, _ in self.tables.written():
            if not handle.in_lake:
                raise _not_alone(handle.name, "the lake's names")
        self._names = self._names.then(change, tables=tables, views=views)

    @property
    def names(self) -> NameChanges:
        """The names that the transaction itself changed."""
        return self._names

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Run a function after a successful commit, in the order of the calls.

        ROLLBACK TO a savepoint removes those that were added later.
        """
        self._effects.append(effect)

    def before_commit(self, work: Callable[[], None]) -> None:
        """Run a function when the commit begins; it may stage further actions.

        It runs after the change data files are written, so that it can't change rows. An error in
        it fails the transaction.
        """
        self._preparations.append(work)

    def changed(self) -> list[Handle]:
        """Return the tables on which changes are staged."""
        return [handle for handle, _ in self.tables.written()]

    def changed_names(self) -> list[str]:
        """Return the names of the tables on which changes are staged, also after the end."""
        return sorted(handle.name for handle in self.changed())

    # Savepoints

    def savepoint(self, name: str) -> None:
        """Set a savepoint; a name that is used again hides the earlier savepoint.

        Raises InvalidRequest unless the transaction is active.
        """
        self.require_active()
        tables = self.tables.savepoint()
        self._savepoints.add(Savepoint(name, tables, len(self._effects), self._names, self.writes))

    def rollback_to(self, name: str) -> None:
        """Undo the changes of tables and names that were staged since a savepoint, which stays.

        What was read since then counts only as plain reads, like rows of a SELECT. Raises
        InvalidRequest if there is no such savepoint or the transaction isn't active.
        """
        self.require_active()
        savepoint = self._savepoints.restore(name)
        self.undone += 1
        self.tables.rollback_to(savepoint.tables)
        del self._effects[savepoint.effects :]
        self._names = savepoint.names
        self.writes = savepoint.writes

    def release(self, name: str) -> None:
        """Forget a savepoint and the later ones; the changes stay.

        Raises InvalidRequest if there is no such savepoint or the transaction isn't active.
        """
        self.require_active()
        self._savepoints.release(name)

    # The end

    def commit(self) -> None:
        """Make the changes visible at one instant, all or none.

        The commits' `userMetadata` is the transaction's own; without one, the Spark session's
        present `spark.databricks.delta.commitInfo.userMetadata`, as in Delta Spark.

        Raises:
            InvalidRequest: the transaction isn't active.
            Conflict: a concurrent transaction conflicts; this one is rolled back.
            OutcomeUnknown: it may be committed. So it may after a KeyboardInterrupt.
            CorruptTable: the message says whether it is committed, and can't be published because
                another writer's file has its version, or may not stand, because the catalog that
                ratified it isn't up to date. Without either it is rolled back.

        Any other error during the commit has rolled it back.
        """
        self.require_active()
        self._write_change_files()
        try:
            self._look_at_ends()
            self._uploads.wait()
            self.tables.check_reads()
            for work in self._preparations:
                work()
        except BaseException as error:
            cause = self._cause_of(error)
            self.fail(cause)
            if cause is not error:
                raise cause from error
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
            cause = self._cause_of(error)
            self._fail_as(self.state, cause)
            if cause is not error:
                raise cause from error
            raise
        self._end(self.state)
        self._report(None)
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
        if self.follow_up is not None:
            self.follow_up(self)

    def _cause_of(self, error: BaseException) -> BaseException:
        """Return the error; for a CorruptTable that another session's VACUUM explains, which has
        ended the transaction or didn't know of it, the error that says so. So for an error that the
        end of the branch explains.
        """
        try:
            if isinstance(error, CorruptTable):
                self.registration.require_open()
            if isinstance(error, CorruptTable | InvalidRequest):
                require_branch_open(self.engine, error)
        except (Unavailable, InvalidRequest) as gone:
            return gone
        return error

    def _look_at_ends(self) -> None:
        """Begin the requests by which the commit finds where the logs end, in far stores."""
        for handle, part in self.tables.written():
            if handle.in_lake and is_far(handle.store):
                version = max(part.base.version, handle.log.newest_known)
                for each in range(max(version, 0), version + 2):
                    handle.log.look_for(each)

    def _write_change_files(self) -> None:
        """Write the change data files that the commit needs; roll back if that fails."""
        try:
            for handle, table in self.tables.written():
                write_changes(table, partial(self.engine.work, handle, system=self.staging))
        except BaseException as error:
            cause = self._cause_of(error)
            self._fail_as(State.ROLLED_BACK, cause)
            if cause is not error:
                raise cause from error
            raise

    def _commit(self) -> CommittedTogether | None:
        """Commit the changes; return what the lake ratified, None if it had nothing to ratify.

        That is the case without changes, and for a path table, which is committed by its own log.
        """
        written = {handle.key for handle, _ in self.tables.written()}
        if not written and not self._names.changes:
            self.registration.require_unkilled()
            return None
        metadata = user_metadata(self.engine, self.user_metadata)
        if not is_described(self.engine):
            metadata = None
            for _, part in self.tables.written():
                part.omit_statement_details()
        summaries = PartSummaries(part.part_summary for _, part in self.tables)
        proposed = partial(self._proposal, parts=summaries, user_metadata=metadata)
        path_tables = [(table, part) for table, part in self.tables.written() if not table.in_lake]
        for handle, part in self.tables:
            if handle.key not in written and (path_tables or not handle.in_lake):
                check_reads(part.log, proposed(handle, part))
        if path_tables:
            [(handle, part)] = path_tables
            self.registration.require_open()
            if handle.branch is not None and part.needs_row_ids:
                part.row_ids = replace(part.row_ids, first=_first_row_id(handle))
            part.read_elsewhere(summaries)
            made = part.commit(user_metadata=metadata, probe=self._probe(handle, part))
            self._versions_made[handle.key] = made.version
            return None
        catalog = self.engine.catalog
        if not self.registration.is_deferred:
            self.registration.make()
        self._reserve_row_ids()
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
            keeps_reads=self.engine.branch is not None,
            system=self.engine.system,
            settings=self.engine.settings,
        )
        if committed.sequence is not None:
            self.registration.forget()
        made_versions = {
            key: committed.tables[key].version for key in written & set(committed.tables)
        }
        self._versions_made.update(made_versions)
        return committed

    def _reserve_row_ids(self) -> None:
        """Reserve a block of row ids for each table that gets some from a commit on a branch.

        Raises UnsupportedFeature if a table has no more blocks, and what the catalog raises.
        """
        for handle, part in self.tables.written():
            entry = handle.entry
            is_forked = fork_version(handle.store) is not None
            if entry is None or not is_forked or not part.needs_row_ids:
                continue
            book, table_id = self.engine.catalog.of_lake().identities, entry.root_id or entry.id
            mark = part.base.row_id_high_water_mark
            part.row_ids = replace(
                part.row_ids, first=reserve_ids(book, table_id, mark, handle.name)
            )

    def name_refusal(self) -> TxlakeError | None:
        """Return what the catalog would refuse the changes of names with now; None if nothing.

        Of a lake's transaction that has changes of names.
        """
        if not self.registration.is_deferred:
            self.registration.make()
        changes = self._names.changes
        request = Ratification(transaction_id=self.id, commits=(), unchanged={}, names=changes)
        return self.engine.catalog.of_lake().ledger.refusal_of(request)

    def conflicts_now(self) -> list[tuple[Handle, TableTransaction, Conflict | None]]:
        """Return what the commit of each table would meet now: a conflict, or None.

        The transaction can't be committed after this.
        """
        summaries = PartSummaries(part.part_summary for _, part in self.tables)
        found: list[tuple[Handle, TableTransaction, Conflict | None]] = []
        for handle, part in self.tables:
            try:
                check_now(
                    part.log, self._proposal(handle, part, parts=summaries, user_metadata=None)
                )
            except Conflict as conflict:
                found.append((handle, part, conflict))
            else:
                found.append((handle, part, None))
        return found

    def commit_foreign(
        self,
        staged_files: Sequence[tuple[Handle, StagedFile]],
        unchanged: Mapping[str, int],
        *,
        group_id: str | None,
        bytes_max: int,
    ) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
        """Commit files that another engine staged as the next versions of tables, and end.

        `unchanged` are the versions, by table id, that other tables must still have; `group_id` is
        the engine's own transaction, None unless it names one. Returns an
        outcome for each file, or the reason why none was committed. Raises as
        `foreign_commit.commit_foreign_together`; after OutcomeUnknown the state is unknown.
        """
        self.require_active()
        self.registration.make()
        self.state = State.UNKNOWN
        try:
            outcome = commit_foreign_together(
                [CommitRequest(handle.log, staged) for handle, staged in staged_files],
                unchanged,
                transaction_id=self.id,
                group_id=group_id,
                bytes_max=bytes_max,
            )
        except OutcomeUnknown:
            raise
        except Exception:
            self.state = State.ROLLED_BACK
            raise
        if not isinstance(outcome, Rejected) and isinstance(outcome[0], Accepted):
            self.registration.forget()
            self.state = State.COMMITTED
        else:
            self._end(State.ROLLED_BACK)
        return outcome

    def _proposal(
        self,
        handle: Handle,
        part: TableTransaction,
        *,
        parts: PartSummaries,
        user_metadata: str | None,
    ) -> Proposal:
        """Return the proposed commit of one table; `parts` are the summaries of all tables."""
        changes = self._names.changes
        return part.proposal(
            txn_id=self.id,
            parts=parts,
            changes_names=bool(changes),
            drops_names=not all(isinstance(change, NewTable | ViewChange) for change in changes),
            user_metadata=user_metadata,
            probe=self._probe(handle, part),
        )

    def _probe(self, handle: Handle, part: TableTransaction) -> RowProbe:
        return self.engine.plane.row_probe(partial(self.engine.work, handle, part.base))

    def rollback(self) -> None:
        """Undo all changes; VACUUM removes the files that were written.

        Do nothing to a transaction that has ended, except release what an interrupted end left.
        """
        if self.state in {State.ACTIVE, State.FAILED}:
            self._end(State.ROLLED_BACK)
            self._report(None)
        elif self.registration.is_made:  # its end was interrupted
            self._end(self.state)

    def _end(self, state: State) -> None:
        """Set the final state, and release the transaction's entry and locks in the catalog."""
        self.state = state
        if self.explicit and state in {State.ROLLED_BACK, State.FAILED}:
            self.engine.note_undone(self.id)
        self.registration.end()

    def _note(self, error: BaseException) -> None:
        """Record an error that is a Conflict in the lake's journal and metrics; ignore others, and
        those after which the statement runs again.

        Its evidence gets this transaction's operation.
        """
        if isinstance(error, Conflict) and not self.registration.repeats_after(error):
            facts = error.evidence
            if facts is not None:
                operation = self.tables.operation_on(facts.table)
                facts = error.evidence = replace(facts, operation=operation)
            count(
                "txlake.conflicts",
                error=type(error).__name__,
                rule=None if facts is None else facts.rule,
                table=None if facts is None else facts.table,
            )
            self.note_conflict(self, error)
            # Before its entry ends: the journal copies its number and begin from there.
            self.engine.catalog.journal.record(self.id, self.session_number(), error)

    def _fail_as(self, state: State, error: BaseException) -> None:
        """Record a conflict, then end in a state, even if the record fails."""
        self.state = state
        try:
            self._note(error)
        finally:
            self._end(state)
            if not (isinstance(error, Conflict) and self.registration.repeats_after(error)):
                self._report(error)

    def _report(self, error: BaseException | None) -> None:
        """Tell OpenLineage of the transaction's end, once, if it used a table and the settings want
        it. What fails here is logged.
        """
        namespace = self.engine.settings.openlineage
        if namespace is None or self._is_reported:
            return
        self._is_reported = True
        try:
            opened = [
                facts_of(self.engine, *one, self._versions_made, self.writes) for one in self.tables
            ]
            tables = [one for one in opened if one.is_input or one.is_output]
            if not tables:
                return
            outcome = self.state.value
            if error is not None and self.state is not State.UNKNOWN:
                outcome = State.FAILED.value
            elif not self.explicit and self.state is State.ROLLED_BACK:
                outcome = State.COMMITTED.value  # a query of its own
            emitter_of(namespace).put(
                TransactionFacts(
                    id=self.id,
                    begin_ms=self.begin_ms,
                    end_ms=self.engine.system.now_ms(),
                    outcome=outcome,
                    level=self.level,
                    branch=None if self.engine.branch is None else self.engine.branch.name,
                    tables=tables,
                    error=None if error is None else type(error).__name__,
                    evidence=error.evidence if isinstance(error, Conflict) else None,
                )
            )
        except Exception:
            _logger.warning("transaction %s isn't told to OpenLineage", self.id, exc_info=True)

    def fail(self, cause: BaseException) -> None:
        """Fail an active transaction because a statement failed; its locks are released.

        It can only be rolled back then. In any other state do nothing.
        """
        if self.state is State.ACTIVE:
            first_line, _, _ = str(cause).partition("\n")
            name = type(cause).__name__
            self.cause = f"{name}: {first_line:.200}" if first_line else name
            self._fail_as(State.FAILED, cause)


def _first_row_id(handle: Handle) -> int:
    """Return the first row id of a path table's branch.

    Raises InvalidRequest if another engine has created it, and as `first_in`.
    """
    assert handle.branch is not None, "main's ids follow its mark"
    block = handle.branch.row_id_block
    if block is None:
        raise InvalidRequest(
            f"{handle.name}: the table tracks rows, and the branch was created by an engine that "
            "keeps no row ids apart for it: main might give the same to others. Create a branch "
            "here, or turn delta.enableRowTracking off"
        )
    return first_in(block, handle.name)


def _not_alone(first: str, second: str) -> InvalidRequest:
    """Return the error for a path table that would be written together with something else."""
    return InvalidRequest(
        f"this transaction would write {first} and {second}: a table named by its place is "
        "committed alone; attach it to the lake (lake.attach), or commit them one after the other"
    )
