"""Rows where the engine expects Spark: a frame, a column, a session with the few methods it calls.

Owns no meaning: queries are `queries`' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T

from tests.simulation.rows import queries
from tests.simulation.rows.scopes import Name, Row, Rows, Scope
from txlake.protocol.types import Struct
from txlake.spark.types import delta_schema, spark_schema

_MARKER = re.compile(r"\{\{|\}\}|\{(\w+)\}")


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


class RowConf:
    """`spark.conf`: what was set, else Spark's defaults that the engine asks for."""

    def __init__(self) -> None:
        self._set = {"spark.sql.session.timeZone": "UTC"}

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._set.get(key, default)

    def set(self, key: str, value: str) -> None:
        self._set[key] = value


class RowSpark:
    """`pyspark.sql.SparkSession`, as far as the engine uses it here."""

    def __init__(self) -> None:
        self.conf = RowConf()

    def sql(self, text: str, args: None = None, **frames: RowFrame) -> RowFrame:
        """A query over frames that it names in braces."""
        assert args is None
        tables = {name: frame.found for name, frame in frames.items()}
        return RowFrame(queries.run(_MARKER.sub(_unmarked, text) if frames else text, tables))

    def createDataFrame(self, rows: Sequence[Any], schema: T.StructType) -> RowFrame:
        return frame_of(rows, delta_schema(schema))


def _unmarked(found: re.Match[str]) -> str:
    return f"`{found[1]}`" if found[1] else found[0][0]
