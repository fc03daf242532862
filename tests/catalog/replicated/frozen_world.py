"""Processes of a catalog's log that stop at any request while the others go on, by a seed.

Owns the schedule and the verdict. A process that stops between two requests lets others work for
minutes or days, which write snapshots and delete old entries. The entry that was the first to get
a number is the log's; a later one of that number is a ghost.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

from tests.commit.log_of import Clock, FakeStore
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.replicated import replica
from txlake.catalog.replicated.entries import (
    LOG_FOLDER,
    LogEntry,
    TableChanges,
    decode,
    number_of,
)
from txlake.catalog.replicated.log import CatalogLog, Superseded, new_entry_id
from txlake.catalog.replicated.replica import Position
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import PutOutcome, StoredObject

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
_DEPTH_MAX = 2
_FACTS = "facts"


class Violation(Exception):
    """What no process may see."""


class HostClock(Clock):
    """The world's clock, and a monotonic one that stands still while the host is suspended."""

    def __init__(self, world: Clock) -> None:
        super().__init__()
        self._world = world
        self.suspended_ms = 0

    def now_ms(self) -> int:
        return self._world.now_ms()

    def new_id(self) -> str:
        return self._world.new_id()

    def wait_ms(self, duration_ms: float) -> None:
        self._world.wait_ms(duration_ms)

    def monotonic_ms(self) -> float:
        return float(self._world.now_ms() - self.suspended_ms)


class Pausing(FakeStore):
    """The world's store as one process reaches it: it may stop before and after each request."""

    def __init__(self, world: World, clock: HostClock) -> None:
        super().__init__(world.clock)
        self._world = world
        self._host = clock
        self.files = world.files

    def get(self, path: str) -> bytes:
        with self._world.pausing(self._host):
            return super().get(path)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        with self._world.pausing(self._host):
            return iter(list(super().list(prefix, start_after, before)))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with self._world.pausing(self._host):
            return self._world.put(super().put_if_absent, path, data)

    def delete(self, paths: object) -> None:
        for path in paths:  # type: ignore[attr-defined]
            with self._world.pausing(self._host):
                super().delete([path])


class _Pause:
    def __init__(self, world: World, clock: HostClock) -> None:
        self._world, self._clock = world, clock

    def __enter__(self) -> None:
        self._world.pause(self._clock)

    def __exit__(self, *_: object) -> None:
        self._world.pause(self._clock)


@dataclass
class Process:
    """A process: its log, and whether it is in the middle of something."""

    log: CatalogLog
    is_busy: bool = False


