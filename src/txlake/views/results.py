"""What a command shows: columns and rows as plain values, made without knowing where they go.

Owns how rows of Spark become plain values: a moment is a datetime with a zone, a struct a
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
from txlake.views.describe import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, unique in its result, and its type as Spark's SQL writes it.

    `json` is the type of a query's column as Spark's JSON has it, which says it whole.
    """

    name: str
    type: str
    json: str = ""

    @property
    def is_number(self) -> bool:
        """Whether its values are drawn with their digits below each other."""
        return self.type.split("(")[0] in _NUMBERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows in order; `total` is how many there are, more than `rows` where those were cut."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[object, ...]]
    total: int


_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def collected(frame: DataFrame, rows_max: int | None = None) -> Result:
    """The rows of a DataFrame, at most `rows_max`; how many there are is counted when it has more.

    Raises what Spark raises.
    """
    schema = frame.schema
    types = [field.dataType for field in schema]
    named = _columns([(field.name, field.dataType.simpleString()) for field in schema])
    columns = tuple(replace(one, json=kind.json()) for one, kind in zip(named, types))
    if not columns:
        return Result(columns=(), rows=(), total=0)
    taken = frame if rows_max is None else frame.limit(rows_max + 1)
    rows = [tuple(map(_plain, row, types)) for row in taken.collect()]
    if rows_max is None or len(rows) <= rows_max:
        return Result(columns=columns, rows=rows, total=len(rows))
    return Result(columns=columns, rows=rows[:rows_max], total=frame.count())


def held(answer: Rows, rows_max: int | None = None) -> Result:
    """The rows of an answer that Spark had nothing to do with, at most `rows_max`."""
    types = [item.type for item in answer.schema]
    if not types:
        return Result(columns=(), rows=(), total=0)
    named = _columns([(item.name, short_text(item.type)) for item in answer.schema])
    columns = tuple(replace(one, json=_json_of(kind)) for one, kind in zip(named, types))
    taken = answer.rows if rows_max is None else answer.rows[:rows_max]
    return Result(
        columns=columns,
        rows=[tuple(map(_plain_held, row, types)) for row in taken],
        total=len(answer.rows),
    )


def _json_of(kind: DataType) -> str:
    """As Spark writes it."""
    return json.dumps(type_to_json(kind), separators=(",", ":"), sort_keys=True)


def _plain_held(value: object, kind: DataType) -> object:
    """As `_plain`, of what `Rows` has."""
    match kind, value:
        case Array(element, _), list():
            return [_plain_held(one, element) for one in value]
        case Struct(fields), tuple():
            return {item.name: _plain_held(one, item.type) for item, one in zip(fields, value)}
        case Map(key, of, _), dict():
            pairs = [(_plain_held(name, key), _plain_held(one, of)) for name, one in value.items()]
            if isinstance(key, Primitive) and key.is_string:
                return dict(pairs)
            return [{"key": name, "value": one} for name, one in pairs]
        case _:
            return value


def listed(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> Result:
    """Rows that are mappings; a column that a row lacks is null there."""
    return Result(
        columns=_columns(list(columns.items())),
        rows=[tuple(row.get(name) for name in columns) for row in rows],
        total=len(rows),
    )


def _columns(named: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    """Names that repeat get a number: `id`, `id_2`."""
    taken = {name for name, _ in named}
    used: set[str] = set()
    columns = []
    for name, kind in named:
        unique, number = name, 1
        while unique in used or (number > 1 and unique in taken):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique)
        columns.append(Column(unique, kind))
    return tuple(columns)


def _plain(value: object, kind: T.DataType) -> object:
    from pyspark.sql import types as T

    match kind, value:
        case T.TimestampType(), datetime.datetime():
            return value.astimezone(datetime.UTC)  # PySpark gave it in this process's own zone
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
