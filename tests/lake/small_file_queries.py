"""Random queries of one table whose columns may be called as keywords, functions or settings are.

A seed draws the columns, with rows that differ between files, the session's settings, and queries
that are valid or not: what Spark's own reader answers, the reader of many small files has to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [0, 1, -128, 127]),
    "integer": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [0, 1, 2**63 - 1, -(2**63)]),
    "float": (pa.float32(), [0.0, -0.0, float("nan"), float("inf"), 1e-45]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), -float("inf"), 5e-324, 1 / 3]),
    "string": (pa.string(), ["", "a", "A", "b%", "é", "e\u0301", "\U0010ffff", "\x00", "1", " x "]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe"]),
    "boolean": (pa.bool_(), [True, False]),
    "decimal(38,18)": (pa.decimal128(38, 18), [Decimal("9" * 20 + "." + "9" * 18), Decimal(0)]),
}
_NAMES = (
    *("current_user", "current_date", "current_timestamp", "current_catalog", "current_schema"),
    *("localtimestamp", "session_user", "user", "date", "timestamp", "interval", "values", "row"),
    *("all", "any", "exists", "if", "case", "end", "select", "from", "null", "true", "default"),
    *("count", "first", "element", "key", "map", "struct", "array", "left", "replace", "div"),
    *("a b", "a.b", "a`b", ".*", "$1", "{x}", "é", "İd", "ſ", "1", "1a", "_c0", "t", "Small", "id"),
)
_EXPRESSIONS = (
    *("count({})", "coalesce({}, {})", "{} IS NULL", "typeof({})", "hash({})", "max({})"),
    *("cast({} AS STRING)", "try_cast({} AS INT)", "{} = {}", "{} <=> {}", "struct({})"),
    *(
        "CASE WHEN {} IS NULL THEN 'n' ELSE 'y' END",
        "{} IN ({}, NULL)",
        "length({})",
        "{} :: string",
    ),
    *("{} LIKE 'a%'", "{} + 1", "{} / 0", "{} || {}", "NOT {}", "{} BETWEEN {} AND {}", "{}.x"),
    *("row_number() OVER (ORDER BY {})", "count(*) FILTER (WHERE {} IS NOT NULL)", "(SELECT {})"),
    *("transform(array({}), q -> q)", "substring({} FROM 1 FOR 2)", "trim(BOTH 'a' FROM {})"),
    *(
        "date_trunc({}, '2020-01-15')",
        "trunc('2020-01-15', {})",
        "position({} IN {})",
        "map({}, 1)",
    ),
)
_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
}


@dataclass(frozen=True)
class Plan:
    """A table and a session. `kinds`: the columns' names and types; `files`: the rows of each file
    by column, of which the file may lack some.
    """

    kinds: dict[str, str]
    files: list[dict[str, list[Any]]]
    settings: dict[str, str]


def random_plan(rng: Random, files: int) -> Plan:
    """Return a table of so many files, and settings of the session."""
    kinds = {name: rng.choice(list(KINDS)) for name in rng.sample(_NAMES, rng.randint(3, 8))}
    return Plan(
        kinds=kinds,
        files=[_rows(rng, kinds) for _ in range(files)],
        settings={key: value for key, value in _SETTINGS.items() if rng.random() < 0.25},
    )


def _rows(rng: Random, kinds: dict[str, str]) -> dict[str, list[Any]]:
    """Return a file's rows by column, at least one column, in any order."""
    names = rng.sample(list(kinds), len(kinds) - (rng.random() < 0.2))
    count = rng.randint(0, 3)
    return {
        name: [rng.choice([None, *KINDS[kinds[name]][1]]) for _ in range(count)] for name in names
    }


def random_queries(rng: Random, plan: Plan, count: int) -> Iterator[str]:
    """Yield queries with `{t}` for the table."""
    for _ in range(count):
        yield _Query(rng, list(plan.kinds)).text()


class _Query:
    """One random query of a table with these columns."""

    def __init__(self, rng: Random, names: list[str]) -> None:
        self._rng = rng
        self._names = names
        self._alias = rng.choice(["t", "x", "`Á`"])

    def text(self) -> str:
        """Return the query."""
        rng = self._rng
        items = ", ".join(self._item() for _ in range(rng.randint(1, 3)))
        parts = [f"SELECT {rng.choice(['', '', 'DISTINCT '])}{items} FROM {{t}} AS {self._alias}"]
        if rng.random() < 0.1:
            parts.append(f"LATERAL VIEW explode(array({self._name()}, 1)) lv AS lvc")
        if rng.random() < 0.3:
            parts.append(f"WHERE {self._expression()} {rng.choice(['', 'IS NULL', '= 1'])}")
        if rng.random() < 0.3:
            parts.append(f"GROUP BY {rng.choice(['ALL', '1', self._name(), self._expression()])}")
        if rng.random() < 0.2:
            parts.append(f"ORDER BY {rng.choice(['ALL', '1', self._name() + ' DESC NULLS LAST'])}")
        return " ".join(parts)

    def _item(self) -> str:
        name = self._rng.choice(self._names)
        choices = {
            self._expression(): 12,
            f"{self._expression()} AS {_quoted(name)}": 4,
            "*": 1,
            f"{self._alias}.*": 1,
            f"* EXCEPT ({_quoted(name)})": 1,
            "count(*)": 2,
            "hash(*)": 1,
            f"`({re.escape(name)})?+.+`": 1,
        }
        return self._rng.choices(list(choices), list(choices.values()))[0]

    def _expression(self, depth: int = 0) -> str:
        if depth > 1 or self._rng.random() < 0.45:
            return self._name()
        shape = self._rng.choice(_EXPRESSIONS)
        return re.sub(r"\{\}", lambda _: self._expression(depth + 1), shape)

    def _name(self) -> str:
        """Return a column's name, in any letter case, in quotes or not, perhaps with the alias."""
        rng, name = self._rng, self._rng.choice(self._names)
        is_word = re.fullmatch(r"[A-Za-z]\w*", name) is not None
        name = rng.choice([name, name, name.upper()])
        text = name if is_word and rng.random() < 0.75 else _quoted(name)
        if is_word and rng.random() < 0.05:
            return f'"{name}"'
        return f"{self._alias}.{text}" if rng.random() < 0.2 else text


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
