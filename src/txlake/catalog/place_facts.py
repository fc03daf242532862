"""What the lake remembers of places: folders that were cleared away, and what a clone reads.

Owns those entries in the lake's facts. The functions run inside a transaction of the caller, which
has locked the sequence where they write.
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

_OF_AN_ID = re.compile(r"(-[0-9a-f]{8})+$")  # session/definitions.py: place


def is_cleared(connection: Connection, location: str) -> bool:
    """Whether a dropped table is kept there, or somebody may still be clearing it away."""
    dropped = (tables.c.location == location) & tables.c.dropped_sequence.is_not(None)
    query = sa.select(tables.c.id).where(dropped & tables.c.managed).limit(1)
    if connection.execute(query).first() is not None:
        return True
    return fact(connection, _cleared(location)) is not None


def note_clearing(connection: Connection, table_id: str) -> bool:
    """Notes for ever that a dropped table's folder is cleared away; False when that was done.

    No other table comes there any more: what is sent to a store may arrive late, and of two who
    clear a folder away one may go on, from its list, when the other is done.
    """
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    location = connection.scalar(sa.select(tables.c.location).where(dropped))
    if location is None:
        return False
    set_fact(connection, _cleared(location), location)
    return True


def share(connection: Connection, location: str, places: Iterable[str]) -> None:
    """Notes that the table at a location may have files in these places, as its shallow clone."""
    known = shared_with(connection, location)
    set_fact(connection, _shared(location), json.dumps(sorted({*known, *places})))


def shared_with(connection: Connection, location: str) -> tuple[str, ...]:
    """In which other places the table at a location may have files."""
    found = fact(connection, _shared(location))
    return () if found is None else tuple(json.loads(found))


def forget_shared(connection: Connection, table_id: str) -> None:
    """Forgets in which other places a dropped table had files; one that stays keeps them."""
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    location = connection.scalar(sa.select(tables.c.location).where(dropped & tables.c.managed))
    if location is not None:
        remove_fact(connection, _shared(location))


def _cleared(location: str) -> str:
    # One fact for all the folders that tables of one name had, which are told apart by their ids.
    return f"cleared:{_digest(_OF_AN_ID.sub('', location))}"


def _shared(location: str) -> str:
    return f"shared:{_digest(location)}"


def _digest(location: str) -> str:
    return hashlib.sha256(location.encode("utf-8", "surrogateescape")).hexdigest()[:24]
