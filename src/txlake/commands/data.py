"""Commands that read and write rows: INSERT, DELETE, UPDATE, MERGE, TRUNCATE, writes of frames.

Each hands its statement's parts to the data plane and stages the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txlake.commands.catalog_managed import split_open_request
from txlake.commands.frame_reads import recording_frame_reads
from txlake.commands.idempotence import is_duplicate
from txlake.commands.placement import attach_if_unnamed, locate_target, register
from txlake.commands.schema_evolution import (
    STREAMING,
    merge_schema,
    merges_schemas,
    with_evolved_schema,
)
from txlake.commands.tables import create_from_rows, environment_of
from txlake.commit.change import Change
from txlake.commit.data_plane import Placement, Rows, TableData
from txlake.conflict.locking import LockMode
from txlake.ddl.schema_evolution import schema_actions
from txlake.errors import InvalidRequest
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.protocol.actions import Remove
from txlake.protocol.partition_values import PartitionScalar
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.type_widening import never_widens
from txlake.session.admission import admit
from txlake.session.command import (
    TableLock,
    command,
    giving_counts,
    giving_nothing,
    its_table,
    served,
)
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql import constant_text, sql_literal
from txlake.sql.statements import (
    ComputedValues,
    Delete,
    Expression,
    Insert,
    Merge,
    NativeFrame,
    NotMatchedInsert,
    PartitionValue,
    Query,
    Source,
    SqlText,
    StreamBatch,
    TableName,
    TablePath,
    Truncate,
    Update,
    Values,
    Write,
)
from txlake.sql.statements.names import quoted

Counts = Mapping[str, int]
_MERGE_COUNTS = (
    *("num_affected_rows", "num_updated_rows"),
    *("num_deleted_rows", "num_inserted_rows"),
)
_DYNAMIC = "spark.databricks.delta.dynamicPartitionOverwrite.enabled"


def delete(context: Context, statement: Delete) -> Counts:
    """Carry out DELETE FROM and return its count; 0 for a duplicate (`is_duplicate`)."""
    handle = context.tables.require(statement.table)
    if is_duplicate(context, handle, statement, Change(operation="DELETE")):
        return {"num_affected_rows": 0}
    work = context.work(handle, removes_rows=True)
    change = work.delete(statement.condition, statement.alias)
    context.transaction.stage(handle, change)
    return change.affected


def truncate(context: Context, statement: Truncate) -> None:
    """Carry out TRUNCATE TABLE; nothing is deleted for a duplicate (`is_duplicate`)."""
    handle = context.tables.require(statement.table)
    if is_duplicate(context, handle, statement, Change(operation="TRUNCATE")):
        return
    deleted = context.work(handle, removes_rows=True).delete(None)
    change = replace(deleted, operation="TRUNCATE", parameters={})
    context.transaction.stage(handle, change)


def update(context: Context, statement: Update) -> Counts:
    """Carry out UPDATE and return its count; 0 for a duplicate (`is_duplicate`)."""
    handle = context.tables.require(statement.table)
    if is_duplicate(context, handle, statement, Change(operation="UPDATE")):
        return {"num_affected_rows": 0}
    work = context.work(handle, removes_rows=True)
    change = work.update(statement.assignments, statement.condition, statement.alias)
    context.transaction.stage(handle, change)
    return change.affected


def merge(context: Context, statement: Merge) -> Counts:
    """Carry out MERGE INTO and return its counts; zeros for a duplicate (`is_duplicate`)."""
    handle = context.tables.require(statement.target)
    if is_duplicate(context, handle, statement, Change(operation="MERGE")):
        return dict.fromkeys(_MERGE_COUNTS, 0)
    removes = any(not isinstance(clause, NotMatchedInsert) for clause in statement.clauses)
    work = context.work(handle, removes_rows=removes)
    source = work.to_frame(source_rows(context, statement.source), ())
    environment = environment_of(context)
    evolve = partial(schema_actions, work.snapshot, environment=environment)
    evolves = statement.schema_evolution or merges_schemas(context)
    statement = replace(statement, schema_evolution=evolves)
    change = work.merge(statement, source, evolve)
    context.transaction.stage(handle, change)
    return change.affected


def insert(context: Context, statement: Insert) -> Counts:
    """Carry out INSERT INTO, INSERT OVERWRITE and INSERT ... REPLACE { WHERE | USING | ON }.

    Return its counts: zeros for a duplicate (`is_duplicate`), and if IF NOT EXISTS finds rows in
    the partition. Raises InvalidRequest for rows that don't fit the table or the PARTITION clause.
    """
    handle = context.tables.require(statement.table)
    if is_duplicate(context, handle, statement, Change(operation="WRITE")):
        return {"num_affected_rows": 0, "num_inserted_rows": 0}
    matches = bool(statement.replace_using) or statement.replace_on is not None
    replaces = statement.overwrite or statement.replace_where is not None or matches
    work = context.work(handle, removes_rows=replaces)
    rows = source_rows(context, statement.source)
    evolves = statement.schema_evolution
    if evolves is None:
        evolves = statement.by_name and merges_schemas(context)
    if evolves and not isinstance(rows, Values | ComputedValues):
        incoming = context.plane.schema_of(rows)
        work = merge_schema(context, handle, work, incoming, widens=never_widens)
    placement = Placement(by_name=statement.by_name, columns=statement.columns)
    if matches:
        change = _replace_matching(context, work, rows, placement, statement)
        context.transaction.stage(handle, change)
        return change.affected
    condition = statement.replace_where
    dynamic = statement.overwrite and _replaces_partitions(context, statement)
    if statement.partition is not None:
        rows, placement = _with_partition(work, rows, placement, statement.partition)
        static = {
            entry.column: constant_text(entry.value, context.rules)
            for entry in statement.partition
            if not entry.dynamic
        }
        values = work.constants(static) if static and statement.overwrite else {}
        if statement.if_not_exists and _has_rows(context, handle, values):
            return {"num_affected_rows": 0, "num_inserted_rows": 0}
        # In dynamic mode the rows say which partitions are replaced, and no rows replace none.
        if statement.overwrite and not dynamic and static:
            condition = SqlText(_equality_condition(values, context.rules))
        dynamic = dynamic or (statement.overwrite and not static)
    is_partial = dynamic and condition is None
    keep_nulls = _keeps_null_partitions(work, statement, statement.overwrite, is_partial)
    change = _write_rows(work, rows, placement, condition, statement.overwrite, dynamic, keep_nulls)
    context.transaction.stage(handle, change)
    return change.affected


def _replace_matching(
    context: Context, work: TableData, rows: Rows, placement: Placement, statement: Insert
) -> Change:
    """Replace the rows that match new rows: REPLACE USING and REPLACE ON."""
    if statement.replace_on is None:
        columns = statement.replace_using
        literal_of = partial(sql_literal, rules=context.rules)
        return work.replace_using(
            rows, placement, columns, literal_of=literal_of, view_of=context.view_of
        )
    return work.replace_on(
        work.to_frame(rows, ()),
        placement,
        statement.replace_on,
        aliases=(statement.alias, statement.source_alias),
        view_of=context.view_of,
    )


def _write_rows(
    work: TableData,
    rows: Rows,
    placement: Placement,
    condition: Expression | None,
    overwrite: bool,
    dynamic: bool,
    keep_null_partitions: bool,
) -> Change:
    """Return the change that writes rows: a replacement by `condition` before any other kind.

    Then come `dynamic`, the replacement of the rows' partitions, and `overwrite`, of all rows;
    without any of these the rows are appended. `keep_null_partitions`: a dynamic replacement keeps
    the rows of partitions with a NULL.
    """
    if condition is not None:
        return work.replace_where(rows, placement, condition)
    if dynamic:
        return work.overwrite_partitions(rows, placement, keep_null_partitions=keep_null_partitions)
    if overwrite:
        return work.overwrite(rows, placement)
    return work.append(rows, placement)


def _keeps_null_partitions(
    work: TableData, statement: Insert | Write, overwrites: bool, dynamic: bool
) -> bool:
    """Return whether a dynamic overwrite keeps the rows of partitions with a NULL.

    Raises InvalidRequest if the statement sets this in an overwrite that isn't dynamic, or of an
    unpartitioned table.
    """
    requested = statement.keep_null_partitions
    snapshot = work.snapshot
    if requested is not None and overwrites and not (dynamic and snapshot.partition_columns):
        raise InvalidRequest(
            f"{snapshot.table}: [DELTA_ILLEGAL_OPTION] useNullIntolerantEqualityWithDPO="
            f"{str(requested).lower()} goes with a dynamic overwrite of a partitioned table "
            "(partitionOverwriteMode 'dynamic'); leave it out"
        )
    return bool(requested)


def _replaces_partitions(context: Context, statement: Insert | Write) -> bool:
    """Return whether an overwrite is dynamic, by the statement or the session's setting.

    Raises InvalidRequest if Delta Spark's own setting forbids dynamic overwrites.
    """
    requested = statement.dynamic_partition_overwrite
    dynamic = _is_dynamic(context) if requested is None else requested
    if dynamic and context.plane.setting(_DYNAMIC, "true").lower() == "false":
        raise InvalidRequest(
            f"{statement.table}: a dynamic partition overwrite, and {_DYNAMIC}=false, by which "
            "Delta Spark replaces all rows; unset it, or set "
            "spark.sql.sources.partitionOverwriteMode to static"
        )
    return dynamic


def _is_dynamic(context: Context) -> bool:
    mode = context.plane.setting("spark.sql.sources.partitionOverwriteMode", "static")
    return mode.lower() == "dynamic"


def _with_partition(
    work: TableData,
    rows: Rows,
    placement: Placement,
    partition: tuple[PartitionValue, ...],
) -> tuple[Rows, Placement]:
    """Return the source's rows with the PARTITION clause's constants added as columns.

    Without a column list the source has the table's other columns in the table's order, wherever
    the partition columns stand, as in Delta Spark. Raises InvalidRequest for a column that doesn't
    partition the table, and for another number of columns.
    """
    snapshot = work.snapshot
    partitions = {name.lower() for name in snapshot.partition_columns}
    for entry in partition:
        if entry.column.lower() not in partitions:
            raise InvalidRequest(
                f"{snapshot.table}: PARTITION names {entry.column!r}, which is no partition "
                f"column; the table is partitioned by "
                f"{', '.join(snapshot.partition_columns) or 'nothing'}"
            )
    static = {entry.column.lower() for entry in partition if not entry.dynamic}
    rest = tuple(name for name in snapshot.schema.names if name.lower() not in static)
    names = placement.columns or rest
    frame = work.to_frame(rows, names)
    if placement.by_name:
        names = tuple(frame.columns)
    if len(names) != len(frame.columns):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(names)} columns ({', '.join(names)}), "
            f"found {len(frame.columns)}"
        )
    literals = {
        entry.column: constant_text(entry.value, work.rules)
        for entry in partition
        if not entry.dynamic
    }
    return work.with_constants(frame.toDF(*names), literals), Placement(by_name=True)


def _equality_condition(partition: Mapping[str, PartitionScalar], rules: TextRules) -> str:
    """Return the condition that columns have these values, written for a session with the rules."""
    parts = []
    for column, value in partition.items():
        name = quoted(column, always=True)
        is_null = value is None
        parts.append(f"{name} IS NULL" if is_null else f"{name} = {constant_text(value, rules)}")
    return " AND ".join(parts)


def _has_rows(context: Context, handle: Handle, static: Mapping[str, PartitionScalar]) -> bool:
    """Return whether the partition of these values has a file, or without values the table."""
    work = context.engine.work(handle, context.snapshot(handle), rules=DEFAULT_RULES)
    condition = SqlText(_equality_condition(static, DEFAULT_RULES)) if static else None
    return bool(work.snapshot.select(work.predicate(condition, None)).num_rows)


def source_rows(context: Context, source: Source) -> Rows:
    """Return the rows of a statement's source, as a DataFrame or for the driver."""
    match source:
        case Values() | ComputedValues():
            return source
        case Query(sql):
            return context.query(sql)
        case NativeFrame(frame):
            return context.plane.caller_rows(frame)


