"""Transactions of the catalog's database that a test opens and ends itself."""

from __future__ import annotations

from contextlib import AbstractContextManager

from sqlalchemy.engine import Connection

from txlake.catalog.database import Database


def write_transaction(database: Database) -> AbstractContextManager[Connection]:
    """Return a transaction as that of `Database.write`."""
    return database._transaction(database._durable, database._writing_turn)


def relaxed_transaction(database: Database) -> AbstractContextManager[Connection]:
    """Return a transaction as that of `Database.write_relaxed`."""
    return database._transaction(database._light, database._writing_turn)
