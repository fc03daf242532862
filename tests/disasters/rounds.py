"""A round: processes on a new lake, what happens to them, and what is left of it.

Owns when processes are killed, frozen and started again, and when an older copy of the catalog is
put back. The dice choose; whether a process is in the middle of something then is up to the
machine.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Literal

from tests.disasters import worker
from tests.disasters.audit import Restore, Verdict, audit, unpublished
from tests.disasters.catalogs import Catalog, Undo
from tests.disasters.worker import ACCOUNTS, COLUMNS, TABLES, Post, closed, opened

LEASE_MS = 1_000
FREEZE_S = 2.0
_END_S = 120.0
_STILL_S = 20.0
_LOOK_S = 0.01
_JITTER_S = 0.1

Who = Literal["ended", "killed", "some", "none"]
STOPPED: tuple[Who, ...] = ("ended", "killed", "some", "none")
"""Which processes are stopped before an older catalog is put back: all, after their transaction or
at once, some, none."""

# Every process is forked from one that has imported everything.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([worker.__name__])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens in a round.

    Attributes:
        restores: for each, who is stopped before it.
        work: how much the processes write down between two events at most, in bytes; what they do
            in a second differs from machine to machine.
    """

    kills: int
    freezes: int
    restores: tuple[Who, ...]
    processes: int = 4
    work: int = 1_000


@dataclass(slots=True)
class _Crew:
    """The processes that work on the lake now."""

    post: Post
    living: list[ForkServerProcess] = field(default_factory=list)
    frozen: dict[int, float] = field(default_factory=dict)  # by number of the process: until when
    started: int = 0

    def start(self) -> None:
        self.started += 1
        post = Post(
            warehouse=self.post.warehouse,
            catalog=self.post.catalog,
            folder=self.post.folder,
            number=self.started,
            seed=self.post.seed,
            lease_ms=self.post.lease_ms,
        )
        process = _forks.Process(target=worker.main, args=(post,), daemon=True)
        process.start()
        self.living.append(process)

    def kill(self, process: ForkServerProcess) -> None:
        process.kill()
        self.forget(process)

    def forget(self, process: ForkServerProcess) -> None:
        process.join(60)
        self.living.remove(process)
        self.frozen.pop(_pid(process), None)

    def freeze(self, process: ForkServerProcess) -> None:
        os.kill(_pid(process), signal.SIGSTOP)
        self.frozen[_pid(process)] = time.monotonic() + FREEZE_S

    def thaw(self, *, now: float) -> None:
        """Lets those go on whose time is over."""
        for pid, until in list(self.frozen.items()):
            if until <= now:
                os.kill(pid, signal.SIGCONT)
                del self.frozen[pid]

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """All of them, in the middle of what they do."""
        pids = [_pid(process) for process in self.living]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                if pid not in self.frozen:
                    os.kill(pid, signal.SIGCONT)

    def end(self) -> int:
        """Asks all to stop; how many didn't in time, and were killed."""
        stop = Path(self.post.folder) / "stop"
        stop.touch()
        self.thaw(now=float("inf"))
        late = 0
        end = time.monotonic() + _END_S
        for process in list(self.living):
            process.join(max(0.0, end - time.monotonic()))
            if process.exitcode is None:
                late += 1
                process.kill()
            self.forget(process)
        stop.unlink()
        return late


def _pid(process: ForkServerProcess) -> int:
    assert process.pid is not None
    return process.pid


def round_of(folder: Path, catalog: Catalog, plan: Plan, seed: int) -> Verdict:
    """One lake from its creation to its audit."""
    dice = random.Random(seed)
    warehouse = folder / "warehouse"
    journals = folder / "journals"
    journals.mkdir(parents=True)
    make(warehouse, catalog)
    crew = _Crew(Post(str(warehouse), catalog.url, str(journals), 0, seed, LEASE_MS))
    happened: Counter[str] = Counter()
    copies: list[Undo] = []
    restores: list[Restore] = []
    whose = iter(plan.restores)
    for _ in range(plan.processes):
        crew.start()
    late = 0
    try:
        for event in _events(plan, dice):
            _wait(crew, journals, dice.randrange(plan.work))
            time.sleep(dice.random() * _JITTER_S)
            happened[event] += 1
            match event:
                case "kill":
                    crew.kill(dice.choice(crew.living))
                    crew.start()
                case "freeze":
                    awake = [one for one in crew.living if _pid(one) not in crew.frozen]
                    crew.freeze(dice.choice(awake or crew.living))
                case "copy":
                    copies.append(catalog.copy())
                case "restore":
                    stopped = next(whose)
                    late += _stop(crew, stopped)
                    with crew.standing_still():
                        restores.append(Restore(stopped, unpublished(catalog.ratified())))
                        dice.choice(copies[-3:])()
                    while len(crew.living) < plan.processes:
                        crew.start()
    finally:
        late += crew.end()
    verdict = audit(journals, warehouse, catalog, restores)
    verdict.happened += happened
    verdict.processes = crew.started
    if late:
        verdict.faults.append(f"{late} processes didn't end within {_END_S:g} s")
    return verdict


def _wait(crew: _Crew, journals: Path, work: int) -> None:
    """Until the processes have done so much; those that are frozen wake up meanwhile."""
    until = _written(journals) + work
    end = time.monotonic() + _STILL_S
    while _written(journals) < until and time.monotonic() < end:
        time.sleep(_LOOK_S)
        crew.thaw(now=time.monotonic())


def _written(journals: Path) -> int:
    return sum(path.stat().st_size for path in journals.glob("*.jsonl"))


def make(warehouse: Path, catalog: Catalog) -> None:
    """A lake with both tables and their accounts."""
    session = opened(str(warehouse), catalog.url, LEASE_MS)
    for table in TABLES:
        session.rows(f"CREATE TABLE {table} {COLUMNS}")
        rows = ", ".join(f"('account-{number}', 0)" for number in range(ACCOUNTS))
        session.rows(f"INSERT INTO {table} VALUES {rows}")
    closed(session)


def _events(plan: Plan, dice: random.Random) -> list[str]:
    """In some order; before each restore there is a copy of its own."""
    events = ["kill"] * plan.kills + ["freeze"] * plan.freezes
    dice.shuffle(events)
    for _ in plan.restores:
        first = dice.randrange(len(events) * 2 // 3 + 1)
        events.insert(dice.randint(first + 1, len(events) + 1), "restore")
        events.insert(first, "copy")
    return events


def _stop(crew: _Crew, whose: Who) -> int:
    match whose:
        case "ended":
            return crew.end()
        case "killed":
            for process in list(crew.living):
                crew.kill(process)
        case "some":
            for process in crew.living[::2]:
                crew.kill(process)
        case "none":
            pass
    return 0
