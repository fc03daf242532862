"""A bounded cache: it keeps the values used last, and finds any value that is still in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache that keeps up to `most` values alive, those that were used last.

    A value that somebody else holds is found whatever its age, so that there is one of a key at a
    time. Not for several threads at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._alive: WeakValueDictionary[Key, Value] = WeakValueDictionary()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, if it is still alive."""
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

    def pop(self, key: Key) -> None:
        """Remove a key."""
        self._kept.pop(key, None)
        self._alive.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._kept.clear()
        self._alive.clear()
