"""Row-level reconciliation: a transaction that touched the same files as a winner.

Owns how the transaction's deletions and rewrites are applied after the winner's: disjoint deletions
in one file are merged, deletions follow rows that a recorded rewrite moved, and a rewrite adopts
the deletions in its sources. In doubt rows overlap. Source: docs/how-a-commit-works.md, rules
6 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
from pyroaring import BitMap64

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.footprint import Footprint
from txlake.conflict.positions import (
    RemovedRows,
    RowMoves,
    Vectors,
    deleted_positions,
    removed_rows,
    removed_rows_by_path,
)
from txlake.errors import TxlakeError
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, Remove
from txlake.protocol.statistics import FileStatistics, loosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A file of which both remove rows: the shared positions; None if only the file is known."""

    file: Remove
    positions: BitMap64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReconciliation:
    """The result of reconciling a transaction with one winner.

    Attributes:
        footprint: the transaction as if it had read the winner's version.
        overlaps: where that is impossible: the transaction must not commit then.
        carried: canonical paths of files that both touched and that were reconciled.
    """

    footprint: Footprint
    overlaps: tuple[Overlap, ...] = ()
    carried: frozenset[str] = frozenset()


def reconcile_rows(
    footprint: Footprint, winner: ConcurrentCommit, vectors: Vectors
) -> RowReconciliation:
    """Reconcile the transaction with the winner, row by row.

    A file whose vector or statistics can't be read counts as an overlap. Raises nothing.
    """
    removed, added = footprint.removed_by_path, footprint.added_by_path
    shared = []
    for path, theirs in removed_rows_by_path(winner.removed, winner.added).items():
        before = removed.get(path)
        is_written = path not in footprint.unwritten
        ours = (
            None if before is None else removed_rows(before, added.get(path), is_written=is_written)
        )
        if ours is not None:
            shared.append((path, ours, theirs))
    if not shared:
        return RowReconciliation(footprint=footprint)
    meeting = _Reconciliation(footprint, winner, vectors)
    overlaps = {}
    for path, ours, theirs in shared:
        try:
            overlap = meeting.reconcile_file(path, ours, theirs)
        except TxlakeError:  # a vector or a statistic that can't be read: doubt
            overlap = Overlap(file=theirs.before)
        if overlap is not None:
            overlaps[path] = overlap
    return RowReconciliation(
        footprint=meeting.footprint(),
        overlaps=tuple(overlaps.values()),
        carried=frozenset(path for path, *_ in shared if path not in overlaps),
    )


class RowReconciler:
    """Reconciles a transaction with one winner after the other; caches the last result."""

    def __init__(self) -> None:
        self._last: tuple[Footprint, ConcurrentCommit, RowReconciliation] | None = None

    def of(
        self, footprint: Footprint, winner: ConcurrentCommit, vectors: Vectors
    ) -> RowReconciliation:
        """Return the reconciliation of the transaction with the winner."""
        last = self._last
        if last is None or last[0] is not footprint or last[1] is not winner:
            last = (footprint, winner, reconcile_rows(footprint, winner, vectors))
            self._last = last
        return last[2]


