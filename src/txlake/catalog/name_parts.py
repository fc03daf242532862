"""What the parts of a table's name mean: table, database.table, lake.database.table, dbo.table.

Owns the meaning of the parts alone; which tables there are is the catalog's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from urllib.parse import unquote

from txlake.errors import InvalidRequest
from txlake.sql.statements import TableName, quoted

_SPARK_CATALOG = "spark_catalog"
_SCHEMA = "dbo"


def lake_names(warehouse_url: str | None) -> frozenset[str]:
    """What a lake is called where it is named, in lower case: its folder's name is one."""
    own = unquote(warehouse_url or "").rstrip("/").rpartition("/")[2].lower()
    return frozenset({_SPARK_CATALOG, own} - {""})


def qualified(
    table: TableName, database: str, lakes: Collection[str], is_database: Callable[[str], bool]
) -> tuple[str, str]:
    """(database, table) of a name; `database` is the one in use.

    The first of three parts is the lake. `dbo`, which is T-SQL's schema, is the database in use, or
    the one before it, unless there is a database of that name. Raises InvalidRequest for a name of
    another catalog.
    """
    *owners, name = table.parts
    if len(owners) == 2 and owners[0].lower() in lakes:
        owners = owners[1:]
    if len(owners) == 2 and _is_schema(owners[1], is_database) and is_database(owners[0]):
        owners = owners[:1]
    if len(owners) > 1:
        known = " or ".join(quoted(one) for one in sorted(lakes))
        raise InvalidRequest(
            f"{table}: expected table or database.table, found {len(table.parts)} parts; of three, "
            f"the first is the lake: {known}"
        )
    if not owners or _is_schema(owners[0], is_database):
        return database, name
    return owners[0], name


def _is_schema(name: str, is_database: Callable[[str], bool]) -> bool:
    """Whether a name is T-SQL's `dbo`, and no database."""
    return name.lower() == _SCHEMA and not is_database(name)
