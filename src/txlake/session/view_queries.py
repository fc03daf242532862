"""Views: a view's name stands for a query, which is planned anew wherever the name is used.

Owns the temporary views that a lake's SQL made, which are in Spark's session too, and how a stored
text becomes a query again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

from txlake.catalog.views import ViewEntry
from txlake.commit.data_plane import DataPlane
from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.statements import (
    QueryReader,
    Select,
    SqlText,
    Statement,
    Table,
    TableName,
    ViewSchema,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    """A view and its query.

    Attributes:
        name: as messages name it.
        database: what unqualified names in the query belong to.
        columns: the names of its columns, where they aren't the query's.
        entry: what the lake keeps of it; None for a temporary view.
        schema: what it promises of its columns; None for a view of an older release.
    """

    name: str
    database: str
    query: SqlText
    columns: tuple[str, ...] = ()
    entry: ViewEntry | None = None
    schema: ViewSchema | None = None

    def within(self, table: Table) -> Table:
        """Return a name in the query with its database."""
        if isinstance(table, TableName) and len(table.parts) == 1:
            return TableName((self.database, *table.parts))
        return table


def viewed_entry(entry: ViewEntry, reader: QueryReader) -> Viewed:
    """Return a view of the lake. `reader` parses a query that is valid in Spark alone.

    Raises InvalidRequest if the stored text is no query.
    """
    return Viewed(
        name=str(TableName((entry.database, entry.name))),
        database=entry.database,
        query=_query(entry.query, reader),
        columns=tuple(name for name, _ in entry.columns),
        entry=entry,
        schema=entry.schema,
    )


def _query(text: str, reader: QueryReader) -> SqlText:
    """Return the query of a stored view text. Raises InvalidRequest if it is no query."""
    try:
        [statement] = _parsed(text)
    except InvalidRequest:
        [statement] = parse(text, reader=reader)
    if not isinstance(statement, Select):
        raise InvalidRequest(f"a view is a query, found {text:.100}")
    return statement.query


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> tuple[Statement, ...]:
    return parse(text)


class TemporaryViews:
    """The temporary views over tables of a lake in one Spark session; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[str, tuple[str, Viewed]] = {}

    def copy(self) -> TemporaryViews:
        """Return the same views for a clone of the Spark session."""
        made = TemporaryViews()
        with self._lock:
            made._views.update(self._views)
        return made

    def put(self, mark: str, view: Viewed) -> None:
        """Record a view that was created in Spark with this mark."""
        with self._lock:
            self._views[view.name.lower()] = (mark, view)

    def find(self, plane: DataPlane, name: TableName) -> Viewed | None:
        """Return the view of a name; None without one, or if Spark has replaced or dropped it
        since.

        The record of a view that Spark no longer has is removed.
        """
        key = str(name).lower()
        with self._lock:
            known = self._views.get(key)
        if known is None:
            return None
        mark, view = known
        frame = plane.spark_relation(str(name))
        if frame is not None and plane.reads_view(frame, mark):
            return view
        with self._lock:
            if self._views.get(key) == known:
                del self._views[key]
        return None