def write(context: Context, statement: Write) -> Counts:
    """Carry out `lake.write`: write rows by column name; create the table if there is none.

    A missing database is created too, at once. Return the counts: zeros if `ignore` finds a table,
    and for a duplicate (`is_duplicate`). Raises InvalidRequest if the table exists and the mode is
    `error`, and for options that the write or the table doesn't allow.
    """
    no_rows = {"num_affected_rows": 0, "num_inserted_rows": 0}
    rows = source_rows(context, statement.source)
    assert not isinstance(rows, Values | ComputedValues)
    if context.tables.lacks_database(statement.table):
        # Check the schema first: no database is created for rows that no table can hold.
        as_table_schema(context.plane.schema_of(rows))
        _create_database(context, statement)
    handle = locate_target(context, statement.table, statement.location)
    exists = context.tables.exists(handle)
    if exists and statement.mode == "ignore":
        return no_rows
    if exists and statement.mode == "error":
        is_path = isinstance(statement.table, TablePath)
        kind = "DELTA_PATH_EXISTS" if is_path else "TABLE_OR_VIEW_ALREADY_EXISTS"
        raise InvalidRequest(
            f"[{kind}] {statement.table} exists already; say mode='append', 'overwrite' or 'ignore'"
        )
    if not statement.data_change and not (exists and statement.mode == "overwrite"):
        raise InvalidRequest(
            f"{statement.table}: dataChange=false rearranges the rows of a table that is there, "
            f"with mode 'overwrite', found {statement.mode!r}"
        )
    if exists:
        handle = attach_if_unnamed(context, handle, managed=statement.location is None)
    else:
        schema = as_table_schema(context.plane.schema_of(rows))
        opens, properties = split_open_request(statement.properties)
        create_from_rows(context, handle, replace(statement, properties=properties), schema)
        register(context, handle, "WRITE", opens=opens)
    # The commit of an empty micro-batch has nothing but this.
    marker = Change(operation="WRITE")
    if statement.batch is not None:
        marker = _as_stream_update(marker, statement.batch)
    if is_duplicate(context, handle, statement, marker):
        return no_rows
    if statement.batch is not None and statement.batch.reads_target:
        context.transaction.open(handle).read()
    work = with_evolved_schema(context, handle, statement, rows, exists)
    overwrites = statement.mode == "overwrite"
    dynamic = bool(statement.dynamic_partition_overwrite) or (
        exists
        and overwrites
        and statement.batch is None
        and not statement.overwrite_schema
        and not isinstance(rows, pa.Table)
        and _replaces_partitions(context, statement)
    )
    is_partial = dynamic and statement.replace_where is None
    keep_nulls = _keeps_null_partitions(work, statement, overwrites, is_partial)
    placement = Placement(by_name=True)
    change = _write_rows(
        work, rows, placement, statement.replace_where, overwrites, dynamic, keep_nulls
    )
    if statement.batch is not None:
        change = _as_stream_update(change, statement.batch)
    if not statement.data_change:
        change = work.rearranged(change)
    context.transaction.stage(handle, change)
    return change.affected


