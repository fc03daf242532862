"""MERGE: one Spark job joins target and source, takes each row's clause, writes images and reports.

Owns the statement in all its clauses. The job counts how many source rows named each target row, so
that an ambiguous MERGE is found without another pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.errors import InvalidRequest
from txlake.log.predicates import (
    And,
    Predicate,
    columns_of,
    conjuncts,
    parse_predicate,
)
from txlake.protocol import paths
from txlake.protocol.actions import Action
from txlake.protocol.schema_change import merge_schemas
from txlake.protocol.types import DataType, Field, Struct
from txlake.spark import rows
from txlake.spark.deletions import delete_positions
from txlake.spark.dml import assigned_value, column_path, null_of, resolve_assignments
from txlake.spark.executor import (
    DELETE,
    DELETE_BY_SOURCE,
    INSERT,
    UPDATE,
    UPDATE_BY_SOURCE,
)
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import ROW_ID, ROW_VERSION, quote
from txlake.spark.translation import translating
from txlake.spark.types import delta_schema
from txlake.spark.work import Work, condition_text
from txlake.spark.writing import ACTION, Written, write_frame
from txlake.statements import (
    STAR,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    Default,
    Expression,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NotMatchedInsert,
    SqlText,
    Star,
)
from txlake.transaction.change import Change, Read

_CLAUSE = "__txlake_clause"
_FROM_SOURCE = "__txlake_from_source"
_ACTIONS = {
    MatchedUpdate: UPDATE,
    MatchedDelete: DELETE,
    NotMatchedInsert: INSERT,
    BySourceUpdate: UPDATE_BY_SOURCE,
    BySourceDelete: DELETE_BY_SOURCE,
}
EvolveSchema = Callable[[Struct], tuple[Action, ...]]


@translating
def merge(work: Work, statement: Merge, source: DataFrame, evolve: EvolveSchema) -> Change:
    """Changes the target by the first clause that holds for each row.

    `evolve` gives the actions that change the table's schema to the one given.

    Raises InvalidRequest with an example when two source rows change one target row, when a clause
    names a column that isn't there, or when types don't fit.
    """
    check_clauses(statement)
    schema_actions: tuple[Action, ...] = ()
    if statement.schema_evolution:
        wanted = _evolved(work, statement, delta_schema(source.schema))
        if wanted != work.snapshot.schema:
            schema_actions = evolve(wanted)
            work = work.after(schema_actions)
    read = _read(work, statement, delta_schema(source.schema))
    files = work.snapshot.select(read.predicate)
    job = _Job(work, statement, source, work.scan(files, positions=True))
    written = write_frame(rows.checked(job.images(), work.snapshot), work.target())
    distinct = sum(len(bitmap) for bitmap in written.replaced.values())
    if written.replaced_rows > distinct and not _only_deletes(statement):
        work.store.delete(paths.decode_path(add.path) for add in written.adds)
        raise InvalidRequest(job.ambiguity())
    deletions = delete_positions(work, files, written.replaced)
    counts = _counts(written, distinct)
    added = (*deletions.actions, *written.adds)
    return Change(
        operation="MERGE",
        parameters=_parameters(statement),
        actions=(*schema_actions, *added),
        metrics={
            **counts,
            "numTargetRowsCopied": deletions.rows_copied,
            "numTargetFilesAdded": deletions.files_added + len(written.adds),
            "numTargetFilesRemoved": deletions.files_removed,
            "numTargetBytesAdded": deletions.bytes_added + sum(a.size for a in written.adds),
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
    )


def check_clauses(statement: Merge) -> None:
    """Raises InvalidRequest when there is no clause, or one that can't be reached by kind."""
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


def _only_deletes(statement: Merge) -> bool:
    matched = [c for c in statement.clauses if isinstance(c, MatchedUpdate | MatchedDelete)]
    return (
        len(matched) == 1 and isinstance(matched[0], MatchedDelete) and matched[0].condition is None
    )


def _evolved(work: Work, statement: Merge, source: Struct) -> Struct:
    """The table's schema with the source's columns that the clauses write and it lacks."""
    wanted: list[Field] = []
    for item in source:
        for clause in statement.clauses:
            assignments = getattr(clause, "assignments", ())
            named = isinstance(assignments, Star) or any(
                column_path(work, one.column, statement.target_alias)[0].lower()
                == item.name.lower()
                for one in assignments
            )
            if named and not isinstance(clause, BySourceUpdate):
                wanted.append(Field(item.name, item.type, True, item.metadata))
                break
    return merge_schemas(
        work.snapshot.schema,
        Struct(tuple(wanted)),
        allow_type_widening=work.snapshot.properties.type_widening,
        keep_types=True,
    )


