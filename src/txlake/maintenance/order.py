"""The order in which needs are met, and the budget of one round.

First comes what gains most for what it costs. Of equals the first by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from txlake.maintenance.needs import Need

Target = TypeVar("Target")


@dataclass(frozen=True, slots=True)
class Due(Generic[Target]):
    """A need of a target: a table, or the lake itself. `name`: as messages name the target."""

    name: str
    target: Target
    need: Need


def in_order(due: Iterable[Due[Target]]) -> list[Due[Target]]:
    """Return the needs, what gains most for its cost first."""
    return sorted(
        due, key=lambda one: (-one.need.gain / one.need.cost, one.name, one.need.work.value)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one round may use; None is no limit.

    Attributes:
        time_ms: after so long, nothing new is begun.
        data_bytes: how many bytes of data may be read and written.
    """

    time_ms: int | None = None
    data_bytes: int | None = None

    def refusal(self, cost_bytes: int, *, elapsed_ms: float, used_bytes: int) -> str | None:
        """Return why work that reads and writes so many bytes isn't begun now; None if it is."""
        if self.time_ms is not None and elapsed_ms >= self.time_ms:
            return f"the round's budget of {self.time_ms / 1000:,.0f} s is used up"
        if self.data_bytes is not None and used_bytes + cost_bytes > self.data_bytes:
            return (
                f"{cost_bytes:,} bytes are more than the {self.data_bytes - used_bytes:,} "
                "that are left of the round's budget"
            )
        return None
