"""The catalog's schema brought to this txlake's revision, by however many openers at once.

Owns what Alembic is told; the steps are in `migrations`.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.tables import REVISION
from txlake.errors import InvalidRequest
from txlake.packages import missing

_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISIONS = "txlake_revision"
# Before Alembic there was this relation, and two versions of the schema.
_BEFORE = "txlake_schema"
# Any number, the same in every txlake that shares a PostgreSQL database.
_UPGRADE_LOCK = 0x74786C61


def is_current(on: Database, connection: Connection) -> bool:
    """Whether the schema is this txlake's. Raises InvalidRequest for that of a newer one."""
    found = _revision(connection)
    if found is not None and found > REVISION:
        raise InvalidRequest(
            f"catalog {on.shown}: its schema has revision {found}, this txlake knows {REVISION}; "
            "upgrade txlake"
        )
    return found == REVISION


def upgrade(on: Database, connection: Connection) -> None:
    """Makes or upgrades the relations, in the caller's writing transaction."""
    # Alembic takes a while to import: only who finds an older schema waits for it.
    try:
        from alembic import command
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise InvalidRequest(missing(f"catalog {on.shown}", error)) from error

    if not on.is_sqlite:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
    if is_current(on, connection):
        return
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = _REVISIONS
    before = _version_before(connection)
    if before is not None:
        command.stamp(config, f"{before:04}")
    command.upgrade(config, REVISION)


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(_REVISIONS):
        return None
    found: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {_REVISIONS}"))
    return found


def _version_before(connection: Connection) -> int | None:
    """The version of a schema that Alembic doesn't know of yet."""
    inspected = sa.inspect(connection)
    if inspected.has_table(_REVISIONS) or not inspected.has_table(_BEFORE):
        return None
    found: int | None = connection.scalar(sa.text(f"SELECT version FROM {_BEFORE}"))
    return found
