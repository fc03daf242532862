"""The journal of a process: its transactions and the outcomes that it was told, synced to disk.

Owns the records and their file. A process may be killed at any moment: nobody was told anything of
a transaction without a reply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["committed", "failed", "unknown"]

# `add` a row of this key and number, add to the number of a `by` key, `take` the key's row away.
Effect = tuple[Literal["add", "by", "take"], str, int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction before its COMMIT; `effects` by table."""

    id: str
    effects: dict[str, list[Effect]]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a transaction, or of a statement that `id` names."""

    id: str
    outcome: Outcome
    error: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Anything else; `kind` is opened, recovered, dropped, sum or broken."""

    kind: str
    text: str = ""
    number: int = 0


Record = Attempt | Reply | Note
_RECORD_TYPES: dict[str, type[Attempt] | type[Reply] | type[Note]] = {
    kind.__name__: kind for kind in (Attempt, Reply, Note)
}


class Journal:
    """A file of records, to which one process appends."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, record: Record) -> None:
        """Append a record; it is on disk when this returns."""
        line = json.dumps([type(record).__name__, asdict(record)]) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


@dataclass(slots=True)
class Journals:
    """The journals of all processes of a round."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes of transactions that reached their COMMIT; others have no entry."""
        return {one.id: one.outcome for one in self.replies if one.id in self.attempts}

    @property
    def dropped(self) -> set[str]:
        """The tables that a process was about to drop."""
        return {one.text for one in self.notes if one.kind == "dropped"}


def read(folder: Path) -> Journals:
    """Return the journals of all processes."""
    journals = Journals()
    for path in sorted(folder.glob("*.jsonl")):
        for record in _records(path):
            match record:
                case Attempt():
                    journals.attempts[record.id] = record
                case Reply():
                    journals.replies.append(record)
                case Note():
                    journals.notes.append(record)
    return journals


def _records(path: Path) -> Iterator[Record]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # an incomplete line was cut off by a kill
            name, values = json.loads(line)
            yield _RECORD_TYPES[name](**values)
