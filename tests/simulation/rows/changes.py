"""DELETE, UPDATE, INSERT and OPTIMIZE as changes of a table whose rows this process holds.

Owns which rows a statement affects, and their images. The reads, the candidate files and the
description of a change are planned by the engine, as with Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tests.simulation.rows import fitting, values
from tests.simulation.rows.expressions import parse_expression
from tests.simulation.rows.files import RowAccess, columns_of, live_rows, write_images, write_rows
from tests.simulation.rows.frames import RowFrame, frame_of_arrow
from tests.simulation.rows.queries import compiler
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope, TypedExpression
from txlake.commit.change import Change
from txlake.commit.data_plane import Placement
from txlake.commit.net_changes import ChangedRows, other_positions
from txlake.datafiles.write_task import INSERT
from txlake.errors import InvalidRequest
from txlake.local import compaction
from txlake.local.assignments import resolve_assignments
from txlake.local.caller_rows import values_table
from txlake.local.rules import GENERATION_EXPRESSION
from txlake.local.writing import Piece, WriteResult
from txlake.log.cubes import ClusteringPlan
from txlake.log.files import adds_of, live_row_count
from txlake.log.small_files import PackingLimits
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.log.time_zones import UTC_ZONE
from txlake.protocol.actions import Add, Cdc
from txlake.protocol.clustering import Cube, in_cube
from txlake.protocol.identity import IdentityColumn
from txlake.spark import dml, inserts, rearranging, row_rewrite, sorting
from txlake.spark.change_files import with_change_type
from txlake.spark.deletions import delete_positions, remove_files
from txlake.spark.identities import (
    IdentityValues,
    identity_values,
    refuse_assignment,
    refuse_explicit_values,
)
from txlake.spark.whole_partitions import files_of_partitions
from txlake.sql.constants import constant
from txlake.sql.cursor import Cursor
from txlake.sql.statements import (
    Assignment,
    ComputedValues,
    Default,
    Expression,
    Values,
    condition_text,
)
from txlake.sql.tokens import SourceText, tokenize


class RowExpressions:
    """A statement's expressions over the rows of a scope, which is the table's by default."""

    def __init__(
        self, work: RowAccess, alias: str | None = None, scope: Scope | None = None
    ) -> None:
        self._work = work
        self.scope = scope or Scope(columns_of(work, alias or work.name))

    def condition(self, one: Expression | None) -> Callable[[Row], bool]:
        """Return a function that evaluates a condition for a row; without a condition, it is
        always true.
        """
        if one is None:
            return lambda _: True
        column: Any = self._work.column_of(one)
        return compiler(self.scope, column.tables).condition(parse_expression(column.text))

    def value(self, one: Expression) -> TypedExpression:
        """Return an expression with its type."""
        column: Any = self._work.column_of(one)
        return compiler(self.scope, column.tables).typed(parse_expression(column.text))


def delete(work: RowAccess, condition: Expression | None, alias: str | None = None) -> Change:
    """Delete the rows that match the condition; all rows without one."""
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    whole, partly = dml._split(work, read.predicate, files)
    removed = remove_files(work, whole)
    replaced: dict[int, BitMap64] = {}
    if partly.num_rows:
        is_match = RowExpressions(work, alias).condition(condition)
        for ordinal, add in enumerate(adds_of(partly)):
            found = BitMap64(place for place, row in live_rows(work, add) if is_match(row))
            if found:
                replaced[ordinal] = found
    deletions = delete_positions(work, partly, replaced)
    count = sum(live_row_count(add) or 0 for add in whole) + _total(replaced)
    return dml.delete_change(condition, read, removed, deletions, count)


def update(
    work: RowAccess,
    assignments: tuple[Assignment, ...],
    condition: Expression | None,
    alias: str | None = None,
) -> Change:
    """Update the rows that match the condition; all rows without one."""
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    expressions = RowExpressions(work, alias)
    given = assigned_values(work, expressions, assignments, alias)
    refuse_assignment(work.snapshot, given)
    is_match = expressions.condition(condition)
    found: list[Row] = []
    places: list[tuple[int, int]] = []
    replaced: dict[int, BitMap64] = {}
    for ordinal, add in enumerate(adds_of(files)):
        for place, row in live_rows(work, add):
            if is_match(row):
                found.append(row)
                places.append((ordinal, place))
                replaced.setdefault(ordinal, BitMap64()).add(place)
    images = updated_rows(work, found, given)
    written = write_images(work, images, places)
    deletions = delete_positions(work, files, replaced)
    origins = dml.update_origins(files, written)
    return dml.update_change(condition, read, deletions, written.adds, len(found), origins)


def assigned_values(
    work: RowAccess,
    expressions: RowExpressions,
    assignments: tuple[Assignment, ...],
    alias: str | None,
) -> dict[str, fitting.Value]:
    """Return the new values of the columns in a SET clause."""
    given = {}
    for name, entries in resolve_assignments(work, assignments, alias).items():
        [(inner, value)] = entries
        assert inner == (), f"fields of structs aren't known here: {inner}"
        item = work.snapshot.schema.find(name)
        assert item is not None
        if isinstance(value, Default):
            given[name] = fitting.default_value(item)
        else:
            given[name] = fitting.to_column_value(expressions.value(value), item, work.snapshot)
    return given


def updated_rows(
    work: RowAccess, rows: Sequence[Row], given: Mapping[str, fitting.Value]
) -> list[Row]:
    """Return the rows with their new values; generated columns without one are computed again."""
    kept = {
        item.name: _taken(place)
        for place, item in enumerate(work.snapshot.schema)
        if GENERATION_EXPRESSION not in item.metadata
    }
    images = fitting.fill_columns(rows, {**kept, **given}, work.snapshot)
    fitting.check(images, work.snapshot, given)
    return keep_row_ids(work, rows, images)


def keep_row_ids(work: RowAccess, rows: Sequence[Row], images: Sequence[Row]) -> list[Row]:
    """Return the images of rows with the rows' ids, if the table tracks them."""
    if not work.tracks_rows:
        return list(images)
    place = len(work.snapshot.schema.fields)
    return [(*image, row[place], None) for row, image in zip(rows, images, strict=True)]


