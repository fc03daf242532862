"""The soak: `make soak MINUTES=30`.

Rounds take turns, each with its own seed: a path table that three engines write at once, and a lake
that several processes of txlake write at once. Workers are killed in the middle, requests fail, and
the disk is sometimes full. Each round ends with an audit of every table at every version, by txlake
and by other engines. Prints a line for each round and a report. Ends with 1 if something is wrong;
then the table is in artifacts/soak, and `make soak MINUTES=0 SEED=...` repeats its round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.delta_spark import JARS
from tests.soak.lake import LakeRounds, RoundSize
from tests.soak.report import Counts
from tests.soak.shared import SharedRounds


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    jars = sorted(str(path) for path in JARS.glob("delta-*.jar"))
    if not jars:
        print_line(f"no soak: Delta Spark's jars aren't in {JARS}")
        return 1
    end = time.monotonic() + 60 * options.minutes
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="txlake-soak-") as scratch:
        shared = SharedRounds(Path(scratch), jars, counts)
        lake = LakeRounds(Path(scratch), RoundSize(), counts)
        seed = options.seed
        try:
            while time.monotonic() < end or not counts.rounds:
                print_line(lake.round(seed, [shared.workers["delta-rs"]]))
                counts.rounds["lake"] += 1
                print_line(shared.round(seed))
                counts.rounds["shared"] += 1
                seed += 1
        finally:
            shared.end()
            lake.end()
            print_line(counts.report())
    return 1 if counts.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
