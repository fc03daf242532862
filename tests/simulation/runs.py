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
from multiprocessing.pool import Pool

from tests.simulation.case import Case
from tests.simulation.replay import Replay, replay
from txlake.errors import InvalidRequest

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
        self._pool: Pool | None = None

    def __call__(self, case: Case) -> Replay:
        """Raises InvalidRequest when the run takes too long."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = context.Pool(1, _begin, maxtasksperchild=_RUNS_EACH)
        try:
            return self._pool.apply_async(replay, (case,)).get(self._limit_s)
        except multiprocessing.TimeoutError as error:
            self.close()
            raise InvalidRequest(
                f"{case}: the run isn't over after {self._limit_s:g} seconds; choose another seed, "
                "or try again when the machine has less to do"
            ) from error

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def _begin() -> None:
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends it
