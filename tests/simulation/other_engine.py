"""Another engine in the simulated world, without a catalog: its store, its clock, its log clean-up.

Its requests take no turns of the scheduler and always succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.faults import FaultKind
from tests.simulation.stores import SimulatedStore, is_commit
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.table_log import TableLog
from txlake.errors import TxlakeError
from txlake.protocol.file_names import LOG_FOLDER, commit_path
from txlake.settings import Settings

if TYPE_CHECKING:
    from tests.simulation.world import World


def open_log(world: World, root: str) -> TableLog:
    """Return the log of the table at a key, as another engine opens it."""
    store = SimulatedStore(OtherEngine(world), root)  # type: ignore[arg-type]
    return TableLog(store, OtherEngineSystem(world), Settings())


def clean_up_log(world: World, root: str) -> None:
    """Write a checkpoint of the newest version and delete all commits before it, oldest first."""
    log = open_log(world, root)
    try:
        newest = log.latest().version
        write_checkpoint(log)
    except TxlakeError:
        return  # there is no table yet
    commits = [one.path for one in log.store.list(LOG_FOLDER) if is_commit(f"/{one.path}")]
    log.store.delete(sorted(path for path in commits if path < commit_path(newest)))
    world.trace("outsider", root, "cleaned up before", newest)


class OtherEngine:
    """A process of another engine, as the store sees it."""

    def __init__(self, world: World) -> None:
        self.world = world

    def step(self, kind: str, where: str) -> None:
        """Do nothing: requests take no turn."""

    def fault_occurs(self, kind: FaultKind, where: str, weight: float = 1.0) -> bool:
        return False

    def trace(self, *what: object) -> None:
        """Do nothing: requests aren't traced."""


class OtherEngineSystem:
    """`ports.System` of another engine."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return int(self._world.scheduler.now_ms)

    def new_id(self) -> str:
        return self._world.new_id()

    def random(self) -> float:
        return 0.5

    def wait_ms(self, duration_ms: float) -> None:
        raise AssertionError("an outsider never waits")

    def monotonic_ms(self) -> float:
        return self._world.scheduler.now_ms
