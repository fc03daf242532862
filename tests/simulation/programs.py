"""The programs of a run's clients, in kinds such as bank, counters, write skew and VACUUM.

A program is a function of a `Runner`: the engine carries out its statements, and it decides by what
it reads. Each kind also checks the rows at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from tests.simulation.records import Record, ReportedOutcome, Violation
from tests.simulation.statements import (
    Delete,
    Increment,
    Insert,
    InsertSelect,
    Maintenance,
    Rows,
    Select,
    State,
    Statement,
    Upsert,
    Where,
)
from txlake.conflict.levels import Level


class Runner(Protocol):
    """One transaction in the hands of a program."""

    @property
    def tag(self) -> str:
        """A text that no other transaction has."""
        ...

    def execute(self, statement: Statement) -> object:
        """Execute a statement; return the rows of a SELECT."""
        ...

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        ...

    def rollback_to(self, name: str) -> None:
        """Roll back to a savepoint."""
        ...

    def wait(self, duration_ms: float) -> None:
        """Do nothing for a time."""
        ...

    def advance_days(self, days: int) -> None:
        """Advance the time by days at once, unless an open transaction forbids it."""
        ...

    def set_clock(self, hours: float) -> None:
        """Shift the time of day of all processes; true time stays."""
        ...

    def kill(self) -> None:
        """End an open transaction of any client."""
        ...

    def attach(self, name: str) -> None:
        """Attach the table in the folder of this name to the lake."""
        ...

    def detach(self, name: str) -> None:
        """Detach a table of the lake, which leaves a path table."""
        ...

    def micro_batch(self) -> None:
        """Run the stream's next micro-batch, or repeat an unfinished one."""
        ...

    def branches(self, *, tags: bool = False) -> Sequence[str]:
        """Return the names of the branches, and of the tags too if these are wanted."""
        ...

    def use_branch(self, name: str) -> None:
        """Let the transaction's statements run on a branch."""
        ...

    def about_branch(self, action: str, name: str, text: str) -> None:
        """Execute a statement about a branch, and record what it told."""
        ...

    def read_as_of(self, name: str, table: str) -> None:
        """Read a table as of a branch or tag, and record its rows."""
        ...


Body = Callable[[Runner], None]


@dataclass(frozen=True, slots=True)
class Program:
    """A transaction to run.

    Attributes:
        autocommit: one statement outside BEGIN.
        without_transaction: several statements outside BEGIN, such as VACUUM.
        attempts: how often it is tried while it conflicts.
    """

    name: str
    body: Body
    autocommit: bool = False
    without_transaction: bool = False
    attempts: int = 2


