"""Clients of several kinds write the tables of one lake at once, are killed and started again.

Owns a round from its first process to its last, and what each client was told; and the audit, which
holds that against the rows that are there.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tests.server.kernel import Died, Kernel
from tests.server.process import ServerProcess

TABLES = ("orders", "stock")
KILL_WITHIN_S = 1.0
_ATTEMPTS = 12
_WAIT_S = 600
# What says that a commit isn't there: the server's conflicts, and that it had no time.
_REFUSED = ("409", "429", "Conflict", "TooManyRequests")
_IDS_OF_EACH = 1_000_000
_LOOKED_AT = 7

Told = Literal["committed", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A client's program, and what it does.

    Attributes:
        command: starts it; a server's URL or a folder, a token and a catalog are added.
        place: the folder where it is no client of the server.
        loads: whether it writes what it loaded before, one table at a time.
        deletes: whether it deletes rows too.
        stages: whether it can be killed when its commit is staged, and not asked for yet.
        ratifies: whether it stages commits of all tables and asks for them at once, by an id.
    """

    name: str
    command: Sequence[str]
    place: str | None = None
    loads: bool = False
    deletes: bool = False
    stages: bool = False
    ratifies: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A row that was to be appended or deleted in the tables, and what the client was told."""

    kind: Literal["append", "delete"]
    tables: tuple[str, ...]
    id: int
    told: Told


@dataclass(frozen=True, slots=True)
class Plan:
    """How much happens: each client's turns, kills of it, kills of the server."""

    turns: int
    kills: int
    server_kills: int


@dataclass(slots=True)
class Round:
    """What happened in one.

    Attributes:
        whole: the numbers of the clients that write both tables in one transaction.
    """

    whole: frozenset[int]
    done: dict[str, list[Done]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class LakeServer:
    """The server of a warehouse, always at the same address."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._port = _free_port()
        self._up = threading.Event()
        self._process = self._started()

    def _started(self) -> ServerProcess:
        made = ServerProcess(self._warehouse, "--port", str(self._port))
        self._up.set()
        return made

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._process.url

    def wait_until_up(self) -> None:
        """Until it is there."""
        assert self._up.wait(_WAIT_S)

    def kill(self) -> None:
        """End it at once, and start it again."""
        self._up.clear()
        with self._process as ending:
            ending.kill()
        self._process = self._started()

    def close(self) -> None:
        """End it."""
        with self._process:
            pass


@contextmanager
def served(warehouse: Path) -> Iterator[LakeServer]:
    """A server while the block runs."""
    made = LakeServer(warehouse)
    try:
        yield made
    finally:
        made.close()


def _free_port() -> int:
    """A port that no connection of others is given while the server is away."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def together(
    server: LakeServer, catalog: str, kinds: Sequence[Kind], plan: Plan, seed: int
) -> Round:
    """One round."""
    made = Round(frozenset(n for n, kind in enumerate(kinds, 1) if not kind.loads))
    steps = threading.Semaphore(0)
    over = threading.Event()
    clients = [
        _Client(kind, server, catalog, made, random.Random(f"{seed}/{kind.name}"), number, steps)
        for number, kind in enumerate(kinds, 1)
    ]
    every = plan.turns * len(clients) // (plan.server_kills + 1)

    def strike() -> None:
        for _ in range(plan.server_kills):
            for _ in range(every):
                steps.acquire()
            if over.is_set():
                return
            server.kill()
            made.kills["server"] += 1

    with ThreadPoolExecutor(len(clients) + 1) as pool:
        striking = pool.submit(strike)
        running = [pool.submit(client.run, plan) for client in clients]
        try:
            for one in running:
                one.result(_WAIT_S)
        finally:
            over.set()
            steps.release(every * plan.server_kills)
        striking.result(_WAIT_S)
    return made


