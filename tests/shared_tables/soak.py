"""The long form of the tests here: `make soak MINUTES=30`.

Round after round, each with a seed and a kind of table of its own: a table, written by all engines
at the same time, workers killed by SIGKILL in the middle and started again, VACUUM at the end;
then every version is read by every reader before VACUUM, and the last one after it. Prints a report
and ends with 1 when a row was lost or doubled.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.delta_spark import JARS
from tests.shared_tables.audit import Done, audit, carried_out, latest
from tests.shared_tables.operations import Chooser, first_rows
from tests.shared_tables.variants import VARIANTS, Variant
from tests.shared_tables.workers import Died, Worker, start

OPERATIONS = 25
KILLS_ONE_IN = 20


@dataclass(slots=True)
class Soak:
    """The workers, and what was counted so far."""

    scratch: Path
    jars: Sequence[str]
    workers: dict[str, Worker] = field(default_factory=dict)
    commits: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    versions: int = 0
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)

    def begin(self, engine: str) -> Worker:
        own = self.jars if engine == "delta-spark" else ()
        self.workers[engine] = start(engine, self.scratch / engine, own)
        return self.workers[engine]

    def round(self, seed: int, variant: Variant) -> None:
        """One table from its creation to its audit."""
        folder = self.scratch / f"table-{seed}"
        variant.create(folder, self.workers["delta-spark"])
        done = [carried_out(self.workers["delta-spark"], folder, first_rows())[0]]
        with ThreadPoolExecutor(len(variant.writers)) as pool:
            running = [
                pool.submit(self._written, name, folder, Chooser(seed, name, n, variant.kinds))
                for n, name in enumerate(variant.writers)
            ]
            for future in running:
                done += future.result()
        self._audited(folder, done, ())
        self.workers["delta-spark"].sql(f"VACUUM delta.`{folder}` RETAIN 0 HOURS")
        self._audited_last(folder)
        self.rounds += 1

    def _written(self, engine: str, folder: Path, chooser: Chooser) -> list[Done]:
        chance = random.Random(f"{folder.name}/{engine}")
        done = []
        for _ in range(OPERATIONS):
            operation = chooser.operation()
            first = latest(folder)
            worker = self.workers[engine]
            killed = chance.randrange(KILLS_ONE_IN) == 0
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(carried_out, worker, folder, operation)
                if killed:
                    time.sleep(chance.random())
                    worker.kill()
                    self.kills[engine] += 1
                try:
                    one, conflicts = running.result()
                except Died:
                    one, conflicts = Done(operation, first, latest(folder), "unknown"), 0
            if killed:
                self.begin(engine)
            self.conflicts[engine] += conflicts
            done.append(one)
        return done

    def _audited(self, folder: Path, done: Sequence[Done], only: Sequence[int]) -> None:
        verdict = audit(folder, done, list(self.workers.values()), only)
        self.commits += verdict.commits
        self.versions += verdict.versions
        self.lost += verdict.lost
        self.doubled += verdict.doubled
        self.faults += [f"{folder.name}: {fault}" for fault in verdict.faults]

    def _audited_last(self, folder: Path) -> None:
        """After VACUUM all readers still read the last version, and the same."""
        last = latest(folder)
        read = {name: worker.read(folder, [last])[0] for name, worker in self.workers.items()}
        if len({tuple(rows) for rows in read.values()}) != 1:
            counts = {name: len(rows) for name, rows in read.items()}
            self.faults.append(f"{folder.name} after VACUUM: the readers differ: {counts}")

    def report(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"

        return "\n".join(
            (
                f"rounds        {self.rounds}, {self.versions} versions read by every reader",
                f"commits       {listed(self.commits)}",
                f"conflicts     {listed(self.conflicts)}",
                f"kills         {listed(self.kills)}",
                f"lost rows     {self.lost}",
                f"doubled rows  {self.doubled}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    jars = sorted(str(path) for path in JARS.glob("delta-*.jar"))
    if not jars:
        sys.stdout.write(f"no soak: Delta Spark's jars aren't in {JARS}\n")
        return 1
    end = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory(prefix="txlake-soak-") as scratch:
        soak = Soak(Path(scratch), jars)
        for engine in ("delta-spark", "txlake", "delta-rs"):
            soak.begin(engine)
        seed = chosen.seed
        try:
            while time.monotonic() < end or soak.rounds == 0:
                soak.round(seed, VARIANTS[seed % len(VARIANTS)])
                seed += 1
        finally:
            for worker in soak.workers.values():
                worker.end()
    sys.stdout.write(soak.report() + "\n")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
