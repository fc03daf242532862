"""CREATE, ALTER and CLONE where they look at rows or copy files, as `commands.tables` does it.

Owns what the engine would give to Spark, or to other threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from tests.simulation.rows import changes, queries
from tests.simulation.rows.context import RowContext
from tests.simulation.rows.scopes import Name, Scope
from txlake.commands import tables
from txlake.commands.clone import Copy, clone
from txlake.ddl.alter import alter
from txlake.ddl.create import check_same_definition, create
from txlake.ddl.environment import Environment
from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Struct
from txlake.session.engine import Handle
from txlake.spark.inserts import Placement
from txlake.statements import (
    AlterStatement,
    Clone,
    CreateTable,
    TableName,
)
from txlake.transaction.change import Change


def environment_of(context: RowContext, handle: Handle | None = None) -> Environment:
    return replace(
        tables.environment_of(context),
        violating_row=partial(_violating_row, context, handle) if handle else tables._no_row,
        type_of=_type_of,
    )


def _violating_row(
    context: RowContext, handle: Handle | None, condition: str
) -> Mapping[str, object] | None:
    assert handle is not None
    work = context.work(handle)
    frame: Any = work.scan(work.snapshot.select(None))
    holds = queries.condition(condition, Scope(frame.alias(work.name or "").found.names), {})
    for row in frame.found.rows:
        if not holds(row):
            return dict(zip(work.snapshot.schema.names, row, strict=False))
    return None


def _type_of(text: str, schema: Struct) -> DataType:
    names = tuple(Name(item.name, item.type) for item in schema)
    return queries.expression(text, Scope(names), {}).type


def create_table(context: RowContext, statement: CreateTable) -> None:
    """As `tables.create_table`."""
    handle = tables.place(context, statement.table, statement.location)
    existing = tables._existing(context, handle)
    managed = isinstance(statement.table, TableName) and statement.location is None
    unnamed = handle.entry is None and isinstance(statement.table, TableName)
    if existing is not None and unnamed and statement.mode in ("create", "if_not_exists"):
        if statement.query is not None:
            raise InvalidRequest(f"{statement.table}: {handle.store.url} holds a table already")
        check_same_definition(statement, existing, environment_of(context))
        tables.adopted(context, handle, managed=managed)
        return
    handle = tables.adopted(context, handle, managed=managed)
    found = None
    if statement.query is not None:
        frame: Any = context.query(statement.query)
        found = frame.found
    change = create(
        statement,
        existing,
        environment_of(context),
        query_schema=None if found is None else found.schema,
        managed=managed,
    )
    if change is None:
        return
    context.transaction.stage(handle, change)
    if found is not None:
        written = changes.insert(context.work(handle), found, Placement(by_name=True))
        context.transaction.stage(
            handle,
            Change(
                operation=change.operation,
                parameters=change.parameters,
                actions=written.actions,
                metrics=written.metrics,
            ),
        )
    tables.register(context, handle, change.operation)


def alter_table(context: RowContext, statement: AlterStatement) -> None:
    """As `tables.alter_table`."""
    handle = context.require(statement.table)
    change = alter(statement, context.snapshot(handle), environment_of(context, handle))
    context.transaction.stage(handle, change)


def clone_table(context: RowContext, statement: Clone) -> Mapping[str, int]:
    """As `tables.clone_table`, one file after the other."""
    origin = context.require(statement.source)
    handle = tables.place(context, statement.table, statement.location)

    def copy(copies: Sequence[Copy]) -> None:
        handle.store.ensure_safe()
        for one in copies:
            folder, _, name = one.source.rpartition("/")
            handle.store.put(one.target, context.engine.store_at(folder).get(unquote(name)))

    change = clone(
        statement,
        context.snapshot(origin, statement.travel),
        tables._existing(context, handle),
        environment_of(context),
        origin=context.engine.reach(origin),
        target_url=handle.store.url,
        share=partial(context.engine.share, handle),
        copy=copy,
    )
    if change is None:
        return {}
    context.transaction.stage(handle, change)
    tables.register(context, handle, change.operation)
    return change.affected
