"""UNDROP TABLE and SHOW TABLES DROPPED.

Resolves the dropped table and checks that it can be restored. Source:
Databricks' documentation of both statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlake.catalog import DroppedEntry, TableEntry
from txlake.catalog.drop_rows import name_taken_error
from txlake.commit.membership import Membership
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import UndroppedTable
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.admission import admit, admit_new
from txlake.session.command import TableLock, command, giving_nothing, giving_rows, no_table, served
from txlake.session.context import Context
from txlake.session.engine import Engine
from txlake.session.membership.attachment import write_owner
from txlake.session.membership.drop_note import remove_drop_note
from txlake.session.membership.dropping import publish_pending
from txlake.session.membership.ownership import owner_of
from txlake.session.views.describe import Rows
from txlake.session.views.information_schema import CATALOG
from txlake.session.views.view import utc_time
from txlake.sql.statements import ShowDroppedTables, TableName, TablePath, UndropTable

_HINT = "SHOW TABLES DROPPED lists what can come back"
_COLUMNS = Struct(
    (
        *(
            Field(name, Primitive("string"), False)
            for name in ("catalogName", "schemaName", "tableName", "tableId", "tableType")
        ),
        *(
            Field(name, Primitive("timestamp"), False)
            for name in ("deletedAt", "createdAt", "updatedAt")
        ),
    )
)


def show_dropped(context: Context, statement: ShowDroppedTables) -> Rows:
    """Carry out SHOW TABLES DROPPED: list a database's restorable tables, newest drop first.

    External tables are among them. Raises InvalidRequest for an unknown database.
    """
    database = statement.database or context.tables.database
    catalog = context.engine.catalog.of_lake()
    if catalog.database(database) is None:
        raise _no_database(database)
    restorable = [
        dropped for dropped in _dropped_from(context.engine, database) if not dropped.is_expired
    ]
    return Rows(schema=_COLUMNS, rows=[_row(dropped) for dropped in restorable[: statement.limit]])


def _row(dropped: DroppedEntry) -> tuple[object, ...]:
    """Return the row of one dropped table."""
    entry = dropped.entry
    return (
        CATALOG,
        entry.database,
        entry.name,
        entry.id,
        "MANAGED" if entry.managed else "EXTERNAL",
        utc_time(dropped.dropped_ms),
        utc_time(entry.created_ms),
        utc_time(entry.modified_ms),
    )


def undrop_table(context: Context, statement: UndropTable) -> None:
    """Carry out UNDROP TABLE: give a dropped table its name and rows back.

    Of several tables of the name the newest restorable one. Raises InvalidRequest if there is none,
    its retention is over, or the name is taken; and as `_reattach`.
    """
    context.engine.require_main("UNDROP TABLE")
    if statement.table is None:
        assert statement.table_id is not None
        dropped = _find_by_id(context.engine, statement.table_id)
        name = TableName((dropped.entry.database, dropped.entry.name))
        admit(context, [(name, LockMode.SCH_M)], leaves=True)
    else:
        dropped = _find_by_name(context, statement.table)
    entry = dropped.entry
    _require_free_name(context, entry)
    admit_new(context, entry)
    head = _reattach(context.engine, entry)
    change = UndroppedTable(
        id=entry.id, database=entry.database, name=entry.name, head=head, branch=entry.branch
    )
    restored = context.engine.at_entry(entry)
    context.transaction.change_name(change, {(entry.database, entry.name): restored})


def _dropped_from(engine: Engine, database: str) -> list[DroppedEntry]:
    """Return the tables dropped from a database of this name, newest drop first."""
    tables = engine.catalog.of_lake().dropped.entries()
    return [dropped for dropped in tables if dropped.entry.database.lower() == database.lower()]


def _find_by_id(engine: Engine, table_id: str) -> DroppedEntry:
    """Return the dropped table with an id. Raises InvalidRequest if there is none to restore."""
    dropped = engine.catalog.of_lake().dropped.find(table_id)
    if dropped is None:
        raise InvalidRequest(f"there is no dropped table with the id {table_id!r}; {_HINT}")
    return _require_restorable(engine, dropped)


def _find_by_name(context: Context, table: TableName) -> DroppedEntry:
    """Return the newest restorable table of the name.

    Raises InvalidRequest if there is none, if its retention is over, or its database is gone.
    """
    engine, catalog = context.engine, context.engine.catalog.of_lake()
    owner, name = context.tables.qualified(table)
    if context.tables.lacks_database(table):
        raise _no_database(owner)
    matching = [
        dropped
        for dropped in _dropped_from(engine, owner)
        if dropped.entry.name.lower() == name.lower()
    ]
    if matching:
        newest = next((dropped for dropped in matching if not dropped.is_expired), matching[0])
        return _require_restorable(engine, newest)
    removed_ms = catalog.dropped.removed_ms(owner, name)
    if removed_ms is not None:
        raise _retention_over(f"{owner}.{name}", removed_ms)
    raise InvalidRequest(f"there is no dropped table {name!r} of database {owner!r}; {_HINT}")


def _require_restorable(engine: Engine, dropped: DroppedEntry) -> DroppedEntry:
    """Return the table. Raises InvalidRequest past its retention, or if its database is gone."""
    entry = dropped.entry
    if dropped.is_expired:
        raise _retention_over(f"{entry.database}.{entry.name}", dropped.dropped_ms)
    if engine.catalog.of_lake().database(entry.database) is None:
        raise _no_database(entry.database)
    return dropped


def _no_database(database: str) -> InvalidRequest:
    """Return the error for a database that is gone."""
    return InvalidRequest(
        f"there is no database {database!r}; CREATE DATABASE {database} makes it, and what was "
        "dropped from one of that name can come back to it"
    )


def _retention_over(table: str, dropped_ms: int) -> InvalidRequest:
    """Return the error for a table whose retention is over.

    `dropped_ms` is the time of the drop, in milliseconds since the epoch.
    """
    when = utc_time(dropped_ms)
    assert when is not None
    return InvalidRequest(
        f"table {table} was dropped at {when.isoformat(timespec='seconds')}, and its retention is "
        "over: it can't come back"
    )


def _require_free_name(context: Context, entry: TableEntry) -> None:
    """Raise InvalidRequest where another table or view has the name."""
    name = TableName((entry.database, entry.name))
    if context.tables.find(name) is not None:
        raise name_taken_error(entry.database, entry.name)
    if context.engine.catalog.of_lake().views.find(entry.database, entry.name) is not None:
        raise InvalidRequest(
            f"UNDROP TABLE {name}: there is a view of that name; give it another name first "
            f"(ALTER VIEW {name} RENAME TO ...)"
        )


def _reattach(engine: Engine, entry: TableEntry) -> int | None:
    """Attach a dropped table's folder to the lake again. Return the table's version afterwards.

    None means the version in the catalog. The drop note is removed, and an external table's log
    names its owner again, at once. Raises CorruptTable if the folder has no table, InvalidRequest
    if it holds a table of another lake, or another table.
    """
    catalog = engine.catalog.of_lake()
    publish_pending(engine, entry.id)
    handle = engine.at(entry.location, TablePath(entry.location))
    try:
        latest = handle.log.latest_or_none()
        own = None if latest is None else owner_of(engine, entry.location, latest)
        if latest is None:
            raise CorruptTable(
                f"{entry.database}.{entry.name} can't come back: there is no table at "
                f"{handle.store.url} any more; put its folder back where it was"
            )
        is_same = own is not None and (own.lake, own.table) == (catalog.lake_id, entry.id)
        if entry.managed and is_same:
            remove_drop_note(catalog, handle.store, entry.id)
            return None
        if entry.managed or not (own is None or is_same):
            raise InvalidRequest(
                f"{entry.database}.{entry.name} can't come back: {handle.store.url} holds "
                f"{'another table' if own is None else f'{own.name}, another table,'} now"
            )
        name = str(TableName((entry.database, entry.name)))
        stamp = Membership(lake=catalog.lake_id, table=entry.id, name=name)
        return latest.version if is_same else write_owner(handle, stamp)
    finally:
        engine.forget(handle)


def _locks(statement: UndropTable) -> Sequence[TableLock]:
    return [] if statement.table is None else [(statement.table, LockMode.SCH_M)]


COMMANDS = served(
    command(
        UndropTable,
        giving_nothing(undrop_table),
        _locks,
        leaves_existing=lambda _: True,
        is_alone=True,
    ),
    command(ShowDroppedTables, giving_rows(show_dropped), no_table, writes=False),
)
