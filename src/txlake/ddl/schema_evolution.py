"""Schema changes by writes: a table gets the rows' new columns, or their whole schema.

`table_metadata` completes the actions.
"""

from __future__ import annotations

import msgspec

from txlake.ddl.environment import Environment
from txlake.ddl.stored_expressions import check_dependents
from txlake.ddl.table_metadata import metadata_actions
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
    """Return the actions that give the table this schema; none when it has it already.

    With `partition_columns` the schema replaces the table's, without it extends the table's.

    Raises InvalidRequest for an invalid schema, and, where the schema extends the table's, for a
    column that a constraint or generated column uses and that would get a wider type;
    UnsupportedFeature for a type that txlake doesn't write.
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
    return metadata_actions(snapshot, metadata, environment)
