"""What the log's predicates mean, row by row in Python: the reference where no Spark is at hand."""

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

_COMPARED: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: lambda one, other: one == other,
    Operator.SAME: lambda one, other: one == other,
    Operator.NOT_EQUAL: lambda one, other: one != other,
    Operator.LESS: lambda one, other: one < other,
    Operator.LESS_OR_EQUAL: lambda one, other: one <= other,
    Operator.GREATER: lambda one, other: one > other,
    Operator.GREATER_OR_EQUAL: lambda one, other: one >= other,
}


class NotModelled(Exception):
    """A part of the predicate is Spark's to evaluate."""


def holds(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """Whether a bound predicate is true of a row; None where that is unknown, as SQL means it.

    NaN is equal to itself and greater than all else, texts are ordered by their code points.
    Raises NotModelled.
    """
    match predicate:
        case Always(value):
            return value
        case Not(part):
            found = holds(part, row)
            return None if found is None else not found
        case And(parts):
            return _joined([holds(part, row) for part in parts], ends=False)
        case Or(parts):
            return _joined([holds(part, row) for part in parts], ends=True)
        case IsNull(column):
            return _value(column, row) is None
        case Comparison(column, operator, value):
            return _compared(_value(column, row), Operator(operator), value)
        case In(column, values):
            found_value = _value(column, row)
            return _joined(
                [_compared(found_value, Operator.EQUAL, one) for one in values], ends=True
            )
        case StartsWith(column, prefix):
            text = _value(column, row)
            return None if text is None else str(text).startswith(prefix)
    raise NotModelled


def _joined(parts: list[bool | None], *, ends: bool) -> bool | None:
    if ends in parts:
        return ends
    return None if None in parts else not ends


def _value(column: ColumnPath, row: Mapping[str, Any]) -> Any:
    value: Any = row
    for name in column:
        value = None if value is None else value[name]
    return value


def _compared(value: Any, operator: Operator, literal: Any) -> bool | None:
    if operator is Operator.SAME and (value is None or literal is None):
        return value is None and literal is None
    if value is None or literal is None:
        return None
    return _COMPARED[operator](_key(value), _key(literal))


def _key(value: Any) -> Any:
    """The value as Python orders it alike."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    if isinstance(value, datetime | FarTime):
        return micros_of(value)
    return value
