"""Folders in memory for lakes to play with; those of processes that were killed are removed.

A folder is in use as long as its lock is held, which the system lets go when the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "txlake-playground-"
_LOCK = "in_use"


class Scratch:
    """A new folder, of this process until `remove`."""

    def __init__(self, base: Path | None = None) -> None:
        in_memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        parent = base or in_memory
        if parent is not None:
            remove_abandoned(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        _is_locked(self._lock)

    def remove(self) -> None:
        """Removes the folder; again does nothing."""
        if self._lock < 0:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def remove_abandoned(parent: Path) -> None:
    """Removes the folders of processes that have ended; what can't be looked at is left alone."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # One without a lock is being made just now.
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _is_locked(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _is_locked(lock: int) -> bool:
    """Takes a lock if nobody has it. Where there are none, each seems to be somebody's."""
    try:
        import fcntl  # not on every system
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
