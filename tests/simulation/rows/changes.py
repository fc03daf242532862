"""DELETE, UPDATE, INSERT and OPTIMIZE as changes of a table, of rows that this process holds.

Owns which rows a statement takes and what it makes of them. What a statement reads, which files it
looks at and how a change is described is the engine's own planning, as it is with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyroaring import BitMap64

from tests.simulation.rows import fitting
from tests.simulation.rows.expressions import parsed
from tests.simulation.rows.files import columns_of, live_rows, write_rows
from tests.simulation.rows.queries import compiler
from tests.simulation.rows.scopes import Row, Rows, Scope, Typed
from txlake.datafiles.vectors import load_vector
from txlake.datafiles.write_task import INSERT
from txlake.errors import InvalidRequest
from txlake.log.files import adds_of
from txlake.protocol.actions import Add
from txlake.spark import compact as compacting
from txlake.spark import deletions as deleting
from txlake.spark import dml, inserts
from txlake.spark.deletions import Deletions, remove_files
from txlake.spark.inserts import Placement
from txlake.spark.partitions import files_of_partitions
from txlake.spark.rows import GENERATION_EXPRESSION, unknown_column
from txlake.spark.scan import add_rows
from txlake.spark.table_access import TableAccess, condition_text
from txlake.spark.writing import Written
from txlake.statements import Assignment, Default, Expression
from txlake.transaction.change import Change, Read

Tables = Mapping[str, Rows]
Texts = Callable[[Expression], tuple[str, Tables]]
"""What a statement's expression is as text, and the rows of the tables that it names."""


class Seen:
    """The expressions of a statement on one table, over the table's rows."""

    def __init__(self, work: TableAccess, texts: Texts, alias: str | None) -> None:
        self._texts = texts
        self.scope = Scope(columns_of(work, alias or work.name))

    def condition(self, one: Expression | None) -> Callable[[Row], bool]:
        """Whether a condition is true of a row; of every one where there is none."""
        if one is None:
            return lambda _: True
        text, tables = self._texts(one)
        return compiler(self.scope, tables).condition(parsed(text))

    def value(self, one: Expression) -> Typed:
        """An expression's type and value."""
        text, tables = self._texts(one)
        return compiler(self.scope, tables).typed(parsed(text))


def delete(
    work: TableAccess, texts: Texts, condition: Expression | None, alias: str | None
) -> Change:
    """Deletes the rows for which the condition is true; all rows without one."""
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    whole, partly = dml._split(work, read.predicate, files)
    removed = remove_files(work, whole)
    replaced: dict[int, BitMap64] = {}
    if partly.num_rows:
        holds = Seen(work, texts, alias).condition(condition)
        for ordinal, add in enumerate(adds_of(partly)):
            found = BitMap64(place for place, row in live_rows(work, add) if holds(row))
            if found:
                replaced[ordinal] = found
    deletions = delete_positions(work, partly, replaced)
    count = sum(add_rows(add) or 0 for add in whole) + _total(replaced)
    return dml.deletion(condition, read, removed, deletions, count)


def update(
    work: TableAccess,
    texts: Texts,
    assignments: tuple[Assignment, ...],
    condition: Expression | None,
    alias: str | None,
) -> Change:
    """Changes the rows for which the condition is true; all rows without one."""
    read = work.read(condition, alias)
    files = work.snapshot.select(read.predicate)
    seen = Seen(work, texts, alias)
    given = assigned(work, seen, assignments, alias)
    holds = seen.condition(condition)
    found: list[Row] = []
    replaced: dict[int, BitMap64] = {}
    for ordinal, add in enumerate(adds_of(files)):
        for place, row in live_rows(work, add):
            if holds(row):
                found.append(row)
                replaced.setdefault(ordinal, BitMap64()).add(place)
    images = updated(work, found, given)
    adds = write_rows(work, images)
    deletions = delete_positions(work, files, replaced)
    return Change(
        operation="UPDATE",
        parameters={} if condition is None else {"predicate": [condition_text(condition)]},
        actions=(*deletions.actions, *adds),
        metrics={
            "numRemovedFiles": deletions.files_removed,
            "numRemovedBytes": deletions.bytes_removed,
            "numCopiedRows": deletions.rows_copied,
            "numUpdatedRows": len(found),
            "numDeletionVectorsAdded": deletions.vectors_added,
            "numDeletionVectorsRemoved": deletions.vectors_removed,
            "numDeletionVectorsUpdated": 0,
            "numAddedFiles": deletions.files_added + len(adds),
            "numAddedBytes": deletions.bytes_added + sum(add.size for add in adds),
            "numAddedChangeFiles": 0,
        },
        reads=(read,),
        affected={"num_affected_rows": len(found)},
    )


