"""What the lake's catalog contained over a run, from one restored or new catalog to the next.

Owns which transactions were ever ratified, and which of them may be lost: those whose commits were
not in the logs when their catalog was replaced. Reads the database and the store without the
engine's code.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.stores import Storage

TableVersion: TypeAlias = tuple[str, int]
"""A table's name and the number of one of its versions."""

OTHER_ENGINE = "another"
"""The `engineInfo` of commits that another engine wrote without the catalog."""

_COMMITS = "SELECT table_id, version, sequence, transaction_id, operation FROM txlake_commits"
_RATIFIED_WITHOUT_COMMIT = "SELECT transaction_id, sequence FROM txlake_bare_ratifications"
_EPOCH = "SELECT value FROM txlake_facts WHERE name = 'epoch'"


@dataclass(slots=True)
class Epoch:
    """A part of the run in which the catalog only grew, so that its instants have one order.

    Attributes:
        number: the catalog's own number of the epoch. A restored backup begins a new part with
            the number of the backup.
        commits: the newest instant and transaction of each table version.
        first_ratified: the transactions that were ratified first in this part, with their instants.
    """

    number: str
    commits: dict[TableVersion, tuple[int, str]] = field(default_factory=dict)
    first_ratified: dict[str, int] = field(default_factory=dict)


class CatalogHistory:
    """The epochs of a run's catalog. `roots`: by table name, its id in the catalog and its key.

    Attributes:
        transactions_of: by table version, every transaction that was ratified for it in any epoch.
        may_be_lost: the transactions that only a replaced catalog knew.
    """

    def __init__(self, storage: Storage, roots: Mapping[str, tuple[str, str]]) -> None:
        self._storage = storage
        self._roots = dict(roots)
        self._names = {table_id: name for name, (table_id, _) in roots.items()}
        self._ratified: set[str] = set()
        self.epochs: list[Epoch] = []
        self.transactions_of: dict[TableVersion, set[str]] = {}
        self.may_be_lost: set[str] = set()

    def record(self, database: sqlite3.Connection) -> None:
        """Record what the catalog contains after a transaction that may have ratified something."""
        number = _epoch_number(database)
        if not self.epochs or self.epochs[-1].number != number:
            self.epochs.append(Epoch(number))
        epoch = self.epochs[-1]
        epoch.commits = self._commits(database)
        ratified = {transaction: sequence for sequence, transaction in epoch.commits.values()}
        ratified.update(database.execute(_RATIFIED_WITHOUT_COMMIT))
        for transaction in ratified.keys() - self._ratified:
            epoch.first_ratified[transaction] = ratified[transaction]
        self._ratified |= ratified.keys()
        for table_version, (_, transaction) in epoch.commits.items():
            self.transactions_of.setdefault(table_version, set()).add(transaction)

    def record_replacement(self, database: sqlite3.Connection) -> None:
        """Begin an epoch: the catalog is replaced by a database with older or no content."""
        commits = self._commits(database)
        for table_version, (_, transaction) in self.epochs[-1].commits.items():
            if table_version not in commits and self._published(table_version) != transaction:
                self.may_be_lost.add(transaction)
        self.epochs.append(Epoch(_epoch_number(database)))
        self.record(database)

    @property
    def index(self) -> int:
        """The index of the current epoch in `epochs`."""
        return len(self.epochs) - 1

    def transaction_of(self, table_version: TableVersion, epoch_index: int) -> str | None:
        """Return the transaction that made a version; None if that epoch isn't the current one."""
        commit = self.epochs[-1].commits.get(table_version) if epoch_index == self.index else None
        return None if commit is None else commit[1]

    def _commits(self, database: sqlite3.Connection) -> dict[TableVersion, tuple[int, str]]:
        commits = {}
        for table_id, version, sequence, transaction, operation in database.execute(_COMMITS):
            name = self._names.get(table_id)
            if name is None:
                continue
            if operation is None:  # attached or recovered from the log, where another one made it
                data = self._storage.last_written.get(self._key(name, version), b"")
                transaction = _transaction_in(data) or transaction
            commits[name, version] = sequence, transaction
        return commits

    def _key(self, name: str, version: int) -> str:
        return f"{self._roots[name][1]}/_delta_log/{version:020}.json"

    def _published(self, table_version: TableVersion) -> str | None:
        """Return the transaction whose commit is durably in the log as a version, if any."""
        name, version = table_version
        key = self._key(name, version)
        item = self._storage.items.get(key)
        if item is not None:
            return _transaction_in(item.data) if item.is_durable else None
        # Log clean-up removed it, if there are later versions.
        data = self._storage.last_written.get(key)
        return (
            _transaction_in(data) if data is not None and self._has_later(name, version) else None
        )

    def _has_later(self, name: str, version: int) -> bool:
        folder = f"{self._roots[name][1]}/_delta_log/0"
        later = self._storage.keys_in(folder, self._key(name, version))
        return any(key.endswith(".json") for key in later)


def _epoch_number(database: sqlite3.Connection) -> str:
    return next((row[0] for row in database.execute(_EPOCH)), "1")


def _transaction_in(data: bytes) -> str | None:
    """Return the transaction id in a commit's bytes; None if there is none."""
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return next((info.get("userMetadata") or info.get("txnId") for info in infos), None)
