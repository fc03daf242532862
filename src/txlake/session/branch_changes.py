"""What a branch changed of its tables: net actions, reads, row sources, numbers of rows, and which
of its commits a conflict is about.

Only the branch's log, deletion vectors and the catalog are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import DataFrame

from txlake.catalog.branch_rows import BranchEntry, BranchTable
from txlake.commit.feed_rules import has_feed, without_row_tracking
from txlake.commit.membership import DOMAIN
from txlake.commit.merge_actions import StagedChanges
from txlake.commit.net_changes import DELETE, INSERT, POSTIMAGE, ChangedRows, net_rows
from txlake.commit.rebase import check_read_set
from txlake.commit.row_origins import RowSources, without_vectors
from txlake.commit.row_sources_codec import NO_SOURCES, ROW_SOURCES_TAG, KnownSources, known_sources
from txlake.commit.row_tracking import RowIds, ids_of
from txlake.commit.table_log import Commit, TableLog
from txlake.commit.transaction_group import without_group
from txlake.conflict.adoption import only_moves_marks
from txlake.conflict.evidence import commit_text
from txlake.conflict.levels import parse_level
from txlake.conflict.locking import LockMode
from txlake.conflict.read_set import ReadSet, join_reads
from txlake.conflict.read_set_codec import decode_read_sets
from txlake.datafiles.vectors import VectorCache
from txlake.errors import Conflict, InvalidRequest
from txlake.log.net_actions import Lineage, net_actions
from txlake.log.snapshot import Snapshot
from txlake.ports import ReadRecord
from txlake.protocol.actions import (
    Action,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
)
from txlake.protocol.identity import marks_of
from txlake.protocol.paths import decode_path
from txlake.session.change_files import rows_of
from txlake.session.command import TableLock
from txlake.session.engine import Engine, Handle
from txlake.sql.statements import TableName

BRANCH_TAG, CREATED_TAG = "txlake.branch", "txlake.branchCreated"
"""The tags of a commit that was made on a branch, and was published as it was: the branch's name,
and when it was created, or rebased the last time, in milliseconds since the epoch.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetChange:
    """What a branch changed of a table, and read for its changes.

    Attributes:
        base: the version that the branch began with.
        records: what its commits recorded to have read of the table.
        read: all of that.
        actions: the net changes since then; none for a table that was read only.
        marks: the last values of identity columns, by physical name.
        row_sources: what rows of new files were made of, for the change data feed.
        row_ids: those that the branch has handed out.
        commits: its commits of the table.
    """

    base: Snapshot
    records: tuple[ReadRecord, ...]
    read: ReadSet
    actions: tuple[Action, ...]
    marks: Mapping[str, int]
    row_sources: Mapping[str, RowSources]
    row_ids: RowIds
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable(NetChange):
    """A table of a lake that a branch changed, or read for its changes.

    Attributes:
        table: the branch's table.
    """

    table: BranchTable

    @property
    def lock(self) -> TableLock:
        """The lock that publishing takes on the parent's table."""
        origin = self.table.origin
        assert origin is not None, "a table without an origin isn't changed, but new"
        defines = any(isinstance(action, Metadata | Protocol) for action in self.actions)
        mode = LockMode.SCH_M if defines else LockMode.IX if self.actions else LockMode.SCH_S
        return TableName((origin.database, origin.name)), mode

    def line(self, tags: Mapping[str, str], *, onto_branch: bool) -> tuple[tuple[Action, ...], ...]:
        """Return the actions of the commits as another line has them, with tags for the branch.

        `onto_branch`: another branch gets them, which needs the sources of rows too.
        """
        return tuple(
            tuple(
                _with_tags(action, tags, keeps_sources=onto_branch)
                if isinstance(action, CommitInfo)
                else action
                for action in without_group(commit.actions)
                if not _is_owner(action)
            )
            for commit in self.commits
        )


