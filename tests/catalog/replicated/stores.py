"""Stores for tests of a catalog in a store: with latency, and with faults that a test plans."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from txlake.errors import Unavailable
from txlake.ports import PutOutcome, Store, StoredObject


class FaultyStore:
    """A store with latency; each request first runs the faults that are planned for its kind."""

    def __init__(self, store: Store, latency_s: float = 0.0) -> None:
        self._store = store
        self._latency_s = latency_s
        self.requests: Counter[str] = Counter()
        # For the next puts of entries, in order: called with the put, in place of it.
        self.puts: list[Callable[[Callable[[], PutOutcome]], PutOutcome]] = []
        # For the next gets: raised, or None.
        self.gets: list[Exception | None] = []
        # Called at each get, before it is answered.
        self.meets: Callable[[], object] | None = None

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def excludes_late_writes(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        self._request("get")
        error = self.gets.pop(0) if self.gets else None
        if error is not None:
            raise error
        return self._store.get(path)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        self._request("get")
        return self._store.get_range(path, offset, length)

    def head(self, path: str) -> StoredObject | None:
        self._request("head")
        return self._store.head(path)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        self._request("list")
        return self._store.list(prefix, start_after, before)

    def put(self, path: str, data: bytes) -> None:
        self._request("put")
        self._store.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._request("put_if_absent")
        if self.puts and path.startswith("log/"):
            return self.puts.pop(0)(lambda: self._store.put_if_absent(path, data))
        return self._store.put_if_absent(path, data)

    def put_unsynced(self, path: str, data: bytes) -> None:
        self._request("put")
        self._store.put_unsynced(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        self._request("delete")
        self._store.delete(paths)

    def sweep(self, prefix: str, before_ms: int) -> None:
        self._store.sweep(prefix, before_ms)

    def ensure_safe(self) -> None:
        self._store.ensure_safe()

    def at(self, path: str) -> Store:
        return self._store.at(path)

    def _request(self, kind: str) -> None:
        self.requests[kind] += 1
        if self.meets is not None and kind == "get":
            self.meets()
        if self._latency_s:
            time.sleep(self._latency_s)


class Local(FaultyStore):
    """A store of which no request takes effect after its reply."""

    @property
    def excludes_late_writes(self) -> bool:
        return True


def is_lost(put: Callable[[], PutOutcome]) -> PutOutcome:
    """The put never arrives, nor does a reply."""
    return PutOutcome.UNKNOWN


def is_unanswered(put: Callable[[], PutOutcome]) -> PutOutcome:
    """The put is done, and no reply arrives."""
    put()
    return PutOutcome.UNKNOWN


def is_refused(put: Callable[[], PutOutcome]) -> PutOutcome:
    """The store can't be reached."""
    raise Unavailable("the store is away")


class RandomFaults(FaultyStore):
    """A store of which a twentieth of the puts of entries go wrong, in every way."""

    def __init__(self, store: Store, chance: random.Random, latency_s: float = 0.0) -> None:
        super().__init__(store, latency_s)
        self._chance = chance

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if path.startswith("log/") and self._chance.random() < 0.05:
            self.puts = [self._chance.choice([is_lost, is_unanswered, is_refused, self._is_late])]
        return super().put_if_absent(path, data)

    def _is_late(self, put: Callable[[], PutOutcome]) -> PutOutcome:
        """The put is done later, and the store says nothing."""
        timer = threading.Timer(self._chance.random() * 0.2, put)
        timer.daemon = True
        timer.start()
        return PutOutcome.UNKNOWN
