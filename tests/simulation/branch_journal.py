"""What a run's catalog contained of branches: their commits, and how each of them ended.

The catalog deletes a branch's rows with the branch, so they are recorded after each of its
transactions. Reads the database without the engine's code.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from txlake.catalog.replicated.entries import decode
from txlake.catalog.replicated.replica import Position, apply_entry, connect

_COMMITS = """SELECT table_id, version, sequence, transaction_id, operation, content, staged
FROM txlake_commits"""
_TABLES = "SELECT id, branch, origin_id FROM txlake_tables"
_BRANCHES = "SELECT id, number, name, parent, fork_sequence, is_tag FROM txlake_branches"
_SEQUENCE = "SELECT value FROM txlake_counters WHERE name = 'sequence'"
_OF_BRANCHES = "SELECT name FROM sqlite_master WHERE name = 'txlake_branches'"


class Ending(Enum):
    """How a branch ended, as the catalog shows it."""

    OPEN = "open"
    DROPPED = "dropped"
    PUBLISHED = "published"
    REBASED = "rebased"


@dataclass(slots=True)
class LedgerCommit:
    """A ratified version of a table. `content`, `staged`: its bytes, or the file with them."""

    sequence: int
    transaction: str
    operation: str | None
    content: bytes | None
    staged: str | None


@dataclass(slots=True)
class Line:
    """A branch, or a tag.

    Attributes:
        parent: the number of the branch that it was made from, 0 for main.
        begin: the instant that it began at.
        ended_within: the instants that the catalog's transaction made that ended it, as a range.
        successor: of a rebased branch, the id of the one that took its place.
    """

    id: str
    number: int
    name: str
    parent: int
    begin: int
    is_tag: bool
    ending: Ending = Ending.OPEN
    ended_within: range = range(0)
    successor: str = ""


@dataclass(slots=True)
class BranchJournal:
    """The branches of a run, by id, and all that was ratified.

    Attributes:
        commits: by table id and version.
        tables: by id, the number of the table's branch, and the table that it was made from.
    """

    lines: dict[str, Line] = field(default_factory=dict)
    commits: dict[tuple[str, int], LedgerCommit] = field(default_factory=dict)
    tables: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    _sequence: int = 0

    def record(self, database: sqlite3.Connection) -> None:
        """Record what the catalog contains after a transaction."""
        for table_id, version, *rest in database.execute(_COMMITS):
            known = self.commits.setdefault((table_id, version), LedgerCommit(*rest))
            known.content = known.content or rest[3]
        for table_id, number, origin in database.execute(_TABLES):
            self.tables.setdefault(table_id, (number, origin))
        there = {row[0]: row for row in database.execute(_BRANCHES)}
        before, self._sequence = self._sequence, database.execute(_SEQUENCE).fetchone()[0]
        for line in self.lines.values():
            if line.ending is Ending.OPEN and line.id not in there:
                line.ended_within = range(before + 1, self._sequence + 1)
                line.ending = Ending.PUBLISHED if line.ended_within else Ending.DROPPED
                for row in there.values():
                    if row[2] == line.name and line.ended_within:
                        line.ending, line.successor = Ending.REBASED, row[0]
        for row in there.values():
            line = self.lines.setdefault(row[0], Line(*row))
            line.name = row[2]  # a successor gets the name of the branch that it replaces


def journal_of_log(entries: Mapping[str, bytes]) -> BranchJournal:
    """Return the journal of a catalog in a store, by its log's entries under their keys."""
    journal, database = BranchJournal(), connect(":memory:")
    for number, key in enumerate(sorted(entries), start=1):
        entry = decode(entries[key], key)
        apply_entry(database, entry, Position(number, entry.id, entry.time_ms))
        if database.execute(_OF_BRANCHES).fetchone() is not None:
            journal.record(database)
    database.close()
    return journal
