"""The long form of the tests here: `make soak MINUTES=30`.

Round after round, each with a seed and a kind of table of its own: one table, written by all its
engines at the same time, workers killed by SIGKILL in the middle and started again; then every
version is read by every reader; then VACUUM, and the last version is read again. Prints a line for
each round and a report, and ends with 1 when a fault was found: then the table is in
artifacts/soak, and `make soak MINUTES=0 SEED=...` repeats its round.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.delta_spark import JARS
from tests.shared_tables.audit import Done, audit, carried_out, first_columns, latest
from tests.shared_tables.operations import Chooser, first_rows
from tests.shared_tables.variants import ALL, JVM, Variant
from tests.shared_tables.workers import Died, Refused, Worker, start, start_all

OPERATIONS = 10
KILLS_ONE_IN = 15
KEPT = Path("artifacts", "soak")


@dataclass(slots=True)
class Soak:
    """The workers, and what was counted so far."""

    scratch: Path
    jars: Sequence[str]
    workers: dict[str, Worker]
    commits: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    versions: int = 0
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)

    def round(self, seed: int, variant: Variant) -> str:
        """One table from its creation to its audit; a line about it."""
        folder = self.scratch / f"table-{seed}"
        variant.create(folder, self.workers["delta-spark"])
        first = first_rows(first_columns(folder))
        done = [carried_out(self.workers["delta-spark"], folder, first)[0]]
        faults: list[str] = []
        with ThreadPoolExecutor(len(variant.writers)) as pool:
            running = [
                pool.submit(self._written, name, folder, chooser, faults)
                for name, chooser in variant.choosers(seed, at_once=True).items()
            ]
            for future in running:
                done += future.result()
        verdict = audit(folder, done, list(self.workers.values()), variant.unread)
        self.commits += verdict.commits
        self.versions += verdict.versions
        self.lost += verdict.lost
        self.doubled += verdict.doubled
        faults += verdict.faults + self._after_vacuum(folder, variant)
        self.faults += [f"seed {seed}: {fault}" for fault in faults]
        self.rounds += 1
        if faults:
            shutil.copytree(folder, KEPT / folder.name, dirs_exist_ok=True)
        shutil.rmtree(folder)
        return f"seed {seed}  {variant.name}: {verdict.versions} versions, {len(faults)} faults"

    def _written(
        self, engine: str, folder: Path, chooser: Chooser, faults: list[str]
    ) -> list[Done]:
        chance = random.Random(f"{folder.name}/{engine}")
        done = []
        for _ in range(OPERATIONS):
            operation = replace(chooser.operation(), behind=chance.randrange(3))
            first = latest(folder)
            killed = chance.randrange(KILLS_ONE_IN) == 0
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(carried_out, self.workers[engine], folder, operation)
                if killed:
                    # Any moment of the operation will do.
                    time.sleep(chance.random() * (1 if engine in JVM else 0.02))
                    self.workers[engine].kill()
                    self.kills[engine] += 1
                try:
                    one, conflicts = running.result()
                except Died:
                    one, conflicts = Done(operation, first, latest(folder), "unknown"), 0
                except Refused as refusal:
                    faults.append(f"{operation}: {refusal}")
                    one, conflicts = Done(operation, first, latest(folder), "given up"), 0
            if killed:
                self.workers[engine].end()
                self.workers[engine] = start(engine, self.scratch / engine, self.jars)
            self.conflicts[engine] += conflicts
            done.append(one)
        return done

    def _after_vacuum(self, folder: Path, variant: Variant) -> list[str]:
        """Whoever reads the table reads the last version after VACUUM, the same as the others."""
        self.workers["delta-spark"].sql(f"VACUUM delta.`{folder}` RETAIN 0 HOURS")
        last = latest(folder)
        read = {
            name: worker.read(folder, [last])[0]
            for name, worker in self.workers.items()
            if name not in variant.unread
        }
        if len({tuple(rows) for rows in read.values()}) == 1:
            return []
        counts = {name: len(rows) for name, rows in read.items()}
        return [f"after VACUUM the readers differ: {counts}"]

    def report(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"

        return "\n".join(
            (
                f"rounds        {self.rounds}, {self.versions} versions read by every reader",
                f"commits       {listed(self.commits)}",
                f"conflicts     {listed(self.conflicts)}",
                f"kills         {listed(self.kills)}",
                f"lost          {self.lost}",
                f"doubled       {self.doubled}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def said(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    jars = sorted(str(path) for path in JARS.glob("delta-*.jar"))
    if not jars:
        said(f"no soak: Delta Spark's jars aren't in {JARS}")
        return 1
    end = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory(prefix="txlake-soak-") as scratch:
        soak = Soak(Path(scratch), jars, start_all(Path(scratch), jars))
        seed = chosen.seed
        try:
            while time.monotonic() < end or soak.rounds == 0:
                said(soak.round(seed, ALL[seed % len(ALL)]))
                seed += 1
        finally:
            for worker in soak.workers.values():
                worker.end()
    said(soak.report())
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
