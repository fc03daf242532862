"""Databases and tables by name, as statements on a connection: who calls them has the transaction.

Who changes a name has locked the sequence first (`lock_sequence`): so that a name that was found
free stays free, and the lake's instants have an order.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.counter_rows import next_number
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import databases, identities, tables, views
from txlake.errors import InvalidRequest, Unavailable

NAME_LENGTH_MAX = 255
"""Of a database's or a table's name, in characters, in lower case too."""

_OBJECT = "object"

_DATABASE = Prepared(sa.select(databases).where(databases.c.folded_name == sa.bindparam("named")))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseEntry:
    """A database. `isolation`: the level its creator set, if any; `properties`: DBPROPERTIES."""

    id: str
    number: int
    name: str
    created_ms: int
    comment: str | None = None
    isolation: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A named table.

    Attributes:
        managed: its folder is the lake's, and goes when the table is dropped.
        modified_ms: when it was last named, renamed or attached.
        head: the newest ratified version; None for a name alone, of a table that isn't attached.
    """

    id: str
    number: int
    database: str
    database_number: int
    name: str
    location: str
    managed: bool
    created_ms: int
    modified_ms: int
    head: int | None = None


def database(connection: Connection, name: str) -> DatabaseEntry | None:
    """The database of that name; letter case doesn't count."""
    row = _DATABASE.row(connection, named=name.lower())
    return None if row is None else database_entry(row)


def require_database(connection: Connection, name: str) -> DatabaseEntry:
    """The database of that name. Raises InvalidRequest when there is none."""
    entry = database(connection, name)
    if entry is None:
        raise InvalidRequest(f"there is no database {name!r}; CREATE DATABASE {name} makes it")
    return entry


def check_name(name: str) -> None:
    """Raises InvalidRequest for a name that no catalog holds, SQLite's neither."""
    length = max(len(name), len(name.lower()))
    if length > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"{name[:40]!r}... can't name a database or table: it has {length} characters, a name "
            f"has at most {NAME_LENGTH_MAX}; use a shorter name"
        )


def add_database(
    connection: Connection,
    entry_id: str,
    name: str,
    now_ms: int,
    *,
    comment: str | None,
    isolation: str | None,
    properties: Mapping[str, str],
) -> None:
    """Makes a database whose name is free. Raises InvalidRequest for one that is too long."""
    check_name(name)
    connection.execute(
        sa.insert(databases).values(
            id=entry_id,
            number=next_number(connection, _OBJECT),
            folded_name=name.lower(),
            name=name,
            comment=comment,
            isolation=isolation,
            properties=json.dumps(dict(properties)),
            created_ms=now_ms,
        )
    )


def drop_database(connection: Connection, entry: DatabaseEntry) -> None:
    """Forgets an empty database; tables that were dropped from it lose their way to it."""
    of_it = sa.update(tables).where(tables.c.database_id == entry.id)
    connection.execute(of_it.values(database_id=None))
    connection.execute(sa.delete(databases).where(databases.c.id == entry.id))


def table_at(connection: Connection, location: str) -> TableEntry | None:
    """The table whose place that is."""
    query = _live().where(tables.c.location == location)
    row = connection.execute(query).first()
    if row is None:
        return None
    owner = connection.execute(sa.select(databases).where(databases.c.id == row.database_id))
    return table_entry(row, database_entry(owner.one()))


def managed_outside(connection: Connection, folder: str) -> str | None:
    """The place of a table that belongs below this folder, and isn't there; None: all are."""
    start = f"{folder}/"
    location = tables.c.location
    query = sa.select(location).where(
        tables.c.dropped_sequence.is_(None),
        tables.c.managed,
        tables.c.head.is_not(None),
        sa.func.substr(location, 1, len(start)) != start,
    )
    found: str | None = connection.scalar(query.limit(1))
    return found


def unattached(connection: Connection) -> list[TableEntry]:
    """The tables that an older txlake named, whose commits the catalog doesn't have yet."""
    query = _live().where(tables.c.head.is_(None)).order_by(tables.c.number)
    found = connection.execute(query).all()
    owners = {row.id: database_entry(row) for row in connection.execute(sa.select(databases))}
    return [table_entry(row, owners[row.database_id]) for row in found]


