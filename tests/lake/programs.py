"""Real processes: programs that tests start beside themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_LIMIT_S = 300


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A new process of this Python that runs the program's text; its input and output are pipes."""
    path = os.pathsep.join((str(_REPOSITORY / "src"), str(_REPOSITORY)))
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def ended(process: subprocess.Popen[str], *, code: int = 0) -> str:
    """What the process printed, once it has ended with this code."""
    with process:
        out, err = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == code, err[-4000:]
    return out


def together(program: str, arguments: Sequence[Sequence[object]]) -> list[str]:
    """Run a process for each list of arguments, all at once; what they printed.

    Each program says `ready` in a line of its own, then waits for a line; all get it together.
    """
    processes = [start(program, *each) for each in arguments]
    try:
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", ended(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [ended(process) for process in processes]
    finally:
        for process in processes:
            with process:
                process.kill()
