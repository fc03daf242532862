"""The command `maintain`: one round, a plan, or rounds until the process is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from txlake.catalog.maintenance_book import MaintenanceEntry
from txlake.cli.lakes import ConnectionSettings, open_existing_lake, quiet_spark
from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.lake.connecting import path_table_session
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.order import Budget
from txlake.maintenance.survey import Target
from txlake.protocol.file_names import LOG_FOLDER
from txlake.session.catalog_access import refuse_lost
from txlake.session.membership.opening import MARKER, read_marker
from txlake.session.session import Session
from txlake.session.views.lake_views import maintenance_rows
from txlake.session.views.results import Result, rows_result
from txlake.sql.statements import TablePath
from txlake.storage import open_store

_SHOWN = ("state", "table", "need", "action", "reason", "files", "size_in_bytes", "rows", "error")


def plan(connection: ConnectionSettings, budget: Budget) -> Result:
    """Return what is due in a lake or a path table, and why, in order. Nothing is written."""
    with _maintainer(connection, budget) as maintainer:
        return _shown(maintainer.plan())


def run_once(connection: ConnectionSettings, budget: Budget) -> Result:
    """Do one round, and return what it did."""
    with _maintainer(connection, budget) as maintainer:
        return _shown(maintainer.run())


def run_rounds(
    connection: ConnectionSettings,
    budget: Budget,
    every_ms: int,
    on_round: Callable[[Result], None],
) -> None:
    """Do a round each `every_ms`, until the process is stopped. `on_round` gets what it did."""
    with _maintainer(connection, budget) as maintainer:
        while True:
            begun = time.monotonic()
            on_round(_shown(maintainer.run()))
            time.sleep(max(0.0, begun + every_ms / 1000 - time.monotonic()))


def _shown(entries: Sequence[MaintenanceEntry]) -> Result:
    """Return works as they are listed: the columns of `txlake.maintenance` that say most."""
    found = rows_result(maintenance_rows(entries))
    columns = {column.name: place for place, column in enumerate(found.columns)}
    places = [columns[name] for name in _SHOWN]
    return replace(
        found,
        columns=tuple(found.columns[place] for place in places),
        rows=[tuple(row[place] for place in places) for row in found.rows],
    )


@contextmanager
def _maintainer(connection: ConnectionSettings, budget: Budget) -> Iterator[Maintainer]:
    """Open the lake, or the path table, at the connection's location.

    Raises InvalidRequest if there is neither.
    """
    location = connection.location
    assert location is not None, "the command requires one"
    if not location.startswith("uc+"):
        store = open_store(location, connection.storage_options)
        if read_marker(store) is None:
            if next(iter(store.list(LOG_FOLDER)), None) is None:
                raise InvalidRequest(
                    f"there is nothing to maintain at {store.url}, which has neither {MARKER} nor "
                    f"{LOG_FOLDER}; name a lake's folder or URL, or a Delta table's"
                )
            session = path_table_session(connection.storage_options, quiet_spark, handlers=HANDLERS)
            engine = session.engine
            try:
                yield Maintainer(
                    engine,
                    lambda: Session(engine, HANDLERS),
                    budget=budget,
                    tables=[Target(engine.at(location, TablePath(location)))],
                )
            finally:
                engine.close()
            return
    with open_existing_lake(connection) as (_, session):
        refuse_lost(session.engine)
        engine = session.engine.main
        yield Maintainer(engine, lambda: Session(engine, HANDLERS), budget=budget)
