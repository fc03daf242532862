"""Names and places of a lake's databases and tables, kept in a database."""

from __future__ import annotations

from txlake.catalog.catalog import DEFAULT_DATABASE, Catalog
from txlake.catalog.database import sqlite_url
from txlake.catalog.names import DatabaseEntry, TableEntry, matches
from txlake.catalog.owners import killed

__all__ = [
    "DEFAULT_DATABASE",
    "Catalog",
    "DatabaseEntry",
    "TableEntry",
    "killed",
    "matches",
    "sqlite_url",
]
