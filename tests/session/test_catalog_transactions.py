"""How many transactions of its database the catalog is asked for by statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.heartbeat import DelayedCall
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System


@pytest.fixture
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RowSession:
    """A session that has read and written the tables t and u."""
    monkeypatch.setattr(DelayedCall, "schedule", lambda _: None)  # what nobody waits for
    system = System()
    catalog = Catalog("sqlite://", system)
    catalog.check_warehouse(catalog.lake_id, "lake")  # as who connects does
    engine = RowEngine(
        system=system,
        settings=Settings(),
        warehouse=open_store(f"memory://{request.node.name}/lake"),
        catalog=catalog,
    )
    session = RowSession(engine)
    for name in ("t", "u"):
        session.rows(f"CREATE TABLE {name} (n INT) USING delta")
        session.rows(f"INSERT INTO {name} VALUES (1), (2)")
        session.rows(f"SELECT n FROM {name}")
    return session


@contextmanager
def counted(session: RowSession) -> Iterator[list[Any]]:
    """The transactions of the session's database meanwhile; other lakes may have a pulse."""
    begun: list[Any] = []
    transaction = Database._transaction
    catalog = session.engine.catalog
    assert isinstance(catalog, Catalog)

    def noted(*args: Any) -> Any:
        if args[0] is catalog._database:
            begun.append(args)
        return transaction(*args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Database, "_transaction", noted)
        yield begun


@pytest.mark.parametrize(
    ("statements", "count"),
    [
        (["SELECT n FROM t"], 1),
        (["SELECT t.n FROM t JOIN u ON t.n = u.n"], 1),
        (["INSERT INTO t VALUES (3)"], 2),
        (["UPDATE t SET n = 5 WHERE n = 1"], 2),
        (["DELETE FROM t WHERE n = 1"], 2),
        (["MERGE INTO t USING u ON t.n = u.n WHEN MATCHED THEN DELETE"], 2),
        (["ALTER TABLE t ADD COLUMNS (x INT)"], 2),
        (["BEGIN", "UPDATE t SET n = 5", "UPDATE u SET n = 5", "COMMIT"], 3),
        (["BEGIN", "INSERT INTO t VALUES (7)", "ROLLBACK"], 2),
        (["BEGIN", "ROLLBACK"], 0),
    ],
)
def test_a_statement_costs_two(session: RowSession, statements: Sequence[str], count: int) -> None:
    with counted(session) as begun:
        for statement in statements:
            session.rows(statement)
    assert len(begun) == count


def test_so_it_does_again_and_again(session: RowSession) -> None:
    with counted(session) as begun:
        for n in range(5):
            session.rows(f"UPDATE t SET n = {n} WHERE n = 1")
            session.rows(f"INSERT INTO u VALUES ({n})")
    assert len(begun) == 20