def lock_tables_of(connection: Connection, owner: DatabaseEntry) -> None:
    """Locks a database's tables, dropped ones too, in the order that all keep who lock several."""
    query = sa.select(tables.c.id).where(tables.c.database_id == owner.id)
    connection.execute(query.order_by(tables.c.id).with_for_update())


def tables_of(connection: Connection, owner: DatabaseEntry) -> list[TableEntry]:
    """A database's tables by name."""
    query = _live().where(tables.c.database_id == owner.id).order_by(tables.c.folded_name)
    return [table_entry(row, owner) for row in connection.execute(query)]


def table(connection: Connection, database_name: str, name: str) -> TableEntry | None:
    """The table of that name; letter case doesn't count."""
    _, found = send_name_query(connection, [(database_name, name)])()
    return next(iter(found.values()), None)


def send_name_query(
    connection: Connection, asked: Iterable[tuple[str, str]]
) -> Callable[[], tuple[dict[str, DatabaseEntry], dict[tuple[str, str], TableEntry]]]:
    """Asks for that many names of tables; gives what waits for their databases, and the tables.

    Both by name in lower case; letter case doesn't count.
    """
    wanted = {(owner.lower(), name.lower()) for owner, name in asked}
    if not wanted:
        return lambda: ({}, {})
    sent = _NAMED.send(
        connection,
        owners=sorted({owner for owner, _ in wanted}),
        names=sorted({name for _, name in wanted}),
    )

    def found() -> tuple[dict[str, DatabaseEntry], dict[tuple[str, str], TableEntry]]:
        owners: dict[str, DatabaseEntry] = {}
        entries: dict[tuple[str, str], TableEntry] = {}
        for row in sent():
            if row.owner_folded_name not in owners:
                owners[row.owner_folded_name] = database_entry(row, prefix="owner_")
            key = (row.owner_folded_name, row.folded_name)
            if key in wanted:
                entries[key] = entry_in(row, row.owner_name, row.owner_number)
        return owners, entries

    return found


def add_table(
    connection: Connection,
    entry_id: str,
    database_name: str,
    name: str,
    location: str,
    now_ms: int,
    *,
    managed: bool,
    number: int | None = None,
) -> TableEntry:
    """Names a table.

    Raises InvalidRequest when the name is taken or too long, or the database missing.
    """
    check_name(name)
    owner = require_database(connection, database_name)
    if table(connection, owner.name, name) is not None:
        raise InvalidRequest(
            f"table {owner.name}.{name} exists already; use IF NOT EXISTS or OR REPLACE"
        )
    _require_no_view(connection, owner, name)
    entry = TableEntry(
        id=entry_id,
        number=new_number(connection) if number is None else number,
        database=owner.name,
        database_number=owner.number,
        name=name,
        location=location,
        managed=managed,
        created_ms=now_ms,
        modified_ms=now_ms,
    )
    connection.execute(
        sa.insert(tables).values(
            id=entry.id,
            number=entry.number,
            database_id=owner.id,
            folded_name=name.lower(),
            name=name,
            location=location,
            managed=managed,
            created_ms=now_ms,
            modified_ms=now_ms,
        )
    )
    return entry


def rename_table(
    connection: Connection, table_id: str, database_name: str, name: str, now_ms: int
) -> None:
    """Gives a table another name.

    Raises InvalidRequest when that is taken or too long, or the table gone.
    """
    check_name(name)
    owner = require_database(connection, database_name)
    if table(connection, owner.name, name) is not None:
        raise InvalidRequest(f"table {owner.name}.{name} exists already")
    _require_no_view(connection, owner, name)
    renamed = connection.execute(
        _live_update(table_id).values(
            database_id=owner.id, folded_name=name.lower(), name=name, modified_ms=now_ms
        )
    )
    if renamed.rowcount != 1:
        raise dropped_error(connection, table_id)


def _require_no_view(connection: Connection, owner: DatabaseEntry, name: str) -> None:
    named = (views.c.database_id == owner.id) & (views.c.folded_name == name.lower())
    if connection.execute(sa.select(views.c.id).where(named)).first() is not None:
        raise InvalidRequest(f"{owner.name}.{name} is a view; choose another name, or DROP VIEW it")


