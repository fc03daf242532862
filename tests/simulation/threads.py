"""Replacements for Python's `threading` while txlake runs in a simulation.

Locks, conditions, events and threads wait by the scheduler: the seed decides who gets a lock, and a
heartbeat is a task like others. Thread pools work in their caller.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any

from tests.simulation.scheduler import Scheduler, Task


class Threads:
    """The names of `threading` that txlake uses, for one run at a time.

    A thread is a task in the process of its starter.
    """

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self.Lock = lambda: _Lock(self)
        self.RLock = lambda: _RLock(self)
        self.Condition = lambda: _Condition(self)
        self.Event = lambda: _Event(self)
        self.Thread = lambda **given: _Thread(self, **given)

    def get_ident(self) -> int:
        """Return the task's number; 0 outside of tasks."""
        task = self.task()
        return 0 if task is None else task.number

    def current_thread(self) -> object:
        """Return the current task; None outside of tasks."""
        return self.task()

    def task(self) -> Task | None:
        """Return the task that has the turn; None outside of tasks."""
        return None if self.scheduler is None else self.scheduler.current

    @property
    def now_ms(self) -> float:
        """True time."""
        return 0.0 if self.scheduler is None else self.scheduler.now_ms

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition holds; return False after the timeout."""
        if self.scheduler is None:
            assert is_ready(), "nobody is there to wait for"
            return True
        return self.scheduler.wait_until(is_ready, None if timeout_s is None else timeout_s * 1000)


class _Lock:
    __slots__ = ("_holder", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._holder: int | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        limit = None if timeout < 0 else timeout
        if not self._threads.wait_until(lambda: self._holder is None, limit if blocking else 0):
            return False
        self._holder = self._threads.get_ident()
        return True

    def release(self) -> None:
        self._holder = None

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _RLock:
    __slots__ = ("_depth", "_holder", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._holder: int | None = None
        self._depth = 0

    def acquire(self, timeout: float = -1) -> bool:
        me = self._threads.get_ident()
        limit = None if timeout < 0 else timeout
        if not self._threads.wait_until(lambda: self._holder in (None, me), limit):
            return False
        self._holder = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition:
    __slots__ = ("_lock", "_notices", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = _RLock(threads)
        self._notices = 0

    def wait_for(self, is_ready: Callable[[], bool], timeout: float | None = None) -> bool:
        until_ms = None if timeout is None else self._threads.now_ms + timeout * 1000
        while not is_ready():
            notices = self._notices
            left_s = None if until_ms is None else (until_ms - self._threads.now_ms) / 1000
            self._lock.__exit__()
            try:
                is_notified = self._threads.wait_until(partial(self._is_notified, notices), left_s)
            finally:
                self._lock.__enter__()
            if not is_notified:
                return is_ready()
        return True

    def notify_all(self) -> None:
        self._notices += 1

    def _is_notified(self, notices: int) -> bool:
        return self._notices != notices

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


class _Event:
    __slots__ = ("_is_set", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._threads.wait_until(self.is_set, timeout)


class _Thread:
    def __init__(
        self,
        threads: Threads,
        *,
        target: Callable[..., None],
        args: tuple[object, ...] = (),
        name: str = "thread",
        daemon: bool = False,
    ) -> None:
        self._threads = threads
        self._run = lambda: target(*args)
        self._name = name
        self._is_daemon = daemon
        self._task: Task | None = None

    def start(self) -> None:
        scheduler, starter = self._threads.scheduler, self._threads.task()
        assert scheduler is not None
        self._task = scheduler.start(
            self._name,
            self._run,
            group=None if starter is None else starter.group,
            is_daemon=self._is_daemon,
        )

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        assert task is not None
        self._threads.wait_until(lambda: task.is_over, timeout)


class _InlinePool:
    """`ThreadPoolExecutor` without threads: `map` does the work in its caller."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        pass

    def map(self, work: Callable[..., Any], *of: Iterable[Any]) -> Iterator[Any]:
        return iter([work(*one) for one in zip(*of)])

    def shutdown(self, wait: bool = True) -> None:
        pass

    def __enter__(self) -> _InlinePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass


THREADS = Threads()


@lru_cache(maxsize=1)
def _module_attributes(_modules: int) -> list[tuple[Any, str, object, object]]:
    """Return the attributes to replace in txlake's modules: module, name, original, replacement."""
    return [(module, name, vars(module)[name], new) for module, name, new in _find_attributes()]


def _find_attributes() -> Iterator[tuple[Any, str, object]]:
    stand_ins: Mapping[str, tuple[object, object]] = {
        "threading": (threading, THREADS),
        "ThreadPoolExecutor": (None, _InlinePool),
        "progress": (None, lambda _: nullcontext()),
    }
    for name, module in sorted(sys.modules.items()):
        if name.startswith("txlake."):
            for attribute, (real, stand_in) in stand_ins.items():
                value = vars(module).get(attribute)
                if value is None or (real is not None and value is not real):
                    continue
                if attribute == "progress" and not callable(value):
                    continue
                yield module, attribute, stand_in


@contextmanager
def simulated_threads(scheduler: Scheduler) -> Iterator[None]:
    """Replace the locks, threads and pools of txlake's modules by the scheduler's within this
    block.
    """
    attributes = _module_attributes(len(sys.modules))
    for module, name, _, new in attributes:
        setattr(module, name, new)
    THREADS.scheduler = scheduler
    try:
        yield
    finally:
        THREADS.scheduler = None
        for module, name, old, _ in attributes:
            setattr(module, name, old)
