"""Run the simulation: many seeds with a summary, or one seed again with its trace, reduced if it
fails.

python -m tests.simulation --seeds 10000 [--from 1] [--processes CORES] | --seed N | show [--seed N]

With --in-store each seed is a lake whose catalog is in the warehouse's store.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter

from tests.simulation.case import POSSIBLE_IN_STORE, Case
from tests.simulation.coverage import missing
from tests.simulation.faults import FaultKind
from tests.simulation.seeds import run_seeds, summary_table
from tests.simulation.shrinking import failure_of, shrink

_EACH_HAPPENS = 1_000  # this many seeds have every kind of fault
_ALL_REACHED = 5_000  # this many seeds reach every cell of `coverage`
_SHRUNK_MAX = 3
_TRACE_LINES_MAX = 400


def explain_seed(seed: int, *, is_in_store: bool = False) -> int:
    """Run one seed and print its outcome; reduce a failure and print its trace.

    Return the exit status. `is_in_store`: as in `Case`.
    """
    failure = failure_of(Case(seed, is_in_store=is_in_store))
    if failure is None:
        print(f"seed {seed}: every promise was kept")
        return 0
    print(failure)
    smallest = shrink(failure)
    print(f"\nshrunk: {smallest}")
    for fault in smallest.injected:
        print(f"  fault {fault.number}: {fault.kind.value} ({fault.where})")
    lines = smallest.trace
    if len(lines) > _TRACE_LINES_MAX:
        print(f"... {len(lines) - _TRACE_LINES_MAX} lines before")
    print("\n".join(lines[-_TRACE_LINES_MAX:]))
    return 1


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    if argv[:1] == ["show"]:
        from tests.simulation import show  # needs the packages of a web server

        return show.main(argv[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--in-store", action="store_true", dest="is_in_store")
    arguments = parser.parse_args(argv)
    is_in_store = arguments.is_in_store
    logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        return explain_seed(arguments.seed, is_in_store=is_in_store)
    start = time.monotonic()
    by_kind: dict[str, Counter[str]] = {}
    failures: list[tuple[int, str]] = []
    for seed, result in run_seeds(
        arguments.first, arguments.seeds, arguments.processes, is_in_store=is_in_store
    ):
        if isinstance(result, str):
            failures.append((seed, result))
        else:
            kind, counts = result
            by_kind.setdefault(kind, Counter()).update(counts + Counter(seeds=1))
    seconds = time.monotonic() - start
    print(summary_table(by_kind))
    print(f"{arguments.seeds} seeds in {seconds:.0f} s, {arguments.seeds / seconds:.0f} a second")
    for seed, text in sorted(failures)[:20]:
        again = f"SEED={seed}{' IN_STORE=1' if is_in_store else ''}"
        print(f"FAILED: {text[:300]}\n  again: make sim {again}")
    total: Counter[str] = sum(by_kind.values(), Counter())
    expected = POSSIBLE_IN_STORE if is_in_store else set(FaultKind)
    unreached = sorted({kind.name for kind in expected} - total.keys())
    is_all_reached = arguments.seeds >= _ALL_REACHED and not is_in_store
    unreached += missing(total) if is_all_reached else []
    if arguments.seeds >= _EACH_HAPPENS and unreached:
        print(f"FAILED: these never happened: {', '.join(unreached)}")
        return 1
    if not failures:
        return 0
    for seed, _ in sorted(failures)[:_SHRUNK_MAX]:
        explain_seed(seed, is_in_store=is_in_store)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
