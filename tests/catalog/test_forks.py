"""A fork after the lake was opened: the child is refused, and takes nothing from its parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.session.offline import Offline
from tests.support.forking import in_a_fork
from txlake.catalog import Catalog, forks, sqlite_url
from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.session.session import Session
from txlake.session.transaction import State
from txlake.system import System

REFUSED = r"was opened by process \d+, and this process is a fork of it: .* Connect again"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Offline]:
    made = Offline(catalog=Catalog(sqlite_url(str(tmp_path / "c.db")), System()))
    made.run("CREATE TABLE t (id INT)")
    yield made
    made.engine.close()


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest, match=REFUSED):
        work()


def test_a_fork_is_refused_whatever_it_uses(lake: Offline) -> None:
    session = Session(lake.engine, HANDLERS)
    transaction = session.begin()

    def child() -> None:
        refused(lambda: lake.run("CREATE TABLE u (id INT)"))
        refused(lambda: session.begin())
        refused(lambda: Session(lake.engine, HANDLERS).begin())
        refused(transaction.require_active)
        refused(transaction.commit)
        refused(lambda: lake.catalog.databases())
        refused(lambda: lake.catalog.sessions.open())
        refused(lambda: lake.catalog.create_database("d"))

    assert in_a_fork(child) == ""
    lake.run("CREATE TABLE u (id INT)")
    transaction.commit()


def test_what_a_fork_ends_goes_on_in_its_parent(lake: Offline) -> None:
    session = Session(lake.engine, HANDLERS)
    transaction = session.begin()
    folder = lake.plane._scratch_manifests()._temporary()

    def child() -> None:
        transaction.rollback()
        session.close()
        lake.engine.close_session(session.number())
        lake.engine.close()
        lake.engine.close()

    assert in_a_fork(child) == ""
    assert folder.exists()
    assert [one.id for one in lake.catalog.transactions.entries()] == [transaction.id]
    assert session.number() in {one.id for one in lake.catalog.sessions.entries()}
    transaction.commit()
    assert transaction.state is State.COMMITTED


def test_a_lake_is_opened_again_in_a_fork(lake: Offline, tmp_path: Path) -> None:
    def child() -> None:
        own = Catalog(sqlite_url(str(tmp_path / "c.db")), System())
        own.create_database("d")
        own.close()

    assert in_a_fork(child) == ""
    assert [entry.name for entry in lake.catalog.databases()] == ["d", "default"]


def test_no_idle_connection_is_open_in_a_fork(lake: Offline, tmp_path: Path) -> None:
    lake.catalog.databases()
    path = str(tmp_path / "c.db")

    def child() -> None:
        open_files = {
            os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")
        }
        assert not any(file.startswith(path) for file in open_files), open_files

    assert in_a_fork(child) == ""


def test_a_file_that_a_thread_uses_while_its_process_forks_is_refused(
    lake: Offline, tmp_path: Path
) -> None:
    url = sqlite_url(str(tmp_path / "c.db"))
    begun, done = threading.Event(), threading.Event()

    def reads() -> None:
        with lake.catalog._database.reading():
            begun.set()
            done.wait(60)

    reading = threading.Thread(target=reads)
    reading.start()
    assert begun.wait(60)

    def child() -> None:
        with pytest.raises(InvalidRequest, match="another thread of its parent used that file"):
            Catalog(url, System())
        Catalog(sqlite_url(str(tmp_path / "another.db")), System()).close()

    try:
        assert in_a_fork(child) == ""
    finally:
        done.set()
        reading.join(60)
    assert in_a_fork(lambda: Catalog(url, System()).close()) == ""
    assert forks._inherited == set()


def test_a_lake_in_memory_stays_its_processs(tmp_path: Path) -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id INT)")
    assert in_a_fork(lambda: refused(lake.catalog.databases)) == ""
    assert [entry.name for entry in lake.catalog.tables("default")] == ["t"]
