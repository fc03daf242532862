"""The catalog's database as an operator sees it: copied, and restored from an older copy.

SQLite by its backup API and a rename over the path; PostgreSQL by pg_dump and pg_restore into a new
schema, or by its rows; the log in a store object by object.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tests.catalog import backups
from tests.postgresql import PostgresServer
from txlake.catalog.relations import commits, tables
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.ports import Store
from txlake.storage import open_store
from txlake.system import System

Version = tuple[str, int]
"""A table's location and one of its versions."""
Ratified = dict[str, list[Version]]
"""The versions that each transaction create, as a catalog has them."""
RestoreBackup = Callable[[], None]


class Catalog(Protocol):
    """A catalog that can be copied and restored."""

    @property
    def url(self) -> str:
        """The URL that txlake is given."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options that txlake is given."""
        ...

    def copy(self) -> RestoreBackup:
        """Copy the catalog while others write; return a function that restores the copy."""
        ...

    def ratified(self) -> Ratified:
        """Return what the catalog, and those that were replaced, have ratified."""
        ...


def ratified_in(url: str) -> Ratified:
    engine = sa.create_engine(url)
    query = sa.select(commits.c.transaction_id, tables.c.location, commits.c.version).join_from(
        commits, tables, tables.c.id == commits.c.table_id
    )
    found: Ratified = defaultdict(list)
    with engine.connect() as connection:
        for row in connection.execute(query):
            found[row.transaction_id].append((row.location, row.version))
    engine.dispose()
    return dict(found)


@dataclass(slots=True)
class SqliteCatalog:
    """A SQLite file. Replaced files keep another name, for reading."""

    path: Path
    options: Mapping[str, str] = field(default_factory=dict)
    _count: int = 0

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def copy(self) -> RestoreBackup:
        self._count += 1
        copy = self.path.with_name(f"copy-{self._count}.db")
        source, target = sqlite3.connect(self.path), sqlite3.connect(copy)
        with source, target:
            source.backup(target)
        source.close()
        target.close()
        return lambda: self._restore_copy(copy)

    def ratified(self) -> Ratified:
        found = ratified_in(self.url)
        for away in self.path.parent.glob("away-*.db"):
            found |= ratified_in(f"sqlite:///{away}")
        return found

    def _restore_copy(self, copy: Path) -> None:
        self._count += 1
        away = self.path.with_name(f"away-{self._count}.db")
        for suffix in ("", "-wal"):
            beside = Path(f"{self.path}{suffix}")
            if beside.exists():
                os.link(beside, f"{away}{suffix}")
        restored = self.path.with_name("restored.db")
        restored.write_bytes(copy.read_bytes())
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        restored.rename(self.path)


@dataclass(slots=True)
class PostgresqlCatalog:
    """A schema of a server. Every second copy is made by pg_dump, the others from rows."""

    server: PostgresServer
    schema: str
    folder: Path
    _url: str
    options: Mapping[str, str] = field(default_factory=dict)
    _count: int = 0

    @classmethod
    def create(cls, server: PostgresServer, schema: str, folder: Path) -> PostgresqlCatalog:
        return cls(server, schema, folder, server.make_schema(schema))

    @property
    def url(self) -> str:
        """The URL, with a name of the application that identifies this catalog's connections."""
        url = make_url(self._url).update_query_dict({"application_name": self.schema})
        return url.render_as_string(hide_password=False)

    def copy(self) -> RestoreBackup:
        self._count += 1
        if self._count % 2:
            rows = backups.copied(self._url)
            return lambda: self._restore_copy(lambda: backups.put_back(self._url, rows))
        dump = self.folder / f"copy-{self._count}.dump"
        self.server.run("pg_dump", "--format=custom", f"--schema={self.schema}", f"--file={dump}")
        return lambda: self._restore_copy(lambda: self._restore(dump))

    def ratified(self) -> Ratified:
        return ratified_in(self._url)

    def _restore(self, dump: Path) -> None:
        self.server.execute(f"DROP SCHEMA {self.schema} CASCADE")
        self.server.run("pg_restore", "--exit-on-error", str(dump))

    def _restore_copy(self, work: RestoreBackup) -> None:
        self.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = '{self.schema}'"
        )
        work()


@dataclass(slots=True)
class StoreCatalog:
    """A log in a store. Replaced logs are kept in local folders, for reading."""

    url: str
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    _replaced: list[Path] = field(default_factory=list)

    def copy(self) -> RestoreBackup:
        copy = _objects(self._store)
        return lambda: self._restore(copy)

    def ratified(self) -> Ratified:
        found = _ratified_in_store(self._store)
        for folder in self._replaced:
            found |= _ratified_in_store(open_store(folder))
        return found

    @property
    def _store(self) -> Store:
        return open_store(self.url, self.options)

    def _restore(self, copy: Mapping[str, bytes]) -> None:
        store = self._store
        replaced = _objects(store)
        away = self.folder / f"away-{len(self._replaced)}"
        self._replaced.append(away)
        _put_all(open_store(away), replaced)
        store.delete(replaced)
        _put_all(store, copy)
        time.sleep(3 * CHECK_MS / 1000)  # a restore takes longer than a process works unchecked


CHECK_MS = 100
"""How often a process checks that its catalog's log wasn't replaced."""


def _objects(store: Store) -> dict[str, bytes]:
    """Return the snapshots and entries of a log, which others may write meanwhile."""
    found: dict[str, bytes] = {}
    for folder in ("snapshots", "log"):  # a snapshot's entry has to be in the copy
        for each in store.list(folder):
            try:
                found[each.path] = store.get(each.path)
            except FileNotFoundError:
                continue
    return found


def _put_all(store: Store, objects: Mapping[str, bytes]) -> None:
    for path, data in objects.items():
        store.put(path, data)


def _ratified_in_store(store: Store) -> Ratified:
    database = ReplicatedDatabase(store, System())
    try:
        return ratified_in(f"sqlite:///{database.url.database}")
    finally:
        database.close()
