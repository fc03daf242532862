"""Lakes for the recorded programs: with Spark, and with rows in Python instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import txlake
from tests.judge.programs import COLUMNS, FIRST_ROWS, Client, Table
from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.conflict.levels import parse_level
from txlake.session.membership.opening import open_lake
from txlake.session.transaction import Transaction
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System


def txlake_level(level: str) -> str:
    """Return txlake's name of a level that the judge names."""
    return level.replace("-", "_")


class SparkClient:
    """A session of a lake on Spark."""

    def __init__(self, session: txlake.LakeSession) -> None:
        self.session = session

    def begin(self, level: str) -> txlake.Transaction:
        return self.session.begin(isolation=txlake_level(level))

    def rows(self, transaction: txlake.Transaction | None, sql: str) -> list[Mapping[str, Any]]:
        rows = (transaction or self.session).sql(sql).collect()
        return [row.asDict() for row in rows]


class RowClient:
    """A session on rows in Python."""

    def __init__(self, session: RowSession) -> None:
        self.session = session

    def begin(self, level: str) -> Transaction:
        return self.session.begin(level=parse_level(txlake_level(level)))

    def rows(self, transaction: Transaction | None, sql: str) -> list[dict[str, object]]:
        if transaction is None:
            return self.session.rows(sql)
        return self.session.within(transaction, sql)


def row_engine(
    warehouse: str,
    catalog: str,
    *,
    options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    spark_settings: Mapping[str, str] | None = None,
) -> RowEngine:
    """Return an engine as `txlake.connect` makes it, without Spark."""
    system, settings = System(), settings or Settings()
    return RowEngine(
        system=system,
        settings=settings,
        warehouse=open_store(warehouse, dict(options or {})),
        catalog=Catalog(catalog, system, lease_ms=settings.lease_ms, storage_options=options),
        storage_options=dict(options or {}),
        spark_settings=spark_settings or {},
    )


@contextmanager
def row_lake(
    warehouse: str,
    catalog: str,
    level: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Iterator[RowSession]:
    """Open a lake as `txlake.connect` does, and yield a session without Spark."""
    engine = row_engine(warehouse, catalog, options=options)
    session = RowSession(engine, level=None if level is None else parse_level(txlake_level(level)))
    open_lake(session)
    try:
        yield session
    finally:
        session.close()
        engine.close()


def create_tables(
    client: Client, warehouse: str, names: Sequence[str], *, by_place: bool
) -> list[Table]:
    """Create tables of lists; `by_place`: as path tables."""
    tables = []
    for name in names:
        sql = f"delta.`{warehouse}/places/{name}`" if by_place else name
        client.rows(None, f"CREATE TABLE {sql} {COLUMNS}")
        client.rows(None, f"INSERT INTO {sql} {FIRST_ROWS}")
        tables.append(Table(name, sql))
    return tables


def table_folders(warehouse: str, tables: Sequence[Table]) -> dict[str, str]:
    """Return the folders of the tables by their names."""
    by_place = {table.name: table.sql.startswith("delta.") for table in tables}
    return {
        name: f"{warehouse}/places/{name}" if is_by_place else f"{warehouse}/{name}"
        for name, is_by_place in by_place.items()
    }
