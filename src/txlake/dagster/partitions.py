"""The rows that partitions of an asset are, as a condition in SQL on one column.

A column of dates or timestamps has the partitions' windows of time, a column of texts or whole
numbers their keys.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from txlake.errors import InvalidRequest
from txlake.protocol.type_text import quoted_text
from txlake.sql.statements.names import quoted

_NO_ROWS = "1 = 0"
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
Window = tuple[datetime.datetime, datetime.datetime]
"""A partition's first instant, and the first one after it; both in the partitions' time zone."""


def condition(
    column: str, types: Mapping[str, str], keys: Sequence[str], windows: Sequence[Window] = ()
) -> str:
    """Return the condition for the rows of partitions: of those keys, or those windows of time.

    `types` are the types of the table's columns, by name. Raises InvalidRequest for a column that
    the table doesn't have, and for a column or key from which no condition can be made.
    """
    found = {name.lower(): kind for name, kind in types.items()}.get(column.lower())
    if found is None:
        raise InvalidRequest(
            f"partition_expr {column!r}: expected one of the table's columns, {', '.join(types)}"
        )
    if not keys:
        return _NO_ROWS
    name = quoted(column, always=True)
    if windows and found in ("date", "timestamp", "timestamp_ntz"):
        ranges = (
            f"{name} >= {_instant(column, found, first)} AND {name} < "
            f"{_instant(column, found, end)}"
            for first, end in _joined(windows)
        )
        return any_of(tuple(ranges))
    return f"{name} IN ({', '.join(_literal(column, found, key) for key in keys)})"


def all_of(conditions: Iterable[str]) -> str:
    """Return the condition that all of them are true."""
    return " AND ".join(f"({each})" for each in conditions)


def any_of(conditions: Sequence[str]) -> str:
    """Return the condition that one of them is true; that of no rows for none."""
    return " OR ".join(f"({each})" for each in conditions) or _NO_ROWS


def _joined(windows: Sequence[Window]) -> list[Window]:
    """Return the windows in order, those that follow each other as one."""
    made: list[Window] = []
    for first, end in sorted(windows):
        if made and made[-1][1] == first:
            made[-1] = (made[-1][0], end)
        else:
            made.append((first, end))
    return made


def _instant(column: str, kind: str, time: datetime.datetime) -> str:
    """Return the end of a window as a literal of the column's type."""
    if kind == "timestamp":
        return f"TIMESTAMP '{time.isoformat(' ')}'"
    local = time.replace(tzinfo=None)
    if kind == "timestamp_ntz":
        return f"TIMESTAMP_NTZ '{local.isoformat(' ')}'"
    if local.time() != datetime.time():
        raise InvalidRequest(
            f"partition_expr {column!r}: a partition ends at {local}, and a DATE has whole days; "
            "partition by a TIMESTAMP, or by days"
        )
    return f"DATE '{local.date()}'"


def _literal(column: str, kind: str, key: str) -> str:
    """Return a partition's key as a literal of the column's type."""
    if kind == "string":
        return quoted_text(key)
    try:
        if kind in _WHOLE_NUMBERS:
            return str(int(key))
        if kind == "date":
            return f"DATE '{datetime.date.fromisoformat(key)}'"
    except ValueError:
        raise InvalidRequest(
            f"partition_expr {column!r}: expected a key that is a {kind}, found {key!r}"
        ) from None
    raise InvalidRequest(
        f"partition_expr {column!r}: expected a column of texts, whole numbers or dates, or with "
        f"partitions by time a timestamp, found {kind}"
    )
