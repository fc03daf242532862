"""DataFrames and views that a statement writes from: what they show counts as read.

A DataFrame is a snapshot. Owns which of them a statement uses, and what it means for the
transaction that they show a version which it doesn't see itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from pyspark.sql import DataFrame

from txlake.conflict.footprint import Read
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.session.command import Answer, S
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.spark.marks import Shown, shown_by
from txlake.statements import NativeFrame, TableName, TablePath
from txlake.statements.text_references import references_of


def writing(run: Callable[[Context, S], Answer]) -> Callable[[Context, S], Answer]:
    """Does what `run` does, once what the statement's DataFrames show is counted as read."""

    def counting(context: Context, statement: S) -> Answer:
        count_shown(context, statement)
        return run(context, statement)

    return counting


def count_shown(context: Context, statement: object) -> None:
    """Counts what a statement's DataFrames, and views of Spark's, show of tables as read.

    A table that the transaction hasn't used begins for it at the version shown. One that it sees at
    another version must not differ in the rows shown.

    Raises a Conflict when it does, and InvalidRequest when what is shown can't be part of the
    transaction: changes of another that weren't committed, a table that is gone.
    """
    for frame in (*_frames_in(statement), *_views_in(context, statement)):
        for shown in shown_by(frame):
            _count(context, shown)


def _frames_in(part: object) -> Iterator[DataFrame]:
    if isinstance(part, NativeFrame):
        if isinstance(part.frame, DataFrame):
            yield part.frame
    elif isinstance(part, tuple):
        for one in part:
            yield from _frames_in(one)
    elif is_dataclass(part):
        for item in fields(part):
            yield from _frames_in(getattr(part, item.name))


def _views_in(context: Context, statement: object) -> Iterator[DataFrame]:
    """Temporary views of Spark's that the statement's texts name."""
    for reference in references_of(statement):
        table = reference.table
        if not isinstance(table, TableName) or not _may_be_temporary(table):
            continue
        if context.find(table) or context.viewed(table) or context.catalog_view(table.parts):
            continue
        found = context.plane.found(str(table))
        if found is not None:  # else Spark says so when it runs the statement
            yield found


def _may_be_temporary(table: TableName) -> bool:
    return len(table.parts) == 1 or table.parts[0].lower() == "global_temp"


def _count(context: Context, shown: Shown) -> None:
    engine, transaction = context.engine, context.transaction
    own_lake = engine.catalog.lake_id
    if shown.lake not in (None, own_lake):
        return  # another lake's tables are a source like any other
    if shown.transaction is not None and shown.transaction != transaction.id:
        if engine.was_undone(shown.transaction):
            raise InvalidRequest(
                f"the DataFrame was read from {shown.table} in transaction {shown.transaction}, "
                "which was rolled back; read the table again"
            )
        if shown.is_changed:
            raise InvalidRequest(
                f"the DataFrame shows changes to {shown.table} that transaction "
                f"{shown.transaction} made, from inside of it; read the table again"
            )
    if shown.transaction == transaction.id:
        if shown.is_changed and shown.undone != transaction.undone:
            raise InvalidRequest(
                f"the DataFrame shows changes to {shown.table} from before a ROLLBACK TO, which "
                "may be undone; read the table again"
            )
        transaction.writes_from(shown.url)
        return
    handle = engine.find(TablePath(shown.url), context.database)
    assert handle is not None, "a place is always found"
    if not handle.in_lake and _is_dropped(context, shown):
        raise _gone(shown, "that table was dropped")
    version = _version(handle, shown)
    transaction.shows(handle, version, _read(context, version, shown))


def _is_dropped(context: Context, shown: Shown) -> bool:
    """Whether the table is one that the lake dropped, and keeps for UNDROP TABLE."""
    if shown.lake is None:
        return False
    kept = (one.entry for one in context.engine.catalog.of_lake().dropped.listed())
    return any(one.managed and one.location == shown.url for one in kept)


def _version(handle: Handle, shown: Shown) -> Snapshot:
    """The table at the version shown. Raises InvalidRequest when that is gone."""
    try:
        found = handle.log.snapshot(shown.version)
    except InvalidRequest as error:
        raise _gone(shown, str(error)) from error
    if found.metadata.id != shown.table_id:
        raise _gone(shown, "that table was dropped, and another is at its place")
    return found


def _gone(shown: Shown, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the DataFrame shows version {shown.version} of {shown.table}, which is gone: {why}. "
        "Read the table again"
    )


def _read(context: Context, version: Snapshot, shown: Shown) -> Read:
    if shown.condition is None:
        return Read()
    text, names = shown.condition
    predicate = context.bound(version.schema, text, names)
    return Read(predicate=predicate, text=None if predicate is None else text)
