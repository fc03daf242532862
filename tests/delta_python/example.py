"""Runs a program written for Delta Spark, unchanged: only its session's set-up is txlake's.

python -m tests.delta_python.example PROGRAM LAKE

The session that it builds is given to a lake at LAKE, as `txlake.configure` does; `import delta` is
txlake.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from pyspark.sql import SparkSession

import txlake


def prepare(location: str) -> None:
    """From here on sessions that are built are a lake's."""
    builder: Any = SparkSession.Builder
    plain = builder.getOrCreate

    def enabled(own: Any) -> SparkSession:
        builder.getOrCreate = plain
        try:
            return txlake.configure(own, location).getOrCreate()
        finally:
            builder.getOrCreate = enabled

    builder.getOrCreate = enabled
    txlake.install_as_delta()


if __name__ == "__main__":
    prepare(sys.argv[2])
    runpy.run_path(sys.argv[1], run_name="__main__")
