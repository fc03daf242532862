"""The meaning of the log's predicates, row by row in Python: the reference without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from txlake.log.predicates import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.protocol.times import FarTime, micros_of

_COMPARISONS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: lambda one, other: one == other,
    Operator.SAME: lambda one, other: one == other,
    Operator.NOT_EQUAL: lambda one, other: one != other,
    Operator.LESS: lambda one, other: one < other,
    Operator.LESS_OR_EQUAL: lambda one, other: one <= other,
    Operator.GREATER: lambda one, other: one > other,
    Operator.GREATER_OR_EQUAL: lambda one, other: one >= other,
}


class NotModelled(Exception):
    """Spark has to evaluate a part of the predicate."""


def evaluate(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """Return whether a bound predicate is true of a row; None for unknown.

    NaN equals itself and is greater than every number; texts are ordered by code points. Raises
    NotModelled.
    """
    match predicate:
        case Always(value):
            return value
        case Not(part):
            found = evaluate(part, row)
            return None if found is None else not found
        case And(parts):
            return _join([evaluate(part, row) for part in parts], ends=False)
        case Or(parts):
            return _join([evaluate(part, row) for part in parts], ends=True)
        case IsNull(column):
            return _value(column, row) is None
        case Comparison(column, operator, value):
            return _compare(_value(column, row), Operator(operator), value)
        case In(column, values):
            found_value = _value(column, row)
            return _join([_compare(found_value, Operator.EQUAL, one) for one in values], ends=True)
        case StartsWith(column, prefix):
            text = _value(column, row)
            return None if text is None else str(text).startswith(prefix)
    raise NotModelled


def _join(parts: list[bool | None], *, ends: bool) -> bool | None:
    if ends in parts:
        return ends
    return None if None in parts else not ends


def _value(column: ColumnPath, row: Mapping[str, Any]) -> Any:
    value: Any = row
    for name in column:
        value = None if value is None else value[name]
    return value


def _compare(value: Any, operator: Operator, literal: Any) -> bool | None:
    if operator is Operator.SAME and (value is None or literal is None):
        return value is None and literal is None
    if value is None or literal is None:
        return None
    return _COMPARISONS[operator](_key(value), _key(literal))


def _key(value: Any) -> Any:
    """Return a key by which Python orders values in the same way."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    if isinstance(value, datetime | FarTime):
        return micros_of(value)
    return value
