"""What a statement sees of the catalog: what its names mean, and its tables' versions.

Owns the queries. Source: DESIGN section 5, "Locks".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import names
from txlake.catalog.fence import EPOCH
from txlake.catalog.names import DatabaseEntry, TableEntry
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import commits, counters, tables
from txlake.catalog.views import ViewEntry, view_named

Name = tuple[str, str]
"""Database and table, in lower case."""


# From the newest version back, so that a long history costs nothing.
_NEWEST_VERSION = (
    sa.select(commits.c.version)
    .where(commits.c.table_id == tables.c.id)
    .order_by(commits.c.version.desc())
    .limit(1)
)
_VERSION_AT = _NEWEST_VERSION.where(commits.c.sequence <= sa.bindparam("at"))
_VERSIONS = Prepared(
    lambda ids: sa.select(tables.c.id, _VERSION_AT.scalar_subquery().label("version")).where(
        tables.c.id.in_(ids)
    ),
    "ids",
)
_NEWEST = Prepared(
    lambda ids: (
        sa.select(
            counters.c.value.label("instant"),
            EPOCH,
            tables.c.id,
            _NEWEST_VERSION.scalar_subquery().label("version"),
        )
        .select_from(counters.outerjoin(tables, tables.c.id.in_(ids)))
        .where(counters.c.name == names.SEQUENCE)
    ),
    "ids",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a statement asks for, or several.

    Attributes:
        names: of tables and views; letter case doesn't count.
        places: URLs where tables may lie.
    """

    names: frozenset[Name] = frozenset()
    places: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is of it, at one moment.

    Attributes:
        databases: those that the names say, by name in lower case.
        places: the tables at the places asked for.
        instant: the instant of the lake that the transaction reads; None where it wasn't asked for.
        versions: which version each table had at that instant, by id; those that weren't in the
            lake then are left out.
    """

    databases: Mapping[str, DatabaseEntry] = field(default_factory=dict)
    tables: Mapping[Name, TableEntry] = field(default_factory=dict)
    views: Mapping[Name, ViewEntry] = field(default_factory=dict)
    places: Mapping[str, TableEntry] = field(default_factory=dict)
    instant: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def ids(self) -> frozenset[str]:
        """Those of the tables."""
        return frozenset(entry.id for entry in (*self.tables.values(), *self.places.values()))

    def part(self, asked: Asked) -> Seen:
        """What one sees where several have asked."""
        places = {url: entry for url, entry in self.places.items() if url in asked.places}
        owners = {owner for owner, _ in asked.names}
        owners |= {entry.database.lower() for entry in places.values()}
        return Seen(
            databases={name: entry for name, entry in self.databases.items() if name in owners},
            tables={name: entry for name, entry in self.tables.items() if name in asked.names},
            views={name: entry for name, entry in self.views.items() if name in asked.names},
            places=places,
        )

    def at(self, instant: int, versions: Mapping[str, int]) -> Seen:
        """The same as of an instant, given the versions that tables had then."""
        mine = {each: versions[each] for each in self.ids if each in versions}
        return replace(self, instant=instant, versions=mine)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest instant of the lake, the catalog's epoch, and tables' versions by their ids."""

    instant: int
    epoch: int
    versions: Mapping[str, int]


def seeing(connection: Connection, asked: Asked) -> Callable[[], Seen]:
    """Asks what there is of it, and gives what waits for the tables and finds the rest."""
    named = names.naming(connection, asked.names)

    def found() -> Seen:
        databases, tables = named()
        views: dict[Name, ViewEntry] = {}
        for name in sorted(asked.names - tables.keys()):
            view = view_named(connection, *name)
            if view is not None:
                views[name] = view
        at = {url: names.table_at(connection, url) for url in sorted(asked.places)}
        places = {url: entry for url, entry in at.items() if entry is not None}
        for owner in sorted({one.database.lower() for one in places.values()} - databases.keys()):
            entry = names.database(connection, owner)
            if entry is not None:
                databases[owner] = entry
        return Seen(databases=databases, tables=tables, views=views, places=places)

    return found


def newest(connection: Connection, ids: Collection[str]) -> Callable[[], Newest]:
    """Asks for the newest instant and the versions at it, and gives what waits for them."""
    sent = _NEWEST.sent(connection, ids=sorted(ids))

    def found() -> Newest:
        rows = sent()
        versions = {row.id: int(row.version) for row in rows if row.version is not None}
        return Newest(int(rows[0].instant), int(rows[0].epoch), versions)

    return found


def versions_at(connection: Connection, ids: Collection[str], instant: int) -> Mapping[str, int]:
    """The tables' versions at an instant, of those that were in the lake then."""
    rows = _VERSIONS.rows(connection, ids=sorted(ids), at=instant) if ids else ()
    return {row.id: int(row.version) for row in rows if row.version is not None}
