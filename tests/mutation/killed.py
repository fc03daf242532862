"""Running the killers of some guards in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def survivors(*prefixes: str) -> str:
    """Return what `check` finds wrong with the mutants whose names have these prefixes; "" for
    nothing.
    """
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "check", *prefixes],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=3500,
    )
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr[-4_000:]
