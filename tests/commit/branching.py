"""Branches of a table in memory: their stores, and what a log on one has."""

from __future__ import annotations

from collections.abc import Sequence

from tests.commit.log_of import Clock, LogOf, add
from txlake.commit.branch_store import BranchStore
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.actions import Action
from txlake.settings import Settings

FIRST, SECOND, THIRD = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")


def folder_of(branch_id: str) -> str:
    """The folder of a branch's log, as the RFC has it."""
    return f"_delta_log/_branches/{branch_id}/_delta_log"


def log_on(store: Store, clock: Clock, settings: Settings | None = None) -> TableLog:
    """A fresh log that knows nothing yet."""
    return TableLog(store, clock, settings or Settings(), name="t")


def branch_of(table: LogOf, base: int, branch_id: str = FIRST) -> BranchStore:
    """The store of a new branch of main."""
    return BranchStore(table.store, branch_id, base)


def commit_on(log: TableLog, actions: Sequence[Action]) -> int:
    """Commit the actions as a transaction does; the version."""
    transaction = TableTransaction(log, log.latest())
    transaction.stage(actions, operation="WRITE")
    return transaction.commit().version


def append_on(log: TableLog, *paths: str) -> int:
    """Append these files; the version."""
    return commit_on(log, [add(path) for path in paths])


def files(state: Snapshot) -> list[str]:
    """The paths of a version's data files."""
    return sorted(file.path for file in state.files.adds())


def numbered(count: int, *, configuration: dict[str, str] | None = None) -> LogOf:
    """A main table whose version n added `fn`, versions 0 to `count` - 1."""
    table = LogOf().create(add("f0"), configuration=configuration)
    for version in range(1, count):
        table.commit(version, add(f"f{version}"))
    return table
