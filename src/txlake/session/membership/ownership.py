"""Determine which lake owns the table in a folder, from its log or from its place.

A table that another engine created names its lake in a property, which that engine may drop when it
replaces the table. The folder of such a table is in the warehouse and its name ends with the
table's id.
"""

from __future__ import annotations

import logging
from urllib.parse import unquote

from txlake.catalog import DEFAULT_DATABASE
from txlake.commit.membership import TABLE_ID, Membership, is_open, membership_of
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.engine import LAKE_FOLDER, Engine
from txlake.sql.statements import TableName

_log = logging.getLogger(__name__)
_ID_LENGTH = 36


def place_with_id(engine: Engine, database: str, name: str, table_id: str) -> str:
    """Return the place for a table that another engine creates. Raises as `Engine.place_of`."""
    return f"{engine.place_of(database, name)}-{table_id}"


def owner_of(engine: Engine, place: str, latest: Snapshot) -> Membership | None:
    """Return the owner of the table at a place; None for a table of no lake.

    It is in the log, or for an open table, from which another engine dropped it, in the name of the
    folder.
    """
    own = membership_of(latest)
    if own is not None or not is_open(latest.protocol):
        return own
    table_id = latest.metadata.configuration.get(TABLE_ID, "")
    parts = _name_of_place(engine, place, table_id)
    if parts is None:
        return None
    return Membership(
        lake=engine.catalog.of_lake().lake_id, table=table_id, name=str(TableName(parts))
    )


def own_files(store: Store) -> list[str]:
    """Return the paths of the files in a table's folder, without those of other tables and lakes.

    A folder below with a log or a catalog of its own is another table's or lake's. Each is logged.
    The logs of the table's branches, which are within its log, are its own.
    """
    paths = [stored.path for stored in store.list("")]
    others = {
        "/".join(parts[:place])
        for parts in (path.split("/") for path in paths)
        for place, part in enumerate(parts[:-1])
        if part == LAKE_FOLDER or (part == LOG_FOLDER and 0 < place == parts.index(part))
    }
    # A warehouse in the table's own folder: its tables have logs.
    if "" in others:
        others = {*others, LAKE_FOLDER} - {""}
    for other in sorted(others):
        _log.warning("%s/%s is another table's or a lake's, and stays", store.url, other)
    return [path for path in paths if not any(path.startswith(f"{each}/") for each in others)]


def _name_of_place(engine: Engine, place: str, table_id: str) -> tuple[str, str] | None:
    """Return the database and the name for which `place_with_id` returns this place, else None."""
    warehouse = engine.warehouse
    if warehouse is None or len(table_id) != _ID_LENGTH:
        return None
    *folders, folder = unquote(place.removeprefix(f"{warehouse.url}/")).split("/")
    database = folders[0].removesuffix(".db") if folders else DEFAULT_DATABASE
    name = folder.removesuffix(f"-{table_id}")
    try:
        matches = place_with_id(engine, database, name, table_id) == place
    except InvalidRequest:
        return None
    return (database, name) if matches else None
