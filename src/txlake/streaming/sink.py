"""A stream's sink: a table that is there with the stream's columns, and a commit a micro-batch.

The process that commits has no Spark session; whoever has one uses `lake.write_stream`.
"""

from __future__ import annotations

import json

from pyspark.sql.types import StructType

from txlake.catalog import DEFAULT_DATABASE
from txlake.errors import InvalidRequest
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.types import Struct, to_arrow_schema
from txlake.session.session import Session
from txlake.spark.types import delta_schema
from txlake.statements import NativeFrame, Write, table_of
from txlake.storage import open_store
from txlake.streaming.committing import Commit, commit_staged
from txlake.streaming.opening import find_table, opened, require_lake
from txlake.streaming.options import Place, SinkOptions
from txlake.streaming.progress import Progress, require_unbroken, written
from txlake.streaming.staged import Staged, Staging
from txlake.streaming.staging import WaysOut, staging

_OUT = WaysOut(
    of_rules="write it by lake.write_stream(df, table, checkpoint=...)",
    of_columns="say mergeSchema=true to add columns",
)


def stage_stream(place: Place, options: SinkOptions, schema: StructType) -> Staging:
    """How tasks write a stream's rows.

    Makes the table where there is none, and adds columns to it where the options say so. Raises as
    `staging`.
    """
    incoming = delta_schema(schema)
    with opened(place) as session:
        if place.lake is not None:
            query_id = id_in_checkpoint(place, options.checkpoint)
            handle = session.engine.find(table_of(place.table), DEFAULT_DATABASE)
            Progress(session.engine, query_id, place.table).require_own(handle)
        _prepare(session, place, options, incoming)
        return staging(session.engine, find_table(session, place), incoming, _OUT)


def commit_batch(
    place: Place,
    options: SinkOptions,
    batch_id: int,
    staged: Staged,
    *,
    overwrite: bool,
) -> None:
    """Commits what tasks wrote of a micro-batch, unless that was done; raises as `commit_staged`.

    Where the checkpoint can't be read, or is another sink's, the files stay for VACUUM.
    """
    table = table_of(place.table)
    with opened(place) as session:
        query_id = id_in_checkpoint(place, options.checkpoint)
        handle = session.engine.find(table, DEFAULT_DATABASE)
        if place.lake is not None:
            Progress(session.engine, query_id, place.table).claim(handle)
        require_unbroken(place.table, handle, query_id, batch_id)
        told = {
            "outputMode": "Complete" if overwrite else "Append",
            "queryId": query_id,
            "epochId": str(batch_id),
        }
        commit = Commit(
            app=(query_id, batch_id),
            newest=-1 if handle is None else written(handle, query_id),
            overwrite=overwrite,
            operation="STREAMING UPDATE",
            parameters=told,
            user_metadata=options.user_metadata,
        )
        commit_staged(session, table, staged, commit)


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
