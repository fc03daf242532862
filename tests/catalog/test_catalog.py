"""The catalog: names of databases and tables, shared by threads and processes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.catalog.ledgers import User, prepared
from tests.catalog.processes import started
from txlake.catalog import Catalog, TableEntry, matches
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import DroppedTable, RenamedTable
from txlake.system import System


@pytest.fixture(params=["file", "memory", "server"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """An empty catalog."""
    url = "sqlite://"
    if request.param == "file":
        url = prepared(f"sqlite:///{tmp_path / 'catalog.db'}")
    if request.param == "server":
        url = request.getfixturevalue("postgres_url")
    catalog = Catalog(url, System())
    yield catalog
    catalog.close()


def names(catalog: Catalog, database: str = "default", pattern: str | None = None) -> list[str]:
    return [entry.name for entry in catalog.tables(database) if matches(entry.name, pattern)]


def rename(user: User, entry: TableEntry, database: str, name: str) -> None:
    user.ratify(names=(RenamedTable(id=entry.id, database=database, name=name),))


def drop(user: User, entry: TableEntry) -> None:
    user.ratify(names=(DroppedTable(id=entry.id),))


def test_a_new_catalog_has_the_default_database(catalog: Catalog) -> None:
    assert [entry.name for entry in catalog.databases()] == ["default"]
    assert names(catalog) == []


def test_names_are_folded_and_kept_as_written(catalog: Catalog) -> None:
    catalog.create_database("Sales", comment="c")
    user = User(catalog)
    made = user.name("Orders", database="sALES")
    assert (made.database, made.name) == ("Sales", "Orders")
    assert catalog.find("SALES", "oRDERS") == made
    assert catalog.database("sales") == catalog.database("SALES")
    with pytest.raises(InvalidRequest, match=r"Sales\.ORDERS exists"):
        user.name("ORDERS", database="sales")
    with pytest.raises(InvalidRequest, match="'SALES' exists"):
        catalog.create_database("SALES")
    assert not catalog.create_database("SALES", if_not_exists=True)


def test_tables_are_found_renamed_and_dropped(catalog: Catalog) -> None:
    user = User(catalog)
    entry = user.name("a", managed=False)
    assert (entry.location, entry.managed) == ("file:///a", False)
    assert catalog.at_place("file:///a") == entry
    assert catalog.find("default", "b") is None
    assert catalog.find("nowhere", "a") is None
    catalog.create_database("d")
    user.name("taken", database="d")
    with pytest.raises(InvalidRequest, match=r"d\.Taken exists"):
        rename(user, entry, "d", "Taken")
    with pytest.raises(InvalidRequest, match="no database 'nowhere'"):
        rename(user, entry, "nowhere", "a")
    rename(user, entry, "d", "B")
    assert names(catalog) == []
    moved = catalog.find("d", "b")
    assert moved is not None
    assert (moved.id, moved.database, moved.name, moved.location) == (
        entry.id, "d", "B", "file:///a",
    )  # fmt: skip
    drop(user, moved)
    assert catalog.find("d", "b") is None
    assert catalog.at_place("file:///a") is None
    with pytest.raises(InvalidRequest, match="dropped meanwhile"):
        drop(user, moved)
    with pytest.raises(InvalidRequest, match="dropped meanwhile"):
        rename(user, moved, "d", "c")


def test_databases_are_dropped_when_empty(catalog: Catalog) -> None:
    user = User(catalog)
    catalog.create_database("d")
    entry = user.name("a", database="d")
    with pytest.raises(InvalidRequest, match=r"1 table.*'a'.*CASCADE"):
        catalog.drop_database("d")
    with pytest.raises(InvalidRequest, match=r"1 table.*'a'.*CASCADE"):
        catalog.require_droppable("d")
    catalog.require_droppable("D", cascade=True)
    assert names(catalog, "d") == ["a"]
    drop(user, entry)
    catalog.require_droppable("d")
    catalog.drop_database("D")
    absent: list[Callable[[], object]] = [
        lambda: catalog.drop_database("d"),
        lambda: catalog.require_droppable("d", cascade=True),
        lambda: catalog.tables("d"),
        lambda: user.name("a", database="d"),
        lambda: catalog.set_isolation("d", "serializable"),
        lambda: catalog.set_properties("d", {"a": "b"}),
    ]
    for missing in absent:
        with pytest.raises(InvalidRequest, match="no database 'd'.*CREATE DATABASE d"):  # noqa: RUF043
            missing()
    with pytest.raises(InvalidRequest, match="default"):
        catalog.drop_database("Default")
    with pytest.raises(InvalidRequest, match="default"):
        catalog.require_droppable("Default", cascade=True)


def test_a_databases_isolation_is_kept(catalog: Catalog) -> None:
    catalog.create_database("d", isolation="snapshot")
    found = catalog.database("d")
    assert found is not None
    assert found.isolation == "snapshot"
    catalog.set_isolation("D", "serializable")
    found = catalog.database("d")
    assert found is not None
    assert found.isolation == "serializable"


def test_a_databases_properties_are_kept(catalog: Catalog) -> None:
    catalog.create_database("d", properties={"a": "1", "b.c": "2"})
    catalog.set_properties("D", {"a": "é"})
    found = catalog.database("d")
    assert found is not None
    assert found.properties == {"a": "é", "b.c": "2"}
    default = catalog.database("default")
    assert default is not None
    assert default.properties == {}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, ["items", "Orders", "orders_old"]),
        ("orders", ["Orders"]),
        ("ORD*", ["Orders", "orders_old"]),
        ("i*|*old", ["items", "orders_old"]),
        ("nope", []),
        ("order.", []),
    ],
)
def test_patterns_are_those_of_show(
    catalog: Catalog, pattern: str | None, found: list[str]
) -> None:
    user = User(catalog)
    for name in ("Orders", "items", "orders_old"):
        user.name(name)
    assert names(catalog, pattern=pattern) == found


def test_threads_share_it(catalog: Catalog) -> None:
    barrier, user = threading.Barrier(8), User(catalog)

    def work(worker: int) -> int:
        barrier.wait(120)
        made = 0
        for number in range(5):
            user.name(f"t{worker}_{number}")
            try:
                user.name(f"common{number}")
                made += 1
            except InvalidRequest:
                assert catalog.find("default", f"common{number}") is not None
        return made

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 5
    assert len(names(catalog)) == 45


PROGRAM = """
import sys
from tests.catalog.ledgers import User, prepared
from txlake.catalog import Catalog
from txlake.errors import InvalidRequest
from txlake.system import System

