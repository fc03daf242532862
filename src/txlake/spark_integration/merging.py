"""`df.mergeInto(name, condition)` in an enabled session.

The table's name qualifies its columns (`t.id` or `db.t.id`), which is optional for a name that no
column of the rows has; the alias of `df.alias` qualifies the columns of the rows. As in PySpark,
the writer collects clauses, so calls needn't be chained, and a text is a column's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.lake.tables.errors import ArgumentTypeRefused, ArgumentValueRefused, refusal
from txlake.lake.tables.expressions import assignments_of
from txlake.lake.tables.merge import DeltaMergeBuilder, MergeTarget
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, NameKind
from txlake.spark_integration.overrides import with_overrides
from txlake.spark_integration.table_references import parse_table
from txlake.sql.statements import (
    STAR,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    MatchedDelete,
    MatchedUpdate,
    MergeClause,
    NativeColumn,
    NotMatchedInsert,
    Table,
    TableName,
)

if TYPE_CHECKING:
    from pyspark.sql.merge import MergeIntoWriter as _Writer
else:
    _Writer = object


class LakeMergeIntoWriter(_Writer):
    """A MERGE into a table of the lake; made by `merge_writer`."""

    _lake_binding: LakeBinding
    _lake_table: Table
    _lake_rows: DataFrame
    _lake_on: NativeColumn
    _lake_clauses: list[MergeClause]
    _lake_schema_evolution: bool

    def whenMatched(self, condition: Any = None) -> Any:
        """Begin a clause for a table row that a source row matches."""
        return WhenMatched(self, condition)

    def whenNotMatched(self, condition: Any = None) -> Any:
        """Begin a clause for a source row that matches no table row."""
        return WhenNotMatched(self, condition)

    def whenNotMatchedBySource(self, condition: Any = None) -> Any:
        """Begin a clause for a table row that no source row matches."""
        return WhenNotMatchedBySource(self, condition)

    def withSchemaEvolution(self) -> Any:
        """Add the source's new columns to the table, where the clauses assign them."""
        self._lake_schema_evolution = True
        return self

    @with_spark_errors
    def merge(self) -> None:
        """Carry out the MERGE.

        Raises an AnalysisException without a clause and for a view, and as
        `DeltaMergeBuilder.execute`.
        """
        binding, table = self._lake_binding, self._lake_table
        with binding.fail_on_error():
            if not self._lake_clauses:
                raise refusal(
                    "NO_MERGE_ACTION_SPECIFIED",
                    f"mergeInto of {table} has no action: add whenMatched(), whenNotMatched() or "
                    "whenNotMatchedBySource(), and what is to be done, before merge()",
                )
            if binding.kind_of(table) is NameKind.VIEW:
                raise refusal(
                    "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table"
                )
            names = binding.full_name(table)
            builder = DeltaMergeBuilder(
                MergeTarget(
                    executor=binding.session, table=table, alias=names[-1], names=names, scope=()
                ),
                self._lake_rows,
                self._lake_on,
                tuple(self._lake_clauses),
                self._lake_schema_evolution,
            )
            builder.execute()

    def _lake_add_clause(self, clause: MergeClause) -> Any:
        self._lake_clauses.append(clause)
        return self


class _When:
    """A clause without its action; the methods that add the action return the writer."""

    def __init__(self, writer: LakeMergeIntoWriter, condition: object) -> None:
        self.writer = writer
        self._condition = None if condition is None else _column(condition, "condition")


class WhenMatched(_When):
    """`whenMatched(...)`."""

    def updateAll(self) -> Any:
        """Update every column from the source column of the same name."""
        clause = MatchedUpdate(assignments=STAR, condition=self._condition)
        return self.writer._lake_add_clause(clause)

    def update(self, assignments: Mapping[str, Column | str]) -> Any:
        """Update the given columns."""
        clause = MatchedUpdate(
            assignments=_assignments(assignments, "update"), condition=self._condition
        )
        return self.writer._lake_add_clause(clause)

    def delete(self) -> Any:
        """Delete the row."""
        return self.writer._lake_add_clause(MatchedDelete(condition=self._condition))


class WhenNotMatched(_When):
    """`whenNotMatched(...)`."""

    def insertAll(self) -> Any:
        """Insert the source row, each column under its own name."""
        clause = NotMatchedInsert(assignments=STAR, condition=self._condition)
        return self.writer._lake_add_clause(clause)

    def insert(self, assignments: Mapping[str, Column | str]) -> Any:
        """Insert a row of the given values."""
        clause = NotMatchedInsert(
            assignments=_assignments(assignments, "insert"), condition=self._condition
        )
        return self.writer._lake_add_clause(clause)


class WhenNotMatchedBySource(_When):
    """`whenNotMatchedBySource(...)`."""

    @with_spark_errors
    def updateAll(self) -> Any:
        """Raise ArgumentValueRefused, as Delta Spark does: there is no source row."""
        raise ArgumentValueRefused(
            "whenNotMatchedBySource().updateAll() has no row to take values from: name the "
            "columns, update({column: value})"
        )

    def update(self, assignments: Mapping[str, Column | str]) -> Any:
        """Update the given columns."""
        clause = BySourceUpdate(
            assignments=_assignments(assignments, "update"), condition=self._condition
        )
        return self.writer._lake_add_clause(clause)

    def delete(self) -> Any:
        """Delete the row."""
        return self.writer._lake_add_clause(BySourceDelete(condition=self._condition))


@with_spark_errors
def merge_writer(
    binding: LakeBinding, rows: DataFrame, plain: Callable[..., Any], name: str, condition: Any
) -> Any:
    """Return a writer of the MERGE: the lake's for its tables, Spark's own for others.

    Raises an AnalysisException for a name that neither has, a TypeError for a condition that is
    neither a Column nor a text.
    """
    table = parse_table(name)
    if binding.kind_of(table) is None:
        if isinstance(table, TableName) and not binding.spark_has(table):
            raise binding.not_found(table)
        return plain(binding.spark_name(name), condition)
    return with_overrides(
        plain(name, condition),
        LakeMergeIntoWriter,
        _lake_binding=binding,
        _lake_table=table,
        _lake_rows=rows,
        _lake_on=_column(condition, "condition"),
        _lake_clauses=[],
        _lake_schema_evolution=False,
    )


def _column(value: object, argument: str) -> NativeColumn:
    """Return a Column as it is, and a text as the column of that name.

    Raises ArgumentTypeRefused, a TypeError, for other types. `argument` names it in the message.
    """
    if isinstance(value, Column):
        return NativeColumn(value)
    if isinstance(value, str):
        return NativeColumn(F.col(value))
    raise ArgumentTypeRefused(
        f"{argument} of mergeInto must be a Column, as F.expr('t.id = s.id') makes one, found "
        f"{value!r} of type {type(value).__name__}"
    )


def _assignments(values: Mapping[str, Column | str], method: str) -> tuple[Assignment, ...]:
    """Return the assignments of a clause, in which a text is a column's name.

    Raises a ValueError without any, and as `assignments_of`.
    """
    if not values:
        raise ArgumentValueRefused(
            f"{method}() of mergeInto has no columns: give {{column: value}}, or use {method}All()"
        )
    columns = {
        name: F.col(value) if isinstance(value, str) else value for name, value in values.items()
    }
    return assignments_of(columns, (), f"the argument of {method}()")
