"""Recording a run for a replay: every line of its trace, and the tables' versions after it.

Reads the world between its steps and changes nothing in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.database import shared_database
from tests.simulation.faults import FaultKind
from tests.simulation.process import Process
from tests.simulation.scheduler import Task
from tests.simulation.stores import ROOT
from tests.simulation.world import World

OUTSIDE = "outside"
_CLIENT = re.compile(r"p\d+ (c\d+)")
_COMMIT = re.compile(r"\d{20}\.json")
_TABLES = """SELECT name, location, head FROM txlake_tables
WHERE dropped_sequence IS NULL AND branch = 0"""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's versions at one step.

    Attributes:
        head: the newest version by the lake's catalog; None for a table that the catalog doesn't
            know,
            and without a lake.
        logged: the newest version in the log; None for an empty log.
    """

    table: str
    head: int | None
    logged: int | None

    @property
    def version(self) -> int | None:
        """The version that a reader gets at this step."""
        return self.logged if self.head is None else self.head


@dataclass(slots=True)
class ObservedLine:
    """A line of the trace with its time, the lane that wrote it, and the tables after it.

    `is_after`: the clients have ended, and no more faults occur.
    """

    time_ms: float
    lane: str
    what: tuple[object, ...]
    tables: tuple[TableStatus, ...]
    is_after: bool


@dataclass(slots=True)
class RunRecorder:
    """A `RunObserver` that records every line of the trace.

    Attributes:
        lines: the lines so far.
        start: the tables before the first line.
    """

    lines: list[ObservedLine] = field(default_factory=list)
    start: tuple[TableStatus, ...] = ()
    _world: World | None = None
    _places: Mapping[int, set[FaultKind]] = field(default_factory=dict)

    def on_start(self, world: World) -> None:
        self._world = world
        self._places = world.injector.record_possible(world.config.possible)
        self.start = _table_statuses(world)

    def on_line(self, task: Task | None, what: tuple[object, ...]) -> None:
        world = self._world
        assert world is not None
        tables = _table_statuses(world)
        newest = self.lines[-1].tables if self.lines else self.start
        is_after = world.injector.is_paused
        self.lines.append(
            ObservedLine(
                world.scheduler.now_ms,
                _lane(task),
                what,
                newest if tables == newest else tables,
                is_after,
            )
        )

    def possible(self, step: int) -> tuple[FaultKind, ...]:
        """Return the kinds of faults that could strike in a step, in the order of their
        definition.
        """
        statuses = self._places.get(step, set())
        return tuple(kind for kind in FaultKind if kind in statuses)


def _lane(task: Task | None) -> str:
    """Return the process and client of a task; `outside` for a task that belongs to none."""
    if task is None or not isinstance(task.group, Process):
        return OUTSIDE
    statuses = _CLIENT.fullmatch(task.name)
    return str(task.group) if statuses is None else f"{task.group} {statuses[1]}"


def lane_order(lane: str) -> tuple[bool, int, str]:
    """Return the sort key of a lane: processes by their start, each one's own lane before its
    clients'.
    """
    if lane == OUTSIDE:
        return True, 0, ""
    process, _, client = lane.partition(" ")
    return False, int(process[1:]), client


def _table_statuses(world: World) -> tuple[TableStatus, ...]:
    """Return the tables' versions, sorted by name."""
    if not world.config.has_catalog:
        return tuple(
            TableStatus(name, None, _newest_in_log(world, root))
            for name, (_, root) in world.tables.items()
        )
    statuses = {
        name: TableStatus(name, head, _newest_in_log(world, location[len(ROOT) + 1 :]))
        for name, location, head in shared_database().raw.execute(_TABLES).fetchall()
    }
    for name, (_, root) in world.tables.items():
        if name not in statuses:
            statuses[name] = TableStatus(name, None, _newest_in_log(world, root))
    return tuple(statuses[name] for name in sorted(statuses))


def _newest_in_log(world: World, root: str) -> int | None:
    """Return the newest version in a table's log, read from the store; None for an empty log."""
    folder = f"{root}/_delta_log/"
    keys = world.storage.keys
    place = bisect_left(keys, f"{folder}1") - 1
    while place >= 0 and keys[place].startswith(folder):
        name = keys[place].removeprefix(folder)
        if _COMMIT.fullmatch(name):
            return int(name[:20])
        place -= 1
    return None
