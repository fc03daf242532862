"""Transactions over lists, as statements on tables, and how they are recorded.

A table of these has the columns `k STRING, v BIGINT, list ARRAY<BIGINT>`. A list is

- one row, whose `list` has the elements (k is x or y): an UPDATE or a MERGE appends, so that two
  transactions change the same row;
- or the rows whose `v` are the elements (k is p or q): an INSERT appends. In which order is said by
  the table's log; while a run is recorded they are sorted, and `in_order` puts them right.

A statement that reads for its writes is an `INSERT ... SELECT` of the list into rows of the
transaction's own (k is seen:NUMBER), in the same table or in another one. What it saw is read there
afterwards: in another table once it is committed, as the transaction reads nothing of that table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.judge.histories import Access, Operation
from tests.judge.recorder import Recorder
from txlake.errors import Conflict, OutcomeUnknown, Unavailable

IN_A_ROW = ("x", "y")
IN_ROWS = ("p", "q")
COLUMNS = "(k STRING, v BIGINT, list ARRAY<BIGINT>)"
FIRST_ROWS = "VALUES ('x', NULL, array()), ('y', NULL, array())"


class Held(Protocol):
    """An open transaction."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Client(Protocol):
    """What a program needs of a session."""

    def begin(self, level: str) -> Any: ...

    def rows(self, transaction: Any | None, sql: str) -> Sequence[Mapping[str, Any]]:
        """What a statement answers, in the transaction or as one of its own."""
        ...


@dataclass(frozen=True)
class Table:
    """A table of lists: its name in keys, its name in statements."""

    name: str
    sql: str

    @property
    def lists(self) -> list[str]:
        return [f"{self.name}.{k}" for k in (*IN_A_ROW, *IN_ROWS)]


@dataclass(frozen=True)
class Plan:
    """A transaction before it is run.

    Attributes:
        number: no other transaction of the history has it; it is the element that this one appends.
        alone: a single statement without BEGIN and COMMIT.
    """

    number: int
    level: str
    accesses: Sequence[Access]
    alone: bool = False


def drawn(
    dice: random.Random,
    number: int,
    level: str,
    tables: Sequence[Table],
    *,
    alone: bool = False,
    blind: bool = True,
) -> Plan:
    """A small transaction over few keys: reads, and writes of other keys or of the same ones.

    Args:
        alone: whether a single access may be a statement without BEGIN.
        blind: whether it may be a blind append.
    """
    keys = [key for table in tables for key in table.lists]
    accesses: list[Access] = []
    for _ in range(dice.choice([1, 2, 2, 3])):
        key, what = dice.choice(keys), dice.random()
        if ("insert", key, number) in accesses:
            continue  # a row of its own has no place yet among those that others add meanwhile
        if what < 0.35:
            accesses.append(("r", key, None))
        elif what < 0.55:
            accesses.append(("rfw", key, None))
        elif all(kind[0] == "r" or of != key for kind, of, _ in accesses):
            accesses.append((_append_to(key), key, number))
    if not accesses or (not blind and {kind for kind, _, _ in accesses} == {"insert"}):
        accesses.append(("rfw", dice.choice(keys), None))
    single = len(accesses) == 1 and accesses[0][0] != "rfw"
    return Plan(number, level, accesses, single and alone and dice.random() < 0.5)


def _append_to(key: str) -> Any:
    return "append" if key[-1] in IN_A_ROW else "insert"


def everything(number: int, level: str, tables: Sequence[Table]) -> Plan:
    """The reader at the end."""
    return Plan(number, level, [("r", key, None) for table in tables for key in table.lists])


def carried_out(
    client: Client, recorder: Recorder, tables: Sequence[Table], plan: Plan
) -> Iterator[None]:
    """Runs one transaction; stops before each statement, and before COMMIT, for others to go on."""
    places = {table.name: table.sql for table in tables}
    recorder.began(plan.accesses, plan.level)
    transaction: Held | None = None
    done: list[Access] = []
    later: list[tuple[int, Callable[[], list[int]]]] = []
    try:
        if not plan.alone:
            transaction = client.begin(plan.level)
        for kind, key, element in plan.accesses:
            yield
            name, _, k = key.partition(".")
            into = _own_rows(plan, tables, name)
            statements = _Statements(client, transaction, places[name], k, plan.number, into)
            match kind:
                case "r":
                    done.append((kind, key, statements.select()))
                case "rfw":
                    own = statements.insert_select(len(done))
                    if into == places[name]:
                        done.append((kind, key, statements.seen(own)))
                    else:
                        afterwards = replace(statements, transaction=None)
                        later.append((len(done), partial(afterwards.seen, own)))
                        done.append((kind, key, None))
                case _:
                    statements.add(element)
                    done.append((kind, key, element))
        yield
        if transaction is not None:
            recorder.asked_to_commit()
            transaction.commit()
    except (Conflict, Unavailable):
        recorder.failed()
    except OutcomeUnknown:
        recorder.unknown()
    else:
        try:
            for place, seen in later:
                kind, key, _ = done[place]
                done[place] = (kind, key, seen())
        except Unavailable:
            recorder.unknown()  # what it saw is
        else:
            recorder.committed(done)


