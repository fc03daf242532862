"""Daemon threads that call a bound method, at an interval or once after a delay.

They hold only a weak reference to the method's object.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Heartbeat:
    """Calls a bound method at an interval, from the first `start` to `stop`."""

    def __init__(self, beat: Callable[[], None], interval_ms: float) -> None:
        self._beat = weakref.WeakMethod(beat)
        self._interval_ms = interval_ms
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs or was stopped."""
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
        """End the heartbeat for good; wait for a call under way."""
        self._stopped.set()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class DelayedCall:
    """Calls a bound method once, a delay after `schedule`; scheduling it again meanwhile adds
    nothing.
    """

    def __init__(self, work: Callable[[], None], delay_ms: float) -> None:
        self._work = weakref.WeakMethod(work)
        self._delay_ms = delay_ms
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def schedule(self) -> None:
        """Schedule the call, unless it was stopped or no thread can be started."""
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
        """Cancel a waiting call, refuse later ones, and wait for a call under way."""
        self._stopped.set()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        """Make the call after the delay, unless it was stopped or its object is gone."""
        is_stopped = self._stopped.wait(self._delay_ms / 1000)
        with self._starting:
            self._thread = None
        work = None if is_stopped else self._work()
        if work is not None:
            work()


def _run(
    beat: weakref.WeakMethod[Callable[[], None]], stopped: threading.Event, interval_s: float
) -> None:
    """Call `beat` at the interval until `stopped` is set or the method's object is gone."""
    while not stopped.wait(interval_s):
        called = beat()
        if called is None:
            return
        called()
        del called
