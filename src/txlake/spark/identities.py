"""Values of identity columns for a statement's rows, given by the driver or by Spark's tasks.

A statement draws its values once, for one job. Rows that the driver counts get exactly that many
values. Rows that Spark counts get a block, of which each row uses a part by its task's number and
its own. If a task runs twice, the files of one run count. The rest of a block that the job doesn't
use is given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.commit.data_plane import Placement
from txlake.commit.identities import IdentityRange
from txlake.errors import InvalidRequest
from txlake.local.rules import depends_on_values
from txlake.local.writing import WriteResult
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.identity import LONG_MAX, IdentityColumn, identity_columns, identity_of
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field
from txlake.spark.rows import targets_by_position
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema

# A task's rows get runs of 2 ** _ROWS_BITS consecutive values; the tasks' runs alternate.
_ROWS_BITS = 20
_TASKS_BITS = 16
_BLOCK = 2**44
# monotonically_increasing_id: the task's number, then the row's number in these last bits.
_SPARK_ROW_BITS = 33


class IdentityValues:
    """The values that one statement gives in identity columns.

    Attributes:
        columns: the table's identity columns.
    """

    def __init__(self, work: TableAccess) -> None:
        self._work = work
        self._snapshot = work.snapshot
        self._drawn: dict[str, IdentityRange] = {}
        self._marks: dict[str, int] = {}
        self._blocks: dict[str, Column] = {}
        self.columns = identity_columns(self._snapshot.schema, self._snapshot.table)

    def missing(self, names: Collection[str]) -> tuple[IdentityColumn, ...]:
        """Return the identity columns that aren't among these names, in any letter case."""
        folded = {name.lower() for name in names}
        return tuple(column for column in self.columns if column.name.lower() not in folded)

    # Rows that the driver counts

    def values(self, column: IdentityColumn, count: int) -> Sequence[int]:
        """Return `count` values in their order, drawn now, for rows that the driver holds.

        A statement draws a column's values once. Raises InvalidRequest if BIGINT has too few left.
        """
        if not count:
            return ()
        drawn = self._draw(column, at_least=count, at_most=count)
        self._marks[column.name] = drawn.last
        return range(drawn.first, drawn.last + (1 if column.step > 0 else -1), column.step)

    def with_identity_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows, named as the table's columns, with the missing identity columns at the
        end.

        Raises InvalidRequest for values in a GENERATED ALWAYS column.
        """
        refuse_explicit_values(self._snapshot, rows.column_names)
        for column in self.missing(rows.column_names):
            values = pa.array(self.values(column, rows.num_rows), pa.int64())
            rows = rows.append_column(column.name, values)
        return rows

    # Rows that Spark counts

    def block(self, item: Field) -> Column:
        """Return an expression that gives a value to each row of one job, drawing a block at the
        first call.

        The values are distinct, with gaps. The job fails if the block is too small.
        """
        column = identity_of(item, self._snapshot.table)
        assert column is not None
        if column.name not in self._blocks:
            drawn = self._draw(column, at_least=1, at_most=_BLOCK)
            self._blocks[column.name] = _block_value(drawn)
        return self._blocks[column.name]

    @property
    def has_blocks(self) -> bool:
        """Whether Spark's tasks give values."""
        return bool(self._blocks)

    def renumbered(self, parts: Sequence[pa.Table]) -> list[pa.Table]:
        """Return the tables, collected from Spark, with consecutive values instead of a block's.

        They stay as they are where a column was computed from the values, or they were checked: a
        replacement might not pass. Columns have the table's names.
        """
        result = list(parts)
        if not (self._blocks and result) or depends_on_values(self._snapshot):
            return result
        for name in self._blocks:
            drawn = self._drawn[name]
            values_drawn = np.concatenate(
                [np.asarray(part.column(name).to_numpy(), dtype=np.int64) for part in result]
            )
            order = np.argsort(values_drawn, kind="stable")
            ranks = np.empty(len(values_drawn), dtype=np.int64)
            ranks[order if drawn.column.step > 0 else order[::-1]] = np.arange(len(values_drawn))
            values, start = drawn.first + ranks * drawn.column.step, 0
            for place, part in enumerate(result):
                own = pa.array(values[start : start + part.num_rows], pa.int64())
                start += part.num_rows
                result[place] = part.set_column(part.column_names.index(name), name, own)
        return result

    def renumbered_table(self, rows: pa.Table) -> pa.Table:
        """Return one table, collected from Spark, with consecutive values where `renumbered` gives
        them.
        """
        return self.renumbered([rows])[0]

    # After writing

    def with_marks(self, written: WriteResult) -> WriteResult:
        """Return what was written, with the last values given there (the high-water marks), if any.

        May read the footers of the new files.
        """
        for name in self._blocks:
            mark = self._mark_of(self._drawn[name], written.adds)
            if mark is not None:
                self._marks[name] = mark
        marks = {
            column.physical_name: self._marks[column.name]
            for column in self.columns
            if column.name in self._marks
        }
        return replace(written, identity_marks=marks) if marks else written

    def give_back(self) -> None:
        """Give back the unused part of the blocks."""
        for name in self._blocks:
            self._work.identities.give_back(
                self._snapshot.metadata.id, self._drawn[name], self._marks.get(name)
            )

    def _draw(self, column: IdentityColumn, *, at_least: int, at_most: int) -> IdentityRange:
        """Draw a column's values from the table's source, and remember them. A second draw is a
        fault.
        """
        assert column.name not in self._drawn, "a statement draws a column's values once"
        drawn = self._work.identities.draw(
            self._snapshot.table,
            self._snapshot.metadata.id,
            column,
            at_least=at_least,
            at_most=at_most,
        )
        self._drawn[column.name] = drawn
        return drawn

    def _mark_of(self, drawn: IdentityRange, adds: Sequence[Add]) -> int | None:
        """Return the last value of the block in these files; None where there is none.

        A file may also hold values that existed before or were given explicitly: they raise the
        mark as far as they are in the block.
        """
        column, furthest = drawn.column, None
        for add in adds:
            value = self._furthest(column, add)
            if value is not None:
                furthest = column.later_mark(furthest, value)
        if furthest is None or (furthest - drawn.first) * column.step < 0:
            return None
        place = -((drawn.first - furthest) // column.step)
        return drawn.value(min(place, drawn.count - 1))

    def _furthest(self, column: IdentityColumn, add: Add) -> int | None:
        """Return a file's value furthest in the step's direction, by its statistics or its footer;
        None without one.
        """
        statistics = FileStatistics.from_json(add.stats)
        bounds = statistics.max_values if column.step > 0 else statistics.min_values
        bound = bounds.get(column.physical_name)
        if isinstance(bound, int):
            return bound
        footer, furthest = self._work.footer(add), None
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for place in range(group.num_columns):
                chunk = group.column(place)
                if chunk.path_in_schema != column.physical_name:
                    continue
                if chunk.statistics is None or not chunk.statistics.has_min_max:
                    continue
                chunk_bound = chunk.statistics.max if column.step > 0 else chunk.statistics.min
                furthest = column.later_mark(furthest, int(chunk_bound))
        return furthest


@contextmanager
def identity_values(work: TableAccess) -> Iterator[IdentityValues]:
    """Yield the values that a statement gives; the unused ones are given back at the end."""
    generation = IdentityValues(work)
    try:
        yield generation
    finally:
        generation.give_back()


def supplied_columns(frame: DataFrame, snapshot: Snapshot, placement: Placement) -> list[str]:
    """Return the names of the columns that the rows have values for.

    By name these are the frame's own names, whether or not the table has them. Raises as
    `rows.by_position`.
    """
    if placement.by_name:
        return list(frame.columns)
    targets = targets_by_position(delta_schema(frame.schema), snapshot, placement.columns)
    return [item.name for item in targets]


def refuse_explicit_values(snapshot: Snapshot, names: Collection[str]) -> None:
    """Raise InvalidRequest if a GENERATED ALWAYS column is among these names, in any
    letter case.
    """
    folded = {name.lower() for name in names}
    for column in identity_columns(snapshot.schema, snapshot.table):
        if not column.allows_explicit and column.name.lower() in folded:
            raise InvalidRequest(
                f"{snapshot.table}: [DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED] column "
                f"{column.name!r} is GENERATED ALWAYS AS IDENTITY: it takes no "
                "values; leave the column out of the rows, and name the others, or say DEFAULT. "
                "A column GENERATED BY DEFAULT AS IDENTITY takes them. Nothing was written"
            )


def next_value(snapshot: Snapshot, item: Field) -> Column:
    """Return the first value that an identity column's next row may get, without drawing it."""
    column = identity_of(item, snapshot.table)
    assert column is not None
    return F.lit(column.next_value(column.mark)).cast("bigint")


def refuse_assignment(snapshot: Snapshot, names: Collection[str]) -> None:
    """Raise InvalidRequest if an identity column is among the assigned names, in any
    letter case.
    """
    folded = {name.lower() for name in names}
    for column in identity_columns(snapshot.schema, snapshot.table):
        if column.name.lower() in folded:
            raise InvalidRequest(
                f"{snapshot.table}: [DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED] column "
                f"{column.name!r} is an identity column, whose values can't be "
                "changed; leave it out of SET, or delete the row and insert another"
            )


def _block_value(drawn: IdentityRange) -> Column:
    """Return a row's value by its task's number, and its own number in the task.

    It fails the job when the value is outside of the block.
    """
    number = F.monotonically_increasing_id()
    row = number.bitwiseAND(F.lit(2**_SPARK_ROW_BITS - 1))
    task = F.shiftright(number, _SPARK_ROW_BITS)
    place = (
        F.shiftright(row, _ROWS_BITS) * F.lit(2 ** (_ROWS_BITS + _TASKS_BITS))
        + task * F.lit(2**_ROWS_BITS)
        + row.bitwiseAND(F.lit(2**_ROWS_BITS - 1))
    )
    fits = (task < F.lit(2**_TASKS_BITS)) & (place < F.lit(drawn.count))
    value = _stepped(drawn, place)
    refused = F.raise_error(F.lit(_no_room(drawn))).cast("bigint")
    return F.when(fits, value).otherwise(refused)


def _stepped(drawn: IdentityRange, place: Column) -> Column:
    """Return the value at a place, without overflow of a bigint on the way."""
    step = F.lit(drawn.column.step)
    if (drawn.count - 1) * abs(drawn.column.step) <= LONG_MAX:
        return F.lit(drawn.first) + place * step
    half = F.shiftright(place, 1) * step
    return F.lit(drawn.first) + half + half + place.bitwiseAND(F.lit(1)) * step


def _no_room(drawn: IdentityRange) -> str:
    """Return the message for a row whose value is outside of the block."""
    column = drawn.column
    if drawn.count == _BLOCK:
        return (
            f"identity column {column.name!r}: expected at most {2**_TASKS_BITS} tasks of "
            f"{_BLOCK >> _TASKS_BITS} rows; repartition the rows"
        )
    return (
        f"identity column {column.name!r} (START WITH {column.start} INCREMENT BY {column.step}) "
        f"is exhausted: {drawn.count} values are left within BIGINT for a query's rows, and "
        "Spark's tasks leave gaps; write the rows in smaller parts, or to a new table with a "
        "smaller step"
    )
