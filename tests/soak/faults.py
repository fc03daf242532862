"""Faults of a local disk within one process, drawn from a seed.

A request fails before it does anything, or its reply is lost after it did everything, or the disk
is full. Owns the faults of each request; `Faults.injected` counts them by kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage.local import LocalStore

Reply = TypeVar("Reply")
MARKER = "a fault of the soak's"


class Faults:
    """Lets one request in `one_in` fail; none if that is 0."""

    def __init__(self, seed: str) -> None:
        self.one_in = 0
        self.injected: Counter[str] = Counter()
        self._random = random.Random(seed)

    def install(self) -> None:
        """Wrap the requests to local disks, for the rest of this process."""
        get, put, put_if_absent = LocalStore.get, LocalStore.put, LocalStore.put_if_absent
        listed, delete = LocalStore.list, LocalStore.delete

        def getting(store: LocalStore, path: str) -> bytes:
            return self._request("get", path, lambda: get(store, path))

        def listing(
            store: LocalStore,
            prefix: str,
            start_after: str | None = None,
            before: str | None = None,
        ) -> Iterator[StoredObject]:
            return self._request("list", prefix, lambda: listed(store, prefix, start_after, before))

        def putting(store: LocalStore, path: str, data: bytes) -> None:
            self._check_space(path)
            self._request("put", path, lambda: put(store, path, data))

        def deleting(store: LocalStore, paths: Iterable[str]) -> None:
            self._request("delete", store.url, lambda: delete(store, paths))

        def creating(store: LocalStore, path: str, data: bytes) -> PutOutcome:
            self._check_space(path)
            if self._occurs("put_if_absent never arrived"):
                return PutOutcome.UNKNOWN
            outcome = put_if_absent(store, path, data)
            if self._occurs("put_if_absent lost its reply"):
                return PutOutcome.UNKNOWN
            return outcome

        for name, method in (
            ("get", getting),
            ("list", listing),
            ("put", putting),
            ("delete", deleting),
            ("put_if_absent", creating),
        ):
            setattr(LocalStore, name, method)

    def _request(self, name: str, path: str, request: Callable[[], Reply]) -> Reply:
        if self._occurs(f"{name} never arrived"):
            raise Unavailable(f"{path}: {MARKER}: the store can't be reached")
        reply = request()
        if self._occurs(f"{name} lost its reply"):
            raise Unavailable(f"{path}: {MARKER}: the reply was lost")
        return reply

    def _check_space(self, path: str) -> None:
        if self._occurs("disk full"):
            raise InvalidRequest(f"{path}: {MARKER}: no space left on the device")

    def _occurs(self, kind: str) -> bool:
        if self.one_in == 0 or self._random.randrange(self.one_in):
            return False
        self.injected[kind] += 1
        return True
