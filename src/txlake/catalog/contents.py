"""The content of a catalog, to be copied into another one when a lake's catalog is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.fact_rows import fact, remove_fact, set_fact
from txlake.catalog.fence import EPOCH_FACT
from txlake.catalog.recovering import MOVED_FACT, RECOVERING_FACT
from txlake.catalog.relations import conflicts, locks, metadata, sessions, tables, transactions
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest

_BATCH_ROWS = 1_000

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by the name of their relation."""


def _copied() -> list[sa.Table]:
    """Return the relations whose rows outlive the processes, those that others refer to first."""
    return [each for each in metadata.sorted_tables if each not in (sessions, transactions, locks)]


@shielded()
class Contents:
    """The content of one catalog, without sessions, open transactions and locks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> Rows:
        """Return all rows, of one state of the catalog. Conflicts have no ids, and are in order."""
        with self._database.reading() as connection:
            return {each.name: self._rows(connection, each) for each in _copied()}

    def replace(self, rows: Rows, epoch: int) -> None:
        """Replace the content of a catalog that never had a table by rows of another one.

        `epoch`: the epoch that begins with that. Raises InvalidRequest if there are tables.
        """

        def work(connection: Connection) -> None:
            if connection.execute(sa.select(tables.c.id).limit(1)).first() is not None:
                raise InvalidRequest(
                    f"catalog {self._database.display_url}: it has tables, and a catalog can only "
                    "be moved to an empty one; give another place"
                )
            for relation in reversed(_copied()):
                connection.execute(sa.delete(relation))
            for relation in _copied():
                of_relation = rows[relation.name]
                for first in range(0, len(of_relation), _BATCH_ROWS):
                    batch = list(of_relation[first : first + _BATCH_ROWS])
                    connection.execute(sa.insert(relation), batch)
            set_fact(connection, EPOCH_FACT, str(epoch))
            for name in (RECOVERING_FACT, MOVED_FACT):
                remove_fact(connection, name)

        self._database.write(work)

    def note_move(self, display_url: str) -> None:
        """Record that the lake's catalog is at another place now."""
        self._database.write(lambda connection: set_fact(connection, MOVED_FACT, display_url))

    def moved_to(self) -> str | None:
        """Return where the lake's catalog was moved to; None if it wasn't moved."""
        with self._database.reading() as connection:
            return fact(connection, MOVED_FACT)

    def _rows(self, connection: Connection, relation: sa.Table) -> Sequence[Mapping[str, Any]]:
        columns = [each for each in relation.c if each is not conflicts.c.id]
        query = sa.select(*columns).order_by(*relation.primary_key.columns)
        return [dict(row._mapping) for row in connection.execute(query)]