sys.stdin.readline()
user, won = User(Catalog(sys.argv[1], System())), 0
for number in range(20):
    try:
        user.name(f"t{number}")
        won += 1
    except InvalidRequest:
        pass
print(won)
"""


def test_processes_that_open_it_first_at_once_share_it(url: str) -> None:
    processes = started(PROGRAM, url, count=4)
    won = [int(process.communicate("\n", timeout=120)[0]) for process in processes]
    assert sum(won) == 20
    catalog = Catalog(url, System())
    assert len(names(catalog)) == 20
    catalog.close()


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(f"sqlite:///{path}", System(), busy_timeout_s=0)
    user = User(catalog)
    user.name("t")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM txlake_tables")
    assert names(catalog) == ["t"]
    assert Catalog(f"sqlite:///{path}", System(), busy_timeout_s=0).find("default", "t")
    with pytest.raises(Unavailable, match=r"catalog.db: database is locked; try again"):
        user.name("u")
    other.execute("ROLLBACK")
    user.name("u")
    assert names(catalog) == ["t", "u"]


def test_a_reader_does_not_hinder_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(f"sqlite:///{path}", System(), busy_timeout_s=0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM txlake_tables").fetchone() == (0,)
    User(catalog).name("t")
    assert other.execute("SELECT count(*) FROM txlake_tables").fetchone() == (0,)
    other.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM txlake_tables").fetchone() == (1,)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: "nonsense", "a URL like sqlite:///path"),
        (lambda folder: "nodb://host/x", "a URL like sqlite:///path"),
        (lambda folder: f"sqlite:///{folder}/no/folder.db", "unable to open.*folder that exists"),
        (lambda folder: f"sqlite:///{folder}", "unable to open"),
        (lambda folder: f"sqlite:///{folder}/text", "not a database.*another path"),
    ],
)
def test_what_can_not_be_a_catalog_is_refused(tmp_path: Path, make: object, said: str) -> None:
    (tmp_path / "text").write_text("not a database, surely" * 100)
    assert callable(make)
    with pytest.raises(InvalidRequest, match=said):
        Catalog(make(tmp_path), System())
