"""Resolve table names and table versions at one instant of the catalog.

Owns the queries. See docs/how-a-commit-works.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, names
from txlake.catalog.fence import EPOCH
from txlake.catalog.names import MAIN, DatabaseEntry, TableEntry
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import commits, counters, tables
from txlake.catalog.views import ViewEntry, send_view_query

Name = tuple[str, str]
"""Database and table, in lower case."""

_SEEN_MAX = 1_000


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
        .where(counters.c.name == counter_rows.SEQUENCE)
    ),
    "ids",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRequest:
    """The names and places that one statement, or a batch of statements, refers to.

    Attributes:
        names: the names of tables and views, in lower case.
        places: the URLs of places where there may be tables.
        branch: the number of the branch whose tables they are.
    """

    names: frozenset[Name] = frozenset()
    places: frozenset[str] = frozenset()
    branch: int = MAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView:
    """What the catalog has for a lookup request, at one instant.

    Attributes:
        databases: the databases of the names, by name in lower case.
        places: the tables at the requested places.
        instant: the instant of the lake that the transaction reads; None if not requested.
        versions: the tables' versions at that instant, by id; tables that weren't in the lake then
            are left out.
    """

    databases: Mapping[str, DatabaseEntry] = field(default_factory=dict)
    tables: Mapping[Name, TableEntry] = field(default_factory=dict)
    views: Mapping[Name, ViewEntry] = field(default_factory=dict)
    places: Mapping[str, TableEntry] = field(default_factory=dict)
    instant: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all tables in the view."""
        return frozenset(entry.id for entry in (*self.tables.values(), *self.places.values()))

    def part(self, request: LookupRequest) -> CatalogView:
        """Return the part of the view that answers one request of the batch."""
        places = {url: entry for url, entry in self.places.items() if url in request.places}
        owners = {owner for owner, _ in request.names}
        owners |= {entry.database.lower() for entry in places.values()}
        return CatalogView(
            databases={name: entry for name, entry in self.databases.items() if name in owners},
            tables={name: entry for name, entry in self.tables.items() if name in request.names},
            views={name: entry for name, entry in self.views.items() if name in request.names},
            places=places,
        )

    def at(self, instant: int, versions: Mapping[str, int]) -> CatalogView:
        """Return the view at an instant, given the versions that tables had then."""
        own = {table_id: versions[table_id] for table_id in self.ids if table_id in versions}
        return replace(self, instant=instant, versions=own)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest instant of the lake, the catalog's epoch, and table versions by table id."""

    instant: int
    epoch: int
    versions: Mapping[str, int]


def look_up(connection: Connection, request: LookupRequest) -> Callable[[], CatalogView]:
    """Send the query for the tables; return a function that awaits it and looks up the rest."""
    branch = request.branch
    read_names = names.send_name_query(connection, request.names, branch)

    def read() -> CatalogView:
        databases, tables = read_names()
        views = send_view_query(connection, request.names - tables.keys(), branch)()
        at = {url: names.table_at(connection, url, branch) for url in sorted(request.places)}
        places = {url: entry for url, entry in at.items() if entry is not None}
        for owner in sorted(
            {entry.database.lower() for entry in places.values()} - databases.keys()
        ):
            entry = names.database(connection, owner, branch)
            if entry is not None:
                databases[owner] = entry
        return CatalogView(databases=databases, tables=tables, views=views, places=places)

    return read


def look_up_as_expected(
    connection: Connection, request: LookupRequest, *, tables: Collection[Name]
) -> Callable[[], CatalogView | None]:
    """Send the queries for names of which some are expected to be those of `tables`; return a
    function that awaits them. It returns None if one of these isn't a table's.
    """
    others = request.names - frozenset(tables)
    read_names = names.send_name_query(connection, request.names, request.branch)
    read_views = send_view_query(connection, others, request.branch)

    def read() -> CatalogView | None:
        databases, found = read_names()
        views = read_views()
        if not request.names - found.keys() <= others:
            return None
        return CatalogView(databases=databases, tables=found, views=views)

    return read


class SeenNames:
    """What this process last found for lookups of names. Thread-safe.

    A statement with the same names will most likely find the same. So its locks and versions are
    requested together with the lookup, which then confirms what was assumed.
    """

    def __init__(self) -> None:
        self._views: dict[LookupRequest, CatalogView] = {}

    def expected(self, request: LookupRequest) -> CatalogView | None:
        """Return what a lookup is expected to find; None if that isn't known."""
        return self._views.get(request)

    def note(self, request: LookupRequest, view: CatalogView) -> None:
        """Note what a lookup has found, unless it is one of places."""
        if request.places:
            return
        if len(self._views) >= _SEEN_MAX:
            self._views.clear()
        self._views[request] = replace(view, instant=None, versions={})


def newest(connection: Connection, ids: Collection[str]) -> Callable[[], Newest]:
    """Send the query for the newest instant and its versions; return a function that awaits it."""
    pending = _NEWEST.send(connection, ids=sorted(ids))

    def read() -> Newest:
        rows = pending()
        versions = {row.id: int(row.version) for row in rows if row.version is not None}
        return Newest(int(rows[0].instant), int(rows[0].epoch), versions)

    return read


def versions_at(connection: Connection, ids: Collection[str], instant: int) -> Mapping[str, int]:
    """Return the versions of the tables at an instant; tables that did not exist are left out."""
    return send_versions(connection, ids, instant)()


def send_versions(
    connection: Connection, ids: Collection[str], instant: int
) -> Callable[[], Mapping[str, int]]:
    """Send the query of `versions_at`; return a function that awaits it."""
    if not ids:
        return dict
    read_rows = _VERSIONS.send(connection, ids=sorted(ids), at=instant)
    return lambda: {row.id: int(row.version) for row in read_rows() if row.version is not None}