def _with_tags(
    info: CommitInfo, of_branch: Mapping[str, str], *, keeps_sources: bool
) -> CommitInfo:
    """Return the commitInfo with the tags of the branch that made the commit."""
    own = info.values.get("tags")
    tags: dict[str, object] = dict(own) if isinstance(own, dict) else {}
    if not keeps_sources:
        tags.pop(ROW_SOURCES_TAG, None)
    return CommitInfo({**info.values, "tags": {**tags, **of_branch}})


def changed_table(
    on_branch: Engine, table: BranchTable, name: str, *, onto_branch: bool
) -> ChangedTable | None:
    """Return what a branch changed of a table that it began with; None if it changed and read
    nothing.

    Raises InvalidRequest if the origin of a changed table was dropped, and as `net_change`.
    """
    own = table.entry
    if own.base is None or table.is_dropped or not (table.is_changed or table.reads):
        return None
    if table.origin is None:
        raise InvalidRequest(
            f"branch {name!r}: {own.database}.{own.name} was dropped where the branch began, "
            "and the branch changed or read it; bring it back (UNDROP TABLE), or drop the branch"
        )
    log = on_branch.at_entry(own).log
    base, head = log.snapshot(own.base), log.snapshot(own.head)
    read = join_reads(decode_read_sets([each.record for each in table.reads], base))
    if not read.is_complete:
        raise InvalidRequest(
            f"branch {name!r}: {log.name}: a newer txlake has committed on the branch; publish it "
            "by that one"
        )
    commits = tuple(log.commits(base.version, head.version))
    net = net_change(log, base, head, commits, table.reads, read, onto_branch=onto_branch)
    return ChangedTable(
        table=table,
        base=net.base,
        records=net.records,
        read=net.read,
        actions=net.actions,
        marks=net.marks,
        row_sources=net.row_sources,
        row_ids=net.row_ids,
        commits=net.commits,
    )


def net_change(
    log: TableLog,
    base: Snapshot,
    head: Snapshot,
    commits: tuple[Commit, ...],
    records: tuple[ReadRecord, ...],
    read: ReadSet,
    *,
    onto_branch: bool,
) -> NetChange:
    """Return what a branch changed of a table by its commits between two versions.

    `onto_branch`: another branch takes it over. Raises InvalidRequest as `_row_sources`.
    """
    every = [commit.actions for commit in commits]
    actions = net_actions(base, head, every, timestamp_ms=log.system.now_ms())
    sources = _row_sources(
        log,
        head,
        Lineage(base.files, every),
        known_sources(base, commits),
        onto_branch=onto_branch,
    )
    marks: Mapping[str, int] = {}
    if only_moves_marks(base.metadata, head.metadata):
        marks = marks_of(head.schema, log.name)
        actions = tuple(action for action in actions if not isinstance(action, Metadata))
    kept = tuple(action for action in actions if not _is_owner(action))
    return NetChange(
        base=base,
        records=records,
        read=read,
        actions=kept,
        marks=marks,
        row_sources=sources,
        row_ids=ids_of(base, head, every),
        commits=commits,
    )


def _row_sources(
    log: TableLog, head: Snapshot, lineage: Lineage, known: KnownSources, *, onto_branch: bool
) -> Mapping[str, RowSources]:
    """Return what the rows of a branch's files were made of, for the change data feed.

    `onto_branch`: another branch takes them over, and outlives the vectors that only this one
    keeps.

    Raises InvalidRequest if the feed couldn't tell how rows changed.
    """
    if not has_feed(head):
        return {}
    if known.has_gaps:
        raise InvalidRequest(
            f"{log.name}: the branch changed rows while the table had no change data feed, which "
            "it has now: the feed couldn't tell how they changed. Turn it off on the branch, and "
            "on again after publishing"
        )
    if any(map(lineage.changes_data, known.untracked_files)):
        raise InvalidRequest(
            f"{log.name}: the table has a change data feed, and the branch has changed rows that "
            "it rewrote in an order that isn't recorded (a ZORDER BY or clustering of more than "
            "Settings.told_rows_max rows): the feed couldn't tell which. Make the changes on a new "
            "branch, and run OPTIMIZE after it is published"
        )
    if not onto_branch:
        return known.row_sources
    return without_vectors(known.row_sources, VectorCache(log.store, log.external_vectors))


