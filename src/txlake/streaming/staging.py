"""Staging of rows as data files by Spark's tasks, in processes without a Spark session.

Owns which tables and rows that works for: those that need nothing of Spark but its tasks. The
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
from txlake.log.conversion import is_alike
from txlake.log.snapshot import Snapshot
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_type
from txlake.session.engine import Engine, Handle
from txlake.spark import rows
from txlake.spark.table_access import TableAccess
from txlake.spark.types import can_store, is_converted, reads_text, same_type, type_text
from txlake.spark.writing import data_fields, partition_fields, task_for
from txlake.streaming.staged import Staging


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """What errors tell a program to do.

    Attributes:
        of_rules: with a table whose rules Spark has to check.
        of_columns: with rows that have columns which the table hasn't.
    """

    of_rules: str
    of_columns: str


def staging(engine: Engine, handle: Handle, incoming: Struct, out: WaysOut) -> Staging:
    """How tasks write rows of these columns to the table as it is now.

    Raises InvalidRequest for rows that don't fit, UnsupportedFeature for a table whose rules need
    Spark, or that txlake doesn't write.
    """
    snapshot = handle.log.latest()
    snapshot.require_writable()
    if rows.has_rules(snapshot) or any(map(is_identity, snapshot.schema)):
        raise UnsupportedFeature(
            f"{snapshot.table} has rules that Spark checks or fills in (a constraint, a generated "
            "or an identity column, a default, CHAR or VARCHAR), which the format can't ask: "
            f"{out.of_rules}"
        )
    columns = _columns(incoming, snapshot, out)
    held, partitions = data_fields(snapshot), partition_fields(snapshot)
    types = pa.schema([(item.name, to_arrow_type(item.type)) for item in (*held, *partitions)])
    work = engine.work(handle, snapshot)
    assert isinstance(work, TableAccess)
    task = StageTask(
        table=snapshot.table,
        columns=columns,
        schema=types.serialize().to_pybytes(),
        write=task_for(work.target()),
    )
    return Staging(task, fingerprint(snapshot))


def fingerprint(snapshot: Snapshot) -> str:
    """What staged files depend on: the table's schema, partitioning, properties and features.

    With others they may be wrong, and nobody looks at their rows again.
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


def _columns(incoming: Struct, snapshot: Snapshot, out: WaysOut) -> tuple[StagedColumn, ...]:
    """Where the table's columns come from. Raises InvalidRequest for rows that don't fit."""
    unknown = [item.name for item in incoming if snapshot.schema.find(item.name) is None]
    if unknown:
        raise InvalidRequest(
            f"{snapshot.table}: the rows have {', '.join(map(repr, unknown))}, the table has "
            f"{', '.join(snapshot.schema.names)}; {out.of_columns}"
        )
    given: dict[str, int] = {}
    for place, item in enumerate(incoming):
        if given.setdefault(item.name.lower(), place) != place:
            raise InvalidRequest(
                f"{snapshot.table}: the rows have the column {item.name!r} twice; leave one out"
            )
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
                partition=item if item in partitions else None,
            )
        )
    return tuple(columns)


def _require_fit(source: Field, target: Field, snapshot: Snapshot) -> None:
    if same_type(source.type, target.type):
        return
    numbers = (
        isinstance(source.type, Primitive)
        and isinstance(target.type, Primitive)
        and source.type.name != "date"
        and is_alike(to_arrow_type(source.type), to_arrow_type(target.type))
        and can_store(source.type, target.type)
        and not reads_text(source.type, target.type)
        and not is_converted(source.type, target.type)
    )
    if not numbers:
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {type_text(target.type)}, the "
            f"rows' is {type_text(source.type)}; cast it in the query"
        )
