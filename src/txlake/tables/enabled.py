"""Which Spark sessions `txlake.enable` gave to a lake, and to which session of it.

A registry, and nothing else: what an enabled session does is told by `doors`. It is here because a
`DeltaTable` that is found by a Spark session belongs to the lake of that session too.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txlake.session.session import Session
from txlake.spark.spark_sessions import is_connect, is_same

# A setting of the Spark session: clones of a session, which streams run their batches in, have it.
_TOKEN = "spark.txlake.enabled"


@dataclass(frozen=True, slots=True)
class Enabled:
    """A Spark session and the lake's session that it was given to."""

    spark: SparkSession
    session: Session
    token: str


_lock = threading.Lock()
_numbers = itertools.count(1)
_enabled: list[Enabled] = []


def give(spark: SparkSession, session: Session) -> None:
    """From here on the Spark session is this one's; what it was given to before is forgotten."""
    with _lock:
        _enabled[:] = [one for one in _enabled if not is_same(one.spark, spark)]
        made = Enabled(spark, session, f"{next(_numbers)}")
        _enabled.append(made)
    if not is_connect(spark):
        spark.conf.set(_TOKEN, made.token)


def take_back(spark: SparkSession) -> bool:
    """The Spark session is nobody's again. False when it wasn't anybody's."""
    with _lock:
        kept = [one for one in _enabled if not is_same(one.spark, spark)]
        was = len(kept) < len(_enabled)
        _enabled[:] = kept
    if was and not is_connect(spark):
        spark.conf.unset(_TOKEN)
    return was


def is_any() -> bool:
    """Whether any Spark session is enabled."""
    return bool(_enabled)


def enabled_in(spark: SparkSession) -> Enabled | None:
    """What a Spark session was given to: the object given, any other of the same, or a clone."""
    with _lock:
        known = tuple(_enabled)
    if not known:
        return None
    for one in known:
        if is_same(one.spark, spark):
            return one
    if is_connect(spark):
        return None
    try:
        token = spark.conf.get(_TOKEN, None)
    except PySparkException:  # a session that was stopped
        return None
    return next((one for one in known if one.token == token), None)
