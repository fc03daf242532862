"""Bring the catalog's schema to this txlake's revision.

Safe if several processes open a catalog at once. Owns the configuration of Alembic; the steps are
in `migrations`.
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.relations import REVISION
from txlake.errors import InvalidRequest
from txlake.packages import missing_package

_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISIONS = "txlake_revision"
# The revision of the first release. A catalog from before it has an older revision, or only the
# relation `txlake_schema`.
_FIRST_REVISION = "0006"
_BEFORE_REVISIONS = "txlake_schema"
# PostgreSQL's lock of an upgrade: the first number is arbitrary, the same in every txlake, the
# second is the schema's, so that the lakes of one PostgreSQL database don't wait for each other.
_TAKE_UPGRADE_LOCK = (
    "SELECT pg_advisory_xact_lock(1954049121, hashtext(coalesce(current_schema(), '')))"
)
# Alembic keeps the upgrade that it carries out in a global variable.
_upgrading = threading.Lock()


def is_current(database: Database, connection: Connection) -> bool:
    """Return whether the schema has this txlake's revision; False if there is no schema yet.

    Raises InvalidRequest for the schema of a newer txlake, and for one from before the first
    release.
    """
    revision = _revision(connection)
    if revision is None:
        return False
    if revision > REVISION:
        raise InvalidRequest(
            f"catalog {database.display_url}: its schema has revision {revision}, this txlake "
            f"knows {REVISION}; upgrade txlake"
        )
    if revision < _FIRST_REVISION:
        raise InvalidRequest(
            f"catalog {database.display_url}: its schema has revision {revision}, of a txlake that "
            f"was never released, and is not upgraded; the first release's is {_FIRST_REVISION}. "
            "Give an empty database, and rebuild the catalog from the tables' logs with "
            "lake.recover()"
        )
    return revision == REVISION


def upgrade(database: Database, connection: Connection) -> None:
    """Create or upgrade the relations in the caller's writing transaction.

    Raises InvalidRequest as `is_current`, and if Alembic isn't installed.
    """
    # Alembic takes a while to import, so it is imported only if the schema is older.
    try:
        from alembic import command
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise InvalidRequest(missing_package(f"catalog {database.display_url}", error)) from error

    if not database.is_sqlite:
        connection.exec_driver_sql(_TAKE_UPGRADE_LOCK)
    if is_current(database, connection):
        return
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = _REVISIONS
    with _upgrading:
        command.upgrade(config, REVISION)


def _revision(connection: Connection) -> str | None:
    """Return the schema's revision; None if there is no schema yet."""
    inspector = sa.inspect(connection)
    if inspector.has_table(_REVISIONS):
        revision: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {_REVISIONS}"))
        return revision
    if not inspector.has_table(_BEFORE_REVISIONS):
        return None
    version: int = connection.scalar(sa.text(f"SELECT version FROM {_BEFORE_REVISIONS}"))
    return f"{version:04}"