class _Reconciliation:
    """The transaction's files, updated for one shared file after the other."""

    def __init__(self, footprint: Footprint, winner: ConcurrentCommit, vectors: Vectors) -> None:
        self._before = footprint
        self._vectors = vectors
        self._removed = dict(footprint.removed_by_path)
        self._added = dict(footprint.added_by_path)
        self._unwritten = dict(footprint.unwritten)
        self._outputs = {canonical_path(file.path): file for file in winner.added}
        self._ours_moved = footprint.moves or RowMoves(footprint.removed, footprint.added)
        self._winner = winner

    @cached_property
    def _theirs_moved(self) -> RowMoves:
        """Where the winner moved rows, which only matters if it rewrote a file of both."""
        ours, winner = self._before.removed_by_path, self._winner
        removed = [_with_statistics(file, ours) for file in winner.removed]
        return RowMoves(removed, winner.added)

    def footprint(self) -> Footprint:
        """Return the transaction with the files updated so far."""
        return replace(
            self._before,
            removed=tuple(self._removed.values()),
            added=tuple(self._added.values()),
            unwritten=self._unwritten,
            moves=self._ours_moved,
        )

    def reconcile_file(self, path: str, ours: RemovedRows, theirs: RemovedRows) -> Overlap | None:
        """Reconcile the changes of one file; return the overlap if that is impossible.

        Raises TxlakeError if a vector or a statistic can't be read.
        """
        if path not in self._removed:  # given up with another file of its rewrite
            return None
        if ours.is_rewrite:
            return self._apply_to_rewrite(path, theirs)
        if ours.returned(self._vectors):  # the winner's vector has them deleted
            return Overlap(file=theirs.before)
        if theirs.is_rewrite:
            return self._follow_moved_rows(path, ours, theirs)
        own, other = self._positions(path, ours), theirs.positions(self._vectors)
        if own is None or other is None:
            both = own if other is None else other
            return Overlap(
                file=theirs.before, positions=self._live_positions(ours) if both is None else both
            )
        both = own & other
        if both:
            return Overlap(file=theirs.before, positions=both)
        assert theirs.after is not None
        self._delete_rows(path, theirs.after, own | deleted_positions(theirs.after, self._vectors))
        return None

    def _positions(self, path: str, ours: RemovedRows) -> BitMap64 | None:
        """Return the positions that the transaction deletes itself; None for the whole file."""
        if ours.after is None:
            return None
        every = self._unwritten.get(path)
        if every is None:
            every = deleted_positions(ours.after, self._vectors)
        return every - deleted_positions(ours.before, self._vectors)

    def _live_positions(self, ours: RemovedRows) -> BitMap64 | None:
        """Return the positions of a file's live rows; None if its row count is unknown."""
        count = FileStatistics.from_json(ours.before.stats).num_records
        if count is None:
            return None
        every = BitMap64()
        every.add_range(0, count)
        return every - deleted_positions(ours.before, self._vectors)

    def _delete_rows(self, path: str, listed: Add, positions: BitMap64) -> None:
        """Delete the rows at `positions`, all that are to be deleted then, from a file as the
        winner lists it.

        The file is removed whole if no row is left.
        """
        self._removed[path] = listed.tombstone(timestamp_ms=self._now_ms(), data_change=True)
        self._added[path] = msgspec.structs.replace(_loose(listed), data_change=True)
        self._unwritten[path] = positions
        if FileStatistics.from_json(listed.stats).num_records == len(positions):
            self._added.pop(path)
            self._unwritten.pop(path)

    def _follow_moved_rows(
        self, path: str, ours: RemovedRows, theirs: RemovedRows
    ) -> Overlap | None:
        """Apply the deletions to the files that the winner moved the rows to.

        Returns the overlap if the winner's rewrite doesn't record where all of these rows went.
        """
        runs = self._theirs_moved.of(path, self._vectors)
        if runs is None:
            return Overlap(file=theirs.before)
        own = self._positions(path, ours)
        places: dict[str, BitMap64] = {}
        for run in runs:
            output = canonical_path(run.output)
            found = run.all_places() if own is None else run.places(own, self._vectors)
            places[output] = places.get(output, BitMap64()) | found
        if own is not None and sum(map(len, places.values())) != len(own):
            return Overlap(file=theirs.before, positions=own)
        self._drop_file(path)
        for output, found in places.items():
            if found:
                self._delete_in(output, found)
        return None

    def _delete_in(self, output: str, positions: BitMap64) -> None:
        """Delete rows, besides those deleted already, in a file that the winner added."""
        known = self._unwritten.get(output)
        if known is None:
            known = deleted_positions(self._outputs[output], self._vectors)
        self._delete_rows(output, self._outputs[output], known | positions)

    def _drop_file(self, path: str) -> None:
        """Take a file out of the transaction's changes: it neither removes nor lists it any
        more.
        """
        self._removed.pop(path)
        self._added.pop(path, None)
        self._unwritten.pop(path, None)

    def _apply_to_rewrite(self, path: str, theirs: RemovedRows) -> Overlap | None:
        """Delete the winner's deleted rows in the outputs of the transaction's rewrite.

        Outputs that can't follow are dropped. Returns the overlap if which outputs these are isn't
        known.
        """
        runs = self._ours_moved.of(path, self._vectors)
        if runs is None:
            return Overlap(file=theirs.before)
        if theirs.is_rewrite or theirs.returned(self._vectors):
            return self._drop_outputs(path, theirs)
        positions = theirs.positions(self._vectors)
        if positions is None:
            places = [(run.output, run.all_places()) for run in runs]
            self._removed.pop(path)  # the winner has removed it
        else:
            assert theirs.after is not None
            places = [(run.output, run.places(positions, self._vectors)) for run in runs]
            if sum(len(found) for _, found in places) != len(positions):
                return self._drop_outputs(path, theirs)
            after = theirs.after.tombstone(timestamp_ms=self._now_ms(), data_change=False)
            self._removed[path] = after
        for output, found in places:
            self._remove_from_output(canonical_path(output), found)
        return None

    def _remove_from_output(self, output: str, positions: BitMap64) -> None:
        """Delete rows in an output of the transaction's rewrite, which is dropped if no row is
        left.
        """
        file = self._added.get(output)
        if file is None or not positions:  # no row of it was left
            return
        before = self._unwritten.get(output)
        every = positions | (deleted_positions(file, self._vectors) if before is None else before)
        if FileStatistics.from_json(file.stats).num_records == len(every):
            self._added.pop(output)
            self._unwritten.pop(output, None)
        else:
            self._added[output] = _loose(file)
            self._unwritten[output] = every

    def _drop_outputs(self, path: str, theirs: RemovedRows) -> Overlap | None:
        """Drop the outputs with rows of a source, and all outputs that share a source with them.

        Their sources aren't removed any more. Returns the overlap if not all outputs are known.
        """
        linked = self._ours_moved.linked(path, self._vectors)
        if linked is None:
            return Overlap(file=theirs.before)
        sources, outputs = linked
        for output in outputs:
            self._added.pop(output, None)
            self._unwritten.pop(output, None)
        for source in sources:
            self._removed.pop(source, None)
        return None

    def _now_ms(self) -> int:
        """Return the latest deletion time of the transaction's removed files; 0 without one."""
        times = (file.deletion_timestamp for file in self._before.removed)
        return max((moment for moment in times if moment is not None), default=0)


def _with_statistics(theirs: Remove, ours: Mapping[str, Remove]) -> Remove:
    """Return a winner's tombstone; one without statistics gets those that the transaction read."""
    known = ours.get(canonical_path(theirs.path)) if theirs.stats is None else None
    return theirs if known is None else msgspec.structs.replace(theirs, stats=known.stats)


def _loose(file: Add) -> Add:
    """Return the file with statistics marked as bounds, since some rows are deleted."""
    if file.stats is None:
        return file
    return msgspec.structs.replace(file, stats=loosen(file.stats))