def new_number(connection: Connection) -> int:
    """A number for a database or a table."""
    return next_number(connection, _OBJECT)


def drop_table(
    connection: Connection,
    table_id: str,
    sequence: int,
    *,
    keeps_files: bool = False,
    dropped_ms: int = 0,
    retention_ms: int = 0,
) -> None:
    """Takes a table's name away at that instant; if `keeps_files`, its folder leaves the lake.

    `retention_ms`: for how long after `dropped_ms` it may come back. Raises InvalidRequest when it
    is gone already.
    """
    dropped = connection.execute(_live_update(table_id).values(dropped_sequence=sequence))
    if dropped.rowcount != 1:
        raise dropped_error(connection, table_id)
    if retention_ms > 0:
        owner = sa.select(databases.c.folded_name).where(databases.c.id == tables.c.database_id)
        kept = sa.update(tables).where(tables.c.id == table_id)
        connection.execute(
            kept.values(
                dropped_ms=dropped_ms,
                kept_until_ms=dropped_ms + retention_ms,
                dropped_from=owner.scalar_subquery(),
                is_told=False,
            )
        )
    if keeps_files:
        kept = sa.update(tables).where(tables.c.id == table_id)
        connection.execute(kept.values(managed=False))
    # A name alone leaves nothing to publish or to clean.
    connection.execute(sa.delete(tables).where(tables.c.id == table_id, tables.c.head.is_(None)))


def undrop_table(
    connection: Connection, table_id: str, database_name: str, name: str, now_ms: int
) -> None:
    """Gives a dropped table its name back.

    Raises InvalidRequest when that is taken, the database missing, or the table isn't kept any
    more: it came back, its time is over, or another table is at its place; Unavailable when its
    folder says again that it was dropped.
    """
    owner = require_database(connection, database_name)
    if table(connection, owner.name, name) is not None:
        raise name_taken_error(owner.name, name)
    _require_no_view(connection, owner, name)
    is_it = tables.c.id == table_id
    if connection.scalar(sa.select(tables.c.is_told).where(is_it)):
        raise Unavailable(
            f"UNDROP TABLE {owner.name}.{name}: another process that opened the lake told the "
            "table's folder meanwhile that it is dropped; try again"
        )
    undropped = connection.execute(
        sa.update(tables)
        .where(is_it, tables.c.kept_until_ms > now_ms)
        .values(
            database_id=owner.id,
            dropped_sequence=None,
            dropped_ms=None,
            kept_until_ms=None,
            dropped_from=None,
            modified_ms=now_ms,
        )
    )
    if undropped.rowcount != 1:
        raise InvalidRequest(
            f"dropped table {owner.name}.{name} ({table_id}) came back meanwhile, or its time is "
            "over: SHOW TABLES DROPPED lists what can come back"
        )
    here = sa.select(tables.c.location).where(is_it).scalar_subquery()
    others = (tables.c.location == here) & ~is_it
    if _exists(connection, others & tables.c.dropped_sequence.is_(None)):
        raise InvalidRequest(
            f"{owner.name}.{name} can't come back: another table of the lake is at its place now; "
            "drop that one first"
        )


def name_taken_error(database_name: str, name: str) -> InvalidRequest:
    """What to raise for a table that can't come back, as another one has its name."""
    shown = f"{database_name}.{name}"
    return InvalidRequest(
        f"UNDROP TABLE {shown}: there is another table of that name; rename it first (ALTER TABLE "
        f"{shown} RENAME TO ...)"
    )


def forget_table(connection: Connection, table_id: str) -> None:
    """Removes the row of a dropped table. Raises InvalidRequest while commits wait to be published.

    Nothing for one that isn't there or wasn't dropped.
    """
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    if _exists(connection, dropped & (tables.c.published < tables.c.head)):
        raise InvalidRequest(
            f"the last commits of dropped table {table_id} aren't published yet; open the lake "
            "again, which publishes them"
        )
    if connection.execute(sa.delete(tables).where(dropped)).rowcount:
        connection.execute(sa.delete(identities).where(identities.c.table_id == table_id))


