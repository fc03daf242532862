"""Transactions on a log in memory, and looking at what they committed."""

from __future__ import annotations

import json

from tests.commit.log_of import LogOf, add
from txlake.commit.rebase import Committed
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import Level
from txlake.protocol.actions import Action, CommitInfo, Protocol, decode_actions
from txlake.protocol.file_names import commit_path

FULL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=(
        "appendOnly",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
    ),
)


def begin(table: LogOf, level: Level | None = None) -> TableTransaction:
    log = table.open()
    return TableTransaction(log, log.latest() if log.exists() else None, level)


def append(table: LogOf, *paths: str, **more: object) -> Committed:
    transaction = begin(table)
    transaction.stage([add(path, **more) for path in paths], operation="WRITE")  # type: ignore[arg-type]
    return transaction.commit()


def actions_at(table: LogOf, version: int) -> list[Action]:
    path = commit_path(version)
    return decode_actions(table.store.files[path][0], file=path)


def info_at(table: LogOf, version: int) -> dict[str, object]:
    first = actions_at(table, version)[0]
    assert isinstance(first, CommitInfo)
    return first.values


def lines_at(table: LogOf, version: int) -> list[str]:
    """The names of the actions of a version, in order."""
    lines = table.store.files[commit_path(version)][0].splitlines()
    return [next(iter(json.loads(line))) for line in lines]
