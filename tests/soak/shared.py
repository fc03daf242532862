"""Rounds of the soak on a path table that txlake, Delta Spark and delta-rs write at once.

Each round has a seed and a kind of table of its own. Workers are killed by SIGKILL in the middle
and started again; then every version is read by every reader; then VACUUM, and the last version is
read again.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.shared_tables.audit import Done, audit, carried_out, first_columns, latest
from tests.shared_tables.operations import Chooser, first_rows
from tests.shared_tables.variants import ALL, JVM, Variant
from tests.shared_tables.workers import Died, Refused, start, start_all
from tests.soak.report import Counts

OPERATIONS = 10
KILLS_ONE_IN = 15


class SharedRounds:
    """The workers of all rounds, one for each engine, and what is counted of them."""

    def __init__(self, scratch: Path, jars: Sequence[str], counts: Counts) -> None:
        self._scratch = scratch
        self._jars = jars
        self._counts = counts
        self.workers = start_all(scratch, jars)

    def end(self) -> None:
        """Ends the workers."""
        for worker in self.workers.values():
            worker.end()

    def round(self, seed: int) -> str:
        """One table from its creation to its audit; a line about it."""
        variant = ALL[seed % len(ALL)]
        folder = self._scratch / f"table-{seed}"
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
                done += future.result(1800)
        verdict = audit(folder, done, list(self.workers.values()), variant.unread)
        self._counts.add(verdict)
        faults += verdict.faults + self._after_vacuum(folder, variant)
        self._counts.faults += [f"shared, seed {seed}: {fault}" for fault in faults]
        if faults:
            self._counts.keep(folder, folder.name)
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
                    self._counts.kills[engine] += 1
                try:
                    one, conflicts = running.result(1800)
                except Died:
                    one, conflicts = Done(operation, first, latest(folder), "unknown"), 0
                except Refused as refusal:
                    faults.append(f"{operation}: {refusal}")
                    one, conflicts = Done(operation, first, latest(folder), "given up"), 0
            if killed:
                self.workers[engine].end()
                self.workers[engine] = start(engine, self._scratch / engine, self._jars)
            self._counts.conflicts[engine] += conflicts
            self._counts.outcomes[one.outcome] += 1
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
