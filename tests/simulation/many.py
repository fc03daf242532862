"""Many seeds at once: in several processes, and counted."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import get_context
from typing import TypeAlias

from tests.simulation.case import Case
from tests.simulation.coverage import report
from tests.simulation.world import Failure, World

_AT_ONCE = 25

Found: TypeAlias = tuple[str, Counter[str]] | str
"""A seed's kind of programs and what happened, or how it failed."""


def one(seed: int) -> Found:
    """A seed's kind and counts, or how it failed."""
    try:
        outcome = World(Case(seed)).run()
    except Failure as failure:
        return str(failure)
    return outcome.kind, Counter(outcome.counts)


def some(seeds: Iterable[int]) -> list[tuple[int, Found]]:
    """Several seeds' outcomes."""
    found = [(seed, one(seed)) for seed in seeds]
    gc.collect()
    return found


def many(first: int, count: int, processes: int) -> Iterator[tuple[int, Found]]:
    """The outcomes of so many seeds, as they come in."""
    starts = range(first, first + count, _AT_ONCE)
    batches = [range(start, min(start + _AT_ONCE, first + count)) for start in starts]
    with get_context("spawn").Pool(processes, _begin) as pool:
        for found in pool.imap_unordered(some, batches):
            yield from found


def _begin() -> None:
    """A process that runs seeds and nothing else; it looks for garbage between batches only."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.freeze()


def table(by_kind: Mapping[str, Counter[str]]) -> str:
    """What happened, a line each kind of program."""
    lines = [f"{'':14}{'seeds':>7}{'commits':>9}{'conflicts':>10}{'deaths':>8}{'faults':>8}"]
    for kind, counts in sorted(by_kind.items()):
        faults = sum(count for name, count in counts.items() if name.isupper())
        lines.append(
            f"{kind:14}{counts['seeds']:>7}{counts['told committed']:>9}"
            f"{counts['told conflict']:>10}{counts['deaths']:>8}{faults:>8}"
        )
    total: Counter[str] = sum(by_kind.values(), Counter())
    happened = sorted((name, count) for name, count in total.items() if name.isupper())
    lines.append("misfortunes: " + ", ".join(f"{name} {count}" for name, count in happened))
    told = sorted((name, count) for name, count in total.items() if name.startswith("told "))
    lines.append(", ".join(f"{name} {count}" for name, count in told))
    lines += report(total)
    return "\n".join(lines)
