"""Processes and threads that ratify at once, and processes that die: no head is lost."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.catalog.ledgers import User, selected, version
from tests.catalog.locking import until
from tests.catalog.open_transactions import write_transaction
from tests.catalog.processes import started
from txlake.catalog import Catalog
from txlake.errors import InvalidRequest
from txlake.ports import HeadsMoved, Ratified, TableCommit
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")

# Writes both of two tables again and again, and says what it ratified.
WRITER = """
import sys, threading
from tests.catalog.ledgers import User, version
from txlake.catalog import Catalog
from txlake.ports import Ratified, VersionRange
from txlake.system import System

url, rounds = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
user = User(Catalog(url, System()))

def write():
    heads, won = {"a": 0, "b": 0}, 0
    while won < rounds:
        both = [version("a", heads["a"] + 1), version("b", heads["b"] + 1)]
        made = user.ratify(*(both if won % 2 else reversed(both)))
        if isinstance(made, Ratified):
            won += 1
            heads = {"a": heads["a"] + 1, "b": heads["b"] + 1}
            sys.stdout.write(f"{made.sequence} {heads['a']} {heads['b']}\\n")
            sys.stdout.flush()
            published = {name: VersionRange(0, head) for name, head in heads.items()}
            user.catalog.ledger.record_publication(published)
        else:
            heads.update(made.heads)

