"""Sessions on path tables alone, for a Spark session that the user brings."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.system import System

_lock = threading.Lock()
_engines: list[tuple[SparkSession, dict[str, str], Engine]] = []


def for_spark(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Session:
    """A session on tables named by their place; its caches are shared per Spark session."""
    options = dict(storage_options or {})
    with _lock:
        for known, known_options, engine in _engines:
            if known is spark and known_options == options:
                return Session(engine)
        engine = Engine(
            system=System(),
            settings=Settings(),
            make_spark=lambda: spark,
            storage_options=options,
        )
        _engines.append((spark, options, engine))
        return Session(engine)
