"""txlake, Delta Spark and delta-rs write one table, in turns and at the same time.

Afterwards its rows are those that the committed operations give, and every reader reads them at
every version. An engine that a table asks too much of refuses to write it, or to read it, by name.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shared_tables.audit import Done, audit, carried_out, first_columns
from tests.shared_tables.operations import Operation, first_rows
from tests.shared_tables.variants import AT_ONCE, IN_TURNS, JVM, Variant
from tests.shared_tables.workers import WRITERS, Refused, Worker

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("all engines read every version here"),
]
SEED = 7
TURNS = 6
ROUNDS = 3


def created(variant: Variant, workers: dict[str, Worker], folder: Path) -> list[Done]:
    variant.create(folder, workers["delta-spark"])
    first = first_rows(first_columns(folder))
    return [carried_out(workers["delta-spark"], folder, first)[0]]


def found_right(
    variant: Variant, workers: dict[str, Worker], folder: Path, done: list[Done]
) -> None:
    verdict = audit(folder, done, list(workers.values()), variant.unread)
    assert verdict.faults == [], f"seed {SEED}"
    assert len(verdict.commits) == len(variant.writers)
    for name in set(WRITERS) - set(variant.writers):
        with pytest.raises(Refused, match="Unsupported") as refusal:
            workers[name].apply(folder, Operation(kind="append", marker="", rows=[[0, 0, 0, ""]]))
        assert all(feature in str(refusal.value) for feature in variant.refused)


@pytest.mark.broad
@pytest.mark.parametrize("variant", AT_ONCE, ids=lambda variant: variant.name)
def test_at_once_nothing_is_lost_or_doubled(
    variant: Variant, workers: dict[str, Worker], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    done = created(variant, workers, folder)
    choosers = variant.choosers(SEED, at_once=True)
    with ThreadPoolExecutor(len(variant.writers)) as pool:
        for _ in range(ROUNDS):
            running = [
                pool.submit(carried_out, workers[name], folder, replace(one, behind=2))
                for name, one in ((name, chooser.operation()) for name, chooser in choosers.items())
            ]
            done += [future.result(300)[0] for future in running]
    found_right(variant, workers, folder, done)


@pytest.mark.broad
@pytest.mark.parametrize("variant", IN_TURNS, ids=lambda variant: variant.name)
def test_in_turns_rows_are_those_of_the_operations(
    variant: Variant, workers: dict[str, Worker], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    done = created(variant, workers, folder)
    chance = random.Random(f"{SEED}/{variant.name}")
    choosers = variant.choosers(SEED)
    changes = iter(variant.changes)
    for turn in range(TURNS):
        name = variant.writers[turn % len(variant.writers)]
        done.append(carried_out(workers[name], folder, choosers[name].operation())[0])
        if turn % 2 and (change := next(changes, None)) is not None:
            done.append(carried_out(workers[chance.choice(JVM)], folder, change)[0])
        if turn == 2:
            workers["delta-spark"].apply(folder, Operation(kind="checkpoint", marker=""))
    found_right(variant, workers, folder, done)
