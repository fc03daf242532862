"""How coarse a thing two transactions may not both change: rows, files, or the table.

Source: `txlake.conflictGranularity` in docs/errors.md; docs/internals/conflict-rules.md.
"""

from __future__ import annotations

from enum import Enum

from txlake.errors import InvalidRequest

PROPERTY = "txlake.conflictGranularity"


class Granularity(Enum):
    """What conflicts are found by. By value: the names that users type."""

    ROW = "row"
    FILE = "file"
    TABLE = "table"


_ORDER = tuple(Granularity)


def parse_granularity(text: str) -> Granularity:
    """The granularity of that name, whatever its case. Raises InvalidRequest for any other."""
    for one in Granularity:
        if one.value == text.strip().lower():
            return one
    names = ", ".join(one.value for one in Granularity)
    raise InvalidRequest(f"{PROPERTY} = {text!r}: expected one of {names}")


def coarsest(*asked: Granularity | None) -> Granularity:
    """The coarsest of those that were asked for; rows when none was."""
    return max((one for one in asked if one is not None), key=_ORDER.index, default=Granularity.ROW)
