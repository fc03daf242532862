"""What names mean where an expression stands, and rows of known columns.

A row is a tuple. A query inside a query sees the outer row's values in front of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Field, Struct

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression: its type, and its value for a row.

    `literal`: the type that a whole number written down has among decimals: as few digits as it
    needs.
    """

    type: DataType
    of: Callable[[Row], Any]
    literal: DataType | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """A column as expressions see it; `qualifier` is what may stand in front of its name."""

    name: str
    type: DataType
    qualifier: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows and their columns."""

    names: tuple[Name, ...]
    rows: Sequence[Row] = field(repr=False)

    @property
    def schema(self) -> Struct:
        return Struct(tuple(Field(one.name, one.type) for one in self.visible))

    @property
    def visible(self) -> tuple[Name, ...]:
        return tuple(one for one in self.names if not one.hidden)

    def qualified(self, qualifier: str | None) -> Rows:
        """The same rows under another name."""
        names = (Name(one.name, one.type, qualifier, one.hidden) for one in self.names)
        return Rows(tuple(names), self.rows)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression sees; those of the query around it behind its own.

    `asked`: where it is noted that a column of this scope, or further out, was asked for.
    """

    names: tuple[Name, ...]
    outer: Scope | None = None
    asked: list[str] | None = None

    @property
    def start(self) -> int:
        """The place of the first own column in a row."""
        return 0 if self.outer is None else self.outer.end

    @property
    def end(self) -> int:
        return self.start + len(self.names)

    def find(self, parts: Sequence[str]) -> tuple[int, DataType]:
        """The place and type of a column. Raises InvalidRequest where it is none or several."""
        name = parts[-1].lower()
        if self.asked is not None:
            self.asked.append(name)
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
