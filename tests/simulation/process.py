"""A process of the simulated world: its clock, its engine with its caches, and its death.

Everything that it asks of the world goes through `step`, which is where others go on, and where it
dies, stands still, or is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.database import SimulatedDatabase
from tests.simulation.luck import Misfortune
from tests.simulation.outsider import clean_up_log
from tests.simulation.rows import RowEngine, RowSession
from tests.simulation.scheduler import Killed, Task
from tests.simulation.stores import SimulatedStore, key_of
from tests.simulation.threads import THREADS
from txlake.catalog import AnyCatalog, Catalog, NoCatalog
from txlake.conflict.levels import Level
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable
from txlake.session.engine import Engine
from txlake.session.membership.opening import open_lake

if TYPE_CHECKING:
    from tests.simulation.world import World

Value = TypeVar("Value")
WAREHOUSE = "lake"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_MINUTES_MS = 60_000
_LATENCY_MS = 2.0
_SLOW_MS = 8_000
_STALL_MS = 90_000
# Where a death or a lost reply matters most, they are so much likelier.
_COMMITS = {"write", "write done", "create", "created"}
_AT_COMMITS = 4.0
_OPENINGS_MAX = 30


class Interrupted(BaseException):
    """Somebody pressed Ctrl-C: the statement ends, the process doesn't."""


@dataclass(slots=True)
class Shield:
    """Work on the catalog that is carried out whatever happens; whether somebody interrupted it."""

    is_interrupted: bool = False


def patiently(open_it: Callable[[], object]) -> None:
    """Tries to open a lake until nothing goes wrong with it."""
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
    """`ports.System` of a process: the world's time of day by a clock of its own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.skew_ms = 0

    def now_ms(self) -> int:
        process = self._process
        if process.hits(Misfortune.CLOCK_JUMP, "clock"):
            self.skew_ms = round((process.world.luck.random() - 0.5) * 10 * _MINUTES_MS)
        return process.world.time_of_day_ms + self.skew_ms

    def new_id(self) -> str:
        return self._process.world.new_id()

    def random(self) -> float:
        return self._process.world.scheduler.chance.random()

    def wait_ms(self, duration_ms: float) -> None:
        self._process.sleep(duration_ms)

    def monotonic_ms(self) -> float:
        return self._process.world.scheduler.now_ms


class Process:
    """One process; its tasks are those of its sessions, and its heartbeat.

    Attributes:
        number: in the order of starting.
        is_dead: it died, and nothing that it asks for is done any more.
        shields: of the tasks that work on the catalog.
        is_recovering: it brings the lake's catalog and logs together again.
        is_in_database: it is within a transaction of the database, where nobody else has a turn.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.is_dead = False
        self.is_in_database = False
        self.shields: dict[Task, Shield] = {}
        self.is_recovering = False
        self.system = ProcessSystem(self)
        if self.hits(Misfortune.CLOCK_WRONG, "clock"):
            self.system.skew_ms = round((world.luck.random() - 0.5) * 10 * _MINUTES_MS)
        self.engine: Engine | None = None

    def __repr__(self) -> str:
        return f"p{self.number}"

    def open(self) -> Engine:
        """Opens the lake, or where there is none an engine for places alone."""
        world = self.world
        catalog: AnyCatalog = NoCatalog()
        warehouse = None
        if world.shape.has_catalog:
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
            spark_settings={_RETENTION_CHECK: "false"},
        )
        engine._lock = THREADS.RLock()  # type: ignore[assignment,no-untyped-call]
        if world.shape.has_catalog:
            session = RowSession(engine)
            open_lake(session)
            session.close()
        self.engine = engine
        return engine

    def session(self, level: Level | None = None) -> RowSession:
        """A new session."""
        assert self.engine is not None
        return RowSession(self.engine, level=level)

    def step(self, kind: str, where: str) -> None:
        """A request leaves, or its reply arrives: others go on meanwhile, and things go wrong."""
        world = self.world
        if self.is_dead:
            raise Killed
        assert not self.is_in_database, f"{kind} {where} within a transaction of the database"
        self.note(kind, where)
        scheduler, luck = world.scheduler, world.luck
        if scheduler.current is None:
            return
        if self.hits(Misfortune.SLOW, kind):
            scheduler.sleep(luck.random() * _SLOW_MS)
        elif scheduler.chance.random() < 0.3:
            scheduler.sleep(scheduler.chance.random() * _LATENCY_MS)
        else:
            scheduler.pause()
        if self.hits(Misfortune.STALL, kind):
            self.note("stands still")
            scheduler.stall(self, luck.random() * _STALL_MS)
            scheduler.pause()
        if self.hits(Misfortune.CLOCK_STEP, kind):
            world.set_clock((luck.random() - 0.5) * 10)
        weight = _AT_COMMITS if kind in _COMMITS else 1.0
        if self.hits(Misfortune.CRASH, kind, weight):
            self.die(kind)
        if world.storage.is_disk and self.hits(Misfortune.POWER_LOSS, kind):
            world.lose_power()
            raise Killed
        if world.disasters is not None:
            world.disasters.befall(self, kind)
        self._interrupt(scheduler.current, kind, weight)

    def stand_still_while_cleaned(self, root: str) -> None:
        """Stands still for minutes, at whose end another engine cleans up the table's log."""
        world = self.world
        self.note("stands still")
        world.scheduler.stall(self, (1 + world.luck.random()) * _STALL_MS)
        world.scheduler.pause()
        clean_up_log(world, root)

    def _interrupt(self, task: Task, kind: str, weight: float) -> None:
        if task.is_daemon:
            return
        shield = self.shields.get(task)
        if shield is None:
            if self.hits(Misfortune.INTERRUPT, kind, weight):
                self.note("interrupted")
                raise Interrupted
        elif not shield.is_interrupted and self.hits(Misfortune.INTERRUPT_LATE, kind, weight):
            self.note("interrupted, as soon as the catalog is done")
            shield.is_interrupted = True

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody interrupted the work on the catalog of the task that has the turn."""
        task = THREADS.task()
        return task in self.shields and self.shields[task].is_interrupted

    def run_shielded(self, work: Callable[[], Value]) -> Value:
        """What the work gives; an interrupt that arrives meanwhile is raised at its end."""
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
        """Waits."""
        if self.is_dead:
            raise Killed
        self.world.scheduler.sleep(duration_ms)

    def hits(self, kind: Misfortune, where: str, weight: float = 1.0) -> bool:
        """Whether something goes wrong."""
        world = self.world
        if self.is_dead or kind not in world.luck.heeded:
            return False
        return world.luck.strikes(kind, f"{self} {where}", weight, world.step)

    def note(self, *what: object) -> None:
        """Adds a line to the trace."""
        self.world.note(self, *what)

    def die(self, why: str) -> None:
        """The process is gone, with all that it knew."""
        self.note("dies", why)
        self.world.kill(self)
        raise Killed

    def _database(self, _url: object, _system: object, **given: float) -> SimulatedDatabase:
        return SimulatedDatabase(self, **given)