MICRO_BATCH = Program("micro-batch", lambda runner: runner.micro_batch(), attempts=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The programs of one run.

    Attributes:
        initial: the tables and their rows.
        clients: each client's programs, in order.
        level: the isolation level of all transactions.
        check: raises Violation unless the rows at the end are right.
        may_be_refused: a statement may find its table dropped or replaced.
        streams_into: the tables that the stream writes; empty without a stream.
    """

    kind: str
    initial: State
    clients: Sequence[Sequence[Program]]
    level: Level
    check: Callable[[State, Sequence[Record]], None]
    may_be_refused: bool = False
    streams_into: tuple[str, ...] = ()


def check_nothing(state: State, records: Sequence[Record]) -> None:
    """Check nothing beyond what the audit checks for all programs."""


def _read(runner: Runner, table: str, *keys: int) -> Rows:
    return cast(Rows, runner.execute(Select(table, Where(keys))))


def accounts(tables: Sequence[str], keys: int, value: int) -> dict[str, Rows]:
    """Return rows for each table: one of each key, with the value."""
    return {table: tuple((key, value, f"{table}{key}") for key in range(keys)) for table in tables}


# The kinds of programs


def bank(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Money moves between accounts of several tables; the sum never changes."""
    initial = accounts(tables, 3, 100)
    total = 300 * len(tables)
    places = [(table, key) for table in tables for key in range(3)]

    def transfer() -> Program:
        (source, one), (target, other) = rng.sample(places, 2)
        amount = rng.randint(1, 60)

        def body(runner: Runner) -> None:
            ((_, has, _),) = _read(runner, source, one)
            if has >= amount:
                runner.execute(Increment(source, -amount, Where((one,))))
                runner.execute(Increment(target, amount, Where((other,))))

        return Program("transfer", body)

    def count(runner: Runner) -> None:
        total_read = sum(row[1] for table in tables for row in _read(runner, table))
        if total_read != total:
            raise Violation(f"the bank has {total_read}, expected {total}")

    def random_program() -> Program:
        return transfer() if rng.random() < 0.8 else Program("count", count)

    def check(state: State, records: Sequence[Record]) -> None:
        total_read = sum(row[1] for rows in state.values() for row in rows)
        if total_read != total:
            raise Violation(f"the bank ends with {total_read}, expected {total}")

    return Plan("bank", initial, _clients(rng, random_program), random_level(rng), check)


def skew(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Each client withdraws from one account as long as both accounts together allow it: write
    skew.
    """
    initial: State = {table: ((0, 50, f"{table}0"), (1, 50, f"{table}1")) for table in tables}
    places = [(table, key) for table in tables for key in (0, 1)]
    level = random_level(rng)
    minimum = 80

    def withdraw() -> Program:
        table, key = rng.choice(places)

        def body(runner: Runner) -> None:
            if sum(row[1] for each in tables for row in _read(runner, each)) >= minimum:
                runner.execute(Increment(table, -minimum, Where((key,))))

        return Program("withdraw", body)

    def check(state: State, records: Sequence[Record]) -> None:
        total_read = sum(row[1] for rows in state.values() for row in rows)
        if level is Level.SERIALIZABLE and total_read < 0:
            raise Violation(f"write skew: the accounts together end with {total_read}")

    return Plan("write skew", initial, _clients(rng, withdraw), level, check)


def lists(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Each client appends to a list at the next position that it reads."""
    initial: State = dict.fromkeys(tables, ())
    level = random_level(rng)

    def append() -> Program:
        key, table = rng.randrange(2), rng.choice(tables)

        def body(runner: Runner) -> None:
            place = len(_read(runner, table, key))
            runner.execute(Insert(table, ((key, place, runner.tag),)))

        return Program("append", body)

    def check(state: State, records: Sequence[Record]) -> None:
        if level is not Level.SERIALIZABLE:
            return
        for table, rows in state.items():
            for key in (0, 1):
                places = sorted(row[1] for row in rows if row[0] == key)
                if places != list(range(len(places))):
                    raise Violation(f"{table}: list {key} has the places {places}")

    return Plan("list-append", initial, _clients(rng, append), level, check)


def sets(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Insert that read nothing: none conflicts, none is lost."""
    initial: State = dict.fromkeys(tables, ())

    def add() -> Program:
        wanted = rng.sample(tables, rng.randint(1, len(tables)))
        count = rng.randint(1, 2)

        def body(runner: Runner) -> None:
            for table in wanted:
                runner.execute(
                    Insert(table, tuple((n, 1, f"{runner.tag}-{n}") for n in range(count)))
                )

        return Program("add", body, autocommit=len(wanted) == 1 and rng.random() < 0.4)

    def check(state: State, records: Sequence[Record]) -> None:
        conflicts = [one for one in records if one.outcome is ReportedOutcome.CONFLICT]
        if conflicts:
            raise Violation(f"an insert without a read lost: {conflicts[0].error}")

    return Plan("set-add", initial, _clients(rng, add), random_level(rng), check)


def counters(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Hot rows are incremented; the sum contains every committed increment."""
    initial = accounts(tables, 2, 0)

    def increment() -> Program:
        table, key = rng.choice(tables), rng.randrange(2)
        is_merge = rng.random() < 0.3

        def body(runner: Runner) -> None:
            if is_merge:
                runner.execute(Upsert(table, key, 1, runner.tag))
            else:
                runner.execute(Increment(table, 1, Where((key,))))

        return Program("increment", body, autocommit=rng.random() < 0.4, attempts=4)

    return Plan("counters", initial, _clients(rng, increment), random_level(rng), check_nothing)


def scans(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Long transactions read everything twice while others write and compact."""
    initial = accounts(tables, 3, 10)

    def scan(runner: Runner) -> None:
        first = [_read(runner, table) for table in tables]
        runner.wait(rng.choice([5, 500, 20_000]))
        if [_read(runner, table) for table in tables] != first:
            raise Violation("a transaction read two states of a table")

    def random_program() -> Program:
        kind = rng.random()
        if kind < 0.35:
            return Program("scan", scan)
        if kind < 0.55:
            return maintenance(rng, tables)
        return _anything(rng, tables)

    clients = _clients(rng, random_program)
    return Plan("long scans", initial, clients, random_level(rng), check_nothing)


def compactors(rng: random.Random, tables: Sequence[str]) -> Plan:
    """OPTIMIZE and REORG beside changes of single rows, which never conflict with them."""
    initial = accounts(tables, 4, 10)

    def random_program() -> Program:
        kind = rng.random()
        if kind < 0.4:
            return maintenance(rng, tables)
        table, key = rng.choice(tables), rng.randrange(4)
        where = Where((key,))

        def body(runner: Runner) -> None:
            if kind < 0.7:
                runner.execute(Increment(table, 1, where))
            elif kind < 0.85:
                runner.execute(Delete(table, where))
            else:
                runner.execute(Insert(table, ((key, 7, runner.tag),)))

        return Program("change", body, autocommit=rng.random() < 0.5)

    clients = _clients(rng, random_program)
    return Plan("compactors", initial, clients, random_level(rng), check_nothing)


def anything(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Every kind of statement, with savepoints."""
    initial = accounts(tables, 3, 10)

    def random_program() -> Program:
        if rng.random() < 0.07:
            return Program("kill", lambda runner: runner.kill(), without_transaction=True)
        return maintenance(rng, tables) if rng.random() < 0.1 else _anything(rng, tables)

    return Plan(
        "anything", initial, _clients(rng, random_program), random_level(rng), check_nothing
    )


def vacuums(rng: random.Random, tables: Sequence[str]) -> Plan:
    """VACUUM without retention, beside transactions that still need their files."""
    initial = accounts(tables, 3, 10)

    def random_program() -> Program:
        kind = rng.random()
        if kind < 0.25:
            table = rng.choice(tables)
            statement = Maintenance(table, "VACUUM {} RETAIN 0 HOURS")
            return Program(
                "vacuum", lambda runner: execute(runner, statement), without_transaction=True
            )
        if kind < 0.4:
            return maintenance(rng, tables)
        return _anything(rng, tables)

    clients = _clients(rng, random_program)
    return Plan("vacuum", initial, clients, random_level(rng), check_nothing)


def clocks(rng: random.Random, tables: Sequence[str]) -> Plan:
    """The clock is set by hours within transactions, beside VACUUM without retention."""
    initial = accounts(tables, 3, 10)

    def cleaning() -> list[Program]:
        table, rest_ms = rng.choice(tables), rng.choice([0, 30, 300])
        change = random_statement(rng, tables)
        statement = Maintenance(table, "VACUUM {} RETAIN 0 HOURS")

        def clean(runner: Runner) -> None:
            runner.wait(rest_ms)
            runner.execute(statement)

        return [
            Program("change", lambda runner: execute(runner, change(runner.tag)), autocommit=True),
            Program(
                "upkeep",
                lambda runner: execute(runner, Maintenance(table, "OPTIMIZE {}")),
                autocommit=True,
            ),
            Program("vacuum", clean, without_transaction=True),
        ]

    def reading() -> Program:
        by = rng.choice([-5, 5])

        def scan(runner: Runner) -> None:
            first = [_read(runner, table) for table in tables]
            runner.set_clock(by)
            runner.wait(1_000)
            if [_read(runner, table) for table in tables] != first:
                raise Violation("a transaction read two states of a table")

        return Program("scan", scan)

    def changing() -> Program:
        makers = [random_statement(rng, tables) for _ in range(3)]
        hours = [rng.choice([-5, -1, 0, 1, 5]) for _ in makers]
        rests_ms = [rng.choice([0, 30, 300]) for _ in makers]

        def body(runner: Runner) -> None:
            for make, by, rest_ms in zip(makers, hours, rests_ms):
                runner.execute(make(runner.tag))
                if by:
                    runner.set_clock(by)
                runner.wait(rest_ms)

        return Program("change", body)

    clients = [
        [*cleaning(), *cleaning()],
        [reading() if rng.random() < 0.4 else changing() for _ in range(2)],
        [changing() for _ in range(2)],
    ]
    return Plan("clocks", initial, clients, random_level(rng), check_nothing)


def ages(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Weeks pass between statements: files and logs expire and are cleaned up."""
    initial = accounts(tables, 3, 10)

    def random_program() -> Program:
        kind = rng.random()
        if kind < 0.3:
            days = rng.choice([1, 8, 31, 45])
            return Program(
                "wait", lambda runner: runner.advance_days(days), without_transaction=True
            )
        if kind < 0.45:
            statement = Maintenance(rng.choice(tables), "VACUUM {}")
            return Program(
                "vacuum", lambda runner: execute(runner, statement), without_transaction=True
            )
        return maintenance(rng, tables) if kind < 0.6 else _anything(rng, tables)

    clients = [*_clients(rng, random_program), *_clients(rng, random_program)]
    return Plan("ages", initial, clients, random_level(rng), check_nothing, may_be_refused=True)


KINDS: Sequence[Callable[[random.Random, Sequence[str]], Plan]] = (
    bank,
    skew,
    lists,
    sets,
    counters,
    scans,
    compactors,
    anything,
    ages,
)
LAKE_KINDS: Sequence[Callable[[random.Random, Sequence[str]], Plan]] = (*KINDS, vacuums, clocks)


# Parts of programs


def execute(runner: Runner, statement: Statement) -> None:
    """Execute a statement whose rows nobody wants."""
    runner.execute(statement)


def maintenance(rng: random.Random, tables: Sequence[str]) -> Program:
    """Return a program with one statement that changes no row."""
    statement = Maintenance(
        rng.choice(tables),
        rng.choice(["OPTIMIZE {}", "OPTIMIZE {} ZORDER BY (v)", "REORG TABLE {} APPLY (PURGE)"]),
    )
    return Program("upkeep", lambda runner: execute(runner, statement), autocommit=True)


def _anything(rng: random.Random, tables: Sequence[str]) -> Program:
    makers = [random_statement(rng, tables) for _ in range(rng.randint(1, 4))]
    has_savepoint = len(makers) > 1 and rng.random() < 0.25
    rest_ms = rng.choice([0, 0, 0, 3, 300, 15_000])

    def body(runner: Runner) -> None:
        for place, make in enumerate(makers):
            if has_savepoint and place == 1:
                runner.savepoint("s")
            runner.execute(make(runner.tag))
            if rest_ms and place == 0:
                runner.wait(rest_ms)
        if has_savepoint:
            runner.rollback_to("s")
            runner.execute(makers[-1](runner.tag))

    return Program("anything", body, autocommit=len(makers) == 1 and rng.random() < 0.5)


def random_statement(rng: random.Random, tables: Sequence[str]) -> Callable[[str], Statement]:
    """Return a function that makes a statement with a transaction's tag."""
    table, key = rng.choice(tables), rng.randrange(4)
    change = rng.choice([-3, -1, 1, 2, 5])
    where = rng.choice(
        [Where((key,)), Where((key,)), Where((key, (key + 1) % 4)), Where((), 8), Where((key,), 9)]
    )
    other = rng.choice(tables)
    kinds: Sequence[Callable[[str], Statement]] = (
        lambda tag: Insert(table, ((key, 10, tag),)),
        lambda tag: Insert(table, ((key, 12, tag), ((key + 1) % 4, 3, tag))),
        lambda tag: Increment(table, change, where),
        lambda tag: Increment(table, change, where, tag),
        lambda tag: Delete(table, where),
        lambda tag: Upsert(table, key, change, tag),
        lambda tag: InsertSelect(table, other, Where((key,))),
        lambda tag: Select(table, where),
        lambda tag: Select(table),
    )
    return rng.choice(kinds)


def random_level(rng: random.Random) -> Level:
    return rng.choice(list(Level))


def _clients(rng: random.Random, program: Callable[[], Program]) -> list[list[Program]]:
    return [[program() for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(2, 3))]
