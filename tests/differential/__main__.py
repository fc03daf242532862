"""`make diff`: programs on Delta Spark and txlake side by side, and where they differ.

python -m tests.differential [--seeds 200] [--from 1] [--steps 10] [--shrink 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.delta_spark import JARS
from tests.differential.engines import DeltaSpark, Txlake, start
from tests.differential.machine import Machine, Result
from tests.differential.programs import STEPS_MAX
from tests.differential.shrinking import shrink


def main(argv: list[str]) -> int:
    """Run the seeds. Return 1 for a difference that isn't known."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--steps", type=int, default=STEPS_MAX, help="the most in one program")
    parser.add_argument("--shrink", type=int, default=3, help="how many differences are made small")
    options = parser.parse_args(argv)
    jars = sorted(map(str, JARS.glob("delta-*.jar")))
    if not jars:
        print(f"Delta Spark's jars aren't in {JARS}: run tools/delta_jars.sh")
        return 2
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="txlake-diff-") as folder:
        scratch = Path(folder)
        spark = start(scratch, jars)
        try:
            machine = Machine(spark, DeltaSpark(spark), Txlake(spark, scratch / "lake"), scratch)
            seeds = range(options.first, options.first + options.seeds)
            return _run_seeds(machine, seeds, options.steps, options.shrink)
        finally:
            spark.stop()


def _run_seeds(machine: Machine, seeds: range, steps_max: int, shrinks_max: int) -> int:
    start_s = time.monotonic()
    known: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failed: list[tuple[int, Result]] = []
    for seed in seeds:
        result = machine.seed(seed, steps_max)
        known.update({one.name for one, _ in result.known})
        outcomes.update(result.outcomes)
        if result.differences:
            failed.append((seed, result))
        for difference in result.differences:
            print(f"seed {seed}: {difference}", flush=True)
    seconds = time.monotonic() - start_s
    print(f"{len(seeds)} programs in {seconds:.0f} s, {len(failed)} differ")
    for name, count in sorted(outcomes.items()):
        print(f"  {name}: {count}")
    for name, count in known.most_common():
        print(f"  known: {name}: in {count} programs")
    for seed, result in failed[:shrinks_max]:
        steps, difference = shrink(
            result.steps, result.differences[0], lambda fewer: machine.run_steps(fewer).differences
        )
        print(f"\nseed {seed}, {len(result.steps)} steps made {len(steps)}:")
        print("\n".join(f"  {step}" for step in steps))
        print(difference, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
