"""Resolution of the names and paths of readers and writers, with time travel in a path's suffix."""

from __future__ import annotations

import datetime
import re

from txlake.errors import InvalidRequest
from txlake.lake.tables.errors import raise_parse_error
from txlake.spark_integration.lake_binding import LakeBinding
from txlake.sql.statements import Table, TableName, TablePath, TimeTravel, is_place, table_of

_VERSION = re.compile(r"(.+)@[vV](\d+)$", re.DOTALL)
_TIMESTAMP = re.compile(r"(.+)@(\d{17})$", re.DOTALL)


def parse_table(text: str) -> Table:
    """Parse a table name or ``delta.`/path` ``. Raises a ParseException for any other text."""
    try:
        return table_of(text)
    except InvalidRequest as error:
        raise_parse_error(error)


def resolve_table(binding: LakeBinding, text: str, source: str | None) -> Table:
    """Return the table that `load(text)` or `save(text)` refers to.

    A plain word is the name of a table that the lake has. For any other plain word the format
    decides: with `txlake` it is a name, with `delta`, as in Delta Spark, a folder below the current
    one. Raises a ParseException for a text that is no name, and as `require_resolvable_path`.
    """
    table = parse_table(text) if "`" in text or not is_place(text) else TablePath(text)
    if (
        isinstance(table, TableName)
        and "`" not in text
        and (source or "").lower() == "delta"
        and binding.kind_of(table) is None
    ):
        table = TablePath(f"./{text}")
    binding.require_resolvable_path(table)
    return table


def split_time_travel(binding: LakeBinding, table: Table) -> tuple[Table, TimeTravel | None]:
    """Split `@v3` or `@20260131120000000` off the end of a path: return the table and the version.

    Without such an end, and for a name, the version is None. A table at the whole path, suffix
    included, takes precedence, as in Delta Spark. Raises InvalidRequest for digits that are no
    time.
    """
    if not isinstance(table, TablePath):
        return table, None
    version, timestamp = _VERSION.match(table.location), _TIMESTAMP.match(table.location)
    match = version or timestamp
    if match is None or binding.kind_of(table) is not None:
        return table, None
    path = TablePath(match[1])
    if version is not None:
        return path, TimeTravel(version=int(version[2]))
    return path, TimeTravel(timestamp=_timestamp(match[2]))


def _timestamp(digits: str) -> str:
    """Return 17 digits as a timestamp's text. Raises InvalidRequest if they are no time."""
    try:
        moment = datetime.datetime.strptime(digits + "000", "%Y%m%d%H%M%S%f")  # noqa: DTZ007
    except ValueError as error:
        raise InvalidRequest(
            f"@{digits} is no timestamp: expected yyyyMMddHHmmssSSS, 17 digits"
        ) from error
    return moment.isoformat(sep=" ")
