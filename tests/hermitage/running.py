"""Runs a script in real SQL sessions of a lake, and says how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from itertools import count

import txlake
from tests.hermitage.scripts import ROWS, Row, Script, Seen
from tests.hermitage.serial import Names, names
from txlake.errors import Conflict, InvalidRequest

_numbers = count()


class Level(Enum):
    """The levels, each with the statement that a session sets it with."""

    SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT"
    WRITE_SERIALIZABLE = ""  # what holds when nobody sets any
    SERIALIZABLE = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"


class Place(Enum):
    """Where rows 1 and 2 are: (tables, whether the lake's catalog holds them)."""

    PATH = (1, False)
    CATALOG = (1, True)
    TWO_CATALOG = (2, True)
    TWO_PATH = (2, False)

    @property
    def tables(self) -> int:
        return self.value[0]

    @property
    def in_catalog(self) -> bool:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended."""

    seen: Seen
    conflicts: tuple[tuple[str, str], ...]
    """(session, error) of those that had to give way, in order."""
    refused: tuple[str, str] | None
    """(session, error) of a statement that isn't done at all; the script ends there."""


class Tables:
    """Makes tables for the scripts; their places begin with `folder`, a path or a URL."""

    def __init__(self, lake: txlake.Lake, folder: str) -> None:
        self._lake = lake
        self._folder = folder

    def make(self, place: Place) -> Names:
        """New tables for one script."""
        made = [
            self._table(rows, place) for rows in ((ROWS,), (ROWS[:1], ROWS[1:]))[place.tables - 1]
        ]
        return names(made[0], made[-1])

    def _table(self, rows: Sequence[Row], place: Place) -> str:
        new = f"t{next(_numbers)}"
        name = new if place.in_catalog else f"delta.`{self._folder}/{new}`"
        values = ", ".join(str(row) for row in rows)
        self._lake.sql(
            f"CREATE TABLE {name} (id INT, value INT); INSERT INTO {name} VALUES {values}"
        )
        return name


def run(script: Script, level: Level, place: Place, lake: txlake.Lake, tables: Tables) -> Ended:
    """Run the script's steps, one after the other, in sessions at this level."""
    named = tables.make(place)
    steps = script.lines(place.tables)
    reads: defaultdict[str, list[tuple[Row, ...]]] = defaultdict(list)
    conflicts: list[tuple[str, str]] = []
    ended: dict[str, bool] = {}
    refused: tuple[str, str] | None = None
    with ExitStack() as stack:
        sessions = {}
        for name in sorted({name for name, _ in steps}):
            sessions[name] = stack.enter_context(lake.session())
            sessions[name].sql(f"{level.value}; BEGIN" if level.value else "BEGIN")
        for name, text in steps:
            if name in ended:
                continue
            try:
                answer = sessions[name].sql(named.sql(text))
            except Conflict as error:
                conflicts.append((name, type(error).__name__))
                ended[name] = False
            except InvalidRequest as error:
                refused = (name, type(error).__name__)
                break
            else:
                if text.startswith("SELECT"):
                    reads[name].append(tuple(sorted((row[0], row[1]) for row in answer.collect())))
                elif text in {"COMMIT", "ROLLBACK"}:
                    ended[name] = text == "COMMIT"
    final = sorted((row[0], row[1]) for row in lake.sql(f"SELECT * FROM {named.both}").collect())
    return Ended(
        Seen(
            {name: tuple(rows) for name, rows in reads.items()},
            frozenset(name for name, committed in ended.items() if committed),
            tuple(final),
        ),
        tuple(conflicts),
        refused,
    )


def cell(script: Script, ended: Ended) -> str:
    """In a word or two: prevented by what, or allowed."""
    if ended.refused is not None:
        return "refused"
    if script.occurred(ended.seen):
        return "allowed"
    if ended.conflicts:
        return ", ".join(f"{name}: {error}" for name, error in ended.conflicts)
    return "snapshot"
