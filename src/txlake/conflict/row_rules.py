"""The conflict rules about rows and the files that hold them.

Source: docs/how-a-commit-works.md, rules 4 to 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from pyroaring import BitMap64

from txlake.conflict.concurrent_commit import ConcurrentCommit, RowChanges
from txlake.conflict.context import CheckContext, FileRows
from txlake.conflict.evidence import Finding
from txlake.conflict.file_compatibility import incompatibility
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.positions import RemovedRows, removed_rows_by_path
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    SerializableIsolationViolation,
    TxlakeError,
    UpdateConflict,
)
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, Remove
from txlake.protocol.paths import decode_path

_File = TypeVar("_File", Add, Remove)
_FILES_SHOWN = 10
_ROWS_SHOWN = 10
_AGAIN = "Run the transaction again on the newest version."


def table_changed_by_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if both change the table at granularity `table`, unless one is a blind append.

    A transaction that changes nothing of this table doesn't conflict.
    """
    if context.granularity is not Granularity.TABLE:
        return None
    if winner.is_blind_append or footprint.is_blind_append or footprint.is_empty:
        return None
    return Finding(
        UpdateConflict,
        "changed the table, and two changes of one table conflict (txlake.conflictGranularity)",
        advice=_AGAIN,
    )


def select_not_true(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if, under Serializable, a plain SELECT of the transaction may differ now."""
    if context.level is not Level.SERIALIZABLE:
        return None
    changes = context.changes_of(winner)
    for read in _of_kind(footprint.reads, ReadKind.PLAIN):
        found = _rows_added(read, changes, winner, context)
        change = "added rows that a SELECT of this transaction would have returned"
        if not found:
            found = _rows_deleted(read, changes.deleted, winner, context)
            change = "deleted rows that a SELECT of this transaction may have returned"
        if found:
            return Finding(
                SerializableIsolationViolation,
                change,
                read=read,
                files=[one.file for one in found],
                rows=_samples(found),
                advice="Run the transaction again, or read under write_serializable if what it "
                "selects need not hold at its commit.",
            )
    return None


def rows_added(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner added rows that match a read which has to stay true.

    These are guards at every level, and reads for writes under Serializable. Under Write
    Serializable reads for writes count only if the transaction sets metadata or can't precede the
    winner.
    """
    kinds = [ReadKind.GUARD]
    if context.level is Level.SERIALIZABLE or (
        context.level is Level.WRITE_SERIALIZABLE
        and (footprint.metadata is not None or not footprint.can_precede(winner))
    ):
        kinds.append(ReadKind.FOR_WRITE)
    changes = context.changes_of(winner)
    for read in _of_kind(footprint.reads, *kinds):
        found = _rows_added(read, changes, winner, context)
        if found:
            return Finding(
                ConcurrentAppendException,
                f"added rows that this transaction should have read{_whole(read)}",
                read=read,
                files=[one.file for one in found],
                rows=_samples(found),
                advice=_advice_on_added(found, footprint, winner, context),
            )
    return None


def _advice_on_added(
    found: Sequence[FileRows], footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> str:
    """Return the advice to run the transaction again, and whether a narrower condition keeps two
    such writers apart.

    `found` are the rows that the winner added. Both transactions may have changed one row, whose
    new image was found. Otherwise the rows match the transaction's condition, certainly if their
    positions are known.
    """
    met = context.reconcile_rows(footprint, winner)
    if met is not None and met.overlaps:
        return (
            "Run the transaction again: both change the same rows, and no condition keeps two such "
            "transactions apart."
        )
    if all(one.positions is not None for one in found):
        return (
            "Run the transaction again: it then sees these rows, which match its condition. If it "
            "doesn't need them, a narrower condition keeps the two apart."
        )
    where = ", on partition columns above all," if context.base.partition_columns else ""
    return f"Run the transaction again; a narrower condition{where} keeps two writers apart."


def files_of_old_settings(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner added files under settings that the transaction replaces."""
    if footprint.metadata is None:
        return None
    changes = context.changes_of(winner)
    files = (*changes.added, *changes.maybe_added)
    # A change that follows the winner's is the same updates, and fits or doesn't as it did before.
    reason = incompatibility(context.metadata, footprint.metadata) if files else None
    if reason is None:
        return None
    return Finding(
        ConcurrentAppendException,
        f"added files that don't fit the settings which this transaction gives the table: {reason}",
        files=files,
        advice=_AGAIN,
    )


def rows_deleted(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner deleted rows that match a read which has to stay true.

    These are guards at every level, and reads for writes above Snapshot. Rows that the winner only
    moved count in files that the transaction changes too, unless they were reconciled.

    Files that were read without a predicate conflict above Snapshot, whichever of their rows were
    deleted. What both delete is left to `rows_deleted_by_both` for a read that deletes all of its
    rows, if conflicts are found by rows, and for an assumed read.
    """
    kinds = [ReadKind.GUARD]
    if context.level is not Level.SNAPSHOT:
        kinds.append(ReadKind.FOR_WRITE)
    changes = context.changes_of(winner)
    moved = _touched(changes.moved, footprint, context)
    carried = _carried(footprint, winner, context) if moved else frozenset()
    moved = tuple(file for file in moved if canonical_path(file.path) not in carried)
    gone = (*changes.deleted, *moved)
    for read in _of_kind(footprint.reads, *kinds):
        candidates: Iterable[Remove] = gone
        if read.deletes_all and context.row_vectors is not None:
            candidates = moved  # which rows both took is the next rule's
        elif read.is_assumed:
            both = {file.path for file in _of_both(footprint, winner, context)}
            candidates = (file for file in gone if file.path not in both)
        found = _rows_deleted(read, candidates, winner, context)
        if found:
            files = [one.file for one in found]
            return _read_rows_deleted(read, files, _samples(found))
    read_files = {canonical_path(path) for path in footprint.read_files}
    listed = [file for file in gone if canonical_path(file.path) in read_files]
    if listed and context.level is not Level.SNAPSHOT:
        return _read_rows_deleted(None, listed)
    return None


def _read_rows_deleted(
    read: Read | None,
    files: Sequence[Add | Remove],
    rows: tuple[Mapping[str, object], ...] = (),
) -> Finding:
    """Return the finding for deleted rows of files read; `read` is None for files read without a
    predicate.
    """
    return Finding(
        ConcurrentDeleteReadException,
        "deleted or rewrote rows in files that this transaction read"
        + ("" if read is None else _whole(read)),
        read=read,
        files=files,
        rows=rows,
        advice=_AGAIN,
    )


def rows_deleted_by_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if both remove rows of one file, or one does and the other lists it again, and the
    two can't be reconciled row by row.
    """
    shared = _of_both(footprint, winner, context)
    if not shared:
        return None
    met = context.reconcile_rows(footprint, winner)
    overlaps = () if met is None else met.overlaps
    rows = tuple(_sample(overlap.file, overlap.positions) for overlap in overlaps)
    return Finding(
        ConcurrentDeleteDeleteException,
        "deleted or rewrote rows in files that this transaction deletes from or rewrites",
        files=shared,
        rows=rows,
        advice=_AGAIN,
    )


def _of_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> tuple[Remove, ...]:
    """Return the files that both touch and that can't be reconciled row by row, as the winner
    removed them.
    """
    shared = _touched(winner.removed, footprint, context)
    carried = _carried(footprint, winner, context) if shared else frozenset()
    return tuple(file for file in shared if canonical_path(file.path) not in carried)


def _samples(found: Sequence[FileRows]) -> tuple[Mapping[str, object], ...]:
    return tuple(_sample(one.file, one.positions) for one in found[:_FILES_SHOWN])


def _sample(file: Add | Remove, positions: BitMap64 | None) -> Mapping[str, object]:
    """Return a file's rows for evidence: their number, and the first positions."""
    path = decode_path(file.path)
    if positions is None:
        return {"file": path}
    first = tuple(islice(positions, _ROWS_SHOWN))
    return {"file": path, "count": len(positions), "positions": first}


def _carried(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> frozenset[str]:
    """Return the canonical paths of files that both touch and that are reconciled row by row."""
    met = context.reconcile_rows(footprint, winner)
    return frozenset() if met is None else met.carried


def file_added_by_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if both add one path: the later entry would silently replace the earlier.

    Files that the table has, which both list again, are the other rules'.
    """
    theirs = {canonical_path(file.path) for file in winner.added}
    both = [file for file in footprint.added if canonical_path(file.path) in theirs]
    known = {file.path for file in _touched(both, footprint, context)}
    shared = [file for file in both if file.path not in known]
    if not shared:
        return None
    return Finding(
        ConcurrentAppendException,
        "added the very files that this transaction adds",
        files=shared,
        retry=False,
        advice="Look whether that version is this write already; if not, use other file names.",
    )


def _of_kind(reads: Iterable[Read], *kinds: ReadKind) -> tuple[Read, ...]:
    return tuple(read for read in reads if read.kind in kinds)


def _rows_added(
    read: Read, changes: RowChanges, winner: ConcurrentCommit, context: CheckContext
) -> tuple[FileRows, ...]:
    """Return files with new rows that the read may match.

    Where a vector grew, only the restored rows of its file are new; the deleted rows are found by
    `_rows_deleted`, for reads of files.
    """
    rows = [FileRows(file=file) for file in changes.added]
    doubts = context.may_match(read, changes.maybe_added)
    if any(doubts):
        lost = removed_rows_by_path(winner.removed, winner.added)
        for file, is_doubtful in zip(changes.maybe_added, doubts, strict=True):
            back = _returned(lost, file, context) if is_doubtful else BitMap64()
            if back is None or back:
                rows.append(FileRows(file=file, positions=back))
    return context.matching(read, rows)


def _returned(lost: Mapping[str, RemovedRows], file: Add, context: CheckContext) -> BitMap64 | None:
    """Return the positions of restored rows in a file; None if unknown."""
    loss = lost.get(canonical_path(file.path))
    if loss is None or context.vectors is None:
        return None
    try:
        return loss.returned(context.vectors)
    except TxlakeError:  # a vector that can't be read: doubt
        return None


def _rows_deleted(
    read: Read, gone: Iterable[Remove], winner: ConcurrentCommit, context: CheckContext
) -> tuple[FileRows, ...]:
    """Return files with removed rows of the version read that the read may match; none if the read
    doesn't cover existing files.
    """
    if not read.files:
        return ()
    seen = [(file, one) for one in gone if (file := context.file_read(one)) is not None]
    doubts = context.may_match(read, [file for file, _ in seen])
    if not any(doubts):
        return ()
    lost = removed_rows_by_path(winner.removed, winner.added)
    rows = [
        FileRows(file=file, positions=_positions(lost, removed, context))
        for (file, removed), is_doubtful in zip(seen, doubts, strict=True)
        if is_doubtful
    ]
    return context.matching(read, rows)


def _positions(
    lost: Mapping[str, RemovedRows], file: Remove, context: CheckContext
) -> BitMap64 | None:
    """Return the positions of the rows that the winner deleted from a file; None for the whole
    file, or if conflicts aren't found by rows or the vector can't be read.
    """
    loss = lost.get(canonical_path(file.path))
    if loss is None or context.row_vectors is None or context.probe is None:
        return None
    try:
        return loss.positions(context.row_vectors)
    except TxlakeError:  # a vector that can't be read: any row of the file
        return None


def _touched(
    files: Sequence[_File], footprint: Footprint, context: CheckContext
) -> tuple[_File, ...]:
    """Return those of the files that the transaction removes rows from or lists again."""
    if not files:
        return ()
    removed, added = footprint.removed_by_path, footprint.added_by_path
    live = context.base.files
    return tuple(
        file
        for file in files
        if (path := canonical_path(file.path)) in removed
        or (path in added and added[path].key in live)
    )


def _whole(read: Read) -> str:
    return " (it read the whole table)" if read.predicate is None else ""
