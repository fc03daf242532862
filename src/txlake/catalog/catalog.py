"""The catalog: databases and tables by name, each change one database transaction.

Owns the SQL and translates the driver's errors. Any number of processes may share a catalog.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from txlake.catalog.database import Database
from txlake.catalog.tables import (
    SCHEMA_VERSION,
    UPGRADES,
    databases,
    metadata,
    tables,
    versions,
)
from txlake.errors import InvalidRequest
from txlake.ports import System

DEFAULT_DATABASE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseEntry:
    """A database. `isolation`: the level its creator set, if any; `properties`: DBPROPERTIES."""

    id: str
    name: str
    comment: str | None = None
    isolation: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A named table. `managed`: its folder is the lake's, and goes when the table is dropped."""

    id: str
    database: str
    name: str
    location: str
    managed: bool


class Catalog:
    """Names of one lake. `url` is SQLAlchemy's, `sqlite:///path` or `postgresql+psycopg://...`.

    Safe to use from many threads and processes. A database in memory (`sqlite://`) lives until the
    catalog is no longer referenced.

    Raises InvalidRequest for a URL that isn't one, a database that can't be used or the catalog of
    a newer txlake, Unavailable when the database can't be reached or is busy for too long.
    """

    def __init__(
        self,
        url: str | sa.URL,
        system: System,
        *,
        default_database: str = DEFAULT_DATABASE,
        busy_timeout_s: float = 30.0,
    ) -> None:
        self._system = system
        self._default = default_database
        self._on = Database(url, system, busy_timeout_s=busy_timeout_s)
        if not self._is_ready():
            self._make_ready()

    def _is_ready(self) -> bool:
        with self._on.reading() as connection:
            if not sa.inspect(connection).has_table(versions.name):
                return False
            found = connection.scalar(sa.select(versions.c.version))
            if found is not None and found > SCHEMA_VERSION:
                raise InvalidRequest(
                    f"catalog {self._on.shown}: its schema has version {found}, this txlake knows "
                    f"{SCHEMA_VERSION}; upgrade txlake"
                )
            if found is None or found < SCHEMA_VERSION:
                return False
            return self._database(connection, self._default) is not None

    def _make_ready(self) -> None:
        with self._on.writing() as connection:
            metadata.create_all(connection)
            found = connection.scalar(sa.select(versions.c.version).with_for_update())
            if found is None:
                connection.execute(sa.insert(versions).values(version=SCHEMA_VERSION))
            for version in range(found or SCHEMA_VERSION, SCHEMA_VERSION):
                connection.execute(sa.text(UPGRADES[version]))
                connection.execute(sa.update(versions).values(version=version + 1))
        self.create_database(self._default, if_not_exists=True)

    def close(self) -> None:
        """Closes the connections; a catalog in memory keeps its one."""
        self._on.close()

    # Databases

    def create_database(
        self,
        name: str,
        *,
        if_not_exists: bool = False,
        comment: str | None = None,
        isolation: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether a new database was made. Raises InvalidRequest when the name is taken."""
        with self._on.writing() as connection:
            if self._database(connection, name) is not None:
                if if_not_exists:
                    return False
                raise InvalidRequest(f"database {name!r} exists already; use IF NOT EXISTS")
            connection.execute(
                sa.insert(databases).values(
                    id=self._system.new_id(),
                    folded_name=name.lower(),
                    name=name,
                    comment=comment,
                    isolation=isolation,
                    properties=json.dumps(dict(properties or {})),
                    created_ms=self._system.now_ms(),
                )
            )
            return True

    def database(self, name: str) -> DatabaseEntry | None:
        """The database of that name; letter case doesn't count."""
        with self._on.reading() as connection:
            return self._database(connection, name)

    def databases(self, pattern: str | None = None) -> list[DatabaseEntry]:
        """The databases by name; `pattern` is SHOW's, with `*` and `|`."""
        with self._on.reading() as connection:
            found = connection.execute(sa.select(databases).order_by(databases.c.folded_name))
            entries = [_database_entry(row) for row in found]
        return [entry for entry in entries if matches(entry.name, pattern)]

    def set_isolation(self, name: str, isolation: str) -> None:
        """Sets a database's isolation level. Raises InvalidRequest when there is none."""
        with self._on.writing() as connection:
            entry = self._require(connection, name)
            changed = sa.update(databases).where(databases.c.id == entry.id)
            connection.execute(changed.values(isolation=isolation))

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Sets properties of a database beside those it has. Raises InvalidRequest without it."""
        with self._on.writing() as connection:
            entry = self._require(connection, name)
            text = json.dumps({**entry.properties, **properties})
            changed = sa.update(databases).where(databases.c.id == entry.id)
            connection.execute(changed.values(properties=text))

    def drop_database(self, name: str, *, cascade: bool = False) -> list[TableEntry]:
        """Removes a database and gives the tables that were in it.

        Raises InvalidRequest unless it is empty or `cascade` is given, and for the default one.
        """
        if name.lower() == self._default.lower():
            raise InvalidRequest(f"database {name!r} is the default one, which can't be dropped")
        with self._on.writing() as connection:
            entry = self._require(connection, name)
            inside = self._tables(connection, entry)
            if inside and not cascade:
                raise InvalidRequest(
                    f"database {name!r} holds {len(inside)} table(s), {inside[0].name!r} among "
                    "them; drop them first or say CASCADE"
                )
            connection.execute(sa.delete(tables).where(tables.c.database_id == entry.id))
            connection.execute(sa.delete(databases).where(databases.c.id == entry.id))
            return inside

    # Tables

    def find(self, database: str, name: str) -> TableEntry | None:
        """The table of that name; letter case doesn't count."""
        with self._on.reading() as connection:
            return self._find(connection, database, name)

    def tables(self, database: str, pattern: str | None = None) -> list[TableEntry]:
        """A database's tables by name. Raises InvalidRequest when there is no such database."""
        with self._on.reading() as connection:
            inside = self._tables(connection, self._require(connection, database))
        return [entry for entry in inside if matches(entry.name, pattern)]

    def add_table(self, database: str, name: str, location: str, *, managed: bool) -> TableEntry:
        """Names a table. Raises InvalidRequest when the name is taken or the database missing."""
        with self._on.writing() as connection:
            owner = self._require(connection, database)
            entry = TableEntry(
                id=self._system.new_id(),
                database=owner.name,
                name=name,
                location=location,
                managed=managed,
            )
            self._insert(connection, owner, entry)
            return entry

    def drop_table(self, entry: TableEntry) -> None:
        """Forgets a table's name. Raises InvalidRequest when it is gone already."""
        with self._on.writing() as connection:
            gone = connection.execute(sa.delete(tables).where(tables.c.id == entry.id))
            if gone.rowcount != 1:
                raise _gone(entry)

    def rename_table(self, entry: TableEntry, database: str, name: str) -> None:
        """Gives a table another name. Raises InvalidRequest when that name is taken."""
        with self._on.writing() as connection:
            owner = self._require(connection, database)
            if self._find(connection, database, name) is not None:
                raise InvalidRequest(f"table {database}.{name} exists already")
            renamed = connection.execute(
                sa.update(tables)
                .where(tables.c.id == entry.id)
                .values(database_id=owner.id, folded_name=name.lower(), name=name)
            )
            if renamed.rowcount != 1:
                raise _gone(entry)

    def _insert(self, connection: Connection, owner: DatabaseEntry, entry: TableEntry) -> None:
        try:
            connection.execute(
                sa.insert(tables).values(
                    id=entry.id,
                    database_id=owner.id,
                    folded_name=entry.name.lower(),
                    name=entry.name,
                    location=entry.location,
                    managed=entry.managed,
                    created_ms=self._system.now_ms(),
                )
            )
        except IntegrityError as error:
            raise InvalidRequest(
                f"table {owner.name}.{entry.name} exists already; use IF NOT EXISTS or OR REPLACE"
            ) from error

    def _database(self, connection: Connection, name: str) -> DatabaseEntry | None:
        query = sa.select(databases).where(databases.c.folded_name == name.lower())
        row = connection.execute(query).first()
        return None if row is None else _database_entry(row)

    def _require(self, connection: Connection, name: str) -> DatabaseEntry:
        entry = self._database(connection, name)
        if entry is None:
            raise InvalidRequest(f"there is no database {name!r}; CREATE DATABASE {name} makes it")
        return entry

    def _tables(self, connection: Connection, owner: DatabaseEntry) -> list[TableEntry]:
        query = sa.select(tables).where(tables.c.database_id == owner.id)
        found = connection.execute(query.order_by(tables.c.folded_name))
        return [_table_entry(row, owner) for row in found]

    def _find(self, connection: Connection, database: str, name: str) -> TableEntry | None:
        owner = self._database(connection, database)
        if owner is None:
            return None
        query = sa.select(tables).where(
            tables.c.database_id == owner.id, tables.c.folded_name == name.lower()
        )
        row = connection.execute(query).first()
        return None if row is None else _table_entry(row, owner)


def _gone(entry: TableEntry) -> InvalidRequest:
    return InvalidRequest(f"table {entry.database}.{entry.name} was dropped meanwhile")


def matches(name: str, pattern: str | None) -> bool:
    """Whether a name matches a SHOW pattern: `*` any text, `|` either; letter case is nothing."""
    if pattern is None:
        return True
    folded = name.lower()
    parts = pattern.lower().replace("%", "*").split("|")
    return any(fnmatch.fnmatchcase(folded, part.strip()) for part in parts)


def _database_entry(row: sa.Row[tuple[object, ...]]) -> DatabaseEntry:
    values = row._mapping
    return DatabaseEntry(
        id=values["id"],
        name=values["name"],
        comment=values["comment"],
        isolation=values["isolation"],
        properties=json.loads(values["properties"] or "{}"),
    )


def _table_entry(row: sa.Row[tuple[object, ...]], owner: DatabaseEntry) -> TableEntry:
    values = row._mapping
    return TableEntry(
        id=values["id"],
        database=owner.name,
        name=values["name"],
        location=values["location"],
        managed=values["managed"],
    )
