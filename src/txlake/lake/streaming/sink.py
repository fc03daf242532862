"""A stream's sink: it creates or extends the table at the start, and commits each micro-batch once.

The committing process has no Spark session; with one, `lake.write_stream` is used instead.
"""

from __future__ import annotations

import json

from pyspark.sql.types import StructType

from txlake.catalog import DEFAULT_DATABASE
from txlake.errors import InvalidRequest
from txlake.lake.streaming.committing import CommitDetails, commit_staged
from txlake.lake.streaming.opening import find_table, open_session, require_lake
from txlake.lake.streaming.options import Place, SinkOptions
from txlake.lake.streaming.progress import Progress, last_batch, require_unbroken
from txlake.lake.streaming.staged import StagedFiles, StagingPlan
from txlake.lake.streaming.staging import ErrorAdvice, plan_staging
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.types import Struct, to_arrow_schema
from txlake.session.session import Session
from txlake.spark.types import delta_schema
from txlake.sql.statements import NativeFrame, Write, table_of
from txlake.storage import open_store

_ADVICE = ErrorAdvice(
    for_rules="write it by lake.write_stream(df, table, checkpoint=...)",
    for_columns="say mergeSchema=true to add columns",
)


def plan_stream_staging(place: Place, options: SinkOptions, schema: StructType) -> StagingPlan:
    """Plan how tasks write a stream's rows.

    Creates the table if there is none, and adds columns to it if the options allow that. Raises
    InvalidRequest, for a table of a lake, if the checkpoint is another sink's or has no query, and
    as `plan_staging`.
    """
    incoming = delta_schema(schema)
    with open_session(place) as session:
        if place.lake is not None:
            query_id = checkpoint_query_id(place, options.checkpoint)
            handle = session.engine.find(table_of(place.table), DEFAULT_DATABASE)
            Progress(session.engine, query_id, place.table).require_own(handle)
        _prepare_table(session, place, options, incoming)
        return plan_staging(session.engine, find_table(session, place), incoming, _ADVICE)


def commit_batch(
    place: Place,
    options: SinkOptions,
    batch_id: int,
    staged: StagedFiles,
    *,
    overwrite: bool,
) -> None:
    """Commit a micro-batch's staged files, unless it was committed.

    Raises InvalidRequest if the checkpoint can't be read, is another sink's, or is ahead of the
    table; then the files stay for VACUUM. Raises as `commit_staged` too, which deletes them.
    """
    table = table_of(place.table)
    with open_session(place) as session:
        query_id = checkpoint_query_id(place, options.checkpoint)
        handle = session.engine.find(table, DEFAULT_DATABASE)
        if place.lake is not None:
            Progress(session.engine, query_id, place.table).claim(handle)
        require_unbroken(place.table, handle, query_id, batch_id)
        parameters = {
            "outputMode": "Complete" if overwrite else "Append",
            "queryId": query_id,
            "epochId": str(batch_id),
        }
        commit = CommitDetails(
            app=(query_id, batch_id),
            newest=-1 if handle is None else last_batch(handle, query_id),
            overwrite=overwrite,
            operation="STREAMING UPDATE",
            parameters=parameters,
            user_metadata=options.user_metadata,
        )
        commit_staged(session, table, staged, commit)


def checkpoint_query_id(place: Place, checkpoint: str) -> str:
    """Return the id of a checkpoint's query. Raises InvalidRequest if there is none."""
    try:
        data = open_store(checkpoint, place.storage_options).get("metadata")
        return str(json.loads(data)["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{checkpoint}/metadata: expected the id of a streaming query: {error}; give the query "
            "a new checkpointLocation"
        ) from error


def _prepare_table(session: Session, place: Place, options: SinkOptions, incoming: Struct) -> None:
    """Create the table if there is none, or add the rows' columns if the options allow that.

    An existing table stays as it is without that option, and if the rows bring no new column.
    Raises InvalidRequest for a name without a lake, and as a write of no rows.
    """
    table = table_of(place.table)
    require_lake(place, table)
    handle = session.engine.find(table, DEFAULT_DATABASE)
    snapshot = None if handle is None else handle.log.latest_or_none()
    if snapshot is not None:
        unknown = [item.name for item in incoming if snapshot.schema.find(item.name) is None]
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