def assigned(
    work: TableAccess, seen: Seen, assignments: tuple[Assignment, ...], alias: str | None
) -> dict[str, fitting.Value]:
    """The new values of the columns that a SET clause names."""
    given = {}
    for name, entries in dml.resolve_assignments(work, assignments, alias).items():
        [(inner, value)] = entries
        assert inner == (), f"fields of structs aren't known here: {inner}"
        item = work.snapshot.schema.find(name)
        assert item is not None
        if isinstance(value, Default):
            given[name] = fitting.default_value(item)
        else:
            given[name] = fitting.storable(seen.value(value), item, work.snapshot)
    return given


def updated(
    work: TableAccess, rows: Sequence[Row], given: Mapping[str, fitting.Value]
) -> list[Row]:
    """The rows with their new values; generated columns that aren't given follow."""
    kept = {
        item.name: _taken(place)
        for place, item in enumerate(work.snapshot.schema)
        if GENERATION_EXPRESSION not in item.metadata
    }
    images = fitting.filled(rows, {**kept, **given}, work.snapshot)
    fitting.check(images, work.snapshot, given)
    return moved(work, rows, images)


def moved(work: TableAccess, rows: Sequence[Row], images: Sequence[Row]) -> list[Row]:
    """The new images of rows, which keep the rows' ids where the table tracks them."""
    if not work.tracks_rows:
        return list(images)
    place = len(work.snapshot.schema.fields)
    return [(*image, row[place], None) for row, image in zip(rows, images, strict=True)]


def _taken(place: int) -> fitting.Value:
    return lambda row: row[place]


# Deleted positions


def delete_positions(
    work: TableAccess, files: pa.Table, replaced: Mapping[int, BitMap64]
) -> Deletions:
    """Deletes rows by position; `replaced` has them by the files' ordinals.

    As `spark.deletions` does it, but that nothing is read or written by other threads.
    """
    every = adds_of(files)
    adds = {ordinal: every[ordinal] for ordinal in sorted(replaced)}
    if work.uses_vectors:
        adds = {ordinal: deleting._counted(work, add) for ordinal, add in adds.items()}
    deleted = {ordinal: replaced[ordinal] | _deleted(work, add) for ordinal, add in adds.items()}
    whole = [ordinal for ordinal, add in adds.items() if deleting._covers(add, deleted[ordinal])]
    partly = [ordinal for ordinal in adds if ordinal not in whole]
    removed = remove_files(work, [adds[ordinal] for ordinal in whole])
    if work.uses_vectors:
        rest = deleting._mark(work, files, adds, partly, deleted)
    else:
        rest = _rewritten(work, adds, partly, deleted)
    return replace(
        rest,
        actions=(*removed.actions, *rest.actions),
        files_removed=removed.files_removed + rest.files_removed,
        vectors_removed=removed.vectors_removed + rest.vectors_removed,
        bytes_removed=removed.bytes_removed + rest.bytes_removed,
    )


def _deleted(work: TableAccess, add: Add) -> BitMap64:
    if add.deletion_vector is None:
        return BitMap64()
    return load_vector(work.store, add.deletion_vector, work.elsewhere)


def _rewritten(
    work: TableAccess, adds: Mapping[int, Add], ordinals: list[int], deleted: Mapping[int, BitMap64]
) -> Deletions:
    """New files with the rows that are left."""
    left = [
        row
        for ordinal in ordinals
        for place, row in live_rows(work, adds[ordinal])
        if place not in deleted[ordinal]
    ]
    written = write_rows(work, left)
    now_ms = work.system.now_ms()
    removes = [adds[ordinal].removed(timestamp_ms=now_ms) for ordinal in ordinals]
    return Deletions(
        actions=(*removes, *written),
        files_removed=len(removes),
        files_added=len(written),
        vectors_removed=sum(adds[i].deletion_vector is not None for i in ordinals),
        rows_copied=len(left),
        bytes_removed=sum(adds[ordinal].size for ordinal in ordinals),
        bytes_added=sum(add.size for add in written),
    )


def _total(replaced: Mapping[int, BitMap64]) -> int:
    return sum(map(len, replaced.values()))


