"""What the loops need from outside, as Protocols: bytes, time and chance.

Adapters stand in `storage` and `system`; tests put simulated ones in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object under a store's root. `path` is relative to the root, with `/`, not encoded."""

    path: str
    size_bytes: int
    modified_ms: int


class PutOutcome(Enum):
    """What became of a put-if-absent."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"  # the reply was lost: look before retrying


class Store(Protocol):
    """Bytes under one root folder. Paths are relative to it, with `/`, not encoded.

    Every method raises `errors.Unavailable` when the store can't be reached and
    `errors.InvalidRequest` when it refuses (permission, read-only, disk full), naming the path.
    """

    @property
    def url(self) -> str:
        """The root as an encoded URL without a trailing slash: `file:///data/t`, `s3://bucket/t`."""
        ...

    def get(self, path: str) -> bytes:
        """The object's bytes. Raises FileNotFoundError."""
        ...

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`. Raises FileNotFoundError."""
        ...

    def head(self, path: str) -> StoredObject | None:
        """The object's size and time, or None when there is none."""
        ...

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        """All objects at any depth below the folder `prefix`, by path, after `start_after`."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Writes the object whole, replacing what was there; never half visible."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Creates the object unless it exists; durable when CREATED is returned."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes the objects; those already gone are no error."""
        ...

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Deletes what killed writers left half-written below the folder `prefix`.

        Only what wasn't touched since `before_ms`, and never an object: those `list` shows.
        """
        ...

    def ensure_safe(self) -> None:
        """Proves once per store that put-if-absent refuses to overwrite.

        Raises errors.InvalidRequest that names the store when it doesn't.
        """
        ...

    def at(self, path: str) -> Store:
        """The store of a folder below this one."""
        ...


class System(Protocol):
    """Clock, identifiers, chance and waiting: everything that a replay must be able to fix."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def new_id(self) -> str:
        """A new random UUID, lower-case, with dashes."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Waits."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock that never goes back."""
        ...
