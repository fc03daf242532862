"""A catalog copied, and put back: as a backup of its database is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from txlake.catalog.relations import metadata

Copy = Mapping[str, Sequence[Mapping[Any, Any]]]


def copied(url: str) -> Copy:
    """The rows of all relations as they are now, at one instant of PostgreSQL's."""
    engine = sa.create_engine(url, isolation_level="SERIALIZABLE")
    with engine.connect() as connection:
        rows = {
            table.name: [row._mapping for row in connection.execute(sa.select(table))]
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return rows


def put_back(url: str, copy: Copy) -> None:
    """Make the catalog hold just these rows, whoever has it open."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))
        for table in metadata.sorted_tables:
            if copy[table.name]:
                connection.execute(sa.insert(table), copy[table.name])
    engine.dispose()
