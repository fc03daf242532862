"""Logs of tables whose data files needn't exist: opening and planning read nothing else.

A file stands in one of the table's days; its statistics say an interval of `id` of its own.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.delta_log import PLAIN, Action, LoggedFile, metadata, write_checkpoint, write_commit
from bench.sources import made_once

CHECKPOINT_VERSION = 10
_COMMITS = 200
_REMOVED_PER_COMMIT = 5
DAYS = 1000
_FIRST_DAY = datetime.date(2024, 1, 1)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "customer": pa.int64(),
        "amount": pa.float64(),
        "note": pa.string(),
        "day": pa.date32(),
    }
)


@dataclass(frozen=True, slots=True)
class LogData:
    """A log in `folder/_delta_log`, its newest version and its number of live files."""

    folder: Path
    version: int
    files: int
    days: int

    @property
    def day(self) -> str:
        """A day in the middle."""
        return day_text(self.days // 2)

    @property
    def files_of_day(self) -> int:
        """How many live files that day has."""
        return sum(1 for number in range(self.files) if number % self.days == self.days // 2)


def log_of_commits(folder: Path, files: int) -> LogData:
    """200 JSON commits, no checkpoint; each but the first removes five files of the one before."""
    commits = min(_COMMITS, files // 20)
    per_commit = files // commits

    def make(folder: Path) -> None:
        log = folder / "_delta_log"
        settings = metadata(SCHEMA, partitioned_by=["day"])
        first = [file.add() for file in logged_files(0, per_commit)]
        write_commit(log, 0, [PLAIN, settings, *first])
        passing = files
        before: list[Action] = []
        for version in range(1, commits):
            start = version * per_commit
            added = [file.add() for file in logged_files(start, start + per_commit)]
            short_lived = list(logged_files(passing, passing + _REMOVED_PER_COMMIT))
            passing += _REMOVED_PER_COMMIT
            write_commit(log, version, [*added, *(f.add() for f in short_lived), *before])
            before = [file.remove() for file in short_lived]
        write_commit(log, commits, before)

    made = made_once(folder / f"log-json-{files}", make)
    return LogData(made, commits, per_commit * commits, DAYS)


def log_with_checkpoint(folder: Path, files: int) -> LogData:
    """One classic checkpoint at version 10, whose own commit is all that is left before it."""

    def make(folder: Path) -> None:
        log = folder / "_delta_log"
        settings = metadata(SCHEMA, partitioned_by=["day"])
        write_checkpoint(log, CHECKPOINT_VERSION, settings, logged_files(0, files), files)
        newest = [file.add() for file in logged_files(files - 10, files)]
        write_commit(log, CHECKPOINT_VERSION, newest)

    made = made_once(folder / f"log-checkpoint-{files}", make)
    return LogData(made, CHECKPOINT_VERSION, files, DAYS)


def one_more(log: Path, version: int) -> None:
    """A commit that adds one file."""
    number = 1_000_000_000 + version
    write_commit(log, version, [file.add() for file in logged_files(number, number + 1)])


def logged_files(start: int, end: int) -> Iterator[LoggedFile]:
    """The files with these numbers."""
    for number in range(start, end):
        day = day_text(number % DAYS)
        name = uuid.UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128))
        stats = {
            "numRecords": 1000,
            "minValues": {"id": number * 1000, "customer": 17, "amount": 0.25, "note": "a note"},
            "maxValues": {
                "id": number * 1000 + 999,
                "customer": 99_983,
                "amount": 9_999.5,
                "note": "words",
            },
            "nullCount": {"id": 0, "customer": 0, "amount": 12, "note": 40},
        }
        yield LoggedFile(
            f"day={day}/part-{number % 1000:05}-{name}.c000.snappy.parquet",
            1_000_000 + number % 100_000,
            json.dumps(stats, separators=(",", ":")),
            {"day": day},
        )


def day_text(number: int) -> str:
    """A day, as partition values have it."""
    return (_FIRST_DAY + datetime.timedelta(days=number)).isoformat()
