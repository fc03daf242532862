"""A process of the simulated world: its clock, its engine with its caches, and its death.

Every request goes through `Process.step`, where other tasks get turns, and where the process may
die, stall or be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tests.simulation import branching
from tests.simulation.catalog_in_store import FOLDER, SimulatedReplica
from tests.simulation.database import SimulatedDatabase
from tests.simulation.faults import FaultKind
from tests.simulation.other_engine import clean_up_log
from tests.simulation.rows import RowEngine, RowSession
from tests.simulation.scheduler import Killed, Task
from tests.simulation.stores import SimulatedStore, key_of
from tests.simulation.threads import THREADS
from txlake.catalog import AnyCatalog, Catalog, NoCatalog
from txlake.catalog.database import Database
from txlake.conflict.levels import Level
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable
from txlake.session.branches import drop_expired
from txlake.session.engine import Engine
from txlake.session.membership.opening import open_lake

if TYPE_CHECKING:
    from tests.simulation.world import World

Value = TypeVar("Value")
WAREHOUSE = "lake"
# Where tables have the property, any two files are many, in each version.
_PACKS_EACH_COMMIT = {"spark.databricks.delta.autoCompact.minNumFiles": "1"}
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_MINUTES_MS = 60_000
_LATENCY_MS = 2.0
_SLOW_MS = 8_000
_STALL_MS = 90_000
# Requests of a commit, at which deaths and lost replies are likelier by a factor.
_COMMITS = {"write", "write done", "create", "created"}
_AT_COMMITS = 4.0
_OPENINGS_MAX = 30


class Interrupted(BaseException):
    """Ctrl-C: the statement ends, the process continues."""


@dataclass(slots=True)
class Shield:
    """Work on the catalog that interrupts must not stop; whether one has arrived meanwhile."""

    is_interrupted: bool = False


def retry_opening(open_it: Callable[[], object]) -> None:
    """Open a lake, and try again after faults, 30 times at most."""
    for attempt in range(_OPENINGS_MAX):
        try:
            open_it()
            return
        except (Unavailable, OutcomeUnknown, Interrupted):
            if attempt == _OPENINGS_MAX - 1:
                raise
        except InvalidRequest as error:
            if "no space" not in str(error):
                raise


class ProcessSystem:
    """`ports.System` of a process: the world's time of day, shifted by the process's own error."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.skew_ms = 0

    def now_ms(self) -> int:
        process = self._process
        if process.fault_occurs(FaultKind.CLOCK_JUMP, "clock"):
            self.skew_ms = round((process.world.injector.random() - 0.5) * 10 * _MINUTES_MS)
        return process.world.time_of_day_ms + self.skew_ms

    def new_id(self) -> str:
        return self._process.world.new_id()

    def random(self) -> float:
        return self._process.world.scheduler.rng.random()

    def wait_ms(self, duration_ms: float) -> None:
        self._process.sleep(duration_ms)

    def monotonic_ms(self) -> float:
        return self._process.world.scheduler.now_ms


