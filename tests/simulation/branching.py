"""Branches beside main's writers, compactors and VACUUM: made, written, published and dropped.

Owns these programs and what their clients were told; `branch_audit` checks it. Names are never
used again, so that a name stands for one branch, also after a rebase.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.programs import (
    Plan,
    Program,
    Runner,
    accounts,
    check_nothing,
    execute,
    maintenance,
    random_level,
    random_statement,
)
from tests.simulation.records import ReportedOutcome
from tests.simulation.statements import Maintenance, Rows

KIND = "branches"
MAIN = "main"
REFUSALS = (
    "has ended",
    "has expired",
    "there is no branch",
    "there is no tag",
    "there is no branch or tag",
    "was made from it",
    "has compacted rows that it changed",
)
"""Words of the InvalidRequests that these programs may get: a branch ended under them."""


@dataclass(slots=True)
class BranchEvent:
    """A statement about a branch, and what its client was told.

    Attributes:
        action: the first word of the statement.
        begin_turn, end_turn: as in `Record`.
    """

    action: str
    name: str
    client: str
    begin_turn: int
    end_turn: int = 0
    outcome: ReportedOutcome = ReportedOutcome.DIED


@dataclass(frozen=True, slots=True)
class TravelledRead:
    """The rows of a table as of a branch or tag, and whose read it was."""

    client: str
    name: str
    table: str
    rows: Rows


def branches(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Return a plan of work on branches and on main."""

    def random_program() -> Program:
        [make] = rng.choices(list(_KINDS), list(_KINDS.values()))
        return make(rng, tables)

    clients = [[random_program() for _ in range(rng.randint(4, 7))] for _ in range(3)]
    clients[0].insert(0, _fork(rng, tables))
    initial = accounts(tables, 3, 10)
    return Plan(KIND, initial, clients, random_level(rng), check_nothing)


def _fork(rng: random.Random, tables: Sequence[str]) -> Program:
    of_branch, place = rng.random() < 0.25, rng.random()
    retention = rng.choice(["", "", "", " RETAIN 2 SECONDS", " RETAIN 1 DAYS"])

    def body(runner: Runner) -> None:
        origin = _chosen(runner.branches(), place) if of_branch else None
        _create(runner, f" FROM BRANCH {origin or MAIN}{retention}")

    return Program("fork", body, without_transaction=True)


def _tag(rng: random.Random, tables: Sequence[str]) -> Program:
    table, rest_ms = rng.choice(tables), rng.choice([0, 30, 300])

    def body(runner: Runner) -> None:
        name = f"t{_plain(runner.tag)}"
        runner.about_branch("CREATE", name, f"CREATE TAG {name}")
        runner.wait(rest_ms)
        runner.read_as_of(name, table)

    return Program("tag", body, without_transaction=True)


def _work(rng: random.Random, tables: Sequence[str]) -> Program:
    """Return a transaction on a branch; it makes one if there is none."""
    place, count = rng.random(), rng.choice([1, 1, 2, 3])
    is_compaction = rng.random() < 0.12
    upkeep, rest_ms = maintenance(rng, tables), rng.choice([0, 0, 3, 300])
    makers = [random_statement(rng, tables) for _ in range(count)]

    def body(runner: Runner) -> None:
        name = _chosen(runner.branches(), place)
        if name is None:
            _create(runner, "")
            return
        runner.use_branch(name)
        if is_compaction:
            upkeep.body(runner)
            return
        for number, make in enumerate(makers):
            runner.execute(make(runner.tag))
            if number == 0:
                runner.wait(rest_ms)

    is_alone = is_compaction or (count == 1 and rng.random() < 0.5)
    return Program("work", body, autocommit=is_alone)


def _on_main(rng: random.Random, tables: Sequence[str]) -> Program:
    makers = [random_statement(rng, tables) for _ in range(rng.choice([1, 1, 2]))]

    def body(runner: Runner) -> None:
        for make in makers:
            runner.execute(make(runner.tag))

    return Program("main", body, autocommit=len(makers) == 1)


def _vacuum(rng: random.Random, tables: Sequence[str]) -> Program:
    statement = Maintenance(rng.choice(tables), "VACUUM {} RETAIN 0 HOURS")
    return Program("vacuum", lambda runner: execute(runner, statement), without_transaction=True)


def _end(rng: random.Random, tables: Sequence[str]) -> Program:
    """Return a program that publishes, rebases or drops a branch."""
    action = rng.choice(["PUBLISH", "PUBLISH", "PUBLISH", "REBASE", "REBASE", "DROP"])
    place = rng.random()

    def body(runner: Runner) -> None:
        name = _chosen(runner.branches(), place)
        if name is not None:
            runner.about_branch(action, name, f"{action} BRANCH {name}")

    return Program(action.lower(), body, without_transaction=True, attempts=3)


def _read(rng: random.Random, tables: Sequence[str]) -> Program:
    """Return a program that reads a table of a branch or tag from main."""
    place, table = rng.random(), rng.choice(tables)

    def body(runner: Runner) -> None:
        name = _chosen(runner.branches(tags=True), place)
        if name is not None:
            runner.read_as_of(name, table)

    return Program("read", body, without_transaction=True)


_KINDS = {
    _fork: 3,
    _tag: 1,
    _work: 14,
    _on_main: 5,
    maintenance: 2,
    _vacuum: 3,
    _end: 11,
    _read: 2,
}


def _create(runner: Runner, rest: str) -> None:
    name = f"b{_plain(runner.tag)}"
    runner.about_branch("CREATE", name, f"CREATE BRANCH {name}{rest}")


def _chosen(names: Sequence[str], place: float) -> str | None:
    """Return one of the names; None if there are none."""
    return names[int(place * len(names))] if names else None


def _plain(tag: str) -> str:
    return tag.replace(".", "_")
