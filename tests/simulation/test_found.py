"""What the simulation found in the engine, each as the smallest story that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.session import transaction
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
