"""MERGE: Spark joins target and source, takes each row's clause, writes images and reports.

Owns the statement in all its clauses. The job counts how many source rows matched each target row,
so that an ambiguous MERGE is detected without another pass. With a source that the driver holds, a
second, small job inserts its rows; with any other source one job does everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from txlake.commit.change import Change
from txlake.commit.data_plane import EvolveSchema
from txlake.commit.row_origins import Origins
from txlake.conflict.footprint import Read
from txlake.datafiles.files import Uploads
from txlake.datafiles.write_task import (
    DELETE_BY_SOURCE,
    INSERT,
    UPDATE,
    UPDATE_BY_SOURCE,
)
from txlake.errors import InvalidRequest
from txlake.local.assignments import column_path
from txlake.local.choice import attempt, few_rows_max
from txlake.local.merge import merge_on_driver
from txlake.local.merge_keys import LocalSource, key_predicate
from txlake.local.writing import WriteResult
from txlake.log.predicates import (
    Always,
    And,
    Or,
    Predicate,
    columns_of,
)
from txlake.protocol import paths
from txlake.protocol.actions import Action
from txlake.protocol.schema_change import merge_schemas
from txlake.protocol.type_widening import is_evolution, never_widens
from txlake.protocol.types import Field, Struct
from txlake.spark import rows
from txlake.spark.deletions import Deletions, delete_positions
from txlake.spark.dml import update_origins
from txlake.spark.identities import IdentityValues, identity_values
from txlake.spark.merge_job import MergeJob
from txlake.spark.merge_source import CollectedSource, collect_source
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema
from txlake.spark.writing import write_frame
from txlake.sql.statements import (
    BySourceDelete,
    BySourceUpdate,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedInsert,
    SqlText,
    Star,
    condition_text,
)


@translating
def merge(work: TableAccess, statement: Merge, source: DataFrame, evolve: EvolveSchema) -> Change:
    """Return the change of a MERGE (`TableData.merge`).

    `evolve` returns the actions that give the table a schema. The driver, or one or two Spark jobs
    write the rows. Raises InvalidRequest for an invalid clause, two source rows that change one
    target row, and a row that violates a constraint; nothing stays written.
    """
    check_clauses(statement)
    work.check_stored()
    schema_actions: tuple[Action, ...] = ()
    if statement.schema_evolution:
        evolved = _evolved_schema(work, statement, delta_schema(source.schema))
        if evolved != work.snapshot.schema:
            schema_actions = evolve(evolved)
            work = work.after(schema_actions)
    read = target_read(work, statement, delta_schema(source.schema))
    local_source = collect_source(work, statement, source)
    with Uploads() as uploads:  # the deletion vectors are written meanwhile
        with identity_values(work) as generation:
            files, written, read = _written(
                work, statement, source, local_source, read, generation, uploads
            )
            written = generation.with_marks(written)
        distinct = _replaced_count(written)
        deletions = delete_positions(work, files, written.replaced)
    origins = update_origins(files, written)
    change = merge_change(statement, read, written, distinct, deletions, schema_actions, origins)
    if local_source is None:
        return change  # to count the source's rows, Spark would have to read it again
    return replace(change, metrics={"numSourceRows": local_source.rows.num_rows, **change.metrics})


def merge_change(
    statement: Merge,
    read: Read,
    written: WriteResult,
    distinct: int,
    deletions: Deletions,
    schema_actions: tuple[Action, ...],
    origins: Mapping[str, Origins],
) -> Change:
    """Return the change of a MERGE; `distinct`: how many target rows were replaced or deleted."""
    adds, counts = written.adds, _counts(written, distinct)
    return Change(
        operation="MERGE",
        parameters=_parameters(statement),
        actions=(*schema_actions, *deletions.actions, *adds),
        metrics={
            **counts,
            "numOutputRows": counts["numOutputRows"] + deletions.rows_copied,
            "numTargetRowsCopied": deletions.rows_copied,
            "numTargetFilesAdded": deletions.files_added + len(adds),
            "numTargetFilesRemoved": deletions.files_removed,
            "numTargetBytesAdded": deletions.bytes_added + sum(add.size for add in adds),
            "numTargetBytesRemoved": deletions.bytes_removed,
            "numTargetDeletionVectorsAdded": deletions.vectors_added,
            "numTargetDeletionVectorsRemoved": deletions.vectors_removed,
            "numTargetDeletionVectorsUpdated": 0,
            "numTargetChangeFilesAdded": 0,
        },
        reads=(read,),
        affected={
            "num_affected_rows": counts["numTargetRowsUpdated"]
            + counts["numTargetRowsDeleted"]
            + counts["numTargetRowsInserted"],
            "num_updated_rows": counts["numTargetRowsUpdated"],
            "num_deleted_rows": counts["numTargetRowsDeleted"],
            "num_inserted_rows": counts["numTargetRowsInserted"],
        },
        identity_marks=written.identity_marks,
        origins={**deletions.origins, **origins},
    )


def check_clauses(statement: Merge) -> None:
    """Raise InvalidRequest if there is no clause, or a clause of its kind can't be reached.

    Schema evolution alone needs no clause.
    """
    if not statement.clauses and not statement.schema_evolution:
        raise InvalidRequest(f"MERGE INTO {statement.target}: expected at least one WHEN clause")
    kinds = {
        "WHEN MATCHED": (MatchedUpdate, MatchedDelete),
        "WHEN NOT MATCHED": (NotMatchedInsert,),
        "WHEN NOT MATCHED BY SOURCE": (BySourceUpdate, BySourceDelete),
    }
    for name, members in kinds.items():
        clauses = [clause for clause in statement.clauses if isinstance(clause, members)]
        for clause in clauses[:-1]:
            if clause.condition is None:
                raise InvalidRequest(
                    f"MERGE INTO {statement.target}: only the last {name} clause may have no "
                    "condition; give the others one"
                )


def _written(
    work: TableAccess,
    statement: Merge,
    source: DataFrame,
    local_source: CollectedSource | None,
    read: Read,
    generation: IdentityValues,
    uploads: Uploads,
) -> tuple[pa.Table, WriteResult, Read]:
    """Run the job or jobs; return the files read, what was written, and the read of the statement.

    Reports refer to the files by ordinal. With a local source, only target rows with its keys are
    read. New files exist when the caller has waited for `uploads`.
    """
    if local_source is not None:
        key_read = narrowed_read(work, statement, read, local_source)
        files = work.snapshot.select(key_read.predicate)
        possible = key_read.predicate or Always(True)
        carry_out = partial(
            merge_on_driver, work, statement, local_source, files, possible, uploads
        )
        driver_written = attempt("MERGE", work, carry_out)
        if driver_written is not None:
            return files, driver_written, key_read
        try:
            job = MergeJob(
                work,
                statement,
                local_source.frame(work.spark),
                work.scan(files, positions=True),
                generation,
                source_alias=local_source.alias,
            )
            images = job.images()
            _ = images.schema
        except AnalysisException:
            pass  # the original frame may know names that the local one doesn't: try it
        else:
            written = _in_two_jobs(work, local_source, files, job, images, generation)
            return files, written, key_read
    files = work.snapshot.select(read.predicate)
    target = work.scan(files, positions=True)
    job = MergeJob(work, statement, source, target, generation, source_alias=statement.source_alias)
    images = rows.checked(job.images(), work.snapshot)
    written = write_frame(images, work.target(), is_balanced=True)
    _refuse_ambiguous(work, job, written)
    return files, written, read


def narrowed_read(
    work: TableAccess, statement: Merge, read: Read, local_source: LocalSource
) -> Read:
    """Return the read of `target_read`, narrowed to the keys of a local source.

    `read` itself where the ON condition names no keys.
    """
    keys = key_predicate(work, statement, local_source)
    if keys == Always(True):
        return read
    return target_read(work, statement, local_source.schema, keys)


def _in_two_jobs(
    work: TableAccess,
    local_source: CollectedSource,
    files: pa.Table,
    job: MergeJob,
    images: DataFrame,
    generation: IdentityValues,
) -> WriteResult:
    """Change what the local source matches; then insert its rows that matched nothing.

    Returns both results as one. Raises InvalidRequest for an ambiguous match; nothing stays written
    if the second job fails.
    """
    changed = WriteResult()
    if files.num_rows:
        writes = job.changes
        rows_max = few_rows_max(files)
        changed = write_frame(
            rows.checked(images, work.snapshot) if writes else images,
            work.target(),
            images=writes,
            few_rows_max=rows_max if local_source.rows.num_rows <= rows_max else 0,
        )
        _refuse_ambiguous(work, job, changed)
    count = local_source.rows.num_rows - len(changed.sources)
    if not job.inserts or not count:
        return changed
    try:
        rest = job.inserted(local_source.frame(work.spark, without=changed.sources))
        inserted = write_frame(
            rows.checked(rest, work.snapshot),
            work.target(),
            few_rows_max=count,
            few_rows=generation.renumbered_table if job.generates_uniformly else None,
        )
    except BaseException:
        _discard(work, changed)
        raise
    return replace(
        changed,
        adds=(*changed.adds, *inserted.adds),
        actions={**changed.actions, **inserted.actions},
    )


def _refuse_ambiguous(work: TableAccess, job: MergeJob, written: WriteResult) -> None:
    """Raise InvalidRequest, after deleting the new files, if several source rows change a target
    row.

    A MERGE whose only matched clause is an unconditional DELETE is never ambiguous.
    """
    if written.replaced_rows > _replaced_count(written) and not _only_deletes(job.statement):
        _discard(work, written)
        raise InvalidRequest(job.ambiguity())


def _discard(work: TableAccess, written: WriteResult) -> None:
    work.store.delete(paths.decode_path(add.path) for add in written.adds)


def _replaced_count(written: WriteResult) -> int:
    return sum(len(bitmap) for bitmap in written.replaced.values())


def _only_deletes(statement: Merge) -> bool:
    """Return whether the only clause for matched rows is a DELETE without a condition."""
    matched = [c for c in statement.clauses if isinstance(c, MatchedUpdate | MatchedDelete)]
    return (
        len(matched) == 1 and isinstance(matched[0], MatchedDelete) and matched[0].condition is None
    )


def _evolved_schema(work: TableAccess, statement: Merge, source: Struct) -> Struct:
    """Return the table's schema with the new columns, and wider types, of what the clauses write.

    `*` takes all columns of the source, an assignment those that it names. Types only widen if the
    table's type widening is on.
    """
    schema = work.snapshot.schema
    widens = is_evolution if work.snapshot.properties.type_widening else never_widens
    for clause in statement.clauses:
        if not isinstance(clause, MatchedUpdate | NotMatchedInsert):
            continue
        if isinstance(clause.assignments, Star):
            additions = [Struct(source.fields)]
        else:
            paths = [
                column_path(work, assignment.column, statement.target_alias)
                for assignment in clause.assignments
            ]
            additions = [Struct((column,)) for path in paths if (column := _part(source, path))]
        for added in additions:
            schema = merge_schemas(schema, added, widens=widens)
    return schema


def _part(schema: Struct, path: tuple[str, ...]) -> Field | None:
    """Return the top-level column of a path, with only the nested fields on the path.

    None if the path doesn't exist.
    """
    column = schema.find(path[0])
    if column is None or len(path) == 1:
        return column
    if not isinstance(column.type, Struct):
        return None
    nested = _part(column.type, path[1:])
    return None if nested is None else replace(column, type=Struct((nested,)))


def target_read(
    work: TableAccess, statement: Merge, source: Struct, keys: Predicate | None = None
) -> Read:
    """Return a MERGE's read of the target (`TableData.merge_read`).

    `keys`: a predicate that all matching target rows meet. Reads the rows that may match, and the
    rows that a clause for unmatched target rows may take: no other row of the target affects the
    result. Reads every row if neither `keys` nor the ON condition restricts the rows that may
    match, or if such a clause may take any row.
    """
    text = condition_text(statement.on)
    parts = [*_target_parts(work, statement, source), *([] if keys is None else [keys])]
    by_source = _by_source_conditions(work, statement)
    if not parts or by_source is None:
        return Read(text=text)
    matching = parts[0] if len(parts) == 1 else And(tuple(parts))
    return Read(predicate=Or((matching, *by_source)) if by_source else matching, text=text)


def _target_parts(work: TableAccess, statement: Merge, source: Struct) -> list[Predicate]:
    """Return the parts of the ON condition that are about the target only, bound; [] if unknown."""
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return []
    names = [name for name in (statement.target_alias, work.name) if name is not None]
    result: list[Predicate] = []
    for part in work.on_parts(condition_text(statement.on), names):
        columns = columns_of(part)
        if columns and all(_is_target(work, statement, source, path) for path in columns):
            result.append(work.bound(part))
    return result


def _by_source_conditions(work: TableAccess, statement: Merge) -> list[Predicate] | None:
    """Return the conditions of the clauses for unmatched target rows, [] without such a clause;
    None if one of them may take any row.

    An invalid condition counts as one that takes any row: the job reports it.
    """
    result: list[Predicate] = []
    for clause in statement.clauses:
        if not isinstance(clause, BySourceUpdate | BySourceDelete):
            continue
        try:
            predicate = work.predicate(clause.condition, statement.target_alias)
        except InvalidRequest:  # the job reports what is wrong
            return None
        if predicate is None:
            return None
        result.append(predicate)
    return result


def _is_target(work: TableAccess, statement: Merge, source: Struct, path: tuple[str, ...]) -> bool:
    """Return whether a column of the ON condition can only be the target's.

    The path has lost the target's qualifier. A name of both sides counts as the target's, since
    Spark refuses it as ambiguous where it wasn't qualified. False for a path that begins with the
    source's alias, and for one that the target lacks.
    """
    if source.find(path[0]) is not None and work.snapshot.schema.find(path[0]) is None:
        return False
    if statement.source_alias is not None and path[0].lower() == statement.source_alias.lower():
        return False
    return work.snapshot.schema.resolve(path) is not None


def _counts(written: WriteResult, distinct: int) -> dict[str, int]:
    """Return the counts of rows for the history; `distinct` as in `merge_change`."""
    by = written.actions
    deleted_by_source = by.get(DELETE_BY_SOURCE, 0)
    updated_matched, updated_by_source = by.get(UPDATE, 0), by.get(UPDATE_BY_SOURCE, 0)
    # A lone unconditional DELETE may match a row several times; it is deleted once.
    deleted_matched = distinct - deleted_by_source - updated_matched - updated_by_source
    inserted = by.get(INSERT, 0)
    return {
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": updated_matched + updated_by_source,
        "numTargetRowsDeleted": deleted_matched + deleted_by_source,
        "numTargetRowsMatchedUpdated": updated_matched,
        "numTargetRowsMatchedDeleted": deleted_matched,
        "numTargetRowsNotMatchedBySourceUpdated": updated_by_source,
        "numTargetRowsNotMatchedBySourceDeleted": deleted_by_source,
        "numOutputRows": inserted + updated_matched + updated_by_source,
    }


def _parameters(statement: Merge) -> dict[str, object]:
    """Return the ON condition and the clauses by their kind, as Delta Spark's history has them."""
    groups: dict[str, list[dict[str, str]]] = {
        "matchedPredicates": [],
        "notMatchedPredicates": [],
        "notMatchedBySourcePredicates": [],
    }
    places = {
        MatchedUpdate: ("matchedPredicates", "update"),
        MatchedDelete: ("matchedPredicates", "delete"),
        NotMatchedInsert: ("notMatchedPredicates", "insert"),
        BySourceUpdate: ("notMatchedBySourcePredicates", "update"),
        BySourceDelete: ("notMatchedBySourcePredicates", "delete"),
    }
    for clause in statement.clauses:
        group, kind = places[type(clause)]
        entry = {"actionType": kind}
        if clause.condition is not None:
            entry["predicate"] = condition_text(clause.condition)
        groups[group].append(entry)
    return {"predicate": [condition_text(statement.on)], **groups}
