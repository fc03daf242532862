"""What the lake remembers of places: cleared folders for ever, and what clones read."""

from __future__ import annotations

import pytest

from tests.catalog.ledgers import User
from txlake.catalog import Catalog
from txlake.ports import DroppedTable, VersionRange


@pytest.fixture
def user(sqlite_user: User) -> User:
    return sqlite_user


@pytest.fixture
def catalog(user: User) -> Catalog:
    return user.catalog


def test_a_dropped_tables_folder_is_about_to_be_cleared(user: User, catalog: Catalog) -> None:
    user.create("a", "b")
    assert not catalog.is_cleared("file:///a")
    user.ratify(names=(DroppedTable(id="a"),))
    assert catalog.is_cleared("file:///a")
    assert not catalog.is_cleared("file:///b")
    catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    catalog.ledger.forget("a")
    assert not catalog.is_cleared("file:///a")


def test_a_folder_that_stays_is_not_cleared(user: User, catalog: Catalog) -> None:
    user.create("a")
    user.ratify(names=(DroppedTable(id="a", keeps_files=True),))
    assert not catalog.is_cleared("file:///a")


def test_that_a_folder_was_cleared_is_remembered(user: User, catalog: Catalog) -> None:
    user.create("a", "b", "c")
    user.ratify(names=(DroppedTable(id="b"), DroppedTable(id="c")))
    assert catalog.ledger.note_clearing("c")
    assert catalog.ledger.note_clearing("c")
    catalog.ledger.record_publication({"b": VersionRange(0, 0), "c": VersionRange(0, 0)})
    for name in "bc":
        catalog.ledger.forget(name)
    assert catalog.is_cleared("file:///c")
    assert not catalog.is_cleared("file:///b")
    assert not catalog.ledger.note_clearing("c")


def test_a_folder_in_use_is_not_cleared(user: User, catalog: Catalog) -> None:
    user.create("a")
    assert not catalog.ledger.note_clearing("a")
    assert not catalog.ledger.note_clearing("nowhere")
    assert not catalog.is_cleared("file:///a")


def test_a_folder_that_another_one_cleared_first_is_not_this_ones(
    user: User, catalog: Catalog
) -> None:
    user.create("a", "b")
    user.ratify(names=(DroppedTable(id="a"),))
    assert not catalog.ledger.note_clearing("b")
    user.ratify(names=(DroppedTable(id="b"),))
    assert catalog.ledger.note_clearing("b")
    catalog.ledger.record_publication({"a": VersionRange(0, 0), "b": VersionRange(0, 0)})
    for name in "ab":
        catalog.ledger.forget(name)
    assert [catalog.is_cleared(f"file:///{name}") for name in "ab"] == [False, True]


def test_what_clones_read_is_remembered(catalog: Catalog) -> None:
    assert catalog.shared_with("file:///a") == ()
    catalog.share("file:///a", ["file:///x"])
    catalog.share("file:///b", ["file:///y"])
    catalog.share("file:///a", ["file:///z", "file:///x"])
    assert catalog.shared_with("file:///a") == ("file:///x", "file:///z")
    assert catalog.shared_with("file:///b") == ("file:///y",)
