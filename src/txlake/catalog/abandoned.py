"""Tracking of resources whose owner may be garbage-collected without closing them.

A finalizer would run immediately, and Python drops the exceptions of finalizers: a
KeyboardInterrupt in one would be lost, and the resource never closed. So nothing runs when an owner
is collected; `abandoned` finds such owners later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import ref

Key = TypeVar("Key", bound=Hashable)


class AbandonedResources(Generic[Key]):
    """Resources by their keys, each with the object that owns it. Safe in all threads."""

    def __init__(self) -> None:
        self._holders: dict[Key, Callable[[], object]] = {}

    def track(self, key: Key, holder: object) -> None:
        """Track a resource: it is abandoned once its owner is garbage-collected."""
        self._holders[key] = ref(holder)

    def abandon(self, key: Key) -> None:
        """Declare a resource abandoned, whether or not its owner exists."""
        self._holders[key] = _nobody

    def forget(self, key: Key) -> None:
        """Stop tracking a resource that was closed."""
        self._holders.pop(key, None)

    def abandoned(self) -> list[Key]:
        """Return the keys of the abandoned resources that are not closed yet."""
        return [key for key in list(self._holders) if self._holders.get(key, _somebody)() is None]


def _nobody() -> None:
    return None


def _somebody() -> bool:
    return True
