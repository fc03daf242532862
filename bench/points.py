"""A cost at sizes of its work that grow tenfold, as works keep it among their details.

A detail's name is `growth: AXIS: COST: SIZE`, its value milliseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.stage import Stage

PREFIX = "growth"


def note(stage: Stage, axis: str, cost: str, size: int, milliseconds: float) -> None:
    """Keep one point among the details."""
    stage.details[f"{PREFIX}: {axis}: {cost}: {size}"] = milliseconds


def tenths(size: int) -> list[int]:
    """A hundredth, a tenth, and all of it; none below one."""
    return [each for each in (size // 100, size // 10, size) if each]


def worst_step(costs: Sequence[float]) -> float:
    """By how much a cost is, at worst, more than the least of those before it."""
    return max(cost / min(costs[:number]) for number, cost in enumerate(costs) if number)


def typical(rounds: Sequence[Sequence[float]]) -> list[float]:
    """The median of each place's costs in proportion to the mean of their round, times the median
    of these means.
    """
    means = [statistics.mean(costs) for costs in rounds]
    parts = ([cost / mean for cost in costs] for costs, mean in zip(rounds, means, strict=True))
    pace = statistics.median(means)
    return [pace * statistics.median(place) for place in zip(*parts, strict=True)]
