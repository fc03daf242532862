"""A daemon thread that does a small thing again and again until it is stopped.

It doesn't keep alive the object whose thing it does.
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


def _run(
    beat: weakref.WeakMethod[Callable[[], None]], stopped: threading.Event, interval_s: float
) -> None:
    while not stopped.wait(interval_s):
        called = beat()
        if called is None:
            return
        called()
        del called