def _as_stream_update(change: Change, batch: StreamBatch) -> Change:
    """Return the change as Delta's history records a micro-batch: STREAMING UPDATE."""
    parameters = {
        "outputMode": batch.output_mode.capitalize(),
        "queryId": batch.query_id,
        "epochId": str(batch.batch_id),
    }
    metrics = dict(change.metrics)
    if "numFiles" in metrics:
        metrics["numAddedFiles"] = metrics.pop("numFiles")
        metrics["numRemovedFiles"] = sum(isinstance(action, Remove) for action in change.actions)
    return replace(change, operation=STREAMING, parameters=parameters, metrics=metrics)


def _create_database(context: Context, statement: Write) -> None:
    """Create the database of the table's name, at once; then lock the name in it."""
    assert isinstance(statement.table, TableName)
    owner, _ = context.tables.qualified(statement.table)
    context.engine.catalog.of_lake().create_database(owner, if_not_exists=True)
    admit(context, _WRITE_COMMAND.all_locks(statement), leaves=_leaves_existing(statement))


def _write_locks(statement: Write) -> Sequence[TableLock]:
    mode = LockMode.SCH_M if _leaves_existing(statement) else LockMode.IX
    return [(statement.table, mode)]


def _leaves_existing(statement: Write) -> bool:
    """Return whether the write leaves an existing table unchanged."""
    return statement.mode in ("error", "ignore")


_WRITE_TYPE, _WRITE_COMMAND = command(
    Write,
    recording_frame_reads(giving_counts(write)),
    _write_locks,
    leaves_existing=_leaves_existing,
)
COMMANDS = {
    _WRITE_TYPE: _WRITE_COMMAND,
    **served(
        command(Insert, recording_frame_reads(giving_counts(insert)), its_table(LockMode.IX)),
        command(Delete, recording_frame_reads(giving_counts(delete)), its_table(LockMode.IX)),
        command(Update, recording_frame_reads(giving_counts(update)), its_table(LockMode.IX)),
        command(
            Merge,
            recording_frame_reads(giving_counts(merge)),
            lambda statement: [(statement.target, LockMode.IX)],
        ),
        command(Truncate, giving_nothing(truncate), its_table(LockMode.SCH_M)),
    ),
}
