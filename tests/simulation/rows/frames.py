"""Rows in the place of Spark's objects: a frame and a column, with the methods that are called.

Queries are carried out by `queries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tests.simulation.rows import queries
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope
from txlake.protocol.types import Struct, from_arrow_schema
from txlake.spark.types import spark_schema


@dataclass(frozen=True)
class RowColumn:
    """The text of an expression, and the rows of the tables that it names."""

    text: str
    tables: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFrame:
    """`pyspark.sql.DataFrame` as far as the engine and its callers use it."""

    content: Rows

    @property
    def columns(self) -> list[str]:
        return [one.name for one in self.content.visible]

    @property
    def schema(self) -> T.StructType:
        return spark_schema(self.content.schema)

    def alias(self, name: str) -> RowFrame:
        return RowFrame(self.content.qualified(name))

    def where(self, condition: RowColumn) -> RowFrame:
        is_match = queries.condition(condition.text, Scope(self.content.names), condition.tables)
        return RowFrame(
            replace(self.content, rows=[row for row in self.content.rows if is_match(row)])
        )

    def select(self, *names: str) -> RowFrame:
        scope = Scope(self.content.names)
        places = [scope.find([name.strip("`")])[0] for name in names]
        rows = [tuple(row[place] for place in places) for row in self.content.rows]
        return RowFrame(
            Rows(tuple(ColumnName(*_named(self.content.names[p])) for p in places), rows)
        )

    def toDF(self, *names: str) -> RowFrame:
        named = (
            replace(one, name=name) for one, name in zip(self.content.visible, names, strict=True)
        )
        return RowFrame(Rows(tuple(named), self.collect()))

    def unionAll(self, other: RowFrame) -> RowFrame:
        return RowFrame(replace(self.content, rows=[*self.content.rows, *other.content.rows]))

    def limit(self, number: int) -> RowFrame:
        return RowFrame(replace(self.content, rows=self.content.rows[:number]))

    def collect(self) -> list[Row]:
        places = [place for place, one in enumerate(self.content.names) if not one.hidden]
        return [tuple(row[place] for place in places) for row in self.content.rows]

    def dicts(self) -> list[dict[str, object]]:
        """Return a dictionary for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.collect()]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.collect())


def _named(one: ColumnName) -> tuple[str, Any]:
    return one.name, one.type


def frame_of(rows: Sequence[Sequence[Any]], schema: Struct) -> RowFrame:
    """Return a frame of rows with a schema."""
    names = tuple(ColumnName(item.name, item.type) for item in schema)
    return RowFrame(Rows(names, [tuple(map(_plain, row)) for row in rows]))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def frame_of_arrow(table: pa.Table) -> RowFrame:
    """Return a frame of a table's rows."""
    columns = [column.to_pylist() for column in table.columns]
    names = tuple(ColumnName(item.name, item.type) for item in from_arrow_schema(table.schema))
    return RowFrame(Rows(names, list(zip(*columns, strict=True))))
