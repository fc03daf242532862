"""Micro-batches on a Spark Connect server: a Python process there commits them to the lake.

The process isn't the user's, so it opens the lake by itself, once, and works with Spark by the
session of its batches. Nothing here is called by the user's own process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txlake.lake.lake import Lake, open_session
from txlake.lake.micro_batches import BatchWork, TableSink
from txlake.lake.streaming.checkpoints import id_of_query
from txlake.lake.streams import engine_of_batches
from txlake.session.branch_use import BranchMark, engine_at, mark_of
from txlake.session.engine import Engine
from txlake.settings import RetrySettings, Settings
from txlake.spark.spark_sessions import is_same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KINDS: Mapping[str, type[TableSink] | type[BatchWork]] = {
    kind.__name__: kind for kind in (TableSink, BatchWork)
}
_lakes: dict[str, Lake] = {}
_engines: dict[str, tuple[SparkSession, Engine]] = {}


def commit(
    connection: Mapping[str, Any],
    kind: str,
    given: Mapping[str, Any],
    batch: DataFrame,
    batch_id: int,
) -> None:
    """Commit a micro-batch as the user's process would; see `lake.micro_batches`.

    `connection`: the arguments of `open_session`, and the id and name of the branch as "branch";
    `kind`: "TableSink" or "BatchWork"; `given`: the
    fields of that class.
    """
    place = dict(connection)
    branch = place.pop("branch")
    mark = None if branch is None else BranchMark(*branch)
    lake = _lake(place, batch)
    done = _KINDS[kind](**given)
    query_id = id_of_query(batch.sparkSession, done.checkpoint)
    with lake._session_on(_engine(lake, query_id, batch.sparkSession, mark)) as own:
        done.commit(own, query_id, batch_id, batch)


def _engine(lake: Lake, query_id: str, spark: SparkSession, mark: BranchMark | None) -> Engine:
    """Return the query's engine, which works in the Spark session of its present batches, on its
    branch. Raises InvalidRequest if the branch has ended.
    """
    found = _engines.get(query_id)
    if found is None or not is_same(found[0], spark) or mark_of(found[1]) != mark:
        engine = lake._session.engine
        if mark is not None:
            engine = engine_at(engine, mark)
        found = _engines[query_id] = spark, engine_of_batches(engine, spark)
    return found[1]


def _lake(connection: Mapping[str, Any], batch: DataFrame) -> Lake:
    """Return the lake of a connection, opened once per process."""
    key = json.dumps(connection, sort_keys=True)
    if key not in _lakes:
        settings = dict(connection["settings"])
        retry = RetrySettings(**settings.pop("retry"))
        spark = batch.sparkSession
        session = open_session(
            connection["location"],
            make_spark=lambda: spark,
            catalog=connection["catalog"],
            storage_options=connection["storage_options"],
            isolation=connection["isolation"],
            settings=Settings(retry=retry, **settings),
        )
        _lakes[key] = Lake(session)
    return _lakes[key]
