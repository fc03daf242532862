"""Who may commit: the rules, in the order in which they are asked.

Each rule looks at one transaction and one winner and answers with a conflict or with None. A rule
doesn't know the others, does no I/O and changes nothing. Source: DESIGN section 4, rules 1 to 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from txlake.conflict.adoption import is_harmless
from txlake.conflict.context import Context
from txlake.conflict.evidence import Conflicted, conflicted
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.levels import Level
from txlake.conflict.winner import RowChanges, Winner
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
    SerializableIsolationViolation,
    UpdateConflict,
)
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, Remove
from txlake.protocol.features import supported_features

_File = TypeVar("_File", Add, Remove)
Rule: TypeAlias = Callable[[Footprint, Winner, Context], Conflicted | None]

_AGAIN = "Run the transaction again on the newest version."


def table_created_by_both(
    footprint: Footprint, winner: Winner, context: Context
) -> Conflicted | None:
    """Both create the table."""
    if footprint.read_version >= 0:
        return None
    return conflicted(
        ProtocolChangedException,
        table_created_by_both.__name__,
        "created the table that this transaction creates too",
        footprint,
        winner,
        context,
        retry=False,
        advice="The table exists now: write to it, or create yours in another place.",
    )


def protocol_changed_by_both(
    footprint: Footprint, winner: Winner, context: Context
) -> Conflicted | None:
    """Both set the protocol."""
    if winner.protocol is None or footprint.protocol is None:
        return None
    return conflicted(
        ProtocolChangedException,
        protocol_changed_by_both.__name__,
        "changed the table's protocol, which this transaction changes too",
        footprint,
        winner,
        context,
        advice=_AGAIN,
    )


def features_dropped(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """A winner took table features away, on which the transaction may have relied."""
    if winner.protocol is None:
        return None
    dropped = supported_features(context.protocol) - supported_features(winner.protocol)
    if not dropped:
        return None
    return conflicted(
        ProtocolChangedException,
        features_dropped.__name__,
        f"dropped the table features {', '.join(sorted(dropped))}",
        footprint,
        winner,
        context,
        advice=_AGAIN,
    )


def metadata_changed(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """A winner changed the metadata, and not in a way that is harmless to this transaction."""
    if winner.metadata is None:
        return None
    if footprint.metadata is not None:
        finding = "changed the table's metadata, which this transaction changes too"
    else:
        protocol = winner.protocol or context.protocol
        if is_harmless(
            context.metadata,
            winner.metadata,
            protocol,
            generated_identity=footprint.generated_identity,
        ):
            return None
        finding = "changed the table's metadata (schema, partitioning or properties)"
    return conflicted(
        MetadataChangedException,
        metadata_changed.__name__,
        finding,
        footprint,
        winner,
        context,
        advice="Run the transaction again: it then sees the table's new metadata.",
    )


def domain_changed(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """Both wrote one metadata domain, or a winner wrote one that was read."""
    ours = {domain.domain for domain in footprint.domains} | footprint.read_domains
    shared = sorted(ours & winner.domains)
    if not shared:
        return None
    return conflicted(
        MetadataChangedException,
        domain_changed.__name__,
        f"wrote the metadata domain {', '.join(shared)}, which this transaction uses too",
        footprint,
        winner,
        context,
        advice=_AGAIN,
    )


def app_id_advanced(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """A winner set an application id that the transaction depends on."""
    shared = sorted((footprint.read_app_ids | footprint.app_ids) & winner.app_ids)
    if not shared:
        return None
    return conflicted(
        ConcurrentTransactionException,
        app_id_advanced.__name__,
        f"set the application id {', '.join(shared)}, on which this transaction depends",
        footprint,
        winner,
        context,
        advice="Look up the application id's version first: this batch may be written already.",
    )


def table_changed_by_both(
    footprint: Footprint, winner: Winner, context: Context
) -> Conflicted | None:
    """With granularity `table`, neither only appends."""
    if not context.table_granularity or winner.is_blind_append or footprint.is_blind_append:
        return None
    return conflicted(
        UpdateConflict,
        table_changed_by_both.__name__,
        "changed the table, and two changes of one table conflict (txlake.conflictGranularity)",
        footprint,
        winner,
        context,
        advice=_AGAIN,
    )


def select_not_true(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """Under Serializable, a plain SELECT of the transaction would answer differently now."""
    if context.level is not Level.SERIALIZABLE:
        return None
    changes = context.changes_of(winner)
    for read in _of_kind(footprint.reads, ReadKind.PLAIN):
        files: Sequence[Add] = _rows_added(read, changes, context)
        change = "added rows that a SELECT of this transaction would have returned"
        if not files:
            files = _rows_deleted(read, changes.deleted, context)
            change = "deleted rows that a SELECT of this transaction may have returned"
        if files:
            return conflicted(
                SerializableIsolationViolation,
                select_not_true.__name__,
                change,
                footprint,
                winner,
                context,
                read=read,
                files=files,
                advice="Run the transaction again, or read under write_serializable if what it "
                "selects need not hold at its commit.",
            )
    return None


def rows_added(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """A winner added rows that match a read of the transaction."""
    kinds = [ReadKind.GUARD]
    if context.level is Level.SERIALIZABLE or (
        context.level is Level.WRITE_SERIALIZABLE
        and (not winner.is_blind_append or footprint.metadata is not None)
    ):
        kinds.append(ReadKind.FOR_WRITE)
    changes = context.changes_of(winner)
    for read in _of_kind(footprint.reads, *kinds):
        files = _rows_added(read, changes, context)
        if files:
            return conflicted(
                ConcurrentAppendException,
                rows_added.__name__,
                f"added rows that this transaction should have read{_whole(read)}",
                footprint,
                winner,
                context,
                read=read,
                files=files,
                advice="Run the transaction again; a narrower condition, on partition columns "
                "above all, keeps two writers apart.",
            )
    return None


def rows_deleted(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """A winner deleted rows that match a read, or moved ones that the transaction takes away."""
    kinds = [ReadKind.GUARD]
    if context.level is not Level.SNAPSHOT:
        kinds.append(ReadKind.FOR_WRITE)
    changes = context.changes_of(winner)
    gone = (*changes.deleted, *_touched(changes.moved, footprint, context))
    for read in _of_kind(footprint.reads, *kinds):
        files = _rows_deleted(read, gone, context)
        if files:
            return _read_rows_deleted(footprint, winner, context, read, files)
    read_files = {canonical_path(path) for path in footprint.read_files}
    listed = [file for file in gone if canonical_path(file.path) in read_files]
    if listed and context.level is not Level.SNAPSHOT:
        return _read_rows_deleted(footprint, winner, context, None, listed)
    return None


def _read_rows_deleted(
    footprint: Footprint,
    winner: Winner,
    context: Context,
    read: Read | None,
    files: Sequence[Add | Remove],
) -> Conflicted:
    return conflicted(
        ConcurrentDeleteReadException,
        rows_deleted.__name__,
        "deleted or rewrote rows in files that this transaction read"
        + ("" if read is None else _whole(read)),
        footprint,
        winner,
        context,
        read=read,
        files=files,
        advice=_AGAIN,
    )


def rows_deleted_by_both(
    footprint: Footprint, winner: Winner, context: Context
) -> Conflicted | None:
    """Both take rows away from one file, or one does while the other lists it anew."""
    shared = _touched(winner.removed, footprint, context)
    if not shared:
        return None
    return conflicted(
        ConcurrentDeleteDeleteException,
        rows_deleted_by_both.__name__,
        "deleted or rewrote rows in files that this transaction deletes from or rewrites",
        footprint,
        winner,
        context,
        files=shared,
        advice=_AGAIN,
    )


def file_added_by_both(footprint: Footprint, winner: Winner, context: Context) -> Conflicted | None:
    """Both add one path: the later entry would silently replace the earlier."""
    theirs = {canonical_path(file.path) for file in winner.added}
    both = [file for file in footprint.added if canonical_path(file.path) in theirs]
    known = {file.path for file in _touched(both, footprint, context)}
    shared = [file for file in both if file.path not in known]
    if not shared:
        return None
    return conflicted(
        ConcurrentAppendException,
        file_added_by_both.__name__,
        "added the very files that this transaction adds",
        footprint,
        winner,
        context,
        files=shared,
        retry=False,
        advice="Look whether that version is this write already; if not, use other file names.",
    )


RULES: tuple[Rule, ...] = (
    table_created_by_both,
    protocol_changed_by_both,
    features_dropped,
    metadata_changed,
    domain_changed,
    app_id_advanced,
    table_changed_by_both,
    select_not_true,
    rows_added,
    rows_deleted,
    rows_deleted_by_both,
    file_added_by_both,
)


def _of_kind(reads: Iterable[Read], *kinds: ReadKind) -> tuple[Read, ...]:
    return tuple(read for read in reads if read.kind in kinds)


def _rows_added(read: Read, changes: RowChanges, context: Context) -> tuple[Add, ...]:
    """Files with new rows that the read may match.

    Where a vector grew, rows were deleted, which `_rows_deleted` finds for reads of files; for a
    read without files the file counts here, because some of its rows may have come back.
    """
    files = changes.added if read.files else (*changes.added, *changes.maybe_added)
    return context.matching(read, files)


def _rows_deleted(read: Read, gone: Iterable[Remove], context: Context) -> tuple[Add, ...]:
    """Files of the version read that lost rows which the read may match.

    A file that came and went since was never seen by the transaction.
    """
    if not read.files:
        return ()
    seen = (context.base.files.by_path(file.path) for file in gone)
    return context.matching(read, [file for file in seen if file is not None])


def _touched(files: Sequence[_File], footprint: Footprint, context: Context) -> tuple[_File, ...]:
    """Those of the files that the transaction takes rows from or lists anew."""
    if not files:
        return ()
    removed = {canonical_path(file.path) for file in footprint.removed}
    added = {canonical_path(file.path): file.key for file in footprint.added}
    live = context.base.files
    return tuple(
        file
        for file in files
        if (path := canonical_path(file.path)) in removed or (path in added and added[path] in live)
    )


def _whole(read: Read) -> str:
    return " (it read the whole table)" if read.predicate is None else ""
