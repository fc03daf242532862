"""The marks of identity columns: the value up to which each column's values are reserved.

Owns their rows. A mark stays when the transaction that reserved its values is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.relations import identities
from txlake.catalog.shielding import shielded


@shielded()
class IdentityMarks:
    """`IdentityBook` of one lake."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def advance(self, table_id: str, column: str, last: Callable[[int | None], int]) -> None:
        """Move a column's mark to `last(mark)`; `last` gets None where the column has no mark.

        `last` may be called twice, and what it raises is raised: the mark then stays. `column` is a
        digest of the column.
        """
        is_column = _is_column(table_id, column)

        def work(connection: Connection) -> None:
            present = connection.scalar(_mark(is_column))
            if present is None and self._insert_first(connection, table_id, column, last(None)):
                return
            if present is None:  # another transaction has inserted it
                present = connection.scalar(_mark(is_column))
            mark = last(present)
            if mark != present:
                connection.execute(sa.update(identities).where(is_column).values(mark=mark))

        # If a power failure undid a reservation, clients that live on would use its values twice.
        # The clients of a SQLite file are on the host that fails.
        is_local = self._database.is_sqlite
        write = self._database.write_relaxed if is_local else self._database.write
        write(work)

    def _insert_first(self, connection: Connection, table_id: str, column: str, mark: int) -> bool:
        """Insert a column's first mark; return False if another transaction has inserted it
        meanwhile.
        """
        insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
        row = insert(identities).values(table_id=table_id, column_digest=column, mark=mark)
        inserted = row.on_conflict_do_nothing().returning(identities.c.mark)
        return connection.execute(inserted).first() is not None

    def give_back(self, table_id: str, column: str, mark: int, earlier: int) -> None:
        """Move the mark back from `mark` to `earlier`; do nothing if it is no longer `mark`."""
        is_column = _is_column(table_id, column) & (identities.c.mark == mark)
        change = sa.update(identities).where(is_column).values(mark=earlier)
        self._database.write_relaxed(lambda connection: connection.execute(change))


def _is_column(table_id: str, column: str) -> sa.ColumnElement[bool]:
    return (identities.c.table_id == table_id) & (identities.c.column_digest == column)


def _mark(is_column: sa.ColumnElement[bool]) -> sa.Select[int]:
    return sa.select(identities.c.mark).where(is_column).with_for_update()
