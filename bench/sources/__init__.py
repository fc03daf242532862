"""The data that the bench makes for itself: the same numbers give the same bytes everywhere.

Each data set is a folder that is made once and kept; what is half made is made anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by `make` unless an earlier run has done so."""
    done = folder / "made"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        done.touch()
    return folder
