"""Somebody who looks at a run: who noted each line of the trace, and how the tables were after it.

Owns what is asked of the world in between, which changes nothing in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.database import disk
from tests.simulation.luck import Misfortune
from tests.simulation.process import Process
from tests.simulation.scheduler import Task
from tests.simulation.stores import ROOT
from tests.simulation.world import World

OUTSIDE = "outside"
_CLIENT = re.compile(r"p\d+ (c\d+)")
_COMMIT = re.compile(r"\d{20}\.json")
_TABLES = "SELECT name, location, head FROM txlake_tables WHERE dropped_sequence IS NULL"


@dataclass(frozen=True, slots=True)
class Standing:
    """A table at some step.

    Attributes:
        head: its newest version by the lake's catalog; None where that doesn't know it, and for a
            table without a lake.
        logged: the newest version in its log; None where there is none.
    """

    table: str
    head: int | None
    logged: int | None

    @property
    def version(self) -> int | None:
        """What a reader who comes now gets."""
        return self.logged if self.head is None else self.head


@dataclass(slots=True)
class Seen:
    """A line, as it was noted."""

    time_ms: float
    lane: str
    what: tuple[object, ...]
    tables: tuple[Standing, ...]
    is_after: bool


@dataclass(slots=True)
class Watcher:
    """`Watch`: notes what each line was, and how the tables were after it."""

    seen: list[Seen] = field(default_factory=list)
    start: tuple[Standing, ...] = ()
    _world: World | None = None
    _places: Mapping[int, set[Misfortune]] = field(default_factory=dict)

    def begun(self, world: World) -> None:
        self._world = world
        self._places = world.luck.note_places(world.shape.possible)
        self.start = _standings(world)

    def noted(self, task: Task | None, what: tuple[object, ...]) -> None:
        world = self._world
        assert world is not None
        tables = _standings(world)
        newest = self.seen[-1].tables if self.seen else self.start
        is_after = world.luck.is_quiet
        self.seen.append(
            Seen(
                world.scheduler.now_ms,
                _lane(task),
                what,
                newest if tables == newest else tables,
                is_after,
            )
        )

    def possible(self, step: int) -> tuple[Misfortune, ...]:
        """What could strike after a step, in the order in which they are defined."""
        found = self._places.get(step, set())
        return tuple(kind for kind in Misfortune if kind in found)


def _lane(task: Task | None) -> str:
    if task is None or not isinstance(task.group, Process):
        return OUTSIDE
    found = _CLIENT.fullmatch(task.name)
    return str(task.group) if found is None else f"{task.group} {found[1]}"


def place_of(lane: str) -> tuple[bool, int, str]:
    """Processes in the order of their starts, each one's own work before its clients'."""
    if lane == OUTSIDE:
        return True, 0, ""
    process, _, client = lane.partition(" ")
    return False, int(process[1:]), client


def _standings(world: World) -> tuple[Standing, ...]:
    if not world.shape.has_catalog:
        return tuple(
            Standing(name, None, _logged(world, root)) for name, (_, root) in world.tables.items()
        )
    found = {
        name: Standing(name, head, _logged(world, location[len(ROOT) + 1 :]))
        for name, location, head in disk().raw.execute(_TABLES).fetchall()
    }
    for name, (_, root) in world.tables.items():
        if name not in found:
            found[name] = Standing(name, None, _logged(world, root))
    return tuple(found[name] for name in sorted(found))


def _logged(world: World, root: str) -> int | None:
    """The newest version in a log."""
    folder = f"{root}/_delta_log/"
    keys = world.storage.keys
    place = bisect_left(keys, f"{folder}1") - 1
    while place >= 0 and keys[place].startswith(folder):
        name = keys[place].removeprefix(folder)
        if _COMMIT.fullmatch(name):
            return int(name[:20])
        place -= 1
    return None
