"""Results of statements for the command line and the server: columns, and rows of plain values.

Owns the conversion of Spark's values: a timestamp becomes a datetime with a zone, a struct a
dictionary, a map a list of pairs unless its keys are texts.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txlake.protocol.type_text import short_text
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct, type_to_json
from txlake.session.views.describe import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, unique in its result, and its type in Spark's SQL.

    `json` is the complete type as Spark's JSON, for columns of a query.
    """

    name: str
    type: str
    json: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the values are numbers, which are printed right-aligned."""
        return self.type.split("(")[0] in _NUMBERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows in order; `total` is the number of rows before a limit cut `rows`."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[object, ...]]
    total: int


_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def frame_result(frame: DataFrame, rows_max: int | None = None) -> Result:
    """Return the rows of a DataFrame, at most `rows_max`; counts them all if there are more.

    Raises what Spark raises.
    """
    schema = frame.schema
    types = [field.dataType for field in schema]
    named = _columns([(field.name, field.dataType.simpleString()) for field in schema])
    columns = tuple(replace(one, json=kind.json()) for one, kind in zip(named, types))
    if not columns:
        return Result(columns=(), rows=(), total=0)
    limited = frame if rows_max is None else frame.limit(rows_max + 1)
    rows = [tuple(map(_plain, row, types)) for row in limited.collect()]
    if rows_max is None or len(rows) <= rows_max:
        return Result(columns=columns, rows=rows, total=len(rows))
    return Result(columns=columns, rows=rows[:rows_max], total=frame.count())


def rows_result(rows: Rows, rows_max: int | None = None) -> Result:
    """Convert a result that was computed without Spark, at most `rows_max` rows."""
    types = [item.type for item in rows.schema]
    if not types:
        return Result(columns=(), rows=(), total=0)
    named = _columns([(item.name, short_text(item.type)) for item in rows.schema])
    columns = tuple(replace(one, json=_json_of(kind)) for one, kind in zip(named, types))
    limited = rows.rows if rows_max is None else rows.rows[:rows_max]
    return Result(
        columns=columns,
        rows=[tuple(map(_plain_value, row, types)) for row in limited],
        total=len(rows.rows),
    )


def _json_of(kind: DataType) -> str:
    """Return a type as Spark's JSON."""
    return json.dumps(type_to_json(kind), separators=(",", ":"), sort_keys=True)


def _plain_value(value: object, kind: DataType) -> object:
    """Convert a value as `_plain`, from the types of `Rows`."""
    match kind, value:
        case Array(element, _), list():
            return [_plain_value(one, element) for one in value]
        case Struct(fields), tuple():
            return {item.name: _plain_value(one, item.type) for item, one in zip(fields, value)}
        case Map(key, of, _), dict():
            pairs = [
                (_plain_value(name, key), _plain_value(one, of)) for name, one in value.items()
            ]
            if isinstance(key, Primitive) and key.is_string:
                return dict(pairs)
            return [{"key": name, "value": one} for name, one in pairs]
        case _:
            return value


def mappings_result(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> Result:
    """Convert rows that are mappings; a column that a row lacks is null."""
    return Result(
        columns=_columns(list(columns.items())),
        rows=[tuple(row.get(name) for name in columns) for row in rows],
        total=len(rows),
    )


def _columns(named: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    """Make repeated names unique by a number: `id`, `id_2`."""
    all_names = {name for name, _ in named}
    used: set[str] = set()
    columns = []
    for name, kind in named:
        unique, number = name, 1
        while unique in used or (number > 1 and unique in all_names):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique)
        columns.append(Column(unique, kind))
    return tuple(columns)


def _plain(value: object, kind: T.DataType) -> object:
    from pyspark.sql import types as T

    match kind, value:
        case T.TimestampType(), datetime.datetime():
            return value.astimezone(datetime.UTC)  # PySpark returns the process's own zone
        case T.ArrayType(elementType=element), list():
            return [_plain(one, element) for one in value]
        case T.StructType(fields=fields), tuple():
            return {field.name: _plain(one, field.dataType) for field, one in zip(fields, value)}
        case T.MapType(keyType=key, valueType=of), dict():
            pairs = [(_plain(name, key), _plain(one, of)) for name, one in value.items()]
            if isinstance(key, T.StringType):
                return dict(pairs)
            return [{"key": name, "value": one} for name, one in pairs]
        case T.VariantType(), T.VariantVal():
            return value.toPython()
        case _, bytearray():
            return bytes(value)
        case _:
            return value
