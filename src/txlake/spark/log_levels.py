"""Keep Spark's loggers silent about errors that txlake raises itself.

PySpark 4 logs each error of a query as JSON to standard error when its exception is created, before
anybody can catch it, and the JVM's task scheduler logs a failed task's stack trace three times.
Owns that neither happens where txlake raises the error. What Spark raises to its user, and every
logger that somebody configured, stays as it is without txlake.
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
# The JVM's loggers of failed tasks; the driver gets each error that they log.
_TASK_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
_UNCONFIGURED = "org/apache/spark/log4j2-defaults.properties"
_is_caught = ContextVar("txlake_is_caught", default=False)


class _UncaughtOnly(logging.Filter):
    """Drops what is logged while txlake handles exceptions in this thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_caught.get()


_UNCAUGHT_ONLY = _UncaughtOnly()


@cache
def _loggers() -> tuple[logging.Logger, ...]:
    """Return PySpark's loggers.

    Cached, because an interrupt in `getLogger` may leave logging's lock taken for ever.
    """
    return tuple(PySparkLogger.getLogger(name) for name in _LOGGERS)


@contextmanager
def without_query_logs() -> Iterator[None]:
    """Suppress PySpark's logging of query errors that this thread meets inside the block.

    The filter stays installed after the block, and drops nothing then.
    """
    for logger in _loggers():
        logger.addFilter(_UNCAUGHT_ONLY)
    was_caught = _is_caught.get()
    try:
        _is_caught.set(True)
        yield
    finally:
        _is_caught.set(was_caught)


def silence_task_errors(spark: SparkSession) -> None:
    """Turn off the JVM's loggers of failed tasks, in a Spark that txlake started.

    Only if nobody configured its logging; no-op on Spark Connect. Not called for a Spark that
    somebody else started.
    """
    if is_connect(spark):
        return
    classic: Any = spark
    log4j = classic._jvm.org.apache.logging.log4j
    source = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    if _UNCONFIGURED in str(source.getLocation()):
        for name in _TASK_LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
