"""Could the committed transactions have run one by one? Asked of SQLite, in every order."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import permutations

from tests.hermitage.scripts import ROWS, Row, Script, Seen

Reads = tuple[tuple[Row, ...], ...]


@dataclass(frozen=True, slots=True)
class Names:
    """What a script's tables are called."""

    one: str
    two: str
    both: str

    def sql(self, text: str) -> str:
        return text.format(one=self.one, two=self.two, both=self.both)


def names(one: str, two: str) -> Names:
    """Those of one table (both names the same) or of two."""
    every = f"(SELECT * FROM {one} UNION ALL SELECT * FROM {two})"
    return Names(one, two, one if one == two else every)


@contextmanager
def sqlite_tables(tables: int) -> Iterator[tuple[sqlite3.Connection, Names]]:
    """A database of its own with the scripts' rows, in one table or in two."""
    named = names("one", "two" if tables == 2 else "one")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for table, row in zip((named.one, named.two), ROWS, strict=True):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT, value INT)")
            database.execute(f"INSERT INTO {table} VALUES (?, ?)", row)
        yield database, named


def is_serial(script: Script, tables: int, seen: Seen, *, reads: bool = True) -> bool:
    """Whether some order of the committed ones leaves the same rows, and shows them the same reads.

    Without `reads` SELECTs don't count: their transactions may have seen anything.
    """
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for session, sql in script.lines(tables):
        if session in seen.committed and sql not in {"COMMIT", "ROLLBACK"}:
            steps[session].append(sql)
    for order in permutations(sorted(steps)):
        shown, final = _run([(session, steps[session]) for session in order], tables)
        same = all(seen.reads.get(session, ()) == shown[session] for session in order)
        if final == seen.final and (same or not reads):
            return True
    return not steps and seen.final == ROWS


def _run(
    transactions: Sequence[tuple[str, list[str]]], tables: int
) -> tuple[dict[str, Reads], tuple[Row, ...]]:
    shown = {}
    with sqlite_tables(tables) as (database, named):
        for session, texts in transactions:
            answers = []
            for text in texts:
                rows = database.execute(named.sql(text)).fetchall()
                if text.startswith("SELECT"):
                    answers.append(tuple(sorted(rows)))
            shown[session] = tuple(answers)
        final = database.execute(f"SELECT * FROM {named.both} ORDER BY id, value").fetchall()
    return shown, tuple(final)
