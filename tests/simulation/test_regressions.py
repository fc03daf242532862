"""Bugs of the engine that the simulation found, each as the smallest case that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.commit.lake_commit import commit_together
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import Store
from txlake.session import transaction
from txlake.session.engine import Engine
from txlake.session.membership import dropping
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.transaction import State
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.storage.objects import BucketStore
from txlake.system import System

pytestmark = pytest.mark.timeout(1800)


def lake(name: str) -> RowSession:
    """Return a session on a new lake in memory."""
    system = System()
    engine = RowEngine(
        system=system,
        settings=Settings(dropped_table_retention_ms=0),
        warehouse=open_store(f"memory://{name}/lake"),
        catalog=Catalog("sqlite://", system),
    )
    return RowSession(engine)


def test_a_commit_interrupted_after_its_ratification_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C arrives between the ratification and its reply."""
    session = lake("stopped")
    session.rows("CREATE TABLE t (n INT) USING delta")

    def stopped(*given: Any, **named: Any) -> None:
        commit_together(*given, **named)
        raise KeyboardInterrupt

    held = session.begin()
    session.within(held, "INSERT INTO t VALUES (1)")
    monkeypatch.setattr(transaction, "commit_together", stopped)
    with pytest.raises(KeyboardInterrupt):
        held.commit()
    assert held.state is State.UNKNOWN
    monkeypatch.undo()
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_clearing_a_dropped_table_spares_a_new_table_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1871, definitions beside late deletes: clearing the folder again took the new table.

    So did opening the lake after the process that dropped the first table had died in between.
    """
    session = lake("cleared")
    engine = session.engine
    session.rows("CREATE TABLE t (n INT) USING delta")

    def away(*_: object) -> None:
        raise Unavailable("the catalog is away")

    with monkeypatch.context() as patch:
        patch.setattr(engine.catalog.of_lake().ledger, "forget", away)
        session.rows("DROP TABLE t")
    session.rows("CREATE TABLE t (n INT) USING delta")
    session.rows("INSERT INTO t VALUES (1)")
    finish_interrupted(engine)
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def places_of(session: RowSession, count: int) -> list[str]:
    """Return the locations of tables that are created and dropped under one name, in order."""
    catalog = session.engine.catalog.of_lake()
    places = []
    for _ in range(count):
        session.rows("CREATE TABLE t (n INT) USING delta")
        entry = catalog.find("default", "t")
        assert entry is not None
        places.append(entry.location)
        session.rows("DROP TABLE t")
    return places


def test_a_folder_cleared_at_once_is_reused() -> None:
    assert places_of(lake("used again"), 2) == ["memory://used%20again/lake/t"] * 2


def test_a_folder_in_a_store_with_late_deletes_is_not_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bucket's client repeats an unanswered delete, which may then arrive twice."""
    monkeypatch.setattr(BucketStore, "excludes_late_writes", False)
    assert len(set(places_of(lake("late"), 2))) == 2


def test_a_folder_cleared_by_two_processes_is_not_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that opened the lake saw the dropped table and listed its files before they were
    deleted.
    """
    session = lake("twice")
    removing = dropping._delete_files
    others: list[Store] = []

    def both(engine: Engine, store: Store, table_id: str) -> None:
        if not others:
            others.append(store)
            finish_interrupted(session.engine)
        removing(engine, store, table_id)

    monkeypatch.setattr(dropping, "_delete_files", both)
    assert len(set(places_of(session, 2))) == 2
    assert len(others) == 1


def test_a_finished_clearing_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its list of dropped tables is old, and the folder holds a new table."""
    session = lake("after")
    engine = session.engine
    ledger = engine.catalog.of_lake().ledger
    session.rows("CREATE TABLE t (n INT) USING delta")
    with monkeypatch.context() as patch:
        patch.setattr(dropping, "_remove_folder", lambda *_, **__: None)
        session.rows("DROP TABLE t")
    dropped = ledger.dropped_tables()
    (table,) = dropped
    engine.store_at(table.location).delete(
        [stored.path for stored in engine.store_at(table.location).list("")]
    )
    ledger.forget(table.table_id)
    session.rows("CREATE TABLE t (n INT) USING delta")
    session.rows("INSERT INTO t VALUES (1)")
    monkeypatch.setattr(ledger, "dropped_tables", lambda: dropped)
    finish_interrupted(engine)
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_an_ended_transaction_cannot_write_a_path_table() -> None:
    """Its session was late, VACUUM may have deleted its files, and a path table needs no
    ratification.
    """
    session = lake("late")
    place = "delta.`memory://late/place`"
    session.rows(f"CREATE TABLE {place} (n INT) USING delta")
    held = session.begin()
    session.within(held, f"INSERT INTO {place} VALUES (1)")
    session.engine.catalog.sessions.close(session.number())
    with pytest.raises(Unavailable, match="was ended while it was open"):
        held.commit()
    assert session.rows(f"SELECT n FROM {place}") == []


def test_a_missing_staged_file_reports_the_ended_transaction() -> None:
    """The table isn't damaged: VACUUM deleted what the ended transaction had staged."""
    session = lake("missed")
    session.rows("CREATE TABLE t (n INT) USING delta")
    store = session.engine.store_at("memory://missed/lake/t")
    errors: list[type[Exception]] = [CorruptTable, Unavailable]
    for error in errors:
        held = session.begin()
        session.within(held, "INSERT INTO t VALUES (1)")
        store.delete([item.path for item in store.list("") if item.path.endswith(".parquet")])
        if error is Unavailable:
            session.engine.catalog.transactions.end(held.id)
        with pytest.raises(error):
            session.within(held, "SELECT n FROM t")
        assert held.state is State.FAILED
