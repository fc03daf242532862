"""Ctrl-C at random instants of work on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.interrupted import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad

COUNT = 12


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # connections that PySpark gave up
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_leave_nothing_behind(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as other:
        counts = run(lake, other, COUNT, 1)
    assert counts["interrupts"] == COUNT
