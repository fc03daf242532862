"""Process groups that tests start and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

END_S = 900.0
"""How long a process may take to end."""


def members(group: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(folder.name))
    return sorted(found)


def what_runs(process: int) -> str:
    """The Python module that a process runs, or the name of its program; "" when it is gone."""
    folder = Path(f"/proc/{process}")
    try:
        arguments = (folder / "cmdline").read_text().split("\0")
        if "-m" in arguments:
            return arguments[arguments.index("-m") + 1].rpartition(".")[2]
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""


def end_group(process: subprocess.Popen[str]) -> None:
    """Kills the group of a process, and returns when none of it is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=END_S)
    deadline = time.monotonic() + 30
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
