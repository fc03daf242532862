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
    """Return the rows of a DataFrame, at most `rows_max`; count them all if there are more.

    The query runs once, and again for the count. Raises Spark's errors.
    """
    schema = frame.schema
    types = [field.dataType for field in schema]
    without_json = _columns([(field.name, field.dataType.simpleString()) for field in schema])
    columns = tuple(replace(column, json=kind.json()) for column, kind in zip(without_json, types))
    if not columns:
        return Result(columns=(), rows=(), total=0)
    limited = frame if rows_max is None else frame.limit(rows_max + 1)
    rows = [tuple(map(_plain, row, types)) for row in limited.collect()]
    if rows_max is None or len(rows) <= rows_max:
        return Result(columns=columns, rows=rows, total=len(rows))
    return Result(columns=columns, rows=rows[:rows_max], total=frame.count())


def rows_result(rows: Rows, rows_max: int | None = None) -> Result:
    """Return a result computed without Spark, at most `rows_max` rows; `total` counts all."""
    types = [item.type for item in rows.schema]
    if not types:
        return Result(columns=(), rows=(), total=0)
    without_json = _columns([(item.name, short_text(item.type)) for item in rows.schema])
    columns = tuple(
        replace(column, json=_json_of(kind)) for column, kind in zip(without_json, types)
    )
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
    """Return a value of `Rows`, converted as by `_plain`."""
    match kind, value:
        case Array(element, _), list():
            return [_plain_value(item, element) for item in value]
        case Struct(fields), tuple():
            return {
                field.name: _plain_value(item, field.type) for field, item in zip(fields, value)
            }
        case Map(key_type, value_type, _), dict():
            pairs = [
                (_plain_value(key, key_type), _plain_value(item, value_type))
                for key, item in value.items()
            ]
            if isinstance(key_type, Primitive) and key_type.is_string:
                return dict(pairs)
            return [{"key": key, "value": item} for key, item in pairs]
        case _:
            return value


def mappings_result(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> Result:
    """Return the result of rows that are mappings; a column that a row lacks is None."""
    return Result(
        columns=_columns(list(columns.items())),
        rows=[tuple(row.get(name) for name in columns) for row in rows],
        total=len(rows),
    )


def _columns(names_and_types: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    """Return the columns; repeated names get a number: `id`, `id_2`. Their `json` is empty."""
    all_names = {name for name, _ in names_and_types}
    used: set[str] = set()
    columns = []
    for name, kind in names_and_types:
        unique, number = name, 1
        while unique in used or (number > 1 and unique in all_names):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique)
        columns.append(Column(unique, kind))
    return tuple(columns)


def _plain(value: object, kind: T.DataType) -> object:
    """Return a value of Spark's as a plain one, as the module describes."""
    from pyspark.sql import types as T

    match kind, value:
        case T.TimestampType(), datetime.datetime():
            return value.astimezone(datetime.UTC)  # PySpark returns the process's own zone
        case T.ArrayType(elementType=element), list():
            return [_plain(item, element) for item in value]
        case T.StructType(fields=fields), tuple():
            return {field.name: _plain(item, field.dataType) for field, item in zip(fields, value)}
        case T.MapType(keyType=key_type, valueType=value_type), dict():
            pairs = [
                (_plain(key, key_type), _plain(item, value_type)) for key, item in value.items()
            ]
            if isinstance(key_type, T.StringType):
                return dict(pairs)
            return [{"key": key, "value": item} for key, item in pairs]
        case T.VariantType(), T.VariantVal():
            return value.toPython()
        case _, bytearray():
            return bytes(value)
        case _:
            return value
