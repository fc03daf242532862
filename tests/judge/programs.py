"""Transactions over lists, as statements on tables, and how they are recorded.

A table has the columns `k STRING, v BIGINT, list ARRAY<BIGINT>`. A list is

- one row, whose `list` has the elements (k is x or y): an UPDATE or a MERGE appends, so that two
  transactions change the same row;
- or the rows whose `v` are the elements (k is p or q): an INSERT appends. The table's log knows
  their order; they are recorded sorted, and `with_row_order` corrects that.

A statement that reads for its writes is an `INSERT ... SELECT` of the list into rows of the
transaction's own (k is seen:NUMBER), in the same table or in another one. Its result is read back
from these rows, in another table only after the commit, because the transaction must read nothing
of that table.
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

ONE_ROW_LISTS = ("x", "y")
ROW_LISTS = ("p", "q")
COLUMNS = "(k STRING, v BIGINT, list ARRAY<BIGINT>)"
FIRST_ROWS = "VALUES ('x', NULL, array()), ('y', NULL, array())"


class OpenTransaction(Protocol):
    """An open transaction."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Client(Protocol):
    """A session as programs use it."""

    def begin(self, level: str) -> Any: ...

    def rows(self, transaction: Any | None, sql: str) -> Sequence[Mapping[str, Any]]:
        """Execute a statement in the transaction, or as one of its own; return its rows."""
        ...


@dataclass(frozen=True)
class Table:
    """A table of lists: its name in keys, and its name in SQL."""

    name: str
    sql: str

    @property
    def lists(self) -> list[str]:
        return [f"{self.name}.{k}" for k in (*ONE_ROW_LISTS, *ROW_LISTS)]


@dataclass(frozen=True)
class Plan:
    """A transaction before it is run.

    Attributes:
        number: unique in the history; also the element that the transaction appends.
        autocommit: a single statement without BEGIN and COMMIT.
    """

    number: int
    level: str
    accesses: Sequence[Access]
    autocommit: bool = False


def random_plan(
    rng: random.Random,
    number: int,
    level: str,
    tables: Sequence[Table],
    *,
    autocommit: bool = False,
    allows_blind_appends: bool = True,
) -> Plan:
    """Return a random small transaction over few keys: reads and writes of the same or other keys.

    Args:
        autocommit: a single access may be a statement without BEGIN.
        allows_blind_appends: the transaction may be a blind append.
    """
    keys = [key for table in tables for key in table.lists]
    accesses: list[Access] = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        key, draw = rng.choice(keys), rng.random()
        if ("insert", key, number) in accesses:
            continue  # its own new row has no position in the list before the commit
        if draw < 0.35:
            accesses.append(("r", key, None))
        elif draw < 0.55:
            accesses.append(("rfw", key, None))
        elif all(kind[0] == "r" or other != key for kind, other, _ in accesses):
            accesses.append((_append_to(key), key, number))
    if not accesses or (
        not allows_blind_appends and {kind for kind, _, _ in accesses} == {"insert"}
    ):
        accesses.append(("rfw", rng.choice(keys), None))
    is_single = len(accesses) == 1 and accesses[0][0] != "rfw"
    return Plan(number, level, accesses, is_single and autocommit and rng.random() < 0.5)


def _append_to(key: str) -> Any:
    return "append" if key[-1] in ONE_ROW_LISTS else "insert"


def plan_to_read_all(number: int, level: str, tables: Sequence[Table]) -> Plan:
    """Return a plan that reads every list."""
    return Plan(number, level, [("r", key, None) for table in tables for key in table.lists])


def run_plan(
    client: Client, recorder: Recorder, tables: Sequence[Table], plan: Plan
) -> Iterator[None]:
    """Run one transaction, and pause before each statement and before COMMIT."""
    places = {table.name: table.sql for table in tables}
    recorder.record_begin(plan.accesses, plan.level)
    transaction: OpenTransaction | None = None
    done: list[Access] = []
    deferred: list[tuple[int, Callable[[], list[int]]]] = []
    try:
        if not plan.autocommit:
            transaction = client.begin(plan.level)
        for kind, key, element in plan.accesses:
            yield
            name, _, k = key.partition(".")
            into = _result_table(plan, tables, name)
            statements = _Statements(client, transaction, places[name], k, plan.number, into)
            match kind:
                case "r":
                    done.append((kind, key, statements.select()))
                case "rfw":
                    result_key = statements.insert_select(len(done))
                    if into == places[name]:
                        done.append((kind, key, statements.read_back(result_key)))
                    else:
                        afterwards = replace(statements, transaction=None)
                        deferred.append((len(done), partial(afterwards.read_back, result_key)))
                        done.append((kind, key, None))
                case _:
                    statements.append(element)
                    done.append((kind, key, element))
        yield
        if transaction is not None:
            recorder.record_commit_request()
            transaction.commit()
    except (Conflict, Unavailable):
        recorder.record_failed()
    except OutcomeUnknown:
        recorder.record_unknown()
    else:
        try:
            for place, read in deferred:
                kind, key, _ = done[place]
                done[place] = (kind, key, read())
        except Unavailable:
            recorder.record_unknown()  # it committed, but the results of its reads are unknown
        else:
            recorder.record_committed(done)