def _read(work: Work, statement: Merge, source: Struct) -> Read:
    """What the statement reads of the target: what the join condition says of it alone."""
    text = condition_text(statement.on)
    by_source = any(isinstance(c, BySourceUpdate | BySourceDelete) for c in statement.clauses)
    if by_source or not isinstance(statement.on, SqlText) or statement.on.references:
        return Read(text=text)
    names = [name for name in (statement.target_alias, work.name) if name is not None]
    kept: list[Predicate] = []
    for part in conjuncts(parse_predicate(text, aliases=tuple(names))):
        columns = columns_of(part)
        if columns and all(_is_target(work, statement, source, path) for path in columns):
            kept.append(work.bound(part))
    if not kept:
        return Read(text=text)
    return Read(predicate=kept[0] if len(kept) == 1 else And(tuple(kept)), text=text)


def _is_target(work: Work, statement: Merge, source: Struct, path: tuple[str, ...]) -> bool:
    """Whether a column can only be the target's."""
    if source.find(path[0]) is not None and work.snapshot.schema.find(path[0]) is None:
        return False
    if statement.source_alias is not None and path[0].lower() == statement.source_alias.lower():
        return False
    return work.snapshot.schema.resolve(path) is not None


class _Job:
    """The join of target and source, and each row's outcome.

    Every column of either side also has a name of its own (`__t0`, `__s0`), so that a column that
    both sides have can be told apart without an alias.
    """

    def __init__(self, work: Work, statement: Merge, source: DataFrame, target: DataFrame) -> None:
        self._work = work
        self._statement = statement
        self._schema = work.snapshot.schema
        self._source_schema = delta_schema(source.schema)
        if statement.source_alias is not None:
            source = source.alias(statement.source_alias)
        self._source = source.select(
            "*",
            F.lit(True).alias(_FROM_SOURCE),
            *[
                F.col(quote(name)).alias(f"__s{i}")
                for i, name in enumerate(self._source_schema.names)
                if _is_unique(name, self._source_schema)
            ],
        )
        self._target = work.qualified(target, statement.target_alias).select(
            "*",
            *[F.col(quote(name)).alias(f"__t{i}") for i, name in enumerate(self._schema.names)],
        )
        self._inserts_only = all(isinstance(c, NotMatchedInsert) for c in statement.clauses)
        self._clauses = [self._prepared(clause) for clause in statement.clauses]

    def images(self) -> DataFrame:
        """Each row that a clause takes: its new values, ACTION, FILE and ROW."""
        rows_with_clause = self._with_clause()
        action: Column = F.lit(None).cast("int")
        for index, clause in enumerate(self._statement.clauses):
            code = F.lit(_ACTIONS[type(clause)]).cast("int")
            action = F.when(F.col(_CLAUSE) == index, code).otherwise(action)
        carried = [action.alias(ACTION)]
        if not self._inserts_only:
            carried += [F.col(FILE), F.col(ROW)]
            if self._work.tracks_rows:
                carried += [F.col(ROW_ID), F.lit(None).cast("bigint").alias(ROW_VERSION)]
        values = {}
        for position, item in enumerate(self._schema):
            value = self._value(position, item)
            if value is not None:
                values[item.name] = value
        return rows.filled(rows_with_clause, values, self._work.snapshot, carried)

    def ambiguity(self) -> str:
        """The message for a target row that several source rows change, with that row."""
        matched = [
            index
            for index, clause in enumerate(self._statement.clauses)
            if isinstance(clause, MatchedUpdate | MatchedDelete)
        ]
        row = F.struct(*[F.col(f"__t{i}").alias(n) for i, n in enumerate(self._schema.names)])
        example = (
            self._with_clause()
            .where(F.col(_CLAUSE).isin(matched))
            .groupBy(FILE, ROW)
            .agg(F.count(F.lit(1)).alias("n"), F.first(F.to_json(row)).alias("row"))
            .where("n > 1")
            .limit(1)
            .collect()
        )
        found = example[0]["row"] if example else "(the source gave other rows when read again)"
        number = example[0]["n"] if example else "several"
        return (
            f"MERGE INTO {self._work.snapshot.table}: {number} source rows match the target row "
            f"{found}, and it isn't clear which one counts; make the source unique by the "
            "columns of the ON condition. Nothing was written"
        )

    def _with_clause(self) -> DataFrame:
        joined = self._joined()
        clause: Column = F.lit(None).cast("int")
        for index in reversed(range(len(self._clauses))):
            prepared = self._clauses[index]
            clause = F.when(prepared.holds, F.lit(index)).otherwise(clause)
        return joined.withColumn(_CLAUSE, clause).where(F.col(_CLAUSE).isNotNull())

    def _joined(self) -> DataFrame:
        kinds = {type(clause) for clause in self._statement.clauses}
        on = self._work.column_of(self._statement.on)
        if self._inserts_only:
            return self._source.join(self._target, on, "left_anti")
        inserts = NotMatchedInsert in kinds
        by_source = bool(kinds & {BySourceUpdate, BySourceDelete})
        how = {
            (False, False): "inner",
            (True, False): "right_outer",
            (False, True): "left_outer",
            (True, True): "full_outer",
        }[inserts, by_source]
        return self._target.join(self._source, on, how)

    def _value(self, position: int, item: Field) -> Column | None:
        """A column's value by clause; None where it is generated for every row."""
        generated = rows.GENERATION_EXPRESSION in item.metadata
        value: Column | None = None
        for index, clause in enumerate(self._statement.clauses):
            if isinstance(clause, MatchedDelete | BySourceDelete):
                continue
            given = self._clauses[index].values.get(item.name)
            if given is None and generated:
                continue
            if given is None:
                inserts = isinstance(clause, NotMatchedInsert)
                given = rows.default_value(item) if inserts else F.col(f"__t{position}")
            condition = F.col(_CLAUSE) == index
            value = F.when(condition, given) if value is None else value.when(condition, given)
        if value is None and not generated:
            return null_of(item)
        return value

    def _prepared(self, clause: MergeClause) -> _Prepared:
        """The clause's condition and values as columns of the join."""
        present = F.lit(True)
        if not self._inserts_only:
            in_target, in_source = F.col(FILE).isNotNull(), F.col(_FROM_SOURCE).isNotNull()
            if isinstance(clause, MatchedUpdate | MatchedDelete):
                present = in_target & in_source
            else:
                present = ~in_target if isinstance(clause, NotMatchedInsert) else ~in_source
        holds = present
        if clause.condition is not None:
            ((condition, _),) = self._resolve([clause.condition], clause)
            holds = present & condition
        if isinstance(clause, MatchedDelete | BySourceDelete):
            return _Prepared(holds, {})
        if clause.assignments is STAR or isinstance(clause.assignments, Star):
            return _Prepared(holds, self._star(clause))
        return _Prepared(holds, self._explicit(clause, clause.assignments))

    def _star(self, clause: MergeClause) -> dict[str, Column]:
        values = {}
        evolves = self._statement.schema_evolution
        for item in self._schema:
            found = self._source_schema.find(item.name)
            if found is None:
                if not evolves and rows.GENERATION_EXPRESSION not in item.metadata:
                    raise InvalidRequest(
                        f"MERGE INTO {self._work.snapshot.table}: the source has no column "
                        f"{item.name!r}, which `*` needs; it has "
                        f"{', '.join(self._source_schema.names)}"
                    )
                continue
            place = self._source_schema.names.index(found.name)
            values[item.name] = rows.storable(
                F.col(f"__s{place}"), found.type, item, self._work.snapshot
            )
        return values

    def _explicit(
        self, clause: MergeClause, assignments: tuple[Assignment, ...]
    ) -> dict[str, Column]:
        alias = self._statement.target_alias
        assigned = resolve_assignments(self._work, assignments, alias)
        expressions = [
            value
            for entries in assigned.values()
            for _, value in entries
            if not isinstance(value, Default)
        ]
        resolved = self._resolve(expressions, clause)
        by_identity = {
            id(expression): found for expression, found in zip(expressions, resolved, strict=True)
        }
        values = {}
        for position, item in enumerate(self._schema):
            if item.name in assigned:
                inserts = isinstance(clause, NotMatchedInsert)
                current = null_of(item) if inserts else F.col(f"__t{position}")
                values[item.name] = assigned_value(
                    self._work, item, current, assigned[item.name], by_identity
                )
        return values

    def _resolve(
        self, expressions: list[Expression], clause: MergeClause
    ) -> list[tuple[Column, DataType]]:
        """The expressions as columns of the join, with their types.

        A clause for rows without a match sees only one side: a name that both sides have means that
        side's column, so it is computed there, before the join.
        """
        if not expressions:
            return []
        columns = [self._work.column_of(expression) for expression in expressions]
        aliased = [column.alias(f"c{i}") for i, column in enumerate(columns)]
        if isinstance(clause, MatchedUpdate | MatchedDelete):
            schema = delta_schema(self._both().select(*aliased).schema)
            return list(zip(columns, [item.type for item in schema], strict=True))
        from_source = isinstance(clause, NotMatchedInsert)
        side = self._source if from_source else self._target
        schema = delta_schema(side.select(*aliased).schema)
        if not self._inserts_only:
            columns = [self._told_apart(column, from_source) for column in columns]
        return list(zip(columns, [item.type for item in schema], strict=True))

    def _told_apart(self, column: Column, from_source: bool) -> Column:
        try:
            self._both().select(column)
        except AnalysisException as error:
            if "AMBIGUOUS" not in (error.getCondition() or ""):
                raise
        else:
            return column
        side = self._source if from_source else self._target
        name = f"__x{len(side.columns)}"
        if from_source:
            self._source = side.select("*", column.alias(name))
        else:
            self._target = side.select("*", column.alias(name))
        return F.col(name)

    def _both(self) -> DataFrame:
        return self._target.join(self._source, F.lit(True), "inner")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A clause as columns: when it holds, and the values that it gives."""

    holds: Column
    values: dict[str, Column]


def _is_unique(name: str, schema: Struct) -> bool:
    return sum(other.lower() == name.lower() for other in schema.names) == 1


def _counts(written: Written, distinct: int) -> dict[str, int]:
    by = written.actions
    deleted_by_source = by.get(DELETE_BY_SOURCE, 0)
    updated_matched, updated_by_source = by.get(UPDATE, 0), by.get(UPDATE_BY_SOURCE, 0)
    # A lone unconditional DELETE may meet a row more than once; it is deleted once.
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