def _own_rows(plan: Plan, tables: Sequence[Table], name: str) -> str:
    """Which table takes what the plan reads of this one: for even numbers another, if there is."""
    found = [table.sql for table in tables if (table.name == name) == bool(plan.number % 2)]
    return found[0] if found else tables[0].sql


@dataclass(frozen=True)
class _Statements:
    client: Client
    transaction: Held | None
    table: str
    k: str
    number: int
    into: str

    def _rows(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.client.rows(self.transaction, sql)

    def select(self) -> list[int]:
        if self.k in IN_A_ROW:
            return _elements(self._rows(f"SELECT list FROM {self.table} WHERE k = '{self.k}'"))
        rows = self._rows(f"SELECT v FROM {self.table} WHERE k = '{self.k}'")
        return sorted(row["v"] for row in rows)

    def add(self, element: int) -> None:
        table, k = self.table, self.k
        if k in IN_ROWS:
            self._rows(f"INSERT INTO {table} VALUES ('{k}', {element}, NULL)")
        elif element % 3:
            self._rows(f"UPDATE {table} SET list = array_append(list, {element}L) WHERE k = '{k}'")
        else:
            self._rows(
                f"MERGE INTO {table} AS t USING (SELECT '{k}' AS k, {element}L AS v) AS s "
                "ON t.k = s.k WHEN MATCHED THEN UPDATE SET list = array_append(t.list, s.v)"
            )

    def insert_select(self, place: int) -> str:
        """The key of the rows that have what it read."""
        own = f"seen:{self.number}:{place}"
        self._rows(
            f"INSERT INTO {self.into} SELECT '{own}', v, list FROM {self.table} "
            f"WHERE k = '{self.k}'"
        )
        return own

    def seen(self, own: str) -> list[int]:
        rows = self._rows(f"SELECT v, list FROM {self.into} WHERE k = '{own}'")
        if self.k in IN_A_ROW:
            return _elements(rows)
        return sorted(row["v"] for row in rows)


def _elements(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Those of a list's row. Where there are two rows there are doubled elements, for the judge."""
    return [element for row in [*rows, *rows[:-1]] for element in row["list"]]


# What the logs say


def orders(tables: Mapping[str, str]) -> dict[str, list[int]]:
    """In which order the rows of each key came, as delta-rs reads version after version.

    Args:
        tables: the folders by their names in keys.
    """
    found: dict[str, list[int]] = {}
    for name, place in tables.items():
        last = DeltaTable(place)
        for version in range(last.version() + 1):
            last.load_as_version(version)
            rows = QueryBuilder().register("t", last)
            read = pa.table(rows.execute("SELECT k, v FROM t WHERE v IS NOT NULL").read_all())
            for row in read.to_pylist():
                if row["k"] in IN_ROWS:
                    order = found.setdefault(f"{name}.{row['k']}", [])
                    if row["v"] not in order:
                        order.append(row["v"])
    return found


def in_order(history: Sequence[Operation], orders: Mapping[str, Sequence[int]]) -> list[Operation]:
    """The history with its reads of rows in the order that the logs say."""

    def put_right(access: Sequence[Any]) -> Sequence[Any]:
        kind, key, seen = access
        if kind[0] != "r" or seen is None or key[-1] not in IN_ROWS:
            return access
        order = orders.get(key, ())
        # What no version has comes last: the judge says what that means.
        return (kind, key, sorted(seen, key=lambda v: order.index(v) if v in order else len(order)))

    return [
        {**one, "value": [put_right(access) for access in one["value"]]} if "value" in one else one
        for one in history
    ]


# One thing at a time


def interleaved(dice: random.Random, programs: Sequence[Iterator[None]]) -> None:
    """Runs programs in one thread: whose turn it is at each stop is drawn."""
    running = list(programs)
    while running:
        one = dice.choice(running)
        try:
            next(one)
        except StopIteration:
            running.remove(one)