@dataclass
class World:
    """A store, its processes, and what they were told."""

    chance: random.Random
    clock: Clock = field(default_factory=Clock)
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    # By number, the entry that was the first to have it.
    genuine: dict[int, LogEntry] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    late: list[Callable[[], object]] = field(default_factory=list)
    pauses: int = 10
    unsettled: int = 0
    reloads: int = 0
    deleted: int = 0
    _depth: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE {_FACTS} (id TEXT PRIMARY KEY, work TEXT)")
            self._empty = replica.database_bytes(connection)

    def run(self, steps: int) -> None:
        """Run the schedule. Raises Violation."""
        for _ in range(3):
            self.open()
        for _ in range(steps):
            self.step()
        self._depth = _DEPTH_MAX
        for process in self.processes:
            self.read(process)
        self.require_once()

    def close(self) -> None:
        for process in self.processes:
            process.log.close()

    # What happens

    def open(self) -> None:
        clock = HostClock(self.clock)
        log = CatalogLog(Pausing(self, clock), clock, ":memory:", self.clock.new_id(), RETENTION_MS)
        process = Process(log, is_busy=True)
        self.processes.append(process)
        log.load()
        process.is_busy = False

    def step(self) -> None:
        free = [process for process in self.processes if not process.is_busy]
        if not free:
            return
        process = self.chance.choice(free)
        kinds = [self.write, self.read, self.tidy, self.claim, self.replace, self.work_for_long]
        [work] = self.chance.choices(kinds, [8, 6, 2, 1, 1, 2])
        process.is_busy = True
        try:
            work(process)
        finally:
            process.is_busy = False

    def write(self, process: Process) -> None:
        log = process.log
        self._count += 1
        name = f"work {self._count}"
        while True:
            entry_id = new_entry_id(self.clock)
            has_schema = log.position.number > 0
            entry = LogEntry(
                id=entry_id,
                previous=log.position.entry_id,
                writer=log.writer,
                time_ms=self.clock.now_ms(),
                changes=[TableChanges(_FACTS, [], [[entry_id.hex(), name]])],
                database=b"" if has_schema else self._empty,
            )
            try:
                position = log.append(entry)
            except Superseded as superseded:
                log.apply_taken(superseded)
                continue
            except (CommitUnsettled, Unavailable):
                self.unsettled += 1
                return
            replica.apply_entry(log._replica, entry, position)
            log.note_written(position)
            self.told.add(name)
            if self.genuine[position.number].id != position.entry_id:
                raise Violation(f"{name} was told to be entry {position.number}, and is a ghost")
            return

    def read(self, process: Process) -> None:
        expected = self._end()
        process.log.catch_up()
        self._check(process, expected)

    def tidy(self, process: Process) -> None:
        if process.log.position.number:
            process.log.write_snapshot()
            before = len(self.files)
            process.log.delete_surplus()
            self.deleted += max(0, before - len(self.files))

    def claim(self, process: Process) -> None:
        if process.log.position.number:
            with suppress(Unavailable):
                process.log.claim(4)

    def replace(self, process: Process) -> None:
        """Let a process end, and another one begin."""
        if len(self.processes) > 2:
            self.processes.remove(process)
            process.log.close()
            self.open()

    def work_for_long(self, process: Process) -> None:
        """Let a process write for hours, with snapshots and their deletion."""
        for _ in range(self.chance.randint(4, 10)):
            for _ in range(self.chance.randint(1, 2)):
                self.write(process)
            self.tidy(process)
            self.clock.time_ms += self.chance.randint(5, 25) * MINUTE_MS

    def pausing(self, clock: HostClock) -> _Pause:
        return _Pause(self, clock)

    def pause(self, clock: HostClock) -> None:
        """Stop a process: others work meanwhile."""
        self.clock.time_ms += 10
        if self._depth >= _DEPTH_MAX or not self.pauses or self.chance.random() > 0.06:
            return
        self._depth += 1
        self.pauses -= 1
        begun = self.clock.time_ms
        for _ in range(self.chance.randint(1, 4)):
            self.step()
        self.clock.time_ms += self.chance.choice([0, 1, 9, 11, 30, 70, 1_500]) * MINUTE_MS
        if self.chance.random() < 0.3:
            clock.suspended_ms += self.clock.time_ms - begun
        self._depth -= 1

    def put(self, put: Callable[[str, bytes], PutOutcome], path: str, data: bytes) -> PutOutcome:
        if not path.startswith(LOG_FOLDER):
            return put(path, data)

        def create() -> PutOutcome:
            outcome = put(path, data)
            if outcome is PutOutcome.CREATED:
                self.genuine.setdefault(number_of(path) or 0, decode(data, path))
            return outcome

        if self.late and self.chance.random() < 0.2:
            self.late.pop()()
        match self.chance.random():
            case fault if fault < 0.02:
                return PutOutcome.UNKNOWN
            case fault if fault < 0.05:
                create()
                return PutOutcome.UNKNOWN
            case fault if fault < 0.06:
                self.late.append(create)
                raise Unavailable("no reply")
        return create()

    # What has to be true

    def _end(self) -> int:
        """Return the number of the log's newest entry."""
        number = 0
        while number + 1 in self.genuine:
            number += 1
        return number

    def _check(self, process: Process, least: int) -> None:
        """Require that a replica is the log up to its position, and not too old."""
        position: Position = process.log.position
        if position.number < least:
            raise Violation(f"a reader is at entry {position.number}, and {least} was there")
        if position.number and self.genuine[position.number].id != position.entry_id:
            raise Violation(f"a reader is at entry {position.number}, which is a ghost")
        found = set()
        if position.number:
            rows = process.log._replica.execute(f"SELECT work FROM {_FACTS}").fetchall()
            found = {name for (name,) in rows}
        if found != self._works(position.number):
            raise Violation(f"a reader at entry {position.number} has other rows than the log")

    def _works(self, number: int) -> set[str]:
        return {
            str(row[1])
            for each, entry in self.genuine.items()
            for change in entry.changes
            for row in change.rows
            if each <= number
        }

    def require_once(self) -> None:
        """Require that all that was told is in the log, nothing twice, each entry after another."""
        end = self._end()
        names = [
            str(row[1])
            for number in range(1, end + 1)
            for change in self.genuine[number].changes
            for row in change.rows
        ]
        if len(names) != len(set(names)):
            raise Violation("a work is in the log twice")
        if self.told - set(names):
            raise Violation(f"the log lacks {sorted(self.told - set(names))[:3]}")
        for number in range(2, end + 1):
            previous = self.genuine[number].previous
            if previous not in (b"", self.genuine[number - 1].id):
                raise Violation(f"entry {number} doesn't follow the one before")


def run(seed: int, steps: int = 30) -> World:
    """Run one world. Raises Violation, or what a process raises that it must not."""
    world = World(random.Random(seed))
    try:
        world.run(steps)
    except CorruptTable as error:
        raise Violation(str(error)) from error
    finally:
        world.close()
    return world
