"""Reduction of a program that ends in a difference: delta debugging over its steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.differential.comparing import Difference
from tests.differential.steps import Step

RUNS_MAX = 40
_WORD = re.compile(r"[A-Za-z_]+")


def shrink(
    steps: Sequence[Step],
    difference: Difference,
    run: Callable[[Sequence[Step]], Sequence[Difference]],
) -> tuple[list[Step], Difference]:
    """Return the fewest steps found that end in the same difference, and that difference.

    Halves are left out first, then quarters, down to single steps. A shorter program is kept if it
    ends
    in a difference of the same aspect after a step of the same kind. The first step, which creates
    the
    table, and the last one stay.
    """
    shortest = list(steps[: steps.index(difference.step) + 1])
    found, runs = difference, 0
    size = max(1, len(shortest) // 2)
    while runs < RUNS_MAX:
        is_smaller = False
        for start in range(1, len(shortest) - 1, size):
            if runs >= RUNS_MAX:
                break
            fewer = shortest[:start] + shortest[min(start + size, len(shortest) - 1) :]
            runs += 1
            repeated = next(
                (one for one in run(fewer) if _is_same_difference(one, difference)), None
            )
            if repeated is not None:
                until = fewer.index(repeated.step) + 1
                shortest, found, is_smaller = fewer[:until], repeated, True
                break
        if not is_smaller:
            if size == 1:
                break
            size = max(1, size // 2)
    return shortest, found


def _is_same_difference(found: Difference, other: Difference) -> bool:
    return (found.aspect, found.step.kind) == (other.aspect, other.step.kind) and _first_words(
        found
    ) == _first_words(other)


def _first_words(difference: Difference) -> list[str]:
    """Return the first word of each side: an error's class, or what differs."""
    sides = (difference.delta, difference.txlake)
    return [found[0] if (found := _WORD.search(side)) else "" for side in sides]
