"""A first-in-first-out lock among threads that no interrupt leaves locked.

A lock that Python code acquires stays locked if a KeyboardInterrupt arrives before the code notes
that it has it. Here a thread holds the lock while its place is among the first of a queue, so
that removing the place releases the lock, whenever the interrupt came.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from txlake.ports import System

_LOOK_MS = 50.0


class FifoLock:
    """A lock that threads get in the order in which they asked for it.

    Up to `holders` threads hold it at a time.
    """

    def __init__(self, system: System, *, holders: int = 1) -> None:
        self._system = system
        self._holders = holders
        self._queue: deque[threading.Lock] = deque()

    def is_taken(self) -> bool:
        """Return whether a thread holds the lock or waits for it."""
        return bool(self._queue)

    @contextmanager
    def acquired(self, timeout_ms: float) -> Iterator[bool]:
        """Wait for the lock, and hold it until the block ends; yield False if it was not acquired
        in time.
        """
        place = threading.Lock()
        place.acquire()
        try:
            self._queue.append(place)
            yield self._wait_for_turn(place, timeout_ms)
        finally:
            # No call of Python code before this one: an interrupt could come first.
            if place in self._queue:
                self._queue.remove(place)
            with suppress(IndexError, RuntimeError):  # no thread waits, or it was woken before
                self._queue[self._holders - 1].release()

    def _wait_for_turn(self, place: threading.Lock, timeout_ms: float) -> bool:
        """Wait until the place is among the first of the queue; return False if that takes too
        long.
        """
        until_ms = self._system.monotonic_ms() + timeout_ms
        while (ahead := self._queue.index(place) - self._holders + 1) > 0:
            left_ms = until_ms - self._system.monotonic_ms()
            if left_ms <= 0:
                return False
            # A thread that releases the lock wakes the next one, unless it was interrupted: the
            # next one has to look, those behind it more rarely.
            place.acquire(timeout=min(left_ms, _LOOK_MS * ahead) / 1000)
        return True
