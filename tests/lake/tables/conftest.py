"""Doubles for the classes of `txlake.lake.tables`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.lake.tables.doubles import PLACE, Recorder
from txlake.lake.tables import DeltaTable, table


@pytest.fixture
def recorder() -> Recorder:
    return Recorder({PLACE})


@pytest.fixture
def given_options(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> list[Mapping[str, str] | None]:
    """`forPath(spark, ...)` and its like use the recorder; the storage options that they gave."""
    given: list[Mapping[str, str] | None] = []

    def executor_of(_: object, options: Mapping[str, str] | None = None) -> Recorder:
        given.append(options)
        return recorder

    monkeypatch.setattr(table, "executor_of", executor_of)
    return given


@pytest.fixture
def delta_table(recorder: Recorder) -> DeltaTable:
    return DeltaTable(recorder, PLACE)
