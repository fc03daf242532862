"""The lake's facts about places: folders that were removed, and places that a shallow clone reads.

The functions run in the caller's transaction, which has locked the sequence if they write.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.fact_rows import fact, remove_fact, set_fact
from txlake.catalog.relations import tables

_ID_SUFFIX = re.compile(r"(-[0-9a-f]{8})+$")  # session/definitions.py: place


def is_cleared(connection: Connection, location: str) -> bool:
    """Return whether a dropped table's folder at that place is retained, is being removed, or was
    removed.
    """
    dropped = (tables.c.location == location) & tables.c.dropped_sequence.is_not(None)
    query = sa.select(tables.c.id).where(dropped & tables.c.managed).limit(1)
    if connection.execute(query).first() is not None:
        return True
    return fact(connection, _cleared(location)) is not None


def note_clearing(connection: Connection, table_id: str) -> bool:
    """Reserve a dropped table's location for ever, before its folder is removed.

    No other table is created there: a request to the store may take effect late, and of two
    processes that remove the folder one may still delete files of its list when the other has
    finished.

    Returns False if the table's row is gone: another process has removed the folder.
    """
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    location = connection.scalar(sa.select(tables.c.location).where(dropped))
    if location is None:
        return False
    set_fact(connection, _cleared(location), location)
    return True


def share(connection: Connection, location: str, places: Iterable[str]) -> None:
    """Record that the table at a location may have files in other places, as a shallow clone has.

    Places that were recorded before stay.
    """
    known = shared_with(connection, location)
    set_fact(connection, _shared(location), json.dumps(sorted({*known, *places})))


def shared_with(connection: Connection, location: str) -> tuple[str, ...]:
    """Return the other places in which the table at a location may have files."""
    encoded = fact(connection, _shared(location))
    return () if encoded is None else tuple(json.loads(encoded))


def forget_shared(connection: Connection, table_id: str) -> None:
    """Remove the record of the other places of a dropped table, if the lake owns its folder.

    A folder that stays on disk keeps its record.
    """
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    location = connection.scalar(sa.select(tables.c.location).where(dropped & tables.c.managed))
    if location is not None:
        remove_fact(connection, _shared(location))


def _cleared(location: str) -> str:
    # One fact for all folders of tables of one name: only the ids at their ends differ.
    return f"cleared:{_digest(_ID_SUFFIX.sub('', location))}"


def _shared(location: str) -> str:
    return f"shared:{_digest(location)}"


def _digest(location: str) -> str:
    return hashlib.sha256(location.encode("utf-8", "surrogateescape")).hexdigest()[:24]
