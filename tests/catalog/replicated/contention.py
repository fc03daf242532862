"""Processes that write one catalog's log, in virtual time: how often each commits, and how long it
waits.

Each process runs the real database of a catalog, with a replica of its own, as tasks of one
scheduler. A request to the store takes 30 ms, 30 % more or less, half of it before and half after
its effect. Everything else takes no time, so that a run depends on its seed alone.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import simulated_threads
from txlake.catalog import shielding
from txlake.catalog.replicated import log as log_module
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.schema import upgrade
from txlake.ports import PutOutcome, Store, StoredObject

LATENCY_MS = 30.0
JITTER = 0.3
_SLOWNESS = 5


class VirtualSystem:
    """`ports.System` on the scheduler's clock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        return int(self._scheduler.now_ms)

    def new_id(self) -> str:
        digits = f"{self._scheduler.rng.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def random(self) -> float:
        return self._scheduler.rng.random()

    def wait_ms(self, duration_ms: float) -> None:
        if duration_ms > 0:
            self._scheduler.sleep(duration_ms)

    def monotonic_ms(self) -> float:
        return self._scheduler.now_ms


class DistantStore:
    """`ports.Store` of one process on shared objects, to which a request takes `latency_ms`."""

    url = "memory://distant"
    excludes_late_writes = False

    def __init__(
        self, objects: dict[str, bytes], scheduler: Scheduler, latency_ms: float, slow_part: float
    ) -> None:
        self._objects = objects
        self._scheduler = scheduler
        self._latency_ms = latency_ms
        self._slow_part = slow_part
        self.requests: Counter[str] = Counter()

    def get(self, path: str) -> bytes:
        data = self._request("get", partial(self._objects.get, path))
        if data is None:
            raise FileNotFoundError(path)
        return data

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        def put() -> PutOutcome:
            if path in self._objects:
                return PutOutcome.EXISTS
            self._objects[path] = data
            return PutOutcome.CREATED

        return self._request("put", put)

    def put(self, path: str, data: bytes) -> None:
        self._request("put", partial(self._objects.__setitem__, path, data))

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        def found() -> list[str]:
            after = start_after or ""
            return sorted(
                path
                for path in self._objects
                if path.startswith(f"{prefix}/")
                and path > after
                and (before is None or path < before)
            )

        for path in self._request("list", found):
            yield StoredObject(path, len(self._objects[path]), 0)

    def delete(self, paths: Iterable[str]) -> None:
        def remove() -> None:
            for path in paths:
                self._objects.pop(path, None)

        self._request("delete", remove)

    def ensure_safe(self) -> None:
        pass

    def _request(self, kind: str, act: Callable[[], Any]) -> Any:
        """Let half the latency pass, act, and let the other half pass."""
        self.requests[kind] += 1
        chance = self._scheduler.rng
        half_ms = self._latency_ms * (1 + JITTER * (2 * chance.random() - 1)) / 2
        for is_after in (False, True):
            is_slow = chance.random() < self._slow_part
            self._scheduler.sleep(_SLOWNESS * half_ms if is_slow else half_ms)
            if not is_after:
                result = act()
        return result


