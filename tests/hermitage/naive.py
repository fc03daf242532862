"""Two engines that isolate too little, on SQLite: what the scripts must be able to show."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

from tests.hermitage.scripts import Row, Script, Seen
from tests.hermitage.serial import Names, sqlite_tables

_Stored = set[tuple[str, int, int, int]]
"""(table, rowid, id, value)."""


def without_isolation(script: Script, tables: int) -> Seen:
    """Every statement is done at once, in the one copy that there is, and stays."""
    reads: defaultdict[str, list[tuple[Row, ...]]] = defaultdict(list)
    committed = set()
    with sqlite_tables(tables) as (database, named):
        for session, text in script.lines(tables):
            _step(database, named, session, text, reads)
            if text == "COMMIT":
                committed.add(session)
        return _seen(database, named, reads, committed)


def without_checks(script: Script, tables: int) -> Seen:
    """Every transaction has a snapshot of its own, and what it changed goes over the rest."""
    reads: defaultdict[str, list[tuple[Row, ...]]] = defaultdict(list)
    committed = set()
    copies: dict[str, tuple[sqlite3.Connection, _Stored]] = {}
    with sqlite_tables(tables) as (database, named):
        for session, text in script.lines(tables):
            if session not in copies:
                copy = sqlite3.connect(":memory:")
                database.backup(copy)
                copies[session] = copy, _stored(copy, named)
            copy, before = copies[session]
            _step(copy, named, session, text, reads)
            if text == "COMMIT":
                _put(database, before, _stored(copy, named))
                committed.add(session)
        for copy, _ in copies.values():
            copy.close()
        return _seen(database, named, reads, committed)


def _step(
    database: sqlite3.Connection,
    named: Names,
    session: str,
    text: str,
    reads: defaultdict[str, list[tuple[Row, ...]]],
) -> None:
    if text in {"COMMIT", "ROLLBACK"}:
        return
    rows = database.execute(named.sql(text)).fetchall()
    if text.startswith("SELECT"):
        reads[session].append(tuple(sorted(rows)))


def _stored(database: sqlite3.Connection, named: Names) -> _Stored:
    return {
        (table, *row)
        for table in {named.one, named.two}
        for row in database.execute(f"SELECT rowid, id, value FROM {table}")
    }


def _put(database: sqlite3.Connection, before: _Stored, after: _Stored) -> None:
    for table, *row in before - after:
        database.execute(f"DELETE FROM {table} WHERE rowid = ? AND id = ? AND value = ?", row)
    for table, _, *row in after - before:
        database.execute(f"INSERT INTO {table} VALUES (?, ?)", row)


def _seen(
    database: sqlite3.Connection,
    named: Names,
    reads: defaultdict[str, list[tuple[Row, ...]]],
    committed: set[str],
) -> Seen:
    final = database.execute(f"SELECT * FROM {named.both} ORDER BY id, value").fetchall()
    shown = {session: tuple(rows) for session, rows in reads.items()}
    return Seen(shown, frozenset(committed), tuple(final))
