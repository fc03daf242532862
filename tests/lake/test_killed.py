"""A process that is killed at any step of a commit over two tables leaves all of it or nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT


@pytest.mark.broad
def test_killed_at_every_step(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lake.dying", str(tmp_path / "warehouse")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    steps = [line.split() for line in ran.stdout.splitlines() if line.startswith("step")]
    assert steps[-1][2:] == ["0", "1"]  # the last one met no fault, and committed
    killed = [line[3] for line in steps[:-1]]
    assert [line[2] for line in steps[:-1]] == ["killed"] * len(killed)
    # Before one of the steps nothing is there, from it on everything: it is the commit.
    assert killed == sorted(killed)
    assert killed.count("0") >= 2
    assert killed.count("1") >= 4
