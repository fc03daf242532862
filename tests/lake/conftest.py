"""A lake in the test's own folder, on the process's Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.simulation.rows.lake import RowLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """An empty lake."""
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as opened:
        yield opened


@pytest.fixture
def row_lake() -> Iterator[txlake.Lake]:
    """An empty lake whose rows are Python's, for what Spark has no part in."""
    with RowLake() as opened:
        yield opened
