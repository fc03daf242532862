"""Sessions on path tables alone, for a Spark session that the user brings."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.system import System

# Options change when credentials do: engines of old ones end with the tables that use them.
_ENGINES_MAX = 16

_lock = threading.Lock()
# The one that was used last comes last.
_engines: list[tuple[SparkSession, dict[str, str], Engine]] = []


def for_spark(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Session:
    """A session on tables named by their place; its caches are shared per Spark session."""
    options = dict(storage_options or {})
    with _lock:
        for place, (known, known_options, engine) in enumerate(_engines):
            if known is spark and known_options == options:
                _engines.append(_engines.pop(place))
                return Session(engine)
        engine = Engine(
            system=System(),
            settings=Settings(),
            make_spark=lambda: spark,
            storage_options=options,
        )
        _ = engine.spark  # its settings count from the first statement
        _engines.append((spark, options, engine))
        # Which files a clone made here may read is known here alone: its engine stays.
        idle = [engine for _, _, engine in _engines if not engine.has_shared]
        gone = set(map(id, idle[:-_ENGINES_MAX]))
        _engines[:] = [one for one in _engines if id(one[2]) not in gone]
        return Session(engine)
