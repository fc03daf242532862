"""Attach tables to the lake and detach them.

Attaching takes two steps, first in the table's log, then in the catalog. Owns their order, and
finishes an attachment that was interrupted between them.
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
from txlake.commit.table_branches import branches_in
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.ports import NewTable
from txlake.protocol.branching import DOMAIN as BRANCHES
from txlake.session.catalog_access import handle_entry, transaction_of
from txlake.session.engine import Engine, Handle
from txlake.session.membership.drop_note import note_path
from txlake.session.membership.dropping import remove_table
from txlake.session.membership.ownership import owner_of
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import TableName, TablePath, table_of


def attach(session: Session, location: str, name: str | None) -> str:
    """Attach the table at a place, under `name` or its folder's name; return its full name.

    The files stay where they are. Raises InvalidRequest for a path as name, if the place is
    attached already, if the database doesn't exist, and as `attach_path_table`.
    """
    session.follow_setting()
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
    database, short_name = engine.qualified(table_name, session.database)
    owner = engine.catalog.of_lake().database(database)
    if owner is None:
        raise InvalidRequest(
            f"there is no database {database!r}; CREATE DATABASE {database} makes it"
        )
    table_name = TableName((owner.name, short_name))
    with session.alone([(table_name, LockMode.SCH_M)]):
        entry = attach_path_table(
            engine, session.number, handle, owner.name, short_name, managed=False
        )
    return _text(entry)


def detach(session: Session, name: str) -> str:
    """Detach a table, whose files stay, and return its place.

    It is a path table then. Raises InvalidRequest for an unknown name or a path table.
    """
    table = table_of(name)
    session.follow_setting()
    session.engine.require_main("detaching a table")
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
    """Return an entry for a table that the catalog doesn't have yet, with a new id and number.

    `managed`: the lake owns the folder, and removes it after the table is dropped.
    The catalog isn't changed, except that the number is used up. Raises InvalidRequest if the
    database doesn't exist.
    """
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
        branch=catalog.branch,
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
    """Attach a path table, without rewriting its files, and return its entry in the catalog.

    First the owner is written into the table's log: from then on no other engine writes the table.
    Then the table is added to the catalog. Attaching again finishes an interrupted attachment.

    Raises InvalidRequest if the table belongs to another lake or was dropped, or a table or view
    has the name; UnsupportedFeature if another catalog decides its versions; Conflict if another
    writer changed the table's settings meanwhile.
    """
    engine.require_main("attaching a table")
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
    return _add_to_lake(engine, session_number, handle, entry)


def _add_to_lake(
    engine: Engine, session_number: Callable[[], int], handle: Handle, entry: TableEntry
) -> TableEntry:
    """Write the owner into the table's log, add the table to the catalog, and return its entry.

    A table that names this lake already keeps its id, and its log gets the new name.
    """
    catalog, latest = engine.catalog.of_lake(), handle.log.latest()
    own = owner_of(engine, handle.store.url, latest)
    name = str(TableName((entry.database, entry.name)))
    if own is None:
        head = write_owner(handle, Membership(lake=catalog.lake_id, table=entry.id, name=name))
    else:  # an interrupted attachment, or a table that the catalog lost
        entry, head = replace(entry, id=own.table), latest.version
        handle.store.delete([note_path(own.table)])
    with transaction_of(engine, session_number) as transaction:
        new = NewTable(
            id=entry.id,
            database=entry.database,
            name=entry.name,
            location=entry.location,
            managed=entry.managed,
            head=head,
            number=entry.number,
        )
        transaction.change_name(new, {})
    attached = catalog.find(entry.database, entry.name)
    assert attached is not None
    if own is not None and own.name != name:
        with transaction_of(engine, session_number) as transaction:
            stage_owner(transaction, engine.at_entry(attached), "RENAME TABLE")
    return attached


def write_owner(handle: Handle, owner: Membership) -> int:
    """Commit the owner to the table's own log, and return the version of that commit.

    Raises InvalidRequest if the table has open branches of its own.
    """
    commit = TableTransaction(handle.log, handle.log.latest())
    commit.read_domain(BRANCHES)
    names = ", ".join(one.name for one in branches_in(commit.view).open)
    if names:
        raise InvalidRequest(
            f"{handle.name} has branches of its own, which a table of a lake can't have: {names}; "
            "PUBLISH BRANCH or DROP BRANCH ... FOR TABLE first"
        )
    commit.stage(
        attach_actions(owner, commit.view), operation=ATTACH, parameters={"name": owner.name}
    )
    return commit.commit().version


def stage_owner(
    transaction: Transaction, handle: Handle, operation: str, *, opens: bool = False
) -> None:
    """Stage a commit that writes a lake table's owner and name into its log.

    A table that a branch began with keeps those of its origin. `operation` is the commit's
    operation in the history. `opens`: other engines may write the table too, through the lake's
    server.
    """
    entry = handle_entry(handle)
    if entry.origin_id is not None:
        return
    owner = Membership(
        lake=transaction.engine.catalog.of_lake().lake_id,
        table=entry.id,
        name=str(TableName((entry.database, entry.name))),
    )
    actions = attach_actions(owner, transaction.open(handle).view, opens=opens)
    transaction.stage(handle, Change(operation=operation, actions=actions))


def attach_unattached(engine: Engine, session_number: Callable[[], int]) -> None:
    """Attach the tables that an older txlake only named, if they still exist."""
    for entry in engine.catalog.of_lake().unattached():
        place = TablePath(entry.location)
        handle = engine.at(entry.location, place)
        if handle.log.latest_or_none() is not None:
            _add_to_lake(engine, session_number, handle, entry)


def _text(entry: TableEntry) -> str:
    return str(TableName((entry.database, entry.name)))
