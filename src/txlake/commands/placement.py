"""Where a new table lies, and its entry into the catalog."""

from __future__ import annotations

from dataclasses import replace

from txlake.commands.catalog_managed import open_to_others
from txlake.commit.change import Change
from txlake.commit.membership import ATTACH, Membership, membership_of, required_actions
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.ports import NewTable
from txlake.protocol.file_names import LOG_FOLDER, commit_path
from txlake.session.admission import admit_new
from txlake.session.context import Context
from txlake.session.engine import Handle, require_outside_lake_folder
from txlake.session.membership.attachment import attach_path_table, new_entry, stage_owner
from txlake.sql.statements import (
    Table,
    TableName,
    TablePath,
)


def locate_target(context: Context, table: Table, location: str | None = None) -> Handle:
    """Return the table, or a handle for where to create it: `location` or a warehouse folder.

    A Delta table at the location that has no name yet is returned as a path table;
    `attach_if_unnamed` makes it a table of the lake. A warehouse folder that a dropped table may
    still use is avoided by another name.

    Raises InvalidRequest for an unknown database, a view of the name, a location beside a path, and
    a location that isn't the existing table's; CorruptTable for a table of this lake that its
    catalog doesn't have.
    """
    existing = context.tables.find(table)
    if isinstance(table, TablePath):
        if location is not None:
            raise InvalidRequest(f"{table}: the table is named by its place; leave out LOCATION")
        assert existing is not None
        return existing
    if existing is not None:
        if (
            location is not None
            and context.engine.at(location, table).store.url != existing.store.url
        ):
            raise InvalidRequest(
                f"{table} is at {existing.store.url}, not at {location}; drop it first"
            )
        return existing
    owner, name = context.tables.qualified(table)
    if not context.engine.catalog.has_names:
        context.engine.catalog.of_lake()  # raises: the session has no catalog
    database = context.engine.catalog.database(owner)
    if database is None or context.tables.lacks_database(table):
        raise InvalidRequest(f"there is no database {owner!r}; CREATE DATABASE {owner} makes it")
    owner = database.name
    assigned = context.engine.catalog.new_place(owner, name)
    if assigned is not None:
        if location is not None:
            raise InvalidRequest(f"{table}: its catalog chooses its place; leave out LOCATION")
        return context.engine.at_entry(assigned.entry, is_new=True)
    if context.tables.lake_view(owner, name) is not None:
        raise InvalidRequest(f"{table} is a view; choose another name, or DROP VIEW it")
    if location is None:
        url = context.engine.place_of(owner, name)
    else:
        url = context.engine.store_at(location).url
        require_outside_lake_folder(url)
    entry = new_entry(context.engine, owner, name, url, managed=location is None)
    target = context.engine.at(url, TableName((owner, name)))
    snapshot = (
        _table_in_folder(context, target) if location is None else target.log.latest_or_none()
    )
    if snapshot is None and (location or _is_unused(context, target)):
        return context.engine.at_entry(entry, is_new=True)
    membership = None if snapshot is None else membership_of(snapshot)
    if snapshot is not None and (
        membership is None
        or location is not None
        or membership.lake != context.engine.catalog.of_lake().lake_id
    ):
        return target
    _require_dropped(context, target, membership)
    # The folder of a dropped table, which another process may still be removing.
    other_folder = replace(entry, location=f"{url}-{entry.id[:8]}")
    return context.engine.at_entry(other_folder, is_new=True)


def _table_in_folder(context: Context, target: Handle) -> Snapshot | None:
    """Return the table in a folder of the warehouse.

    None if there is none, if it is being removed, or if a slow writer left files after the removal;
    the newest commit's file is missing then. Raises CorruptTable for any other damaged log.
    """
    try:
        latest = target.log.latest_or_none()
    except CorruptTable:
        if context.engine.catalog.of_lake().is_cleared(target.store.url):
            return None
        if not target.log.listing().commits:
            return None
        latest = target.log.latest_or_none()  # it may have been removed while it was read
    if latest is None or target.store.head(commit_path(latest.version)) is None:
        return None
    return latest


def _is_unused(context: Context, target: Handle) -> bool:
    """Return whether a dropped table left nothing in the folder and no write can still arrive."""
    if next(iter(target.store.list(LOG_FOLDER)), None) is not None:
        return False
    return not context.engine.catalog.of_lake().is_cleared(target.store.url)


def _require_dropped(context: Context, target: Handle, membership: Membership | None) -> None:
    """Raise CorruptTable for a table of this lake that its catalog neither has nor dropped.

    A table whose attachment is under way passes.
    """
    catalog, location = context.engine.catalog.of_lake(), target.store.url
    if membership is None or catalog.is_cleared(location) or catalog.at_place(location) is not None:
        return  # a table that this transaction drops still exists for others
    latest = _table_in_folder(context, target)
    if latest is None:
        return  # removed since it was read
    info = target.log.commit_info(latest.version)
    if info is not None and info.text("operation") == ATTACH:
        return  # another process is attaching the table, or was interrupted
    raise CorruptTable(
        f"{target.store.url} holds {membership.name}, a table of this lake that its catalog "
        "doesn't know: the catalog was restored from a backup. lake.recover() takes it in again"
    )


def register(context: Context, handle: Handle, operation: str, *, opens: bool = False) -> None:
    """Stage a new table's name, which others see once the transaction commits.

    Do nothing for a path table and an existing one, except open it. `operation`: the operation in
    the history. `opens`: whether other engines may write the table.
    """
    entry, transaction = handle.entry, context.transaction
    if entry is None or not handle.is_new:
        if opens:
            open_to_others(context, handle, operation)
        return
    if transaction.names.has((entry.database, entry.name)):
        named = transaction.names.meaning_of((entry.database, entry.name))
        if named is not None and named.key == handle.key:
            if opens:
                open_to_others(context, handle, operation)
            return  # the transaction created the table itself and now replaces it
    new_table = NewTable(
        id=entry.id,
        database=entry.database,
        name=entry.name,
        location=entry.location,
        managed=entry.managed,
        number=entry.number,
        branch=entry.branch,
    )
    required = context.engine.catalog.requirements_of(entry.id)
    if required is None:
        admit_new(context, entry)
    context.transaction.change_name(new_table, {(entry.database, entry.name): handle})
    if required is None:
        stage_owner(context.transaction, handle, operation, opens=opens)
        return
    actions = required_actions(
        context.transaction.open(handle).view, required.features, required.properties
    )
    context.transaction.stage(handle, Change(operation=operation, actions=actions))


def attach_if_unnamed(context: Context, handle: Handle, *, managed: bool) -> Handle:
    """Return the table's handle; attach a Delta table that has no name yet to the lake at once.

    The attachment isn't part of the transaction. Raises InvalidRequest inside an explicit
    transaction, and as `attach_path_table`.
    """
    if handle.in_lake or isinstance(handle.table, TablePath):
        return handle
    transaction = context.transaction
    if transaction.explicit:
        raise InvalidRequest(
            f"{handle.table}: {handle.store.url} holds a table already, which can't be attached to "
            "the lake inside a transaction; COMMIT or ROLLBACK first"
        )
    owner, name = handle.table.parts
    transaction.tables.remove(handle)
    entry = attach_path_table(
        context.engine, transaction.session_number, handle, owner, name, managed=managed
    )
    return context.engine.at_entry(entry)
