"""DELETE and UPDATE: one Spark job that finds the rows, writes their images and reports positions.

Owns the two statements; `deletions` turns deleted positions into actions.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.commit.change import Change
from txlake.commit.row_origins import Origins, origins_of
from txlake.conflict.footprint import Read
from txlake.datafiles.files import Uploads
from txlake.datafiles.write_task import DELETE
from txlake.errors import InvalidRequest
from txlake.local import candidate_rows, choice
from txlake.local.assignments import Assigned, resolve_assignments
from txlake.local.control_columns import ACTION, FILE, ROW, ROW_ID, ROW_VERSION
from txlake.local.rules import GENERATION_EXPRESSION
from txlake.local.types import quote
from txlake.local.update import driver_values, write_images
from txlake.local.writing import WriteResult
from txlake.log.files import adds_of, live_row_count
from txlake.log.predicates import Predicate
from txlake.log.skipping import has_opaque, must_match
from txlake.protocol.actions import Add
from txlake.protocol.types import DataType, Field, Primitive, Struct
from txlake.spark import driver_frames, rows
from txlake.spark.deletions import Deletions, delete_positions, remove_files
from txlake.spark.identities import refuse_assignment
from txlake.spark.scan import selected
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema, spark_type
from txlake.spark.writing import write_frame
from txlake.sql.statements import Assignment, Default, Expression, SqlText, condition_text

# Functions and columns about the row's file, and subqueries.
_NEEDS_MORE_THAN_ROW = re.compile(r"input_file|_metadata|\bselect\b", re.IGNORECASE)


@translating
def delete(work: TableAccess, condition: Expression | None, alias: str | None = None) -> Change:
    """Return the change that deletes the rows for which the condition is true, or all rows.

    Files whose rows all match by their statistics are removed unread. The driver finds the rows
    where it can, else a Spark job does.
    """
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    whole, partly = _split(work, read.predicate, files)
    removed = remove_files(work, whole)
    rows_removed = sum(live_row_count(add) or 0 for add in whole)
    deletions = Deletions()
    counted = 0
    if partly.num_rows:
        assert condition is not None
        candidates = _candidates(
            "DELETE", work, partly, read.predicate, completes=True, reads_rows=False
        )
        if candidates is not None and candidates.certain:
            replaced: Mapping[int, BitMap64] = {
                ordinal: BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
                for ordinal, positions in candidates.positions.items()
            }
        else:
            few_rows = _few_candidate_rows(work, partly, candidates, [condition])
            if few_rows is None:
                scanned = work.scan(partly, positions=True, where=read.predicate)
            else:
                scanned = few_rows
            matching = _where(work, scanned, condition, alias).select(
                F.lit(DELETE).cast("int").alias(ACTION), F.col(FILE), F.col(ROW)
            )
            replaced = write_frame(
                matching,
                work.target(),
                images=False,
                few_rows_max=choice.few_rows_max(partly),
                held=few_rows is not None,
            ).replaced
        counted = sum(map(len, replaced.values()))
        deletions = delete_positions(work, partly, replaced)
    elif read.predicate is not None and has_opaque(read.predicate):
        # Spark refuses an invalid condition even if there are no rows; this only plans.
        _where(work, work.scan(partly, positions=True), condition, alias)
    count = rows_removed + counted
    return delete_change(condition, read, removed, deletions, count)


def delete_change(
    condition: Expression | None, read: Read, removed: Deletions, rest: Deletions, count: int
) -> Change:
    """Return the change of a DELETE of `count` rows: whole files, and rows of other files."""
    return Change(
        operation="DELETE",
        parameters={"predicate": [] if condition is None else [condition_text(condition)]},
        actions=(*removed.actions, *rest.actions),
        metrics={
            "numRemovedFiles": removed.files_removed + rest.files_removed,
            "numRemovedBytes": removed.bytes_removed + rest.bytes_removed,
            "numCopiedRows": rest.rows_copied,
            "numDeletedRows": count,
            "numDeletionVectorsAdded": rest.vectors_added,
            "numDeletionVectorsRemoved": removed.vectors_removed + rest.vectors_removed,
            "numDeletionVectorsUpdated": 0,
            "numAddedFiles": rest.files_added,
            "numAddedBytes": rest.bytes_added,
            "numAddedChangeFiles": 0,
        },
        reads=(read,),
        affected={"num_affected_rows": count},
        origins=rest.origins,
    )


def _candidates(
    operation: str,
    work: TableAccess,
    files: pa.Table,
    predicate: Predicate | None,
    *,
    completes: bool,
    reads_rows: bool,
) -> candidate_rows.Candidates | None:
    """Return the rows for which the condition may hold, if the driver finds them sooner than Spark;
    else None.

    `completes`: whether the driver can carry out the whole statement by itself; `reads_rows`:
    whether it then needs the rows' values. Without files there are certainly none, unless the
    condition has a part that only Spark can judge: None then.
    """
    if not files.num_rows:
        is_known = predicate is None or not has_opaque(predicate)
        return candidate_rows.Candidates(positions={}, certain=True) if is_known else None

    def find() -> candidate_rows.Candidates:
        """Return the candidate rows. Raises Declined where Spark is to look for them."""
        rows_max = choice.searched_rows_max(work, files, predicate, completes=completes)
        assert predicate is not None, "else the search is declined"
        later = candidate_rows.stored_fields(work) if reads_rows or has_opaque(predicate) else ()
        return candidate_rows.find_candidates(work, files, predicate, rows_max, later=later)

    return choice.attempt(f"search for the {operation}", work, find)


def _few_candidate_rows(
    work: TableAccess,
    files: pa.Table,
    candidates: candidate_rows.Candidates | None,
    expressions: Iterable[Expression],
) -> DataFrame | None:
    """Return the candidate rows as a Spark frame; None where Spark has to scan the files.

    Spark has to where an expression may depend on more than the row or isn't SQL text, and where
    the rows are many.
    """
    if candidates is None or candidates.count > choice.FEW_ROWS:
        return None
    if any(
        not isinstance(expression, SqlText)
        or expression.references
        or _NEEDS_MORE_THAN_ROW.search(expression.text)
        for expression in expressions
    ):
        return None
    return driver_frames.rows_at(work, files, candidates.positions)


def _split(
    work: TableAccess, predicate: Predicate | None, files: pa.Table
) -> tuple[list[Add], pa.Table]:
    """Return the files whose rows all match, and the others.

    By statistics, and only files of which rows are counted; without a predicate all files match.
    """
    adds = adds_of(files)
    if predicate is None:
        matches_all = [True] * len(adds)
    else:
        snapshot = work.snapshot
        matches_all = must_match(
            predicate, files, snapshot.schema, snapshot.partition_columns
        ).to_pylist()
    whole = [
        place
        for place, add in enumerate(adds)
        if matches_all[place] and (predicate is None or live_row_count(add) is not None)
    ]
    chosen = set(whole)
    rest = [place for place in range(len(adds)) if place not in chosen]
    return [adds[place] for place in whole], selected(files, rest)


@translating
def update(
    work: TableAccess,
    assignments: tuple[Assignment, ...],
    condition: Expression | None,
    alias: str | None = None,
) -> Change:
    """Return the change that assigns new values to the rows for which the condition is true, or all
    rows.

    The driver computes the values where it can, else a Spark job does. Raises InvalidRequest for a
    column that can't be assigned and a row that violates a constraint.
    """
    work.check_stored()
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    resolved = resolve_assignments(work, assignments, alias)
    refuse_assignment(work.snapshot, resolved)
    values = choice.attempt("UPDATE", work, lambda: driver_values(work, resolved, alias))
    candidates = _candidates(
        "UPDATE", work, files, read.predicate, completes=values is not None, reads_rows=True
    )
    written = None
    with Uploads() as uploads:  # the deletion vectors are written meanwhile
        if candidates is not None and values is not None:
            write = partial(write_images, work, files, candidates, values, uploads)
            written = choice.attempt("UPDATE", work, write)
        if written is None:
            assigned_values = [
                one.value for one in assignments if not isinstance(one.value, Default)
            ]
            expressions = [*assigned_values, *(() if condition is None else (condition,))]
            few_rows = None
            if files.num_rows:
                few_rows = _few_candidate_rows(work, files, candidates, expressions)
            written = _write_by_spark(work, files, read, few_rows, condition, alias, resolved)
        deletions = delete_positions(work, files, written.replaced)
    count = sum(len(bitmap) for bitmap in written.replaced.values())
    return update_change(
        condition, read, deletions, written.adds, count, update_origins(files, written)
    )


def _write_by_spark(
    work: TableAccess,
    files: pa.Table,
    read: Read,
    few_rows: DataFrame | None,
    condition: Expression | None,
    alias: str | None,
    assigned: Assigned,
) -> WriteResult:
    """Write the new images of an UPDATE's rows by a Spark job; without files only plan it.

    `few_rows` are the candidate rows, where the driver holds them. Raises InvalidRequest as
    `update`.
    """
    if not files.num_rows:
        # Spark refuses invalid values even if there are no rows.
        frame = _where(work, work.scan(files, positions=True), condition, alias)
        updated_frame(work, frame, assigned, carried=(FILE, ROW))
        return WriteResult()
    if few_rows is None:
        scanned = work.scan(files, positions=True, where=read.predicate)
    else:
        scanned = few_rows
    frame = _where(work, scanned, condition, alias)
    images = updated_frame(work, frame, assigned, carried=(FILE, ROW))
    checked = rows.checked(images, work.snapshot, given=set(assigned))
    return write_frame(
        checked,
        work.target(),
        few_rows_max=choice.few_rows_max(files),
        held=few_rows is not None,
    )


def update_origins(files: pa.Table, written: WriteResult) -> dict[str, Origins]:
    """Return which rows of the scanned files the new rows are images of, by the new file's path.

    Empty unless the table has a change data feed.
    """
    paths = tuple(files["path"].to_pylist()) if written.origins else ()
    return origins_of(written.origins, paths, is_update=True)


def update_change(
    condition: Expression | None,
    read: Read,
    deletions: Deletions,
    adds: Sequence[Add],
    count: int,
    origins: Mapping[str, Origins],
) -> Change:
    """Return the change of an UPDATE of `count` rows: deletions, and files with the new images."""
    return Change(
        operation="UPDATE",
        parameters={} if condition is None else {"predicate": [condition_text(condition)]},
        actions=(*deletions.actions, *adds),
        metrics={
            "numRemovedFiles": deletions.files_removed,
            "numRemovedBytes": deletions.bytes_removed,
            "numCopiedRows": deletions.rows_copied,
            "numUpdatedRows": count,
            "numDeletionVectorsAdded": deletions.vectors_added,
            "numDeletionVectorsRemoved": deletions.vectors_removed,
            "numDeletionVectorsUpdated": 0,
            "numAddedFiles": deletions.files_added + len(adds),
            "numAddedBytes": deletions.bytes_added + sum(add.size for add in adds),
            "numAddedChangeFiles": 0,
        },
        reads=(read,),
        affected={"num_affected_rows": count},
        origins={**deletions.origins, **origins},
    )


def _where(
    work: TableAccess, frame: DataFrame, condition: Expression | None, alias: str | None
) -> DataFrame:
    """Return the rows for which the condition is true, under the alias or the table's name."""
    named = work.qualified(frame, alias)
    return named if condition is None else named.where(work.column_of(condition))


