"""The registry of Spark sessions that `txlake.enable` gave to a lake, and of the lake's sessions.

`spark_integration` implements enabled sessions. The registry is here because a `DeltaTable` found
by a Spark session belongs to that session's lake too.

A stream runs its micro-batches in a clone of its Spark session, with temporary views of its own.
The clone gets a lake session of its own, so that transactions and USE in a batch don't affect the
program's session, nor the program's the batch.
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

from txlake.commit.data_plane import DataPlane
from txlake.errors import InvalidRequest
from txlake.session.branch_use import WAP_BRANCH
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane
from txlake.spark.spark_sessions import is_connect, is_same, is_stopped

# Settings of the Spark session, which its clones inherit: the token of its lake's session, and the
# database and the branch that a stream begins in.
_TOKEN = "spark.txlake.enabled"
_DATABASE = "spark.txlake.database"
_BRANCH = "spark.txlake.branch"
# Nothing reports that a clone's stream has ended. A clone whose session still has its initial
# settings can be made anew, so it may be evicted.
_CLONES_MAX = 16


@dataclass(frozen=True, slots=True)
class EnabledSession:
    """A Spark session and the lake session that it was given to.

    Attributes:
        token: identifies clones of the Spark session.
        initial_settings: the settings of a clone's lake session when it was made.
    """

    spark: SparkSession
    session: Session
    token: str
    initial_settings: tuple[object, ...] = ()


class _Batch(threading.local):
    """The micro-batch that this thread runs: its lake sessions by token; None outside a batch.

    Attributes:
        branch: the branch on which its stream was started; None if that isn't known.
    """

    sessions: dict[str, Session] | None = None
    branch: str | None = None


_lock = threading.Lock()
_numbers = itertools.count(1)
_enabled: list[EnabledSession] = []
# Earlier bindings to other lakes: clones made then keep them.
_former: list[EnabledSession] = []
# Most recently used last.
_clones: list[EnabledSession] = []
_batch = _Batch()


def enable_session(spark: SparkSession, session: Session) -> None:
    """Give the Spark session to a lake's session; running streams keep their lake.

    A lake session that it was given to before is replaced. Sets `spark.txlake.enabled` on the Spark
    session, by which its clones are known; not with Spark Connect, which has no clones.
    """
    with _lock:
        _forget_stopped()
        previous = [entry for entry in _enabled if is_same(entry.spark, spark)]
        same_lake = [entry for entry in previous if entry.session.engine is session.engine]
        token = same_lake[0].token if same_lake else f"{next(_numbers)}"
        _former.extend(entry for entry in previous if entry not in same_lake)
        _enabled[:] = [entry for entry in _enabled if entry not in previous]
        _enabled.append(EnabledSession(spark, session, token))
        if not is_connect(spark):
            spark.conf.set(_TOKEN, token)


def disable_session(spark: SparkSession) -> bool:
    """Take the Spark session and its clones from all lakes.

    Returns False if it was given to none.
    """
    with _lock:
        was_enabled = any(is_same(entry.spark, spark) for entry in _enabled)
        _forget_stopped()
        tokens = {entry.token for entry in (*_enabled, *_former) if is_same(entry.spark, spark)}
        for entries in (_enabled, _former, _clones):
            entries[:] = [entry for entry in entries if entry.token not in tokens]
    if was_enabled and not is_connect(spark) and not is_stopped(spark):
        spark.conf.unset(_TOKEN)
    return was_enabled


def any_enabled() -> bool:
    """Return whether any Spark session is enabled that wasn't stopped."""
    with _lock:
        _forget_stopped()
        return bool(_enabled)


def _forget_stopped() -> None:
    """Remove stopped Spark sessions, which can't be asked for settings any more."""
    for entries in (_enabled, _former, _clones):
        entries[:] = [entry for entry in entries if not is_stopped(entry.spark)]


def enabled_session(spark: SparkSession) -> EnabledSession | None:
    """Return the binding of a Spark session, or of the session that it is a clone of, else None.

    A clone gets a lake session of its own on first use, and so does a micro-batch.
    """
    with _lock:
        enabled, former = tuple(_enabled), tuple(_former)
    if not enabled:
        return None
    for entry in enabled:
        if is_same(entry.spark, spark):
            return _for_current_batch(entry)
    if is_connect(spark):
        return None
    try:
        token = spark.conf.get(_TOKEN, None)
    except PySparkException:  # a session that was stopped
        return None
    original = next((entry for entry in (*enabled, *former) if entry.token == token), None)
    return None if original is None else _clone_session(original, spark)


