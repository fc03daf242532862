"""DataFrames and temporary views that a statement writes from count as reads of their tables.

A DataFrame is a snapshot, perhaps of another version than the transaction reads. This module finds
a statement's DataFrames and records their reads in the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from pyspark.sql import DataFrame

from txlake.commit.data_plane import ScanLineage
from txlake.conflict.footprint import Read
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.session.command import Answer, S
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.spark.scan_lineage import lineage_of
from txlake.sql.statements import NativeFrame, TableName, TablePath
from txlake.sql.statements.text_references import references_of


def recording_frame_reads(run: Callable[[Context, S], Answer]) -> Callable[[Context, S], Answer]:
    """Return `run`, preceded by recording what the statement's DataFrames read."""

    def recording(context: Context, statement: S) -> Answer:
        record_frame_reads(context, statement)
        return run(context, statement)

    return recording


def record_frame_reads(context: Context, statement: object) -> None:
    """Record in the transaction what a statement's DataFrames and temporary views read of tables.

    A table that the transaction hasn't used yet is read at the DataFrame's version from then on. A
    table that it reads at another version must not differ in the DataFrame's rows.

    Raises a Conflict if they differ, and InvalidRequest if the DataFrame can't be part of the
    transaction: it shows changes of another transaction or from before a rollback, or a version or
    table that is gone.
    """
    for frame in (*_frames_in(statement), *_views_in(context, statement)):
        for lineage in lineage_of(frame):
            _record_read(context, lineage)


def _frames_in(part: object) -> Iterator[DataFrame]:
    """Yield the Spark DataFrames in a statement or part of it, at any depth."""
    if isinstance(part, NativeFrame):
        if isinstance(part.frame, DataFrame):
            yield part.frame
    elif isinstance(part, tuple):
        for element in part:
            yield from _frames_in(element)
    elif is_dataclass(part):
        for item in fields(part):
            yield from _frames_in(getattr(part, item.name))


def _views_in(context: Context, statement: object) -> Iterator[DataFrame]:
    """Yield the frames of Spark's temporary views that the statement's texts name."""
    for reference in references_of(statement):
        table = reference.table
        if not isinstance(table, TableName) or not _may_be_temporary(table):
            continue
        if (
            context.tables.find(table)
            or context.tables.viewed(table)
            or context.catalog_view(table.parts)
        ):
            continue
        frame = context.plane.spark_relation(str(table))
        if frame is not None:  # else Spark reports it when it runs the statement
            yield frame


def _may_be_temporary(table: TableName) -> bool:
    return len(table.parts) == 1 or table.parts[0].lower() == "global_temp"


def _record_read(context: Context, lineage: ScanLineage) -> None:
    """Record the read of one scan; a scan of another lake, or on another branch, is ignored.

    Raises as `record_frame_reads`.
    """
    engine, transaction = context.engine, context.transaction
    own_lake = engine.catalog.lake_id
    if lineage.lake not in (None, own_lake):
        return  # another lake's tables are an external source
    if lineage.transaction is not None and lineage.transaction != transaction.id:
        if engine.was_undone(lineage.transaction):
            raise InvalidRequest(
                f"the DataFrame was read from {lineage.table} in transaction "
                f"{lineage.transaction}, which was rolled back; read the table again"
            )
        if lineage.has_own_changes:
            raise InvalidRequest(
                f"the DataFrame shows changes to {lineage.table} that transaction "
                f"{lineage.transaction} made, from inside of it; read the table again"
            )
    if lineage.transaction == transaction.id:
        if lineage.has_own_changes and lineage.rollbacks != transaction.undone:
            raise InvalidRequest(
                f"the DataFrame shows changes to {lineage.table} from before a ROLLBACK TO, which "
                "may be undone; read the table again"
            )
        transaction.tables.writes_from(lineage.url)
        return
    handle = engine.find(TablePath(lineage.url), context.tables.database)
    assert handle is not None, "a place is always found"
    if not handle.in_lake and _is_dropped(context, lineage):
        raise _version_gone(lineage, "that table was dropped")
    if _is_elsewhere(handle, lineage):
        return  # as with VERSION AS OF 'branch'
    version = _snapshot_of(handle, lineage)
    transaction.read_frame(handle, version, _read_by(context, version, lineage))


def _is_elsewhere(handle: Handle, lineage: ScanLineage) -> bool:
    """Return whether the scan's version is one of another branch, or main's, that the table where
    it is written doesn't have.
    """
    chains = (handle.chain, lineage.chain)
    own, scanned = chains
    shared = len([one for one, other in zip(own, scanned, strict=False) if one == other])
    return any(lineage.version > base for chain in chains for _, base in chain[shared : shared + 1])


def _is_dropped(context: Context, lineage: ScanLineage) -> bool:
    """Return whether the lake dropped the table and keeps it for UNDROP TABLE."""
    if lineage.lake is None:
        return False
    entries = (dropped.entry for dropped in context.engine.catalog.of_lake().dropped.entries())
    return any(entry.managed and entry.location == lineage.url for entry in entries)


def _snapshot_of(handle: Handle, lineage: ScanLineage) -> Snapshot:
    """Return the table at the DataFrame's version. Raises InvalidRequest when that is gone."""
    try:
        snapshot = handle.log.snapshot(lineage.version)
    except InvalidRequest as error:
        raise _version_gone(lineage, str(error)) from error
    if snapshot.metadata.id != lineage.table_id:
        raise _version_gone(lineage, "that table was dropped, and another is at its place")
    return snapshot


def _version_gone(lineage: ScanLineage, why: str) -> InvalidRequest:
    """Return the error for a DataFrame of a version that can't be read any more."""
    return InvalidRequest(
        f"the DataFrame shows version {lineage.version} of {lineage.table}, which is gone: {why}. "
        "Read the table again"
    )


def _read_by(context: Context, version: Snapshot, lineage: ScanLineage) -> Read:
    """Return the read of a scan: by its condition, or of all rows if that can't be modelled."""
    if lineage.condition is None:
        return Read()
    text, names = lineage.condition
    predicate = context.bound(version.schema, text, names)
    return Read(predicate=predicate, text=None if predicate is None else text)
