"""A table's schema grows or is replaced by the rows that are written to it.

Owns the schema actions of writes; `table_metadata` makes them whole.
"""

from __future__ import annotations

import msgspec

from txlake.ddl.environment import Environment
from txlake.ddl.stored_expressions import check_dependents
from txlake.ddl.table_metadata import changed
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action
from txlake.protocol.schema_change import widened_paths
from txlake.protocol.types import Struct, schema_to_string


def schema_actions(
    snapshot: Snapshot,
    schema: Struct,
    environment: Environment,
    *,
    partition_columns: tuple[str, ...] | None = None,
) -> tuple[Action, ...]:
    """The actions that give the table this schema; none when it has it already.

    With `partition_columns` the table is replaced, without it grows.

    Raises InvalidRequest for a schema that no table can have, or a column that grows wider under a
    constraint or generated column, UnsupportedFeature for a type that txlake doesn't write.
    """
    if partition_columns is None:
        constraints = snapshot.properties.constraints
        for path in widened_paths(snapshot.schema, schema):
            check_dependents(snapshot.schema, constraints, path, "change its type")
    partitions = snapshot.partition_columns if partition_columns is None else partition_columns
    if schema == snapshot.schema and partitions == snapshot.partition_columns:
        return ()
    metadata = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=schema_to_string(schema),
        partition_columns=partitions,
    )
    return changed(snapshot, metadata, environment)
