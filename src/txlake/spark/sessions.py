"""Settings for one plan: a session of the JVM like the user's, and plans moved between the two.

What Spark takes from a session alone can so be said of one read or one write, and no other thread
sees it. Not for Spark Connect, whose client has no plans to move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> JavaObject:
    """The JVM's session with settings of its own."""
    classic: Any = spark
    session = classic._jsparkSession.cloneSession()
    for key, value in settings.items():
        session.conf().set(key, value)
    return session


def dataset_in(frame: DataFrame, session: JavaObject) -> JavaObject:
    """The same plan as a Dataset of another session of the JVM."""
    java: Any = frame
    spark: Any = frame.sparkSession
    plan = java._jdf.queryExecution().analyzed()
    return spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """The same plan as a frame of the session."""
    classic: Any = spark
    session = classic._jsparkSession
    moved: DataFrame = type(frame)(dataset_in(frame, session), classic)
    return moved
