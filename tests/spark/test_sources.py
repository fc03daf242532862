"""Spark Connect has no gateway into the JVM, so nothing of ours may use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import txlake

SOURCES = Path(str(txlake.__file__)).parent
GATEWAY = re.compile(
    r"\b_jvm\b|\b_jdf\b|\b_jsc\b|\b_jsparkSession\b|\b_jc\b|\b_gateway\b|\bsparkContext\b|\.rdd\b"
    r"|\bRDD\b|\bSQLContext\b|import py4j|from py4j"
)


# Where it is asked first whether the session is Connect's: which Python the workers are; settings
# for one read or write that no other thread sees; how many tasks run at once; how large Spark
# thinks rows are; columns of its own for a plan that is kept; what a Column is made of, which one
# of Connect doesn't show; whether two objects are one session; what Ctrl-C ends at the command
# line; how the JVM logs; whether Spark, or a session, was stopped; where the code of tasks goes;
# which file system a path without a scheme is of; names of several parts; what py4j raises; by
# which settings a session reads texts; which session is a thread's active one; what Spark's parser
# finds in a query; which casts lose nothing; what a zone's rules are; what a server's data plane
# does, which refuses a session of Connect at its start.
ALLOWED = {
    'ours, theirs = (getattr(session, "_jsparkSession", None) for session in (one, other))',
    'column = getattr(getattr(expression, "column", None), "_jc", None)',
    "catalyst = classic._jvm.org.apache.spark.sql.catalyst",
    "context = spark.sparkContext",
    "context = None if connect else spark.sparkContext",
    "cores = spark.sparkContext.defaultParallelism",
    "engine.spark.sparkContext.cancelAllJobs()",
    "from py4j.java_gateway import JavaObject",
    "return classic._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)",
    "return session.sparkContext._jsc is None",
    "plan = java._jdf.queryExecution().analyzed()",
    "renamed = frame._jdf.toDF(self.names)",
    "plan = frame._jdf.queryExecution().optimizedPlan()",
    "session = classic._jsparkSession",
    "log4j = classic._jvm.org.apache.logging.log4j",
    "return bool(context and context._gateway and context._active_spark_context is None)",
    "session = classic._jsparkSession.cloneSession()",
    "from py4j import protocol  # missing with Spark Connect",
    "return classic._jsparkSession.sessionState().conf()",
    "sessions = _sessions_class(classic._jvm)",
    "is_already = before.contains(classic._jsparkSession)",
    "sessions.setActiveSession(classic._jsparkSession)",
    "from py4j.protocol import Py4JError  # not where Spark is reached by Connect",
    "from py4j.java_gateway import is_instance_of",
    "self._is_instance = functools.partial(is_instance_of, self._spark.sparkContext._gateway)",
    "return self._spark._jsparkSession.sessionState().sqlParser().parsePlan(text)",
    "return bool(classic._jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(given, to))",
    "jvm = classic._jvm",
    "state = classic._jsparkSession.sessionState()",
    "kind = classic._get_j_spark_session_class(classic._jvm)",
    "kind.setActiveSession(classic._jsparkSession)",
    "spark.sparkContext.setJobGroup(watch.group, _JOBS, interruptOnCancel=True)",
    "skip = classic._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()",
    "spark.sparkContext.cancelJobGroup(group)",
    "gateway: Any = None if context is None else context._gateway",
    "if context._gateway is not None:",
    "context._gateway.shutdown()",
    "context._gateway = None",
    "context._jvm = None",
    "from pyspark import RDD, SparkContext",
    "self._context: SparkContext = classic.sparkSession.sparkContext",
    "plan = java._jdf.queryExecution().optimizedPlan()",
    "batches = classic._jdf.toArrowBatchRdd().toJavaRDD()",
    "self._rows: RDD[Any] = RDD(batches, self._context, NoOpSerializer())",
    'found = classic._jsparkSession.sessionState().newHadoopConf().get("fs.defaultFS")',
}


def test_no_source_uses_the_gateway() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{number}"
        for path in SOURCES.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if GATEWAY.search(line) and line.strip() not in ALLOWED
    }
    assert found == set()


@pytest.mark.parametrize(
    "line", ["spark._jvm.x", "df._jdf", "spark.sparkContext", "frame.rdd.map", "from py4j import x"]
)
def test_the_search_finds_them(line: str) -> None:
    assert GATEWAY.search(line)


def test_rows_of_the_driver_become_frames_by_one_function() -> None:
    """PySpark's own makes another session the active one, which its caller would keep."""
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if ".createDataFrame(" in path.read_text(encoding="utf-8")
    }
    assert found == {"spark/spark_sessions.py"}
