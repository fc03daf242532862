"""`make sim`: many seeds, and what happened; or one seed again, shrunk, with its trace.

python -m tests.simulation --seeds 10000 [--from 1] [--processes CORES] | --seed N | show [--seed N]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter

from tests.simulation.case import Case
from tests.simulation.coverage import missing
from tests.simulation.luck import Misfortune
from tests.simulation.many import many, table
from tests.simulation.shrinking import failure_of, shrunk

_EACH_HAPPENS = 1_000  # so many seeds have every misfortune
_ALL_REACHED = 5_000  # so many reach each rule and form that programs can reach
_SHRUNK_MAX = 3
_TRACE_LINES_MAX = 400


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
    if given[:1] == ["show"]:
        from tests.simulation import show  # a web server's packages, for this alone

        return show.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
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
    total: Counter[str] = sum(by_kind.values(), Counter())
    never = sorted({one.name for one in Misfortune} - total.keys())
    never += missing(total) if asked.seeds >= _ALL_REACHED else []
    if asked.seeds >= _EACH_HAPPENS and never:
        print(f"FAILED: these never happened: {', '.join(never)}")
        return 1
    if not failures:
        return 0
    for seed, _ in sorted(failures)[:_SHRUNK_MAX]:
        explained(seed)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
