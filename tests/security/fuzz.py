"""`make fuzz`: tables made hostile by chance are read, in processes with little memory and time.

What it finds is told by its seed: `python -m tests.security.fuzz --seed N --count 1` is it again.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.security.child import read
from tests.security.mutations import good_table, mutated
from tests.security.reading import limit_resources

_AT_ONCE = 200
_SECONDS_AT_ONCE = 120
_OURS = {"read", "CorruptTable", "InvalidRequest", "UnsupportedFeature", "Unavailable"}


def batch(good: Path, first: int, count: int) -> tuple[Counter[str], list[str]]:
    """How many tables ended in what, and what went wrong, with seeds; in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="txlake-fuzz-"))
    told = folder / "told"
    pid = os.fork()
    if not pid:
        try:
            _read_all(good, folder, told, range(first, first + count))
        finally:
            os._exit(0)  # the parent's folders are the parent's
    _, status = os.waitpid(pid, 0)
    ends, wrong = Counter[str](), []
    for line in told.read_text(errors="replace").splitlines():
        seed, _, end = line.partition(" ")
        if end in _OURS:
            ends[end] += 1
        else:
            wrong.append(f"seed {seed}: {end or f'died, {os.waitstatus_to_exitcode(status)}'}")
    shutil.rmtree(folder)
    return ends, wrong


def _read_all(good: Path, folder: Path, told: Path, seeds: range) -> None:
    limit_resources(_SECONDS_AT_ONCE)
    with told.open("w", buffering=1) as file:
        for seed in seeds:
            file.write(f"{seed} ")
            try:
                place = mutated(good, folder / str(seed), seed)
                file.write(read(place).replace("\n", " ") + "\n")
                shutil.rmtree(place)
            except Exception as error:
                file.write(f"the fuzzer itself: {error!r}\n".encode(errors="replace").decode())


def main() -> int:
    """Read until the time is over, or that many; 1 when something went wrong."""
    logging.disable()  # of checkpoints that give way to commits
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=None)
    asked = parser.parse_args()
    end = time.monotonic() + asked.minutes * 60
    ends, wrong, seed = Counter[str](), list[str](), asked.seed
    with tempfile.TemporaryDirectory(prefix="txlake-fuzz-") as folder:
        good = good_table(Path(folder) / "good")
        while time.monotonic() < end and (asked.count is None or seed < asked.seed + asked.count):
            count = _AT_ONCE if asked.count is None else min(_AT_ONCE, asked.count)
            found, bad = batch(good, seed, count)
            ends, wrong, seed = ends + found, wrong + bad, seed + count
            for line in bad:
                sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{seed - asked.seed} tables: {dict(ends)}, {len(wrong)} went wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
