"""What the lake's catalog said, from one restoration or recovery to the next.

Owns which transactions were ever ratified, and which of them may be lost: those whose commits were
not in the logs when their catalog went. Looks at the database and the store; knows no engine code.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.stores import Storage

Place: TypeAlias = tuple[str, int]
"""A version of a table: the table's name, and the version."""

OUTSIDER = "another"
"""What the commits of other writers call their engine."""

_COMMITS = "SELECT table_id, version, sequence, transaction_id, operation FROM txlake_commits"
_BARE = "SELECT transaction_id, sequence FROM txlake_bare_ratifications"
_EPOCH = "SELECT value FROM txlake_facts WHERE name = 'epoch'"


@dataclass(slots=True)
class Era:
    """A time in which the catalog only grew: instants in it have one order.

    Attributes:
        epoch: the catalog's.
        commits: by version of a table, its instant and its transaction, as they were last.
        new: the transactions that were first ratified in it.
    """

    epoch: str
    commits: dict[Place, tuple[int, str]] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)


class Chronicle:
    """The eras of a run's catalog. `roots`: by table, its id in the catalog and its key."""

    def __init__(self, storage: Storage, roots: Mapping[str, tuple[str, str]]) -> None:
        self._storage = storage
        self._roots = dict(roots)
        self._names = {table_id: name for name, (table_id, _) in roots.items()}
        self._seen: set[str] = set()
        self.eras: list[Era] = []
        self.makers: dict[Place, set[str]] = {}
        self.may_be_lost: set[str] = set()

    def note(self, database: sqlite3.Connection) -> None:
        """Looks at the catalog after a transaction that may have ratified something."""
        epoch = next((row[0] for row in database.execute(_EPOCH)), "1")
        if not self.eras or self.eras[-1].epoch != epoch:
            self.eras.append(Era(epoch))
        era = self.eras[-1]
        era.commits = self._commits(database)
        ratified = {transaction: sequence for sequence, transaction in era.commits.values()}
        ratified.update(database.execute(_BARE))
        for transaction in ratified.keys() - self._seen:
            era.new[transaction] = ratified[transaction]
        self._seen |= ratified.keys()
        for place, (_, transaction) in era.commits.items():
            self.makers.setdefault(place, set()).add(transaction)

    def replaced(self, database: sqlite3.Connection) -> None:
        """The catalog's content is this from now on, an older one's or that of an empty one."""
        there = self._commits(database)
        for place, (_, transaction) in self.eras[-1].commits.items():
            if place not in there and self._published(place) != transaction:
                self.may_be_lost.add(transaction)
        self.eras.append(Era(next((row[0] for row in database.execute(_EPOCH)), "1")))
        self.note(database)

    @property
    def era(self) -> int:
        """The number of the present one."""
        return len(self.eras) - 1

    def maker(self, place: Place, era: int) -> str | None:
        """Who made a version, as the catalog of an era has it; None when that is over."""
        found = self.eras[-1].commits.get(place) if era == self.era else None
        return None if found is None else found[1]

    def _commits(self, database: sqlite3.Connection) -> dict[Place, tuple[int, str]]:
        found = {}
        for table_id, version, sequence, transaction, operation in database.execute(_COMMITS):
            name = self._names.get(table_id)
            if name is None:
                continue
            if operation is None:  # a table that was taken in as it was: another one's commit
                data = self._storage.ever.get(self._key(name, version), b"")
                transaction = _maker(data) or transaction
            found[name, version] = sequence, transaction
        return found

    def _key(self, name: str, version: int) -> str:
        return f"{self._roots[name][1]}/_delta_log/{version:020}.json"

    def _published(self, place: Place) -> str | None:
        """Whose commit is in the log at a version, for good."""
        name, version = place
        key = self._key(name, version)
        item = self._storage.items.get(key)
        if item is None:
            data = self._storage.ever.get(key)  # it was cleaned up, when it isn't one of the newest
            return (
                None if data is None or not self._is_before_others(name, version) else _maker(data)
            )
        return _maker(item.data) if item.is_durable else None

    def _is_before_others(self, name: str, version: int) -> bool:
        folder = f"{self._roots[name][1]}/_delta_log/0"
        later = self._storage.below(folder, self._key(name, version))
        return any(key.endswith(".json") for key in later)


def _maker(data: bytes) -> str | None:
    """The transaction that a commit's bytes tell of."""
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return next((info.get("userMetadata") or info.get("txnId") for info in infos), None)
