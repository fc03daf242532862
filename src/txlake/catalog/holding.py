"""What has to end once nobody holds it any more.

A finalizer would say so at once, and Python drops what is raised in one: a KeyboardInterrupt there
would be lost, and the thing kept for ever. So nothing runs when a holder goes; who asks later sees
that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import ref

Key = TypeVar("Key", bound=Hashable)


class Holding(Generic[Key]):
    """Things by their keys, each held by an object. Any thread may use it, at any instant."""

    def __init__(self) -> None:
        self._holders: dict[Key, Callable[[], object]] = {}

    def hold(self, key: Key, holder: object) -> None:
        """The thing has to end when the holder is gone."""
        self._holders[key] = ref(holder)

    def let_go(self, key: Key) -> None:
        """The thing has to end, whoever holds it."""
        self._holders[key] = _nobody

    def ended(self, key: Key) -> None:
        """The thing has ended."""
        self._holders.pop(key, None)

    def due(self) -> list[Key]:
        """What has to end, and hasn't yet."""
        return [key for key in list(self._holders) if self._holders.get(key, _somebody)() is None]


def _nobody() -> None:
    return None


def _somebody() -> bool:
    return True
