"""Batches that are read in a thread of their own while others are written.

Arrow decodes and encodes without Python's lock, so that both go on at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def read_ahead(
    source: Iterator[pa.RecordBatch], bytes_max: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """What the source gives, in its order, read until so many bytes wait to be asked for.

    What the source raises is raised to who asks, after all that came before. At the end of the
    block the source isn't asked any more, and its thread has ended.
    """
    held = _Held(bytes_max)
    thread = threading.Thread(target=held.fill, args=(source,), name="read-ahead", daemon=True)
    thread.start()
    try:
        yield held.batches()
    finally:
        held.end()
        thread.join()


class _Held:
    """The batches that wait, and what the source raised; between two threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_whole = False
        self._is_ended = False
        self._changed = threading.Condition()

    def fill(self, source: Iterator[pa.RecordBatch]) -> None:
        """Asks the source for batches until there are no more, or nobody wants them."""
        error: BaseException | None = None
        try:
            for batch in source:
                with self._changed:
                    self._waiting.append(batch)
                    self._bytes += batch.nbytes
                    self._changed.notify_all()
                    self._changed.wait_for(self._may_go_on)
                    if self._is_ended:
                        return
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error, self._is_whole = error, True
            self._changed.notify_all()

    def _may_go_on(self) -> bool:
        return self._is_ended or not self._waiting or self._bytes < self._bytes_max

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches. Raises what the source raises."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_whole)
                if not self._waiting:
                    if self._error is not None:
                        raise self._error
                    return
                batch = self._waiting.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch

    def end(self) -> None:
        """Nobody wants more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
