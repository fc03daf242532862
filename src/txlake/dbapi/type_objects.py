"""The types of columns as PEP 249 compares them, and its constructors of values.

A column's type code is the SQL text of its type, `decimal(10,2)`, which equals the type object of
its kind: `STRING`, `BINARY`, `NUMBER`, `DATETIME`. Source: PEP 249, "Type Objects and
Constructors".
"""

from __future__ import annotations

import datetime
import re

_NAME = re.compile(r"[a-z_]+")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class TypeObject:
    """A kind of types: equals the type codes of its types."""

    def __init__(self, name: str, *types: str) -> None:
        self.name = name
        self.types = frozenset(types)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self.name == other.name
        if not isinstance(other, str):
            return NotImplemented
        found = _NAME.match(other.lower())
        return found is not None and found[0] in self.types

    def __hash__(self) -> int:
        return hash(self.name)


STRING = TypeObject("STRING", "string", "varchar", "char")
BINARY = TypeObject("BINARY", "binary", "geometry", "geography")
NUMBER = TypeObject(
    "NUMBER", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean"
)
DATETIME = TypeObject("DATETIME", "date", "time", "timestamp", "timestamp_ntz", "interval")
ROWID = TypeObject("ROWID")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802
    """Return the local date of seconds since the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """Return the local time of day of seconds since the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """Return the local time, without a zone, of seconds since the epoch."""
    return datetime.datetime.fromtimestamp(ticks).astimezone().replace(tzinfo=None)


def decimal_of(code: str) -> tuple[int, int] | tuple[None, None]:
    """Return the precision and scale of a decimal's type code; None and None for another."""
    found = _DECIMAL.fullmatch(code)
    return (None, None) if found is None else (int(found[1]), int(found[2]))
