"""A lake's system views, as SQL Server, Redshift, PostgreSQL and Databricks have them.

They are read committed: a view shows the present state, even to a transaction that reads an older
instant. Names are case-insensitive; Redshift's may have the prefix `pg_catalog.`.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlake.session.views import (
    information_schema,
    lake_views,
    pg_catalog,
    redshift,
    sql_server,
    sql_server_sessions,
)
from txlake.session.views.describe import Rows
from txlake.session.views.view import CatalogEntrySource, EntrySource, TableLayout, View

VIEWS: Mapping[str, View] = {
    "sys.dm_tran_locks": sql_server.DM_TRAN_LOCKS,
    "sys.dm_tran_active_transactions": sql_server.DM_TRAN_ACTIVE_TRANSACTIONS,
    "sys.dm_exec_sessions": sql_server_sessions.DM_EXEC_SESSIONS,
    "sys.dm_exec_requests": sql_server_sessions.DM_EXEC_REQUESTS,
    "sys.dm_tran_session_transactions": sql_server_sessions.DM_TRAN_SESSION_TRANSACTIONS,
    "sys.tables": sql_server.TABLES,
    "sys.objects": sql_server.OBJECTS,
    "sys.views": sql_server.VIEWS,
    "sys.databases": sql_server.DATABASES,
    "sys.schemas": sql_server.SCHEMAS,
    "sys.columns": sql_server.COLUMNS,
    "stv_db_isolation_level": redshift.STV_DB_ISOLATION_LEVEL,
    "pg_database_info": redshift.PG_DATABASE_INFO,
    "svv_transactions": redshift.SVV_TRANSACTIONS,
    "svv_tables": redshift.SVV_TABLES,
    "stv_locks": redshift.STV_LOCKS,
    "pg_tables": pg_catalog.PG_TABLES,
    "pg_views": pg_catalog.PG_VIEWS,
    "pg_class": pg_catalog.PG_CLASS,
    "pg_namespace": pg_catalog.PG_NAMESPACE,
    "pg_database": pg_catalog.PG_DATABASE,
    "stl_tr_conflict": redshift.STL_TR_CONFLICT,
    "information_schema.schemata": information_schema.SCHEMATA,
    "information_schema.tables": information_schema.TABLES,
    "information_schema.views": information_schema.VIEWS,
    "information_schema.columns": information_schema.COLUMNS,
    "txlake.conflicts": lake_views.CONFLICTS,
    "txlake.branches": lake_views.BRANCHES,
    "txlake.commits": lake_views.COMMITS,
    "txlake.maintenance": lake_views.MAINTENANCE,
    "txlake.transactions": lake_views.TRANSACTIONS,
}
"""The views by lower-case name, without `pg_catalog`."""

_REDSHIFT = "pg_catalog."


def view_named(parts: tuple[str, ...]) -> View | None:
    """Return the view of a name, given as its parts; None if there is none."""
    name = ".".join(parts).lower()
    if name.startswith(_REDSHIFT):
        name = name.removeprefix(_REDSHIFT)
        return None if "." in name else VIEWS.get(name)
    return VIEWS.get(name)


def rows_of(parts: tuple[str, ...], entries: EntrySource) -> Rows | None:
    """Return the present rows of the system view of a name, in parts; None if there is none."""
    view = view_named(parts)
    return None if view is None else view.read(entries)


__all__ = [
    "VIEWS",
    "CatalogEntrySource",
    "EntrySource",
    "TableLayout",
    "View",
    "rows_of",
    "view_named",
]
