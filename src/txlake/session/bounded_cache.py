"""A bounded cache: it keeps the values used last, and finds any value that is still in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache that keeps up to `most` values alive, the most recently used ones.

    An older value is still found while somebody holds it, so that there is never a second value of
    a key beside it. Not thread-safe.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._alive: WeakValueDictionary[Key, Value] = WeakValueDictionary()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, which counts as used now; None if no value is alive."""
        found = self._alive.get(key)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Set a key's value; the value that was used longest ago may be evicted."""
        self._alive[key] = value
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def values(self) -> list[Value]:
        """Return all values that are alive."""
        return list(self._alive.values())

    def pop(self, key: Key) -> None:
        """Remove a key."""
        self._kept.pop(key, None)
        self._alive.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._kept.clear()
        self._alive.clear()
