"""What is done to a shared table, as values, and what its rows are then: a model in plain Python.

Owns the operations, their meaning, and seeded sequences of them. It knows no engine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

Value = int | str | None
Row = Mapping[str, Value]
Rows = Mapping[int, Row]
"""The rows by their `id`, which is unique."""

COLUMNS = ("id", "k", "n", "s")
EXTRA = "x"
"""A column that some tables have besides; the first rows alone have values there."""
TWICE = "twice"
"""A column that some tables have besides: generated, `n * 2`."""
FIRST_ROWS = 24
_TYPES = {"s": "STRING"}


def sql_type(column: str) -> str:
    return _TYPES.get(column, "BIGINT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One commit's worth of work.

    Attributes:
        kind: append, update (`n = n + by`), delete, merge (by id: a match adds n, else insert),
            overwrite, truncate, restore (of version `low`), optimize, reorg, checkpoint,
            add_column, rename_column, drop_column or widen (to BIGINT).
        marker: unique among all operations of a table; the commit carries it.
        names, rows: of append, merge and overwrite: the columns given, and the rows' values there.
        column, low, high: update and delete concern the rows with `low <= column < high`;
            the changes of columns `column`.
        by: what an update adds to n.
        to: the column's new name.
        behind: delta-rs begins from a snapshot that is as many versions old, since it is too fast
            to lose to an engine on Spark otherwise.
    """

    kind: str
    marker: str
    names: Sequence[str] = COLUMNS
    rows: Sequence[Sequence[Value]] = ()
    column: str = ""
    low: int = 0
    high: int = 0
    by: int = 0
    to: str = ""
    behind: int = 0

    @property
    def where(self) -> str:
        return f"{self.column} >= {self.low} AND {self.column} < {self.high}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def parsed(text: str) -> Operation:
    return Operation(**json.loads(text))


@dataclass(frozen=True, slots=True)
class State:
    """A table at one version: its columns, its rows, and which of them this version appended."""

    columns: tuple[str, ...]
    rows: Rows
    appended: frozenset[int] = field(default=frozenset(), compare=False)

    def lines(self) -> list[str]:
        """The rows as text, sorted: comparable with what a worker reads."""
        return sorted(
            json.dumps({name: _value(row, name) for name in self.columns}, sort_keys=True)
            for row in self.rows.values()
        )


def _value(row: Row, name: str) -> Value:
    return 2 * _number(row["n"]) if name == TWICE else row.get(name)


def applied(
    operation: Operation, states: Sequence[State], overlooked: frozenset[int] = frozenset()
) -> State:
    """The table after the operation; `states` are all versions so far, the last one current.

    Whatever changes or takes rows leaves those with the ids `overlooked` alone.
    """
    now = states[-1]
    rows = dict(now.rows)
    columns = now.columns
    appended: frozenset[int] = frozenset()
    given = [dict(zip(operation.names, row, strict=True)) for row in operation.rows]
    match operation.kind:
        case "append":
            for row in given:
                assert row["id"] not in rows
                rows[_number(row["id"])] = row
            appended = frozenset(_number(row["id"]) for row in given)
        case "update":
            for key in _matching(operation, rows) - overlooked:
                rows[key] = {**rows[key], "n": _number(rows[key]["n"]) + operation.by}
        case "delete":
            for key in _matching(operation, rows) - overlooked:
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
            columns = (*columns, operation.column)
        case "drop_column":
            columns = tuple(name for name in columns if name != operation.column)
            rows = {key: _without(row, operation.column) for key, row in rows.items()}
        case "rename_column":
            old, new = operation.column, operation.to
            columns = tuple(new if name == old else name for name in columns)
            rows = {key: {**_without(row, old), new: row.get(old)} for key, row in rows.items()}
        case "overwrite":
            rows = _kept(rows, overlooked) | {_number(row["id"]): row for row in given}
        case "truncate":
            rows = _kept(rows, overlooked)
        case "restore":
            columns = states[operation.low].columns
            rows = _kept(rows, overlooked) | dict(states[operation.low].rows)
        case "optimize" | "reorg" | "checkpoint" | "widen":
            pass
        case other:
            raise AssertionError(f"no operation {other}")
    return State(columns, rows, appended)


def _kept(rows: Rows, ids: frozenset[int]) -> dict[int, Row]:
    return {key: row for key, row in rows.items() if key in ids}


def _without(row: Row, name: str) -> dict[str, Value]:
    return {other: value for other, value in row.items() if other != name}


def _matching(operation: Operation, rows: Rows) -> set[int]:
    return {
        key
        for key, row in rows.items()
        if operation.low <= _number(row[operation.column]) < operation.high
    }


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


class Chooser:
    """Operations one after the other from a seed; their new ids and markers are never used again.

    All `kinds` come by, in an order of chance, before one comes again. `name` keeps the choosers
    of one table apart, `number` their ids.
    """

    def __init__(self, seed: str, name: str, number: int, kinds: Sequence[str]) -> None:
        self._random = random.Random(f"{seed}/{name}")
        self._name = name
        self._next_id = (number + 1) * 1_000_000
        self._kinds = kinds
        self._coming: list[str] = []
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
        """The next one, of this kind when it is given."""
        chosen = self._random
        self._count += 1
        if not kind:
            self._coming = self._coming or chosen.sample(self._kinds, len(self._kinds))
            kind = self._coming.pop()
        marker = f"{self._name}-{self._count}"
        match kind:
            case "append":
                return Operation(kind=kind, marker=marker, rows=self.rows(chosen.randint(1, 5)))
            case "update" | "delete":
                column = chosen.choice(["id", "k"] if kind == "update" else ["id"])
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
            case "overwrite":
                return Operation(kind=kind, marker=marker, rows=self.rows(chosen.randint(8, 16)))
            case "add_column":
                column = f"c_{self._name.replace('-', '_')}_{self._count}"
                return Operation(kind=kind, marker=marker, column=column)
            case _:
                return Operation(kind=kind, marker=marker)


def first_rows(columns: Sequence[str]) -> Operation:
    """What every table begins with; `columns` are the table's."""
    rows: list[list[Value]] = [[key, key % 4, 0, f"first {key}"] for key in range(FIRST_ROWS)]
    if EXTRA not in columns:
        return Operation(kind="append", marker="first", rows=rows)
    rows = [[*row, 100 + key] for key, row in enumerate(rows)]
    return Operation(kind="append", marker="first", names=(*COLUMNS, EXTRA), rows=rows)
