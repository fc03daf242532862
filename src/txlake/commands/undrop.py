"""UNDROP TABLE, and SHOW TABLES DROPPED.

Owns which of the dropped tables is meant, and what has to hold before it is a table again. Source:
Databricks' documentation of both statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlake.catalog import DroppedEntry, TableEntry
from txlake.catalog.names import taken
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest
from txlake.membership.attachment import stamped
from txlake.membership.drop_note import take_back
from txlake.membership.dropping import publish_pending
from txlake.membership.ownership import owner_of
from txlake.ports import UndroppedTable
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.admission import admit, admit_new
from txlake.session.command import TableLock, command, giving_nothing, giving_rows, no_table
from txlake.session.context import Context
from txlake.session.engine import Engine
from txlake.statements import ShowDroppedTables, TableName, TablePath, UndropTable
from txlake.transaction.membership import Membership
from txlake.views.describe import Rows
from txlake.views.standard import CATALOG
from txlake.views.view import moment

_LISTED = "SHOW TABLES DROPPED lists what can come back"
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
    """SHOW TABLES DROPPED: what can come back to a database, the newest drop first.

    Raises InvalidRequest where there is no such database.
    """
    database = statement.database or context.database
    catalog = context.engine.catalog.of_lake()
    if catalog.database(database) is None:
        raise _homeless(database)
    found = [one for one in _of(context.engine, database) if not one.is_over]
    return Rows(schema=_COLUMNS, rows=[_row(one) for one in found[: statement.limit]])


def _row(dropped: DroppedEntry) -> tuple[object, ...]:
    entry = dropped.entry
    return (
        CATALOG,
        entry.database,
        entry.name,
        entry.id,
        "MANAGED" if entry.managed else "EXTERNAL",
        moment(dropped.dropped_ms),
        moment(entry.created_ms),
        moment(entry.modified_ms),
    )


def undrop_table(context: Context, statement: UndropTable) -> None:
    """UNDROP TABLE: a dropped table has its name again, and all that it had."""
    if statement.table is None:
        assert statement.table_id is not None
        dropped = _with_id(context.engine, statement.table_id)
        named = TableName((dropped.entry.database, dropped.entry.name))
        admit(context, [(named, LockMode.SCH_M)], leaves=True)
    else:
        dropped = _with_name(context, statement.table)
    entry = dropped.entry
    _require_free(context, entry)
    admit_new(context, entry)
    head = _taken_in(context.engine, entry)
    change = UndroppedTable(id=entry.id, database=entry.database, name=entry.name, head=head)
    back = context.engine.at_entry(entry)
    context.transaction.change_name(change, {(entry.database, entry.name): back})


def _of(engine: Engine, database: str) -> list[DroppedEntry]:
    """The tables dropped from a database, or from one that had its name; the newest drop first."""
    dropped = engine.catalog.of_lake().dropped.listed()
    return [one for one in dropped if one.entry.database.lower() == database.lower()]


def _with_id(engine: Engine, table_id: str) -> DroppedEntry:
    dropped = engine.catalog.of_lake().dropped.find(table_id)
    if dropped is None:
        raise InvalidRequest(f"there is no dropped table with the id {table_id!r}; {_LISTED}")
    return _checked(engine, dropped)


def _with_name(context: Context, table: TableName) -> DroppedEntry:
    """The newest one of that name."""
    engine, catalog = context.engine, context.engine.catalog.of_lake()
    owner, name = engine.qualified(table, context.database)
    if context.is_homeless(table):
        raise _homeless(owner)
    found = [one for one in _of(engine, owner) if one.entry.name.lower() == name.lower()]
    if found:
        return _checked(engine, next((one for one in found if not one.is_over), found[0]))
    removed_ms = catalog.dropped.removed_ms(owner, name)
    if removed_ms is not None:
        raise _over(f"{owner}.{name}", removed_ms)
    raise InvalidRequest(f"there is no dropped table {name!r} of database {owner!r}; {_LISTED}")


def _checked(engine: Engine, dropped: DroppedEntry) -> DroppedEntry:
    """The table. Raises InvalidRequest where its time is over, or its database is gone."""
    entry = dropped.entry
    if dropped.is_over:
        raise _over(f"{entry.database}.{entry.name}", dropped.dropped_ms)
    if engine.catalog.of_lake().database(entry.database) is None:
        raise _homeless(entry.database)
    return dropped


def _homeless(database: str) -> InvalidRequest:
    return InvalidRequest(
        f"there is no database {database!r}; CREATE DATABASE {database} makes it, and what was "
        "dropped from one of that name can come back to it"
    )


def _over(shown: str, dropped_ms: int) -> InvalidRequest:
    when = moment(dropped_ms)
    assert when is not None
    return InvalidRequest(
        f"table {shown} was dropped at {when.isoformat(timespec='seconds')}, and its retention is "
        "over: it can't come back"
    )


def _require_free(context: Context, entry: TableEntry) -> None:
    """Raises InvalidRequest where another table, or a view, has the name."""
    named = TableName((entry.database, entry.name))
    if context.find(named) is not None:
        raise taken(entry.database, entry.name)
    if context.engine.catalog.of_lake().views.find(entry.database, entry.name) is not None:
        raise InvalidRequest(
            f"UNDROP TABLE {named}: there is a view of that name; give it another name first "
            f"(ALTER VIEW {named} RENAME TO ...)"
        )


def _taken_in(engine: Engine, entry: TableEntry) -> int | None:
    """Makes a folder that of a table of the lake again; the version that it has then.

    None: the one that the catalog has. Raises CorruptTable where the table is gone, InvalidRequest
    where it is another lake's, or another table's.
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
        is_its = own is not None and (own.lake, own.table) == (catalog.lake_id, entry.id)
        if entry.managed and is_its:
            take_back(catalog, handle.store, entry.id)
            return None
        if entry.managed or not (own is None or is_its):
            raise InvalidRequest(
                f"{entry.database}.{entry.name} can't come back: {handle.store.url} holds "
                f"{'another table' if own is None else f'{own.name}, another table,'} now"
            )
        name = str(TableName((entry.database, entry.name)))
        stamp = Membership(lake=catalog.lake_id, table=entry.id, name=name)
        return latest.version if is_its else stamped(handle, stamp)
    finally:
        engine.forget(handle)


def _its_name(statement: UndropTable) -> Sequence[TableLock]:
    return [] if statement.table is None else [(statement.table, LockMode.SCH_M)]


COMMANDS = dict(
    (
        command(
            UndropTable,
            giving_nothing(undrop_table),
            _its_name,
            leaves_existing=lambda _: True,
            is_alone=True,
        ),
        command(ShowDroppedTables, giving_rows(show_dropped), no_table),
    )
)