class _Pool:
    """A `ThreadPoolExecutor` with a task for each item of `map`."""

    scheduler: Scheduler

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        scheduler = self.scheduler
        current = scheduler.current
        results: list[list[Any]] = []

        def run(item: Any, result: list[Any]) -> None:
            result.append(work(item))

        for item in items:
            results.append([])
            scheduler.start(
                "fetch", partial(run, item, results[-1]), group=current and current.group,
                is_daemon=True,
            )  # fmt: skip
        scheduler.wait_until(lambda: all(results))
        return iter([result[0] for result in results])

    def shutdown(self, **_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of one process: its number, and when it was requested and done."""

    process: int
    begun_ms: float
    ended_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What the commits of some processes amount to.

    Attributes:
        shares: each process's commits, as a part of the average.
        waits: how many round trips of 30 ms each commit took, sorted.
        throughput: commits in a round trip.
    """

    shares: Sequence[float]
    waits: Sequence[float]
    throughput: float

    def wait(self, part: float) -> float:
        """Return the round trips that this part of the commits didn't exceed."""
        return self.waits[min(len(self.waits) - 1, int(part * len(self.waits)))]


class Contention:
    """Processes that write one log.

    Attributes:
        stores: the store as each process sees it, with counted requests.
    """

    def __init__(self, seed: int) -> None:
        self._scheduler = Scheduler(random.Random(seed), step_ms=0.0)
        self._scheduler.turns_max = 1 << 40
        self._objects: dict[str, bytes] = {}
        self._commits: list[Commit] = []
        self._begun_ms = self._scheduler.now_ms
        self._is_made = False
        self.stores: list[DistantStore] = []

    def add(
        self,
        *,
        begin_ms: float = 0.0,
        end_ms: float = math.inf,
        latency_ms: float = LATENCY_MS,
        slow_part: float = 0.0,
        think_ms: float = 0.0,
        threads: int = 1,
        is_greedy: bool = False,
        is_killed: bool = False,
    ) -> None:
        """Add a process whose threads commit again and again between two times.

        Args:
            latency_ms: how long its requests take.
            slow_part: the part of the halves of requests that take five times as long.
            think_ms: how long a thread waits between two commits, on average.
            is_greedy: it takes no turns.
            is_killed: it stops dead at its end, else after its last commit.
        """
        number, scheduler = len(self.stores), self._scheduler
        store = DistantStore(self._objects, scheduler, latency_ms, slow_part)
        self.stores.append(store)
        begin_ms, end_ms = self._begun_ms + begin_ms, self._begun_ms + end_ms
        opened: list[ReplicatedDatabase] = []

        def open_database() -> None:
            scheduler.sleep(begin_ms - scheduler.now_ms)
            scheduler.wait_until(lambda: number == 0 or self._is_made)
            database = ReplicatedDatabase(cast(Store, store), VirtualSystem(scheduler))
            if number == 0:
                database.write(lambda connection: upgrade(database, connection))
                self._is_made = True
            if is_greedy:
                database._turns.wait = lambda: None  # type: ignore[method-assign]
            opened.append(database)

        def run(thread: int) -> None:
            scheduler.wait_until(lambda: bool(opened))
            for count in itertools.count():
                if think_ms:
                    scheduler.sleep(scheduler.rng.expovariate(1 / think_ms))
                begun_ms = scheduler.now_ms
                if begun_ms >= end_ms:
                    return
                opened[0].write(partial(_insert, f"{number} {thread} {count}"))
                self._commits.append(Commit(number, begun_ms, scheduler.now_ms))

        def kill() -> None:
            scheduler.sleep(end_ms - scheduler.now_ms)
            scheduler.kill(store)

        scheduler.start(f"{number}", open_database, group=store, is_daemon=True)
        for thread in range(threads):
            scheduler.start(f"{number}", partial(run, thread), group=store, is_daemon=True)
        if is_killed:
            scheduler.start("killer", kill, is_daemon=True)

    def run(self, duration_ms: float) -> None:
        """Run the processes that long."""
        with _replaced(self._scheduler):
            self._scheduler.start("end", partial(self._scheduler.sleep, duration_ms))
            self._scheduler.run()
            for store in self.stores:
                self._scheduler.kill(store)

    def figures(
        self, from_ms: float, to_ms: float, processes: Collection[int] | None = None
    ) -> Figures:
        """Return the figures of the commits that ended between two times."""
        if processes is None:
            processes = range(len(self.stores))
        commits = [
            commit
            for commit in self._commits
            if commit.process in processes and from_ms <= commit.ended_ms - self._begun_ms < to_ms
        ]
        counts = Counter(commit.process for commit in commits)
        average = len(commits) / len(processes)
        return Figures(
            shares=[counts[process] / average for process in processes],
            waits=sorted((each.ended_ms - each.begun_ms) / LATENCY_MS for each in commits),
            throughput=len(commits) * LATENCY_MS / (to_ms - from_ms),
        )


def _insert(name: str, connection: sa.Connection) -> None:
    connection.execute(sa.text("INSERT INTO txlake_facts VALUES (:name, '')"), {"name": name})


@contextmanager
def _replaced(scheduler: Scheduler) -> Iterator[None]:
    """Replace threads, and what else has to know of the scheduler, in txlake's modules."""
    with simulated_threads(scheduler), pytest.MonkeyPatch.context() as patched:
        patched.setattr(_Pool, "scheduler", scheduler, raising=False)
        patched.setattr(log_module, "ThreadPoolExecutor", _Pool)
        patched.setattr(shielding, "is_interruptible", lambda: False)
        yield
