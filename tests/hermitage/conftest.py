"""A lake and tables for all cells of a test process.

They aren't below a test's tmp_path: what they hold is for other engines what any table is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.hermitage.running import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def bench(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[txlake.Lake, Tables]]:
    folder = tmp_path_factory.mktemp("hermitage")
    with txlake.connect(str(folder / "warehouse"), spark=spark) as lake:
        yield lake, Tables(lake, folder / "tables")
