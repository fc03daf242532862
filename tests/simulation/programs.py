"""What the clients of a run do: banks, counters, lists, sets, skews, scans, upkeep, and anything.

A program is a function of a `Runner`: it is carried out by the engine, with decisions made from
what it reads. Each kind also says what has to be true of the rows at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from tests.simulation.history import Doubt, Record, Told
from tests.simulation.statements import (
    Add,
    Copy,
    Delete,
    Insert,
    Rows,
    Select,
    State,
    Statement,
    Upkeep,
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

    def do(self, statement: Statement) -> object:
        """Carries a statement out; a SELECT's rows."""
        ...

    def savepoint(self, name: str) -> None:
        """Marks this moment."""
        ...

    def back_to(self, name: str) -> None:
        """Undoes what was done since the mark."""
        ...

    def rest(self, duration_ms: float) -> None:
        """Does nothing for a while."""
        ...

    def pass_days(self, days: int) -> None:
        """So much time goes by at once, if no transaction is open that it would be wrong for."""
        ...

    def set_clock(self, hours: float) -> None:
        """Moves the time of day that everybody goes by; no time goes by."""
        ...

    def kill(self) -> None:
        """Ends somebody's open transaction."""
        ...

    def attach(self, name: str) -> None:
        """Makes the table in the warehouse's folder of that name one of the lake."""
        ...

    def detach(self, name: str) -> None:
        """Makes a table of the lake a path table."""
        ...

    def micro_batch(self) -> None:
        """Runs the stream's next micro-batch, or the one that was begun and not ended."""
        ...


Body = Callable[[Runner], None]


@dataclass(frozen=True, slots=True)
class Program:
    """A transaction to run.

    Attributes:
        alone: one statement that is its own transaction.
        outside: run without a transaction: VACUUM.
        attempts: how often it is tried when it loses.
    """

    name: str
    body: Body
    alone: bool = False
    outside: bool = False
    attempts: int = 2


