"""Daemon threads that do a small thing: again and again until they are stopped, or once, later.

They don't keep alive the object whose thing they do.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Heartbeat:
    """Calls a bound method every so often, from the first `start` to `stop`."""

    def __init__(self, beat: Callable[[], None], interval_ms: float) -> None:
        self._beat = weakref.WeakMethod(beat)
        self._interval_ms = interval_ms
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread unless it runs."""
        with self._starting:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(
                    target=_run,
                    args=(self._beat, self._stopped, self._interval_ms / 1000),
                    name="txlake-heartbeat",
                    daemon=True,
                )
                self._thread.start()

    def stop(self) -> None:
        """Ends it for good; a beat that is under way is waited for."""
        self._stopped.set()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class DelayedCall:
    """Calls a bound method once, a while after it was asked for; asking meanwhile adds nothing."""

    def __init__(self, work: Callable[[], None], delay_ms: float) -> None:
        self._work = weakref.WeakMethod(work)
        self._delay_ms = delay_ms
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def schedule(self) -> None:
        """Has it called, unless it was stopped, or no thread can be had."""
        with self._starting:
            if self._thread is not None or self._stopped.is_set():
                return
            thread = threading.Thread(target=self._run, name="txlake-delayed", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._thread = thread

    def stop(self) -> None:
        """Calls it no more, once one that waits has been told so; one under way goes on."""
        self._stopped.set()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        is_stopped = self._stopped.wait(self._delay_ms / 1000)
        with self._starting:
            self._thread = None
        work = None if is_stopped else self._work()
        if work is not None:
            work()


def _run(
    beat: weakref.WeakMethod[Callable[[], None]], stopped: threading.Event, interval_s: float
) -> None:
    while not stopped.wait(interval_s):
        called = beat()
        if called is None:
            return
        called()
        del called
