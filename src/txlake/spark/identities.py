"""Rows get the values of identity columns: from this process where it holds them, or from tasks.

A statement's values are drawn once and used by one job: for rows that are counted so many, for
others a block, of which each task has parts of its own, by its number and that of its row. Of a
task that runs twice the files of one run count. What a job doesn't use of the block is given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.identity import LONG_MAX, IdentityColumn, identity_columns, identity_of
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field
from txlake.spark.rows import depends_on_values, targets_by_position
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema
from txlake.spark.writing import Written
from txlake.transaction.data_plane import Placement
from txlake.transaction.identities import Drawn

# A task's rows get consecutive values by so many, then go on behind the other tasks' ones.
_ROWS_BITS = 20
_TASKS_BITS = 16
_BLOCK = 2**44
# Spark numbers rows by the task's number, and the row's in these last bits.
_SPARK_ROW_BITS = 33


class IdentityValues:
    """The values that one statement gives in identity columns."""

    def __init__(self, work: TableAccess) -> None:
        self._work = work
        self._snapshot = work.snapshot
        self._drawn: dict[str, Drawn] = {}
        self._marks: dict[str, int] = {}
        self._blocks: dict[str, Column] = {}
        self.columns = identity_columns(self._snapshot.schema, self._snapshot.table)

    def missing(self, given: Collection[str]) -> tuple[IdentityColumn, ...]:
        """The identity columns that aren't among these names, in any letter case."""
        folded = {name.lower() for name in given}
        return tuple(one for one in self.columns if one.name.lower() not in folded)

    # Rows that are counted

    def values(self, column: IdentityColumn, count: int) -> Sequence[int]:
        """So many values, for rows that this process holds."""
        if not count:
            return ()
        drawn = self._draw(column, at_least=count, at_most=count)
        self._marks[column.name] = drawn.last
        return range(drawn.first, drawn.last + (1 if column.step > 0 else -1), column.step)

    def with_identity_columns(self, rows: pa.Table) -> pa.Table:
        """The rows, whose columns have the table's names, with the identity columns they lack."""
        refuse_explicit_values(self._snapshot, rows.column_names)
        for column in self.missing(rows.column_names):
            values = pa.array(self.values(column, rows.num_rows), pa.int64())
            rows = rows.append_column(column.name, values)
        return rows

    # Rows that Spark counts

    def block(self, item: Field) -> Column:
        """A value for each row in which it is evaluated, within one job."""
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
        """Rows that this process took from Spark, with consecutive values in place of a block's.

        As they are where a column was computed from these, or they were checked: a value that takes
        their place might not pass. Columns have the table's names.
        """
        found = list(parts)
        if not (self._blocks and found) or depends_on_values(self._snapshot):
            return found
        for name in self._blocks:
            drawn = self._drawn[name]
            held = np.concatenate(
                [np.asarray(part.column(name).to_numpy(), dtype=np.int64) for part in found]
            )
            order = np.argsort(held, kind="stable")
            ranks = np.empty(len(held), dtype=np.int64)
            ranks[order if drawn.column.step > 0 else order[::-1]] = np.arange(len(held))
            values, start = drawn.first + ranks * drawn.column.step, 0
            for place, part in enumerate(found):
                own = pa.array(values[start : start + part.num_rows], pa.int64())
                start += part.num_rows
                found[place] = part.set_column(part.column_names.index(name), name, own)
        return found

    def renumbered_table(self, rows: pa.Table) -> pa.Table:
        """As `dense`, of rows in one part."""
        return self.renumbered([rows])[0]

    # The end

    def with_marks(self, written: Written) -> Written:
        """What was written, with the last values that were given there."""
        for name in self._blocks:
            mark = self._mark_of(self._drawn[name], written.adds)
            if mark is not None:
                self._marks[name] = mark
        marks = {
            one.physical_name: self._marks[one.name]
            for one in self.columns
            if one.name in self._marks
        }
        return replace(written, identity_marks=marks) if marks else written

    def give_back(self) -> None:
        """Gives back what wasn't used of the blocks."""
        for name in self._blocks:
            self._work.identities.give_back(
                self._snapshot.metadata.id, self._drawn[name], self._marks.get(name)
            )

    def _draw(self, column: IdentityColumn, *, at_least: int, at_most: int) -> Drawn:
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

    def _mark_of(self, drawn: Drawn, adds: Sequence[Add]) -> int | None:
        """The last value of the block that is in these files; None where none is.

        A file may also hold values that were there before, or were given by hand: these raise the
        mark as far as they are in the block.
        """
        column, reached = drawn.column, None
        for add in adds:
            value = self._furthest(column, add)
            if value is not None:
                reached = column.further(reached, value)
        if reached is None or (reached - drawn.first) * column.step < 0:
            return None
        place = -((drawn.first - reached) // column.step)
        return drawn.value(min(place, drawn.count - 1))

    def _furthest(self, column: IdentityColumn, add: Add) -> int | None:
        """A file's value that is furthest in the column's steps; None where it has none."""
        statistics = FileStatistics.from_json(add.stats)
        bounds = statistics.max_values if column.step > 0 else statistics.min_values
        with_marks = bounds.get(column.physical_name)
        if isinstance(with_marks, int):
            return with_marks
        footer, found = self._work.footer(add), None
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for place in range(group.num_columns):
                chunk = group.column(place)
                if chunk.path_in_schema != column.physical_name:
                    continue
                if chunk.statistics is None or not chunk.statistics.has_min_max:
                    continue
                own = chunk.statistics.max if column.step > 0 else chunk.statistics.min
                found = column.further(found, int(own))
        return found


@contextmanager
def identity_values(work: TableAccess) -> Iterator[IdentityValues]:
    """The values that a statement gives; what wasn't used is given back at the end."""
    generation = IdentityValues(work)
    try:
        yield generation
    finally:
        generation.give_back()


def supplied_columns(frame: DataFrame, snapshot: Snapshot, placement: Placement) -> list[str]:
    """The names of the columns that get values of the rows. Raises as `rows.by_position`."""
    if placement.by_name:
        return list(frame.columns)
    targets = targets_by_position(delta_schema(frame.schema), snapshot, placement.columns)
    return [item.name for item in targets]


def refuse_explicit_values(snapshot: Snapshot, names: Collection[str]) -> None:
    """Raises InvalidRequest for a column among these whose values are always generated."""
    folded = {name.lower() for name in names}
    for one in identity_columns(snapshot.schema, snapshot.table):
        if not one.allows_explicit and one.name.lower() in folded:
            raise InvalidRequest(
                f"{snapshot.table}: [DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED] column "
                f"{one.name!r} is GENERATED ALWAYS AS IDENTITY: it takes no "
                "values; leave the column out of the rows, and name the others, or say DEFAULT. "
                "A column GENERATED BY DEFAULT AS IDENTITY takes them. Nothing was written"
            )


def next_value(snapshot: Snapshot, item: Field) -> Column:
    """The first value that an identity column's next row may get, which isn't drawn."""
    column = identity_of(item, snapshot.table)
    assert column is not None
    return F.lit(column.after(column.mark)).cast("bigint")


def refuse_assignment(snapshot: Snapshot, names: Collection[str]) -> None:
    """Raises InvalidRequest where an identity column is among those that a statement assigns."""
    folded = {name.lower() for name in names}
    for one in identity_columns(snapshot.schema, snapshot.table):
        if one.name.lower() in folded:
            raise InvalidRequest(
                f"{snapshot.table}: [DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED] column "
                f"{one.name!r} is an identity column, whose values can't be "
                "changed; leave it out of SET, or delete the row and insert another"
            )


def _block_value(drawn: Drawn) -> Column:
    """A row's value: by its task's number, and its own in the task."""
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


def _stepped(drawn: Drawn, place: Column) -> Column:
    """The value at a place, without a bigint that overflows on the way there."""
    step = F.lit(drawn.column.step)
    if (drawn.count - 1) * abs(drawn.column.step) <= LONG_MAX:
        return F.lit(drawn.first) + place * step
    half = F.shiftright(place, 1) * step
    return F.lit(drawn.first) + half + half + place.bitwiseAND(F.lit(1)) * step


def _no_room(drawn: Drawn) -> str:
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
