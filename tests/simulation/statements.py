"""The statements of the simulated programs: as SQL, and as their effect on rows in memory.

Tables have the columns k, v and tag. Rows are sorted tuples, in which duplicates remain visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Row: TypeAlias = tuple[int, int, str]
Rows: TypeAlias = tuple[Row, ...]
State: TypeAlias = Mapping[str, Rows]
"""The rows of each table by its name in programs."""

COLUMNS = "k INT, v INT, tag STRING"
IDENTITY = "id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY -2)"


class Statement(Protocol):
    """A statement of a program."""

    def sql(self, names: Mapping[str, str]) -> str:
        """Return the text; `names`: by table, its name in SQL."""
        ...

    def apply(self, state: State) -> tuple[State, object]:
        """Return the tables' rows after the statement, and its result."""
        ...


@dataclass(frozen=True, slots=True)
class Where:
    """A condition: `k` is one of some keys, and `v` at least a minimum. Both parts are optional."""

    keys: tuple[int, ...] = ()
    v_min: int | None = None

    def __str__(self) -> str:
        parts = []
        if len(self.keys) == 1:
            parts.append(f"k = {self.keys[0]}")
        elif self.keys:
            parts.append(f"k IN ({', '.join(map(str, self.keys))})")
        if self.v_min is not None:
            parts.append(f"v >= {self.v_min}")
        return " AND ".join(parts)

    @property
    def clause(self) -> str:
        return f" WHERE {self}" if str(self) else ""

    def matches(self, row: Row) -> bool:
        return (not self.keys or row[0] in self.keys) and (
            self.v_min is None or row[1] >= self.v_min
        )


ALL_ROWS = Where()


@dataclass(frozen=True, slots=True)
class Select:
    """Rows, sorted."""

    table: str
    where: Where = ALL_ROWS

    def sql(self, names: Mapping[str, str]) -> str:
        return f"SELECT k, v, tag FROM {names[self.table]}{self.where.clause}"

    def apply(self, state: State) -> tuple[State, object]:
        return state, tuple(row for row in state[self.table] if self.where.matches(row))


@dataclass(frozen=True, slots=True)
class Insert:
    """New rows."""

    table: str
    rows: Rows

    def sql(self, names: Mapping[str, str]) -> str:
        rows = ", ".join(f"({k}, {v}, '{tag}')" for k, v, tag in self.rows)
        return f"INSERT INTO {names[self.table]} (k, v, tag) VALUES {rows}"

    def apply(self, state: State) -> tuple[State, object]:
        return _with(state, self.table, (*state[self.table], *self.rows)), None


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to `v`; a given `tag` replaces the row's."""

    table: str
    change: int
    where: Where
    tag: str | None = None

    def sql(self, names: Mapping[str, str]) -> str:
        tag = "" if self.tag is None else f", tag = '{self.tag}'"
        return f"UPDATE {names[self.table]} SET v = v + {self.change}{tag}{self.where.clause}"

    def apply(self, state: State) -> tuple[State, object]:
        rows = tuple(
            (row[0], row[1] + self.change, row[2] if self.tag is None else self.tag)
            if self.where.matches(row)
            else row
            for row in state[self.table]
        )
        return _with(state, self.table, rows), None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete rows."""

    table: str
    where: Where

    def sql(self, names: Mapping[str, str]) -> str:
        return f"DELETE FROM {names[self.table]}{self.where.clause}"

    def apply(self, state: State) -> tuple[State, object]:
        kept = tuple(row for row in state[self.table] if not self.where.matches(row))
        return _with(state, self.table, kept), None


@dataclass(frozen=True, slots=True)
class Upsert:
    """A MERGE that adds to the row of a key, or inserts it."""

    table: str
    key: int
    change: int
    tag: str

    def sql(self, names: Mapping[str, str]) -> str:
        return (
            f"MERGE INTO {names[self.table]} t "
            f"USING (SELECT {self.key} AS k, {self.change} AS v, '{self.tag}' AS tag) s "
            "ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = t.v + s.v "
            "WHEN NOT MATCHED THEN INSERT (k, v, tag) VALUES (s.k, s.v, s.tag)"
        )

    def apply(self, state: State) -> tuple[State, object]:
        where = Where((self.key,))
        if any(where.matches(row) for row in state[self.table]):
            return Increment(self.table, self.change, where).apply(state)
        return Insert(self.table, ((self.key, self.change, self.tag),)).apply(state)


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """INSERT ... SELECT from another table or the same one."""

    table: str
    source: str
    where: Where

    def sql(self, names: Mapping[str, str]) -> str:
        return (
            f"INSERT INTO {names[self.table]} "
            f"SELECT k, v, tag FROM {names[self.source]}{self.where.clause}"
        )

    def apply(self, state: State) -> tuple[State, object]:
        taken = tuple(row for row in state[self.source] if self.where.matches(row))
        return _with(state, self.table, (*state[self.table], *taken)), None


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A statement that changes no row, such as OPTIMIZE; `{}` in the text is the table."""

    table: str
    text: str

    def sql(self, names: Mapping[str, str]) -> str:
        return self.text.format(names[self.table])

    def apply(self, state: State) -> tuple[State, object]:
        return state, None


def _with(state: State, table: str, rows: Rows) -> State:
    return {**state, table: tuple(sorted(rows))}
