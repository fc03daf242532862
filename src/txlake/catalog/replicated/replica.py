"""A process's replica of the catalog's database, a SQLite file: record changes, apply entries.

Recorded are the rows that a transaction changed, as they are at its end. TEMP triggers note the
primary keys, and a rollback undoes the notes too, since TEMP tables belong to the transaction.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from txlake.catalog.replicated.entries import LogEntry, TableChanges

_POSITION = "txlake_replica"
_TOUCHED = "txlake_touched"


@dataclass(frozen=True, slots=True)
class Position:
    """The place in the log that a replica has reached.

    Attributes:
        number: the newest entry that was applied; 0 before the first.
        entry_id: the id of that entry.
        time_ms: the time of that entry.
    """

    number: int = 0
    entry_id: bytes = b""
    time_ms: int = 0


def connect(path: str) -> sqlite3.Connection:
    """Open a replica, whose transactions the caller begins and ends. Any thread may use it."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")  # it is a copy
    return connection


def read_position(connection: sqlite3.Connection) -> Position:
    """Return the position of a replica."""
    try:
        row = connection.execute(f"SELECT number, entry_id, time_ms FROM {_POSITION}").fetchone()
    except sqlite3.OperationalError:  # the file is new
        return Position()
    return Position(*row)


def read_revision(connection: sqlite3.Connection) -> str | None:
    """Return the revision of the catalog's schema; None if there is no schema."""
    try:
        row = connection.execute("SELECT version_num FROM txlake_revision").fetchone()
    except sqlite3.OperationalError:
        return None
    return None if row is None else str(row[0])


def write_position(connection: sqlite3.Connection, position: Position) -> None:
    """Set the position, in the caller's transaction."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_POSITION} (one INTEGER PRIMARY KEY CHECK (one = 1), "
        "number INTEGER NOT NULL, entry_id BLOB NOT NULL, time_ms INTEGER NOT NULL)"
    )
    connection.execute(
        f"INSERT OR REPLACE INTO {_POSITION} VALUES (1, ?, ?, ?)",
        (position.number, position.entry_id, position.time_ms),
    )


def clear(connection: sqlite3.Connection) -> None:
    """Make a replica empty."""
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.backup(connection)


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA main.schema_version").fetchone()[0])


def _primary_keys(connection: sqlite3.Connection) -> Mapping[str, tuple[list[str], list[str]]]:
    """Return the columns and the primary key of each relation that has one, by its name."""
    names = connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        f"AND name <> '{_POSITION}' ORDER BY name"
    ).fetchall()
    relations: dict[str, tuple[list[str], list[str]]] = {}
    for (name,) in names:
        columns = connection.execute(f'PRAGMA main.table_info("{name}")').fetchall()
        key = [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]
        if key:  # the others change with the schema alone
            relations[name] = ([column[1] for column in columns], key)
    return relations


def _where(key: list[str]) -> str:
    return " AND ".join(f'"{column}" = ?' for column in key)


class ChangeRecorder:
    """Records which rows the transactions of one connection change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = -1
        self._relations: Mapping[str, tuple[list[str], list[str]]] = {}

    def prepare(self) -> None:
        """Forget earlier changes. Call it before each transaction, outside of it."""
        version = _schema_version(self._connection)
        if version != self._version:
            self._make_triggers()
            self._version = version
        self._connection.execute(f"DELETE FROM temp.{_TOUCHED}")

    def _make_triggers(self) -> None:
        run = self._connection.execute
        self._relations = _primary_keys(self._connection)
        width = max((len(key) for _, key in self._relations.values()), default=1)
        old = run("SELECT name FROM temp.sqlite_schema WHERE type = 'trigger'").fetchall()
        for (name,) in old:
            run(f'DROP TRIGGER IF EXISTS temp."{name}"')  # gone with its table
        run(f"DROP TABLE IF EXISTS temp.{_TOUCHED}")
        keys = ", ".join(f"k{place}" for place in range(width))
        run(f"CREATE TEMP TABLE {_TOUCHED} (relation, {keys})")
        for name, (_, key) in self._relations.items():
            for event, sides in (
                ("INSERT", ("NEW",)),
                ("UPDATE", ("OLD", "NEW")),
                ("DELETE", ("OLD",)),
            ):
                notes = "".join(
                    f"INSERT INTO {_TOUCHED} VALUES ('{name}', "
                    + ", ".join(
                        [f'{side}."{column}"' for column in key] + ["NULL"] * (width - len(key))
                    )
                    + "); "
                    for side in sides
                )
                run(
                    f'CREATE TEMP TRIGGER "on_{event}_{name}" AFTER {event} ON main."{name}" '
                    f"BEGIN {notes}END"
                )

    def has_new_schema(self) -> bool:
        """Return whether the open transaction changed the schema."""
        return _schema_version(self._connection) != self._version

    def changes(self) -> list[TableChanges]:
        """Return what the open transaction changed, by relation."""
        run = self._connection.execute
        keys_of: dict[str, list[list[object]]] = {}
        for relation, *keys in run(
            f"SELECT DISTINCT * FROM temp.{_TOUCHED} ORDER BY 1, 2"
        ).fetchall():
            keys_of.setdefault(relation, []).append(keys)
        changes: list[TableChanges] = []
        for relation, touched in keys_of.items():
            _, key = self._relations[relation]
            removed, rows = [], []
            for keys in touched:
                own = keys[: len(key)]
                row = run(f'SELECT * FROM main."{relation}" WHERE {_where(key)}', own).fetchone()
                if row is None:
                    removed.append(own)
                else:
                    rows.append(list(row))
            changes.append(TableChanges(relation, removed, rows))
        return changes


def apply_entry(connection: sqlite3.Connection, entry: LogEntry, position: Position) -> None:
    """Apply an entry to a replica, in a transaction of its own, and set the position."""
    if entry.database:
        load_database(connection, entry.database)
    connection.execute("BEGIN IMMEDIATE")
    try:
        _apply_changes(connection, entry.changes)
        write_position(connection, position)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _apply_changes(connection: sqlite3.Connection, changes: list[TableChanges]) -> None:
    relations = _primary_keys(connection) if changes else {}
    for change in changes:
        columns, key = relations[change.relation]
        places = [columns.index(column) for column in key]
        keys = [*change.removed, *([row[place] for place in places] for row in change.rows)]
        connection.executemany(f'DELETE FROM "{change.relation}" WHERE {_where(key)}', keys)
    for change in changes:
        if change.rows:
            values = ", ".join("?" * len(change.rows[0]))
            connection.executemany(
                f'INSERT INTO "{change.relation}" VALUES ({values})', change.rows
            )


def size_bytes(connection: sqlite3.Connection) -> int:
    """Return the size of the database."""
    [[pages]] = connection.execute("PRAGMA page_count").fetchall()
    [[bytes_of_page]] = connection.execute("PRAGMA page_size").fetchall()
    return int(pages) * int(bytes_of_page)


def database_bytes(connection: sqlite3.Connection) -> bytes:
    """Return the database as its connection sees it, the open transaction's changes included."""
    content = bytes(connection.serialize())
    # A database in memory can't have a log ahead of it, which bytes 18 and 19 ask for.
    return content[:18] + b"\x01\x01" + content[20:]


def load_database(connection: sqlite3.Connection, content: bytes) -> None:
    """Replace a replica's content by that of `database_bytes`."""
    with _temporary_file(content) as path, contextlib.closing(sqlite3.connect(path)) as source:
        source.backup(connection)


@contextlib.contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    handle, path = tempfile.mkstemp(prefix="txlake-catalog-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
