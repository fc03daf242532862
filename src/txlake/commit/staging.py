"""Names of staged files: UUIDs that identify the transaction of a file.

They are of version 8 (RFC 9562): the first 48 bits are the transaction's tag, the others random.
VACUUM keeps the files of open transactions by their tags, whatever the clocks say.
"""

from __future__ import annotations

import hashlib
import re
from uuid import UUID

from txlake.ports import System

_TAGGED = re.compile(
    r"(?<![0-9a-f])([0-9a-f]{8}-[0-9a-f]{4})-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
_RANDOM_BITS = 74
_LOW_BITS = 62


def tag_of(transaction_id: str) -> str:
    """Return what the UUIDs of a transaction's files begin with, as `0123abcd-4567`."""
    digits = hashlib.sha256(transaction_id.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}"


def tags_in(path: str) -> frozenset[str]:
    """Return the tags in the name of a data file or deletion vector; empty for foreign names.

    `path` is relative to the table, decoded. Its partition folders are ignored.
    """
    parts = (part for part in path.split("/") if "=" not in part)
    return frozenset(tag for part in parts for tag in _TAGGED.findall(part))


class StagingSystem:
    """`ports.System` whose new ids have a transaction's tag, for what it stages."""

    __slots__ = ("_system", "_tag")

    def __init__(self, system: System, transaction_id: str) -> None:
        self._system = system
        self._tag = int(tag_of(transaction_id).replace("-", ""), 16)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return self._system.now_ms()

    def new_id(self) -> str:
        """Return a new UUID with the tag, lower-case, with dashes."""
        drawn = UUID(self._system.new_id()).int >> (128 - _RANDOM_BITS)
        high, low = drawn >> _LOW_BITS, drawn & ((1 << _LOW_BITS) - 1)
        return str(UUID(int=self._tag << 80 | 8 << 76 | high << 64 | 2 << _LOW_BITS | low))

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._system.random()

    def wait_ms(self, duration_ms: float) -> None:
        """Wait for this time."""
        self._system.wait_ms(duration_ms)

    def monotonic_ms(self) -> float:
        """Return milliseconds of a monotonic clock, the same for all processes of the machine."""
        return self._system.monotonic_ms()
