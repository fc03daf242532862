"""Names of tables (catalog name or location) and of their versions (number or timestamp)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlake.errors import InvalidRequest

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_NAME = re.compile(r"\s*(?:\w+|`(?:[^`]|``)+`)(?:\s*\.\s*(?:\w+|`(?:[^`]|``)+`))*\s*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of a catalog: `("sales", "orders")`, or `("orders",)` in the current database."""

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The table's own name, the last part."""
        return self.parts[-1]

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class TablePath:
    """A table by its location, a local path or a URL, as written."""

    location: str

    def __str__(self) -> str:
        return f"delta.{quoted(self.location, always=True)}"


Table = TableName | TablePath


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """The version of a table to read; exactly one of the four is set.

    Attributes:
        version: the version of the table.
        timestamp: the text of a SQL timestamp literal (`2026-01-01 12:00:00`).
        timestamp_expression: a constant SQL expression, as written.
        branch_or_tag: the name of the branch, or of the tag, whose version of the table is read.
    """

    version: int | None = None
    timestamp: str | None = None
    timestamp_expression: str | None = None
    branch_or_tag: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"VERSION AS OF {self.version}"
        if self.branch_or_tag is not None:
            return f"VERSION AS OF '{self.branch_or_tag}'"
        if self.timestamp is not None:
            return f"TIMESTAMP AS OF '{self.timestamp}'"
        return f"TIMESTAMP AS OF {self.timestamp_expression}"


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The versions of a table whose changes to read, both ends inclusive.

    Attributes:
        first: a version, or a timestamp: the first version committed then or later.
        last: a version, or a timestamp: the last version committed by then; None for the newest.
    """

    first: TimeTravel
    last: TimeTravel | None = None


def quoted(part: str, *, always: bool = False) -> str:
    """Return one part of a name as SQL text: in backquotes unless it is a plain word, or with
    `always`.

    A keyword counts as a plain word.
    """
    if not always and _PLAIN_NAME.fullmatch(part):
        return part
    return "`" + part.replace("`", "``") + "`"


def table_of(text: str) -> Table:
    """Return the table that a Python call names.

    A location is anything with a `/` or a backslash, with a scheme (`memory:x`), `.` or `..`, or
    ``delta.`/place` ``; everything else is a name, `table` or `database.table`, whose parts may
    be in backquotes.

    Raises:
        InvalidRequest: the text is empty or not a valid name.
    """
    if not text.strip():
        raise InvalidRequest("a table's name is empty: expected a name, a path or a URL")
    if "`" in text and (_QUOTED_NAME.fullmatch(text) or not is_place(text)):
        parts = _quoted_parts(text.strip())
        if len(parts) == 2 and parts[0].lower() == "delta" and is_place(parts[1]):
            return TablePath(parts[1])
        return TableName(parts)
    if is_place(text):
        return TablePath(text)
    parts = tuple(part.strip() for part in text.split("."))
    if not all(parts):
        raise InvalidRequest(f"{text!r} is no table name: a part of it is empty")
    return TableName(parts)


def is_place(text: str) -> bool:
    """Return whether a text is a path or a URL rather than a name."""
    return "/" in text or "\\" in text or text in {".", ".."} or _SCHEME.match(text) is not None


def _quoted_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a name, in backquotes or plain.

    Raises InvalidRequest if the text is no name.
    """
    parts: list[str] = []
    position = 0
    pattern = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.\s]+))\s*(\.|$)")
    while True:
        match = pattern.match(text, position)
        if match is None:
            raise InvalidRequest(
                f"{text!r} is no table name: expected `part`.`part` at character {position + 1}"
            )
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()
        if not match[3]:
            return tuple(parts)


@dataclass(frozen=True, slots=True)
class RelationName:
    """A table or view that a query's text names, as Spark's parser finds it.

    Attributes:
        parts: the parts of the name.
        start: the position of its first character in the text.
        has_alias: whether the text gives it an alias.
    """

    parts: tuple[str, ...]
    start: int
    has_alias: bool


QueryReader: TypeAlias = Callable[[str], Sequence[RelationName] | None]
"""Returns the names that a query reads; None for a text that is no query or may read others."""
