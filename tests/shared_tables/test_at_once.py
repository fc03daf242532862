"""The engines write one table at the same time, each from its process: nothing lost or doubled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.shared_tables.audit import Done, audit, carried_out
from tests.shared_tables.operations import Chooser, first_rows
from tests.shared_tables.variants import (
    PARTITIONED,
    PLAIN,
    SERIALIZABLE,
    VECTORS,
    Variant,
)
from tests.shared_tables.workers import Worker

pytestmark = pytest.mark.no_interop("all engines read every version here")
OPERATIONS = 8


def written(worker: Worker, folder: Path, chooser: Chooser) -> list[Done]:
    return [carried_out(worker, folder, chooser.operation())[0] for _ in range(OPERATIONS)]


@pytest.mark.parametrize(
    "variant", [PLAIN, PARTITIONED, SERIALIZABLE, VECTORS], ids=lambda variant: variant.name
)
def test_nothing_is_lost_or_doubled(
    variant: Variant, workers: dict[str, Worker], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    variant.create(folder, workers["delta-spark"])
    done = [carried_out(workers["delta-spark"], folder, first_rows())[0]]
    with ThreadPoolExecutor(len(variant.writers)) as pool:
        running = [
            pool.submit(written, workers[name], folder, Chooser(11, name, number, variant.kinds))
            for number, name in enumerate(variant.writers)
        ]
        for future in running:
            done += future.result()
    verdict = audit(folder, done, list(workers.values()))
    assert verdict.faults == []
    assert len(verdict.commits) == 1 + len(variant.writers) - 1
