"""Checks of what callers pass, with the errors that delta-spark's users know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from txlake.statements import Table, TablePath
from txlake.storage import canonical_url, local_path
from txlake.tables.errors import ArgumentTypeRefused, ArgumentValueRefused

_T = TypeVar("_T")

_NAMES = {str: "a string", bool: "a boolean", int: "an int", dict: "a dict"}


def checked(value: object, kind: type[_T], name: str) -> _T:
    """The value. Raises a ValueError when it isn't of that type."""
    if isinstance(value, kind):
        return value
    raise ArgumentValueRefused(f"{name} needs to be {_NAMES[kind]} but got '{type(value)}'.")


def strings(columns: tuple[object, ...], what: str) -> tuple[str, ...]:
    """Names given one by one, or as one list or tuple.

    Raises a TypeError that names `what`, a singular with its article left out.
    """
    names: Iterable[object] = columns
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        names = columns[0]
    return tuple(string(name, what) for name in names)


def string(value: object, what: str) -> str:
    """The text. Raises a TypeError that names `what`."""
    if isinstance(value, str):
        return value
    raise wrong_type(f"{what} must be str.", value)


def wrong_type(expected: str, *found: object) -> ArgumentTypeRefused:
    """What was expected, and each value found with its type."""
    values = "".join(f" Found {value} with type {type(value)}" for value in found)
    return ArgumentTypeRefused(expected + values)


def settled(table: Table) -> Table:
    """The table; one that is named by a relative path stays where that leads to now.

    Raises InvalidRequest for a location that names no place.
    """
    if not isinstance(table, TablePath) or table.location.lower().startswith(("/", "file:")):
        return table
    place = local_path(canonical_url(table.location))
    return table if place is None else TablePath(place)
