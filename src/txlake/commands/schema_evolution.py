"""Schema changes by writes, staged before the rows in the same transaction."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from txlake.commands.tables import environment_of
from txlake.commit.change import Change
from txlake.commit.data_plane import TableData
from txlake.ddl.alter import alter
from txlake.ddl.schema_evolution import schema_actions
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.clustering import clustered_by
from txlake.protocol.schema_change import as_table_schema, merge_schemas
from txlake.protocol.type_widening import (
    FEATURES,
    Widens,
    is_evolution,
    is_same_in_files,
)
from txlake.protocol.types import Struct
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import (
    SetProperties,
    Write,
)


def merge_schema(
    context: Context,
    handle: Handle,
    work: TableData,
    incoming: Struct,
    operation: str = "WRITE",
    *,
    widens: Widens = is_same_in_files,
) -> TableData:
    """Stage the addition of the rows' new columns, and of wider types. Return the work on the
    changed table.

    Nothing is staged if no column is new or gets a wider type. `operation`: for the history.
    `widens`: which columns get the rows' wider type in a table without type widening. Raises
    InvalidRequest for types that don't fit.
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

    Nothing is staged for the same schema. `partition_columns`: None for the table's own.
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


def with_evolved_schema(
    context: Context, handle: Handle, statement: Write, rows: DataFrame | pa.Table, exists: bool
) -> TableData:
    """Return the work on the table after its schema was changed as the write requests.

    Raises InvalidRequest for options that contradict each other or the table: replace_where without
    overwriting, other partition or clustering columns.
    """
    work = context.work(handle, removes_rows=exists and statement.mode == "overwrite")
    if not exists:
        return work
    if statement.replace_where is not None and statement.mode != "overwrite":
        raise InvalidRequest(
            f"{handle.name}: replace_where goes with mode='overwrite', found {statement.mode!r}"
        )
    if statement.batch is None:
        _require_same_clustering(statement, work.snapshot)
    if statement.overwrite_schema and statement.mode == "overwrite":
        if not statement.data_change:
            raise InvalidRequest(
                f"{handle.name}: overwriteSchema replaces the columns, and dataChange=false keeps "
                "the rows as they are; leave one of the two out"
            )
        if statement.replace_where is not None or statement.dynamic_partition_overwrite:
            raise InvalidRequest(
                f"{handle.name}: overwrite_schema replaces the whole table; leave out "
                "replace_where and dynamic partition overwrite"
            )
        schema = as_table_schema(context.plane.schema_of(rows))
        # As Delta Spark does: the partitioning goes with the schema, also to none.
        partitions = statement.partition_by or ()
        operation = "WRITE" if statement.batch is None else STREAMING
        work = replace_schema(context, handle, work, schema, partitions, operation)
        return _with_properties(context, handle, work, statement)
    partition_by = statement.partition_by
    if partition_by is not None and _lower_case(partition_by) != _lower_case(
        work.snapshot.partition_columns
    ):
        raise InvalidRequest(
            "[DELTA_METADATA_MISMATCH] "
            f"{handle.name}: partition_by={list(partition_by)} but the table is partitioned by "
            f"{list(work.snapshot.partition_columns)}; leave partition_by out, or overwrite with "
            "overwrite_schema=True"
        )
    if not statement.data_change:
        return work
    merges = statement.merge_schema
    if merges_schemas(context) if merges is None else merges:
        operation = "WRITE" if statement.batch is None else STREAMING
        return merge_schema(
            context, handle, work, context.plane.schema_of(rows), operation=operation
        )
    return work


def _require_same_clustering(statement: Write, snapshot: Snapshot) -> None:
    """Raise InvalidRequest for clustering columns that differ from the table's, in order too;
    passes without any.
    """
    cluster_by = statement.cluster_by
    if cluster_by is None:
        return
    paths = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    clustered = tuple(".".join(path) for path in paths)
    if _lower_case(cluster_by) != _lower_case(clustered):
        raise InvalidRequest(
            f"[DELTA_CLUSTERING_COLUMNS_MISMATCH] {snapshot.table}: clusterBy says "
            f"{', '.join(cluster_by)}, but the table is clustered by "
            f"{', '.join(clustered) or 'nothing'}; leave it out, or change the table's by "
            "ALTER TABLE ... CLUSTER BY"
        )


def _with_properties(
    context: Context, handle: Handle, work: TableData, statement: Write
) -> TableData:
    """Return the work on the table after the write's table properties were set."""
    if not statement.properties:
        return work
    set_properties = SetProperties(statement.table, statement.properties)
    change = alter(set_properties, work.snapshot, environment_of(context, handle))
    context.transaction.stage(handle, replace(change, operation="WRITE", parameters={}))
    return context.work(handle)


def _lower_case(names: tuple[str, ...]) -> list[str]:
    return [name.lower() for name in names]


STREAMING = "STREAMING UPDATE"


_AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


def merges_schemas(context: Context) -> bool:
    """Return whether Delta Spark's setting adds new columns without a clause that says so."""
    return context.plane.setting(_AUTO_MERGE, "false").lower() == "true"
