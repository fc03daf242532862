"""Temporary folders that are removed when the process ends which made them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def temporary_folder(prefix: str) -> Path:
    """Create a folder on this machine, which this process removes with all files when it ends.

    A forked process doesn't remove it.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
