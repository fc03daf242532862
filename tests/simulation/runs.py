"""Replays for a page: made in a process of their own, within a time, and the newest are kept.

The simulation puts its own locks and threads into txlake's modules while it runs, which a process
that answers requests mustn't see.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from tests.simulation.case import Case
from tests.simulation.replay import Replay, replay
from txlake.errors import InvalidRequest, Unavailable

LIMIT_S = 25.0
_KEPT = 8
_RUNS_EACH = 100  # of a process: it keeps each world's tables


class Kept:
    """The newest replays, of any thread's asking."""

    def __init__(self, run: Callable[[Case], Replay]) -> None:
        self._run = run
        self._found: OrderedDict[Case, Replay] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, case: Case) -> Replay:
        """A case's. Raises InvalidRequest when its run takes too long."""
        with self._lock:  # one run at a time
            found = self._found.pop(case, None)
            if found is None:
                found = self._run(case)
            self._found[case] = found
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
            return found


class Aside:
    """Runs cases in another process, one after the other."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._left = 0

    def __call__(self, case: Case) -> Replay:
        """Raises InvalidRequest when the run takes too long, and Unavailable without one."""
        if self._left == 0:
            self._start()
        self._left -= 1
        assert self._pipe is not None
        try:
            self._pipe.send(case)
            if not self._pipe.poll(self._limit_s):
                self.close()
                raise InvalidRequest(
                    f"{case}: the run isn't over after {self._limit_s:g} seconds; choose another "
                    "seed, or try again when the machine has less to do"
                )
            found = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise Unavailable(f"{case}: the process that runs it died; try again") from error
        if isinstance(found, InvalidRequest):
            raise found
        assert isinstance(found, Replay)
        return found

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process, self._pipe, self._left = None, None, 0

    def _start(self) -> None:
        self.close()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run_all, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._left = _RUNS_EACH


def _run_all(asked: Connection) -> None:
    """Answers each case with its replay, until nobody asks any more."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends it
    with suppress(EOFError):
        while True:
            case = asked.recv()
            try:
                asked.send(replay(case))
            except InvalidRequest as error:
                asked.send(error)
