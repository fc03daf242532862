"""The granularity at which two transactions conflict: rows, files, or the whole table.

Source: `txlake.conflictGranularity` in docs/errors.md; docs/how-a-commit-works.md.
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
    """Return the granularity of this name, in any letter case and with blanks around it. Raises
    InvalidRequest.
    """
    for one in Granularity:
        if one.value == text.strip().lower():
            return one
    names = ", ".join(one.value for one in Granularity)
    raise InvalidRequest(f"{PROPERTY} = {text!r}: expected one of {names}")


def coarsest(*asked: Granularity | None) -> Granularity:
    """Return the coarsest of the granularities that aren't None; ROW if all are."""
    return max((one for one in asked if one is not None), key=_ORDER.index, default=Granularity.ROW)
