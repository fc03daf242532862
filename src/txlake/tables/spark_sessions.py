"""What a Spark session that the user brings knows: path tables, and the lake that is open in it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakSet

from pyspark.sql import SparkSession

from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.spark.plane import SparkPlane
from txlake.spark.spark_sessions import is_same
from txlake.storage import open_store
from txlake.system import System
from txlake.tables.enabled import enabled_in

# Of the Spark session, where tables are named by their place alone: folders by commas.
_ALLOW_OUTSIDE = "spark.txlake.allowOutsidePaths"
# Options change when credentials do: engines of old ones end with the tables that use them.
_ENGINES_MAX = 16

_lock = threading.Lock()
# The one that was used last comes last.
_engines: list[tuple[SparkSession, dict[str, str], Engine]] = []
# The default sessions of the lakes that are open; one that isn't held any more goes by itself.
_lakes: WeakSet[Session] = WeakSet()


def note_lake(session: Session) -> None:
    """A lake was opened; `session` is its default session."""
    with _lock:
        _lakes.add(session)


def lake_of(spark: SparkSession) -> Session | None:
    """The default session of the lake that is open in a Spark session; None where none is.

    Of several it is the one that the session was given to by `txlake.enable`; without that it
    raises InvalidRequest: a name doesn't say which one is meant.
    """
    enabled = enabled_in(spark)
    if enabled is not None:
        return enabled.session
    with _lock:
        known = list(_lakes)
    found = [session for session in known if _works_with(session.engine, spark)]
    if len(found) < 2:
        return found[0] if found else None
    places = sorted(session.engine.warehouse.url for session in found if session.engine.warehouse)
    raise InvalidRequest(
        f"{len(found)} lakes are open in this Spark session ({', '.join(places)}), and a name "
        "alone doesn't say which one is meant: use lake.table(name) or lake.sql(...), or close the "
        "others"
    )


def _works_with(engine: Engine, spark: SparkSession) -> bool:
    if engine.is_closed or engine.is_forked:
        return False
    if engine.plane.is_started:
        return is_same(engine.spark, spark)
    active = SparkSession.getActiveSession()  # which the lake takes when it needs one
    return active is not None and is_same(active, spark)


def for_spark(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Session:
    """A session on tables named by their place; its caches are shared per Spark session."""
    options = dict(storage_options or {})
    with _lock:
        for place, (known, known_options, engine) in enumerate(_engines):
            if known is spark and known_options == options:
                _engines.append(_engines.pop(place))
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
        _ = engine.spark  # its settings count from the first statement
        _engines.append((spark, options, engine))
        # Which files a clone made here may read is known here alone: its engine stays.
        idle = [engine for _, _, engine in _engines if not engine.has_shared]
        gone = set(map(id, idle[:-_ENGINES_MAX]))
        _engines[:] = [one for one in _engines if id(one[2]) not in gone]
        return Session(engine, HANDLERS)


def _outside_paths(spark: SparkSession) -> Sequence[str]:
    asked = spark.conf.get(_ALLOW_OUTSIDE, "") or ""
    return tuple(filter(None, asked.split(",")))
