"""Conditions that Spark may evaluate for every row, deleted ones included, without failing.

Owns which conditions these are and their Spark columns. Evaluated first, they save the lookup of
deletion vectors for the rows that they exclude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.local.types import quote
from txlake.log.coercion import has_plain_text
from txlake.log.predicates import Comparison, In, Operator, Predicate, conjuncts
from txlake.protocol.types import Field, Primitive, Struct

_COMPARED: Mapping[Operator, Callable[[Column, Any], Column]] = {
    Operator.EQUAL: lambda column, value: column == value,
    Operator.LESS: lambda column, value: column < value,
    Operator.LESS_OR_EQUAL: lambda column, value: column <= value,
    Operator.GREATER: lambda column, value: column > value,
    Operator.GREATER_OR_EQUAL: lambda column, value: column >= value,
}
_EXACT = frozenset({"byte", "short", "integer", "long", "date"})


def prefilters(predicate: Predicate, schema: Struct) -> Iterator[Column]:
    """Yield conditions on the files' columns, by physical name, that hold for every row that meets
    the predicate.

    Only =, <, <=, >, >= and IN of top-level integer, date and plain text columns yield one, where
    AND joins them to the rest.
    """
    for part in conjuncts(predicate):
        match part:
            case Comparison((name,), op, value) if op in _COMPARED:
                item = schema.find(name)
                if item is not None and _is_exact(item):
                    yield _COMPARED[op](F.col(quote(item.physical_name)), value)
            case In((name,), values):
                item = schema.find(name)
                if item is not None and _is_exact(item):
                    yield F.col(quote(item.physical_name)).isin(list(values))
            case _:
                continue


def _is_exact(item: Field) -> bool:
    """Return whether Spark compares the column's values as the log does, with no cast."""
    exact = isinstance(item.type, Primitive) and item.type.name in _EXACT
    return exact or has_plain_text(item)
