"""Which table a path of a reader or a writer means, with the moment that may stand at its end."""

from __future__ import annotations

import datetime
import re

from txlake.errors import InvalidRequest
from txlake.spark_integration.door import Door
from txlake.statements import Table, TableName, TablePath, TimeTravel, is_place, table_of
from txlake.tables.errors import refuse_text

_VERSION = re.compile(r"(.+)@[vV](\d+)$", re.DOTALL)
_MOMENT = re.compile(r"(.+)@(\d{17})$", re.DOTALL)


def named(text: str) -> Table:
    """The table of a name or ``delta.`/path` ``. Raises a ParseException for what is no name."""
    try:
        return table_of(text)
    except InvalidRequest as error:
        refuse_text(error)


def at(door: Door, text: str, source: str | None) -> Table:
    """The table that `load(text)` or `save(text)` means.

    A plain word is a table's name where the lake has one of that name. Where it hasn't, it is a
    name with the format `txlake`, and with `delta`, as in Delta Spark, a folder below the current
    one.
    """
    table = named(text) if "`" in text or not is_place(text) else TablePath(text)
    if (
        isinstance(table, TableName)
        and "`" not in text
        and (source or "").lower() == "delta"
        and door.meaning(table) is None
    ):
        table = TablePath(f"./{text}")
    door.require_place(table)
    return table


def with_moment(door: Door, table: Table) -> tuple[Table, TimeTravel | None]:
    """The table without the `@v3` or `@20260131120000000` at the end of its path, and the moment.

    A table that lies at the path as it is written comes first, as in Delta Spark.
    """
    if not isinstance(table, TablePath):
        return table, None
    version, moment = _VERSION.match(table.location), _MOMENT.match(table.location)
    found = version or moment
    if found is None or door.meaning(table) is not None:
        return table, None
    place = TablePath(found[1])
    if version is not None:
        return place, TimeTravel(version=int(version[2]))
    return place, TimeTravel(timestamp=_timestamp(found[2]))


def _timestamp(digits: str) -> str:
    try:
        moment = datetime.datetime.strptime(digits + "000", "%Y%m%d%H%M%S%f")  # noqa: DTZ007
    except ValueError as error:
        raise InvalidRequest(
            f"@{digits} is no moment: expected yyyyMMddHHmmssSSS, 17 digits"
        ) from error
    return moment.isoformat(sep=" ")
