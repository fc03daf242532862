"""Runs a program written for Delta Spark, unchanged: only its session's set-up is txlake's.

python -m tests.delta_python.example PROGRAM LAKE

What the program configures of Delta Spark (its extension, its catalog, its JARs) is left out; the
session that it builds is given to a lake at LAKE; `import delta` is txlake.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from pyspark.sql import SparkSession

import txlake

_OF_DELTA = ("io.delta", "org.apache.spark.sql.delta", "spark.jars")


def prepare(location: str) -> None:
    """From here on sessions that are built are a lake's."""
    builder: Any = SparkSession.Builder
    config, get_or_create = builder.config, builder.getOrCreate

    def configured(own: Any, key: Any = None, value: Any = None, **others: Any) -> Any:
        if any(part in f"{key} {value}" for part in _OF_DELTA):
            return own
        return config(own, key, value, **others)

    def enabled(own: Any) -> SparkSession:
        spark = get_or_create(own)
        return txlake.enable(spark, txlake.connect(location, spark=spark))

    builder.config, builder.getOrCreate = configured, enabled
    txlake.install_as_delta()


if __name__ == "__main__":
    prepare(sys.argv[2])
    runpy.run_path(sys.argv[1], run_name="__main__")
