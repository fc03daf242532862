"""Statements that change rows, from statement to staged change, as `session.data` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tests.simulation.rows import changes, merging, queries
from tests.simulation.rows.definitions import environment_of
from tests.simulation.rows.engine import RowContext
from tests.simulation.rows.scopes import Name, Rows
from txlake.errors import InvalidRequest
from txlake.protocol.types import from_arrow_schema
from txlake.session import data as of_data
from txlake.session import upkeep
from txlake.session.dispatch import Answer
from txlake.session.engine import Handle
from txlake.session.evolution import schema_actions
from txlake.session.growth import grown
from txlake.spark import held
from txlake.spark.inserts import Placement
from txlake.spark.rows import unknown_column
from txlake.spark.work import Work
from txlake.statements import (
    Delete,
    Insert,
    Merge,
    NativeFrame,
    NotMatchedInsert,
    Optimize,
    PartitionValue,
    Query,
    Reorg,
    Source,
    SqlText,
    Truncate,
    Update,
    Values,
)
from txlake.transaction.change import Change


def _staged(context: RowContext, handle: Handle, change: Change) -> Mapping[str, int]:
    context.transaction.stage(handle, change)
    return change.affected


def delete(context: RowContext, statement: Delete) -> Mapping[str, int]:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    change = changes.delete(work, context.text_of, statement.condition, statement.alias)
    return _staged(context, handle, change)


def truncate(context: RowContext, statement: Truncate) -> None:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    deleted = changes.delete(work, context.text_of, None, None)
    _staged(context, handle, replace(deleted, operation="TRUNCATE", parameters={}))


def update(context: RowContext, statement: Update) -> Mapping[str, int]:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    change = changes.update(
        work, context.text_of, statement.assignments, statement.condition, statement.alias
    )
    return _staged(context, handle, change)


def merge(context: RowContext, statement: Merge) -> Mapping[str, int]:
    handle = context.require(statement.target)
    removes = any(not isinstance(clause, NotMatchedInsert) for clause in statement.clauses)
    work = context.work(handle, removes_rows=removes)
    source, _ = _source_rows(context, statement.source)
    environment = environment_of(context)
    evolve = partial(schema_actions, work.snapshot, environment=environment)
    change = merging.merge(work, context.text_of, statement, source, evolve)
    return _staged(context, handle, change)


def insert(context: RowContext, statement: Insert) -> Mapping[str, int]:
    handle = context.require(statement.table)
    replaces = statement.overwrite or statement.replace_where is not None
    work = context.work(handle, removes_rows=replaces)
    placement = Placement(by_name=statement.by_name, columns=statement.columns)
    if isinstance(statement.source, Values) and statement.partition is None:
        rows, placement = _values(work, statement.source, placement)
    else:
        rows, _ = _source_rows(context, statement.source)
        if statement.schema_evolution:
            work = grown(context, handle, work, rows.schema)
    condition = statement.replace_where
    dynamic = statement.overwrite and of_data._is_dynamic(context)
    if statement.partition is not None:
        rows, placement = _with_partition(work, rows, placement, statement.partition)
        static = [one for one in statement.partition if not one.dynamic]
        dynamic = dynamic or (statement.overwrite and not static)
        if statement.overwrite and static:
            condition = SqlText(" AND ".join(map(of_data._equals, static)))
        if statement.if_not_exists and of_data._has_rows(work, condition):
            return {"num_affected_rows": 0, "num_inserted_rows": 0}
    if condition is not None:
        change = changes.replace_where(work, context.text_of, rows, placement, condition)
    elif dynamic:
        change = changes.overwrite_partitions(work, rows, placement)
    elif statement.overwrite:
        change = changes.overwrite(work, rows, placement)
    else:
        change = changes.insert(work, rows, placement)
    return _staged(context, handle, change)


def _source_rows(context: RowContext, source: Source) -> tuple[Rows, bool]:
    """The rows of a statement's source, and whether they are constants."""
    match source:
        case Query(sql):
            frame: Any = context.query(sql)
            return frame.found, False
        case Values():
            names = [f"col{place}" for place in range(1, len(source.rows[0]) + 1)]
            return _constants(source, names), True
        case NativeFrame():
            raise AssertionError("frames aren't known here")


def _constants(source: Values, names: list[str]) -> Rows:
    table, defaults = held.table_of_values(source, names, lambda: "UTC")
    assert not defaults
    schema = from_arrow_schema(table.schema)
    columns = [column.to_pylist() for column in table.columns]
    kinds = tuple(Name(item.name, item.type) for item in schema)
    return Rows(kinds, list(zip(*columns, strict=True)))


def _values(work: Work, source: Values, placement: Placement) -> tuple[Rows, Placement]:
    """Constants as named columns."""
    snapshot = work.snapshot
    names = list(placement.columns or snapshot.schema.names)
    width = len(source.rows[0])
    if width != len(names):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(names)} values a row ({', '.join(names)}), "
            f"found {width}"
        )
    for name in names:
        if snapshot.schema.find(name) is None:
            raise unknown_column(name, snapshot)
    return _constants(source, names), Placement(by_name=True)


def _with_partition(
    work: Work, rows: Rows, placement: Placement, partition: tuple[PartitionValue, ...]
) -> tuple[Rows, Placement]:
    """The rows with the PARTITION clause's constants as columns; the source has the others."""
    snapshot = work.snapshot
    partitions = {name.lower() for name in snapshot.partition_columns}
    for one in partition:
        if one.column.lower() not in partitions:
            raise InvalidRequest(
                f"{snapshot.table}: PARTITION names {one.column!r}, which is no partition column"
            )
    named = {one.column.lower() for one in partition}
    rest = [name for name in snapshot.schema.names if name.lower() not in named]
    names = placement.columns or (*rest, *(one.column for one in partition if one.dynamic))
    if placement.by_name:
        names = tuple(one.name for one in rows.names)
    if len(names) != len(rows.names):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(names)} columns ({', '.join(names)}), "
            f"found {len(rows.names)}"
        )
    columns = [Name(name, one.type) for name, one in zip(names, rows.names, strict=True)]
    made = [tuple(row) for row in rows.rows]
    for one in partition:
        item = snapshot.schema.find(one.column)
        if item is None:
            raise unknown_column(one.column, snapshot)
        if one.dynamic:
            continue
        constant = _constants(Values(((one.value,),)), ["value"])
        source = constant.names[0].type
        value = queries.values.cast(source, item.type)(constant.rows[0][0])
        columns.append(Name(item.name, item.type))
        made = [(*row, value) for row in made]
    return Rows(tuple(columns), made), Placement(by_name=True)


def optimize(context: RowContext, statement: Optimize | Reorg) -> Answer:
    handle = context.require(statement.table)
    work = context.work(handle)
    if isinstance(statement, Optimize) and statement.zorder_by:
        change = changes.zorder(work, statement.zorder_by, statement.where)
    else:
        change = changes.compact(work, statement.where, purge=isinstance(statement, Reorg))
    _staged(context, handle, change)
    return upkeep.Optimized(handle, upkeep._considered(work, statement.where), change)
