"""A lake, and tables of both kinds in it, for all tests of the process here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count()


@dataclass(frozen=True, slots=True)
class Made:
    """A table, as SQL names it and as Python does."""

    sql: str
    name: str
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "_delta_log"


Maker = Callable[..., Made]


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path_factory.mktemp("bugs") / "warehouse"), spark=spark) as opened:
        yield opened


@pytest.fixture(params=["path", "catalog"])
def make(
    request: pytest.FixtureRequest, lake: txlake.Lake, tmp_path_factory: pytest.TempPathFactory
) -> Maker:
    """Make tables of one kind: named by their place, or by the lake's catalog."""

    def made(columns: str = "id INT, value INT", more: str = "") -> Made:
        name = f"t{next(_numbers)}"
        folder = tmp_path_factory.mktemp("bugs") / name
        place = f"delta.`{folder}`"
        lake.sql(f"CREATE TABLE {place} ({columns}) {more}")
        if request.param == "path":
            return Made(place, str(folder), folder)
        lake.attach(str(folder), name)
        return Made(name, name, folder)

    return made