class _Client:
    """One of them."""

    def __init__(
        self,
        kind: Kind,
        server: LakeServer,
        catalog: str,
        made: Round,
        dice: random.Random,
        number: int,
        steps: threading.Semaphore,
    ) -> None:
        self._kind = kind
        self._server = server
        self._catalog = catalog
        self._made = made
        self._dice = dice
        self._next = number * _IDS_OF_EACH
        self._turns = 1
        self._steps = steps
        self._done = made.done.setdefault(kind.name, [])
        self._process = self._started()

    def _started(self) -> Kernel:
        self._wait()
        place = self._kind.place or self._server.url
        return Kernel(self._kind.command, place, self._catalog)

    def _start_again(self) -> None:
        with self._process:
            pass  # its end is a kill
        self._process = self._started()

    def _wait(self) -> None:
        if self._kind.place is None:
            self._server.wait_until_up()

    def run(self, plan: Plan) -> None:
        """Its turns, and those in which it is killed."""
        self._turns = plan.turns
        killed = self._dice.sample(range(plan.turns), plan.kills)
        try:
            for turn in range(plan.turns):
                if not self._process.is_alive:
                    self._start_again()
                if turn in killed:
                    self._killed_turn()
                else:
                    self._turn()
                self._steps.release()
        finally:
            with self._process:
                pass

    def _killed_turn(self) -> None:
        """Turn until it is killed, which is at any moment of one."""
        process = self._process
        timer = threading.Timer(self._dice.random() * KILL_WITHIN_S, process.kill)
        timer.start()
        try:
            while process.is_alive and process is self._process:
                self._turn()
        finally:
            timer.join(_WAIT_S)
        self._made.kills[self._kind.name] += 1
        self._start_again()

    def _turn(self) -> None:
        if self._kind.ratifies:
            self._append(TABLES)
            return
        tables = (self._dice.choice(TABLES),) if self._kind.loads else TABLES
        what = self._dice.randrange(6)
        if what == 0 and self._kind.stages:
            self._stage(tables)
        elif what == 1 and self._kind.deletes:
            self._delete()
        elif what == 2 and self._kind.loads:
            self._asked(f"publish {tables[0]}")
        elif what == 2 and self._kind.place is not None:
            self._look()
        else:
            self._append(tables)

    def _append(self, tables: tuple[str, ...]) -> None:
        self._next += 1
        appends = self._ratified if self._kind.ratifies else partial(self._told, "append", tables)
        self._done.append(Done("append", tables, self._next, appends(self._next)))

    def _delete(self) -> None:
        """A row that it was told is there, and that it didn't try to delete before."""
        tried = {one.id for one in self._done if one.kind == "delete"}
        there = [one for one in self._done if one.told == "committed" and one.id not in tried]
        if not there:
            return
        one = self._dice.choice(there)
        told = self._told("delete", one.tables, one.id)
        self._done.append(Done("delete", one.tables, one.id, told))

    def _stage(self, tables: tuple[str, ...]) -> None:
        """It dies between staging a commit and asking for it."""
        self._next += 1
        if not self._asked(f"load {tables[0]}").startswith("ok"):
            return
        answer = self._asked(f"stage {tables[0]} {self._next}")
        if answer not in ("ok staged", ""):
            self._made.faults.append(f"{self._kind.name} couldn't stage: {answer}")
        self._done.append(Done("append", tables, self._next, "refused"))
        self._made.kills[f"{self._kind.name}, staged"] += 1
        self._start_again()

    def _look(self) -> None:
        """At one instant the transactions over both tables are in both, or in none."""
        whose = self._dice.choice(sorted(self._made.whole)) * _IDS_OF_EACH
        low = whose + self._dice.randrange(self._turns)
        answer = self._asked(f"read {','.join(TABLES)} {low} {low + _LOOKED_AT}")
        if not answer.startswith("ok"):
            return
        seen = [[int(one) for one in told.split()] for told in answer[2:].split(";")]
        halves = halved(seen, self._made.whole)
        if halves:
            self._made.faults.append(f"{self._kind.name} saw halves: {halves}")

    def _told(self, command: str, tables: tuple[str, ...], row: int) -> Told:
        """What it is told in the end; a refused commit is tried again."""
        for _ in range(_ATTEMPTS):
            if self._kind.loads and not self._asked(f"load {tables[0]}").startswith("ok"):
                continue
            try:
                answer = self._process.ask(f"{command} {','.join(tables)} {row}")
            except Died:
                return "unknown"
            if answer.startswith("ok"):
                return "committed"
            if not self._is_refused(answer):
                return "unknown"
        return "refused"

    def _ratified(self, row: int) -> Told:
        """What it is told in the end of a transaction over all tables.

        One whose answer is lost is asked for again, which tells for certain.
        """
        tables = ",".join(TABLES)
        for _ in range(_ATTEMPTS):
            if not self._asked(f"prepare {tables} of-{row} {row}").startswith("ok"):
                continue
            answer = "failed"
            while answer.startswith("failed") and not self._is_refused(answer):
                self._wait()
                try:
                    answer = self._process.ask(f"ratify {tables}")
                except Died:
                    return "unknown"
            if answer.startswith("ok"):
                return "committed"
        return "refused"

    def _is_refused(self, answer: str) -> bool:
        if not (self._kind.loads or self._kind.ratifies):  # txlake says which it is
            self._wait()
            return answer.startswith("failed")
        return any(sign in answer for sign in _REFUSED)

    def _asked(self, command: str) -> str:
        """The answer to what changes no rows; nothing where the process is gone."""
        self._wait()
        try:
            return self._process.ask(command)
        except Died:
            return ""


def halved(seen: Sequence[Sequence[int]], whole: frozenset[int]) -> list[int]:
    """The rows of transactions over both tables that aren't in both alike."""
    first, second = (Counter(one for one in ids if one // _IDS_OF_EACH in whole) for ids in seen)
    return sorted(((first - second) + (second - first)).elements())


def audit(done: Sequence[Done], found: Mapping[str, Sequence[int]]) -> list[str]:
    """What is wrong with the rows of the tables, after all that the clients were told.

    What was acknowledged is there once, what was refused isn't; what is unknown is there once or
    not, in all of its tables or in none.
    """
    counts = {table: Counter(ids) for table, ids in found.items()}
    deleted = {one.id: one.told for one in done if one.kind == "delete"}
    faults = []
    for one in done:
        if one.kind == "delete":
            continue
        there = {counts[table].pop(one.id, 0) for table in one.tables}
        allowed = _allowed(one.told, deleted.get(one.id))
        if len(there) > 1 or not there <= allowed:
            faults.append(f"{one}, {deleted.get(one.id)}: there {there}, expected one of {allowed}")
    faults += [f"{table}: nobody wrote {dict(left)}" for table, left in counts.items() if left]
    return faults


def _allowed(appended: Told, deleted: Told | None) -> set[int]:
    match appended, deleted:
        case ("refused", _) | ("committed", "committed"):
            return {0}
        case ("unknown", _) | ("committed", "unknown"):
            return {0, 1}
        case _:
            return {1}
