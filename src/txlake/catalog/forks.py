"""Keep a forked process from using or closing the database connections of its parent.

SQLite's locks belong to a process, and a fork copies SQLite's bookkeeping of them: a child would
believe that it holds locks which only its parent has. Both would read a server's socket. So idle
connections are closed before a fork, which waits for that, and the child must connect anew. Source:
SQLite, "How To Corrupt An SQLite Database File", section 2.6.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from txlake.errors import InvalidRequest

_changing = threading.Lock()
_origins: WeakSet[Origin] = WeakSet()
# SQLite's files of which this process has copies of its parent's open connections.
_inherited: set[str] = set()


class Origin:
    """The process that a database's connections belong to.

    `engines`: their connections are closed before a fork; `file`: the SQLite file, if any. Raises
    InvalidRequest if SQLite's locks on the file can't be relied on in this process.
    """

    def __init__(self, engines: Collection[sa.Engine], display_url: str, file: str | None) -> None:
        self._engines = tuple(engines)
        self._display_url = display_url
        self._file = None if file is None else os.path.realpath(file)
        self._process = os.getpid()
        self._was_used = False
        with _changing:
            if self._file in _inherited:
                raise InvalidRequest(
                    f"catalog {display_url}: this process was forked while another thread of its "
                    "parent used that file, and SQLite's locks can't be relied on here; start "
                    "processes by multiprocessing's method 'spawn', or fork before threads use "
                    "the lake"
                )
            _origins.add(self)

    def require(self) -> None:
        """Raise InvalidRequest in a fork of the process."""
        if os.getpid() != self._process:
            raise forked(f"catalog {self._display_url}", self._process)

    def close_idle(self) -> None:
        """Close the connections that no thread uses; remember whether there are others."""
        self._was_used = self._is_open()
        for engine in self._engines:
            with contextlib.suppress(Exception):  # one that broke is closed all the same
                engine.dispose()

    def inherit(self) -> None:
        """Record, in the child, the file that the parent's threads were using."""
        if self._file is not None and (self._was_used or self._is_open(idle_too=True)):
            _inherited.add(self._file)

    def _is_open(self, *, idle_too: bool = False) -> bool:
        pools = [engine.pool for engine in self._engines if isinstance(engine.pool, QueuePool)]
        return any(pool.checkedout() or (idle_too and pool.checkedin()) for pool in pools)


def forked(what: str, process: int) -> InvalidRequest:
    """Return the error for using, in a fork, what the parent process opened."""
    return InvalidRequest(
        f"{what} was opened by process {process}, and this process is a fork of it: connections, "
        f"sessions and transactions stay with process {process}. Connect again in this process: "
        "txlake.connect(...)"
    )


def _before() -> None:
    """Close idle connections before a fork, and keep other threads from opening databases."""
    _changing.acquire()
    for origin in list(_origins):
        origin.close_idle()


def _in_child() -> None:
    """Record the files that the parent's threads use, and forget the parent's databases."""
    for origin in list(_origins):
        origin.inherit()
    _origins.clear()
    _changing.release()


os.register_at_fork(
    before=_before, after_in_parent=lambda: _changing.release(), after_in_child=_in_child
)
