"""What maintenance does beside writers: whom it excludes, whom it yields to, what it counts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import txlake.maintenance.work as work_module
from tests.maintenance.maintaining import (
    FEW,
    age_log,
    create,
    handle_of,
    maintainer_of,
    newest,
    operations,
)
from tests.session.offline import Offline
from txlake.commands import HANDLERS
from txlake.errors import LockTimeout, Unavailable
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.policy import Policy, Work
from txlake.maintenance.survey import Target, table_facts
from txlake.maintenance.work import Worker, action_text
from txlake.protocol.actions import CommitInfo
from txlake.session.membership.attachment import attach
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import TableName, TablePath, Vacuum

LIMIT_S = 20.0
WITHOUT_VECTORS = f"{FEW}, 'delta.enableDeletionVectors' = 'false'"


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


def after(monkeypatch: pytest.MonkeyPatch, statement: str, then: Callable[[], None]) -> None:
    """Have something done once a statement of the maintenance, by its type's name, has run."""
    real = Session.carry_out

    def carry_out(self: Session, *given: Any, **more: Any) -> Any:
        answer = real(self, *given, **more)
        if type(given[1]).__name__ == statement:
            then()
        return answer

    monkeypatch.setattr(Session, "carry_out", carry_out)


def open_transaction(lake: Offline) -> Transaction:
    """Another session's transaction, which has read t and may write it; it ends when let go."""
    other = Session(lake.engine, HANDLERS).begin()
    lake.session.snapshot(TableName(("t",)), transaction=other)
    return other


@pytest.mark.parametrize("work", list(Work))
def test_each_work_is_told_as_what_is_done(work: Work) -> None:
    assert action_text(work, "a.b")


# --- writers that would lose ------------------------------------------------------------------


def test_statistics_wait_for_open_transactions(lake: Offline, tmp_path: Path) -> None:
    table = TablePath((tmp_path / "foreign").as_uri())
    lake.run(f"CREATE TABLE delta.`{table.location}` (id INT)")
    lake.run(f"INSERT INTO delta.`{table.location}` VALUES (1), (2)")
    handle = lake.engine.at(table.location, table)
    bare = [
        msgspec.structs.replace(add, stats=None, data_change=False)
        for add in handle.log.latest().files.adds()
    ]
    lake.stage(handle, bare, "WRITE")
    attach(lake.session, table.location, "t")
    other = open_transaction(lake)
    yielded, _ = maintainer_of(lake).run()
    other.rollback()
    assert (yielded.need, yielded.state) == ("statistics", "yielded")


def test_clustering_waits_for_open_transactions(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT) CLUSTER BY (id)")
    for number in range(4):
        lake.run(f"INSERT INTO t VALUES ({number})")
    other = open_transaction(lake)
    yielded, _ = maintainer_of(lake).run()
    other.rollback()
    assert (yielded.need, yielded.state) == ("cluster", "yielded")
    assert "another transaction is open" in str(yielded.error)


def test_a_table_with_shredded_variants_waits_too(lake: Offline) -> None:
    create(lake, properties=f"{FEW}, 'delta.enableVariantShredding' = 'true'")
    other = open_transaction(lake)
    yielded, _ = maintainer_of(lake).run()
    other.rollback()
    assert yielded.state == "yielded"


def test_nothing_is_begun_while_others_would_lose(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=WITHOUT_VECTORS)
    other = open_transaction(lake)
    begun: list[None] = []
    after(monkeypatch, "Optimize", lambda: begun.append(None))
    yielded, _ = maintainer_of(lake).run()
    other.rollback()
    assert yielded.state == "yielded"
    assert begun == []


def test_writers_wait_while_they_would_lose(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake, properties=WITHOUT_VECTORS)
    user = Session(lake.engine, HANDLERS)
    user.lock_timeout_ms = 0
    refused: list[LockTimeout] = []

    def write() -> None:
        try:
            lake.run("DELETE FROM t WHERE id = 1", user)
        except LockTimeout as error:
            refused.append(error)

    after(monkeypatch, "Optimize", write)
    [done] = maintainer_of(lake).run()
    assert done.state == "done"
    assert len(refused) == 1


def test_writers_without_an_entry_are_found(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake, properties=WITHOUT_VECTORS)
    transactions = type(lake.catalog.transactions)
    real = transactions.others_open
    besides: list[str] = []

    def others_open(self: Any, transaction_id: str) -> Any:
        besides.append(transaction_id)
        return real(self, transaction_id)

    monkeypatch.setattr(transactions, "others_open", others_open)
    assert maintainer_of(lake).run()[0].state == "done"
    assert len(besides) == 2  # before the files are read, and before the commit


