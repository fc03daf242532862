"""Open the database of a catalog: SQLite, PostgreSQL, or a log in a store."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from txlake.catalog.database import Database
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.ports import System
from txlake.storage import open_store

_STORE_SCHEMES = (
    "file", "s3", "s3a", "gs", "az", "abfss", "hdfs", "webhdfs", "swebhdfs", "memory",
)  # fmt: skip


def is_store_url(url: str | sa.URL) -> bool:
    """Return whether a catalog's URL is that of a folder in a store, not of a database."""
    return isinstance(url, str) and url.partition("://")[0].lower() in _STORE_SCHEMES


def open_database(
    url: str | sa.URL,
    system: System,
    *,
    busy_timeout_s: float = 30.0,
    lease_ms: int = 30_000,
    log_retention_ms: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Database:
    """Return the database at a URL: SQLAlchemy's, or that of the folder of a catalog in a store.

    `lease_ms`, `log_retention_ms`, `storage_options`: for a catalog in a store. Raises as
    `Database`, `ReplicatedDatabase` and `open_store`.
    """
    if is_store_url(url):
        store = open_store(str(url), storage_options)
        return ReplicatedDatabase(
            store,
            system,
            lease_ms=lease_ms,
            retention_ms=log_retention_ms,
            busy_timeout_s=busy_timeout_s,
        )
    return Database(url, system, busy_timeout_s=busy_timeout_s)
