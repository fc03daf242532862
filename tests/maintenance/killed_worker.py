"""A process that writes a table and does rounds of maintenance of it until it is killed.

It tells what it was told to be done, a line each, in a file that processes share. Each row is
inserted once, and only its inserter deletes it: no two writers conflict.
"""

from __future__ import annotations

import random
import uuid

from tests.maintenance.maintaining import maintainer_of
from tests.session.offline import Offline
from tests.support.killing import work_until_killed
from txlake.catalog import Catalog
from txlake.errors import TxlakeError
from txlake.session.membership.opening import open_lake
from txlake.system import System

LEASE_MS = 2_000
# Everything is much, at once, and what was removed is deleted in the next round.
PROPERTIES = ", ".join(
    f"'{key}' = '{value}'"
    for key, value in {
        "txlake.maintenance.minSmallFiles": "2",
        "txlake.maintenance.deletedRowsShare": "0.01",
        "txlake.maintenance.minExpiredFiles": "1",
        "txlake.maintenance.fullVacuumInterval": "interval 1 second",
        "delta.deletedFileRetentionDuration": "interval 0 days",
        "delta.checkpointInterval": "5",
    }.items()
)
_ACTIONS = {"insert": 5, "doom": 2, "delete": 4, "maintain": 4}


class Worker:
    """One process's lake, and the rows that it has inserted."""

    def __init__(self, place: str, catalog: str) -> None:
        self.lake = Offline(place, Catalog(catalog, System(), lease_ms=LEASE_MS))
        open_lake(self.lake.session)
        self.own: list[str] = []
        self.doomed: list[str] = []

    def close(self) -> None:
        """Close the session and the catalog."""
        self.lake.session.close()
        self.lake.catalog.close()


def step(worker: Worker, action: str, chance: random.Random) -> str | None:
    """Carry out an action; return the line that tells it, None if there was nothing to do."""
    if action == "maintain":
        done = maintainer_of(worker.lake).run()
        for entry in done:
            if entry.state == "failed":
                raise AssertionError(entry)
        return f"maintain {' '.join(entry.state for entry in done)}"
    if action == "insert":
        marker = f"m{uuid.uuid4().hex}"
        worker.lake.run(f"INSERT INTO t VALUES ('{marker}', 1)")
        worker.own.append(marker)
        return f"insert {marker}"
    rows = worker.own if action == "doom" else worker.doomed
    if not rows:
        return None
    marker = rows.pop(chance.randrange(len(rows)))
    if action == "doom":  # told before it is deleted, as a killed process can't tell afterwards
        worker.doomed.append(marker)
        return f"doom {marker}"
    worker.lake.run(f"DELETE FROM t WHERE k = '{marker}'")
    return f"delete {marker}"


def main(place: str, catalog: str, told: str, seed: int) -> None:
    """Work until the process is killed."""
    work_until_killed(lambda: Worker(place, catalog), step, _ACTIONS, told, seed, TxlakeError)