def _is_owner(action: Action) -> bool:
    """Return whether an action says whose table it is, which a branch doesn't change."""
    return isinstance(action, DomainMetadata) and action.domain == DOMAIN


def conflict_on_branch(conflict: Conflict, one: NetChange, log: TableLog, name: str) -> Conflict:
    """Return a conflict of a publication with the branch's commit that it is about, and with what
    to do.

    `log`: that of the parent's table, on which the conflict was found.
    """
    facts = conflict.evidence
    if facts is None:
        return conflict
    told = _reader_text(one, log) if facts.predicate is not None else None
    told = told or _changer_text(one, facts.files)
    advice = (
        "Running PUBLISH again meets the same conflict: drop the branch, and run its statements "
        "again on a new one."
    )
    whose = f" Of branch {name!r} it concerns {told}." if told else ""
    before = str(conflict).removesuffix(f" {facts.advice}")
    before = before.replace("a plain retry can succeed", "a plain retry cannot succeed")
    facts = replace(facts, retry=False, advice=advice, branch_commit=told)
    return type(conflict)(f"{before}{whose} {advice}", facts)


def _reader_text(one: NetChange, log: TableLog) -> str | None:
    """Return the first transaction of a branch that read what has changed since, in words."""
    for each in one.records:
        read = join_reads(decode_read_sets([each.record], one.base))
        try:
            check_read_set(log, one.base, read, parse_level(each.level))
        except Conflict:
            found = next((made for made in one.commits if made.version == each.version), None)
            return "a transaction that read the table" if found is None else _text(found)
    return None


def _changer_text(one: NetChange, files: Collection[str]) -> str | None:
    """Return the first commit of a branch that removes one of the files, whose paths are decoded,
    or rows of it, in words; without files the first that changes the table's definition; if there
    is none, the first of all.
    """

    def is_meant(action: Action) -> bool:
        if not files:
            return isinstance(action, Metadata | Protocol)
        return isinstance(action, Remove) and decode_path(action.path) in files

    found = (made for made in one.commits if any(map(is_meant, made.actions)))
    return next(map(_text, (*found, *one.commits)), None)


def _text(commit: Commit) -> str:
    info = commit.info or CommitInfo({})
    return commit_text(
        commit.version, info.text("operation"), info.text("userName"), commit.timestamp_ms
    )


