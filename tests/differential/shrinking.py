"""A smaller program that ends in the same difference: delta debugging over its steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.differential.comparing import Difference
from tests.differential.steps import Step

RUNS_MAX = 40
_WORD = re.compile(r"[A-Za-z_]+")


def shrunk(
    steps: Sequence[Step],
    difference: Difference,
    run: Callable[[Sequence[Step]], Sequence[Difference]],
) -> tuple[list[Step], Difference]:
    """The fewest steps found, and the difference that they end in.

    Halves are left out first, then quarters, down to single steps; what still ends in a difference
    of the same aspect after a step of the same kind is kept. The first step, which makes the table,
    and the last one stay.
    """
    kept = list(steps[: steps.index(difference.step) + 1])
    found, runs = difference, 0
    size = max(1, len(kept) // 2)
    while runs < RUNS_MAX:
        is_smaller = False
        for start in range(1, len(kept) - 1, size):
            if runs >= RUNS_MAX:
                break
            fewer = kept[:start] + kept[min(start + size, len(kept) - 1) :]
            runs += 1
            again = next((one for one in run(fewer) if _is_alike(one, difference)), None)
            if again is not None:
                until = fewer.index(again.step) + 1
                kept, found, is_smaller = fewer[:until], again, True
                break
        if not is_smaller:
            if size == 1:
                break
            size = max(1, size // 2)
    return kept, found


def _is_alike(found: Difference, other: Difference) -> bool:
    return (found.aspect, found.step.kind) == (other.aspect, other.step.kind) and _told(
        found
    ) == _told(other)


def _told(difference: Difference) -> list[str]:
    """How both sides begin, numbers apart: an error's class, or what differs."""
    sides = (difference.delta, difference.txlake)
    return [found[0] if (found := _WORD.search(side)) else "" for side in sides]
