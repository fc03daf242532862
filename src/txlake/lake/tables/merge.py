"""`DeltaMergeBuilder`: collects the clauses of a MERGE, one call at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from txlake.lake.tables.errors import raises_delta_spark_errors, refusal
from txlake.lake.tables.executor import Executor
from txlake.lake.tables.expressions import (
    ColumnMapping,
    Parts,
    assignments_of,
    condition_of,
    resolve_assignments,
)
from txlake.sql.references import Scope
from txlake.sql.statements import (
    STAR,
    BySourceDelete,
    BySourceUpdate,
    Expression,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NativeFrame,
    NotMatchedInsert,
    Table,
)

_CLAUSE_KINDS: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("MATCHED", "MATCHED", (MatchedUpdate, MatchedDelete)),
    ("NOT MATCHED", "NOT_MATCHED_BY_TARGET", (NotMatchedInsert,)),
    ("NOT MATCHED BY SOURCE", "NOT_MATCHED_BY_SOURCE", (BySourceUpdate, BySourceDelete)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """The target table of a MERGE, and how expressions name it.

    Attributes:
        alias: the qualifier of its columns; None for no qualifier.
        names: its full name, whose last part is the alias; () for none.
        scope: full names that expressions may use.
    """

    executor: Executor
    table: Table
    alias: str | None
    names: Parts
    scope: Scope


class DeltaMergeBuilder:
    """MERGE of a DataFrame into a table, made by `DeltaTable.merge`.

    Each call returns a new builder with one more clause. Of the clauses of one kind
    (`whenMatched...`, `whenNotMatched...`, `whenNotMatchedBySource...`) a row takes the first whose
    condition holds; only the last clause of a kind may have no condition. `set` and `values` map
    the table's columns to SQL texts or PySpark columns.
    """

    def __init__(
        self,
        target: MergeTarget,
        source: DataFrame,
        condition: Expression,
        clauses: tuple[MergeClause, ...] = (),
        schema_evolution: bool = False,
    ) -> None:
        self._target = target
        self._source = source
        self._condition = condition
        self._clauses = clauses
        self._schema_evolution = schema_evolution

    @raises_delta_spark_errors
    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Update the columns in `set` of target rows that a source row matches.

        Raises a ValueError without `set`, a TypeError for keys or values of another type, a
        ParseException for an empty text or one that ends within a quotation.
        """
        assigned = assignments_of(set, self._target.scope, "'set' in whenMatchedUpdate")
        return self._with_clause(
            MatchedUpdate(assignments=assigned, condition=self._condition_of(condition))
        )

    @raises_delta_spark_errors
    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Update every column from the source's column of the same name.

        Raises a TypeError for a condition that is neither text nor Column, a ParseException for an
        empty text or one that ends within a quotation.
        """
        return self._with_clause(
            MatchedUpdate(assignments=STAR, condition=self._condition_of(condition))
        )

    @raises_delta_spark_errors
    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete target rows that a source row matches. Raises as `whenMatchedUpdateAll`."""
        return self._with_clause(MatchedDelete(condition=self._condition_of(condition)))

    @raises_delta_spark_errors
    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row of `values` for each source row that matches no target row.

        Raises as `whenMatchedUpdate`.
        """
        assigned = assignments_of(values, self._target.scope, "'values' in whenNotMatchedInsert")
        return self._with_clause(
            NotMatchedInsert(assignments=assigned, condition=self._condition_of(condition))
        )

    @raises_delta_spark_errors
    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Insert each source row that matches no target row, each column under its own name.

        Raises as `whenMatchedUpdateAll`.
        """
        return self._with_clause(
            NotMatchedInsert(assignments=STAR, condition=self._condition_of(condition))
        )

    @raises_delta_spark_errors
    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Update target rows that no source row matches; only the table's columns may be named.

        Raises as `whenMatchedUpdate`.
        """
        assigned = assignments_of(set, self._target.scope, "'set' in whenNotMatchedBySourceUpdate")
        return self._with_clause(
            BySourceUpdate(assignments=assigned, condition=self._condition_of(condition))
        )

    @raises_delta_spark_errors
    def whenNotMatchedBySourceDelete(
        self, condition: str | Column | None = None
    ) -> DeltaMergeBuilder:
        """Delete target rows that no source row matches. Raises as `whenMatchedUpdateAll`."""
        return self._with_clause(BySourceDelete(condition=self._condition_of(condition)))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the source's new columns to the table, if the clauses assign them."""
        return DeltaMergeBuilder(self._target, self._source, self._condition, self._clauses, True)

    @raises_delta_spark_errors
    def execute(self) -> DataFrame:
        """Carry out the MERGE.

        Returns one row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows.

        Raises an AnalysisException without a clause, for a clause that could never apply, a text
        that is no expression, a column that doesn't exist or is assigned twice, a target row that
        several source rows change, and rows that violate a constraint; a Conflict with a concurrent
        commit; an UnsupportedOperationException for a table that txlake doesn't write.
        """
        _check_clauses(self._clauses)
        target = self._target
        return target.executor.execute(
            Merge(
                target=target.table,
                target_alias=target.alias,
                target_owners=target.names[:-1],
                source=NativeFrame(self._source),
                on=self._condition,
                clauses=tuple(map(self._resolve_columns, self._clauses)),
                schema_evolution=self._schema_evolution,
            )
        )

    def _condition_of(self, condition: str | Column | None) -> Expression | None:
        return condition_of(condition, self._target.scope)

    def _with_clause(self, clause: MergeClause) -> DeltaMergeBuilder:
        """Return a new builder with one more clause."""
        clauses = (*self._clauses, clause)
        return DeltaMergeBuilder(
            self._target, self._source, self._condition, clauses, self._schema_evolution
        )

    def _resolve_columns(self, clause: MergeClause) -> MergeClause:
        """Return a clause whose assigned columns are without the target's own name.

        Raises an AnalysisException for a column that is assigned twice.
        """
        if isinstance(clause, MatchedDelete | BySourceDelete) or clause.assignments is STAR:
            return clause
        assert isinstance(clause.assignments, tuple)
        target = self._target
        columns = target.executor.snapshot(target.table).schema.names
        return replace(
            clause, assignments=resolve_assignments(clause.assignments, target.names, columns)
        )


def _check_clauses(clauses: tuple[MergeClause, ...]) -> None:
    """Raise an AnalysisException without a clause, and for a clause that could never apply."""
    if not clauses:
        raise refusal(
            "DELTA_MERGE_MISSING_WHEN",
            "a MERGE without a WHEN clause does nothing: add at least one, such as "
            "whenMatchedUpdateAll()",
        )
    for kind, condition_kind, classes in _CLAUSE_KINDS:
        same_kind = [clause for clause in clauses if isinstance(clause, classes)]
        if any(clause.condition is None for clause in same_kind[:-1]):
            raise refusal(
                f"NON_LAST_{condition_kind}_CLAUSE_OMIT_CONDITION",
                f"of the {len(same_kind)} WHEN {kind} clauses only the last may have no condition: "
                "those after it could never apply",
            )
