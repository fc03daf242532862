"""Short ways to branches in a catalog."""

from __future__ import annotations

import sqlalchemy as sa

from tests.catalog.ledgers import User
from txlake.catalog import Catalog
from txlake.catalog.relations import branches
from txlake.ports import EndedBranch


def on_branch(user: User, name: str) -> User:
    """A session on a branch."""
    entry = user.catalog.branches.find(name)
    assert entry is not None
    return User(user.catalog.on_branch(entry.number))


def of(catalog: Catalog, name: str) -> tuple[str, int | None]:
    """The id and the head of a table."""
    entry = catalog.find("default", name)
    assert entry is not None
    return entry.id, entry.head


def ended(user: User, name: str, *adopted: str) -> EndedBranch:
    """The end of a branch with the versions that its tables have now, without adopted ones."""
    entry = user.catalog.branches.find(name)
    assert entry is not None
    tables = [table.entry for table in user.catalog.branches.tables(entry)]
    left = [table for table in tables if table.id not in adopted]
    return EndedBranch(
        id=entry.id, tables={table.id: (table.head or 0, table.modified_ms) for table in left}
    )


def change_rows(user: User, change: sa.Update) -> None:
    """Change rows of the catalog."""
    database = user.catalog.branches._database
    database.run_shielded(
        lambda: database.write(lambda connection: connection.execute(change).close())
    )


def let_expire(user: User, *names: str) -> None:
    """Let branches and tags expire."""
    change = sa.update(branches).where(branches.c.name.in_(names))
    change_rows(user, change.values(kept_until_ms=1))