def _taken(place: int) -> fitting.Value:
    return lambda row: row[place]


def _total(replaced: Mapping[int, BitMap64]) -> int:
    return sum(map(len, replaced.values()))


def write_changes(work: RowAccess, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
    """Write change data files with these rows."""
    width = len(work.snapshot.schema.fields)
    rows = [
        (*row[:width], one.change_type)
        for one in changed
        for _, row in live_rows(work, one.file, other_positions(one.positions, one.count))
    ]
    snapshot = with_change_type(work.snapshot)
    adds = write_rows(replace(work, snapshot=snapshot), rows, change_data=True)
    return tuple(
        Cdc(path=add.path, partition_values=add.partition_values, size=add.size, data_change=False)
        for add in adds
    )


# INSERT


def append(work: RowAccess, new: Any, placement: Placement) -> Change:
    """Append rows."""
    return inserts.append_change(work, _written(work, new, placement))


def overwrite(work: RowAccess, new: Any, placement: Placement) -> Change:
    """Replace all rows."""
    return inserts.overwrite_change(work, _written(work, new, placement))


def overwrite_partitions(
    work: RowAccess, new: Any, placement: Placement, *, keep_null_partitions: bool = False
) -> Change:
    """Replace the partitions into which the rows fall."""
    if not work.snapshot.partition_columns:
        return overwrite(work, new, placement)
    written = _written(work, new, placement)
    return inserts.partition_overwrite_change(
        work, written, keep_null_partitions=keep_null_partitions
    )


def replace_where(work: RowAccess, new: Any, placement: Placement, condition: Expression) -> Change:
    """Replace the rows that match the condition. All new rows must match it."""
    is_match, text = RowExpressions(work).condition(condition), condition_text(condition)

    def matches(rows: Sequence[Row]) -> None:
        for row in rows:
            if not is_match(row):
                raise InvalidRequest(
                    f"{work.snapshot.table}: replace_where {text} is violated by the row {row}; "
                    "nothing was written"
                )

    written = _written(work, new, placement, matches)
    return inserts.replacement_change(work, written, delete(work, condition), text)


def to_frame(work: RowAccess, rows: Any, names: Sequence[str]) -> Any:
    """Return rows to write as a frame; those of VALUES get columns of these names."""
    assert not isinstance(rows, ComputedValues), "VALUES are constants here"
    if isinstance(rows, Values):
        inserts.check_named(work, rows, names)
        rows = _arrow_of(rows, names)
    return frame_of_arrow(rows) if isinstance(rows, pa.Table) else rows


def _arrow_of(cells: Values, names: Sequence[str]) -> pa.Table:
    """Return constants as a table with columns of these names."""
    table, defaults = values_table(cells, names, lambda: UTC_ZONE)
    assert not defaults, "DEFAULT isn't known here"
    return table


def with_constants(work: RowAccess, frame: Any, literals: Mapping[str, str]) -> Any:
    """Return the rows with a further column of one constant value for each of these columns."""
    found: Rows = frame.content
    for name, value in constants(work, literals).items():
        item = work.snapshot.schema.find(name)
        assert item is not None
        names = (*found.names, ColumnName(item.name, item.type))
        found = Rows(names, [(*row, value) for row in found.rows])
    return RowFrame(found)


def constants(work: RowAccess, literals: Mapping[str, str]) -> dict[str, Any]:
    """Return literals' values in the types of the table's columns, by the columns' names."""
    found = {}
    for name, literal in literals.items():
        item = work.snapshot.schema.find(name)
        if item is None:
            raise unknown_column(name, work.snapshot)
        source = SourceText(literal, literal)
        cells = Values(((constant(Cursor(source, tokenize(source))),),))
        constants = frame_of_arrow(_arrow_of(cells, ["value"])).content
        cast = values.cast(constants.names[0].type, item.type)
        found[item.name] = cast(constants.rows[0][0])
    return found


def _written(
    work: RowAccess,
    new: Any,
    placement: Placement,
    matches: Callable[[Sequence[Row]], None] | None = None,
) -> WriteResult:
    if isinstance(new, Values):
        new = to_frame(work, new, placement.columns or work.snapshot.schema.names)
        placement = Placement(by_name=True)
    frame = to_frame(work, new, ())
    rows, of_caller = fitting.place_columns(frame.content, work.snapshot, placement)
    with identity_values(work) as generation:
        refuse_explicit_values(work.snapshot, of_caller)
        rows = with_identities(rows, generation, generation.missing(of_caller), work.snapshot)
        fitting.check(rows, work.snapshot, of_caller)
        if matches is not None:
            matches(rows)
        adds = write_rows(work, rows)
        return generation.with_marks(
            WriteResult(adds=adds, actions={INSERT: len(rows)} if rows else {})
        )


def with_identities(
    rows: Sequence[Row],
    generation: IdentityValues,
    columns: Sequence[IdentityColumn],
    snapshot: Snapshot,
) -> list[Row]:
    """Return the rows with new values in these identity columns."""
    made = [list(row) for row in rows]
    for column in columns:
        place = snapshot.schema.names.index(column.name)
        for row, value in zip(made, generation.values(column, len(made)), strict=True):
            row[place] = value
    return [tuple(row) for row in made]


# OPTIMIZE


def compact(
    work: RowAccess,
    where: Expression | None = None,
    *,
    purge: bool = False,
    limits: PackingLimits | None = None,
) -> Change:
    """Compact small files and files with many deleted rows, as `local.compaction` chooses them."""
    sources: list[Add] = []
    outputs: list[Add] = []
    for one in compaction.choose_bins(
        work, files_of_partitions(work, where), purge=purge, limits=limits
    ):
        rows = [[row for _, row in live_rows(work, add)] for add in one.files]
        sources += one.files
        written = write_rows(work, [row for part in rows for row in part], data_change=False)
        taken = list(zip(one.files, map(len, rows), strict=True))
        outputs += [compaction.with_sources(add, taken) for add in written]
    return compaction.compaction_change(
        work,
        where,
        tuple(sources),
        tuple(outputs),
        purge=purge,
        is_automatic=limits is not None,
    )


def rewrite(work: RowAccess, files: pa.Table, onto: Snapshot) -> Change:
    """Rewrite the rows of these files as in a table with other metadata."""
    rows = [row for add in adds_of(files) for _, row in live_rows(work, add)]
    written = write_rows(replace(work, snapshot=onto), rows, data_change=False)
    return compaction.rewrite_change(work, files, written)


def rearranged(work: RowAccess, change: Change) -> Change:
    """Return the change as one that only moves rows, if it does."""
    before_files, after_files = rearranging.files_that_move(work, change)
    before, after = (
        Counter(repr(row) for add in adds_of(files) for _, row in live_rows(expressions, add))
        for expressions, files in ((work, before_files), (work.after(change.actions), after_files))
    )
    return rearranging.moving_rows(work, change, has_same_rows=before == after)


def zorder(work: RowAccess, columns: tuple[str, ...], where: Expression | None = None) -> Change:
    """Rewrite whole partitions with their rows sorted by the columns."""
    sorting.check_sorted_by(work, columns)
    candidates = adds_of(files_of_partitions(work, where))
    outputs = _sorted(work, candidates, columns)
    return sorting.zordered(work, columns, where, tuple(candidates), outputs)


def cluster(work: RowAccess, plan: ClusteringPlan) -> Change:
    """Rewrite the plan's files as cubes, sorted by the clustering columns."""
    outputs: list[Add] = []
    for files in plan.cubes:
        cube = Cube(work.system.new_id(), plan.names)
        written = _sorted(work, files, [name for (name,) in plan.columns])
        outputs += [in_cube(add, cube) for add in written]
    return sorting.clustered(work, plan, tuple(outputs))


def _sorted(work: RowAccess, files: Sequence[Add], columns: Sequence[str]) -> tuple[Add, ...]:
    """Write two sorted files for each partition, with row groups of two rows; return them."""
    scope = Scope(fitting.names_of(work.snapshot))
    by = [scope.find([name])[0] for name in columns]
    partition = [scope.find([name])[0] for name in work.snapshot.partition_columns]
    found = [
        (ordinal, place, row)
        for ordinal, add in enumerate(files)
        for place, row in live_rows(work, add)
    ]
    found.sort(key=lambda one: [(one[2][place] is not None, one[2][place]) for place in by])
    partitions: dict[tuple[object, ...], list[tuple[int, int, Row]]] = {}
    for one in found:
        partitions.setdefault(tuple(one[2][place] for place in partition), []).append(one)
    adds: list[Add] = []
    pieces: dict[str, tuple[Piece, ...]] = {}
    for members in partitions.values():
        middle = (len(members) + 1) // 2
        for half in filter(None, (members[:middle], members[middle:])):
            groups = [
                sorted(half[at : at + 2], key=lambda one: one[:2]) for at in range(0, len(half), 2)
            ]
            [add] = write_rows(work, [row for one in groups for *_, row in one], data_change=False)
            adds.append(add)
            pieces[add.path] = tuple(
                Piece(ordinal, BitMap64(place for _, place, _ in members_of_file))
                for one in groups
                for ordinal, members_of_file in groupby(one, key=itemgetter(0))
            )
    return row_rewrite.with_source_tags(work, files, WriteResult(adds=tuple(adds), pieces=pieces))
