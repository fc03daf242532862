"""Views by name, each with the text of its query.

Views and tables of a database share one space of names. Whoever changes a view holds the lock on
its name and has locked the sequence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, names
from txlake.catalog.database import Database
from txlake.catalog.names import DatabaseEntry
from txlake.catalog.prepared import Prepared, Row
from txlake.catalog.relations import databases, views
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest
from txlake.ports import WrittenView
from txlake.sql.statements import ViewSchema

_VIEWS = sa.select(
    views, databases.c.name.label("database_name"), databases.c.number.label("database_number")
).join(databases, databases.c.id == views.c.database_id)


_NAMED = Prepared(
    lambda owners, names: _VIEWS.where(
        databases.c.folded_name.in_(owners), views.c.folded_name.in_(names)
    ),
    "owners",
    "names",
)

# The key of the schema among a view's properties.
_SCHEMA = "txlake.view.schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewEntry:
    """A view.

    Attributes:
        query: the query's text; a name in it without a database is one of the view's database.
        columns: the names and comments of its columns.
        modified_ms: when the query or the name was last changed.
        schema: None for a view of an older release, which has its query's columns.
    """

    id: str
    number: int
    database: str
    database_number: int
    name: str
    query: str
    columns: tuple[tuple[str, str | None], ...]
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    modified_ms: int = 0
    schema: ViewSchema | None = None


@shielded()
class Views:
    """The views of one lake, or of a branch of it."""

    def __init__(self, database: Database, branch: int = names.MAIN) -> None:
        self._database = database
        self._branch = branch

    def find(self, database: str, name: str) -> ViewEntry | None:
        """Return the view of that name, in any letter case; None if there is none."""
        with self._database.reading_once() as connection:
            return find_view(connection, database, name, self._branch)

    def entries(self, database: str) -> list[ViewEntry]:
        """Return a database's views, ordered by name. Raises InvalidRequest if there is no such
        database.
        """
        with self._database.reading() as connection:
            owner = names.require_database(connection, database, self._branch)
            query = _VIEWS.where(views.c.database_id == owner.id).order_by(views.c.folded_name)
            return [_entry(row) for row in connection.execute(query)]

    def drop(self, view_id: str) -> None:
        """Drop a view at once, if it still exists."""

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            drop_view(connection, view_id)

        self._database.change(work)


def write_view(connection: Connection, change: WrittenView, now_ms: int) -> None:
    """Create a view, or give one the query, name, columns, comment and properties of a change.

    Raises InvalidRequest for a name that is taken or too long, a missing database, and a view that
    was dropped.
    """
    names.check_name(change.name)
    owner = names.require_database(connection, change.database, change.branch)
    _require_free(connection, owner, change)
    values = {
        "database_id": owner.id,
        "folded_name": change.name.lower(),
        "name": change.name,
        "query": change.query,
        "columns": json.dumps(list(change.columns)),
        "comment": change.comment,
        "properties": json.dumps(dict(change.properties)),
        "modified_ms": now_ms,
    }
    if change.is_new:
        number = names.new_number(connection)
        made = sa.insert(views).values(id=change.id, number=number, created_ms=now_ms, **values)
        connection.execute(made)
        return
    changed = sa.update(views).where(views.c.id == change.id).values(**values)
    if connection.execute(changed).rowcount != 1:
        raise InvalidRequest(
            f"view {owner.name}.{change.name} was dropped meanwhile; create it again"
        )


def _require_free(connection: Connection, owner: DatabaseEntry, change: WrittenView) -> None:
    """Raise InvalidRequest if the database has a table, or another view, of a view's name."""
    if names.table(connection, owner.name, change.name, change.branch) is not None:
        raise InvalidRequest(
            f"{owner.name}.{change.name} is a table; choose another name for the view"
        )
    existing = find_view(connection, owner.name, change.name, change.branch)
    if existing is not None and existing.id != change.id:
        raise InvalidRequest(
            f"view {owner.name}.{change.name} exists already; use IF NOT EXISTS or OR REPLACE"
        )


def drop_view(connection: Connection, view_id: str) -> None:
    """Drop a view, if it still exists."""
    connection.execute(sa.delete(views).where(views.c.id == view_id))


def find_view(
    connection: Connection, database: str, name: str, branch: int = names.MAIN
) -> ViewEntry | None:
    """Return a branch's view of that name, in any letter case; None if there is none."""
    owner = names.database_key(database, branch)
    wanted = (databases.c.folded_name == owner) & (views.c.folded_name == name.lower())
    row = connection.execute(_VIEWS.where(wanted)).first()
    return None if row is None else _entry(row)


def send_view_query(
    connection: Connection, view_names: Collection[tuple[str, str]], branch: int = names.MAIN
) -> Callable[[], dict[tuple[str, str], ViewEntry]]:
    """Send the query for a branch's views by (database, view), in lower case; return a function
    that waits for the rows and returns the views by these names.
    """
    if not view_names:
        return dict
    read_rows = _NAMED.send(
        connection,
        owners=sorted({names.database_key(owner, branch) for owner, _ in view_names}),
        names=sorted({name for _, name in view_names}),
    )

    def read() -> dict[tuple[str, str], ViewEntry]:
        found = {(row.database_name.lower(), row.folded_name): row for row in read_rows()}
        return {name: _entry(found[name]) for name in view_names if name in found}

    return read


def stored_properties(
    properties: Mapping[str, str], schema: ViewSchema | None
) -> Mapping[str, str]:
    """Return a view's properties as the catalog keeps them, its schema as one of them."""
    if schema is None:
        return properties
    encoded = {"mode": schema.mode, "output": schema.output, "columns": schema.columns}
    return {**properties, _SCHEMA: json.dumps(encoded)}


def _schema(encoded: str | None) -> ViewSchema | None:
    """Return the schema that was stored as JSON; None if there is none."""
    if encoded is None:
        return None
    fields = json.loads(encoded)
    return ViewSchema(
        mode=fields["mode"], output=tuple(fields["output"]), columns=fields["columns"]
    )


def _entry(row: Row) -> ViewEntry:
    """Return the entry of a row of `_VIEWS`."""
    properties = json.loads(row.properties)
    schema = _schema(properties.pop(_SCHEMA, None))
    return ViewEntry(
        id=row.id,
        number=row.number,
        database=row.database_name,
        database_number=row.database_number,
        name=row.name,
        query=row.query,
        columns=tuple((name, comment) for name, comment in json.loads(row.columns)),
        comment=row.comment,
        properties=properties,
        created_ms=row.created_ms,
        modified_ms=row.modified_ms,
        schema=schema,
    )
