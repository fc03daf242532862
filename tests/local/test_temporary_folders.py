"""Temporary folders outlive a fork of the process that made them, and not the process itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os
from txlake.local.temporary_folders import temporary_folder
folder = temporary_folder("txlake-test-")
child = os.fork()
if child:
    os.waitpid(child, 0)
    print(folder, folder.exists())
"""


def test_a_temporary_folder_outlives_a_fork_and_not_its_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    folder, _, existed = done.stdout.strip().rpartition(" ")
    assert existed == "True"
    assert not Path(folder).exists()
