"""Processes that work on a lake and its branches, and are killed.

`KILLS=100 SEED=7 python -m pytest -s tests/session/test_branches_killed.py` for more. The seed
fixes whom to kill, not the schedule.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.session import branch_worker
from tests.session.branch_worker import ACCOUNTS, TABLES, Worker
from txlake.commit.vacuum import plan_vacuum
from txlake.errors import Conflict
from txlake.session.membership.recovery import recover

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED", "1"))
_WORKERS = 4
_FAULTS = ("NameError", "KeyError", "AssertionError", "CorruptTable")
Rows = Counter[tuple[object, ...]]


class Killed:
    """Processes on one lake, the file of what they were told, and the lake in this process."""

    def __init__(self, folder: Path, catalog: str) -> None:
        self._folder = folder
        self._catalog = catalog
        self._told = folder / "told"
        self._told.touch()
        self._chance = random.Random(SEED)
        # Forks of a process that has imported everything, and opened nothing.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([branch_worker.__name__])
        self._running: list[multiprocessing.process.BaseProcess] = []

    def open(self) -> Worker:
        """Return a session of the lake in this process."""
        return Worker(self._folder.as_uri(), self._catalog)

    def start(self) -> None:
        """Start one more process."""
        seed = str(self._chance.randrange(10**9))
        arguments = (self._folder.as_uri(), self._catalog, str(self._told), seed)
        process = self._processes.Process(target=branch_worker.main, args=arguments)
        process.start()
        self._running.append(process)

    def kill_one(self) -> None:
        """Kill a process while it works: something is told between two kills."""
        before = self._told.stat().st_size
        deadline = time.monotonic() + 60
        while self._told.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self._chance.random() * 0.3)
        victim = self._running.pop(self._chance.randrange(len(self._running)))
        victim.kill()
        victim.join(60)

    def kill_all(self) -> None:
        """Kill the processes that run."""
        for each in self._running:
            each.kill()
            each.join(60)
        self._running = []

    def told(self) -> list[list[str]]:
        """Return the words of each whole line that was told."""
        lines = self._told.read_bytes().decode().split("\n")[:-1]
        return [line.split() for line in lines]


@pytest.fixture(params=["sqlite", "store", "postgres"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    """A lake of two tables, with accounts whose sum is 0 over both."""
    (tmp_path / "_txlake").mkdir()
    catalog = tmp_path / "_txlake" / "catalog"
    url = {"sqlite": f"sqlite:///{catalog}.db", "store": catalog.as_uri()}.get(request.param)
    url = url or request.getfixturevalue("postgres_url")
    made = Killed(tmp_path, url)
    lake = made.open()
    accounts = ", ".join(f"('account{number}', 0)" for number in range(ACCOUNTS))
    for table in TABLES:
        lake.do(f"CREATE TABLE {table} (k STRING, n BIGINT)")
        lake.do(f"INSERT INTO {table} VALUES {accounts}")
    lake.close()
    yield made
    made.kill_all()


def rows_of(folder: Path) -> list[Rows]:
    """Return the rows of both tables as delta-rs reads them; after the test txlake does, too."""
    found = []
    for table in TABLES:
        query = QueryBuilder().register("t", DeltaTable(str(folder / table)))
        read = pa.table(query.execute("SELECT k, n FROM t"))
        found.append(Counter(zip(*(each.to_pylist() for each in read.columns), strict=True)))
    return found


def markers_of(found: list[Rows]) -> set[str]:
    """Return the markers of the pairs; each is there once, and the sum of all numbers is 0."""
    debit, credit = (
        Counter({key[0]: count for key, count in rows.items() if str(key[0])[0] == "m"})
        for rows in found
    )
    assert debit == credit
    assert set(debit.values()) <= {1}
    numbers: list[Any] = [key[1] for rows in found for key in rows.elements()]
    assert sum(numbers) == 0
    return set(map(str, debit))


def require_told(told: list[list[str]], there: set[str]) -> tuple[int, int]:
    """Require that what was told is on main, whole or not at all where it was not told to be.

    Returns how many pairs were told to be on main, and how many of ended or open branches are in
    no table.
    """
    of_main = {words[2] for words in told if words[0] == "main"}
    ended = {words[1]: words[0] for words in told if words[0] in ("publish", "drop")}
    by_branch: dict[str, set[str]] = {}
    for action, branch, marker, *_ in told:
        if action == "commit":
            by_branch.setdefault(branch, set()).add(marker)
    assert of_main <= there
    on_main, elsewhere = len(of_main), 0
    for branch, markers in by_branch.items():
        end = ended.get(branch)
        shown = markers & there
        assert shown in (set(), markers), branch
        assert end is None or shown == (markers if end == "publish" else set()), (branch, end)
        on_main += len(shown) if end == "publish" else 0
        elsewhere += len(markers - shown)
    return on_main, elsewhere


@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_was_told_of_branches_is_there_once(killed: Killed, tmp_path: Path) -> None:
    for _ in range(_WORKERS):
        killed.start()
    for _ in range(KILLS):
        killed.kill_one()
        killed.start()
    killed.kill_one()
    killed.kill_all()
    told = killed.told()
    refused = Counter(words[2] for words in told if words[0] == "!")
    assert not [words for words in told if words[0] == "!!"]
    assert not refused.keys() & set(_FAULTS), refused
    lake = killed.open()
    there = markers_of(rows_of(tmp_path))
    on_main, elsewhere = require_told(told, there)
    report = recover(lake.session, ())
    assert (report.tables, report.done, report.unknown) == ((), (), ())
    left = lake.branches()
    for name in left:
        if ".rebased." not in name:
            end_branch(lake, name, told)
    for name in lake.branches():  # of killed rebases that began as their branch ended
        lake.do(f"DROP BRANCH `{name}`")
    assert lake.branches() == []
    require_told(told, markers_of(rows_of(tmp_path)))
    for table in TABLES:
        assert left_of_branches(tmp_path / table) <= vacuumed(lake, table)
    lake.close()
    sys.stdout.write(
        f"{Counter(words[0] for words in told)}, refused {refused}: on main {on_main} told and "
        f"{len(there)} found, elsewhere {elsewhere}, branches left {len(left)}, of which "
        f"{sum('.rebased.' in name for name in left)} of killed rebases\n"
    )


def left_of_branches(table: Path) -> set[str]:
    """Return the files that ended branches have left in a table's log."""
    files = (path for path in table.rglob("_branches/**/*") if path.is_file())
    return {path.relative_to(table).as_posix() for path in files}


def vacuumed(worker: Worker, table: str) -> set[str]:
    """Return what VACUUM would delete of a table, whatever its age is."""
    engine = worker.lake.engine
    entry = engine.catalog.find("default", table)
    assert entry is not None
    plan = plan_vacuum(
        engine.at_entry(entry).log,
        0,
        retention_check=False,
        now_ms=engine.system.now_ms() + 3_600_000,
        open_branches=engine.open_branches,
    )
    return set(plan.paths)


def end_branch(lake: Worker, name: str, told: list[list[str]]) -> None:
    """Publish a branch, or drop it if that conflicts; tell it."""
    with suppress(Conflict):
        lake.do(f"PUBLISH BRANCH {name}")
        told.append(["publish", name, "-"])
        return
    lake.do(f"DROP BRANCH {name}")
    told.append(["drop", name, "-"])