# INSERT


def insert(work: TableAccess, new: Rows, placement: Placement) -> Change:
    """Adds the rows."""
    return inserts._change(work, "Append", _written(work, new, placement), (), ())


def overwrite(work: TableAccess, new: Rows, placement: Placement) -> Change:
    """Replaces every row."""
    written = _written(work, new, placement)
    removed = remove_files(work, list(work.snapshot.files.adds()))
    return inserts._change(work, "Overwrite", written, removed.actions, (Read(),))


def overwrite_partitions(work: TableAccess, new: Rows, placement: Placement) -> Change:
    """Replaces the partitions that the rows fall into, and no others."""
    if not work.snapshot.partition_columns:
        return overwrite(work, new, placement)
    written = _written(work, new, placement)
    keys = {inserts._partition_key(add) for add in written.adds}
    replaced = [add for add in work.snapshot.files.adds() if inserts._partition_key(add) in keys]
    reads = tuple(
        Read(predicate=predicate, text="dynamic partition overwrite", files=False)
        for predicate in inserts._partition_predicates(work.snapshot, written.adds)
    )
    removed = remove_files(work, replaced)
    return inserts._change(work, "Overwrite", written, removed.actions, reads)


def replace_where(
    work: TableAccess, texts: Texts, new: Rows, placement: Placement, condition: Expression
) -> Change:
    """Replaces the rows for which the condition is true. All new rows must match it."""
    holds = Seen(work, texts, None).condition(condition)

    def matches(rows: Sequence[Row]) -> None:
        for row in rows:
            if not holds(row):
                raise InvalidRequest(
                    f"{work.snapshot.table}: replace_where {condition_text(condition)} is violated "
                    f"by the row {row}; nothing was written"
                )

    written = _written(work, new, placement, matches)
    deleted = delete(work, texts, condition, None)
    change = inserts._change(work, "Overwrite", written, deleted.actions, deleted.reads)
    return replace(
        change,
        parameters={**change.parameters, "predicate": condition_text(condition)},
        metrics={**deleted.metrics, **change.metrics},
    )


def _written(
    work: TableAccess,
    new: Rows,
    placement: Placement,
    matches: Callable[[Sequence[Row]], None] | None = None,
) -> Written:
    rows, given = fitting.placed(new, work.snapshot, placement)
    fitting.check(rows, work.snapshot, given)
    if matches is not None:
        matches(rows)
    return Written(adds=write_rows(work, rows), actions={INSERT: len(rows)} if rows else {})


# OPTIMIZE


def compact(work: TableAccess, where: Expression | None, *, purge: bool) -> Change:
    """Packs small files, and files with many deleted rows, as `spark.compact` chooses them."""
    candidates = adds_of(files_of_partitions(work, where))
    if purge:
        bins = [compacting.Bin((a,)) for a in candidates if a.deletion_vector is not None]
    else:
        bins = list(compacting.pack(candidates, compacting._target_bytes(work)))
    sources: list[Add] = []
    outputs: list[Add] = []
    for one in bins:
        rows = [[row for _, row in live_rows(work, add)] for add in one.files]
        sources += one.files
        written = write_rows(work, [row for part in rows for row in part], data_change=False)
        taken = list(zip(one.files, map(len, rows), strict=True))
        outputs += [compacting._with_sources(add, taken) for add in written]
    operation = "REORG" if purge else "OPTIMIZE"
    return compacting._change(work, operation, where, (), tuple(sources), tuple(outputs))


def zorder(work: TableAccess, columns: tuple[str, ...], where: Expression | None) -> Change:
    """Rewrites whole partitions with their rows sorted by the columns; in no recorded order."""
    scope = Scope(fitting.names_of(work.snapshot))
    for name in columns:
        item = work.snapshot.schema.find(name)
        if item is None:
            raise unknown_column(name, work.snapshot)
        if item.name in work.snapshot.partition_columns:
            raise InvalidRequest(f"{work.snapshot.table}: {item.name} is a partition column")
    places = [scope.find([name])[0] for name in columns]
    candidates = adds_of(files_of_partitions(work, where))
    rows = [row for add in candidates for _, row in live_rows(work, add)]
    rows.sort(key=lambda row: [(row[place] is not None, row[place]) for place in places])
    written = write_rows(work, rows, data_change=False)
    return compacting._change(work, "OPTIMIZE", where, columns, tuple(candidates), written)
