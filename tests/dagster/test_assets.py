"""Dagster's IO manager, by Dagster itself: its runs on a lake, and the page's lines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.peers import need

PYTHON = ROOT / ".cache" / "dagster" / "bin" / "python"
CHECKS = [
    "values_and_metadata",
    "conflicts",
    "what_is_tried_again",
    "appended_once",
    "branches",
    "conflicts_of_a_publication",
    "partitions",
    "partitions_of_two_dimensions",
    "values_outside_of_runs",
    "refusals",
    "the_page",
]


@pytest.mark.broad
@pytest.mark.peer("dagster")
def test_assets_are_tables_of_a_lake(tmp_path: Path) -> None:
    need("dagster", found=PYTHON.exists())
    program = Path(__file__).with_name("assets_program.py")
    done = subprocess.run(
        [str(PYTHON), str(program), str(tmp_path), str(ROOT / "docs" / "connect-your-tool.md")],
        capture_output=True,
        text=True,
        env={
            **{name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"},
            "PYTHONPATH": str(ROOT / "src"),
            "PYSPARK_PYTHON": str(PYTHON),
        },
        cwd=tmp_path,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.splitlines() == [f"{check} holds" for check in CHECKS]
