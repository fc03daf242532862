"""Folders in memory for playground lakes. Folders of killed processes are removed.

A folder is in use while its file lock is held, which the system releases when the process ends.
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


class ScratchFolder:
    """A new folder, owned by this process until `remove`.

    It is in `base`, else in shared memory, else in the system's folder for temporary files. Folders
    of ended processes beside it are removed first (not in the last case).
    """

    def __init__(self, base: Path | None = None) -> None:
        in_memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        parent = base or in_memory
        if parent is not None:
            remove_abandoned(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        _try_lock(self._lock)

    def remove(self) -> None:
        """Remove the folder; does nothing if called again."""
        if self._lock < 0:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of ended processes. Folders that can't be inspected are left alone."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # A folder without a lock file is just being created.
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _try_lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _try_lock(lock: int) -> bool:
    """Take a file lock without waiting; return whether it was free.

    False where the system has no file locks.
    """
    try:
        import fcntl  # not on every system
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