def updated_frame(
    work: TableAccess, frame: DataFrame, assigned: Assigned, carried: tuple[str, ...]
) -> DataFrame:
    """Return the rows with their new values: the table's columns, then `carried`, then row ids.

    Row ids come if the table tracks rows, with a null commit version. Raises InvalidRequest for a
    value that the column can't store.
    """
    prefix: list[Column | str] = [*carried]
    if work.tracks_rows:
        prefix += [ROW_ID, F.lit(None).cast("bigint").alias(ROW_VERSION)]
    values: dict[str, Column | str] = {}
    resolved = _resolved(work, frame, assigned)
    for item in work.snapshot.schema:
        if item.name in assigned:
            values[item.name] = assigned_value(
                work, item, F.col(quote(item.name)), assigned[item.name], resolved
            )
        elif GENERATION_EXPRESSION not in item.metadata:
            values[item.name] = quote(item.name)
    return rows.filled(frame, values, work.snapshot, prefix)


Resolved = Mapping[int, tuple[Column, DataType]]
"""The column and type of each assigned expression, by the expression's identity."""


def _resolved(work: TableAccess, frame: DataFrame, assigned: Assigned) -> Resolved:
    """Return the column and type of each assigned expression. Raises as `value_types`."""
    expressions = [
        value
        for entries in assigned.values()
        for _, value in entries
        if not isinstance(value, Default)
    ]
    columns = [work.column_of(value) for value in expressions]
    types = value_types(work, frame, columns)
    return {
        id(value): (column, data_type)
        for value, column, data_type in zip(expressions, columns, types, strict=True)
    }


