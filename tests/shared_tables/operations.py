"""What is done to a shared table, as values, and what its rows are then: a model in plain Python.

Owns the operations, their meaning, and seeded sequences of them. It knows no engine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

Value = int | str | None
Row = Mapping[str, Value]
Rows = Mapping[int, Row]
"""The rows by their `id`, which is unique."""

COLUMNS = ("id", "k", "n", "s")
_TYPES = {"s": "STRING"}


def sql_type(column: str) -> str:
    return _TYPES.get(column, "BIGINT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One commit's worth of work.

    Attributes:
        kind: append, update (`n = n + by`), delete, merge (by id: a match adds n, else insert),
            optimize, checkpoint, add_column or restore.
        marker: unique among all operations of a table; the commit carries it.
        rows: of append and merge: id, k, n and s of each.
        column, low, high: update and delete concern the rows with `low <= column < high`;
            add_column adds `column`.
        by: what an update adds to n.
        version: where restore goes to.
    """

    kind: str
    marker: str
    rows: Sequence[Sequence[Value]] = ()
    column: str = ""
    low: int = 0
    high: int = 0
    by: int = 0
    version: int = 0

    @property
    def where(self) -> str:
        return f"{self.column} >= {self.low} AND {self.column} < {self.high}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def parsed(text: str) -> Operation:
    return Operation(**json.loads(text))


@dataclass(frozen=True, slots=True)
class State:
    """A table at one version: its columns, in order, and its rows."""

    columns: tuple[str, ...]
    rows: Rows

    def lines(self) -> list[str]:
        """The rows as text, sorted: comparable with what a worker reads."""
        return sorted(
            json.dumps({name: row.get(name) for name in self.columns}, sort_keys=True)
            for row in self.rows.values()
        )


def applied(operation: Operation, states: Sequence[State]) -> State:
    """The table after the operation; `states` are all versions so far, the last one current."""
    now = states[-1]
    rows = dict(now.rows)
    given = [dict(zip(COLUMNS, row, strict=True)) for row in operation.rows]
    match operation.kind:
        case "append":
            for row in given:
                assert row["id"] not in rows
                rows[_number(row["id"])] = row
        case "update":
            for key in _matching(operation, rows):
                rows[key] = {**rows[key], "n": _number(rows[key]["n"]) + operation.by}
        case "delete":
            for key in _matching(operation, rows):
                del rows[key]
        case "merge":
            for row in given:
                key = _number(row["id"])
                if key in rows:
                    sum_ = _number(rows[key]["n"]) + _number(row["n"])
                    rows[key] = {**rows[key], "n": sum_}
                else:
                    rows[key] = row
        case "add_column":
            return State((*now.columns, operation.column), rows)
        case "restore":
            return states[operation.version]
        case "optimize" | "checkpoint":
            pass
        case other:
            raise AssertionError(f"no operation {other}")
    return State(now.columns, rows)


def _matching(operation: Operation, rows: Rows) -> list[int]:
    return [
        key
        for key, row in rows.items()
        if operation.low <= _number(row[operation.column]) < operation.high
    ]


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


class Chooser:
    """Operations one after the other from a seed; their new ids and markers are never used again.

    `name` keeps the choosers of one table apart, `number` their ids.
    """

    def __init__(self, seed: int, name: str, number: int, kinds: Sequence[str]) -> None:
        self._random = random.Random(f"{seed}/{name}")
        self._name = name
        self._next_id = (number + 1) * 1_000_000
        self._kinds = kinds
        self._count = 0

    def rows(self, count: int) -> list[list[Value]]:
        chosen = self._random
        first = self._next_id
        self._next_id += count
        return [
            [key, chosen.randrange(4), chosen.randrange(100), f"{self._name} {key}"]
            for key in range(first, first + count)
        ]

    def operation(self, kind: str = "") -> Operation:
        chosen = self._random
        self._count += 1
        kind = kind or chosen.choice(self._kinds)
        marker = f"{self._name}-{self._count}"
        match kind:
            case "append":
                return Operation(kind=kind, marker=marker, rows=self.rows(chosen.randint(1, 5)))
            case "update" | "delete":
                column = chosen.choice(["id", "id", "k"] if kind == "update" else ["id"])
                low = chosen.randrange(FIRST_ROWS if column == "id" else 4)
                width = chosen.randint(1, 2) if column == "id" else 1
                return Operation(
                    kind=kind,
                    marker=marker,
                    column=column,
                    low=low,
                    high=low + width,
                    by=chosen.randint(1, 9),
                )
            case "merge":
                old = chosen.sample(range(FIRST_ROWS), 2)
                rows: list[list[Value]] = [[key, key % 4, chosen.randint(1, 9), "m"] for key in old]
                return Operation(kind=kind, marker=marker, rows=rows + self.rows(1))
            case "add_column":
                return Operation(kind=kind, marker=marker, column=f"c_{self._name.replace('-', '_')}_{self._count}")
            case _:
                return Operation(kind=kind, marker=marker)


FIRST_ROWS = 24


def first_rows() -> Operation:
    """What every table begins with."""
    rows: list[list[Value]] = [[key, key % 4, 0, f"first {key}"] for key in range(FIRST_ROWS)]
    return Operation(kind="append", marker="first", rows=rows)
