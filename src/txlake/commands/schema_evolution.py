"""Schema changes by writes, staged before the rows in the same transaction."""

from __future__ import annotations

from txlake.commands.tables import environment_of
from txlake.commit.change import Change
from txlake.commit.data_plane import TableData
from txlake.ddl.schema_evolution import schema_actions
from txlake.protocol.schema_change import merge_schemas
from txlake.protocol.type_widening import FEATURES, Widens, is_evolution, is_same_in_files
from txlake.protocol.types import Struct
from txlake.session.context import Context
from txlake.session.engine import Handle


def merge_schema(
    context: Context,
    handle: Handle,
    work: TableData,
    incoming: Struct,
    operation: str = "WRITE",
    *,
    widens: Widens = is_same_in_files,
) -> TableData:
    """Stage the addition of the rows' new columns. Return the work on the changed table.

    `operation`: for the history. `widens`: which columns get the rows' wider type where the table
    has no type widening.
    """
    schema = merge_schemas(
        work.snapshot.schema,
        incoming,
        widens=is_evolution if work.snapshot.properties.type_widening else widens,
        is_recorded=not FEATURES.isdisjoint(work.snapshot.features),
    )
    return replace_schema(context, handle, work, schema, None, operation)


def replace_schema(
    context: Context,
    handle: Handle,
    work: TableData,
    schema: Struct,
    partition_columns: tuple[str, ...] | None,
    operation: str = "WRITE",
) -> TableData:
    """Stage a new schema. Return the work on the changed table.

    `partition_columns`: None for the table's own.
    """
    actions = schema_actions(
        work.snapshot, schema, environment_of(context), partition_columns=partition_columns
    )
    if not actions:
        return work
    # The history states the number of rows written with the columns, here none.
    change = Change(operation=operation, actions=actions, metrics={"numOutputRows": 0})
    context.transaction.stage(handle, change)
    return context.work(handle)
