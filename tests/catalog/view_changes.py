"""Views that tests make, change and rename at once, as transactions of their own would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.engine import Connection

from txlake.catalog import Catalog
from txlake.catalog.views import ViewEntry, stored_properties, write_view
from txlake.ports import WrittenView
from txlake.sql.statements import ViewSchema
from txlake.system import System

Columns = Sequence[tuple[str, str | None]]


def create_view(
    catalog: Catalog,
    database: str,
    name: str,
    query: str,
    columns: Columns = (),
    *,
    comment: str | None = None,
    properties: Mapping[str, str] | None = None,
    schema: ViewSchema | None = None,
) -> None:
    """A new view."""
    change = WrittenView(
        id=System().new_id(),
        database=database,
        name=name,
        query=query,
        columns=tuple(columns),
        comment=comment,
        properties=stored_properties(properties or {}, schema),
        is_new=True,
        branch=catalog.branch,
    )
    _write(catalog, change)


def change_view(catalog: Catalog, view: ViewEntry, query: str, columns: Columns = ()) -> None:
    """Another query and other columns of a view, and nothing else that it had."""
    _write(catalog, _as_is(catalog, view, view.database, view.name, query, columns))


def rename_view(catalog: Catalog, view: ViewEntry, database: str, name: str) -> None:
    """Another name of a view."""
    _write(catalog, _as_is(catalog, view, database, name, view.query, view.columns))


def _as_is(
    catalog: Catalog, view: ViewEntry, database: str, name: str, query: str, columns: Columns
) -> WrittenView:
    return WrittenView(
        id=view.id,
        database=database,
        name=name,
        query=query,
        columns=tuple(columns),
        branch=catalog.branch,
    )


def _write(catalog: Catalog, change: WrittenView) -> None:
    database = catalog._database

    def work(connection: Connection) -> None:
        write_view(connection, change, database.now_ms(connection))

    database.run_shielded(lambda: database.change(work))
