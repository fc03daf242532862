"""Read batches in a thread of their own while others are written.

Arrow decodes and encodes without Python's lock, so both run at once.
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
    """Yield an iterator over the source's batches in order, which a thread reads in advance.

    The thread pauses while at least `bytes_max` bytes wait. An error of the source is raised to the
    consumer after the batches before it. At the end of the block the thread has ended, even if the
    source hasn't.
    """
    buffer = _Buffer(bytes_max)
    thread = threading.Thread(target=buffer.fill, args=(source,), name="read-ahead", daemon=True)
    thread.start()
    try:
        yield buffer.batches()
    finally:
        buffer.close()
        thread.join()


class _Buffer:
    """A bounded queue of batches between the reading thread and the consumer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pending: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_complete = False
        self._is_closed = False
        self._changed = threading.Condition()

    def fill(self, source: Iterator[pa.RecordBatch]) -> None:
        """Read the source into the queue until it ends or the consumer has closed the queue.

        An error of the source isn't raised here but in `batches`.
        """
        error: BaseException | None = None
        try:
            for batch in source:
                with self._changed:
                    self._pending.append(batch)
                    self._bytes += batch.nbytes
                    self._changed.notify_all()
                    self._changed.wait_for(self._may_read)
                    if self._is_closed:
                        return
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error, self._is_complete = error, True
            self._changed.notify_all()

    def _may_read(self) -> bool:
        return self._is_closed or not self._pending or self._bytes < self._bytes_max

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, waiting for each. Raises what the source raised, after the batches
        before.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_complete)
                if not self._pending:
                    if self._error is not None:
                        raise self._error
                    return
                batch = self._pending.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch

    def close(self) -> None:
        """Close the queue: the reading thread stops."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
