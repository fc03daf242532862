"""Resolve the parts of a table's name: table, database.table, lake.database.table, dbo.table.

Doesn't know which tables exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from urllib.parse import unquote

from txlake.errors import InvalidRequest
from txlake.sql.statements import TableName, quoted

_SPARK_CATALOG = "spark_catalog"
_SCHEMA = "dbo"


def lake_names(warehouse_url: str | None) -> frozenset[str]:
    """Return the names of a lake in three-part names, in lower case: `spark_catalog`, and the name
    of its warehouse's folder.
    """
    folder = unquote(warehouse_url or "").rstrip("/").rpartition("/")[2].lower()
    return frozenset({_SPARK_CATALOG, folder} - {""})


def qualified(
    table: TableName, database: str, lakes: Collection[str], is_database: Callable[[str], bool]
) -> tuple[str, str]:
    """Return (database, table) of a name; `database` is the current one.

    The first of three parts is the lake, one of the names `lakes`. The part `dbo`, T-SQL's default
    schema, means the current database, or in `database.dbo.table` that database, unless a database
    has the name `dbo`.

    Raises InvalidRequest for a name of another catalog.
    """
    *owners, name = table.parts
    if len(owners) == 2 and owners[0].lower() in lakes:
        owners = owners[1:]
    if len(owners) == 2 and _is_schema(owners[1], is_database) and is_database(owners[0]):
        owners = owners[:1]
    if len(owners) > 1:
        known = " or ".join(quoted(lake) for lake in sorted(lakes))
        raise InvalidRequest(
            f"{table}: expected table or database.table, found {len(table.parts)} parts; of three, "
            f"the first is the lake: {known}"
        )
    if not owners or _is_schema(owners[0], is_database):
        return database, name
    return owners[0], name


def _is_schema(name: str, is_database: Callable[[str], bool]) -> bool:
    """Return whether a name is T-SQL's `dbo`, and no database's."""
    return name.lower() == _SCHEMA and not is_database(name)
