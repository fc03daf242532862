"""Dropped tables that are retained until they come back or expire.

A dropped table's row holds the time until which the table is retained. Once that time is removed
from the row, the folder is being removed and the table can't come back. Whoever changes it has
locked the sequence, so that exactly one of UNDROP and the removal takes effect. Owns those rows,
and when the lake last removed a table of a name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, names
from txlake.catalog.database import Database
from txlake.catalog.fact_rows import fact, set_fact
from txlake.catalog.names import TableEntry
from txlake.catalog.relations import databases, tables
from txlake.catalog.shielding import shielded


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedEntry:
    """A dropped table that is retained.

    Attributes:
        entry: the table as it was; its database is the present one of that name, number 0 if none.
        dropped_ms: when it was dropped, by the catalog's clock.
        kept_until_ms: when its retention ends.
        is_expired: its retention has ended.
        has_drop_note: its folder holds the note that it was dropped.
    """

    entry: TableEntry
    dropped_ms: int
    kept_until_ms: int
    is_expired: bool
    has_drop_note: bool


@shielded()
class DroppedTables:
    """The retained dropped tables of a lake."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entries(self) -> list[DroppedEntry]:
        """Return the retained dropped tables of main, newest drop first, expired ones included."""
        return self._query_entries(_IS_RETAINED & (tables.c.branch == names.MAIN))

    def expired(self) -> list[DroppedEntry]:
        """Return the retained dropped tables whose retention has ended."""
        return self._query_entries(_IS_RETAINED & (tables.c.kept_until_ms <= self._database.now()))

    def find(self, table_id: str) -> DroppedEntry | None:
        """Return the retained dropped table with that id, of main or a branch; None if it isn't
        dropped or not retained.
        """
        entries = self._query_entries(_IS_RETAINED & (tables.c.id == table_id))
        return entries[0] if entries else None

    def record_drop_note(self, table_id: str, dropped_ms: int) -> bool:
        """Record that a folder holds the note of this drop; return False if it isn't the table's
        drop.
        """
        matches = _IS_RETAINED & (tables.c.id == table_id) & (tables.c.dropped_ms == dropped_ms)

        def work(connection: Connection) -> bool:
            counter_rows.lock_sequence(connection)
            changed = sa.update(tables).where(matches).values(is_told=True)
            return connection.execute(changed).rowcount == 1

        return self._database.write_relaxed(work)

    def clear_drop_note(self, table_id: str) -> None:
        """Record that a folder may hold no drop note any more."""

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            changed = sa.update(tables).where(tables.c.id == table_id)
            connection.execute(changed.values(is_told=False))

        self._database.write(work)

    def expire(self, table_id: str) -> bool:
        """End the retention of an expired table and record its drop for `removed_ms`; return False
        if it isn't expired, or was undropped.

        The table stays among the ledger's dropped tables until its folder is removed.
        """

        def work(connection: Connection) -> bool:
            counter_rows.lock_sequence(connection)
            query = self._query(_IS_RETAINED & (tables.c.id == table_id))
            row = connection.execute(query).first()
            if row is None or not row.is_over:
                return False
            connection.execute(
                sa.update(tables).where(tables.c.id == table_id).values(kept_until_ms=None)
            )
            set_fact(connection, _removed(row.dropped_from, row.name), str(row.dropped_ms))
            return True

        return self._database.write(work)

    def removed_ms(self, database: str, name: str) -> int | None:
        """Return when the last table of that name was dropped whose retention was ended
        (`expire`); None if there is none.
        """
        with self._database.reading_once() as connection:
            dropped_ms = fact(connection, _removed(database, name))
        return None if dropped_ms is None else int(dropped_ms)

    def _query_entries(self, condition: sa.ColumnElement[bool]) -> list[DroppedEntry]:
        with self._database.reading_once() as connection:
            return [_entry(row) for row in connection.execute(self._query(condition))]

    def _query(self, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """Return the query for the tables that meet a condition, newest drop first."""
        is_of = databases.c.folded_name == tables.c.dropped_from
        return (
            sa.select(
                tables,
                databases.c.name.label("database_name"),
                databases.c.number.label("database_number"),
                (tables.c.kept_until_ms <= self._database.now()).label("is_over"),
            )
            .select_from(tables.outerjoin(databases, is_of))
            .where(condition)
            .order_by(tables.c.dropped_sequence.desc(), tables.c.id)
        )


_IS_RETAINED = tables.c.dropped_sequence.is_not(None) & tables.c.kept_until_ms.is_not(None)


def _entry(row: sa.Row[Any]) -> DroppedEntry:
    """Return the entry of a row of `DroppedTables._query`."""
    return DroppedEntry(
        entry=names.entry_in(row, row.database_name or row.dropped_from, row.database_number or 0),
        dropped_ms=row.dropped_ms,
        kept_until_ms=row.kept_until_ms,
        is_expired=bool(row.is_over),
        has_drop_note=row.is_told,
    )


def _removed(database: str, name: str) -> str:
    text = f"{database}.{name}".lower()
    return f"removed:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}"