def test_a_path_table_that_is_quiet_is_rewritten(
    lake: Offline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (tmp_path / "alone").as_uri()
    lake.run(f"CREATE TABLE delta.`{place}` (id INT) TBLPROPERTIES ({WITHOUT_VECTORS})")
    for number in range(4):
        lake.run(f"INSERT INTO delta.`{place}` VALUES ({number})")
    engine = lake.path_engine()
    target = Target(engine.at(place, TablePath(place)))
    monkeypatch.setattr(work_module, "_QUIET_MS", 0)
    [done] = Maintainer(engine, lambda: Session(engine, HANDLERS), tables=[target]).run()
    assert (done.need, done.state) == ("optimize", "done")


# --- users who wait ---------------------------------------------------------------------------


def test_work_that_nobody_waits_for_goes_on_and_its_watch_ends(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    before = set(threading.enumerate())
    monkeypatch.setattr(work_module, "_LOOK_MS", 1.0)
    again = threading.Event()
    looks: list[object] = []

    def is_awaited(*given: object) -> bool:
        looks.append(given)
        if len(looks) > 1:
            again.set()
        time.sleep(0.3)  # still looking when the work has ended
        return False

    monkeypatch.setattr(Worker, "_is_awaited", is_awaited)
    after(monkeypatch, "Optimize", lambda: assert_set(again))
    [done] = maintainer_of(lake).run()
    assert done.state == "done"
    begun = set(threading.enumerate()) - before
    assert "txlake-yielding" not in {thread.name for thread in begun}


def assert_set(event: threading.Event) -> None:
    assert event.wait(LIMIT_S)


def test_a_watch_that_fails_is_logged(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(lake)
    monkeypatch.setattr(work_module, "_LOOK_MS", 1.0)
    looking = threading.Event()

    def is_awaited(*given: object) -> bool:
        looking.set()
        raise Unavailable("the catalog is away")

    monkeypatch.setattr(Worker, "_is_awaited", is_awaited)
    after(monkeypatch, "Optimize", lambda: assert_set(looking))
    with caplog.at_level(logging.INFO):
        [done] = maintainer_of(lake).run()
    assert done.state == "done"
    assert "whether a user waits for a lock can't be seen: the catalog is away" in caplog.text


# --- VACUUM -----------------------------------------------------------------------------------


def test_a_full_vacuum_needs_no_expired_files(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties="'txlake.maintenance.fullVacuumInterval' = 'interval 1 second'")
    monkeypatch.setattr(
        type(lake.engine.system), "now_ms", lambda _: int(1000 * time.time()) + 60_000
    )
    done = {entry.need: entry.state for entry in maintainer_of(lake).run()}
    assert done["full vacuum"] == "done"
    assert operations(lake)[-2:] == ["VACUUM START", "VACUUM END"]


def test_what_a_vacuum_gained_is_found_among_the_commits_of_others(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=f"{FEW}, 'delta.deletedFileRetentionDuration' = 'interval 0 days'")
    lake.run("OPTIMIZE t")
    age_log(lake, 1)
    real = Session.carry_out

    def carry_out(self: Session, *given: Any, **more: Any) -> Any:
        if isinstance(given[1], Vacuum) and not given[1].dry_run:
            monkeypatch.undo()
            lake.run("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')")
        return real(self, *given, **more)

    monkeypatch.setattr(Session, "carry_out", carry_out)
    [done] = maintainer_of(lake).run()
    assert (done.need, done.files) == ("vacuum", 4)
    assert operations(lake)[-3:] == ["SET TBLPROPERTIES", "VACUUM START", "VACUUM END"]


@pytest.mark.parametrize("metrics", [None, "10", {"numRemovedFiles": "x"}])
def test_metrics_that_say_nothing_are_none(metrics: object) -> None:
    info = CommitInfo({} if metrics is None else {"operationMetrics": metrics})
    assert work_module._metrics(info) == {}


def test_a_work_that_is_not_a_tables_is_a_mistake(lake: Offline) -> None:
    create(lake)
    target = Target(handle_of(lake))
    facts = table_facts(lake.engine, target, newest(lake))
    with pytest.raises(AssertionError, match="BRANCHES"):
        Worker(Session(lake.engine, HANDLERS)).on_table(target, Work.BRANCHES, facts, Policy(), 1)
