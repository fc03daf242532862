"""Faults of a local disk, for the process that puts them there: seeded, now and then.

A request fails before it did anything, or its reply is lost after it did all, or the disk is full.
Owns what may go wrong with which request; `Faults.met` counts it by its kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage.local import LocalStore

Answer = TypeVar("Answer")
MARK = "a fault of the soak's"


class Faults:
    """One request in `one_in` fails, from now on; none where that is 0."""

    def __init__(self, seed: str) -> None:
        self.one_in = 0
        self.met: Counter[str] = Counter()
        self._random = random.Random(seed)

    def install(self) -> None:
        """Puts itself between txlake and the local disk, for the rest of this process."""
        get, put, put_if_absent = LocalStore.get, LocalStore.put, LocalStore.put_if_absent
        listed, delete = LocalStore.list, LocalStore.delete

        def getting(store: LocalStore, path: str) -> bytes:
            return self._around("get", path, lambda: get(store, path))

        def listing(
            store: LocalStore, prefix: str, start_after: str | None = None
        ) -> Iterator[StoredObject]:
            return self._around("list", prefix, lambda: listed(store, prefix, start_after))

        def putting(store: LocalStore, path: str, data: bytes) -> None:
            self._full(path)
            self._around("put", path, lambda: put(store, path, data))

        def deleting(store: LocalStore, paths: Iterable[str]) -> None:
            self._around("delete", store.url, lambda: delete(store, paths))

        def creating(store: LocalStore, path: str, data: bytes) -> PutOutcome:
            self._full(path)
            if self._is_due("put_if_absent never arrived"):
                return PutOutcome.UNKNOWN
            outcome = put_if_absent(store, path, data)
            if self._is_due("put_if_absent lost its reply"):
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

    def _around(self, name: str, path: str, request: Callable[[], Answer]) -> Answer:
        if self._is_due(f"{name} never arrived"):
            raise Unavailable(f"{path}: {MARK}: the store can't be reached")
        answer = request()
        if self._is_due(f"{name} lost its reply"):
            raise Unavailable(f"{path}: {MARK}: the reply was lost")
        return answer

    def _full(self, path: str) -> None:
        if self._is_due("disk full"):
            raise InvalidRequest(f"{path}: {MARK}: no space left on the device")

    def _is_due(self, kind: str) -> bool:
        if self.one_in == 0 or self._random.randrange(self.one_in):
            return False
        self.met[kind] += 1
        return True
