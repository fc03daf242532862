"""Processes that write one catalog in a store, are killed and stopped, and lose replies.

`KILLS=300 SEED=7 python -m pytest tests/catalog/replicated/test_killed.py` for more of it. The seed
fixes the plan of kills and of faults, not the schedule.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.ledgers import User
from txlake.catalog import Catalog
from txlake.catalog.replicated.entries import decode, entry_path
from txlake.storage import open_store
from txlake.system import System

KILLS = int(os.environ.get("KILLS", "12"))
SEED = int(os.environ.get("SEED", "1"))
TABLES = ("a", "b", "c")
PROGRAM = """
import sys, random, threading
from tests.catalog.ledgers import User, version
from tests.catalog.replicated.stores import RandomFaults
from txlake.catalog import Catalog
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.errors import TxlakeError
from txlake.ports import Ratified
from txlake.storage import open_store
from txlake.system import System

folder, told, seed = sys.argv[1:]
store = RandomFaults(open_store(folder), random.Random(int(seed)), latency_s=0.002)
open_database = lambda _, system, **__: ReplicatedDatabase(store, system, lease_ms=1_000)
catalog = Catalog("", System(), lease_ms=1_000, open_database=open_database)

def write(chosen):
    user = User(catalog)
    while True:
        tables = chosen.sample("abc", 2)
        try:
            heads = {table: catalog.ledger.head(table).version for table in tables}
            transaction = user.begin()
            commits = [version(table, heads[table] + 1) for table in tables]
            made = user.ratify(*commits, transaction_id=transaction)
        except TxlakeError:
            continue
        if isinstance(made, Ratified):
            with open(told, "a") as file:
                for table in tables:
                    file.write(f"{table} {heads[table] + 1} {transaction} {made.sequence}\\n")

for number in range(2):
    threading.Thread(target=write, args=[random.Random(f"{seed} {number}")]).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "catalog"
    catalog = Catalog(place.as_uri(), System())
    User(catalog).create(*TABLES)
    catalog.close()
    return place


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait(60)


def test_what_was_told_is_there_once_whoever_is_killed(
    folder: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    chance = random.Random(SEED)
    told = tmp_path / "told"
    told.touch()

    def start() -> None:
        seed = str(chance.randrange(10**9))
        command = [sys.executable, "-c", PROGRAM, str(folder), str(told), seed]
        processes.append(subprocess.Popen(command))

    for _ in range(3):
        start()
    for _ in range(KILLS):
        before = told.stat().st_size
        deadline = time.monotonic() + 60
        while told.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.02)  # somebody commits between any two kills
        time.sleep(chance.random() * 0.3)
        victim = chance.choice(processes)
        if chance.random() < 0.3:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(chance.random() * 1.5)
            victim.send_signal(signal.SIGCONT)
        victim.kill()
        victim.wait(60)
        processes.remove(victim)
        start()
    for each in processes:
        each.kill()
        each.wait(60)
    processes.clear()
    lines = [line.split() for line in told.read_text().splitlines()]
    assert len(lines) > 2 * KILLS
    catalog = Catalog(folder.as_uri(), System())
    entries = catalog.ledger.newest_commits(10**6)
    ratified = {(each.table_id, each.version): each for each in entries}
    assert len(ratified) == len(entries)
    for table, number, transaction, sequence in lines:
        found = ratified[table, int(number)]
        assert (found.transaction_id, found.sequence) == (transaction, int(sequence))
    for table in TABLES:
        versions = sorted(number for of, number in ratified if of == table)
        assert versions == list(range(len(versions)))
        assert catalog.ledger.head(table).version == versions[-1]  # type: ignore[union-attr]
    catalog.close()
    store = open_store(folder)
    previous = b""
    for expected, stored in enumerate(store.list("log"), 1):
        if stored.path != entry_path(expected):  # claimed ahead, and nobody came there
            continue
        entry = decode(store.get(stored.path), stored.path)
        assert entry.previous in (b"", previous)
        previous = entry.id
