"""Short ways to tables and transactions in a catalog's book of commits."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa

from txlake.catalog import Catalog, TableEntry, is_store_url
from txlake.catalog.opening import open_database
from txlake.catalog.replicated.entries import entry_path
from txlake.catalog.replicated.leases import HEARTBEAT_FOLDER
from txlake.catalog.transactions import Transactions
from txlake.ports import (
    HeadsMoved,
    NameChange,
    NewTable,
    Ratification,
    Ratified,
    TableCommit,
    TurnTaken,
)
from txlake.system import System

System_ = System()


@dataclass(slots=True)
class User:
    """One session in a catalog."""

    catalog: Catalog
    session: int = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.catalog.sessions.open()

    def begin(self) -> str:
        """A new transaction's id."""
        transaction_id = System().new_id()
        self.catalog.transactions.begin(transaction_id, self.session)
        return transaction_id

    def ratify(
        self,
        *commits: TableCommit,
        names: tuple[NameChange, ...] = (),
        unchanged: dict[str, int] | None = None,
        transaction_id: str | None = None,
    ) -> Ratified | HeadsMoved | TurnTaken:
        """What becomes of a request; a new transaction's unless one is given."""
        return self.catalog.ledger.ratify(
            Ratification(
                transaction_id=transaction_id or self.begin(),
                commits=commits,
                unchanged=unchanged or {},
                names=names,
            )
        )

    def name(
        self,
        name: str,
        *,
        database: str = "default",
        location: str | None = None,
        managed: bool = True,
    ) -> TableEntry:
        """Give a table a name alone: it isn't attached."""
        named = NewTable(
            id=System().new_id(), database=database, name=name,
            location=location or f"file:///{name}", managed=managed,
        )  # fmt: skip
        self.ratify(names=(named,))
        entry = self.catalog.find(database, name)
        assert entry is not None
        assert entry.id == named.id
        return entry

    def create(self, *table_ids: str, database: str = "default") -> Ratified:
        """Make tables, named as their ids, with version 0 each, at one instant."""
        made = self.ratify(
            *(version(table_id, 0) for table_id in table_ids),
            names=tuple(new(table_id, database=database) for table_id in table_ids),
        )
        assert isinstance(made, Ratified)
        return made

    def write(self, *commits: TableCommit) -> Ratified:
        """A ratification that succeeds."""
        made = self.ratify(*commits)
        assert isinstance(made, Ratified)
        return made


def living(transactions: Transactions) -> set[str]:
    """The ids of the open transactions that nobody has killed."""
    return {one.id for one in transactions.entries() if one.state == "active"}


def version(table_id: str, number: int) -> TableCommit:
    """A small version of a table."""
    content = f"{table_id} {number}".encode()
    return TableCommit(table_id=table_id, version=number, content=content, operation="WRITE")


def new(table_id: str, *, database: str = "default", head: int | None = None) -> NewTable:
    """A table named as its id."""
    return NewTable(
        id=table_id, database=database, name=table_id, location=f"file:///{table_id}",
        managed=True, head=head,
    )  # fmt: skip


def prepared(url: str) -> str:
    """Make a new catalog at the URL of a SQLite file or a store: a copy, which costs little."""
    if is_store_url(url):
        entry = _folder(url) / entry_path(1)
        if not entry.exists():
            entry.parent.mkdir(parents=True)
            entry.write_bytes(_first_entry())
        return url
    path = sa.make_url(url).database
    if url.startswith("sqlite:///") and path and not Path(path).exists():
        Path(path).write_bytes(_new_catalog())
    return url


@cache
def _new_catalog() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.db"
        Catalog(f"sqlite:///{path}", System_).close()
        return path.read_bytes()


@cache
def _first_entry() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Catalog(Path(folder).as_uri(), System_).close()
        return (Path(folder) / entry_path(1)).read_bytes()


def execute(url: str, *statements: str) -> None:
    """Run statements beside the catalog."""
    if is_store_url(url):
        database = open_database(url, System_)

        def run(connection: sa.Connection) -> None:
            for statement in statements:
                connection.exec_driver_sql(statement)

        database.run_shielded(lambda: database.write(run))
        database.close()
        return
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def end_lease(url: str, session_id: int, over_ms: int = 3_600_000_000) -> None:
    """Let a session's lease have ended `over_ms` ago, or, if they share it, its process's.

    By default so long ago that the present doesn't matter.
    """
    of_session = f"WHERE id = {session_id}"
    if is_store_url(url):
        [(holder, length_ms)] = selected(
            url, f"SELECT holder, length_ms FROM txlake_sessions {of_session}"
        )
        assert isinstance(length_ms, int)
        heartbeat = _folder(url) / HEARTBEAT_FOLDER / str(holder)
        beat_s = time.time() - (length_ms + over_ms) / 1000
        os.utime(heartbeat, (max(0, beat_s), max(0, beat_s)))
        return
    lease = "1" if over_ms > 10_000_000 else f"lease_ms - {30_000 + over_ms}"
    execute(url, f"UPDATE txlake_sessions SET lease_ms = {lease}, warned = true {of_session}")


def _folder(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def selected(url: str, query: str) -> list[tuple[object, ...]]:
    """The rows of a query beside the catalog."""
    if is_store_url(url):
        database = open_database(url, System_)

        def read() -> list[tuple[object, ...]]:
            with database.reading() as connection:
                return [tuple(row) for row in connection.exec_driver_sql(query)]

        found = database.run_shielded(read)
        database.close()
        return found
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.exec_driver_sql(query)]
    engine.dispose()
    return rows
