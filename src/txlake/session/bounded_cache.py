"""What was used last is kept, and what somebody still uses is found again: a bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Keeps up to `most` values alive, those that were asked for last.

    A value that somebody else holds is found whatever its age, so that there is one of a key at a
    time. Not for several threads at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._alive: WeakValueDictionary[Key, Value] = WeakValueDictionary()

    def get(self, key: Key) -> Value | None:
        """The value of a key, if there still is one."""
        found = self._alive.get(key)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Makes a value a key's newest; the one that wasn't used for longest may go."""
        self._alive[key] = value
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def pop(self, key: Key) -> None:
        """Forgets a key."""
        self._kept.pop(key, None)
        self._alive.pop(key, None)

    def clear(self) -> None:
        """Forgets all of them."""
        self._kept.clear()
        self._alive.clear()
