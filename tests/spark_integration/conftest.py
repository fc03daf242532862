"""A Spark session that was given to a lake, and is nobody's again after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """The lake of `enabled`."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


@pytest.fixture
def enabled(lake: txlake.Lake, spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, enabled for `lake`."""
    yield txlake.enable(spark, lake)
    txlake.disable(spark)
