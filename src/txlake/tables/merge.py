"""`DeltaMergeBuilder`: the clauses of a MERGE, collected one call at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from txlake.sql.references import Scope
from txlake.statements import (
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
from txlake.tables.errors import as_delta_spark, refused
from txlake.tables.executor import Executor
from txlake.tables.expressions import (
    ColumnMapping,
    Parts,
    assignments_of,
    condition_of,
    resolved,
)

_KINDS: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("MATCHED", "MATCHED", (MatchedUpdate, MatchedDelete)),
    ("NOT MATCHED", "NOT_MATCHED_BY_TARGET", (NotMatchedInsert,)),
    ("NOT MATCHED BY SOURCE", "NOT_MATCHED_BY_SOURCE", (BySourceUpdate, BySourceDelete)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that is changed, as its expressions name it.

    Attributes:
        alias: what qualifies its columns, None for nothing.
        names: its whole name, whose last part is the alias; () for nothing.
        scope: whole names that expressions may use.
    """

    executor: Executor
    table: Table
    alias: str | None
    names: Parts
    scope: Scope


class DeltaMergeBuilder:
    """MERGE of a DataFrame into a table; `DeltaTable.merge` makes it.

    A call adds a clause and gives a new builder. Of one kind (`whenMatched...`,
    `whenNotMatched...`, `whenNotMatchedBySource...`) the first clause whose condition holds is
    taken for a row; only the last one of a kind may go without a condition. `set` and `values`
    map the table's columns to SQL texts or PySpark columns.
    """

    def __init__(
        self,
        target: Target,
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

    @as_delta_spark
    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Updates the columns in `set` of a row that a source row matches.

        Raises a ValueError without `set`, a TypeError for keys or values of another type, a
        ParseException for an empty text or one that ends within a quotation.
        """
        assigned = assignments_of(set, self._target.scope, "'set' in whenMatchedUpdate")
        return self._with(
            MatchedUpdate(assignments=assigned, condition=self._condition_of(condition))
        )

    @as_delta_spark
    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Updates every column from the source's column of the same name.

        Raises a TypeError for a condition that is neither text nor Column, a ParseException for an
        empty text or one that ends within a quotation.
        """
        return self._with(MatchedUpdate(assignments=STAR, condition=self._condition_of(condition)))

    @as_delta_spark
    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Deletes a row that a source row matches. Raises as `whenMatchedUpdateAll`."""
        return self._with(MatchedDelete(condition=self._condition_of(condition)))

    @as_delta_spark
    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Inserts a row made of `values` for a source row that matches none.

        Raises as `whenMatchedUpdate`.
        """
        assigned = assignments_of(values, self._target.scope, "'values' in whenNotMatchedInsert")
        return self._with(
            NotMatchedInsert(assignments=assigned, condition=self._condition_of(condition))
        )

    @as_delta_spark
    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Inserts a source row that matches none, each column under its own name.

        Raises as `whenMatchedUpdateAll`.
        """
        return self._with(
            NotMatchedInsert(assignments=STAR, condition=self._condition_of(condition))
        )

    @as_delta_spark
    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Updates a row that no source row matches; only the table's columns may be named.

        Raises as `whenMatchedUpdate`.
        """
        assigned = assignments_of(set, self._target.scope, "'set' in whenNotMatchedBySourceUpdate")
        return self._with(
            BySourceUpdate(assignments=assigned, condition=self._condition_of(condition))
        )

    @as_delta_spark
    def whenNotMatchedBySourceDelete(
        self, condition: str | Column | None = None
    ) -> DeltaMergeBuilder:
        """Deletes a row that no source row matches. Raises as `whenMatchedUpdateAll`."""
        return self._with(BySourceDelete(condition=self._condition_of(condition)))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Adds the source's new columns to the table, where the clauses assign them."""
        return DeltaMergeBuilder(self._target, self._source, self._condition, self._clauses, True)

    @as_delta_spark
    def execute(self) -> DataFrame:
        """Carries the MERGE out.

        Returns one row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows.

        Raises an AnalysisException without a clause, for a clause that could never apply, a text
        that is no expression, a column that isn't there or is assigned twice, a target row that
        several source rows change, and rows that violate a constraint; a Conflict when a concurrent
        commit stands in the way; an UnsupportedOperationException for a table that txlake doesn't
        write.
        """
        _check(self._clauses)
        target = self._target
        return target.executor.execute(
            Merge(
                target=target.table,
                target_alias=target.alias,
                target_owners=target.names[:-1],
                source=NativeFrame(self._source),
                on=self._condition,
                clauses=tuple(map(self._resolved, self._clauses)),
                schema_evolution=self._schema_evolution,
            )
        )

    def _condition_of(self, condition: str | Column | None) -> Expression | None:
        return condition_of(condition, self._target.scope)

    def _with(self, clause: MergeClause) -> DeltaMergeBuilder:
        clauses = (*self._clauses, clause)
        return DeltaMergeBuilder(
            self._target, self._source, self._condition, clauses, self._schema_evolution
        )

    def _resolved(self, clause: MergeClause) -> MergeClause:
        if isinstance(clause, MatchedDelete | BySourceDelete) or clause.assignments is STAR:
            return clause
        assert isinstance(clause.assignments, tuple)
        target = self._target
        columns = target.executor.snapshot(target.table).schema.names
        return replace(clause, assignments=resolved(clause.assignments, target.names, columns))


def _check(clauses: tuple[MergeClause, ...]) -> None:
    if not clauses:
        raise refused(
            "DELTA_MERGE_MISSING_WHEN",
            "a MERGE without a WHEN clause does nothing: add at least one, such as "
            "whenMatchedUpdateAll()",
        )
    for words, condition, kinds in _KINDS:
        own = [clause for clause in clauses if isinstance(clause, kinds)]
        if any(clause.condition is None for clause in own[:-1]):
            raise refused(
                f"NON_LAST_{condition}_CLAUSE_OMIT_CONDITION",
                f"of the {len(own)} WHEN {words} clauses only the last may have no condition: "
                "those after it could never apply",
            )
