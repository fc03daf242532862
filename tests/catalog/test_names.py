"""Names as statements: each changes the rows that it is about, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.catalog.ledgers import User, new, selected, version
from txlake.catalog import Catalog
from txlake.errors import InvalidRequest
from txlake.ports import DroppedTable, NewTable, RenamedTable, VersionRange

TABLES = "SELECT id FROM txlake_tables ORDER BY id"


@pytest.fixture
def user(sqlite_user: User) -> User:
    return sqlite_user


@pytest.fixture
def catalog(user: User) -> Catalog:
    user.catalog.create_database("d")
    return user.catalog


def test_a_dropped_database_takes_no_others_tables(user: User, catalog: Catalog) -> None:
    user.create("a")
    user.create("b", database="d")
    user.ratify(names=(DroppedTable(id="b"),))
    catalog.drop_database("d")
    assert [entry.id for entry in catalog.tables("default")] == ["a"]
    assert [entry.name for entry in catalog.databases()] == ["default"]


def test_a_table_is_found_by_its_place_with_its_own_database(user: User, catalog: Catalog) -> None:
    user.create("a")
    user.create("b", database="d")
    for name, database in (("a", "default"), ("b", "d")):
        entry = catalog.at_place(f"file:///{name}")
        assert entry is not None
        assert (entry.id, entry.database) == (name, database)
    assert catalog.at_place("file:///c") is None
    user.ratify(names=(DroppedTable(id="a"),))
    assert catalog.at_place("file:///a") is None


def test_names_alone_are_listed_as_such(user: User, catalog: Catalog) -> None:
    user.create("a")
    alone = user.name("b", database="d")
    assert catalog.unattached() == [alone]


def test_a_name_is_one_databases(user: User, catalog: Catalog) -> None:
    user.create("a")
    there = NewTable(id="b", database="d", name="a", location="file:///b", managed=True)
    user.ratify(version("b", 0), names=(there,))
    found = [catalog.find(database, "a") for database in ("default", "d")]
    assert [entry and entry.id for entry in found] == ["a", "b"]
    assert [[entry.id for entry in catalog.tables(name)] for name in ("default", "d")] == [
        ["a"],
        ["b"],
    ]


def test_a_dropped_table_whose_folder_stays_is_not_the_lakes(user: User) -> None:
    user.create("a", "b", "c")
    user.ratify(names=(DroppedTable(id="a", keeps_files=True), DroppedTable(id="b")))
    dropped = user.catalog.ledger.dropped_tables()
    assert [(table.table_id, table.managed) for table in dropped] == [("a", False), ("b", True)]
    kept = user.catalog.find("default", "c")
    assert kept is not None
    assert kept.managed


def test_a_dropped_name_alone_leaves_nothing(user: User, sqlite_url: str) -> None:
    user.create("a")
    user.ratify(names=(new("x"), new("y")))
    user.ratify(names=(DroppedTable(id="x"),))
    assert selected(sqlite_url, TABLES) == [("a",), ("y",)]
    user.ratify(names=(DroppedTable(id="a"),))
    assert selected(sqlite_url, TABLES) == [("a",), ("y",)]


def test_one_table_is_forgotten(user: User, sqlite_url: str) -> None:
    user.create("a", "b", "c")
    user.ratify(names=tuple(DroppedTable(id=name) for name in "ab"))
    ledger = user.catalog.ledger
    ledger.record_publication({"a": VersionRange(0, 0), "c": VersionRange(0, 0)})
    with pytest.raises(InvalidRequest, match="aren't published yet"):
        ledger.forget("b")
    ledger.forget("a")
    ledger.forget("c")
    assert selected(sqlite_url, TABLES) == [("b",), ("c",)]


def test_a_dropped_table_changes_no_more(user: User) -> None:
    user.create("a")
    user.ratify(names=(DroppedTable(id="a"),))
    for change in (
        DroppedTable(id="a"),
        RenamedTable(id="a", database="default", name="b"),
    ):
        with pytest.raises(InvalidRequest, match=r"default\.a was dropped meanwhile"):
            user.ratify(names=(change,))


def test_a_name_has_a_length_that_every_database_holds(user: User, catalog: Catalog) -> None:
    user.create("a")
    for name in ("x" * 256, "\u0130" * 128):  # that letter is two in lower case
        with pytest.raises(InvalidRequest, match=r"25\d characters, a name has at most 255"):
            catalog.create_database(name)
        with pytest.raises(InvalidRequest, match="a name has at most 255"):
            user.ratify(names=(replace(new("b"), name=name),))
        with pytest.raises(InvalidRequest, match="a name has at most 255"):
            user.ratify(names=(RenamedTable(id="a", database="d", name=name),))
    catalog.create_database("x" * 255)
    assert [entry.name for entry in catalog.tables("default")] == ["a"]


def test_a_table_of_the_warehouse_that_lies_elsewhere_is_found(user: User) -> None:
    outside = user.catalog.managed_outside
    user.create("a")  # at file:///a
    assert outside("file://") is None
    assert outside("file:///wh") == "file:///a"
    user.ratify(names=(DroppedTable(id="a"),))
    assert outside("file:///wh") is None
    user.name("alone")
    assert outside("file:///wh") is None
    place = NewTable(
        id="u", database="default", name="u", location="file:///u", managed=False, head=3
    )
    user.ratify(names=(place,))
    assert outside("file:///wh") is None
