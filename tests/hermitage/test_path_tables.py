"""Hermitage's grid on path tables, one and two: every script at every level."""

from __future__ import annotations

import pytest

import txlake
from tests.hermitage.cells import check
from tests.hermitage.running import Level, Place, Tables, run
from tests.hermitage.scripts import SCRIPTS, Script


@pytest.mark.parametrize("level", Level, ids=lambda level: level.name.lower())
@pytest.mark.parametrize(
    "place", [Place.PATH, Place.TWO_PATH], ids=lambda place: place.name.lower()
)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_cell(
    script: Script, place: Place, level: Level, bench: tuple[txlake.Lake, Tables]
) -> None:
    check(script, level, place, run(script, level, place, *bench))
