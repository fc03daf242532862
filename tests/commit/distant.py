"""Stores over a network, for tests of which requests wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.commit.log_of import Clock, FakeStore
from txlake.protocol.file_names import LOG_FOLDER

LIMIT_S = 30.0


class Distant(FakeStore):
    """A store over a network; `meets`, where it is set, is called at each request to the log."""

    def __init__(self, clock: Clock, url: str) -> None:
        super().__init__(clock, url)
        self.meets: Callable[[], object] | None = None

    @property
    def excludes_late_writes(self) -> bool:
        return False

    def _request(self, kind: str, path: str) -> None:
        super()._request(kind, path)
        if self.meets is not None and path.startswith(LOG_FOLDER):
            self.meets()

    @contextmanager
    def rounds(self, *sizes: int) -> Iterator[None]:
        """Let the block's requests to the log be so many round trips, each of so many requests.

        A request waits until all of its round have come.
        """
        barriers = [barrier for size in sizes for barrier in [threading.Barrier(size)] * size]
        coming, too_many = iter(barriers), []

        def meet() -> None:
            barrier = next(coming, None)
            if barrier is None:
                too_many.append(self.requests[-1])
            else:
                barrier.wait(LIMIT_S)

        self.requests.clear()
        self.meets = meet
        yield
        self.meets = None
        assert not too_many
        assert next(coming, None) is None, f"fewer requests than expected: {self.requests}"
