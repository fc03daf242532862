"""`df.mergeInto(name, condition)` in a session that was given to a lake.

Columns of the table have its name before them, `t.id` or `db.t.id`, or none where no column of the
rows has the same one; those of the rows the alias that `df.alias` gave. As in PySpark, a writer
keeps the clauses that it is given, so calls needn't be chained, and a text stands for a column's
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.spark_integration.door import Door, Meaning
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.fronts import fronted
from txlake.spark_integration.places import named
from txlake.statements import (
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
from txlake.tables.errors import ArgumentTypeRefused, ArgumentValueRefused, refused
from txlake.tables.expressions import assignments_of
from txlake.tables.merge import DeltaMergeBuilder, Target

if TYPE_CHECKING:
    from pyspark.sql.merge import MergeIntoWriter as _Writer
else:
    _Writer = object


class Merging(_Writer):
    """A MERGE whose target is the lake's; made by `merger`."""

    _lake_door: Door
    _lake_table: Table
    _lake_rows: DataFrame
    _lake_on: NativeColumn
    _lake_clauses: list[MergeClause]
    _lake_evolves: bool

    def whenMatched(self, condition: Any = None) -> Any:
        """What becomes of a row that one of the new rows matches."""
        return WhenMatched(self, condition)

    def whenNotMatched(self, condition: Any = None) -> Any:
        """What becomes of a new row that matches none of the table."""
        return WhenNotMatched(self, condition)

    def whenNotMatchedBySource(self, condition: Any = None) -> Any:
        """What becomes of a row that no new row matches."""
        return WhenNotMatchedBySource(self, condition)

    def withSchemaEvolution(self) -> Any:
        """Adds the rows' new columns to the table, where the clauses assign them."""
        self._lake_evolves = True
        return self

    @as_spark
    def merge(self) -> None:
        """Carries the MERGE out."""
        door, table = self._lake_door, self._lake_table
        with door.asked():
            if not self._lake_clauses:
                raise refused(
                    "NO_MERGE_ACTION_SPECIFIED",
                    f"mergeInto of {table} has no action: add whenMatched(), whenNotMatched() or "
                    "whenNotMatchedBySource(), and what is to be done, before merge()",
                )
            if door.meaning(table) is Meaning.VIEW:
                raise refused(
                    "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table"
                )
            names = door.full_name(table)
            builder = DeltaMergeBuilder(
                Target(executor=door.session, table=table, alias=names[-1], names=names, scope=()),
                self._lake_rows,
                self._lake_on,
                tuple(self._lake_clauses),
                self._lake_evolves,
            )
            builder.execute()

    def _lake_with(self, clause: MergeClause) -> Any:
        self._lake_clauses.append(clause)
        return self


class _When:
    """A condition that waits for its action; the action gives the writer."""

    def __init__(self, writer: Merging, condition: object) -> None:
        self.writer = writer
        self._condition = None if condition is None else _column(condition, "condition")


class WhenMatched(_When):
    """`whenMatched(...)`."""

    def updateAll(self) -> Any:
        """Updates every column from the new row's column of the same name."""
        clause = MatchedUpdate(assignments=STAR, condition=self._condition)
        return self.writer._lake_with(clause)

    def update(self, assignments: Mapping[str, Column | str]) -> Any:
        """Updates these columns."""
        clause = MatchedUpdate(
            assignments=_assigned(assignments, "update"), condition=self._condition
        )
        return self.writer._lake_with(clause)

    def delete(self) -> Any:
        """Deletes the row."""
        return self.writer._lake_with(MatchedDelete(condition=self._condition))


class WhenNotMatched(_When):
    """`whenNotMatched(...)`."""

    def insertAll(self) -> Any:
        """Inserts the row, each column under its own name."""
        clause = NotMatchedInsert(assignments=STAR, condition=self._condition)
        return self.writer._lake_with(clause)

    def insert(self, assignments: Mapping[str, Column | str]) -> Any:
        """Inserts a row of these values."""
        clause = NotMatchedInsert(
            assignments=_assigned(assignments, "insert"), condition=self._condition
        )
        return self.writer._lake_with(clause)


class WhenNotMatchedBySource(_When):
    """`whenNotMatchedBySource(...)`."""

    @as_spark
    def updateAll(self) -> Any:
        """Refused, as Delta Spark does: there is no new row that would have the values."""
        raise ArgumentValueRefused(
            "whenNotMatchedBySource().updateAll() has no row to take values from: name the "
            "columns, update({column: value})"
        )

    def update(self, assignments: Mapping[str, Column | str]) -> Any:
        """Updates these columns."""
        clause = BySourceUpdate(
            assignments=_assigned(assignments, "update"), condition=self._condition
        )
        return self.writer._lake_with(clause)

    def delete(self) -> Any:
        """Deletes the row."""
        return self.writer._lake_with(BySourceDelete(condition=self._condition))


@as_spark
def merger(
    door: Door, rows: DataFrame, plain: Callable[..., Any], name: str, condition: Any
) -> Any:
    """Spark's writer of a MERGE, with the lake's way out where the table is the lake's."""
    table = named(name)
    if door.meaning(table) is None:
        if isinstance(table, TableName) and not door.spark_has(table):
            raise door.unknown(table)
        return plain(door.for_spark(name), condition)
    return fronted(
        plain(name, condition),
        Merging,
        _lake_door=door,
        _lake_table=table,
        _lake_rows=rows,
        _lake_on=_column(condition, "condition"),
        _lake_clauses=[],
        _lake_evolves=False,
    )


def _column(value: object, argument: str) -> NativeColumn:
    if isinstance(value, Column):
        return NativeColumn(value)
    if isinstance(value, str):
        return NativeColumn(F.col(value))
    raise ArgumentTypeRefused(
        f"{argument} of mergeInto must be a Column, as F.expr('t.id = s.id') makes one, found "
        f"{value!r} of type {type(value).__name__}"
    )


def _assigned(given: Mapping[str, Column | str], method: str) -> tuple[Assignment, ...]:
    if not given:
        raise ArgumentValueRefused(
            f"{method}() of mergeInto has no columns: give {{column: value}}, or use {method}All()"
        )
    columns = {
        name: F.col(value) if isinstance(value, str) else value for name, value in given.items()
    }
    return assignments_of(columns, (), f"the argument of {method}()")
