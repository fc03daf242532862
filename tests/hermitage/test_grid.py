"""Hermitage's grid, every script at every level in every place; a part of it on Spark.

All cells run in a lake whose rows are Python's: what decides about them is the engine's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.hermitage.cells import check
from tests.hermitage.running import Level, Place, Tables, run
from tests.hermitage.scripts import SCRIPTS, Script
from tests.simulation.rows.lake import RowLake

Bench = tuple[txlake.Lake, Tables]


@pytest.fixture(scope="module")
def rows() -> Iterator[Bench]:
    with RowLake() as lake:
        yield lake, Tables(lake, "memory://hermitage")


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("hermitage")
    with txlake.connect(str(folder / "warehouse"), spark=spark) as lake:
        yield lake, Tables(lake, str(folder))


def name(value: object) -> str:
    return value.name if isinstance(value, Script) else str(getattr(value, "name", value)).lower()


@pytest.mark.parametrize("level", Level, ids=name)
@pytest.mark.parametrize("place", Place, ids=name)
@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_cell(script: Script, place: Place, level: Level, rows: Bench) -> None:
    check(script, level, place, run(script, level, place, *rows))


@pytest.mark.broad(keep=5)
@pytest.mark.parametrize(
    ("script", "place", "level"), list(zip(SCRIPTS, cycle(Place), cycle(Level))), ids=name
)
def test_cell_on_spark(script: Script, place: Place, level: Level, on_spark: Bench) -> None:
    check(script, level, place, run(script, level, place, *on_spark))
