"""The example of an audit by Great Expectations, in an environment that has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.pages import ROOT
from tests.peers import need

PYTHON = ROOT / ".cache" / "gx" / "bin" / "python"


@pytest.mark.peer("great-expectations")
def test_a_day_that_fails_stays_on_its_branch(spark: SparkSession, tmp_path: Path) -> None:
    need("great-expectations", found=PYTHON.exists())
    example = ROOT / "examples" / "great_expectations_audit.py"
    place = str(tmp_path / "lake")
    done = subprocess.run(
        [str(PYTHON), str(example), place],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": str(PYTHON)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "2026-01-01: published\n" in done.stdout
    assert (
        "2026-01-02: not published: orders: expect_column_values_to_be_unique [2, 2]; "
        "orders: expect_column_values_to_be_between [0]\n"
    ) in done.stdout
    with txlake.connect(place, spark=spark) as lake:
        on_main, on_branch = (
            sorted(row.id for row in one.read("orders").collect())
            for one in (lake, lake.branch("load/2026-01-02"))
        )
        assert (on_main, on_branch) == ([1, 2], [1, 2, 2, 3])