class Process:
    """One process; its tasks are its sessions and its heartbeat.

    Attributes:
        number: counts the processes in the order of their starts.
        is_dead: the process died, and none of its requests is carried out any more.
        shields: the shielded work of each of its tasks.
        is_recovering: it runs a recovery of the lake.
        is_in_database: it is within a transaction of the database, in which no other task gets a
            turn.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.is_dead = False
        self.is_in_database = False
        self.shields: dict[Task, Shield] = {}
        self.is_recovering = False
        self.system = ProcessSystem(self)
        if self.fault_occurs(FaultKind.CLOCK_WRONG, "clock"):
            self.system.skew_ms = round((world.injector.random() - 0.5) * 10 * _MINUTES_MS)
        self.engine: Engine | None = None

    def __repr__(self) -> str:
        return f"p{self.number}"

    def open(self) -> Engine:
        """Open the lake, or for a path table an engine without a catalog."""
        world = self.world
        catalog: AnyCatalog = NoCatalog()
        warehouse = None
        if world.config.has_catalog:
            warehouse = SimulatedStore(self, WAREHOUSE)
            catalog = Catalog(
                "sqlite://",
                self.system,
                lease_ms=world.settings.lease_ms,
                commits_kept=world.settings.commits_kept,
                open_database=self._database,
            )
        engine = RowEngine(
            system=self.system,
            settings=world.settings,
            warehouse=warehouse,
            catalog=catalog,
            open_store=lambda location, _: SimulatedStore(self, key_of(location)),
            spark_settings={_RETENTION_CHECK: "false", **_PACKS_EACH_COMMIT},
        )
        engine._lock = THREADS.RLock()  # type: ignore[assignment,no-untyped-call]
        if world.config.has_catalog:
            session = RowSession(engine)
            open_lake(session)
            if world.plan.kind == branching.KIND:
                drop_expired(engine)
            session.close()
        self.engine = engine
        return engine

    def session(self, level: Level | None = None) -> RowSession:
        """Return a new session."""
        assert self.engine is not None
        return RowSession(self.engine, level=level)

    def step(self, kind: str, where: str) -> None:
        """Send a request or receive its reply: give others a turn, then let faults occur.

        Raises:
            Killed: the process died.
            Interrupted: Ctrl-C stopped the statement.
        """
        world = self.world
        if self.is_dead:
            raise Killed
        assert not self.is_in_database, f"{kind} {where} within a transaction of the database"
        self.trace(kind, where)
        scheduler, injector = world.scheduler, world.injector
        if scheduler.current is None:
            return
        if self.fault_occurs(FaultKind.SLOW, kind):
            scheduler.sleep(injector.random() * _SLOW_MS)
        elif scheduler.rng.random() < 0.3:
            scheduler.sleep(scheduler.rng.random() * _LATENCY_MS)
        else:
            scheduler.pause()
        if self.fault_occurs(FaultKind.STALL, kind):
            self.trace("stands still")
            scheduler.stall(self, injector.random() * _STALL_MS)
            scheduler.pause()
        if self.fault_occurs(FaultKind.CLOCK_STEP, kind):
            world.set_clock((injector.random() - 0.5) * 10)
        weight = _AT_COMMITS if kind in _COMMITS else 1.0
        if self.fault_occurs(FaultKind.CRASH, kind, weight):
            self.die(kind)
        if world.storage.is_disk and self.fault_occurs(FaultKind.POWER_LOSS, kind):
            world.lose_power()
            raise Killed
        if world.lake_faults is not None:
            world.lake_faults.inject(self, kind)
        self._interrupt(scheduler.current, kind, weight)

    def stand_still_while_cleaned(self, root: str) -> None:
        """Stall for minutes, at whose end another engine cleans up the table's log."""
        world = self.world
        self.trace("stands still")
        world.scheduler.stall(self, (1 + world.injector.random()) * _STALL_MS)
        world.scheduler.pause()
        clean_up_log(world, root)

    def _interrupt(self, task: Task, kind: str, weight: float) -> None:
        if task.is_daemon:
            return
        shield = self.shields.get(task)
        if shield is None:
            if self.fault_occurs(FaultKind.INTERRUPT, kind, weight):
                self.trace("interrupted")
                raise Interrupted
        elif not shield.is_interrupted and self.fault_occurs(
            FaultKind.INTERRUPT_LATE, kind, weight
        ):
            self.trace("interrupted, as soon as the catalog is done")
            shield.is_interrupted = True

    @property
    def is_interrupted(self) -> bool:
        """Whether an interrupt has arrived during the shielded work of the current task."""
        task = THREADS.task()
        return task in self.shields and self.shields[task].is_interrupted

    def run_shielded(self, work: Callable[[], Value]) -> Value:
        """Do the work and return its value; raise an interrupt that arrived meanwhile at its
        end.
        """
        task = THREADS.task()
        if task is None or task in self.shields:
            return work()
        shield = self.shields[task] = Shield()
        try:
            outcome = work()
        except Exception:
            if not shield.is_interrupted:
                raise
        finally:
            del self.shields[task]
        if shield.is_interrupted:
            raise Interrupted
        return outcome

    def sleep(self, duration_ms: float) -> None:
        """Wait. Raises Killed in a dead process."""
        if self.is_dead:
            raise Killed
        self.world.scheduler.sleep(duration_ms)

    def fault_occurs(self, kind: FaultKind, where: str, weight: float = 1.0) -> bool:
        """Decide whether a fault occurs at this request, and record it if so."""
        world = self.world
        if self.is_dead or kind not in world.injector.relevant_kinds:
            return False
        return world.injector.occurs(kind, f"{self} {where}", weight, world.step)

    def trace(self, *what: object) -> None:
        """Add a line to the trace."""
        self.world.trace(self, *what)

    def die(self, why: str) -> None:
        """End the process with everything that it holds in memory. Always raises Killed."""
        self.trace("dies", why)
        self.world.kill(self)
        raise Killed

    def _database(self, _url: object, _system: object, **given: float) -> Database:
        if self.world.config.is_in_store:
            return SimulatedReplica(self, self.catalog_store(), **given)
        return SimulatedDatabase(self, **given)

    def catalog_store(self) -> SimulatedStore:
        """Return the store of a catalog in the warehouse."""
        return SimulatedStore(self, f"{WAREHOUSE}/{FOLDER}")
