"""Replays for a page, made in another process within a time limit; the newest replays are cached.

A running simulation replaces locks and threads in txlake's modules, which a process that serves
requests must not see.
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
_CACHED_MAX = 8
_RUNS_PER_PROCESS = 100  # a process keeps each world's tables, and grows


class ReplayCache:
    """The newest replays. Safe to use from many threads; runs are made one at a time."""

    def __init__(self, run: Callable[[Case], Replay]) -> None:
        self._run = run
        self._replays: OrderedDict[Case, Replay] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, case: Case) -> Replay:
        """Return a case's replay. Raises InvalidRequest if the run takes too long."""
        with self._lock:  # one run at a time
            result = self._replays.pop(case, None)
            if result is None:
                result = self._run(case)
            self._replays[case] = result
            if len(self._replays) > _CACHED_MAX:
                self._replays.popitem(last=False)
            return result


class ReplayWorker:
    """Runs cases in another process, one after the other."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._runs_left = 0

    def __call__(self, case: Case) -> Replay:
        """Run a case.

        Raises:
            InvalidRequest: the run takes too long.
            Unavailable: the process died.
        """
        if self._runs_left == 0:
            self._start()
        self._runs_left -= 1
        assert self._pipe is not None
        try:
            self._pipe.send(case)
            if not self._pipe.poll(self._limit_s):
                self.close()
                raise InvalidRequest(
                    f"{case}: the run isn't over after {self._limit_s:g} seconds; choose another "
                    "seed, or try again when the machine has less to do"
                )
            result = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise Unavailable(f"{case}: the process that runs it died; try again") from error
        if isinstance(result, InvalidRequest):
            raise result
        assert isinstance(result, Replay)
        return result

    def close(self) -> None:
        """End the process, even in the middle of a run."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process, self._pipe, self._runs_left = None, None, 0

    def _start(self) -> None:
        self.close()
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        self._process = context.Process(target=_serve_replays, args=(worker_end,), daemon=True)
        self._process.start()
        worker_end.close()
        self._runs_left = _RUNS_PER_PROCESS


def _serve_replays(pipe: Connection) -> None:
    """Answer each case from the pipe with its replay, until the pipe is closed."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    with suppress(EOFError):
        while True:
            case = pipe.recv()
            try:
                pipe.send(replay(case))
            except InvalidRequest as error:
                pipe.send(error)
