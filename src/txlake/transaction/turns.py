"""Turns among the threads of a process, which no interrupt leaves taken.

A lock that is acquired in Python code stays locked when a KeyboardInterrupt arrives before the code
notes that it has it. A turn is a place in a line instead: who stands there is asked for it alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from txlake.ports import System

_LOOK_MS = 50.0


class Turns:
    """Who came first has the turn; the others wait in the order in which they came."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._line: deque[threading.Lock] = deque()

    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
        return bool(self._line)

    @contextmanager
    def turn(self, timeout_ms: float) -> Iterator[bool]:
        """The turn, until the block ends; whether it was got in time."""
        place = threading.Lock()
        place.acquire()
        try:
            self._line.append(place)
            yield self._comes(place, timeout_ms)
        finally:
            # No call of Python code before this one: an interrupt could come first.
            if place in self._line:
                self._line.remove(place)
            with suppress(IndexError, RuntimeError):  # no thread waits, or it was woken before
                self._line[0].release()

    def _comes(self, place: threading.Lock, timeout_ms: float) -> bool:
        until_ms = self._system.monotonic_ms() + timeout_ms
        while self._line[0] is not place:
            left_ms = until_ms - self._system.monotonic_ms()
            if left_ms <= 0:
                return False
            # Who had the turn wakes the next one, unless that was interrupted.
            place.acquire(timeout=min(left_ms, _LOOK_MS) / 1000)
        return True
