"""Locks between real processes: waiting, deadlocks, and a holder that is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.catalog.locking import Parties, parties_on, until
from tests.catalog.processes import started
from txlake.conflict.locking import LockStatus
from txlake.errors import LockTimeout

# Does what it is told, a line each: `begin name`, `take mode table`, `end`; answers with a line.
PROGRAM = """
import sys
from txlake.catalog.opening import open_database
from txlake.catalog.fence import Fence
from txlake.catalog.locks import Locks
from txlake.catalog.sessions import Sessions
from txlake.catalog.transactions import Transactions
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import TxlakeError
from txlake.system import System

on = open_database(sys.argv[1], System(), lease_ms=int(sys.argv[2]))
sessions = Sessions(on, int(sys.argv[2]))
transactions = Transactions(on, Fence(on.display_url), sessions)
locks = Locks(on, sessions.ensure_row)
session = sessions.open()
for line in sys.stdin:
    what, *arguments = line.split()
    answer = "done"
    if what == "begin":
        name = arguments[0]
        transactions.begin(name, session)
    elif what == "take":
        mode, number = arguments
        resource = Resource(type=ResourceType.OBJECT, database=1, entity=int(number))
        try:
            request = LockRequest(resource=resource, mode=LockMode(mode))
            locks.acquire(session, name, [request], -1)
        except TxlakeError as error:
            answer = type(error).__name__
    else:
        transactions.end(name)
    print(answer, flush=True)
sessions.stop()
"""


class Told:
    """A process that does what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answers(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def does(self, line: str) -> str:
        self.tell(line)
        return self.answers()


Starts = Callable[..., list[Told]]


@pytest.fixture
def parties(url: str) -> Iterator[Parties]:
    with parties_on(url) as made:
        yield made


@pytest.fixture
def processes(parties: Parties) -> Iterator[Starts]:
    """Start processes on the test's catalog, with a transaction each."""
    with ExitStack() as running:

        def start(*names: str, lease_ms: int = 30_000) -> list[Told]:
            made = started(PROGRAM, parties.url, str(lease_ms), count=len(names))
            for process in made:
                running.enter_context(process)
                running.callback(process.kill)
            told = [Told(process) for process in made]
            for one, name in zip(told, names, strict=True):
                assert one.does(f"begin {name}") == "done"
            return told

        yield start


def test_processes_wait_for_each_other_and_a_deadlock_has_one_victim(
    parties: Parties, processes: Starts
) -> None:
    looking = parties.process()
    a, b, c = told = processes("a", "b", "c")
    for number, one in enumerate(told):
        assert one.does(f"take Sch-M {number}") == "done"
    a.tell("take IX 1")
    c.tell("take IX 0")
    until(lambda: sum(one.status is LockStatus.WAIT for one in looking.locks.entries()) == 2)
    b.tell("take IX 2")
    assert c.answers() == "Deadlock"
    assert c.does("end") == "done"
    assert b.answers() == "done"
    assert b.does("end") == "done"
    assert a.answers() == "done"


def test_a_killed_processes_locks_go_when_its_lease_ends(
    parties: Parties, processes: Starts
) -> None:
    mine = parties.process().party("mine")
    (holder,) = processes("holder", lease_ms=1_500)
    assert holder.does("take Sch-M 1") == "done"
    with pytest.raises(LockTimeout, match=f"process {holder.process.pid} on "):
        mine.takes("IX")
    waiting = mine.asks("IX")
    holder.process.kill()
    waiting.result(30)
    assert [one.transaction_id for one in mine.locks.entries()] == ["mine"]