def value_types(work: TableAccess, frame: DataFrame, columns: Sequence[Column]) -> list[DataType]:
    """Return the types of the columns, each of which must compute one value from one row.

    Only plans. Raises InvalidRequest for an aggregate and a window function, which use other rows,
    and for a generator, which makes several rows of one; Spark's error for any other invalid
    expression.
    """
    if not columns:
        return []
    aliased = [column.alias(f"c{i}") for i, column in enumerate(columns)]
    types = [item.type for item in delta_schema(frame.select(*aliased).schema)]
    try:
        # Spark's WHERE takes exactly the expressions that are computed from one row.
        _ = frame.where(F.coalesce(*[column.isNull() for column in columns])).schema
    except AnalysisException as error:
        raise InvalidRequest(
            f"{work.snapshot.table}: a value is computed from one row, for that row: it can't be "
            "an aggregate, a window function or a generator of rows (explode, ...); compute it in "
            "a query, and MERGE its rows"
        ) from error
    return types


def assigned_value(
    work: TableAccess,
    item: Field,
    current: Column,
    entries: list[tuple[tuple[str, ...], Expression | Default]],
    resolved: Resolved,
    *,
    complete: bool = True,
) -> Column:
    """Return a column's new value; a path replaces one field of a struct and keeps the others.

    `current` is the old value, `resolved` has the columns of the expressions in `entries`.
    `complete`: a struct must have all fields of the column's; otherwise missing fields become null.
    If the old struct is null, the new one has nulls in the fields that aren't assigned. Raises
    InvalidRequest for a value that the column can't store, and DEFAULT without one for NOT NULL.
    """
    if entries[0][0] == ():
        value = entries[0][1]
        if isinstance(value, Default):
            return rows.given_default(item, work.snapshot)
        column, source = resolved[id(value)]
        work.require_assignable(source, item)
        return rows.storable(column, source, item, work.snapshot, complete=complete)
    assert isinstance(item.type, Struct)
    members = []
    for inner in item.type:
        member = current.getField(inner.name)
        nested = [
            (path[1:], value) for path, value in entries if path[0].lower() == inner.name.lower()
        ]
        if nested:
            member = assigned_value(work, inner, member, nested, resolved, complete=complete)
        members.append(member.alias(inner.name))
    return F.struct(*members)


def null_of(item: Field) -> Column:
    """Return a null of the column's type."""
    if item.type == Primitive("void"):
        return F.lit(None)
    return F.lit(None).cast(spark_type(item.type))
