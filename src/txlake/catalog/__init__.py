"""The lake's catalog: databases, tables, locks, transactions and commits in a SQL database."""

from __future__ import annotations

from txlake.catalog.any_catalog import AnyCatalog
from txlake.catalog.catalog import DEFAULT_DATABASE, Catalog
from txlake.catalog.database import sqlite_url
from txlake.catalog.dropped import DroppedEntry
from txlake.catalog.forks import forked
from txlake.catalog.names import DatabaseEntry, TableEntry, check_name, matches
from txlake.catalog.no_catalog import NoCatalog
from txlake.catalog.opening import is_store_url
from txlake.catalog.replicated.database import looking_once
from txlake.catalog.unregistered import AdmissionOutdated

__all__ = [
    "DEFAULT_DATABASE",
    "AdmissionOutdated",
    "AnyCatalog",
    "Catalog",
    "DatabaseEntry",
    "DroppedEntry",
    "NoCatalog",
    "TableEntry",
    "check_name",
    "forked",
    "is_store_url",
    "looking_once",
    "matches",
    "sqlite_url",
]
