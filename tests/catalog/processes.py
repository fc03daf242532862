"""Programs that share a catalog with the test, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def started(program: str, *arguments: str, count: int = 1) -> list[subprocess.Popen[str]]:
    """Process that run a program; what they are told and say goes through pipes."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(count)
    ]
