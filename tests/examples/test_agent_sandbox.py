"""The sandbox for agents: a server in a process of its own, and what becomes of two branches."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.pages import ROOT


@pytest.mark.timeout(180)
def test_the_sandbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "agent_sandbox.py"))
    assert example["main"](str(tmp_path / "shop")) == [
        "agent/prices: published",
        "agent/leftovers: dropped, items are gone: bolts, nuts",
        "bolts 30, nails 9, nuts 20",
    ]
    assert (
        "on main: 403, 'token:agent' may change branches of its own only" in capsys.readouterr().out
    )
