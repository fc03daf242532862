"""A round: processes on a new lake, the events that befall them, and the audit.

Owns when processes are killed, frozen and started again, and when an older copy of the catalog is
restored. The seed chooses the events; what a process is doing at that moment depends on the
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
from tests.disasters.catalogs import Catalog, RestoreBackup
from tests.disasters.worker import (
    ACCOUNTS,
    COLUMNS,
    TABLES,
    Assignment,
    close_session,
    open_session,
)

LEASE_MS = 1_000
FREEZE_S = 2.0
_END_S = 120.0
_NO_PROGRESS_S = 20.0
_POLL_S = 0.01
_JITTER_S = 0.1

Stopped = Literal["ended", "killed", "some", "none"]
STOPPED: tuple[Stopped, ...] = ("ended", "killed", "some", "none")
"""Which processes are stopped before an older catalog is put back: all, after their transaction or
at once, some, none."""

# Every process is forked from one that has imported everything.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([worker.__name__])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The events of a round.

    Attributes:
        restores: for each restore, the processes that are stopped before it.
        work_bytes: the most bytes that processes write in their journals between two events; time
            would differ from machine to machine.
    """

    kills: int
    freezes: int
    restores: tuple[Stopped, ...]
    processes: int = 4
    work_bytes: int = 1_000


@dataclass(slots=True)
class _Workers:
    """The processes that work on the lake."""

    assignment: Assignment
    living: list[ForkServerProcess] = field(default_factory=list)
    frozen: dict[int, float] = field(default_factory=dict)  # by process id, the time of its end
    started: int = 0

    def start(self) -> None:
        self.started += 1
        assignment = Assignment(
            warehouse=self.assignment.warehouse,
            catalog=self.assignment.catalog,
            folder=self.assignment.folder,
            number=self.started,
            seed=self.assignment.seed,
            lease_ms=self.assignment.lease_ms,
            options=self.assignment.options,
        )
        process = _forks.Process(target=worker.main, args=(assignment,), daemon=True)
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
        """Continue the processes whose freeze is over."""
        for pid, until in list(self.frozen.items()):
            if until <= now:
                os.kill(pid, signal.SIGCONT)
                del self.frozen[pid]

    @contextmanager
    def all_stopped(self) -> Iterator[None]:
        """Stop all processes within this block, in the middle of their work."""
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
        """Ask all processes to end; return how many didn't in time and were killed."""
        stop = Path(self.assignment.folder) / "stop"
        stop.touch()
        self.thaw(now=float("inf"))
        unresponsive = 0
        end = time.monotonic() + _END_S
        for process in list(self.living):
            process.join(max(0.0, end - time.monotonic()))
            if process.exitcode is None:
                unresponsive += 1
                process.kill()
            self.forget(process)
        stop.unlink()
        return unresponsive


def _pid(process: ForkServerProcess) -> int:
    assert process.pid is not None
    return process.pid


def run_round(folder: Path, catalog: Catalog, plan: Plan, seed: int) -> Verdict:
    """Run one lake from its creation to its audit."""
    rng = random.Random(seed)
    warehouse = folder / "warehouse"
    journals = folder / "journals"
    journals.mkdir(parents=True)
    create_lake(warehouse, catalog)
    workers = _Workers(
        Assignment(
            warehouse=str(warehouse),
            catalog=catalog.url,
            folder=str(journals),
            number=0,
            seed=seed,
            lease_ms=LEASE_MS,
            options=catalog.options,
        )
    )
    events: Counter[str] = Counter()
    backups: list[RestoreBackup] = []
    restores: list[Restore] = []
    stopped_kinds = iter(plan.restores)
    for _ in range(plan.processes):
        workers.start()
    unresponsive = 0
    try:
        for event in _events(plan, rng):
            _wait_for_work(workers, journals, rng.randrange(plan.work_bytes))
            time.sleep(rng.random() * _JITTER_S)
            events[event] += 1
            match event:
                case "kill":
                    workers.kill(rng.choice(workers.living))
                    workers.start()
                case "freeze":
                    running = [one for one in workers.living if _pid(one) not in workers.frozen]
                    workers.freeze(rng.choice(running or workers.living))
                case "copy":
                    backups.append(catalog.copy())
                case "restore":
                    stopped = next(stopped_kinds)
                    unresponsive += _stop(workers, stopped)
                    with workers.all_stopped():
                        restores.append(Restore(stopped, unpublished(catalog.ratified())))
                        rng.choice(backups[-3:])()
                    while len(workers.living) < plan.processes:
                        workers.start()
    finally:
        unresponsive += workers.end()
    verdict = audit(journals, warehouse, catalog, restores)
    verdict.events += events
    verdict.processes = workers.started
    if unresponsive:
        verdict.faults.append(f"{unresponsive} processes didn't end within {_END_S:g} s")
    return verdict


def _wait_for_work(workers: _Workers, journals: Path, work_bytes: int) -> None:
    """Wait until the processes have done an amount of work; frozen ones may wake up meanwhile."""
    until = _journal_bytes(journals) + work_bytes
    end = time.monotonic() + _NO_PROGRESS_S
    while _journal_bytes(journals) < until and time.monotonic() < end:
        time.sleep(_POLL_S)
        workers.thaw(now=time.monotonic())


def _journal_bytes(journals: Path) -> int:
    return sum(path.stat().st_size for path in journals.glob("*.jsonl"))


def create_lake(warehouse: Path, catalog: Catalog) -> None:
    """Create a lake with both tables and their accounts."""
    session = open_session(str(warehouse), catalog.url, LEASE_MS, catalog.options)
    for table in TABLES:
        session.rows(f"CREATE TABLE {table} {COLUMNS}")
        rows = ", ".join(f"('account-{number}', 0)" for number in range(ACCOUNTS))
        session.rows(f"INSERT INTO {table} VALUES {rows}")
    close_session(session)


def _events(plan: Plan, rng: random.Random) -> list[str]:
    """Return the events in random order; a copy of its own precedes each restore."""
    events = ["kill"] * plan.kills + ["freeze"] * plan.freezes
    rng.shuffle(events)
    for _ in plan.restores:
        first = rng.randrange(len(events) * 2 // 3 + 1)
        events.insert(rng.randint(first + 1, len(events) + 1), "restore")
        events.insert(first, "copy")
    return events


def _stop(workers: _Workers, stopped_kinds: Stopped) -> int:
    match stopped_kinds:
        case "ended":
            return workers.end()
        case "killed":
            for process in list(workers.living):
                workers.kill(process)
        case "some":
            for process in workers.living[::2]:
                workers.kill(process)
        case "none":
            pass
    return 0
