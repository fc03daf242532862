"""The nodes of an expression that is computed from one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from txlake.log.predicate_nodes import LiteralValue


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: LiteralValue


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A column of the row, by its name in the text; `qualifier` is the table's name before it, if
    any.
    """

    name: str
    qualifier: str | None = None


@dataclass(frozen=True, slots=True)
class Negated:
    """`-part`."""

    part: Value


@dataclass(frozen=True, slots=True)
class Operation:
    """`left operator right`, the operator being one of `+ - * / ||`."""

    operator: str
    left: Value
    right: Value


Value: TypeAlias = Literal | ColumnValue | Negated | Operation
