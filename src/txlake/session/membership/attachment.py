"""Tables are attached and detached: names and places resolved, locks taken, the table taken in.

Owns the order of the two steps that attaching takes, in the table's log and in the catalog, and
what heals one that was cut short.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import unquote

from txlake.catalog import TableEntry
from txlake.commit.change import Change
from txlake.commit.membership import (
    ATTACH,
    Membership,
    attach_actions,
    catalog_required_error,
    is_open,
)
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.ports import NewTable
from txlake.session.catalog_access import handle_entry, transaction_of
from txlake.session.engine import Engine, Handle
from txlake.session.membership.drop_note import note_path
from txlake.session.membership.dropping import remove_table
from txlake.session.membership.ownership import owner_of
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import TableName, TablePath, table_of


def attach(session: Session, location: str, name: str | None) -> str:
    """Makes the table at a place one of the lake; the name that it has there."""
    engine = session.engine
    place = table_of(location)
    if isinstance(place, TableName):
        place = TablePath(location)
    handle = engine.at(place.location, place)
    attached = engine.catalog.of_lake().at_place(handle.store.url)
    if attached is not None:
        raise InvalidRequest(f"{handle.store.url} is the lake's already: {_text(attached)}")
    table_name = TableName((unquote(posixpath.basename(handle.store.url)),))
    if name is not None:
        named = table_of(name)
        if isinstance(named, TablePath):
            raise InvalidRequest(f"attach: expected a name like database.table, found {name!r}")
        table_name = named
    database, own = engine.qualified(table_name, session.database)
    known = engine.catalog.of_lake().database(database)
    if known is None:
        raise InvalidRequest(
            f"there is no database {database!r}; CREATE DATABASE {database} makes it"
        )
    table_name = TableName((known.name, own))
    with session.alone([(table_name, LockMode.SCH_M)]):
        entry = attach_path_table(engine, session.number, handle, known.name, own, managed=False)
    return _text(entry)


def detach(session: Session, name: str) -> str:
    """Gives a table up; its place."""
    table = table_of(name)
    with session.alone([(table, LockMode.SCH_M)]) as context:
        handle = context.tables.require(table)
        if not handle.in_lake:
            raise InvalidRequest(f"{name} is no table of the lake: there is nothing to detach")
        remove_table(context.transaction, handle, keeps_files=True)
        context.transaction.commit()
    return handle_entry(handle).location


def new_entry(
    engine: Engine, database: str, name: str, location: str, *, managed: bool
) -> TableEntry:
    """The entry of a table that the catalog doesn't have yet, in a database that it has."""
    catalog, now_ms = engine.catalog.of_lake(), engine.system.now_ms()
    owner = catalog.database(database)
    if owner is None:
        raise InvalidRequest(
            f"there is no database {database!r}; CREATE DATABASE {database} makes it"
        )
    return TableEntry(
        id=engine.system.new_id(),
        number=catalog.new_number(),
        database=owner.name,
        database_number=owner.number,
        name=name,
        location=location,
        managed=managed,
        created_ms=now_ms,
        modified_ms=now_ms,
    )


def attach_path_table(
    engine: Engine,
    session_number: Callable[[], int],
    handle: Handle,
    database: str,
    name: str,
    *,
    managed: bool,
) -> TableEntry:
    """Makes a path table one of the lake, with nothing rewritten; its entry in the catalog.

    First the table's log says whose it is: from then on no other engine writes it. Then the
    catalog takes it in. What was cut short between the two is finished by attaching again.

    Raises InvalidRequest when it belongs to another lake, or the name is taken, Conflict when
    another writer changed the table's settings meanwhile.
    """
    catalog = engine.catalog.of_lake()
    if catalog.find(database, name) is not None:
        raise InvalidRequest(f"table {database}.{name} exists already; choose another name")
    if catalog.views.find(database, name) is not None:
        raise InvalidRequest(f"{database}.{name} is a view; choose another name")
    latest = handle.log.latest()
    own = owner_of(engine, handle.store.url, latest)
    if own is None and is_open(latest.protocol):
        raise catalog_required_error(latest)
    if own is not None and own.lake != catalog.lake_id:
        raise InvalidRequest(
            f"{handle.store.url} belongs to another lake ({own.lake}), as {own.name}; detach it "
            "there first"
        )
    if own is not None and catalog.dropped.find(own.table) is not None:
        raise InvalidRequest(
            f"{handle.store.url} holds a table that was dropped, {own.name}: UNDROP TABLE WITH ID "
            f"'{own.table}' brings it back"
        )
    entry = new_entry(engine, database, name, handle.store.url, managed=managed)
    return _stamp_and_enter(engine, session_number, handle, entry)


def _stamp_and_enter(
    engine: Engine, session_number: Callable[[], int], handle: Handle, entry: TableEntry
) -> TableEntry:
    """Stamps the table and enters it into the catalog."""
    catalog, latest = engine.catalog.of_lake(), handle.log.latest()
    own = owner_of(engine, handle.store.url, latest)
    name = str(TableName((entry.database, entry.name)))
    if own is None:
        head = write_stamp(handle, Membership(lake=catalog.lake_id, table=entry.id, name=name))
    else:  # an attachment that was cut short, or a table that the catalog lost
        entry, head = replace(entry, id=own.table), latest.version
        handle.store.delete([note_path(own.table)])
    with transaction_of(engine, session_number) as transaction:
        named = NewTable(
            id=entry.id,
            database=entry.database,
            name=entry.name,
            location=entry.location,
            managed=entry.managed,
            head=head,
            number=entry.number,
        )
        transaction.change_name(named, {})
    found = catalog.find(entry.database, entry.name)
    assert found is not None
    if own is not None and own.name != name:
        with transaction_of(engine, session_number) as transaction:
            stage_stamp(transaction, engine.at_entry(found), "RENAME TABLE")
    return found


def write_stamp(handle: Handle, stamp: Membership) -> int:
    """Writes into the table's own log whose it is; the version that says so."""
    own = TableTransaction(handle.log, handle.log.latest())
    own.stage(attach_actions(stamp, own.view), operation=ATTACH, parameters={"name": stamp.name})
    return own.commit().version


def stage_stamp(
    transaction: Transaction, handle: Handle, operation: str, *, opens: bool = False
) -> None:
    """Says in the log of a table of the lake which lake it is, and by what name.

    `opens`: other engines are to write it too, through the lake's server.
    """
    entry = handle_entry(handle)
    stamp = Membership(
        lake=transaction.engine.catalog.of_lake().lake_id,
        table=entry.id,
        name=str(TableName((entry.database, entry.name))),
    )
    actions = attach_actions(stamp, transaction.open(handle).view, opens=opens)
    transaction.stage(handle, Change(operation=operation, actions=actions))


def attach_unattached(engine: Engine, session_number: Callable[[], int]) -> None:
    """Attaches the tables that an older txlake knew by name alone; those that are gone stay."""
    for entry in engine.catalog.of_lake().unattached():
        place = TablePath(entry.location)
        handle = engine.at(entry.location, place)
        if handle.log.latest_or_none() is not None:
            _stamp_and_enter(engine, session_number, handle, entry)


def _text(entry: TableEntry) -> str:
    return str(TableName((entry.database, entry.name)))
