"""A simulated machine: processes, store and clock under one seed, so that a run can be replayed.

Processes are threads of which exactly one runs at a time; every request to the store and every wait
is a place where another may go on. The store loses replies before and after the effect, delivers
requests late, refuses for a while, and processes die between any two steps.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from txlake.errors import Unavailable
from txlake.ports import PutOutcome, Store, StoredObject


class Crashed(BaseException):
    """The process died here."""


class Scheduler:
    """Runs processes one step at a time, in an order that the seed alone decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._turns: dict[int, threading.Event] = {}
        self._back = threading.Event()
        self._local = threading.local()
        self._failures: list[BaseException] = []

    def run(self, processes: Sequence[Callable[[], None]]) -> None:
        """Runs all processes to their ends. Raises the first error that one ended with."""
        alive: list[int] = []
        threads = []
        for number, process in enumerate(processes):
            self._turns[number] = threading.Event()
            thread = threading.Thread(target=self._process, args=(number, process, alive))
            alive.append(number)
            threads.append(thread)
            thread.start()
        while alive:
            self._back.clear()
            self._turns[self.chance.choice(sorted(alive))].set()
            self._back.wait()
        for thread in threads:
            thread.join()
        self._turns.clear()
        if self._failures:
            raise self._failures[0]

    def _process(self, number: int, process: Callable[[], None], alive: list[int]) -> None:
        self._local.number = number
        self._turns[number].wait()
        self._turns[number].clear()
        try:
            process()
        except Crashed:
            pass
        except BaseException as error:
            self._failures.append(error)
        finally:
            alive.remove(number)
            self._back.set()

    def pause(self) -> None:
        """Lets another process go on; nothing when called from outside of one."""
        number = getattr(self._local, "number", None)
        if number is None or number not in self._turns:
            return
        self._back.set()
        self._turns[number].wait()
        self._turns[number].clear()

    @property
    def in_process(self) -> bool:
        """Whether the caller is one of the processes, and not the test itself."""
        return getattr(self._local, "number", None) in self._turns


class SimulatedSystem:
    """`ports.System` whose time moves by waiting, and whose ids and chance come from the seed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._time_ms = 1_800_000_000_000
        self._ids = 0

    def now_ms(self) -> int:
        return self._time_ms

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-4000-8000-{self._ids:012d}"

    def random(self) -> float:
        return self._scheduler.chance.random()

    def wait_ms(self, duration_ms: float) -> None:
        self._time_ms += int(duration_ms)
        self._scheduler.pause()

    def monotonic_ms(self) -> float:
        return float(self._time_ms)

    def tick(self) -> None:
        """A millisecond goes by."""
        self._time_ms += 1


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How likely each misfortune is, a request."""

    lost_before: float = 0.0  # the put never arrives, and no reply does
    lost_after: float = 0.0  # the put is done, and no reply arrives
    late: float = 0.0  # the put arrives later, and no reply does
    unavailable: float = 0.0  # the store refuses for now
    crash: float = 0.0  # the process dies


class SimulatedStore:
    """`ports.Store` in memory; what it does wrong is decided by the seed."""

    def __init__(
        self, scheduler: Scheduler, system: SimulatedSystem, faults: Faults | None = None
    ) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self._scheduler = scheduler
        self._system = system
        self._faults = faults or Faults()
        self._late: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return "memory://simulated"

    @property
    def is_prompt(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        self._request(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        return self.get(path)[offset : offset + length]

    def head(self, path: str) -> StoredObject | None:
        self._request(path)
        return self._object(path) if path in self.files else None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        self._request(prefix)
        folder = f"{prefix}/" if prefix else ""
        paths = [p for p in sorted(self.files) if p.startswith(folder) and p > (start_after or "")]
        return iter([self._object(path) for path in paths])

    def put(self, path: str, data: bytes) -> None:
        self._request(path)
        self.files[path] = (data, self._system.now_ms())

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._request(path)
        if path.endswith(".json") and self._scheduler.in_process:
            if self._happens(self._faults.lost_before):
                return PutOutcome.UNKNOWN
            if self._happens(self._faults.late):
                self._late.append((path, data))
                return PutOutcome.UNKNOWN
        outcome = self._create(path, data)
        if path.endswith(".json") and self._scheduler.in_process:
            if self._happens(self._faults.crash):
                raise Crashed
            if self._happens(self._faults.lost_after):
                return PutOutcome.UNKNOWN
        self._scheduler.pause()
        return outcome

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._request(path)
            self.files.pop(path, None)

    def sweep(self, prefix: str, before_ms: int) -> None:
        self._request(prefix)

    def ensure_safe(self) -> None:
        self._request("")

    def at(self, path: str) -> Store:
        raise NotImplementedError

    def deliver(self) -> None:
        """All late requests arrive."""
        for path, data in self._late:
            self._create(path, data)
        self._late.clear()

    def _create(self, path: str, data: bytes) -> PutOutcome:
        if path in self.files:
            return PutOutcome.EXISTS
        self._system.tick()
        self.files[path] = (data, self._system.now_ms())
        return PutOutcome.CREATED

    def _object(self, path: str) -> StoredObject:
        data, time_ms = self.files[path]
        return StoredObject(path, len(data), time_ms)

    def _request(self, path: str) -> None:
        if not self._scheduler.in_process:
            return
        self._scheduler.pause()
        if self._late and self._happens(0.3):
            self._create(*self._late.pop(0))
        if self._happens(self._faults.crash):
            raise Crashed
        if self._happens(self._faults.unavailable):
            raise Unavailable(f"{path}: the store is away for a moment")

    def _happens(self, likelihood: float) -> bool:
        return likelihood > 0 and self._scheduler.chance.random() < likelihood
