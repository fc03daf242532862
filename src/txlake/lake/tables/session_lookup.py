"""Find the txlake session for a Spark session: its open lake's, or one for path tables."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakSet

from pyspark.sql import SparkSession

from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.lake.tables.enabled_sessions import enabled_session
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.spark.plane import SparkPlane
from txlake.spark.spark_sessions import is_same
from txlake.storage import open_store
from txlake.system import System

# A setting of the Spark session, for path tables: folders, separated by commas.
_ALLOW_OUTSIDE = "spark.txlake.allowOutsidePaths"
# Options change with credentials: engines of old options end with the tables that use them.
_PATH_ENGINES_MAX = 16

_lock = threading.Lock()
# Most recently used last.
_path_engines: list[tuple[SparkSession, dict[str, str], Engine]] = []
# The default sessions of open lakes.
_lake_sessions: WeakSet[Session] = WeakSet()


def register_lake(session: Session) -> None:
    """Register an open lake by its default session."""
    with _lock:
        _lake_sessions.add(session)


def lake_session(spark: SparkSession) -> Session | None:
    """Return the default session of the lake that is open in a Spark session; None if none is.

    A session that `txlake.enable` gave the Spark session to comes first, and is returned itself.
    Otherwise raises InvalidRequest if several lakes are open, since a name alone is ambiguous.
    """
    enabled = enabled_session(spark)
    if enabled is not None:
        return enabled.session
    with _lock:
        registered = list(_lake_sessions)
    sessions = [session for session in registered if _uses_spark_session(session.engine, spark)]
    if len(sessions) < 2:
        return sessions[0] if sessions else None
    urls = sorted(session.engine.warehouse.url for session in sessions if session.engine.warehouse)
    raise InvalidRequest(
        f"{len(sessions)} lakes are open in this Spark session ({', '.join(urls)}), and a name "
        "alone doesn't say which one is meant: use lake.table(name) or lake.sql(...), or close the "
        "others"
    )


def _uses_spark_session(engine: Engine, spark: SparkSession) -> bool:
    """Return whether an open lake works with a Spark session, or would if it started now."""
    if engine.is_closed or engine.is_forked:
        return False
    if engine.plane.is_started:
        return is_same(engine.spark, spark)
    active = SparkSession.getActiveSession()  # which the lake would use
    return active is not None and is_same(active, spark)


def path_session(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Session:
    """Return a new session for path tables; its caches are shared per Spark session and options.

    The engines of the 16 combinations used last are kept.
    """
    options = dict(storage_options or {})
    with _lock:
        for position, (known_spark, known_options, engine) in enumerate(_path_engines):
            if known_spark is spark and known_options == options:
                _path_engines.append(_path_engines.pop(position))
                return Session(engine, HANDLERS)
        system, settings = System(), Settings()
        engine = Engine(
            system=system,
            settings=settings,
            plane=SparkPlane(
                make_spark=lambda: spark,
                system=system,
                settings=settings,
                open_store=open_store,
                storage_options=options,
            ),
            storage_options=options,
            outside_paths=partial(_outside_paths, spark),
        )
        _ = engine.spark  # its settings apply from the first statement
        _path_engines.append((spark, options, engine))
        # Only the engine knows which files its clones may read: one with clones stays.
        idle = [engine for _, _, engine in _path_engines if not engine.has_shared]
        evicted = set(map(id, idle[:-_PATH_ENGINES_MAX]))
        _path_engines[:] = [entry for entry in _path_engines if id(entry[2]) not in evicted]
        return Session(engine, HANDLERS)


def _outside_paths(spark: SparkSession) -> Sequence[str]:
    folders = spark.conf.get(_ALLOW_OUTSIDE, "") or ""
    return tuple(filter(None, folders.split(",")))
