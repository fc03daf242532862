"""What the simulation found in the engine, each as the smallest story that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.errors import Unavailable
from txlake.session import transaction
from txlake.session.belongings import finish
from txlake.session.transaction import State
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System


def lake(name: str) -> RowSession:
    """A session on a new lake in memory."""
    system = System()
    engine = RowEngine(
        system=system,
        settings=Settings(),
        warehouse=open_store(f"memory://{name}/lake"),
        catalog=Catalog("sqlite://", system),
    )
    return RowSession(engine)


def test_a_commit_that_is_stopped_after_it_stands_is_not_told_as_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1002 of the first thousand: Ctrl-C between the ratification and its reply."""
    session = lake("stopped")
    session.rows("CREATE TABLE t (n INT) USING delta")
    together = transaction.commit_together

    def stopped(*given: Any, **named: Any) -> None:
        together(*given, **named)
        raise KeyboardInterrupt

    held = session.begin()
    session.within(held, "INSERT INTO t VALUES (1)")
    monkeypatch.setattr(transaction, "commit_together", stopped)
    with pytest.raises(KeyboardInterrupt):
        held.commit()
    assert held.state is State.UNKNOWN
    monkeypatch.undo()
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_table_of_a_dropped_one_s_name_isn_t_cleared_away_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1871, definitions beside late deletes: the folder's second clearing took the new table.

    So did opening the lake, where the process that dropped the first one had died in between.
    """
    session = lake("cleared")
    engine = session.engine
    session.rows("CREATE TABLE t (n INT) USING delta")

    def away(*_: object) -> None:
        raise Unavailable("the catalog is away")

    with monkeypatch.context() as patch:
        assert engine.catalog is not None
        patch.setattr(engine.catalog.ledger, "forget", away)
        session.rows("DROP TABLE t")
    session.rows("CREATE TABLE t (n INT) USING delta")
    session.rows("INSERT INTO t VALUES (1)")
    finish(engine)
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_folder_that_was_cleared_once_isn_t_used_again() -> None:
    """Another process may have listed what is to be cleared before the first one was done."""
    session = lake("used again")
    catalog = session.engine.catalog
    assert catalog is not None
    places = []
    for _ in range(2):
        session.rows("CREATE TABLE t (n INT) USING delta")
        entry = catalog.find("default", "t")
        assert entry is not None
        places.append(entry.location)
        session.rows("DROP TABLE t")
    assert len(set(places)) == 2
