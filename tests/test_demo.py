"""The demo, run as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.pages import ROOT


def test_the_demo_comes_to_its_end_and_all_engines_agree() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    shown = ran.stdout
    assert "\x1b" not in shown  # plain in a pipe
    for said in (
        "flights  │ 336,000",
        "Both committed: 328,537 flights, 16 of them cancelled",
        "ConcurrentAppendException",
        "predicate dep_time IS NULL",
        "8,255 rows deleted, 0 cancelled flights are left of 328,521",
        "that OPTIMIZE made of two: 18 airlines",
        "Two that change the same row can't both stand",
        "5 │ DELETE    │ Serializable",
        "The answers are equal",
    ):
        assert said in shown, f"{said!r} isn't in:\n{shown}"