def is_renamed(table: BranchTable, entry: BranchEntry) -> bool:
    """Return whether a table that the branch began with has got another name there."""
    own, origin = table.entry, table.origin
    if own.base is None or table.is_dropped or own.modified_ms < entry.created_ms:
        return False
    return origin is None or (own.database, own.name) != (origin.database, origin.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows of a table a branch inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class _NetRows:
    """The rows of a table that differ between a branch's first version and its newest.

    Attributes:
        rows: by file and position.
        is_exact: False if rows that were only copied are among the deleted and the inserted ones,
            and updated ones too: which they are isn't recorded without a change data feed.
        commits: the branch's commits.
    """

    rows: tuple[ChangedRows, ...]
    is_exact: bool
    commits: tuple[Commit, ...]


def _net_rows(engine: Engine, handle: Handle, base_version: int | None, head: Snapshot) -> _NetRows:
    """Return the rows that were changed between two versions of a branch; without a base all rows
    of the second one.

    Raises CorruptTable if a commit of the branch is missing, or damaged.
    """
    log = handle.log
    base = Snapshot.empty(log.name) if base_version is None else log.snapshot(base_version)
    commits: tuple[Commit, ...] = ()
    actions: tuple[Action, ...] = tuple(
        msgspec.structs.replace(add, data_change=True) for add in head.files.adds()
    )
    known = NO_SOURCES
    if base_version is not None:
        commits = tuple(log.commits(base.version, head.version))
        actions = net_actions(base, head, [one.actions for one in commits], timestamp_ms=0)
        known = known_sources(base, commits)
    rows = net_rows(
        StagedChanges().then(actions, base.files),
        base.files,
        known.row_sources,
        VectorCache(log.store, log.external_vectors),
        lambda add: rows_of(add, lambda: engine.work(handle, head)),
    )
    is_told = has_feed(head) and not (known.has_gaps or known.untracked_files)
    return _NetRows(rows, is_exact=base_version is None or is_told, commits=commits)


def row_counts(on_branch: Engine, table: BranchTable) -> RowCounts:
    """Return how many rows a branch changed of a table that it has.

    Of a table with a change data feed, and of one that the branch created, these are net changes.
    Of another one they are the sums of what the branch's statements reported, as it isn't kept
    which rows these were.

    Raises CorruptTable if a commit of the branch is missing, or damaged.
    """
    own = table.entry
    handle = on_branch.at_entry(own)
    return count_changes(on_branch, handle, own.base, handle.log.snapshot(own.head))


def count_changes(
    engine: Engine, handle: Handle, base_version: int | None, head: Snapshot
) -> RowCounts:
    """Return how many rows were changed between two versions of a branch, as `row_counts`; without
    a base all rows of the second one.
    """
    net = _net_rows(engine, handle, base_version, head)
    if not net.is_exact:
        return reported_rows(net.commits)
    counts: Counter[str] = Counter()
    for change in net.rows:
        counts[change.change_type] += len(change.positions)
    return RowCounts(inserted=counts[INSERT], updated=counts[POSTIMAGE], deleted=counts[DELETE])


def branch_table(on_branch: Engine, handle: Handle) -> BranchTable:
    """Return a table of the session's branch. Raises InvalidRequest for a path table."""
    branch, entry = on_branch.branch, handle.entry
    if branch is None or entry is None:
        raise InvalidRequest(
            f"{handle.name} is no table of a branch of the lake: lake.changes gives the changes of "
            "its versions"
        )
    tables = on_branch.catalog.of_lake().branches.tables(branch)
    return next(table for table in tables if table.entry.id == entry.id)


def changed_rows(on_branch: Engine, table: BranchTable) -> DataFrame:
    """Return the rows that a branch changed of a table that it has, with `_change_type`.

    Of a table without a change data feed an updated row is a deleted and an inserted one. Only
    files that aren't in both versions are read. Raises as `row_counts`, and InvalidRequest for
    columns that can't be compared.
    """
    own = table.entry
    handle = on_branch.at_entry(own)
    head = handle.log.snapshot(own.head)
    net = _net_rows(on_branch, handle, own.base, head)
    work = on_branch.work(handle, head.apply([without_row_tracking(head.metadata)]))
    return work.changed_rows(net.rows) if net.is_exact else work.differing_rows(net.rows)


def reported_rows(commits: Iterable[Commit]) -> RowCounts:
    """Return the sums of the numbers of rows in the commits' metrics.

    MERGE counts all rows that it writes as output, INSERT those that it inserts.
    """
    sums: Counter[str] = Counter()
    for commit in commits:
        metrics = None if commit.info is None else commit.info.values.get("operationMetrics")
        for name, text in metrics.items() if isinstance(metrics, dict) else ():
            if isinstance(text, str) and text.isdecimal():
                sums[name] += int(text)
    return RowCounts(
        inserted=sums["numOutputRows"] - sums["numTargetRowsUpdated"] - sums["numTargetRowsCopied"],
        updated=sums["numUpdatedRows"] + sums["numTargetRowsUpdated"],
        deleted=sums["numDeletedRows"] + sums["numTargetRowsDeleted"],
    )
