"""Queries that are killed, at random and at every step, write each row once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.streaming.checks import check_counts, check_rows
from tests.lake.streaming.engine import BRANCH_SINK, SINKS
from tests.lake.streaming.killed import run
from tests.lake.streaming.lives import Classic, Connect, Rows
from tests.pages import ROOT
from tests.where.marks import on_connect

pytestmark = pytest.mark.no_interop("the check reads the tables' files itself")


@pytest.mark.broad
@pytest.mark.parametrize("sink", [*SINKS, BRANCH_SINK])
def test_killed_at_every_step_of_a_micro_batch(tmp_path: Path, sink: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lake.streaming.dying", str(tmp_path), sink],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    steps = [line.split()[2] for line in ran.stdout.splitlines() if line.startswith("step")]
    assert steps == ["killed"] * (len(steps) - 1) + ["done"]
    assert len(steps) > 10


WITH_SPARK = [pytest.mark.broad, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param(Rows, 5, marks=pytest.mark.broad),
        pytest.param(Classic, 2, marks=WITH_SPARK),
        pytest.param(Connect, 2, marks=[*WITH_SPARK, on_connect]),
    ],
)
def test_killed_at_random(tmp_path: Path, kind: type[Classic], kills: int) -> None:
    assert run(tmp_path, kills, 1, kind).total() == kills


def table(place: Path, *commits: list[int]) -> Path:
    with txlake.connect(str(place / "lake")) as lake:
        for numbers in commits:
            rows = pa.table({"key": [one % 3 for one in numbers], "n": numbers})
            lake.write(rows, str(place / "t"), "append")
    return place / "t"


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        ([[0, 1], [1, 2]], "came after"),
        ([[0, 1, 1]], "more than once"),
        ([[0, 2]], "are lost"),
        ([[3], [0, 1, 2]], "0 came after 3"),
    ],
)
def test_the_check_sees_what_must_not_be(
    tmp_path: Path, commits: list[list[int]], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        check_rows(table(tmp_path, *commits), 4)


def test_the_check_counts_by_version(tmp_path: Path) -> None:
    rows = table(tmp_path, [0, 1], [2])
    with txlake.connect(str(tmp_path / "lake")) as lake:
        for number in (1, 2):
            lake.write(pa.table({"n": [number]}), str(tmp_path / "counts"), "append")
    check_rows(rows, 3)
    with pytest.raises(AssertionError, match="counted"):
        check_counts(rows, tmp_path / "counts")
