"""A lake that is maintained, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.session.offline import Offline
from txlake.commands import HANDLERS
from txlake.log.snapshot import Snapshot
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.order import Budget
from txlake.session.engine import Handle
from txlake.session.session import Session
from txlake.sql.statements import TableName

FEW = "'txlake.maintenance.minSmallFiles' = '3', 'txlake.maintenance.minExpiredFiles' = '1'"


def maintainer_of(lake: Offline, **limits: int) -> Maintainer:
    """A maintainer of the lake's tables, within a budget."""
    budget = Budget(**limits)
    return Maintainer(lake.engine, lambda: Session(lake.engine, HANDLERS), budget=budget)


def handle_of(lake: Offline, name: str = "t") -> Handle:
    found = lake.engine.find(TableName((name,)), "default")
    assert found is not None
    return found


def newest(lake: Offline, name: str = "t") -> Snapshot:
    return handle_of(lake, name).log.latest()


def create(lake: Offline, name: str = "t", properties: str = FEW, inserts: int = 4) -> None:
    """A table of as many files as inserts."""
    lake.run(f"CREATE TABLE {name} (id INT) TBLPROPERTIES ({properties})")
    for number in range(inserts):
        lake.run(f"INSERT INTO {name} VALUES ({number})")


def view(lake: Offline) -> list[Mapping[str, Any]]:
    """The rows of `txlake.maintenance`."""
    rows: list[Mapping[str, Any]] = (
        lake.session.catalog_view("txlake.maintenance").table().to_pylist()
    )
    return rows


def states(lake: Offline) -> list[tuple[str | None, str, str]]:
    return [(row["table"], row["need"], row["state"]) for row in view(lake)]


def operations(lake: Offline, name: str = "t") -> list[str]:
    """The operations in a table's history, the oldest first."""
    return [str(row["operation"]) for row in reversed(handle_of(lake, name).log.history())]


def age_log(lake: Offline, days: int, name: str = "t") -> None:
    """Make a table's files and log older."""
    folder = Path(unquote(urlsplit(handle_of(lake, name).store.url).path))
    for path in folder.rglob("*"):
        if path.is_file():
            time_s = path.stat().st_mtime - days * 86_400
            os.utime(path, (time_s, time_s))
    lake.engine.forget_all()