print("ready", flush=True)
threads = [threading.Thread(target=write) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join(120)
user.catalog.close()
"""
ROUNDS, WRITERS = 15, 3


@pytest.mark.broad(keep=1)
def test_processes_and_threads_share_the_book(url: str, opened: Callable[[], Catalog]) -> None:
    user = User(opened())
    user.create("a", "b")
    processes = started(WRITER, url, str(ROUNDS), count=WRITERS)
    done = threading.Event()
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reading = pool.submit(read, opened(), done)
        written = [pool.submit(process.communicate, "go\n", 300) for process in processes]
        said = [future.result(300)[0] for future in written]
        done.set()
        seen = reading.result(300)
    won = sorted(
        tuple(int(field) for field in line.split())
        for text in said
        for line in text.splitlines()
        if line != "ready"
    )
    total = 2 * WRITERS * ROUNDS
    # Nobody's instant is another's, none is left out, and each version was made once.
    assert won == [(at + 2, at + 1, at + 1) for at in range(total)]
    assert selected(url, "SELECT id, head FROM txlake_tables ORDER BY id") == [
        ("a", total), ("b", total),
    ]  # fmt: skip
    assert selected(url, "SELECT count(*) FROM txlake_commits") == [(2 * total + 2,)]
    assert selected(url, "SELECT count(*) FROM txlake_transactions") == [(0,)]
    assert user.catalog.ledger.pending_tables() == []
    assert seen
    assert all(earlier <= later for earlier, later in pairwise(seen))


def read(catalog: Catalog, done: threading.Event) -> list[int]:
    """The instants that a reader saw; each with both tables, or it raises."""
    ledger, seen = catalog.ledger, []
    while not done.is_set():
        sequence = ledger.sequence()
        versions = {ledger.version_at(table_id, sequence) for table_id in "ab"}
        assert versions == {sequence - 1}
        seen.append(sequence)
    return seen


@pytest.mark.broad(keep=1)
def test_a_process_that_is_killed_leaves_all_or_nothing(
    url: str, opened: Callable[[], Catalog]
) -> None:
    user = User(opened())
    user.create("a", "b")
    chance = random.Random(7)
    for _ in range(4):
        [process] = started(WRITER, url, "100000")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        for _ in range(chance.randrange(1, 20)):
            told = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=120)[0].splitlines(keepends=True)
        complete = [line for line in [told, *rest] if line.endswith("\n")]
        last = max(int(line.split()[0]) for line in complete)
        [(first, sequence_first), (second, sequence_second)] = selected(
            url,
            "SELECT t.head, c.sequence FROM txlake_tables t"
            " JOIN txlake_commits c ON c.table_id = t.id AND c.version = t.head ORDER BY t.id",
        )
        # What was told is there, and both tables stand at one instant.
        assert first == second
        assert sequence_first == sequence_second == user.catalog.ledger.sequence()
        assert user.catalog.ledger.sequence() >= last
    assert isinstance(first, int)
    user.write(version("a", first + 1), version("b", first + 1))


def test_threads_of_a_process_go_in_groups(opened: Callable[[], Catalog]) -> None:
    catalog = opened()
    users = [User(catalog) for _ in range(8)]
    for number, user in enumerate(users):
        user.create(f"t{number}", f"u{number}")
    ledger, group = catalog.ledger, catalog.ledger._group
    batches: list[int] = []
    carry_out = group._work

    def counted(requests: Any) -> Any:
        batches.append(len(requests))
        return carry_out(requests)

    group._work = counted
    begun = [[user.begin() for _ in range(5)] for user in users]

    def write(number: int) -> list[int]:
        instants = []
        for at, transaction_id in enumerate(begun[number], 1):
            commits = version(f"t{number}", at), version(f"u{number}", at)
            made = users[number].ratify(*commits, transaction_id=transaction_id)
            assert isinstance(made, Ratified)
            instants.append(made.sequence)
        return instants

    with write_transaction(catalog._database) as connection:
        # While somebody has the sequence, all come together behind the first.
        connection.exec_driver_sql("UPDATE txlake_counters SET value = value")
        pool = ThreadPoolExecutor(8)
        writing = [pool.submit(write, number) for number in range(8)]
        until(lambda: ledger._group.waiting >= 7)
    instants = [future.result(300) for future in writing]
    pool.shutdown()
    assert sorted(at for mine in instants for at in mine) == list(range(9, 49))
    assert all(earlier < later for mine in instants for earlier, later in pairwise(mine))
    assert len(batches) < 40


def test_who_wants_the_same_version_in_one_group_comes_too_late(
    opened: Callable[[], Catalog],
) -> None:
    catalog = opened()
    users = [User(catalog) for _ in range(6)]
    users[0].create("a", "b")
    begun = [user.begin() for user in users]
    pool = ThreadPoolExecutor(6)
    commits = version("a", 1), version("b", 1)
    with write_transaction(catalog._database) as connection:
        connection.exec_driver_sql("UPDATE txlake_counters SET value = value")
        asked = [
            pool.submit(user.ratify, *commits, transaction_id=transaction_id)
            for user, transaction_id in zip(users, begun, strict=True)
        ]
        until(lambda: catalog.ledger._group.waiting >= 5)
    answers = [future.result(300) for future in asked]
    pool.shutdown()
    assert sum(isinstance(answer, Ratified) for answer in answers) == 1
    late = [answer for answer in answers if isinstance(answer, HeadsMoved)]
    assert late == [HeadsMoved(heads={"a": 1, "b": 1})] * 5


def test_what_the_database_refuses_of_one_is_not_held_against_the_others(
    postgres_url: str,
) -> None:
    catalog = Catalog(postgres_url, System())
    users = [User(catalog) for _ in range(3)]
    users[0].create("t0", "t1", "t2")
    operations = ["WRITE", "\0", "WRITE"]
    begun = [user.begin() for user in users]
    pool = ThreadPoolExecutor(3)
    with write_transaction(catalog._database) as connection:
        connection.exec_driver_sql("UPDATE txlake_counters SET value = value")
        asked = []
        for number, (user, operation) in enumerate(zip(users, operations, strict=True)):
            commit = TableCommit(table_id=f"t{number}", version=1, operation=operation)
            asked.append(pool.submit(user.ratify, commit, transaction_id=begun[number]))
        until(lambda: catalog.ledger._group.waiting >= 2)
    errors = [future.exception(300) for future in asked]
    pool.shutdown()
    assert [type(error) for error in errors] == [type(None), InvalidRequest, type(None)]
    assert catalog.ledger.sequence() == 3
    catalog.close()
