"""Names and places of a lake's databases and tables, kept in a database."""

from __future__ import annotations

from txlake.catalog.catalog import DEFAULT_DATABASE, Catalog
from txlake.catalog.database import sqlite_url
from txlake.catalog.dropped import DroppedEntry
from txlake.catalog.forks import forked
from txlake.catalog.names import DatabaseEntry, TableEntry, check_name, matches

__all__ = [
    "DEFAULT_DATABASE",
    "Catalog",
    "DatabaseEntry",
    "DroppedEntry",
    "TableEntry",
    "check_name",
    "forked",
    "matches",
    "sqlite_url",
]
