"""Databases and tables by name, read and written in the caller's transaction.

The caller locks the sequence (`lock_sequence`) before it changes a name: then a name that was
found free stays free, and the lake's instants have an order.
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
from txlake.catalog.relations import databases, tables, views
from txlake.errors import InvalidRequest

NAME_LENGTH_MAX = 255
"""The longest name of a database or table, in characters, as written and in lower case."""

MAIN = 0
"""The number of the lake itself, beside those of its branches."""

_OBJECT = "object"

_DATABASE = Prepared(sa.select(databases).where(databases.c.folded_name == sa.bindparam("named")))
# Between a branch's number and a database's name: no statement can write a name that has it.
_AFTER_BRANCH = "\x1f"


Chain = tuple[tuple[str, int], ...]
"""Branches, each with its id and the version that a table had when it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseEntry:
    """A database.

    Attributes:
        isolation: the isolation level of its transactions; None if no level was set.
        properties: what DBPROPERTIES set.
    """

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
        managed: the lake owns the table's folder, and removes it after the table is dropped.
        modified_ms: when the table was last created, renamed or attached.
        head: the newest ratified version; None for a name without an attached table.
        branch: the number of the branch that it belongs to.
        origin_id: the table that a branch's table was made from; None for one that was created.
        root_id: the table on main that its rows, and the values of its identity columns, come from.
        chain: the branches on the way from main to a table with an origin, each with its id and the
            version that the table had when it began.
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
    branch: int = MAIN
    origin_id: str | None = None
    root_id: str | None = None
    chain: Chain = ()

    @property
    def base(self) -> int | None:
        """The version that a branch's table began with; None without an origin."""
        return self.chain[-1][1] if self.chain else None


def database_key(name: str, branch: int = MAIN) -> str:
    """Return the value of `folded_name` for a branch's database of that name."""
    folded = name.lower()
    return folded if branch == MAIN else f"{branch}{_AFTER_BRANCH}{folded}"


def new_database_key(name: str, branch: int) -> str:
    """Return the value of `folded_name` for a new database. Raises InvalidRequest for a name that
    is too long.
    """
    check_name(name)
    key = database_key(name, branch)
    over = len(key) - NAME_LENGTH_MAX
    if over > 0:
        raise InvalidRequest(
            f"{name[:40]!r}... can't name a database on a branch: it has {len(name)} characters, "
            f"and there a name has at most {len(name) - over}; use a shorter name"
        )
    return key


def database(connection: Connection, name: str, branch: int = MAIN) -> DatabaseEntry | None:
    """Return a branch's database of that name, in any letter case; None if there is none."""
    row = _DATABASE.row(connection, named=database_key(name, branch))
    return None if row is None else database_entry(row)


def require_database(connection: Connection, name: str, branch: int = MAIN) -> DatabaseEntry:
    """Return a branch's database of that name, in any letter case. Raises InvalidRequest if there
    is none.
    """
    entry = database(connection, name, branch)
    if entry is None:
        raise InvalidRequest(f"there is no database {name!r}; CREATE DATABASE {name} makes it")
    return entry


def check_name(name: str) -> None:
    """Raise InvalidRequest for a name that is longer than a catalog's columns for names.

    SQLite would store such a name; it is refused there too, so that all catalogs agree.
    """
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
    branch: int = MAIN,
) -> None:
    """Insert a database. The caller has checked that the name is free. Raises InvalidRequest for a
    name that is too long.
    """
    key = new_database_key(name, branch)
    connection.execute(
        sa.insert(databases).values(
            id=entry_id,
            number=next_number(connection, _OBJECT),
            folded_name=key,
            name=name,
            comment=comment,
            isolation=isolation,
            properties=json.dumps(dict(properties)),
            created_ms=now_ms,
            branch=branch,
        )
    )


def drop_database(connection: Connection, entry: DatabaseEntry) -> None:
    """Remove an empty database, and the reference to it from tables that were dropped from it."""
    detached = sa.update(tables).where(tables.c.database_id == entry.id)
    connection.execute(detached.values(database_id=None))
    connection.execute(sa.delete(databases).where(databases.c.id == entry.id))


def table_at(connection: Connection, location: str, branch: int = MAIN) -> TableEntry | None:
    """Return a branch's table at a location, the store's URL; None if there is none."""
    query = _live().where(tables.c.location == location, tables.c.branch == branch)
    row = connection.execute(query).first()
    if row is None:
        return None
    owner = connection.execute(sa.select(databases).where(databases.c.id == row.database_id))
    return table_entry(row, database_entry(owner.one()))


def is_used(connection: Connection, location: str) -> bool:
    """Return whether any branch, or main, has a table at a location that isn't dropped there."""
    return exists(connection, tables.c.dropped_sequence.is_(None) & (tables.c.location == location))


