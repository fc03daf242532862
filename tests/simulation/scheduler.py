"""Tasks that run one at a time, in an order and on a clock that the seed decides.

Owns time and turns. A task is a greenlet that gives up its turn in `pause`, `sleep` and
`wait_until`
only. Each turn takes a little time; when no task can run, time jumps to the next one that wakes.
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
    """How the next task is chosen; each way finds other interleavings."""

    EVEN = "even"  # any runnable task
    STICKY = "sticky"  # mostly the previous task again
    RANKED = "ranked"  # the runnable task of the lowest rank; ranks change now and then


class NoProgress(AssertionError):
    """No task can run, or the run doesn't end."""


class Killed(BaseException):
    """The task's process died; the task must unwind without doing anything."""


@dataclass(eq=False, slots=True)
class Task:
    """One thread of one process.

    Attributes:
        number: counts the started tasks, from 1.
        is_daemon: `Scheduler.run` doesn't wait for its end.
        group: the process with which it is killed and stalled.
        wake_ms: the time at which it wakes in any case; None for never.
        is_ready: the condition that it waits for; None if it waits for none.
        step: the newest line of the trace that it wrote; at first its starter's.
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
    """The turns of one run. `now_ms` is true time; the clocks of processes may differ from it."""

    def __init__(self, rng: random.Random, *, step_ms: float = _STEP_MS) -> None:
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._hub: greenlet | None = None
        self._step_ms = step_ms
        self.turns_max = _TURNS_MAX
        self.reset(rng, 1_800_000_000_000.0)

    def reset(self, rng: random.Random, now_ms: float) -> None:
        """Begin again at a time, without tasks, with these random numbers."""
        assert not self._tasks, "a task is left"
        self.rng = rng
        self.now_ms = now_ms
        self.order = rng.choice(list(Order))
        self.turns = 0
        self._started = 0
        self._last: Task | None = None
        self._stalled: dict[object, float] = {}

    @property
    def current(self) -> Task | None:
        """The task that has the turn; None outside of `run`."""
        return self._current

    def start(
        self, name: str, run: Callable[[], None], *, group: object = None, is_daemon: bool = False
    ) -> Task:
        """Start a task, which waits for its first turn."""
        self._started += 1
        task = Task(self._started, name, group, is_daemon, run, rank=self.rng.random())
        task.greenlet = greenlet(lambda: self._run_task(task), parent=self._hub or getcurrent())
        if self._current is not None:
            task.step = self._current.step
        self._tasks.append(task)
        return task

    def run(self) -> None:
        """Run until all tasks but the daemons have ended; raise the first error of a task.

        The daemons continue with the next call.
        """
        assert self._hub is None, "one run at a time"
        self._hub = getcurrent()
        try:
            while any(not task.is_daemon for task in self._tasks):
                self._turn()
        finally:
            self._hub = None

    def pause(self) -> None:
        """Give up the turn; outside of a task, do nothing."""
        task = self._current
        if task is not None:
            task.wake_ms = self.now_ms
            self._switch(task)

    def sleep(self, duration_ms: float) -> None:
        """Wait; outside of a task, advance the time."""
        task = self._current
        if task is None:
            self.now_ms += max(0.0, duration_ms)
            return
        task.wake_ms = self.now_ms + max(0.0, duration_ms)
        self._switch(task)

    def wait_until(self, is_ready: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        """Wait until a condition holds; return False after the timeout."""
        if is_ready():
            return True
        if timeout_ms is not None and timeout_ms <= 0:
            return False
        task = self._current
        if task is None:
            raise NoProgress("waits for what no task will do")
        task.is_ready = is_ready
        task.wake_ms = None if timeout_ms is None else self.now_ms + timeout_ms
        try:
            self._switch(task)
        finally:
            task.is_ready = None
        return is_ready()

    def stall(self, group: object, duration_ms: float) -> None:
        """Give no turn to a group's tasks for a time."""
        self._stalled[group] = max(self._stalled.get(group, 0.0), self.now_ms + duration_ms)

    def kill(self, group: object) -> None:
        """End a group's tasks where they stand.

        If the current task belongs to the group, its next request raises Killed.
        """
        tasks = [task for task in self._tasks if task.group is group]
        for task in tasks:
            task.is_over = True
        for task in tasks:
            if task is not self._current:
                self._tasks.remove(task)
                self._unwind(task)

    def _unwind(self, task: Task) -> None:
        if not task.greenlet:
            return
        previous, self._current = self._current, task
        task.greenlet.parent = getcurrent()
        try:
            task.greenlet.throw(Killed)
        finally:
            self._current = previous
        assert task.greenlet.dead, f"{task.name} goes on after its death"

    def _run_task(self, task: Task) -> None:
        try:
            task.run()
        except Killed:
            pass
        except BaseException as error:
            task.error = error

    def _switch(self, task: Task) -> None:
        if task.is_over:  # a dead process's task must not wait while it unwinds
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
            raise NoProgress(f"{self.turns_max} turns and no end of {names}")
        self.now_ms += self.rng.random() * self._step_ms
        able = self._runnable()
        if not able:
            self._advance()
            able = self._runnable()
        task = self._choose(able)
        self._current = task
        task.greenlet.switch()
        self._current = None
        if task.greenlet.dead:
            if task in self._tasks:
                self._tasks.remove(task)
            task.is_over = True
            if task.error is not None:
                raise task.error

    def _runnable(self) -> list[Task]:
        now = self.now_ms
        return [task for task in self._tasks if self._is_runnable(task, now)]

    def _is_runnable(self, task: Task, now_ms: float) -> bool:
        if self._stalled and self._stalled.get(task.group, 0.0) > now_ms:
            return False
        if task.wake_ms is not None and task.wake_ms <= now_ms:
            return True
        return task.is_ready is not None and task.is_ready()

    def _advance(self) -> None:
        """Advance the time to the next one at which a task can run."""
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
            raise NoProgress(f"nobody can go on: {names}")
        self.now_ms = max(self.now_ms, min(times))

    def _choose(self, able: list[Task]) -> Task:
        if len(able) == 1:
            return able[0]
        rng = self.rng
        match self.order:
            case Order.EVEN:
                return rng.choice(able)
            case Order.STICKY:
                last = self._last
                if last is not None and last in able and rng.random() < 0.85:
                    return last
                self._last = rng.choice(able)
                return self._last
            case Order.RANKED:
                first = min(able, key=lambda task: task.rank)
                if rng.random() < 0.02:
                    first.rank += rng.random()
                return first
