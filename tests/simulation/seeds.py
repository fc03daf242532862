"""Running many seeds in several processes, and the summary of what happened."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from multiprocessing import get_context
from typing import TypeAlias

from tests.simulation.case import Case
from tests.simulation.coverage import report
from tests.simulation.world import Failure, World

_BATCH_SIZE = 25

SeedResult: TypeAlias = tuple[str, Counter[str]] | str
"""A seed's kind of programs and what happened, or how it failed."""


def run_seed(seed: int, *, is_in_store: bool = False) -> SeedResult:
    """Run one seed; return its kind of programs and its counts, or the message of its failure.

    `is_in_store`: as in `Case`.
    """
    try:
        outcome = World(Case(seed, is_in_store=is_in_store)).run()
    except Failure as failure:
        return str(failure)
    return outcome.kind, Counter(outcome.counts)


def run_batch(seeds: Iterable[int], *, is_in_store: bool = False) -> list[tuple[int, SeedResult]]:
    """Run several seeds; return each with its result. `is_in_store`: as in `Case`."""
    found = [(seed, run_seed(seed, is_in_store=is_in_store)) for seed in seeds]
    gc.collect()
    return found


def run_seeds(
    first: int, count: int, processes: int, *, is_in_store: bool = False
) -> Iterator[tuple[int, SeedResult]]:
    """Yield the results of `count` seeds as they arrive. `is_in_store`: as in `Case`."""
    starts = range(first, first + count, _BATCH_SIZE)
    batches = [range(start, min(start + _BATCH_SIZE, first + count)) for start in starts]
    with get_context("spawn").Pool(processes, _initialize_process) as pool:
        run = partial(run_batch, is_in_store=is_in_store)
        for found in pool.imap_unordered(run, batches):
            yield from found


def _initialize_process() -> None:
    """Prepare a process that only runs seeds: garbage is collected between batches."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.freeze()


def summary_table(by_kind: Mapping[str, Counter[str]]) -> str:
    """Return the summary: a line for each kind of programs, faults, outcomes and coverage."""
    lines = [f"{'':14}{'seeds':>7}{'commits':>9}{'conflicts':>10}{'deaths':>8}{'faults':>8}"]
    for kind, counts in sorted(by_kind.items()):
        faults = sum(count for name, count in counts.items() if name.isupper())
        lines.append(
            f"{kind:14}{counts['seeds']:>7}{counts['outcome committed']:>9}"
            f"{counts['outcome conflict']:>10}{counts['deaths']:>8}{faults:>8}"
        )
    total: Counter[str] = sum(by_kind.values(), Counter())
    happened = sorted((name, count) for name, count in total.items() if name.isupper())
    lines.append("faults: " + ", ".join(f"{name} {count}" for name, count in happened))
    outcomes = sorted((name, count) for name, count in total.items() if name.startswith("outcome "))
    lines.append(", ".join(f"{name} {count}" for name, count in outcomes))
    lines += report(total)
    return "\n".join(lines)
