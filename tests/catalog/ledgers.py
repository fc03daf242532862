"""Short ways to tables and transactions in a catalog's book of commits."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from txlake.catalog import Catalog, TableEntry
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
        transaction_id = System_.new_id()
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
            id=System_.new_id(), database=database, name=name,
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
    """Make a new catalog in the database, if that is a SQLite file: a copy, which costs little."""
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


def execute(url: str, *statements: str) -> None:
    """Run statements beside the catalog."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def selected(url: str, query: str) -> list[tuple[object, ...]]:
    """The rows of a query beside the catalog."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.exec_driver_sql(query)]
    engine.dispose()
    return rows