def _result_table(plan: Plan, tables: Sequence[Table], name: str) -> str:
    """Return the table for the plan's results of reading a table: for even numbers another
    table.
    """
    others = [table.sql for table in tables if (table.name == name) == bool(plan.number % 2)]
    return others[0] if others else tables[0].sql


@dataclass(frozen=True)
class _Statements:
    client: Client
    transaction: OpenTransaction | None
    table: str
    k: str
    number: int
    into: str

    def _rows(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.client.rows(self.transaction, sql)

    def select(self) -> list[int]:
        if self.k in ONE_ROW_LISTS:
            return _elements(self._rows(f"SELECT list FROM {self.table} WHERE k = '{self.k}'"))
        rows = self._rows(f"SELECT v FROM {self.table} WHERE k = '{self.k}'")
        return sorted(row["v"] for row in rows)

    def append(self, element: int) -> None:
        table, k = self.table, self.k
        if k in ROW_LISTS:
            self._rows(f"INSERT INTO {table} VALUES ('{k}', {element}, NULL)")
        elif element % 3:
            self._rows(f"UPDATE {table} SET list = array_append(list, {element}L) WHERE k = '{k}'")
        else:
            self._rows(
                f"MERGE INTO {table} AS t USING (SELECT '{k}' AS k, {element}L AS v) AS s "
                "ON t.k = s.k WHEN MATCHED THEN UPDATE SET list = array_append(t.list, s.v)"
            )

    def insert_select(self, place: int) -> str:
        """Insert what is read into own rows; return their key."""
        own = f"seen:{self.number}:{place}"
        self._rows(
            f"INSERT INTO {self.into} SELECT '{own}', v, list FROM {self.table} "
            f"WHERE k = '{self.k}'"
        )
        return own

    def read_back(self, own: str) -> list[int]:
        rows = self._rows(f"SELECT v, list FROM {self.into} WHERE k = '{own}'")
        if self.k in ONE_ROW_LISTS:
            return _elements(rows)
        return sorted(row["v"] for row in rows)


def _elements(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the elements of a list's row; two rows give doubled elements, which the judge
    finds.
    """
    return [element for row in [*rows, *rows[:-1]] for element in row["list"]]


# The order of rows by the logs


def row_orders(tables: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the order in which each key's rows were added, read version by version by delta-rs.

    `tables`: the folders by their names in keys.
    """
    orders: dict[str, list[int]] = {}
    for name, place in tables.items():
        last = DeltaTable(place)
        for version in range(last.version() + 1):
            last.load_as_version(version)
            rows = QueryBuilder().register("t", last)
            read = pa.table(rows.execute("SELECT k, v FROM t WHERE v IS NOT NULL").read_all())
            for row in read.to_pylist():
                if row["k"] in ROW_LISTS:
                    order = orders.setdefault(f"{name}.{row['k']}", [])
                    if row["v"] not in order:
                        order.append(row["v"])
    return orders


def with_row_order(
    history: Sequence[Operation], orders: Mapping[str, Sequence[int]]
) -> list[Operation]:
    """Return the history with its reads of rows in the order of the logs."""

    def reorder(access: Sequence[Any]) -> Sequence[Any]:
        kind, key, seen = access
        if kind[0] != "r" or seen is None or key[-1] not in ROW_LISTS:
            return access
        order = orders.get(key, ())
        # Elements that no version has come last, where the judge finds them.
        return (kind, key, sorted(seen, key=lambda v: order.index(v) if v in order else len(order)))

    return [
        {**one, "value": [reorder(access) for access in one["value"]]} if "value" in one else one
        for one in history
    ]


# One statement at a time


def run_interleaved(rng: random.Random, programs: Sequence[Iterator[None]]) -> None:
    """Run programs in one thread; the next one is drawn at each pause."""
    running = list(programs)
    while running:
        one = rng.choice(running)
        try:
            next(one)
        except StopIteration:
            running.remove(one)
