"""Waiting for locks in one thread: what others do meanwhile is a script, and so is the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.catalog.locking import LEASE_MS, Party, Process
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import locks as locks_module
from txlake.catalog.database import Database
from txlake.catalog.fence import Fence
from txlake.catalog.locks import Locks, _ChangeSignal
from txlake.catalog.relations import sessions
from txlake.catalog.sessions import Sessions
from txlake.catalog.transactions import Transactions
from txlake.conflict.locking import LockMode, LockStatus
from txlake.system import System

LOOKS_MAX, NOTES_MAX = 400, 200


@dataclass(slots=True)
class Script:
    """What happens while somebody waits: a step at each look, then only time goes by.

    Attributes:
        waits: how long each wait was to be at most, in milliseconds.
    """

    steps: deque[Callable[[], object]] = field(default_factory=deque)
    waits: list[float] = field(default_factory=list)
    now_ms: float = 0.0

    def then(self, *steps: Callable[[], object]) -> None:
        self.steps.extend(steps)

    def wait(self, timeout_ms: float) -> None:
        self.waits.append(timeout_ms)
        self.now_ms += timeout_ms
        if self.steps:
            self.steps.popleft()()


class ScriptedSystem(System):
    """Has the script's time, and no patience with who looks for ever."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self._looks = 0

    def random(self) -> float:
        self._looks += 1
        assert self._looks < LOOKS_MAX, "it is looked for ever"
        return 0.5

    def monotonic_ms(self) -> float:
        return self._script.now_ms


class ScriptedDatabase(Database):
    """Isn't written to for ever."""

    noted = 0

    def write_relaxed(self, work: Callable[[Connection], Any]) -> Any:
        self.noted += 1
        assert self.noted < NOTES_MAX, "it is asked for ever"
        return super().write_relaxed(work)


class ScriptedSignal(_ChangeSignal):
    """Goes by the script instead of waiting."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def wait(self, since: int, timeout_ms: float) -> None:
        self._script.wait(timeout_ms)


@contextmanager
def scripted_on(url: str, script: Script) -> Iterator[Process]:
    """A process whose locks are waited for by the script."""
    database = ScriptedDatabase(url, ScriptedSystem(script))
    of = Sessions(database, LEASE_MS)
    locks = Locks(database)
    locks._changes = ScriptedSignal(script)
    transactions = Transactions(database, Fence(database.display_url), of)
    process = Process(
        database=database,
        sessions=of,
        transactions=transactions,
        locks=locks,
        pool=ThreadPoolExecutor(1),
    )
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(locks_module, "_PAUSE_MS_MAX", 1_000.0)  # few looks, for a long wait
            yield process
    finally:
        database.noted = 0
        of.stop()
        database.close()


def held_by(party: Party) -> list[tuple[int, LockMode, LockStatus]]:
    """A party's requests: of which table, the mode, and how they stand."""
    return [(one.resource.entity, one.mode, one.status) for one in party.entries()]


def lease_ends(process: Process, session: int) -> None:
    """A session wasn't heard of for longer than its lease."""
    over = sa.update(sessions).where(sessions.c.id == session).values(lease_ms=1, warned=True)
    with write_transaction(process.database) as connection:
        connection.execute(over)
