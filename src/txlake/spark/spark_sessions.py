"""What a Spark session gives to new tables; settings for one plan, and plans that change sessions.

What Spark takes from a session alone can be said of one read or one write, in a session of the JVM
like the user's, and no other thread sees it. Not for Spark Connect, whose client has no plans to
move.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from txlake.protocol.properties import is_known

if TYPE_CHECKING:
    import pyarrow as pa
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext


_DEFAULTS = "spark.databricks.delta.properties.defaults."


def default_properties(spark: SparkSession) -> dict[str, str]:
    """Return the properties that the session's settings give to new tables, by their `delta.` keys.

    Settings that are no property of Delta tables are left out, as Delta Spark does.
    """
    settings: dict[str, str] = dict(spark.conf.getAll)
    found = {
        "delta." + key.removeprefix(_DEFAULTS): value
        for key, value in settings.items()
        if key.startswith(_DEFAULTS)
    }
    return {key: value for key, value in found.items() if is_known(key)}


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_same(one: SparkSession, other: SparkSession) -> bool:
    """Return whether two objects are one Spark session; PySpark may wrap it several times."""
    if one is other:
        return True
    if is_connect(one) or is_connect(other):
        ids = {getattr(session, "session_id", None) for session in (one, other)}
        return is_connect(one) and is_connect(other) and len(ids) == 1 and None not in ids
    ours, theirs = (getattr(session, "_jsparkSession", None) for session in (one, other))
    return ours is not None and theirs is not None and bool(ours.equals(theirs))


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session was stopped, by itself or by another one of its context."""
    session: Any = spark
    if is_connect(spark):
        return bool(session.is_stopped)
    return session.sparkContext._jsc is None


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of this thread in the block; no-op on Spark Connect.

    By the settings of the active session Spark parses the text of an expression, whatever the
    session of the DataFrame that it is for. After the block `SparkSession.active()` returns what it
    returned before.
    """
    if is_connect(spark):
        yield
        return
    classic: Any = spark
    sessions = _sessions_class(classic._jvm)
    before = _active_session(sessions)()
    before_in_python = SparkSession._activeSession
    is_already = before.contains(classic._jsparkSession)
    if not is_already:
        sessions.setActiveSession(classic._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = before_in_python
        if not is_already and not is_stopped(spark):
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def create_frame(
    spark: SparkSession, rows: Sequence[object] | pa.Table, schema: T.StructType | None = None
) -> DataFrame:
    """Return the driver's rows as a DataFrame.

    PySpark makes the session that `createDataFrame` is called on the active one; here the caller's
    stays active, which matters where `spark` is a session that the user has never seen.
    """
    with active(spark):
        frame: DataFrame = spark.createDataFrame(rows, schema)
        return frame


@functools.lru_cache(maxsize=4)
def _sessions_class(jvm: Any) -> Any:  # noqa: ANN401 - py4j's
    """Return the JVM's class of sessions, cached because py4j needs several round trips."""
    return jvm.org.apache.spark.sql.classic.SparkSession


@functools.lru_cache(maxsize=4)
def _active_session(sessions: Any) -> Any:  # noqa: ANN401 - py4j's
    """Return the function of the JVM's class of sessions that returns the thread's active one,
    cached because py4j asks for its name each time.
    """
    return sessions.getActiveSession


def default_file_system(spark: SparkSession) -> str:
    """Return the URL of Hadoop's default file system, `file:///` where none is set."""
    if is_connect(spark):
        return spark.conf.get("spark.hadoop.fs.defaultFS", "file:///") or "file:///"
    classic: Any = spark
    found = classic._jsparkSession.sessionState().newHadoopConf().get("fs.defaultFS")
    return str(found or "file:///")


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> JavaObject:
    """Return a clone of the session, as the JVM's object, with these settings. Not for Spark
    Connect.
    """
    classic: Any = spark
    session = classic._jsparkSession.cloneSession()
    for key, value in settings.items():
        session.conf().set(key, value)
    return session


def dataset_in(frame: DataFrame, session: JavaObject) -> JavaObject:
    """Return the plan as a Dataset of another session of the JVM."""
    java: Any = frame
    spark: Any = frame.sparkSession
    plan = java._jdf.queryExecution().analyzed()
    return dataset_of(spark, session, plan)


def dataset_of(spark: SparkSession, session: JavaObject, plan: JavaObject) -> JavaObject:
    """Return a plan as a Dataset of a session of the JVM."""
    classic: Any = spark
    return classic._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)


def context_class() -> type[SparkContext] | None:
    """Return PySpark's SparkContext class if it was imported; None for Connect clients."""
    found: type[SparkContext] | None = getattr(
        sys.modules.get("pyspark.core.context"), "SparkContext", None
    )
    return found


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the plan as a frame of the session."""
    classic: Any = spark
    session = classic._jsparkSession
    moved: DataFrame = type(frame)(dataset_in(frame, session), classic)
    return moved