def other_lines(connection: Connection, entry: TableEntry) -> list[TableEntry]:
    """Return the tables at a table's location on the other branches, main included."""
    query = _live().where(
        tables.c.location == entry.location,
        tables.c.id != entry.id,
    )
    rows = connection.execute(query.order_by(tables.c.number)).all()
    ids = {row.database_id for row in rows}
    owned = connection.execute(sa.select(databases).where(databases.c.id.in_(ids))) if ids else ()
    owners = {row.id: database_entry(row) for row in owned}
    return [table_entry(row, owners[row.database_id]) for row in rows]


def managed_outside(connection: Connection, folder: str) -> str | None:
    """Return the location of a managed table that isn't below this folder; None if all are."""
    start = f"{folder}/"
    location = tables.c.location
    query = sa.select(location).where(
        tables.c.dropped_sequence.is_(None),
        tables.c.managed,
        tables.c.head.is_not(None),
        sa.func.substr(location, 1, len(start)) != start,
    )
    outside: str | None = connection.scalar(query.limit(1))
    return outside


def unattached(connection: Connection) -> list[TableEntry]:
    """Return the tables that an older txlake named, whose commits the catalog doesn't have yet."""
    query = _live().where(tables.c.head.is_(None)).order_by(tables.c.number)
    rows = connection.execute(query).all()
    owners = {row.id: database_entry(row) for row in connection.execute(sa.select(databases))}
    return [table_entry(row, owners[row.database_id]) for row in rows]


def lock_tables_of(connection: Connection, owner: DatabaseEntry) -> None:
    """Lock the rows of a database's tables, dropped ones included, in the order of their ids.

    Every transaction that locks several tables keeps that order, so that none deadlock.
    """
    query = sa.select(tables.c.id).where(tables.c.database_id == owner.id)
    connection.execute(query.order_by(tables.c.id).with_for_update())


def tables_of(connection: Connection, owner: DatabaseEntry) -> list[TableEntry]:
    """Return a database's tables, ordered by name."""
    query = _live().where(tables.c.database_id == owner.id).order_by(tables.c.folded_name)
    return [table_entry(row, owner) for row in connection.execute(query)]


def table(
    connection: Connection, database_name: str, name: str, branch: int = MAIN
) -> TableEntry | None:
    """Return a branch's table of that name, in any letter case; None if there is none."""
    _, entries = send_name_query(connection, [(database_name, name)], branch)()
    return next(iter(entries.values()), None)


def send_name_query(
    connection: Connection, table_names: Iterable[tuple[str, str]], branch: int = MAIN
) -> Callable[[], tuple[dict[str, DatabaseEntry], dict[tuple[str, str], TableEntry]]]:
    """Send the query for a branch's tables by (database, table); return a function that waits for
    the rows.

    That function returns the databases by name and the tables by (database, table), all names in
    lower case; a name that doesn't exist is left out.
    """
    wanted = {(owner.lower(), name.lower()) for owner, name in table_names}
    if not wanted:
        return lambda: ({}, {})
    sent = _NAMED.send(
        connection,
        owners=sorted({database_key(owner, branch) for owner, _ in wanted}),
        names=sorted({name for _, name in wanted}),
    )

    def read() -> tuple[dict[str, DatabaseEntry], dict[tuple[str, str], TableEntry]]:
        owners: dict[str, DatabaseEntry] = {}
        entries: dict[tuple[str, str], TableEntry] = {}
        for row in sent():
            owner = row.owner_name.lower()
            if owner not in owners:
                owners[owner] = database_entry(row, prefix="owner_")
            key = (owner, row.folded_name)
            if key in wanted:
                entries[key] = entry_in(row, row.owner_name, row.owner_number)
        return owners, entries

    return read


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
    branch: int = MAIN,
) -> TableEntry:
    """Insert a branch's table without a head and return its entry.

    `managed`: the lake owns its folder. `number`: None for a new one.

    Raises InvalidRequest if the name is taken or too long, or the database missing.
    """
    check_name(name)
    owner = require_database(connection, database_name, branch)
    if table(connection, owner.name, name, branch) is not None:
        raise InvalidRequest(
            f"table {owner.name}.{name} exists already; use IF NOT EXISTS or OR REPLACE"
        )
    require_no_view(connection, owner, name)
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
        branch=branch,
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
            branch=branch,
        )
    )
    return entry


