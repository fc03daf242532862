"""A stream's rows become files of a table in Spark's tasks, and its micro-batch one commit.

Owns which tables and rows that does for: those that need nothing of Spark but its tasks. The
process that commits has no Spark session; whoever has one uses `lake.write_stream`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from txlake.catalog import DEFAULT_DATABASE
from txlake.conflict.locking import LockMode
from txlake.datafiles.stage_task import StagedColumn, StageTask
from txlake.datafiles.write_task import Layout
from txlake.errors import Conflict, InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Txn
from txlake.protocol.features import check_writable
from txlake.protocol.identity import is_identity
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_schema, to_arrow_type
from txlake.session.session import Session
from txlake.spark import inserts, rows
from txlake.spark.table_access import TableAccess
from txlake.spark.types import can_store, delta_schema, is_converted, reads_text, same_type
from txlake.spark.writing import data_fields, moving_task, partition_fields, written
from txlake.statements import NativeFrame, Table, Write, table_of
from txlake.storage import open_store
from txlake.streaming.opening import find_table, require_lake, session_of
from txlake.streaming.options import Place, SinkOptions
from txlake.streaming.progress import Progress
from txlake.transaction.change import Change

_ATTEMPTS = 5
_OPERATION = "STREAMING UPDATE"
_logger = logging.getLogger(__name__)


def stage_task(place: Place, options: SinkOptions, schema: StructType) -> tuple[StageTask, str]:
    """How tasks write a stream's rows, and what the table has to be like still at the commit.

    Makes the table where there is none, and adds columns to it where the options say so.

    Raises InvalidRequest for rows that don't fit, UnsupportedFeature for a table whose rules need
    Spark.
    """
    incoming = delta_schema(schema)
    session = session_of(place)
    try:
        _prepare(session, place, options, incoming)
        handle = find_table(session, place)
        snapshot = handle.log.latest()
        engine = session.engine
        check_writable(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        _require_plain(snapshot)
        columns = _columns(incoming, snapshot)
        held = data_fields(snapshot)
        partitions = partition_fields(snapshot)
        work = engine.work(handle, snapshot)
        assert isinstance(work, TableAccess)
        layout = Layout(
            data=len(held), partition=tuple(range(len(held), len(held) + len(partitions)))
        )
        types = pa.schema([(item.name, to_arrow_type(item.type)) for item in (*held, *partitions)])
        return (
            StageTask(
                table=snapshot.table,
                columns=columns,
                schema=types.serialize().to_pybytes(),
                write=replace(moving_task(work.target(), ()), layout=layout),
            ),
            fingerprint(snapshot),
        )
    finally:
        _close(session)


def commit_batch(
    place: Place,
    options: SinkOptions,
    batch_id: int,
    reports: Sequence[Mapping[str, object]],
    fit: str,
    *,
    overwrite: bool,
) -> None:
    """Commits what tasks wrote of a micro-batch, unless that was done; `fit` as `stage_task` gave.

    Files of a commit that doesn't come about are orphans for VACUUM.
    """
    session = session_of(place)
    try:
        query_id = id_in_checkpoint(place, options.checkpoint)
        table = table_of(place.table)
        if place.lake is not None:
            handle = session.engine.find(table, DEFAULT_DATABASE)
            Progress(session.engine, query_id, place.table).claim(handle)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _commit(session, table, options, query_id, batch_id, reports, fit, overwrite)
                return
            except Conflict as conflict:
                if attempt == _ATTEMPTS:
                    raise
                _logger.info("attempt %d of %d lost: %s", attempt, _ATTEMPTS, conflict)
    finally:
        _close(session)


def _commit(
    session: Session,
    table: Table,
    options: SinkOptions,
    query_id: str,
    batch_id: int,
    reports: Sequence[Mapping[str, object]],
    fit: str,
    overwrite: bool,
) -> None:
    with session.alone([(table, LockMode.IX)]) as context:
        handle = context.require(table)
        newest = context.transaction.open(handle).app_version(query_id)
        if newest is not None and newest >= batch_id:
            return
        work = context.work(handle, removes_rows=overwrite)
        assert isinstance(work, TableAccess)
        if fingerprint(work.snapshot) != fit:
            raise InvalidRequest(
                f"{work.snapshot.table}: its schema or its properties changed while micro-batch "
                f"{batch_id} was written; start the query again"
            )
        found = written(work.target(), reports)
        change = (inserts.replacing_all if overwrite else inserts.appending)(work, found)
        txn = Txn(app_id=query_id, version=batch_id, last_updated=session.engine.system.now_ms())
        told = {
            "outputMode": "Complete" if overwrite else "Append",
            "queryId": query_id,
            "epochId": str(batch_id),
        }
        context.transaction.user_metadata = options.user_metadata
        for one in (Change(operation=_OPERATION, actions=(txn,)), change):
            told_one = replace(one, operation=_OPERATION, parameters=told)
            context.transaction.stage(handle, told_one)
        context.transaction.commit()


def fingerprint(snapshot: Snapshot) -> str:
    """What staged files depend on: the table's schema, partitioning, properties and features."""
    metadata = snapshot.metadata
    facts = (
        metadata.id,
        metadata.schema_string,
        list(metadata.partition_columns),
        sorted(metadata.configuration.items()),
        sorted(snapshot.features),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def id_in_checkpoint(place: Place, checkpoint: str) -> str:
    """The id of the query whose checkpoint it is. Raises InvalidRequest where there is none."""
    try:
        data = open_store(checkpoint, place.storage_options).get("metadata")
        return str(json.loads(data)["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{checkpoint}/metadata: expected the id of a streaming query: {error}; give the query "
            "a new checkpointLocation"
        ) from error


def _prepare(session: Session, place: Place, options: SinkOptions, incoming: Struct) -> None:
    """The table is there, and has the rows' columns where it may be given them."""
    table = table_of(place.table)
    require_lake(place, table)
    handle = session.engine.find(table, DEFAULT_DATABASE)
    found = None if handle is None else handle.log.latest_or_none()
    if found is not None:
        unknown = [item.name for item in incoming if found.schema.find(item.name) is None]
        if not unknown or not options.merge_schema:
            return
    empty = to_arrow_schema(as_table_schema(incoming)).empty_table()
    statement = Write(
        table=table,
        source=NativeFrame(empty),
        mode="append",
        partition_by=options.partition_by or None,
        merge_schema=options.merge_schema,
    )
    session.carry_out(None, statement)


def _require_plain(snapshot: Snapshot) -> None:
    if rows.has_rules(snapshot) or any(map(is_identity, snapshot.schema)):
        raise UnsupportedFeature(
            f"{snapshot.table} has rules that Spark checks or fills in (a constraint, a generated "
            "or an identity column, a default, CHAR or VARCHAR), which this sink can't ask: write "
            "it by lake.write_stream(df, table, checkpoint=...)"
        )


def _columns(incoming: Struct, snapshot: Snapshot) -> tuple[StagedColumn, ...]:
    """Where the table's columns come from. Raises InvalidRequest for rows that don't fit."""
    unknown = [item.name for item in incoming if snapshot.schema.find(item.name) is None]
    if unknown:
        raise InvalidRequest(
            f"{snapshot.table}: the rows have {', '.join(map(repr, unknown))}, the table has "
            f"{', '.join(snapshot.schema.names)}; say mergeSchema=true to add columns"
        )
    given = {item.name.lower(): place for place, item in enumerate(incoming)}
    rows.require_given(
        snapshot, [item.name for item in snapshot.schema if item.name.lower() in given]
    )
    partitions = partition_fields(snapshot)
    columns = []
    for item in (*data_fields(snapshot), *partitions):
        source = given.get(item.name.lower())
        if source is not None:
            _require_fit(incoming.fields[source], item, snapshot)
        columns.append(
            StagedColumn(
                name=item.name,
                source=source,
                nullable=item.nullable,
                partition=item.type if item in partitions else None,
            )
        )
    return tuple(columns)


def _require_fit(source: Field, target: Field, snapshot: Snapshot) -> None:
    if same_type(source.type, target.type):
        return
    numbers = (
        isinstance(source.type, Primitive)
        and isinstance(target.type, Primitive)
        and not target.type.is_string
        and source.type.name not in {"timestamp", "timestamp_ntz", "date"}
        and can_store(source.type, target.type)
        and not reads_text(source.type, target.type)
        and not is_converted(source.type, target.type)
    )
    if not numbers:
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {rows.type_text(target.type)}, the "
            f"stream's is {rows.type_text(source.type)}; cast it in the query"
        )


def _close(session: Session) -> None:
    session.close()
    session.engine.close()
