"""Rounds of the soak on a path table that txlake, Delta Spark and delta-rs write at once.

Each round has its own seed and kind of table. Workers are killed by SIGKILL in the middle and
started again. Then every version is read by every reader, and the last one again after VACUUM.
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
KILL_ONE_IN = 15


class SharedRounds:
    """The workers of all rounds, one for each engine, and their counts."""

    def __init__(self, scratch: Path, jars: Sequence[str], counts: Counts) -> None:
        self._scratch = scratch
        self._jars = jars
        self._counts = counts
        self.workers = start_all(scratch, jars)

    def end(self) -> None:
        """End the workers."""
        for worker in self.workers.values():
            worker.end()

    def round(self, seed: int) -> str:
        """Run one table from its creation to its audit; return a line about it."""
        variant = ALL[seed % len(ALL)]
        folder = self._scratch / f"table-{seed}"
        variant.create(folder, self.workers["delta-spark"])
        first = first_rows(first_columns(folder))
        done = [carried_out(self.workers["delta-spark"], folder, first)[0]]
        faults: list[str] = []
        with ThreadPoolExecutor(len(variant.writers)) as pool:
            running = [
                pool.submit(self._run_engine, name, folder, chooser, faults)
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

    def _run_engine(
        self, engine: str, folder: Path, chooser: Chooser, faults: list[str]
    ) -> list[Done]:
        rng = random.Random(f"{folder.name}/{engine}")
        done = []
        for _ in range(OPERATIONS):
            operation = replace(chooser.operation(), behind=rng.randrange(3))
            first = latest(folder)
            is_killed = rng.randrange(KILL_ONE_IN) == 0
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(carried_out, self.workers[engine], folder, operation)
                if is_killed:
                    # The kill may come at any moment of the operation.
                    time.sleep(rng.random() * (1 if engine in JVM else 0.02))
                    self.workers[engine].kill()
                    self._counts.kills[engine] += 1
                try:
                    one, conflicts = running.result(1800)
                except Died:
                    one, conflicts = Done(operation, first, latest(folder), "unknown"), 0
                except Refused as refusal:
                    faults.append(f"{operation}: {refusal}")
                    one, conflicts = Done(operation, first, latest(folder), "given up"), 0
            if is_killed:
                self.workers[engine].end()
                self.workers[engine] = start(engine, self._scratch / engine, self._jars)
            self._counts.conflicts[engine] += conflicts
            self._counts.outcomes[one.outcome] += 1
            done.append(one)
        return done

    def _after_vacuum(self, folder: Path, variant: Variant) -> list[str]:
        """Check that all readers read the same rows of the last version after VACUUM."""
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
