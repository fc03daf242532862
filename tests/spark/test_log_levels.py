"""What Spark logs of an error: nothing where txlake raises it, as ever where Spark does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.spark.log_levels import without_query_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class Kept(logging.Handler):
    """The texts that a logger lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[list[str]]:
    handler = Kept()
    for name in NAMES:
        PySparkLogger.getLogger(name).addHandler(handler)
    yield handler.texts
    for name in NAMES:
        PySparkLogger.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_this_thread_catches_goes_unlogged(name: str, kept: list[str]) -> None:
    logger = PySparkLogger.getLogger(name)
    level = logger.level
    with without_query_logs():
        logger.error("caught")
        with without_query_logs():
            logger.error("caught deeper")
        logger.error("caught again")
        other = Thread(target=logger.error, args=("another thread's",))
        other.start()
        other.join(60)
    logger.error("the user's own")
    assert kept == ["another thread's", "the user's own"]
    assert logger.level == level


def test_loggers_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt there may leave its lock taken: every other thread that logs then waits."""

    def refuse(_: str) -> None:
        raise AssertionError("it was asked again")

    with without_query_logs():
        monkeypatch.setattr(PySparkLogger, "getLogger", refuse)
    with without_query_logs():
        pass


def test_a_refused_statement_is_not_logged(
    tmp_path: Path, spark: SparkSession, kept: list[str]
) -> None:
    t = table(tmp_path / "t", spark, "id INT")
    t.run("INSERT INTO t VALUES (1)")
    with pytest.raises(InvalidRequest, match="nope"):
        t.run("UPDATE t SET id = nope")
    assert kept == []
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nope")
    assert len(kept) == 1


PROGRAM = """
import sys
import txlake
from pyspark.sql import SparkSession
lake = txlake.connect(sys.argv[1])
lake.sql("CREATE TABLE t AS SELECT 1 AS id")
for sql in ("SELECT nope FROM t", "INSERT INTO t SELECT CAST(raise_error('mine') AS INT)"):
    try:
        lake.sql(sql)
    except txlake.errors.InvalidRequest:
        print("refused")
print("-- Spark's", file=sys.stderr, flush=True)
try:
    SparkSession.getActiveSession().sql("SELECT nope")
except Exception:
    print("raised")
"""


@pytest.mark.broad
def test_a_programs_standard_error_holds_no_traces(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell"},
    )
    assert done.stdout.split() == ["refused", "refused", "raised"]
    of_txlake, _, of_spark = done.stderr.partition("-- Spark's\n")
    assert "\tat " not in of_txlake
    assert "{" not in of_txlake
    assert "SQLQueryContextLogger" in of_spark
