"""Check the arguments of callers, with the errors that delta-spark's users know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from txlake.lake.tables.errors import ArgumentTypeRefused, ArgumentValueRefused
from txlake.sql.statements import Table, TablePath
from txlake.storage import canonical_url, local_path

_T = TypeVar("_T")

_TYPE_NAMES = {str: "a string", bool: "a boolean", int: "an int", dict: "a dict"}


def require_type(value: object, kind: type[_T], name: str) -> _T:
    """Return the value. Raises ArgumentValueRefused, a ValueError, if it has another type."""
    if isinstance(value, kind):
        return value
    raise ArgumentValueRefused(f"{name} needs to be {_TYPE_NAMES[kind]} but got '{type(value)}'.")


def require_strings(columns: tuple[object, ...], what: str) -> tuple[str, ...]:
    """Return names that are given one by one, or as one list or tuple.

    Raises ArgumentTypeRefused, a TypeError, for a name that isn't text. `what` names it in the
    message: a singular noun without its article.
    """
    names: Iterable[object] = columns
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        names = columns[0]
    return tuple(require_string(name, what) for name in names)


def require_string(value: object, what: str) -> str:
    """Return the text. Raises ArgumentTypeRefused, a TypeError, for any other type.

    `what` names the argument in the message.
    """
    if isinstance(value, str):
        return value
    raise type_error(f"{what} must be str.", value)


def type_error(expected: str, *rejected: object) -> ArgumentTypeRefused:
    """Return an error that says what was expected, and each rejected value with its type."""
    found = "".join(f" Found {value} with type {type(value)}" for value in rejected)
    return ArgumentTypeRefused(expected + found)


def with_absolute_path(table: Table) -> Table:
    """Return the table, a relative path resolved against the current folder.

    Raises InvalidRequest for an invalid location.
    """
    if not isinstance(table, TablePath) or table.location.lower().startswith(("/", "file:")):
        return table
    place = local_path(canonical_url(table.location))
    return table if place is None else TablePath(place)
