"""Processes that write one catalog in a store, are killed and stopped, and lose replies.

`KILLS=300 FREEZES=30 SEED=7 python -m pytest -s tests/catalog/replicated/test_killed.py` for more.
The seed fixes the plan of kills and of faults, not the schedule. A frozen process stands still
for longer than the log's retention, which is a few seconds here.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.catalog.ledgers import User
from tests.storage.conftest import (  # noqa: F401
    Placed,
    azure_options,
    place,
    s3_options,
    servers_folder,
)
from txlake.catalog import Catalog
from txlake.catalog.replicated.entries import decode, entry_path, number_of
from txlake.ports import Store
from txlake.system import System

KILLS = int(os.environ.get("KILLS", "8"))
FREEZES = int(os.environ.get("FREEZES", "1"))
SEED = int(os.environ.get("SEED", "1"))
TABLES = ("a", "b", "c")
RETENTION_MS = 2_500
PROGRAM = """
import json, random, sys, threading
from tests.catalog.ledgers import User, version
from tests.catalog.replicated.stores import RandomFaults
from txlake.catalog import Catalog
from txlake.catalog.replicated import log as log_module
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.errors import TxlakeError
from txlake.ports import Ratified
from txlake.storage import open_store
from txlake.system import System

url, options, told, seed, retention_ms = sys.argv[1:]
log_module._SURE_MS = int(retention_ms) / 6
log_module._SNAPSHOT_ENTRIES = 5

def note(text):
    with open(told, "a") as file:
        file.write(text)

load = log_module.CatalogLog.load
def noted_load(log):
    note("! load\\n")
    load(log)
log_module.CatalogLog.load = noted_load

store = RandomFaults(open_store(url, json.loads(options)), random.Random(int(seed)), 0.002)
open_database = lambda _, system, **__: ReplicatedDatabase(
    store, system, lease_ms=1_000, retention_ms=int(retention_ms)
)
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
        except TxlakeError as error:
            if "stood still" in str(error):
                note("! doubtful\\n")
            continue
        if isinstance(made, Ratified):
            for table in tables:
                note(f"{table} {heads[table] + 1} {transaction} {made.sequence}\\n")

threads = [
    threading.Thread(target=write, args=[random.Random(f"{seed} {number}")]) for number in range(2)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@dataclass
class Writers:
    """Processes that write a catalog, and the file of what they were told."""

    place: Placed
    told: Path
    chance: random.Random
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        seed = str(self.chance.randrange(10**9))
        options = json.dumps(self.place.options)
        arguments = [self.place.url, options, str(self.told), seed, str(RETENTION_MS)]
        self.running.append(subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments]))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(60)
        self.running.remove(process)

    def freeze(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def await_commit(self) -> None:
        """Wait until one more commit was told."""
        before = self.told.stat().st_size
        deadline = time.monotonic() + 60
        while self.told.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.02)

    def told_commits(self) -> list[tuple[str, int, str, int]]:
        lines = (line.split() for line in self.told.read_text().splitlines())
        return [
            (table, int(number), transaction, int(sequence))
            for table, number, transaction, sequence in (line for line in lines if line[0] != "!")
        ]

    def notes(self) -> Counter[str]:
        return Counter(line[2:] for line in self.told.read_text().splitlines() if line[0] == "!")


@pytest.fixture
def writers(place: Placed, tmp_path: Path) -> Iterator[Writers]:  # noqa: F811
    """Writers of a new catalog with three tables."""
    catalog = Catalog(place.url, System(), storage_options=place.options)
    User(catalog).create(*TABLES)
    catalog.close()
    told = tmp_path / "told"
    told.touch()
    started = Writers(place, told, random.Random(SEED))
    yield started
    for each in list(started.running):
        started.kill(each)


@pytest.mark.parametrize(
    "place",
    [
        "local",
        pytest.param("s3", marks=pytest.mark.broad),
        pytest.param("azure", marks=pytest.mark.broad),
    ],
    indirect=True,
)
def test_what_was_told_is_there_once_whoever_is_killed_or_frozen(writers: Writers) -> None:
    chance = writers.chance
    events = ["kill"] * KILLS + ["freeze"] * FREEZES
    chance.shuffle(events)
    for _ in range(4):
        writers.start()
    for event in events:
        writers.await_commit()
        time.sleep(chance.random() * 0.3)
        victim = chance.choice(writers.running)
        if event == "freeze":
            writers.freeze(victim, RETENTION_MS / 1000 * (1.2 + chance.random()))
            continue
        if chance.random() < 0.3:
            writers.freeze(victim, chance.random() * 1.5)
        writers.kill(victim)
        writers.start()
    writers.await_commit()
    for each in list(writers.running):
        writers.kill(each)
    told = writers.told_commits()
    assert len(told) > 2 * len(events)
    catalog = Catalog(writers.place.url, System(), storage_options=writers.place.options)
    entries = catalog.ledger.newest_commits(10**6)
    ratified = {(each.table_id, each.version): each for each in entries}
    assert len(ratified) == len(entries)
    for table, number, transaction, sequence in told:
        found = ratified[table, number]
        assert (found.transaction_id, found.sequence) == (transaction, sequence)
    for table in TABLES:
        versions = sorted(number for of, number in ratified if of == table)
        assert versions == list(range(len(versions)))
        assert catalog.ledger.head(table).version == versions[-1]  # type: ignore[union-attr]
    catalog.close()
    first, last = require_chain(writers.place.store)
    sys.stdout.write(
        f"{writers.place.url.partition(':')[0]}: {Counter(events)}, told {len(told)}, there "
        f"{len(entries)}, entries deleted {first - 1} of {last}, {writers.notes()}\n"
    )
    assert first > 1 or last < 200


def require_chain(store: Store) -> tuple[int, int]:
    """Require that each entry from the third newest snapshot on follows the one before.

    Returns the numbers of the first entry and of the last.
    """
    numbers = [number_of(found.path) or 0 for found in store.list("log")]
    snapshots = sorted(number_of(found.path) or 0 for found in store.list("snapshots"))
    first = last = ([0, 0, 0, *snapshots][-3:])[0] or 1
    previous = b""
    while last in numbers:
        entry = decode(store.get(entry_path(last)), entry_path(last))
        assert last == first or entry.previous in (b"", previous)
        previous = entry.id
        last += 1
    return numbers[0], last - 1