def rename_table(
    connection: Connection,
    table_id: str,
    database_name: str,
    name: str,
    now_ms: int,
    branch: int = MAIN,
) -> None:
    """Give a branch's table another name, and another database if need be.

    Raises InvalidRequest if the new name is taken or too long, the database is missing, or the
    table was dropped.
    """
    check_name(name)
    owner = require_database(connection, database_name, branch)
    if table(connection, owner.name, name, branch) is not None:
        raise InvalidRequest(f"table {owner.name}.{name} exists already")
    require_no_view(connection, owner, name)
    renamed = connection.execute(
        live_update(table_id).values(
            database_id=owner.id, folded_name=name.lower(), name=name, modified_ms=now_ms
        )
    )
    if renamed.rowcount != 1:
        raise dropped_error(connection, table_id)


def require_no_view(connection: Connection, owner: DatabaseEntry, name: str) -> None:
    """Raise InvalidRequest if a database has a view of that name."""
    named = (views.c.database_id == owner.id) & (views.c.folded_name == name.lower())
    if connection.execute(sa.select(views.c.id).where(named)).first() is not None:
        raise InvalidRequest(f"{owner.name}.{name} is a view; choose another name, or DROP VIEW it")


def new_number(connection: Connection) -> int:
    """Return a new number for a database, table or view."""
    return next_number(connection, _OBJECT)


def attach_table(
    connection: Connection, table_id: str, location: str, head: int, now_ms: int
) -> None:
    """Attach a table: give a name without a head the head that the table at its location has.

    Raises InvalidRequest if the table is attached already, or the lake has another table at that
    location.
    """
    others = (tables.c.location == location) & (tables.c.id != table_id)
    in_use = (
        tables.c.dropped_sequence.is_(None)
        | (tables.c.published < tables.c.head)
        | tables.c.managed  # its folder is about to be removed
    )
    if exists(connection, others & tables.c.head.is_not(None) & in_use):
        raise InvalidRequest(
            f"the lake has another table at {location}, or a dropped one there isn't published and "
            "cleared away yet; use that table, or open the lake again"
        )
    attached = connection.execute(
        live_update(table_id)
        .where(tables.c.head.is_(None))
        .values(head=head, published=head, modified_ms=now_ms)
    )
    if attached.rowcount != 1:
        raise InvalidRequest(f"table {table_id} at {location} is in the lake already")


def set_head(connection: Connection, table_id: str, head: int) -> None:
    """Set a table's head to a version that its log has: it counts as published."""
    changed = sa.update(tables).where(tables.c.id == table_id)
    connection.execute(changed.values(head=head, published=head))


def dropped_error(connection: Connection, table_id: str) -> InvalidRequest:
    """Return the error for a table that another transaction dropped."""
    query = (
        sa.select(databases.c.name.label("database"), tables.c.name)
        .select_from(tables.outerjoin(databases, tables.c.database_id == databases.c.id))
        .where(tables.c.id == table_id)
    )
    row = connection.execute(query).first()
    shown = table_id if row is None else ".".join(part for part in row if part)
    return InvalidRequest(f"table {shown} was dropped meanwhile")


def matches(name: str, pattern: str | None) -> bool:
    """Return whether a name matches a SHOW pattern, in any letter case; None matches every name.

    In a pattern `*` and `%` stand for any text, and `|` separates alternatives.
    """
    if pattern is None:
        return True
    folded = name.lower()
    parts = pattern.lower().replace("%", "*").split("|")
    return any(fnmatch.fnmatchcase(folded, part.strip()) for part in parts)


def database_entry(row: sa.Row[Any], *, prefix: str = "") -> DatabaseEntry:
    """Return the entry of a row whose columns are those of `databases`, named with the prefix."""
    values = {column.name: getattr(row, prefix + column.name) for column in fields(DatabaseEntry)}
    return DatabaseEntry(**{**values, "properties": json.loads(values["properties"] or "{}")})


def table_entry(row: sa.Row[Any], owner: DatabaseEntry) -> TableEntry:
    """Return the entry of a row of `tables`; `owner` is its database."""
    return entry_in(row, owner.name, owner.number)


def entry_in(row: sa.Row[Any], database_name: str, database_number: int) -> TableEntry:
    """Return the entry of a row of `tables` whose database may have been dropped."""
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
        branch=row.branch,
        origin_id=row.origin_id,
        root_id=row.root_id,
        chain=chain_of(row),
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


def chain_of(row: sa.Row[Any]) -> Chain:
    """Return the chain of a row of `tables`."""
    return tuple((branch_id, base) for branch_id, base in json.loads(row.chain or "[]"))


def live_update(table_id: str) -> sa.Update:
    """Return an UPDATE of the table's row that changes no row if the table was dropped."""
    return sa.update(tables).where(tables.c.id == table_id, tables.c.dropped_sequence.is_(None))


def exists(connection: Connection, condition: sa.ColumnElement[bool]) -> bool:
    """Return whether a row of `tables` meets a condition."""
    query = sa.select(tables.c.id).where(condition).limit(1)
    return connection.execute(query).first() is not None