MICRO_BATCH = Program("micro-batch", lambda runner: runner.micro_batch(), attempts=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The programs of one run.

    Attributes:
        initial: the tables and their rows.
        clients: each client's programs, in order.
        level: of those that ask for none in particular.
        check: raises Doubt unless the rows at the end are right, given what stands.
        may_be_refused: whether a statement may find its table gone, or another one.
        streams_into: the tables that the stream writes, where there is one.
    """

    kind: str
    initial: State
    clients: Sequence[Sequence[Program]]
    level: Level
    check: Callable[[State, Sequence[Record]], None]
    may_be_refused: bool = False
    streams_into: tuple[str, ...] = ()


def unchecked(state: State, records: Sequence[Record]) -> None:
    """What holds for all programs is enough."""


def _read(runner: Runner, table: str, *keys: int) -> Rows:
    return cast(Rows, runner.do(Select(table, Where(keys))))


def _accounts(tables: Sequence[str], keys: int, value: int) -> dict[str, Rows]:
    return {table: tuple((key, value, f"{table}{key}") for key in range(keys)) for table in tables}


# The kinds


def bank(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Money moves between accounts of several tables; the sum never changes."""
    initial = _accounts(tables, 3, 100)
    total = 300 * len(tables)
    places = [(table, key) for table in tables for key in range(3)]

    def transfer() -> Program:
        (source, one), (target, other) = chance.sample(places, 2)
        amount = chance.randint(1, 60)

        def body(runner: Runner) -> None:
            ((_, has, _),) = _read(runner, source, one)
            if has >= amount:
                runner.do(Add(source, -amount, Where((one,))))
                runner.do(Add(target, amount, Where((other,))))

        return Program("transfer", body)

    def count(runner: Runner) -> None:
        found = sum(row[1] for table in tables for row in _read(runner, table))
        if found != total:
            raise Doubt(f"the bank has {found}, expected {total}")

    def one_program() -> Program:
        return transfer() if chance.random() < 0.8 else Program("count", count)

    def check(state: State, records: Sequence[Record]) -> None:
        found = sum(row[1] for rows in state.values() for row in rows)
        if found != total:
            raise Doubt(f"the bank ends with {found}, expected {total}")

    return Plan("bank", initial, _clients(chance, one_program), any_level(chance), check)


def skew(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Each takes from one account as long as both together allow it."""
    initial: State = {table: ((0, 50, f"{table}0"), (1, 50, f"{table}1")) for table in tables}
    places = [(table, key) for table in tables for key in (0, 1)]
    level = any_level(chance)
    least = 80

    def withdraw() -> Program:
        table, key = chance.choice(places)

        def body(runner: Runner) -> None:
            if sum(row[1] for each in tables for row in _read(runner, each)) >= least:
                runner.do(Add(table, -least, Where((key,))))

        return Program("withdraw", body)

    def check(state: State, records: Sequence[Record]) -> None:
        found = sum(row[1] for rows in state.values() for row in rows)
        if level is Level.SERIALIZABLE and found < 0:
            raise Doubt(f"write skew: the accounts together end with {found}")

    return Plan("write skew", initial, _clients(chance, withdraw), level, check)


def lists(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Each appends to a list what it finds to be the next place."""
    initial: State = dict.fromkeys(tables, ())
    level = any_level(chance)

    def append() -> Program:
        key, table = chance.randrange(2), chance.choice(tables)

        def body(runner: Runner) -> None:
            place = len(_read(runner, table, key))
            runner.do(Insert(table, ((key, place, runner.tag),)))

        return Program("append", body)

    def check(state: State, records: Sequence[Record]) -> None:
        if level is not Level.SERIALIZABLE:
            return
        for table, rows in state.items():
            for key in (0, 1):
                places = sorted(row[1] for row in rows if row[0] == key)
                if places != list(range(len(places))):
                    raise Doubt(f"{table}: list {key} has the places {places}")

    return Plan("list-append", initial, _clients(chance, append), level, check)


def sets(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Rows are only added, with no look at others: none ever conflicts, none is lost."""
    initial: State = dict.fromkeys(tables, ())

    def add() -> Program:
        wanted = chance.sample(tables, chance.randint(1, len(tables)))
        count = chance.randint(1, 2)

        def body(runner: Runner) -> None:
            for table in wanted:
                runner.do(Insert(table, tuple((n, 1, f"{runner.tag}-{n}") for n in range(count))))

        return Program("add", body, alone=len(wanted) == 1 and chance.random() < 0.4)

    def check(state: State, records: Sequence[Record]) -> None:
        lost = [one for one in records if one.told is Told.CONFLICT]
        if lost:
            raise Doubt(f"an insert without a read lost: {lost[0].error}")

    return Plan("set-add", initial, _clients(chance, add), any_level(chance), check)


def counters(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Hot rows are counted up: each increment that stands is in the sum."""
    initial = _accounts(tables, 2, 0)

    def increment() -> Program:
        table, key = chance.choice(tables), chance.randrange(2)
        is_merge = chance.random() < 0.3

        def body(runner: Runner) -> None:
            if is_merge:
                runner.do(Upsert(table, key, 1, runner.tag))
            else:
                runner.do(Add(table, 1, Where((key,))))

        return Program("increment", body, alone=chance.random() < 0.4, attempts=4)

    return Plan("counters", initial, _clients(chance, increment), any_level(chance), unchecked)


def scans(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Long readers look twice at everything while others write and compact."""
    initial = _accounts(tables, 3, 10)

    def scan(runner: Runner) -> None:
        first = [_read(runner, table) for table in tables]
        runner.rest(chance.choice([5, 500, 20_000]))
        if [_read(runner, table) for table in tables] != first:
            raise Doubt("a transaction read two states of a table")

    def one_program() -> Program:
        kind = chance.random()
        if kind < 0.35:
            return Program("scan", scan)
        if kind < 0.55:
            return upkeep(chance, tables)
        return _anything(chance, tables)

    clients = _clients(chance, one_program)
    return Plan("long scans", initial, clients, any_level(chance), unchecked)


def compactors(chance: random.Random, tables: Sequence[str]) -> Plan:
    """OPTIMIZE and REORG beside those who change single rows: those never lose to them."""
    initial = _accounts(tables, 4, 10)

    def one_program() -> Program:
        kind = chance.random()
        if kind < 0.4:
            return upkeep(chance, tables)
        table, key = chance.choice(tables), chance.randrange(4)
        where = Where((key,))

        def body(runner: Runner) -> None:
            if kind < 0.7:
                runner.do(Add(table, 1, where))
            elif kind < 0.85:
                runner.do(Delete(table, where))
            else:
                runner.do(Insert(table, ((key, 7, runner.tag),)))

        return Program("change", body, alone=chance.random() < 0.5)

    clients = _clients(chance, one_program)
    return Plan("compactors", initial, clients, any_level(chance), unchecked)


def anything(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Every kind of statement, with savepoints."""
    initial = _accounts(tables, 3, 10)

    def one_program() -> Program:
        if chance.random() < 0.07:
            return Program("kill", lambda runner: runner.kill(), outside=True)
        return upkeep(chance, tables) if chance.random() < 0.1 else _anything(chance, tables)

    return Plan("anything", initial, _clients(chance, one_program), any_level(chance), unchecked)


def vacuums(chance: random.Random, tables: Sequence[str]) -> Plan:
    """VACUUM that keeps nothing, beside transactions that it has to leave their files."""
    initial = _accounts(tables, 3, 10)

    def one_program() -> Program:
        kind = chance.random()
        if kind < 0.25:
            table = chance.choice(tables)
            statement = Upkeep(table, "VACUUM {} RETAIN 0 HOURS")
            return Program("vacuum", lambda runner: _do(runner, statement), outside=True)
        if kind < 0.4:
            return upkeep(chance, tables)
        return _anything(chance, tables)

    clients = _clients(chance, one_program)
    return Plan("vacuum", initial, clients, any_level(chance), unchecked)


def clocks(chance: random.Random, tables: Sequence[str]) -> Plan:
    """The clock is set by hours in the middle of transactions, and VACUUM keeps nothing."""
    initial = _accounts(tables, 3, 10)

    def cleaning() -> list[Program]:
        table, rest_ms = chance.choice(tables), chance.choice([0, 30, 300])
        change = _statement(chance, tables)
        statement = Upkeep(table, "VACUUM {} RETAIN 0 HOURS")

        def clean(runner: Runner) -> None:
            runner.rest(rest_ms)
            runner.do(statement)

        return [
            Program("change", lambda runner: _do(runner, change(runner.tag)), alone=True),
            Program("upkeep", lambda runner: _do(runner, Upkeep(table, "OPTIMIZE {}")), alone=True),
            Program("vacuum", clean, outside=True),
        ]

    def reading() -> Program:
        by = chance.choice([-5, 5])

        def scan(runner: Runner) -> None:
            first = [_read(runner, table) for table in tables]
            runner.set_clock(by)
            runner.rest(1_000)
            if [_read(runner, table) for table in tables] != first:
                raise Doubt("a transaction read two states of a table")

        return Program("scan", scan)

    def changing() -> Program:
        makers = [_statement(chance, tables) for _ in range(3)]
        hours = [chance.choice([-5, -1, 0, 1, 5]) for _ in makers]
        rests_ms = [chance.choice([0, 30, 300]) for _ in makers]

        def body(runner: Runner) -> None:
            for make, by, rest_ms in zip(makers, hours, rests_ms):
                runner.do(make(runner.tag))
                if by:
                    runner.set_clock(by)
                runner.rest(rest_ms)

        return Program("change", body)

    clients = [
        [*cleaning(), *cleaning()],
        [reading() if chance.random() < 0.4 else changing() for _ in range(2)],
        [changing() for _ in range(2)],
    ]
    return Plan("clocks", initial, clients, any_level(chance), unchecked)


def ages(chance: random.Random, tables: Sequence[str]) -> Plan:
    """Weeks go by between statements: files and logs expire, and are cleaned up."""
    initial = _accounts(tables, 3, 10)

    def one_program() -> Program:
        kind = chance.random()
        if kind < 0.3:
            days = chance.choice([1, 8, 31, 45])
            return Program("wait", lambda runner: runner.pass_days(days), outside=True)
        if kind < 0.45:
            statement = Upkeep(chance.choice(tables), "VACUUM {}")
            return Program("vacuum", lambda runner: _do(runner, statement), outside=True)
        return upkeep(chance, tables) if kind < 0.6 else _anything(chance, tables)

    clients = [*_clients(chance, one_program), *_clients(chance, one_program)]
    return Plan("ages", initial, clients, any_level(chance), unchecked, may_be_refused=True)


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
OF_LAKES: Sequence[Callable[[random.Random, Sequence[str]], Plan]] = (*KINDS, vacuums, clocks)


# Their parts


def _do(runner: Runner, statement: Statement) -> None:
    runner.do(statement)


def upkeep(chance: random.Random, tables: Sequence[str]) -> Program:
    """A statement that changes no row of one of the tables."""
    statement = Upkeep(
        chance.choice(tables),
        chance.choice(["OPTIMIZE {}", "OPTIMIZE {} ZORDER BY (v)", "REORG TABLE {} APPLY (PURGE)"]),
    )
    return Program("upkeep", lambda runner: _do(runner, statement), alone=True)


def _anything(chance: random.Random, tables: Sequence[str]) -> Program:
    makers = [_statement(chance, tables) for _ in range(chance.randint(1, 4))]
    has_savepoint = len(makers) > 1 and chance.random() < 0.25
    rest_ms = chance.choice([0, 0, 0, 3, 300, 15_000])

    def body(runner: Runner) -> None:
        for place, make in enumerate(makers):
            if has_savepoint and place == 1:
                runner.savepoint("s")
            runner.do(make(runner.tag))
            if rest_ms and place == 0:
                runner.rest(rest_ms)
        if has_savepoint:
            runner.back_to("s")
            runner.do(makers[-1](runner.tag))

    return Program("anything", body, alone=len(makers) == 1 and chance.random() < 0.5)


def _statement(chance: random.Random, tables: Sequence[str]) -> Callable[[str], Statement]:
    table, key = chance.choice(tables), chance.randrange(4)
    change = chance.choice([-3, -1, 1, 2, 5])
    where = chance.choice(
        [Where((key,)), Where((key,)), Where((key, (key + 1) % 4)), Where((), 8), Where((key,), 9)]
    )
    other = chance.choice(tables)
    kinds: Sequence[Callable[[str], Statement]] = (
        lambda tag: Insert(table, ((key, 10, tag),)),
        lambda tag: Insert(table, ((key, 12, tag), ((key + 1) % 4, 3, tag))),
        lambda tag: Add(table, change, where),
        lambda tag: Add(table, change, where, tag),
        lambda tag: Delete(table, where),
        lambda tag: Upsert(table, key, change, tag),
        lambda tag: Copy(table, other, Where((key,))),
        lambda tag: Select(table, where),
        lambda tag: Select(table),
    )
    return chance.choice(kinds)


def any_level(chance: random.Random) -> Level:
    return chance.choice(list(Level))


def _clients(chance: random.Random, program: Callable[[], Program]) -> list[list[Program]]:
    return [[program() for _ in range(chance.randint(1, 2))] for _ in range(chance.randint(2, 3))]
