"""The state that conflict rules check against: the version read, and how far to look at rows.

Owns the three tiers of the question whether a file holds rows that match a predicate: partition
values, file statistics, then a probe of the rows if there is one. Each tier only removes doubt;
what can't be decided counts as a match. Source: docs/how-a-commit-works.md, rule 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol as Port

from pyroaring import BitMap64

from txlake.conflict.concurrent_commit import ConcurrentCommit, RowChanges, row_changes
from txlake.conflict.footprint import Footprint, Read
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.match_cache import MatchCache
from txlake.conflict.positions import Vectors
from txlake.conflict.row_reconciliation import RowReconciler, RowReconciliation
from txlake.log.files import canonical_key, canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, FileKey, Metadata, Protocol, Remove
from txlake.protocol.properties import is_true

_FEW_FILES = 100
_VECTORS = "deletionVectors"
_ENABLE_VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """Rows of one file: those at the positions, or all live rows for None."""

    file: Add
    positions: BitMap64 | None = None


class RowProbe(Port):
    """The third tier: evaluates reads on the rows of a few files."""

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        """Return those of the rows that the read may match, without files of which it matches none.

        None if the rows can't be evaluated.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """The state that a transaction read, updated with each winner.

    Attributes:
        base: the snapshot that the transaction read.
        metadata: the metadata in force: the base's, or an earlier winner's.
        protocol: the protocol in force, likewise.
        level: the isolation level at which reads are checked.
        granularity: what two transactions may not both change.
        vectors: reads deletion vectors; without it conflicts are found by files.
        probe: the third tier; without it a file in doubt is a conflict.
        added_since: logical files that earlier winners added.
        removed_since: logical files that earlier winners removed.
        moved_since: by canonical path, files that earlier winners moved rows to.
        match_cache: results of the first two tiers.
        row_reconciler: reconciles the transaction with the winner, row by row.
        row_grouping: groups the winner's files by what happened to their rows.
    """

    base: Snapshot
    metadata: Metadata
    protocol: Protocol
    level: Level = Level.WRITE_SERIALIZABLE
    granularity: Granularity = Granularity.ROW
    vectors: Vectors | None = None
    probe: RowProbe | None = None
    added_since: frozenset[FileKey] = field(default=frozenset())
    removed_since: frozenset[FileKey] = field(default=frozenset())
    moved_since: Mapping[str, Add] = field(default_factory=dict)
    match_cache: MatchCache = field(default_factory=MatchCache)
    row_reconciler: RowReconciler = field(default_factory=RowReconciler)
    row_grouping: RowGrouping = field(default_factory=lambda: RowGrouping())

    @property
    def row_vectors(self) -> Vectors | None:
        """The reader of deletion vectors if conflicts are found by rows, else None.

        The table has to have deletion vectors enabled, when it was read and now, the granularity
        has to be ROW, and the context has to have a reader (`vectors`).
        """
        settings = (self.base.metadata, self.metadata)
        is_in_use = all(map(_uses_vectors, settings)) and _VECTORS in self.base.features
        return self.vectors if is_in_use and self.granularity is Granularity.ROW else None

    def reconcile_rows(
        self, footprint: Footprint, winner: ConcurrentCommit
    ) -> RowReconciliation | None:
        """Reconcile the transaction with the winner row by row; None if conflicts are found by
        files.
        """
        vectors = self.row_vectors
        return None if vectors is None else self.row_reconciler.of(footprint, winner, vectors)

    @property
    def table(self) -> str:
        """The table's name, for evidence."""
        return self.base.table

    def is_live(self, key: FileKey) -> bool:
        """Return whether a logical file is in the table after the winners checked so far."""
        key = canonical_key(key)
        if key in self.added_since:
            return True
        return key in self.base.files and key not in self.removed_since

    def prefetch(self, winners: Iterable[ConcurrentCommit]) -> None:
        """Announce the winners to be checked, so that their files are evaluated together.

        Winners with many files are left out: evaluating them alone costs little more, and may not
        be needed.
        """
        few = (winner.added for winner in winners if len(winner.added) <= _FEW_FILES)
        self.match_cache.prefetch(file for files in few for file in files if file.data_change)

    def changes_of(self, winner: ConcurrentCommit) -> RowChanges:
        """Return what happened to rows in the next winner."""
        return self.row_grouping.of(winner, self)

    def after(self, winner: ConcurrentCommit) -> CheckContext:
        """Return the context for checking the next winner."""
        added = frozenset(canonical_key(file.key) for file in winner.added)
        removed = frozenset(canonical_key(file.key) for file in winner.removed)
        moved = _moved_to(winner)
        return replace(
            self,
            metadata=winner.metadata or self.metadata,
            protocol=winner.protocol or self.protocol,
            added_since=(self.added_since - removed) | added,
            removed_since=(self.removed_since | removed) - added,
            moved_since={**self.moved_since, **moved} if moved else self.moved_since,
        )

    def file_read(self, file: Remove) -> Add | None:
        """Return the file in the version read, or a file that its rows were moved to since.

        None for a file that was added after the version read.
        """
        return self.base.files.by_path(file.path) or self.moved_since.get(canonical_path(file.path))

    def may_match(self, read: Read, files: Sequence[Add]) -> Sequence[bool]:
        """Return for each file whether the read may match a row of it, by the first two tiers."""
        return self.match_cache.of(read, files, self.base) if files else ()

    def matching(self, read: Read, rows: Sequence[FileRows]) -> tuple[FileRows, ...]:
        """Return those of the rows that the read may match, by all tiers.

        Without the third tier, or if it can't evaluate them, all rows of the files that the first
        two can't rule out.
        """
        kept = self.may_match(read, [one.file for one in rows])
        doubtful = tuple(one for one, keep in zip(rows, kept, strict=True) if keep)
        found = self.probe.matching(read, doubtful) if self.probe and doubtful else None
        return doubtful if found is None else tuple(found)


class RowGrouping:
    """Groups the files of one winner after the other; caches the last result."""

    def __init__(self) -> None:
        self._last: tuple[CheckContext, ConcurrentCommit, RowChanges] | None = None

    def of(self, winner: ConcurrentCommit, context: CheckContext) -> RowChanges:
        """Return what happened to rows in the winner that is checked in this context."""
        last = self._last
        if last is None or last[0] is not context or last[1] is not winner:
            last = (context, winner, row_changes(winner, context.is_live))
            self._last = last
        return last[2]


def _uses_vectors(metadata: Metadata) -> bool:
    return is_true(metadata.configuration, _ENABLE_VECTORS)


def _moved_to(winner: ConcurrentCommit) -> dict[str, Add]:
    """Return by canonical path the files that the winner added without a change of data, except
    those that it listed again.
    """
    moved = [file for file in winner.added if not file.data_change]
    removed = {canonical_path(file.path) for file in winner.removed if moved}
    return {path: file for file in moved if (path := canonical_path(file.path)) not in removed}
