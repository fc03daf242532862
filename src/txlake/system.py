"""The real clock, identifiers, chance and waiting.

The only module that asks the machine for them: all other code takes a `ports.System`, so that a run
can be replayed from a seed.
"""

from __future__ import annotations

import random
import time
import uuid


class System:
    """`ports.System` on this machine. Safe to use from many threads and after a fork."""

    __slots__ = ("_chance",)

    def __init__(self) -> None:
        # The kernel's randomness: a `random.seed(0)` of the user's, or a fork, must not make two
        # writers wait the same jittered times.
        self._chance = random.SystemRandom()

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        """Return a new random UUID, lower-case, with dashes."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._chance.random()

    def wait_ms(self, duration_ms: float) -> None:
        """Wait; return at once for zero and less."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)

    def monotonic_ms(self) -> float:
        """Return the milliseconds of a monotonic clock, the same for all processes of the machine.

        It stands still while the machine is suspended, and starts anew with the machine.
        """
        return time.monotonic_ns() / 1_000_000
