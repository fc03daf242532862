"""Random queries, run by DuckDB on tables of which one column after the other is changed: an output
column that changes has to be made of that column, by what is told.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import duckdb
import pytest

from txlake.session.lineage.columns import BaseTable, Origin, Text

TABLES = {"a": ("id", "x", "y"), "b": ("id", "x", "z"), "c": ("id", "y", "z")}
SOURCES = {name: BaseTable("file", name, columns) for name, columns in TABLES.items()}
ROWS = 6
CONNECTION = duckdb.connect(config={"threads": 1})
Contents = dict[str, dict[str, list[int]]]


@dataclass
class Maker:
    """Makes queries whose names are clear to every engine."""

    choice: random.Random
    number: int = 0
    ctes: list[tuple[str, list[str], str]] = field(default_factory=list)

    def name(self) -> str:
        self.number += 1
        return f"n{self.number}"

    def source(self, depth: int) -> tuple[str, list[str]]:
        """A relation with its alias, and the columns that it has, with the alias."""
        alias = self.name()
        kind = self.choice.random()
        if depth and kind < 0.35:
            query, names = self.query(depth - 1)
            text = f"({query}) AS {alias}"
        elif self.ctes and kind < 0.5:
            cte, names, _ = self.choice.choice(self.ctes)
            text = f"{cte} AS {alias}"
        else:
            table = self.choice.choice(list(TABLES))
            text, names = f"{table} AS {alias}", list(TABLES[table])
        return text, [f"{alias}.{name}" for name in names]

    def value(self, columns: list[str], depth: int = 2) -> str:
        """An expression."""
        kind = self.choice.randrange(8)
        if depth == 0 or kind < 3:
            return self.choice.choice(columns)
        one, other = self.value(columns, depth - 1), self.value(columns, depth - 1)
        if kind == 3:
            return f"({one} + {other})"
        if kind == 4:
            return f"CASE WHEN {one} > 3 THEN {other} ELSE 0 END"
        if kind == 5:
            return f"coalesce(nullif({one}, 2), {other})"
        if kind == 6:
            table = self.choice.choice(list(TABLES))
            column = self.choice.choice(TABLES[table])
            own = self.name()
            return f"(SELECT max({own}.{column}) FROM {table} AS {own} WHERE {own}.id <= {one})"
        return f"abs({one})"

    def query(self, depth: int) -> tuple[str, list[str]]:
        """A query and the names of its columns."""
        if depth and self.choice.random() < 0.2:
            names = [self.name(), self.name()]
            sides = [self.select(depth - 1, names), self.select(depth - 1, [self.name()] * 2)]
            return " UNION ALL ".join(sides), names
        names = [self.name() for _ in range(self.choice.randint(1, 3))]
        return self.select(depth, names), names

    def select(self, depth: int, names: list[str]) -> str:
        """A SELECT with columns of these names."""
        text, columns = self.source(depth)
        if self.choice.random() < 0.5:
            other, more = self.source(depth)
            kind = self.choice.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
            text += f" {kind} {other} ON {self.choice.choice(columns)} = {self.choice.choice(more)}"
            columns = columns + more
        where = ""
        if self.choice.random() < 0.4:
            where = f" WHERE {self.value(columns, 1)} > 2"
        form = self.choice.random()
        if form < 0.25:
            by = self.choice.choice(columns)
            items = [by, *(f"sum({self.value(columns)})" for _ in names[1:])]
            where += f" GROUP BY {by}"
        elif form < 0.4:
            by, order = self.choice.choice(columns), self.choice.choice(columns)
            window = f"OVER (PARTITION BY {by} ORDER BY {order})"
            items = [f"sum({self.value(columns)}) {window}" for _ in names]
        else:
            items = [self.value(columns) for _ in names]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        return f"SELECT {listed} FROM {text}{where}"

    def whole(self) -> str:
        """A query with common table expressions."""
        for _ in range(self.choice.randrange(3)):
            query, names = self.query(1)
            self.ctes.append((self.name(), names, query))
        query, _ = self.query(2)
        ctes = ", ".join(f"{name} AS ({text})" for name, _, text in self.ctes)
        return f"WITH {ctes} {query}" if ctes else query


def results(contents: Contents, query: str) -> list[Counter[object]]:
    """The values of each column."""
    for table, columns in contents.items():
        rows = ", ".join(str(row) for row in zip(*columns.values(), strict=True))
        CONNECTION.execute(
            f"CREATE OR REPLACE TABLE {table} AS FROM (VALUES {rows}) t({', '.join(columns)})"
        )
    found = CONNECTION.execute(query)
    width, rows_found = len(found.description or ()), found.fetchall()
    return [Counter(row[place] for row in rows_found) for place in range(width)]


@pytest.mark.parametrize("seed", range(60))
def test_a_column_that_changes_another_is_told(seed: int) -> None:
    choice = random.Random(seed)
    query = Maker(choice).whole()
    contents: Contents = {
        table: {name: [choice.randrange(7) for _ in range(ROWS)] for name in columns}
        for table, columns in TABLES.items()
    }
    relation = Text(query, SOURCES).relation()
    before = results(contents, query)
    assert relation.whole is not None
    assert len(before) == len(relation.columns)
    for table, columns in TABLES.items():
        for name in columns:
            changed = {**contents[table], name: [choice.randrange(7) for _ in range(ROWS)]}
            after = results({**contents, table: changed}, query)
            for (_, origins), old, new in zip(relation.columns, before, after, strict=True):
                told = {(one.dataset, one.column) for one in origins | relation.whole}
                assert old == new or (table, name) in told, (query, table, name)
    for (_, origins), values in zip(relation.columns, before, strict=True):
        if origins and all(one.subtype == "IDENTITY" for one in origins):
            own = {value for one in origins for value in contents[one.dataset][one.column]}
            assert set(values) <= {*own, None}, (query, origins)


def test_the_check_sees_an_origin_that_is_missing() -> None:
    told = {(one.dataset, one.column) for one in [Origin("file", "a", "x")]}
    contents: Contents = {
        table: {name: list(range(ROWS)) for name in columns} for table, columns in TABLES.items()
    }
    other = {**contents, "a": {**contents["a"], "y": [9] * ROWS}}
    assert results(contents, "SELECT x + y FROM a") != results(other, "SELECT x + y FROM a")
    assert ("a", "y") not in told
