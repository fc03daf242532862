"""Predicates as JSON values.

Owns the form of every node and literal; columns are their paths. Each value has one form, so that
equal predicates have equal JSON: `0.0` and `-0.0` differ, and NaN equals itself.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TypeAlias, cast

from txlake.log.predicate_nodes import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    LocalTime,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.protocol.times import FarTime, is_zoned, micros_of, time_of

JsonValue: TypeAlias = object
_MICROS_END = 2**63


def predicate_to_json(predicate: Predicate) -> JsonValue:
    """Return the predicate as a value that `json.dumps` encodes: an object with the node's name."""
    match predicate:
        case And(parts):
            return {"and": [predicate_to_json(part) for part in parts]}
        case Or(parts):
            return {"or": [predicate_to_json(part) for part in parts]}
        case Not(part):
            return {"not": predicate_to_json(part)}
        case Comparison(column, operator, value):
            return {"compare": [list(column), Operator(operator).value, literal_to_json(value)]}
        case In(column, values):
            return {"in": [list(column), [literal_to_json(value) for value in values]]}
        case IsNull(column):
            return {"is_null": list(column)}
        case StartsWith(column, prefix):
            return {"starts_with": [list(column), prefix]}
        case Always(constant):
            return {"always": constant}
        case Opaque(text, columns, deterministic):
            named = None if columns is None else [list(column) for column in sorted(columns)]
            return {"opaque": [text, named, deterministic]}


def predicate_from_json(value: JsonValue) -> Predicate:
    """Return the predicate of a decoded JSON value. Raises ValueError for any other value."""
    match _node(value):
        case "and", list() as parts:
            return And(tuple(predicate_from_json(part) for part in parts))
        case "or", list() as parts:
            return Or(tuple(predicate_from_json(part) for part in parts))
        case "not", part:
            return Not(predicate_from_json(part))
        case "compare", [column, str() as operator, literal]:
            return Comparison(_path(column), Operator(operator), literal_from_json(literal))
        case "in", [column, list() as values]:
            return In(_path(column), tuple(literal_from_json(item) for item in values))
        case "is_null", column:
            return IsNull(_path(column))
        case "starts_with", [column, str() as prefix]:
            return StartsWith(_path(column), prefix)
        case "always", (True | False | None) as constant:
            return Always(constant)
        case "opaque", [str() as text, columns, bool() as deterministic]:
            return Opaque(text, _paths(columns), deterministic)
    raise ValueError(f"no predicate: {value!r:.200}")


def literal_to_json(value: LiteralValue) -> JsonValue:
    """Return a literal as a value that `json.dumps` encodes.

    Null, booleans, whole numbers and texts are JSON's own; others are an object that names the
    type. Times are microseconds since 1970-01-01, whether they are instants or not.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": "nan" if math.isnan(value) else repr(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"binary": base64.b64encode(value).decode("ascii")}
        case datetime() | FarTime():
            return {"time": [micros_of(value), is_zoned(value)]}
        case date():
            return {"date": value.isoformat()}
        case LocalTime(wall, starts_day):
            return {"local_time": [micros_of(wall), starts_day]}


def literal_from_json(value: JsonValue) -> LiteralValue:
    """Return the literal of a decoded JSON value. Raises ValueError for any other value."""
    match value:
        case None | bool() | int() | str():
            return value
    match _node(value):
        case "float", str() as text:
            return float(text)
        case "decimal", str() as text:
            return _decimal(text)
        case "binary", str() as text:
            return base64.b64decode(text, validate=True)
        case "time", [int() as micros, bool() as zoned] if abs(micros) < _MICROS_END:
            return time_of(micros, zoned=zoned)
        case "date", str() as text:
            return date.fromisoformat(text)
        case "local_time", [int() as micros, bool() as starts_day] if abs(micros) < _MICROS_END:
            return LocalTime(time_of(micros, zoned=False), starts_day)
    raise ValueError(f"no literal: {value!r:.200}")


def _node(value: JsonValue) -> tuple[str, JsonValue]:
    """Return the only key of an object, and its value. Raises ValueError for any other value."""
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"expected an object with one key, found {value!r:.200}")
    ((name, content),) = cast(Mapping[str, JsonValue], value).items()
    return name, content


def _path(value: JsonValue) -> ColumnPath:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"no column: {value!r:.200}")
    return tuple(cast(list[str], value))


def _paths(value: JsonValue) -> frozenset[ColumnPath] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"no columns: {value!r:.200}")
    return frozenset(_path(item) for item in cast(list[JsonValue], value))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"no decimal: {text!r:.80}") from error
