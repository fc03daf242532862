"""What a lake shows of itself, as the views of the systems that its users come from.

Read committed: a view shows what is, also to a transaction that reads an older instant. Names in
any letter case; Redshift's also with `pg_catalog.` before them.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlake.views import (
    own,
    pg_catalog,
    redshift,
    sql_server,
    sql_server_sessions,
    standard,
)
from txlake.views.describe import Rows
from txlake.views.view import CatalogEntries, Entries, Shape, View

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
    "information_schema.schemata": standard.SCHEMATA,
    "information_schema.tables": standard.TABLES,
    "information_schema.views": standard.VIEWS,
    "information_schema.columns": standard.COLUMNS,
    "txlake.conflicts": own.CONFLICTS,
    "txlake.commits": own.COMMITS,
    "txlake.transactions": own.TRANSACTIONS,
}
"""By folded name, without `pg_catalog`."""

_REDSHIFT = "pg_catalog."


def view_named(parts: tuple[str, ...]) -> View | None:
    """The view of that name, the parts as they were written; None when there is none."""
    name = ".".join(parts).lower()
    if name.startswith(_REDSHIFT):
        name = name.removeprefix(_REDSHIFT)
        return None if "." in name else VIEWS.get(name)
    return VIEWS.get(name)


def rows_of(parts: tuple[str, ...], entries: Entries) -> Rows | None:
    """What the view of that name shows now; None when there is none."""
    view = view_named(parts)
    return None if view is None else view.look(entries)


__all__ = ["VIEWS", "CatalogEntries", "Entries", "Shape", "View", "rows_of", "view_named"]
