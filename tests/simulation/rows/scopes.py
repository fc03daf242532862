"""Scopes: the columns that an expression may name, and rows with known columns.

A row is a tuple. In a subquery the outer row's values come before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Field, Struct

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TypedExpression:
    """An expression with its type; `of`: returns its value for a row.

    `literal`: for a whole number in the text, its type among decimals, with as few digits as
    needed.
    """

    type: DataType
    of: Callable[[Row], Any]
    literal: DataType | None = None


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column as expressions name it; `qualifier`: what may precede the name."""

    name: str
    type: DataType
    qualifier: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows and their columns."""

    names: tuple[ColumnName, ...]
    rows: Sequence[Row] = field(repr=False)

    @property
    def schema(self) -> Struct:
        return Struct(tuple(Field(one.name, one.type) for one in self.visible))

    @property
    def visible(self) -> tuple[ColumnName, ...]:
        return tuple(one for one in self.names if not one.hidden)

    def qualified(self, qualifier: str | None) -> Rows:
        """Return the same rows under another name."""
        names = (ColumnName(one.name, one.type, qualifier, one.hidden) for one in self.names)
        return Rows(tuple(names), self.rows)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may name; those of the outer query come after its own.

    `names_used`: collects the names that were looked up in this scope or in outer ones.
    """

    names: tuple[ColumnName, ...]
    outer: Scope | None = None
    names_used: list[str] | None = None

    @property
    def start(self) -> int:
        """The index of the first own column in a row."""
        return 0 if self.outer is None else self.outer.end

    @property
    def end(self) -> int:
        return self.start + len(self.names)

    def find(self, parts: Sequence[str]) -> tuple[int, DataType]:
        """Return the index and type of a column. Raises InvalidRequest for none or several."""
        name = parts[-1].lower()
        if self.names_used is not None:
            self.names_used.append(name)
        qualifier = ".".join(parts[:-1]).lower()
        found = [
            place
            for place, one in enumerate(self.names)
            if one.name.lower() == name
            and (not qualifier or _ends_with((one.qualifier or "").lower(), qualifier))
        ]
        if len(found) == 1:
            return self.start + found[0], self.names[found[0]].type
        if found:
            raise InvalidRequest(f"AMBIGUOUS_REFERENCE: column {'.'.join(parts)!r} is several")
        if self.outer is not None:
            return self.outer.find(parts)
        known = ", ".join(one.name for one in self.names if not one.hidden)
        raise InvalidRequest(f"there is no column {'.'.join(parts)!r}: there are {known}")


def _ends_with(qualifier: str, wanted: str) -> bool:
    return qualifier == wanted or qualifier.endswith(f".{wanted}")
