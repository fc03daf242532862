"""Which Spark sessions `txlake.enable` gave to a lake, and to which session of it.

A registry, and nothing else: `spark_integration` implements enabled sessions. It is here because a
`DeltaTable` that is found by a Spark session belongs to the lake of that session too.

A stream runs its micro-batches in a clone of its Spark session, with temporary views of its own.
The clone gets a session of the lake of its own, at work in the clone: what a batch begins, or uses,
is the batch's, whatever the program does in the session meanwhile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from txlake.errors import InvalidRequest
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane
from txlake.spark.spark_sessions import is_connect, is_same, is_stopped

# Settings of the Spark session, which its clones have too: what it was given to, and the database
# that a stream begins in.
_TOKEN = "spark.txlake.enabled"
_DATABASE = "spark.txlake.database"
# Clones end with their streams, unreported; one that is as it was made is made anew.
_CLONES_MAX = 16


@dataclass(frozen=True, slots=True)
class Enabled:
    """A Spark session and the lake's session that it was given to.

    Attributes:
        token: tells what clones of the Spark session belong to.
        began: how the lake's session of a clone was set when it was made.
    """

    spark: SparkSession
    session: Session
    token: str
    began: tuple[object, ...] = ()


class _Batch(threading.local):
    """The micro-batch that this thread runs: its lake sessions by token; None outside of one."""

    sessions: dict[str, Session] | None = None


_lock = threading.Lock()
_numbers = itertools.count(1)
_enabled: list[Enabled] = []
# What sessions were given to before, another lake each: the clones of then go on with it.
_former: list[Enabled] = []
# The one that was used last comes last.
_clones: list[Enabled] = []
_batch = _Batch()


def give(spark: SparkSession, session: Session) -> None:
    """From here on the Spark session is this one's; streams that run stay with their lake."""
    with _lock:
        _forget_stopped()
        before = [one for one in _enabled if is_same(one.spark, spark)]
        same = [one for one in before if one.session.engine is session.engine]
        token = same[0].token if same else f"{next(_numbers)}"
        _former.extend(one for one in before if one not in same)
        _enabled[:] = [one for one in _enabled if one not in before]
        _enabled.append(Enabled(spark, session, token))
        if not is_connect(spark):
            spark.conf.set(_TOKEN, token)


def take_back(spark: SparkSession) -> bool:
    """The Spark session belongs to no lake again. False when it belonged to none."""
    with _lock:
        was = any(is_same(one.spark, spark) for one in _enabled)
        _forget_stopped()
        gone = {one.token for one in (*_enabled, *_former) if is_same(one.spark, spark)}
        for known in (_enabled, _former, _clones):
            known[:] = [one for one in known if one.token not in gone]
    if was and not is_connect(spark) and not is_stopped(spark):
        spark.conf.unset(_TOKEN)
    return was


def is_any() -> bool:
    """Whether any Spark session is enabled that wasn't stopped."""
    with _lock:
        _forget_stopped()
        return bool(_enabled)


def _forget_stopped() -> None:
    """Sessions that were stopped are nobody's: nothing can be asked of them any more."""
    for known in (_enabled, _former, _clones):
        known[:] = [one for one in known if not is_stopped(one.spark)]


def enabled_in(spark: SparkSession) -> Enabled | None:
    """What a Spark session was given to: the object given, any other of the same, or a clone."""
    with _lock:
        known, former = tuple(_enabled), tuple(_former)
    if not known:
        return None
    for one in known:
        if is_same(one.spark, spark):
            return _in_batch(one)
    if is_connect(spark):
        return None
    try:
        token = spark.conf.get(_TOKEN, None)
    except PySparkException:  # a session that was stopped
        return None
    given = next((one for one in (*known, *former) if one.token == token), None)
    return None if given is None else _of_clone(given, spark)


def _of_clone(given: Enabled, spark: SparkSession) -> Enabled:
    """A clone of a session that was given to a lake, with a session of its own on that lake."""
    with _lock:
        for place, one in enumerate(_clones):
            if one.token == given.token and is_same(one.spark, spark):
                _clones.append(_clones.pop(place))
                return one
        plane = given.session.engine.plane
        assert isinstance(plane, SparkPlane), "a Spark session was given to it"
        session = _beside(given.session, given.session.engine.with_plane(plane.in_session(spark)))
        database = spark.conf.get(_DATABASE, None)
        if database is not None:
            session.database = database
        made = Enabled(spark, session, given.token, _settings(session))
        idle = [one for one in _clones if _settings(one.session) == one.began]
        for one in idle[: max(0, len(idle) - _CLONES_MAX + 1)]:
            _clones.remove(one)
        _clones.append(made)
        return made


def _beside(session: Session, engine: Engine) -> Session:
    """Another session on the same lake, set as this one is."""
    made = Session(engine, session.handlers, level=session.level)
    made.database, made.lock_timeout_ms = session.database, session.lock_timeout_ms
    return made


def _settings(session: Session) -> tuple[object, ...]:
    return session.current, session.database, session.level, session.lock_timeout_ms


# --- micro-batches -------------------------------------------------------------------------------


@contextmanager
def starting(spark: SparkSession, database: str) -> Iterator[None]:
    """A stream that is started here begins in the database that is current now."""
    if is_connect(spark):
        yield
        return
    spark.conf.set(_DATABASE, database)
    try:
        yield
    finally:
        spark.conf.unset(_DATABASE)


def one_batch_each(
    function: Callable[[DataFrame, int], object],
) -> Callable[[DataFrame, int], None]:
    """The function of `foreachBatch`, whose transactions end with each micro-batch.

    What it does by the session that the program holds is in a transaction of the batch's too, and
    never in one that another thread has open there. A micro-batch that leaves a transaction open
    raises InvalidRequest: Spark would note it as done, and its rows would be lost.
    """

    @wraps(function)
    def batch_by_batch(batch: DataFrame, batch_id: int) -> None:
        _batch.sessions = {}
        try:
            function(batch, batch_id)
            left = _end_batch(batch.sparkSession)
        except BaseException:
            _end_batch(batch.sparkSession)
            raise
        finally:
            _batch.sessions = None
        if left:
            raise InvalidRequest(
                f"micro-batch {batch_id} left a transaction open, which is rolled back: end the "
                "function of foreachBatch with COMMIT"
            )

    return batch_by_batch


def _in_batch(given: Enabled) -> Enabled:
    """A session as a micro-batch sees it that this thread runs; as it is outside of one."""
    if _batch.sessions is None:
        return given
    if given.token not in _batch.sessions:
        _batch.sessions[given.token] = _beside(given.session, given.session.engine)
    return Enabled(given.spark, _batch.sessions[given.token], given.token)


def _end_batch(spark: SparkSession) -> bool:
    """Rolls back what the micro-batch left open; whether there was anything."""
    with _lock:
        used = [one.session for one in _clones if is_same(one.spark, spark)]
    used += (_batch.sessions or {}).values()
    left = [session for session in used if session.current is not None]
    for session in left:
        session.rollback_own()
    return bool(left)
