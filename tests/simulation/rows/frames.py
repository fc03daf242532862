"""Rows where the engine expects Spark: a frame and a column, with the few methods that it calls.

Owns no meaning: queries are `queries`' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tests.simulation.rows import queries
from tests.simulation.rows.scopes import Name, Row, Rows, Scope
from txlake.protocol.types import Struct, from_arrow_schema
from txlake.spark.types import spark_schema


@dataclass(frozen=True)
class RowColumn:
    """An expression as text, and the rows of the tables that it names."""

    text: str
    tables: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFrame:
    """`pyspark.sql.DataFrame`, as far as the engine and its callers use it here."""

    found: Rows

    @property
    def columns(self) -> list[str]:
        return [one.name for one in self.found.visible]

    @property
    def schema(self) -> T.StructType:
        return spark_schema(self.found.schema)

    def alias(self, name: str) -> RowFrame:
        return RowFrame(self.found.qualified(name))

    def where(self, condition: RowColumn) -> RowFrame:
        holds = queries.condition(condition.text, Scope(self.found.names), condition.tables)
        return RowFrame(replace(self.found, rows=[row for row in self.found.rows if holds(row)]))

    def select(self, *names: str) -> RowFrame:
        scope = Scope(self.found.names)
        places = [scope.find([name.strip("`")])[0] for name in names]
        rows = [tuple(row[place] for place in places) for row in self.found.rows]
        return RowFrame(Rows(tuple(Name(*_named(self.found.names[p])) for p in places), rows))

    def toDF(self, *names: str) -> RowFrame:
        named = (
            replace(one, name=name) for one, name in zip(self.found.visible, names, strict=True)
        )
        return RowFrame(Rows(tuple(named), self.collect()))

    def unionAll(self, other: RowFrame) -> RowFrame:
        return RowFrame(replace(self.found, rows=[*self.found.rows, *other.found.rows]))

    def limit(self, number: int) -> RowFrame:
        return RowFrame(replace(self.found, rows=self.found.rows[:number]))

    def collect(self) -> list[Row]:
        places = [place for place, one in enumerate(self.found.names) if not one.hidden]
        return [tuple(row[place] for place in places) for row in self.found.rows]

    def dicts(self) -> list[dict[str, object]]:
        """A dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.collect()]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.collect())


def _named(one: Name) -> tuple[str, Any]:
    return one.name, one.type


def frame_of(rows: Sequence[Sequence[Any]], schema: Struct) -> RowFrame:
    """Rows of a schema."""
    names = tuple(Name(item.name, item.type) for item in schema)
    return RowFrame(Rows(names, [tuple(map(_plain, row)) for row in rows]))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def frame_of_arrow(table: pa.Table) -> RowFrame:
    """The rows of a table."""
    columns = [column.to_pylist() for column in table.columns]
    names = tuple(Name(item.name, item.type) for item in from_arrow_schema(table.schema))
    return RowFrame(Rows(names, list(zip(*columns, strict=True))))
