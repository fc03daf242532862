"""Tables are attached and detached in a session: names and places resolved, locks taken."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from txlake.catalog import TableEntry
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.session import membership
from txlake.session.membership import handle_entry, take_out
from txlake.session.session import Session
from txlake.statements import TableName, TablePath, table_of


def attach(session: Session, location: str, name: str | None) -> str:
    """Makes the table at a place one of the lake; the name that it has there."""
    engine = session.engine
    place = table_of(location)
    if isinstance(place, TableName):
        place = TablePath(location)
    handle = engine.at(place.location, place)
    taken = engine.catalog.of_lake().at_place(handle.store.url)
    if taken is not None:
        raise InvalidRequest(f"{handle.store.url} is the lake's already: {_text(taken)}")
    wanted = TableName((unquote(posixpath.basename(handle.store.url)),))
    if name is not None:
        given = table_of(name)
        if isinstance(given, TablePath):
            raise InvalidRequest(f"attach: expected a name like database.table, found {name!r}")
        wanted = given
    database, own = engine.qualified(wanted, session.database)
    known = engine.catalog.of_lake().database(database)
    if known is None:
        raise InvalidRequest(
            f"there is no database {database!r}; CREATE DATABASE {database} makes it"
        )
    wanted = TableName((known.name, own))
    with session.alone([(wanted, LockMode.SCH_M)]):
        entry = membership.attach(engine, session.number, handle, known.name, own, managed=False)
    return _text(entry)


def detach(session: Session, name: str) -> str:
    """Gives a table up; its place."""
    table = table_of(name)
    with session.alone([(table, LockMode.SCH_M)]) as context:
        handle = context.require(table)
        if not handle.in_lake:
            raise InvalidRequest(f"{name} is no table of the lake: there is nothing to detach")
        take_out(context.transaction, handle, stays=True)
        context.transaction.commit()
    return handle_entry(handle).location


def _text(entry: TableEntry) -> str:
    return str(TableName((entry.database, entry.name)))
