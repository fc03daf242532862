"""Statements that change rows, from statement to staged change, as `commands.data` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.rows import changes, merging, values
from tests.simulation.rows.context import RowContext
from tests.simulation.rows.definitions import environment_of
from tests.simulation.rows.scopes import Name, Rows
from txlake.commands import copy_into as copying
from txlake.commands import data as of_data
from txlake.commands import maintenance
from txlake.commands import tables as of_tables
from txlake.commands.schema_evolution import grown
from txlake.ddl.schema_evolution import schema_actions
from txlake.errors import InvalidRequest
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.types import from_arrow_schema
from txlake.session.command import Answer
from txlake.session.engine import Handle
from txlake.spark import local_rows
from txlake.spark.inserts import Placement
from txlake.spark.rows import unknown_column
from txlake.spark.table_access import TableAccess
from txlake.statements import (
    ComputedValues,
    CopyInto,
    Delete,
    Expression,
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
    Write,
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
    source = _source_rows(context, statement.source)
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
        rows = _source_rows(context, statement.source)
        if statement.schema_evolution:
            work = grown(context, handle, work, rows.schema)
    condition = statement.replace_where
    dynamic = statement.overwrite and of_data._is_dynamic(context)
    if statement.partition is not None:
        rows, placement = _with_partition(work, rows, placement, statement.partition)
        static = [one for one in statement.partition if not one.dynamic]
        named = SqlText(" AND ".join(map(of_data._equals, static))) if static else None
        if statement.if_not_exists and of_data._has_rows(work, named):
            return {"num_affected_rows": 0, "num_inserted_rows": 0}
        if statement.overwrite and not dynamic:
            condition = named
        dynamic = dynamic or (statement.overwrite and not static)
    change = _placed(context, work, rows, placement, condition, statement.overwrite, dynamic)
    return _staged(context, handle, change)


def _placed(
    context: RowContext,
    work: TableAccess,
    rows: Rows,
    placement: Placement,
    condition: Expression | None,
    overwrite: bool,
    dynamic: bool,
) -> Change:
    if condition is not None:
        return changes.replace_where(work, context.text_of, rows, placement, condition)
    if dynamic:
        return changes.overwrite_partitions(work, rows, placement)
    if overwrite:
        return changes.overwrite(work, rows, placement)
    return changes.insert(work, rows, placement)


def write(context: RowContext, statement: Write) -> Mapping[str, int]:
    """`lake.write` of rows that this process holds, creating the table where there is none."""
    nothing = {"num_affected_rows": 0, "num_inserted_rows": 0}
    table = local_rows.as_arrow(statement.source.frame)
    assert table is not None, "only rows that this process holds are known here"
    if context.find(statement.table) is None:
        of_data._make_database(context, statement)
    handle = of_tables.place(context, statement.table)
    exists = context.exists(handle)
    if exists and statement.mode == "ignore":
        return nothing
    if exists and statement.mode == "error":
        raise InvalidRequest(f"{statement.table} exists already")
    if exists:
        handle = of_tables.adopted(context, handle, managed=True)
    else:
        schema = as_table_schema(local_rows.schema_of(table))
        of_tables.create_from_rows(context, handle, statement, schema)
        of_tables.register(context, handle, "WRITE")
    if of_data._written_before(context, handle, statement):
        return nothing
    work = of_data._prepared(context, handle, statement, table, exists)
    change = _placed(
        context,
        work,
        _rows_of(table),
        Placement(by_name=True),
        statement.replace_where,
        statement.mode == "overwrite",
        statement.dynamic_partition_overwrite,
    )
    return _staged(context, handle, change)


def copy_into(context: RowContext, statement: CopyInto) -> Mapping[str, int]:
    """COPY INTO from Parquet files."""
    form = (statement.file_format, statement.select, statement.validate_rows)
    assert form == ("PARQUET", None, None), f"this COPY INTO isn't known here: {form}"
    handle = context.require(statement.table)
    new = copying._new_files(context, handle, statement)
    if not new:
        return {"num_affected_rows": 0, "num_inserted_rows": 0, "num_skipped_corrupt_files": 0}
    tables = []
    for url, _ in new:
        folder, _, name = url.rpartition("/")
        data = context.engine.store_at(folder).get(unquote(name))
        tables.append(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False))
    rows = _rows_of(pa.concat_tables(tables))
    work = context.work(handle)
    if copying._is_on(statement, "mergeSchema"):
        work = grown(context, handle, work, rows.schema)
    change = changes.insert(work, rows, copying._placement(statement))
    context.transaction.stage(handle, copying._with_files(context, change, new))
    return {**change.affected, "num_skipped_corrupt_files": 0}


def _source_rows(context: RowContext, source: Source) -> Rows:
    """The rows of a statement's source."""
    match source:
        case Query(sql):
            frame: Any = context.query(sql)
            found: Rows = frame.found
            return found
        case Values():
            names = [f"col{place}" for place in range(1, len(source.rows[0]) + 1)]
            return _constants(source, names)
        case NativeFrame(frame):
            table = local_rows.as_arrow(frame)
            assert table is not None, "only rows that this process holds are known here"
            return _rows_of(table)
        case ComputedValues():
            raise AssertionError("DEFAULT stands among constants alone here")


def _rows_of(table: pa.Table) -> Rows:
    columns = [column.to_pylist() for column in table.columns]
    names = tuple(Name(item.name, item.type) for item in from_arrow_schema(table.schema))
    return Rows(names, list(zip(*columns, strict=True)))


def _constants(source: Values, names: list[str]) -> Rows:
    table, defaults = local_rows.table_of_values(source, names, lambda: "UTC")
    assert not defaults
    return _rows_of(table)


def _values(work: TableAccess, source: Values, placement: Placement) -> tuple[Rows, Placement]:
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
    work: TableAccess, rows: Rows, placement: Placement, partition: tuple[PartitionValue, ...]
) -> tuple[Rows, Placement]:
    """The rows with the PARTITION clause's constants as columns; the source has the others."""
    snapshot = work.snapshot
    partitions = {name.lower() for name in snapshot.partition_columns}
    for one in partition:
        if one.column.lower() not in partitions:
            raise InvalidRequest(
                f"{snapshot.table}: PARTITION names {one.column!r}, which is no partition column"
            )
    static = {one.column.lower() for one in partition if not one.dynamic}
    rest = tuple(name for name in snapshot.schema.names if name.lower() not in static)
    names = placement.columns or rest
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
        value = values.cast(source, item.type)(constant.rows[0][0])
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
    return maintenance.Optimized(handle, maintenance._considered(work, statement.where), change)
