"""The catalog's schema brought to this txlake's revision, by however many openers at once.

Owns what Alembic is told; the steps are in `migrations`.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.relations import REVISION
from txlake.errors import InvalidRequest
from txlake.packages import missing_package

_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISIONS = "txlake_revision"
# The first release's. Catalogs from before it have an older one, or this relation alone.
_FIRST_REVISION = "0006"
_BEFORE_REVISIONS = "txlake_schema"
# Any number, the same in every txlake that shares a PostgreSQL database.
_UPGRADE_LOCK = 0x74786C61


def is_current(on: Database, connection: Connection) -> bool:
    """Whether the schema is this txlake's.

    Raises InvalidRequest for that of a newer one, and for one from before the first release.
    """
    found = _revision(connection)
    if found is None:
        return False
    if found > REVISION:
        raise InvalidRequest(
            f"catalog {on.display_url}: its schema has revision {found}, this txlake knows "
            f"{REVISION}; "
            "upgrade txlake"
        )
    if found < _FIRST_REVISION:
        raise InvalidRequest(
            f"catalog {on.display_url}: its schema has revision {found}, of a txlake that was "
            "never "
            f"released, and is not upgraded; the first release's is {_FIRST_REVISION}. Give an "
            "empty database, and rebuild the catalog from the tables' logs with lake.recover()"
        )
    return found == REVISION


def upgrade(on: Database, connection: Connection) -> None:
    """Makes or upgrades the relations, in the caller's writing transaction."""
    # Alembic takes a while to import: only who finds an older schema waits for it.
    try:
        from alembic import command
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise InvalidRequest(missing_package(f"catalog {on.display_url}", error)) from error

    if not on.is_sqlite:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
    if is_current(on, connection):
        return
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = _REVISIONS
    command.upgrade(config, REVISION)


def _revision(connection: Connection) -> str | None:
    """The schema's revision; None where there is no schema yet."""
    inspected = sa.inspect(connection)
    if inspected.has_table(_REVISIONS):
        found: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {_REVISIONS}"))
        return found
    if not inspected.has_table(_BEFORE_REVISIONS):
        return None
    version: int = connection.scalar(sa.text(f"SELECT version FROM {_BEFORE_REVISIONS}"))
    return f"{version:04}"
