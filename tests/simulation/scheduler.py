"""Tasks of which exactly one runs at a time, in an order and on a clock that the seed decides.

Owns time, and whose turn it is. A task is a greenlet; it gives its turn up in `pause`, `sleep` and
`wait_until` alone. Time passes a little with every turn, and jumps to the next sleeper when nobody
can go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from greenlet import getcurrent, greenlet

_STEP_MS = 3.0
_TURNS_MAX = 60_000


class Order(Enum):
    """How the next task is chosen: each finds other interleavings."""

    EVEN = "even"  # any of those who can go on
    STICKY = "sticky"  # mostly the same again
    RANKED = "ranked"  # the first by a rank, which changes now and then


class Stuck(AssertionError):
    """Nobody can go on, or nobody comes to an end."""


class Killed(BaseException):
    """The task's process died: it does nothing any more."""


@dataclass(eq=False, slots=True)
class Task:
    """One thread of one process.

    Attributes:
        number: in the order of starting.
        is_daemon: nobody waits for its end.
        group: what it is killed and stalled with.
        wake_ms: when it goes on though nothing happened; None for never.
        is_ready: asked while it waits; None when it doesn't.
        step: the newest line of the trace that it wrote, or of who started it before that.
    """

    number: int
    name: str
    group: object
    is_daemon: bool
    run: Callable[[], None]
    greenlet: greenlet = field(init=False)
    wake_ms: float | None = 0.0
    is_ready: Callable[[], bool] | None = None
    rank: float = 0.0
    error: BaseException | None = None
    is_over: bool = False
    step: int = 0


class Scheduler:
    """The turns of one run. `now_ms` is true time, which no clock has to agree with."""

    def __init__(self, chance: random.Random) -> None:
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._hub: greenlet | None = None
        self.turns_max = _TURNS_MAX
        self.start_over(chance, 1_800_000_000_000.0)

    def start_over(self, chance: random.Random, now_ms: float) -> None:
        """As new, at some time."""
        assert not self._tasks, "somebody is left"
        self.chance = chance
        self.now_ms = now_ms
        self.order = chance.choice(list(Order))
        self.turns = 0
        self._started = 0
        self._last: Task | None = None
        self._stalled: dict[object, float] = {}

    @property
    def current(self) -> Task | None:
        """Who has the turn; None outside of `run`."""
        return self._current

    def start(
        self, name: str, run: Callable[[], None], *, group: object = None, is_daemon: bool = False
    ) -> Task:
        """A new task, which waits for its first turn."""
        self._started += 1
        task = Task(self._started, name, group, is_daemon, run, rank=self.chance.random())
        task.greenlet = greenlet(lambda: self._carried_out(task), parent=self._hub or getcurrent())
        if self._current is not None:
            task.step = self._current.step
        self._tasks.append(task)
        return task

    def run(self) -> None:
        """Until every task that isn't a daemon has ended. Raises what the first of them raised.

        The daemons go on when it is called again.
        """
        assert self._hub is None, "one run at a time"
        self._hub = getcurrent()
        try:
            while any(not task.is_daemon for task in self._tasks):
                self._turn()
        finally:
            self._hub = None

    def pause(self) -> None:
        """Lets others go on; nothing outside of a task."""
        task = self._current
        if task is not None:
            task.wake_ms = self.now_ms
            self._switch(task)

    def sleep(self, duration_ms: float) -> None:
        """Waits; outside of a task time just passes."""
        task = self._current
        if task is None:
            self.now_ms += max(0.0, duration_ms)
            return
        task.wake_ms = self.now_ms + max(0.0, duration_ms)
        self._switch(task)

    def wait_until(self, is_ready: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        """Whether it is so; False when the time is over before."""
        if is_ready():
            return True
        if timeout_ms is not None and timeout_ms <= 0:
            return False
        task = self._current
        if task is None:
            raise Stuck("waits for what no task will do")
        task.is_ready = is_ready
        task.wake_ms = None if timeout_ms is None else self.now_ms + timeout_ms
        try:
            self._switch(task)
        finally:
            task.is_ready = None
        return is_ready()

    def stall(self, group: object, duration_ms: float) -> None:
        """None of the group's tasks has a turn for so long."""
        self._stalled[group] = max(self._stalled.get(group, 0.0), self.now_ms + duration_ms)

    def kill(self, group: object) -> None:
        """Ends the group's tasks where they stand.

        The one that has the turn, when it is of them, ends with the next thing that it asks for.
        """
        of_it = [task for task in self._tasks if task.group is group]
        for task in of_it:
            task.is_over = True
        for task in of_it:
            if task is not self._current:
                self._tasks.remove(task)
                self._unwind(task)

    def _unwind(self, task: Task) -> None:
        if not task.greenlet:
            return
        was, self._current = self._current, task
        task.greenlet.parent = getcurrent()
        try:
            task.greenlet.throw(Killed)
        finally:
            self._current = was
        assert task.greenlet.dead, f"{task.name} goes on after its death"

    def _carried_out(self, task: Task) -> None:
        try:
            task.run()
        except Killed:
            pass
        except BaseException as error:
            task.error = error

    def _switch(self, task: Task) -> None:
        if task.is_over:  # it unwinds: nobody waits for a dead process
            raise Killed
        hub = self._hub
        assert hub is not None
        hub.switch()
        if task.is_over:
            raise Killed

    def _turn(self) -> None:
        self.turns += 1
        if self.turns > self.turns_max:
            names = [task.name for task in self._tasks]
            raise Stuck(f"{self.turns_max} turns and no end of {names}")
        self.now_ms += self.chance.random() * _STEP_MS
        able = self._able()
        if not able:
            self._advance()
            able = self._able()
        task = self._chosen(able)
        self._current = task
        task.greenlet.switch()
        self._current = None
        if task.greenlet.dead:
            if task in self._tasks:
                self._tasks.remove(task)
            task.is_over = True
            if task.error is not None:
                raise task.error

    def _able(self) -> list[Task]:
        now = self.now_ms
        return [task for task in self._tasks if self._is_able(task, now)]

    def _is_able(self, task: Task, now_ms: float) -> bool:
        if self._stalled and self._stalled.get(task.group, 0.0) > now_ms:
            return False
        if task.wake_ms is not None and task.wake_ms <= now_ms:
            return True
        return task.is_ready is not None and task.is_ready()

    def _advance(self) -> None:
        """To the next time at which somebody can go on."""
        times = []
        for task in self._tasks:
            until = self._stalled.get(task.group, 0.0)
            is_ready = task.is_ready is not None and task.is_ready()
            if is_ready:
                times.append(until)
            elif task.wake_ms is not None:
                times.append(max(task.wake_ms, until))
        if not times:
            names = [task.name for task in self._tasks]
            raise Stuck(f"nobody can go on: {names}")
        self.now_ms = max(self.now_ms, min(times))

    def _chosen(self, able: list[Task]) -> Task:
        if len(able) == 1:
            return able[0]
        chance = self.chance
        match self.order:
            case Order.EVEN:
                return chance.choice(able)
            case Order.STICKY:
                last = self._last
                if last is not None and last in able and chance.random() < 0.85:
                    return last
                self._last = chance.choice(able)
                return self._last
            case Order.RANKED:
                first = min(able, key=lambda task: task.rank)
                if chance.random() < 0.02:
                    first.rank += chance.random()
                return first
