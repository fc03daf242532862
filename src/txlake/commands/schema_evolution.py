"""A write changes the table's schema before its rows are written, in the same transaction."""

from __future__ import annotations

from txlake.commands.tables import environment_of
from txlake.ddl.schema_evolution import schema_actions
from txlake.protocol.schema_change import merge_schemas
from txlake.protocol.type_widening import FEATURES, Widens, is_evolution, is_same_in_files
from txlake.protocol.types import Struct
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.transaction.change import Change
from txlake.transaction.data_plane import TableData


def grown(
    context: Context,
    handle: Handle,
    work: TableData,
    incoming: Struct,
    operation: str = "WRITE",
    *,
    widens: Widens = is_same_in_files,
) -> TableData:
    """The work on the table with the rows' new columns added, for the history by an operation.

    `widens` says which columns become as wide as the rows' where the table has no type widening.
    """
    schema = merge_schemas(
        work.snapshot.schema,
        incoming,
        widens=is_evolution if work.snapshot.properties.type_widening else widens,
        is_recorded=not FEATURES.isdisjoint(work.snapshot.features),
    )
    return with_schema(context, handle, work, schema, None, operation)


def with_schema(
    context: Context,
    handle: Handle,
    work: TableData,
    schema: Struct,
    partition_columns: tuple[str, ...] | None,
    operation: str = "WRITE",
) -> TableData:
    """The work on the table with this schema and these partition columns, None for its own."""
    actions = schema_actions(
        work.snapshot, schema, environment_of(context), partition_columns=partition_columns
    )
    if not actions:
        return work
    # The history tells how many rows came with the columns, though they be none.
    change = Change(operation=operation, actions=actions, metrics={"numOutputRows": 0})
    context.transaction.stage(handle, change)
    return context.work(handle)
