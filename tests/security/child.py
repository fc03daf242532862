"""Reads tables, each in a process with little memory and time; a line of JSON for each outcome."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from tests.security.reading import CPU_S_MAX, limit_resources, outcome


def _told(found: str) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def read(folder: Path) -> str:
    """What reading a table ends in: `outcome`, or an error that isn't ours, and where."""
    try:
        return outcome(folder)
    except BaseException as error:  # what no reader may see: told to the test
        last = traceback.extract_tb(error.__traceback__)[-3:]
        places = [f"{Path(one.filename).name}:{one.lineno}" for one in last]
        return f"{type(error).__name__}: {str(error)[:200]} {places}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pid = os.fork()
        if not pid:
            limit_resources(CPU_S_MAX)
            _told(read(Path(name)))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            _told(f"died of signal {os.WTERMSIG(status)}, exit {os.waitstatus_to_exitcode(status)}")
