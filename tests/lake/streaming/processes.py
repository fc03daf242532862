"""Sessions of processes that tests start and kill: a leader and all that came of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

END_S = 900.0
"""How long a process may take to end."""


def members(session: int) -> list[int]:
    """The processes of a session that are alive, those too that made a group of their own."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return sorted(found)


def what_runs(process: int) -> str:
    """The Python module that a process runs, or the name of its program; "" when it is gone."""
    folder = Path(f"/proc/{process}")
    try:
        arguments = (folder / "cmdline").read_text().rstrip("\0").split("\0")
        if "-m" in arguments:  # with what it runs for as the last: pyspark.daemon pyspark.worker
            return arguments[-1].rpartition(".")[2]
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""


def end_session(process: subprocess.Popen[str]) -> None:
    """Kills the processes of the session that a process leads, and returns when none is left."""
    deadline = time.monotonic() + 30
    while left := members(process.pid):
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        assert time.monotonic() < deadline, f"{left} can't be killed"
        time.sleep(0.05)
    process.communicate(timeout=END_S)
