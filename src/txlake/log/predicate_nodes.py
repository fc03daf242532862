"""The predicates that txlake models, as values.

A predicate is true, false or unknown for a row, as in SQL. A condition that isn't modelled is
`Opaque`: it may have any value for any row, so that it never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from txlake.protocol.partition_values import PartitionScalar
from txlake.protocol.times import Time

ColumnPath: TypeAlias = tuple[str, ...]


class Operator(StrEnum):
    """A comparison operator. `SAME` is `<=>`: null equals null, and it is never unknown."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    SAME = "<=>"


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A TIMESTAMP literal without a zone: its instant depends on the session's zone.

    Attributes:
        wall: the wall clock time.
        starts_day: whether it was a date, so that it is the day's first instant.
    """

    wall: Time
    starts_day: bool = False


LiteralValue: TypeAlias = PartitionScalar | LocalTime


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column op value`. In a bound predicate, the value has exactly the column's type."""

    column: ColumnPath
    op: Operator
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class In:
    """The column equals one of the values, none of which is null."""

    column: ColumnPath
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null."""

    column: ColumnPath


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text column starts with the prefix."""

    column: ColumnPath
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the parts holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Always:
    """The same for every row: true, false, or unknown (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that isn't modelled.

    Attributes:
        text: the condition as SQL, for messages.
        columns: the columns that it names; None when they are unknown.
        deterministic: whether it is a function of the row alone: no subquery, no chance, no clock.
    """

    text: str
    columns: frozenset[ColumnPath] | None = None
    deterministic: bool = False


Predicate: TypeAlias = Comparison | In | IsNull | StartsWith | And | Or | Not | Always | Opaque
