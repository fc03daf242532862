"""Staging of rows as data files by Spark's tasks, in processes without a Spark session.

Owns which tables and rows that works for: tables that need nothing of Spark but its tasks. The
stream sink and the batch writer of the format "txlake" (`spark_integration.data_source`) stage rows
here; `committing` adds the staged files to the table.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa

from txlake.datafiles.stage_task import StagedColumn, StageTask
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.streaming.staged import StagingPlan
from txlake.local.rules import has_rules, require_given
from txlake.local.types import can_store, is_converted, reads_text, same_type, type_text
from txlake.local.writing import data_fields, partition_fields, task_for
from txlake.log.conversion import converts_as_spark
from txlake.log.snapshot import Snapshot
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_type
from txlake.session.engine import Engine, Handle
from txlake.spark.table_access import TableAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAdvice:
    """The advice in error messages.

    Attributes:
        for_rules: for a table with rules that only Spark can check.
        for_columns: for rows with columns that the table lacks.
    """

    for_rules: str
    for_columns: str


def plan_staging(
    engine: Engine, handle: Handle, incoming: Struct, advice: ErrorAdvice
) -> StagingPlan:
    """Plan how tasks write rows of the columns `incoming` to the newest version of the table.

    Raises InvalidRequest for rows that don't fit, UnsupportedFeature for a table whose rules need
    Spark, or that txlake can't write.
    """
    snapshot = handle.log.latest()
    snapshot.require_writable()
    if has_rules(snapshot) or any(map(is_identity, snapshot.schema)):
        raise UnsupportedFeature(
            f"{snapshot.table} has rules that Spark checks or fills in (a constraint, a generated "
            "or an identity column, a default, CHAR or VARCHAR), which the format can't ask: "
            f"{advice.for_rules}"
        )
    columns = _columns(incoming, snapshot, advice)
    fields = (*data_fields(snapshot), *partition_fields(snapshot))
    types = pa.schema([(item.name, to_arrow_type(item.type)) for item in fields])
    work = engine.work(handle, snapshot)
    assert isinstance(work, TableAccess)
    task = StageTask(
        table=snapshot.table,
        columns=columns,
        schema=types.serialize().to_pybytes(),
        write=task_for(work.target()),
    )
    return StagingPlan(task, fingerprint(snapshot))


def fingerprint(snapshot: Snapshot) -> str:
    """Return a hash of the table's schema, partitioning, properties and features.

    Staged files are only right for the definition that they were written for.
    """
    metadata = snapshot.metadata
    facts = (
        metadata.id,
        metadata.schema_string,
        list(metadata.partition_columns),
        sorted(metadata.configuration.items()),
        sorted(snapshot.features),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _columns(incoming: Struct, snapshot: Snapshot, advice: ErrorAdvice) -> tuple[StagedColumn, ...]:
    """Return, for each column of the table, the rows' column that it is written from.

    Names match in any letter case; a column that the rows lack has none. Raises InvalidRequest for
    rows that don't fit.
    """
    unknown = [item.name for item in incoming if snapshot.schema.find(item.name) is None]
    if unknown:
        raise InvalidRequest(
            f"{snapshot.table}: the rows have {', '.join(map(repr, unknown))}, the table has "
            f"{', '.join(snapshot.schema.names)}; {advice.for_columns}"
        )
    positions: dict[str, int] = {}
    for position, item in enumerate(incoming):
        if positions.setdefault(item.name.lower(), position) != position:
            raise InvalidRequest(
                f"{snapshot.table}: the rows have the column {item.name!r} twice; leave one out"
            )
    require_given(
        snapshot, [item.name for item in snapshot.schema if item.name.lower() in positions]
    )
    partitions = partition_fields(snapshot)
    columns = []
    for item in (*data_fields(snapshot), *partitions):
        source = positions.get(item.name.lower())
        if source is not None:
            _require_fit(incoming.fields[source], item, snapshot)
        columns.append(
            StagedColumn(
                name=item.name,
                source=source,
                nullable=item.nullable,
                partition=item if item in partitions else None,
            )
        )
    return tuple(columns)


def _require_fit(source: Field, target: Field, snapshot: Snapshot) -> None:
    """Raise InvalidRequest unless the column's type is the table's, or can be widened to it."""
    if same_type(source.type, target.type):
        return
    is_widening = (
        isinstance(source.type, Primitive)
        and isinstance(target.type, Primitive)
        and source.type.name != "date"
        and converts_as_spark(to_arrow_type(source.type), to_arrow_type(target.type))
        and can_store(source.type, target.type)
        and not reads_text(source.type, target.type)
        and not is_converted(source.type, target.type)
    )
    if not is_widening:
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {type_text(target.type)}, the "
            f"rows' is {type_text(source.type)}; cast it in the query"
        )
