"""One transaction on one table: its reads, its staged changes, and its commit.

`commit_loop` owns the attempts. Used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from txlake.commit.branch_store import fork_version
from txlake.commit.commit_info import Provenance, StatementInfo, combine_statements
from txlake.commit.feed_rules import has_feed, packed_sources, require_known_changes
from txlake.commit.identities import LocalIdentities
from txlake.commit.membership import DETACH
from txlake.commit.metadata_validation import require_no_staged_files
from txlake.commit.net_changes import ChangedRows, CountRows, net_changes
from txlake.commit.part_states import PartSummaries, PartSummary, TableSavepoint
from txlake.commit.path_commit import commit
from txlake.commit.rebase import Committed, Proposal
from txlake.commit.row_origins import RowSources
from txlake.commit.row_sources_codec import row_sources_tag
from txlake.commit.row_tracking import NO_ROW_IDS, needs_ids
from txlake.commit.table_log import LogReading, TableLog
from txlake.commit.validation import complete_actions, validate
from txlake.conflict.context import RowProbe
from txlake.conflict.footprint import Footprint, MarkUse, Read, ReadKind
from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.conflict.levels import Level, checked_at, parse_level, strictest
from txlake.conflict.positions import Vectors
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_path
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, Cdc
from txlake.protocol.identity import marks_differ, metadata_with_marks

# Operations that may take table features away.
_DROPPING = frozenset({"DROP FEATURE", DETACH})


class TableTransaction:
    """A transaction's part on one table.

    Attributes:
        log: the table's log.
        base: the snapshot that it reads; version -1 if there is no table yet.
        drawn: the identity values that were drawn without the catalog.
        row_ids: which row ids its commit hands out or keeps; set where a branch takes part.
        line: as in `Proposal`; set where a branch is published by its own commits.
        reading: of the log, begun when the transaction began with the version that was known.

    `states_marks`: its metadata comes from an engine, which may rely on the high-water marks that
    it states; no winner's are adopted.
    """

    def __init__(
        self,
        log: TableLog,
        base: Snapshot | None,
        level: Level | None = None,
        granularity: Granularity | None = None,
        *,
        states_marks: bool = False,
    ) -> None:
        self.log = log
        self.base = Snapshot.empty(log.name) if base is None else base
        self.drawn = LocalIdentities()
        self.reading: LogReading | None = None
        self.row_ids = NO_ROW_IDS
        self.line: tuple[tuple[Action, ...], ...] = ()
        self._requested_level = level
        self._requested_granularity = granularity
        self._states_marks = states_marks
        self._reads: list[Read] = []
        self._read_files: set[str] = set()
        self._read_app_ids: set[str] = set()
        self._undone_app_ids: set[str] = set()
        self._read_domains: set[str] = set()
        self._tables_read_elsewhere: set[str] = set()
        self._staged_state = TableSavepoint()
        self._view = self.base
        self._derive: Callable[[Snapshot], tuple[Action, ...]] | None = None
        self._is_done = False

    @property
    def view(self) -> Snapshot:
        """The table as this transaction sees it: its base with its own changes on top."""
        return self._view

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit."""
        return self._derive is not None or not self._staged_state.staged.is_empty

    @property
    def added_count(self) -> int:
        """How many data files it adds to the table."""
        return len(self._staged_state.staged.added)

    @property
    def new_files(self) -> tuple[Add, ...]:
        """The data files that it wrote; files that only lose rows aren't among them."""
        staged = self._staged_state.staged
        return tuple(add for add in staged.added.values() if add.deletion_vector is None)

    @property
    def has_read_rows(self) -> bool:
        """Whether it has read rows of the table."""
        return bool(self._reads or self._read_files)

    @property
    def part_summary(self) -> PartSummary:
        """Its reads and changes so far, for the transaction's parts on other tables."""
        known = (one for one in (self.base, self._view) if one.has_metadata)
        return PartSummary(
            part=self,
            table_ids=frozenset(one.metadata.id for one in known),
            footprint=self._footprint(),
        )

    def raise_level(self, level: Level) -> None:
        """Request a level in addition to earlier requests; the strictest counts."""
        self._requested_level = (
            level if self._requested_level is None else strictest(self._requested_level, level)
        )

    @property
    def level(self) -> Level:
        """The strictest level that the table and the transaction request.

        SERIALIZABLE if the table's property can't be parsed.
        """
        try:
            text = self._view.properties.isolation_level
        except CorruptTable:
            return Level.SERIALIZABLE
        return strictest(None if text is None else parse_level(text), self._requested_level)

    @property
    def granularity(self) -> Granularity:
        """The coarsest granularity that the table and its surroundings request.

        TABLE if the table's property can't be parsed.
        """
        try:
            own = parse_granularity(self._view.properties.conflict_granularity)
        except CorruptTable:
            return Granularity.TABLE
        return coarsest(own, self._requested_granularity)

    # Reads

    @property
    def reads(self) -> tuple[Read, ...]:
        """The reads so far."""
        return tuple(self._reads)

    def read(
        self,
        predicate: Predicate | None = None,
        text: str | None = None,
        *,
        files: bool = True,
        kind: ReadKind = ReadKind.FOR_WRITE,
        deletes_all: bool = False,
        condition: object = None,
    ) -> None:
        """Note rows that the writes depend on: those of the predicate, or the whole table.

        Without `files` only rows that a winner adds conflict. `deletes_all`: what is staged next
        deletes every one of the rows. `condition`: for the probe that the commit gets.
        """
        self._note(
            Read(
                predicate=predicate,
                text=text,
                kind=kind,
                files=files,
                deletes_all=deletes_all,
                condition=condition,
            )
        )

    def plain_read(
        self,
        predicate: Predicate | None = None,
        text: str | None = None,
        *,
        condition: object = None,
    ) -> None:
        """Note rows that a SELECT returned, which must stay true under Serializable only."""
        self._note(Read(predicate=predicate, text=text, kind=ReadKind.PLAIN, condition=condition))

    def add_read(self, read: Read) -> None:
        """Note rows that the writes depend on, given as a Read."""
        self._note(read)

    def promote_plain_reads(self) -> None:
        """Make the writes depend on the rows of SELECTs too."""
        reads = (
            replace(one, kind=ReadKind.FOR_WRITE) if one.kind is ReadKind.PLAIN else one
            for one in self._reads
        )
        self._reads = list(dict.fromkeys(reads))

    def _note(self, read: Read) -> None:
        if self.base.version >= 0 and read not in self._reads:
            self._reads.append(read)

    def read_files(self, paths: Iterable[str]) -> None:
        """Note files, paths as in the log, that were read without a predicate."""
        self._read_files.update(paths)

    def read_elsewhere(self, parts: PartSummaries) -> None:
        """Note which other tables the transaction read; the commit records them."""
        self._tables_read_elsewhere.update(parts.read_beside(self))

    def app_version(self, app_id: str) -> int | None:
        """Return the newest version that the application has written; None if it has written none.

        The commit depends on it from now on.
        """
        self._read_app_ids.add(app_id)
        return self._view.app_version(app_id)

    def read_domain(self, name: str) -> None:
        """Note that the commit depends on a metadata domain."""
        self._read_domains.add(name)

    # Changes

    @property
    def needs_row_ids(self) -> bool:
        """Whether its changes, of which there are some, get row ids at the commit."""
        view = self._view
        return needs_ids(
            self._staged_state.staged.actions, view.protocol, view.metadata.configuration
        )

    @property
    def operation(self) -> str | None:
        """The operation in the history for its changes so far; None without changes."""
        statements = self._staged_state.statements
        return combine_statements(statements, change_files=0).operation if statements else None

    def stage(
        self,
        actions: Sequence[Action],
        *,
        operation: str,
        parameters: Mapping[str, object] | None = None,
        metrics: Mapping[str, int] | None = None,
        tags: Mapping[str, str] | None = None,
        identity_marks: Mapping[str, int] | None = None,
        origins: Mapping[str, RowSources] | None = None,
        brings_back: bool = False,
        unmaps: bool = False,
    ) -> None:
        """Add a statement's changes; `identity_marks` and what follows as in `Change`.

        The view has them afterwards. Nothing is staged if it raises.

        Raises:
            InvalidRequest: the actions can't be committed, or the transaction was committed.
            UnsupportedFeature: the table would need a feature that txlake doesn't write.
            CorruptTable: a property of the table is invalid.
        """
        self._require_open()
        whole = complete_actions(
            actions,
            self._view,
            self.log.system,
            may_drop_features=operation in _DROPPING,
            brings_back=brings_back,
            unmaps=unmaps,
        )
        validate(whole, self._view, operation=operation, row_ids=self.row_ids)
        statement = StatementInfo(
            operation=operation, parameters=dict(parameters or {}), metrics=dict(metrics or {})
        )
        staged = self._staged_state.staged.then(whole, self.base.files)
        table_id = (staged.metadata or self.base.metadata).id
        given = {(table_id, name): mark for name, mark in (identity_marks or {}).items()}
        then = TableSavepoint(
            staged=staged,
            statements=(*self._staged_state.statements, statement),
            tags={**self._staged_state.tags, **(tags or {})},
            marks={**self._staged_state.marks, **given},
            row_sources=self._staged_state.row_sources,
            untracked_files=self._staged_state.untracked_files,
        )
        view = self._view_of(then)
        kept = (add for key, add in staged.added.items() if key in self._staged_state.staged.added)
        require_no_staged_files(self._view, view, kept, self.base)
        if has_feed(view):
            then = self._with_origins(then, whole, origins or {})
        self._staged_state, self._view = then, view

    def derive(
        self,
        actions_of: Callable[[Snapshot], tuple[Action, ...]],
        *,
        operation: str,
        parameters: Mapping[str, object] | None = None,
    ) -> None:
        """Commit also the actions that `actions_of` returns for the version that the commit
        follows, even if nothing is staged; what it raises is the commit's error.

        They are neither checked against winners nor part of the view. `operation` and `parameters`
        are their entry in the history, beside those of staged changes.
        """
        self.stage((), operation=operation, parameters=parameters)
        self._derive = actions_of

    def _view_of(self, now: TableSavepoint) -> Snapshot:
        """Return the base with what is staged on top, the marks of identity columns included."""
        seen = self.base.apply(now.staged.actions)
        metadata = metadata_with_marks(seen.metadata, _identity_marks(seen, now), seen.table)
        return seen if metadata is seen.metadata else seen.apply([metadata])

    def _with_origins(
        self, then: TableSavepoint, actions: Iterable[Action], origins: Mapping[str, RowSources]
    ) -> TableSavepoint:
        """Return the staged state with the sources of new files' rows.

        Raises InvalidRequest if they are unknown, and needed.
        """
        require_known_changes(self._view, self._staged_state.staged, then.staged, self.log.name)
        if has_feed(self._view):
            moved = packed_sources(actions, self._view.files)
        else:  # turned on now: what was packed before counts too
            moved = packed_sources(then.staged.added.values(), self.base.files)
        row_sources = {
            **then.row_sources,
            **{canonical_path(path): one for path, one in origins.items()},
            **{path: runs for path, runs in moved.items() if runs},
        }
        untracked_files = then.untracked_files | {path for path, runs in moved.items() if not runs}
        if untracked_files and then.staged.rows_moved_on:
            raise InvalidRequest(
                f"{self.log.name}: rows were changed, and rewritten in an order that isn't "
                "recorded (a ZORDER BY or clustering of more than Settings.told_rows_max rows), in "
                "one transaction: the change data feed couldn't tell which were changed; COMMIT "
                "between the two"
            )
        return replace(then, row_sources=row_sources, untracked_files=untracked_files)

    def changes(self, vectors: Vectors, count_rows: CountRows) -> tuple[ChangedRows, ...] | None:
        """Return the rows for change data files; None if it needs none.

        Arguments as in `net_changes`.
        """
        if not has_feed(self._view):
            return None
        staged = self._staged_state.staged
        return net_changes(
            staged, self.base.files, self._staged_state.row_sources, vectors, count_rows
        )

    def add_change_files(self, files: Sequence[Cdc]) -> None:
        """Add change data files, which hold all of its changes."""
        self._require_open()
        staged = self._staged_state.staged
        staged = replace(staged, change_files=(*staged.change_files, *files))
        self._staged_state = replace(self._staged_state, staged=staged)

    def mark_rows_unchanged(self) -> None:
        """Declare that its new files hold just the rows of the files that it removes.

        For statements whose net effect is nothing: their files would otherwise count as every row
        deleted and inserted.
        """
        self._require_open()
        self._staged_state = replace(
            self._staged_state, staged=self._staged_state.staged.without_data_change()
        )

    def omit_statement_details(self) -> None:
        """Leave parameters and metrics of statements out of the commit."""
        kept = (replace(one, parameters={}, metrics={}) for one in self._staged_state.statements)
        self._staged_state = replace(self._staged_state, statements=tuple(kept))

    def savepoint(self) -> TableSavepoint:
        """Return a savepoint of the current state."""
        return replace(
            self._staged_state, reads=len(self._reads), app_ids=frozenset(self._read_app_ids)
        )

    def rollback_to(self, token: TableSavepoint | None) -> None:
        """Roll back to a savepoint; None is the beginning.

        Writes no longer depend on reads since then, which count as SELECTs of these rows.
        """
        self.discard_staged(token)
        kept = self._staged_state.reads
        undone = (replace(read, kind=ReadKind.PLAIN) for read in self._reads[kept:])
        self._reads = [*self._reads[:kept], *undone]
        self._undone_app_ids |= self._read_app_ids - self._staged_state.app_ids
        self._read_app_ids = set(self._staged_state.app_ids)

    def discard_staged(self, token: TableSavepoint | None = None) -> None:
        """Discard changes staged since a savepoint; its reads still count as reads for writes."""
        self._require_open()
        self._staged_state = TableSavepoint() if token is None else token
        kept = self._staged_state.reads
        still_read = (replace(read, deletes_all=False) for read in self._reads[kept:])
        self._reads = [*self._reads[:kept], *still_read]
        self._view = self._view_of(self._staged_state)

    def proposal(
        self,
        *,
        txn_id: str,
        parts: PartSummaries | None = None,
        changes_names: bool = False,
        drops_names: bool = False,
        user_metadata: str | None = None,
        user: str | None = None,
        probe: RowProbe | None = None,
    ) -> Proposal:
        """Return the proposal to commit; nothing can be staged any more. Sends nothing.

        `parts` are the transaction's parts on all tables, which are committed at the same instant;
        `changes_names` says whether names of tables change: then reads of this table have to hold
        even if the table doesn't change. `drops_names`: whether tables are dropped or renamed.
        `probe` evaluates rows that the driver can't. Raises InvalidRequest at the second call.
        """
        self._require_open()
        self._is_done = True
        parts = PartSummaries() if parts is None else parts
        self.read_elsewhere(parts)
        own = parts.of(self)
        footprint = replace(
            self._footprint() if own is None else own.footprint,
            reads_elsewhere=frozenset(self._tables_read_elsewhere),
            writes_elsewhere=None if drops_names else parts.changed_beside(self),
            changes_elsewhere=changes_names or parts.has_changes_beside(self),
        )
        changes_data = footprint.changes_data or parts.changes_data_beside(self)
        level = checked_at(self.level, changes_data=changes_data, syncs_marks=footprint.syncs_marks)
        statement = combine_statements(
            self._staged_state.statements, change_files=len(self._staged_state.staged.change_files)
        )
        provenance = Provenance(
            operation=statement.operation,
            parameters=statement.parameters,
            metrics=statement.metrics,
            level=level,
            is_blind_append=footprint.is_blind_append,
            reads_elsewhere=footprint.reads_elsewhere,
            read_version=self.base.version,
            txn_id=txn_id,
            tags=self._tags(),
            user_metadata=user_metadata,
            user_name=user,
        )
        return Proposal(
            base=self.base,
            footprint=footprint,
            actions=self._staged_state.staged.actions,
            identity_marks=_identity_marks(self._view, self._staged_state),
            level=level,
            provenance=provenance,
            granularity=self.granularity,
            probe=probe,
            row_ids=self.row_ids,
            derive=self._derive,
            line=self.line,
        )

    def _tags(self) -> Mapping[str, str]:
        """Return the commit's tags: a branch keeps the sources of rows until it is published."""
        if fork_version(self.log.store) is None:
            return self._staged_state.tags
        return {**self._staged_state.tags, **row_sources_tag(self._staged_state.row_sources)}

    def commit(
        self,
        *,
        user_metadata: str | None = None,
        user: str | None = None,
        probe: RowProbe | None = None,
    ) -> Committed:
        """Commit what was staged on a path table, once; `probe` as in `proposal`.

        Raises as `path_commit.commit`.
        """
        proposal = self.proposal(
            txn_id=self.log.system.new_id(), user_metadata=user_metadata, user=user, probe=probe
        )
        return commit(self.log, proposal, self.reading)

    def _require_open(self) -> None:
        """Raise InvalidRequest if the transaction was committed, or its commit failed."""
        if self._is_done:
            raise InvalidRequest(
                f"{self.log.name}: the transaction was committed already, or lost; begin another"
            )

    def _footprint(self) -> Footprint:
        """Return what was read and changed so far.

        A transaction that takes rows away without a stated read counts as having read everything.
        Reads of application ids that were rolled back count under Serializable.
        """
        staged = self._staged_state.staged
        added, removed = staged.added_files, staged.removed_files
        undone = self._undone_app_ids if self.level is Level.SERIALIZABLE else set()
        reads = tuple(self._reads)
        for_writes = any(read.kind is not ReadKind.PLAIN for read in reads)
        if any(file.data_change for file in removed) and not (self._read_files or for_writes):
            # A deletion without a stated read may depend on any row.
            reads = (*reads, Read(is_assumed=True))
        syncs_marks = self._moves_marks and not added
        if syncs_marks:
            reads = (*reads, Read(files=False, is_assumed=True))
        live = self.base.files
        relisted = {file.path: file for file in added if file.key in live}
        restated = {
            path for path, file in relisted.items() if _is_restated(file, live.get(file.key))
        }
        return Footprint(
            read_version=self.base.version,
            reads=reads,
            read_files=frozenset(self._read_files | (relisted.keys() - restated)),
            read_app_ids=frozenset(self._read_app_ids | undone),
            read_domains=frozenset(self._read_domains),
            added=added,
            restated=frozenset(map(canonical_path, restated)),
            removed=removed,
            metadata=staged.metadata,
            protocol=staged.protocol,
            app_ids=frozenset(staged.app_transactions),
            domains=tuple(staged.domains.values()),
            change_files=bool(staged.change_files),
            marks=self._marks_needed(),
            syncs_marks=syncs_marks,
        )

    def _marks_needed(self) -> MarkUse:
        """Return the use of the identity columns' marks: MOVED if it moves some and no catalog
        reserves them.
        """
        if self.log.catalog_table is not None:
            # What a catalog reserved is given to no other transaction, whatever the mark is by now.
            return MarkUse.FOLLOWED
        if self._staged_state.marks or self._moves_marks:
            return MarkUse.MOVED
        return MarkUse.STATED if self._states_marks else MarkUse.FOLLOWED

    @property
    def _moves_marks(self) -> bool:
        """Whether its metadata moves marks of the table that it read."""
        staged = self._staged_state.staged.metadata
        return staged is not None and marks_differ(self.base.metadata, staged)


def _is_restated(file: Add, before: Add | None) -> bool:
    """Return whether a file that is listed again differs only in its statistics."""
    assert before is not None
    return file == msgspec.structs.replace(before, stats=file.stats, data_change=False)


def _identity_marks(snapshot: Snapshot, now: TableSavepoint) -> dict[str, int]:
    """Return this table's marks, not those of a replaced one; by physical name."""
    return {name: now.marks[of, name] for of, name in now.marks if of == snapshot.metadata.id}