def _clone_session(original: EnabledSession, spark: SparkSession) -> EnabledSession:
    """Return a clone's binding, with a lake session of its own.

    Made at the first call for the clone; of the clones whose lake session is as it was made, the 16
    used last are kept.
    """
    with _lock:
        for position, entry in enumerate(_clones):
            if entry.token == original.token and is_same(entry.spark, spark):
                _clones.append(_clones.pop(position))
                return entry
        plane = original.session.engine.plane
        assert isinstance(plane, SparkPlane), "a Spark session was given to it"
        branch = spark.conf.get(_BRANCH, None)
        session = _similar_session(original.session, plane.in_session(spark), branch)
        database = spark.conf.get(_DATABASE, None)
        if database is not None:
            session.database = database
        clone = EnabledSession(spark, session, original.token, _session_settings(session))
        idle = [
            entry for entry in _clones if _session_settings(entry.session) == entry.initial_settings
        ]
        for entry in idle[: max(0, len(idle) - _CLONES_MAX + 1)]:
            _clones.remove(entry)
        _clones.append(clone)
        return clone


def _similar_session(
    session: Session, plane: DataPlane | None = None, branch: str | None = None
) -> Session:
    """Return another session on the same lake, with the same settings; on another data plane or
    branch if one is given. Raises InvalidRequest for a branch that has ended.
    """
    copy = session.another(plane, branch)
    copy.lock_timeout_ms = session.lock_timeout_ms
    return copy


def _session_settings(session: Session) -> tuple[object, ...]:
    return session.current, session.database, session.level, session.lock_timeout_ms


# --- micro-batches -------------------------------------------------------------------------------


@contextmanager
def stream_start(spark: SparkSession, session: Session) -> Iterator[None]:
    """Let streams that start in the block begin in the database and on the branch of a session.

    With Spark Connect, which has no clones, do nothing.
    """
    if is_connect(spark):
        yield
        return
    spark.conf.set(_DATABASE, session.database)
    spark.conf.set(_BRANCH, session.chosen_branch)
    try:
        yield
    finally:
        spark.conf.unset(_DATABASE)
        spark.conf.unset(_BRANCH)


def end_transactions_per_batch(
    function: Callable[[DataFrame, int], object],
) -> Callable[[DataFrame, int], None]:
    """Wrap the function of `foreachBatch` so that its transactions end with each micro-batch.

    Within the function, the program's Spark session has a lake session of the micro-batch's own, on
    the branch on which the stream was started, so that statements never join a transaction that
    another thread has open. A transaction that
    the function leaves open is rolled back. Then InvalidRequest is raised, since Spark would record
    the micro-batch as done although its rows are lost. An error of the function rolls back too,
    and is raised as it is.
    """

    @wraps(function)
    def run_batch(batch: DataFrame, batch_id: int) -> None:
        """Run the function and roll back what it leaves open. Raises InvalidRequest if it returned
        with a transaction open.
        """
        conf = batch.sparkSession.conf
        _batch.sessions = {}
        _batch.branch = conf.get(WAP_BRANCH, None) or conf.get(_BRANCH, None)
        try:
            function(batch, batch_id)
            was_open = _end_batch(batch.sparkSession)
        except BaseException:
            _end_batch(batch.sparkSession)
            raise
        finally:
            _batch.sessions = None
        if was_open:
            raise InvalidRequest(
                f"micro-batch {batch_id} left a transaction open, which is rolled back: end the "
                "function of foreachBatch with COMMIT"
            )

    return run_batch


def _for_current_batch(enabled: EnabledSession) -> EnabledSession:
    """Return the binding with the current micro-batch's own lake session, if a batch runs here."""
    if _batch.sessions is None:
        return enabled
    if enabled.token not in _batch.sessions:
        made = _similar_session(enabled.session, branch=_batch.branch)
        _batch.sessions[enabled.token] = made
    return EnabledSession(enabled.spark, _batch.sessions[enabled.token], enabled.token)


def _end_batch(spark: SparkSession) -> bool:
    """Roll back the transactions that the micro-batch left open. Return whether there were any."""
    with _lock:
        used = [entry.session for entry in _clones if is_same(entry.spark, spark)]
    used += (_batch.sessions or {}).values()
    unfinished = [session for session in used if session.current is not None]
    for session in unfinished:
        session.rollback_own()
    return bool(unfinished)