def attach_table(
    connection: Connection, table_id: str, location: str, head: int, now_ms: int
) -> None:
    """Gives a name alone the head that the table at its location has.

    Raises InvalidRequest when the lake has that table already, or another one at that location.
    """
    ours = (tables.c.location == location) & (tables.c.id != table_id)
    in_use = (
        tables.c.dropped_sequence.is_(None)
        | (tables.c.published < tables.c.head)
        | tables.c.managed  # its folder is about to be cleared away
    )
    if _exists(connection, ours & tables.c.head.is_not(None) & in_use):
        raise InvalidRequest(
            f"the lake has another table at {location}, or a dropped one there isn't published and "
            "cleared away yet; use that table, or open the lake again"
        )
    attached = connection.execute(
        _live_update(table_id)
        .where(tables.c.head.is_(None))
        .values(head=head, published=head, modified_ms=now_ms)
    )
    if attached.rowcount != 1:
        raise InvalidRequest(f"table {table_id} at {location} is in the lake already")


def set_head(connection: Connection, table_id: str, head: int) -> None:
    """Makes that version a table's newest, which is in its log."""
    changed = sa.update(tables).where(tables.c.id == table_id)
    connection.execute(changed.values(head=head, published=head))


def dropped_error(connection: Connection, table_id: str) -> InvalidRequest:
    """What to raise for a table that somebody dropped."""
    query = (
        sa.select(databases.c.name.label("database"), tables.c.name)
        .select_from(tables.outerjoin(databases, tables.c.database_id == databases.c.id))
        .where(tables.c.id == table_id)
    )
    row = connection.execute(query).first()
    shown = table_id if row is None else ".".join(part for part in row if part)
    return InvalidRequest(f"table {shown} was dropped meanwhile")


def matches(name: str, pattern: str | None) -> bool:
    """Whether a name matches a SHOW pattern: `*` any text, `|` either; letter case is nothing."""
    if pattern is None:
        return True
    folded = name.lower()
    parts = pattern.lower().replace("%", "*").split("|")
    return any(fnmatch.fnmatchcase(folded, part.strip()) for part in parts)


def database_entry(row: sa.Row[Any], *, prefix: str = "") -> DatabaseEntry:
    """The entry of a row of `databases`; the names of its columns begin with the prefix."""
    values = {one.name: getattr(row, prefix + one.name) for one in fields(DatabaseEntry)}
    return DatabaseEntry(**{**values, "properties": json.loads(values["properties"] or "{}")})


def table_entry(row: sa.Row[Any], owner: DatabaseEntry) -> TableEntry:
    """The entry of a row of `tables`."""
    return entry_in(row, owner.name, owner.number)


def entry_in(row: sa.Row[Any], database_name: str, database_number: int) -> TableEntry:
    """The entry of a row of `tables`, in a database that may be gone."""
    return TableEntry(
        id=row.id,
        number=row.number,
        database=database_name,
        database_number=database_number,
        name=row.name,
        location=row.location,
        managed=row.managed,
        created_ms=row.created_ms,
        modified_ms=row.modified_ms,
        head=row.head,
    )


def _live() -> sa.Select[Any]:
    return sa.select(tables).where(tables.c.dropped_sequence.is_(None))


_NAMED = Prepared(
    lambda owners, names: (
        sa.select(tables, *(column.label(f"owner_{column.name}") for column in databases.c))
        .select_from(
            databases.outerjoin(
                tables,
                (tables.c.database_id == databases.c.id)
                & tables.c.dropped_sequence.is_(None)
                & tables.c.folded_name.in_(names),
            )
        )
        .where(databases.c.folded_name.in_(owners))
    ),
    "owners",
    "names",
)


def _live_update(table_id: str) -> sa.Update:
    return sa.update(tables).where(tables.c.id == table_id, tables.c.dropped_sequence.is_(None))


def _exists(connection: Connection, condition: sa.ColumnElement[bool]) -> bool:
    query = sa.select(tables.c.id).where(condition).limit(1)
    return connection.execute(query).first() is not None
