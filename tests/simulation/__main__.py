"""`make sim`: many seeds, and what happened; or one seed again, shrunk, with its trace.

python -m tests.simulation --seeds 10000 [--from 1] [--processes 2] | --seed N
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from tests.simulation.case import Case
from tests.simulation.shrinking import failure_of, shrunk
from tests.simulation.world import Failure, World

_AT_ONCE = 25
_SHRUNK_MAX = 3
_TRACE_LINES_MAX = 400


def one(seed: int) -> tuple[str, Counter[str]] | str:
    """A seed's kind and counts, or how it failed."""
    try:
        outcome = World(Case(seed)).run()
    except Failure as failure:
        return str(failure)
    return outcome.kind, Counter(outcome.counts)


def some(seeds: Iterable[int]) -> list[tuple[int, tuple[str, Counter[str]] | str]]:
    """Several seeds' outcomes."""
    logging.disable(logging.CRITICAL)
    found = [(seed, one(seed)) for seed in seeds]
    gc.collect()
    if not gc.get_freeze_count():
        gc.freeze()  # the modules: nobody looks through them again
    return found


def many(
    first: int, count: int, processes: int
) -> Iterator[tuple[int, tuple[str, Counter[str]] | str]]:
    """The outcomes of so many seeds, as they come in."""
    starts = range(first, first + count, _AT_ONCE)
    batches = [range(start, min(start + _AT_ONCE, first + count)) for start in starts]
    with get_context("spawn").Pool(processes) as pool:
        for found in pool.imap_unordered(some, batches):
            yield from found


def table(by_kind: dict[str, Counter[str]]) -> str:
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
    return "\n".join(lines)


def explained(seed: int) -> int:
    """Runs one seed; shows how it fails, made small."""
    failure = failure_of(Case(seed))
    if failure is None:
        print(f"seed {seed}: every promise was kept")
        return 0
    print(failure)
    smallest = shrunk(failure)
    print(f"\nshrunk: {smallest}")
    for happened in smallest.struck:
        print(f"  misfortune {happened.number}: {happened.kind.value} ({happened.where})")
    lines = smallest.trace
    if len(lines) > _TRACE_LINES_MAX:
        print(f"... {len(lines) - _TRACE_LINES_MAX} lines before")
    print("\n".join(lines[-_TRACE_LINES_MAX:]))
    return 1


def main(given: list[str]) -> int:
    """What was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(given)
    logging.disable(logging.CRITICAL)
    if asked.seed is not None:
        return explained(asked.seed)
    begun = time.monotonic()
    by_kind: dict[str, Counter[str]] = {}
    failures: list[tuple[int, str]] = []
    for seed, found in many(asked.first, asked.seeds, asked.processes):
        if isinstance(found, str):
            failures.append((seed, found))
        else:
            kind, counts = found
            by_kind.setdefault(kind, Counter()).update(counts + Counter(seeds=1))
    seconds = time.monotonic() - begun
    print(table(by_kind))
    print(f"{asked.seeds} seeds in {seconds:.0f} s, {asked.seeds / seconds:.0f} a second")
    for seed, text in sorted(failures)[:20]:
        print(f"FAILED: {text[:300]}\n  again: make sim SEED={seed}")
    if not failures:
        return 0
    for seed, _ in sorted(failures)[:_SHRUNK_MAX]:
        explained(seed)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
