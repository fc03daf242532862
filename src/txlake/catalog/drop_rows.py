"""Drop, undrop and forget tables in the catalog, in the caller's transaction.

A dropped table keeps its row, without a name, until it is undropped or forgotten. The caller has
locked the sequence.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.names import (
    MAIN,
    dropped_error,
    exists,
    live_update,
    require_database,
    require_no_view,
    table,
)
from txlake.catalog.relations import databases, identities, tables
from txlake.errors import InvalidRequest, Unavailable


def drop_table(
    connection: Connection,
    table_id: str,
    sequence: int,
    *,
    keeps_files: bool = False,
    dropped_ms: int = 0,
    retention_ms: int = 0,
) -> None:
    """Drop a table at the instant `sequence`: its name is free then.

    Args:
        keeps_files: the table's folder stays on disk and is no longer the lake's.
        dropped_ms: when it was dropped, by the catalog's clock; only used with a retention.
        retention_ms: how long after `dropped_ms` the table can be undropped; 0: not at all.

    Raises InvalidRequest if the table was dropped already.
    """
    dropped = connection.execute(live_update(table_id).values(dropped_sequence=sequence))
    if dropped.rowcount != 1:
        raise dropped_error(connection, table_id)
    if retention_ms > 0:
        owner = sa.select(databases.c.folded_name).where(databases.c.id == tables.c.database_id)
        retained = sa.update(tables).where(tables.c.id == table_id)
        connection.execute(
            retained.values(
                dropped_ms=dropped_ms,
                kept_until_ms=dropped_ms + retention_ms,
                dropped_from=owner.scalar_subquery(),
                is_told=False,
            )
        )
    if keeps_files:
        unmanaged = sa.update(tables).where(tables.c.id == table_id)
        connection.execute(unmanaged.values(managed=False))
    # A name without an attached table leaves nothing to publish or to remove.
    connection.execute(sa.delete(tables).where(tables.c.id == table_id, tables.c.head.is_(None)))


def undrop_table(
    connection: Connection,
    table_id: str,
    database_name: str,
    name: str,
    now_ms: int,
    branch: int = MAIN,
) -> None:
    """Undrop a retained table of a branch, under the name given.

    Raises:
        InvalidRequest: the name is taken, the database is missing, the table isn't retained any
            more, or another table is at its place.
        Unavailable: another process has meanwhile noted the drop in the table's folder.
    """
    owner = require_database(connection, database_name, branch)
    if table(connection, owner.name, name, branch) is not None:
        raise name_taken_error(owner.name, name)
    require_no_view(connection, owner, name)
    is_it = tables.c.id == table_id
    if connection.scalar(sa.select(tables.c.is_told).where(is_it)):
        raise Unavailable(
            f"UNDROP TABLE {owner.name}.{name}: another process that opened the lake told the "
            "table's folder meanwhile that it is dropped; try again"
        )
    undropped = connection.execute(
        sa.update(tables)
        .where(is_it, tables.c.kept_until_ms > now_ms)
        .values(
            database_id=owner.id,
            dropped_sequence=None,
            dropped_ms=None,
            kept_until_ms=None,
            dropped_from=None,
            modified_ms=now_ms,
        )
    )
    if undropped.rowcount != 1:
        raise InvalidRequest(
            f"dropped table {owner.name}.{name} ({table_id}) came back meanwhile, or its time is "
            "over: SHOW TABLES DROPPED lists what can come back"
        )
    here = sa.select(tables.c.location).where(is_it).scalar_subquery()
    is_fork = sa.func.coalesce(tables.c.root_id, "") == table_id
    others = (tables.c.location == here) & ~is_it & ~is_fork
    if exists(connection, others & tables.c.dropped_sequence.is_(None)):
        raise InvalidRequest(
            f"{owner.name}.{name} can't come back: another table of the lake is at its place now; "
            "drop that one first"
        )


def forget_table(connection: Connection, table_id: str) -> None:
    """Remove the row of a dropped table, and its identity columns' marks; do nothing for any other
    table.

    Raises InvalidRequest while commits of the table wait to be published.
    """
    dropped = (tables.c.id == table_id) & tables.c.dropped_sequence.is_not(None)
    if exists(connection, dropped & (tables.c.published < tables.c.head)):
        raise InvalidRequest(
            f"the last commits of dropped table {table_id} aren't published yet; open the lake "
            "again, which publishes them"
        )
    if connection.execute(sa.delete(tables).where(dropped)).rowcount:
        connection.execute(sa.delete(identities).where(identities.c.table_id == table_id))


def name_taken_error(database_name: str, name: str) -> InvalidRequest:
    """Return the error of an UNDROP TABLE whose name another table has."""
    shown = f"{database_name}.{name}"
    return InvalidRequest(
        f"UNDROP TABLE {shown}: there is another table of that name; rename it first (ALTER TABLE "
        f"{shown} RENAME TO ...)"
    )
