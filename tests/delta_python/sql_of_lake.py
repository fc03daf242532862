"""Tests of `spark.sql` whose SQL a lake carries out instead."""

from __future__ import annotations

import tempfile
import unittest
from typing import TYPE_CHECKING, Any

import txlake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlOfLake:
    """A Spark session whose `sql` is a lake's; all else is its own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lake = txlake.connect(tempfile.mkdtemp(), spark=spark)

    def sql(self, text: str) -> DataFrame:
        return self._lake.sql(text)

    def stop(self) -> None:
        self._lake.close()
        self._spark.stop()

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)


def on_a_lake(kind: type[unittest.TestCase]) -> type[unittest.TestCase]:
    """The class of tests with its `spark` so replaced."""

    def set_up(own: Any) -> None:
        super(changed, own).setUpClass()
        own.spark = SqlOfLake(own.spark)

    changed: type[unittest.TestCase] = type(
        kind.__name__, (kind,), {"__module__": kind.__module__, "setUpClass": classmethod(set_up)}
    )
    return changed
