"""The system catalogs of PostgreSQL 8, as Amazon Redshift shows them.

Columns as in the PostgreSQL manual ("System Catalogs": "pg_class", "pg_namespace", "pg_database",
"pg_tables", "pg_views"); `oid` is an ordinary column. A lake's databases stand for both schemas and
databases. Names are folded to lower case, as in Redshift. Columns that a lake has no value for are
NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlake.catalog import TableEntry
from txlake.session.views.view import EntrySource, RowValues, objects_of, view


def _tables(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table."""
    for entry in entries.tables():
        yield {
            "schemaname": entry.database.lower(),
            "tablename": entry.name.lower(),
            "hasindexes": False,
            "hasrules": False,
            "hastriggers": False,
        }


def _views(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each view, with its query."""
    for entry in entries.views():
        yield {
            "schemaname": entry.database.lower(),
            "viewname": entry.name.lower(),
            "definition": entry.query,
        }


def _classes(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table, then for each view."""
    for entry in objects_of(entries):
        yield {
            "oid": entry.number,
            "relname": entry.name.lower(),
            "relnamespace": entry.database_number,
            "relhasindex": False,
            "relisshared": False,
            "relkind": "r" if isinstance(entry, TableEntry) else "v",
            "reltriggers": 0,
            "relhasoids": False,
            "relhasrules": False,
            "relhassubclass": False,
        }


def _namespaces(entries: EntrySource) -> Iterator[RowValues]:
    for entry in entries.databases():
        yield {"oid": entry.number, "nspname": entry.name.lower()}


def _databases(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each database."""
    for entry in entries.databases():
        yield {
            "oid": entry.number,
            "datname": entry.name.lower(),
            "datistemplate": False,
            "datallowconn": True,
        }


PG_TABLES = view(
    "pg_tables",
    """
    schemaname STRING, tablename STRING, tableowner STRING, tablespace STRING,
    hasindexes BOOLEAN, hasrules BOOLEAN, hastriggers BOOLEAN
    """,
    _tables,
)
PG_VIEWS = view(
    "pg_views",
    "schemaname STRING, viewname STRING, viewowner STRING, definition STRING",
    _views,
)
PG_CLASS = view(
    "pg_class",
    """
    oid BIGINT, relname STRING, relnamespace BIGINT, reltype BIGINT, relowner INT, relam BIGINT,
    relfilenode BIGINT, reltablespace BIGINT, relpages INT, reltuples FLOAT, reltoastrelid BIGINT,
    reltoastidxid BIGINT, relhasindex BOOLEAN, relisshared BOOLEAN, relkind STRING,
    relnatts SMALLINT, relchecks SMALLINT, reltriggers SMALLINT, relukeys SMALLINT,
    relfkeys SMALLINT, relrefs SMALLINT, relhasoids BOOLEAN, relhaspkey BOOLEAN,
    relhasrules BOOLEAN, relhassubclass BOOLEAN, relacl ARRAY<STRING>
    """,
    _classes,
)
"""Values from a table's log, such as the number of columns, are NULL: no log is read."""

PG_NAMESPACE = view(
    "pg_namespace",
    "oid BIGINT, nspname STRING, nspowner INT, nspacl ARRAY<STRING>",
    _namespaces,
)
PG_DATABASE = view(
    "pg_database",
    """
    oid BIGINT, datname STRING, datdba INT, encoding INT, datistemplate BOOLEAN,
    datallowconn BOOLEAN, datlastsysoid BIGINT, datvacuumxid BIGINT, datfrozenxid BIGINT,
    dattablespace BIGINT, datconfig ARRAY<STRING>, datacl ARRAY<STRING>
    """,
    _databases,
)
