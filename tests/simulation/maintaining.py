"""Maintenance in a simulated process: rounds beside its clients, until the process ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.rows import RowSession
from txlake.errors import TxlakeError
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.survey import Target
from txlake.sql.statements import TablePath

if TYPE_CHECKING:
    from tests.simulation.process import Process

# Two files are many, and so is one deleted row of twenty and one expired file.
PROPERTIES = (
    ("txlake.maintenance.deletedRowsShare", "0.05"),
    ("txlake.maintenance.minExpiredFiles", "1"),
    ("txlake.maintenance.minSmallFiles", "2"),
)
_PAUSE_MS = 300


def maintain(process: Process, path_tables: tuple[str, ...], count: Callable[[str], None]) -> None:
    """Do rounds of maintenance; `path_tables` are the places of the tables without a lake.

    `count` is called with each work and its outcome. What fails is done in a later round.
    """
    engine = process.engine
    assert engine is not None, "the process has opened the lake"
    targets = [Target(engine.at(place, TablePath(place))) for place in path_tables]
    maintainer = Maintainer(engine, lambda: RowSession(engine), tables=targets or None)
    while True:
        process.sleep(_PAUSE_MS * process.world.scheduler.rng.random())
        try:
            for entry in maintainer.run():
                count(f"maintenance {entry.need} {entry.state}")
        except TxlakeError as error:
            process.trace("maintenance", type(error).__name__)
