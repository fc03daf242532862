"""Spark's loggers say nothing of the errors that txlake raises in their place.

PySpark 4 logs each error of a query as JSON to standard error at the moment when its exception is
made, before anybody can catch it, and the JVM's task scheduler logs a failed task's stack trace
three times. Owns that neither happens where txlake raises the error. What Spark raises to its user,
and every logger that somebody configured, is left as it is without txlake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from txlake.spark.spark_sessions import is_connect

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Of the JVM; each raises to the driver what it logs.
_OF_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
_UNCONFIGURED = "org/apache/spark/log4j2-defaults.properties"
_is_caught = ContextVar("txlake_is_caught", default=False)


class _Uncaught(logging.Filter):
    """Lets pass what is logged while nobody here waits for the exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_caught.get()


_UNCAUGHT = _Uncaught()


@cache
def _loggers() -> tuple[logging.Logger, ...]:
    """Asked for once: an interrupt in `getLogger` may leave logging's lock taken for ever."""
    return tuple(PySparkLogger.getLogger(name) for name in _LOGGERS)


@contextmanager
def without_query_logs() -> Iterator[None]:
    """Errors of queries that this thread meets inside aren't logged by PySpark."""
    for logger in _loggers():
        logger.addFilter(_UNCAUGHT)
    before = _is_caught.get()
    try:
        _is_caught.set(True)
        yield
    finally:
        _is_caught.set(before)


def silence_task_errors(spark: SparkSession) -> None:
    """Lets the JVM of a Spark that txlake started say nothing of tasks that fail.

    Only where nobody configured its logging. For a Spark that somebody else started, whose log is
    theirs, this isn't called.
    """
    if is_connect(spark):
        return
    classic: Any = spark
    log4j = classic._jvm.org.apache.logging.log4j
    source = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    if _UNCONFIGURED in str(source.getLocation()):
        for name in _OF_TASKS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
