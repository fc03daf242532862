"""What a process asked for and what it was told, on the disk before it goes on.

Owns the records and their file. A process may be killed at any moment: a transaction without an
answer is one of which nobody was told anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Told = Literal["committed", "failed", "unknown"]

# `add` a row of this key and number, add to the number of a `by` key, `take` the key's row away.
Effect = tuple[Literal["add", "by", "take"], str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A transaction as it was before its COMMIT; `effects` by table."""

    id: str
    effects: dict[str, list[Effect]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was told of a transaction, or of a statement that `id` names."""

    id: str
    told: Told
    error: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Anything else: `kind` is opened, recovered, dropped, sum or broken."""

    kind: str
    text: str = ""
    number: int = 0


Record = Asked | Answer | Note
_KINDS: dict[str, type[Asked] | type[Answer] | type[Note]] = {
    kind.__name__: kind for kind in (Asked, Answer, Note)
}


class Journal:
    """A file of records, appended to by one process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, record: Record) -> None:
        """On the disk when it returns."""
        line = json.dumps([type(record).__name__, asdict(record)]) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


@dataclass(slots=True)
class Book:
    """The journals of all processes of a round."""

    asked: dict[str, Asked] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def told(self) -> dict[str, Told]:
        """Of transactions whose COMMIT was asked for; the others have no entry."""
        return {one.id: one.told for one in self.answers if one.id in self.asked}

    @property
    def dropped(self) -> set[str]:
        """The tables that somebody was about to drop."""
        return {one.text for one in self.notes if one.kind == "dropped"}


def read(folder: Path) -> Book:
    """What all processes wrote."""
    book = Book()
    for path in sorted(folder.glob("*.jsonl")):
        for record in _records(path):
            match record:
                case Asked():
                    book.asked[record.id] = record
                case Answer():
                    book.answers.append(record)
                case Note():
                    book.notes.append(record)
    return book


def _records(path: Path) -> Iterator[Record]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # else its process was killed within the write
            name, values = json.loads(line)
            yield _KINDS[name](**values)
