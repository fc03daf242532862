"""The engines write one table in turns; after every commit all of them read the model's rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.shared_tables.audit import audit, carried_out
from tests.shared_tables.operations import Chooser, first_rows
from tests.shared_tables.variants import VARIANTS, Variant
from tests.shared_tables.workers import Refused, Worker

pytestmark = pytest.mark.no_interop("all engines read every version here")
TURNS = 9


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_rows_are_those_of_the_operations(
    variant: Variant, workers: dict[str, Worker], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    variant.create(folder, workers["delta-spark"])
    done = [carried_out(workers["delta-spark"], folder, first_rows())[0]]
    order = random.Random(variant.name)
    choosers = {
        name: Chooser(7, name, number, variant.kinds) for number, name in enumerate(workers)
    }
    for turn in range(TURNS):
        name = variant.writers[turn % len(variant.writers)]
        one = choosers[name].operation("merge" if turn == 4 and "merge" in variant.kinds else "")
        done.append(carried_out(workers[name], folder, one)[0])
        if order.random() < 0.3:
            workers["delta-spark"].apply(folder, choosers["delta-spark"].operation("checkpoint"))
    verdict = audit(folder, done, list(workers.values()))
    assert verdict.faults == []
    for name in workers.keys() - set(variant.writers):
        with pytest.raises(Refused, match=variant.refused):
            workers[name].apply(folder, choosers[name].operation("append"))
