"""Dropped tables that are kept: they come back whole, or their time ends; one of the two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.catalog.ledgers import User, execute, new, version
from tests.catalog.view_changes import create_view
from txlake.catalog import Catalog
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import DroppedTable, Head, Ratified, RenamedTable, UndroppedTable, VersionRange
from txlake.system import System

DAY_MS = 86_400_000


@pytest.fixture
def user(sqlite_user: User) -> User:
    sqlite_user.create("a")
    return sqlite_user


def drop(
    user: User, table_id: str, retention_ms: int = DAY_MS, *, keeps_files: bool = False
) -> None:
    made = user.ratify(
        names=(DroppedTable(id=table_id, retention_ms=retention_ms, keeps_files=keeps_files),)
    )
    assert isinstance(made, Ratified)


def undrop(
    user: User, table_id: str, *, database: str = "default", head: int | None = None
) -> None:
    change = UndroppedTable(id=table_id, database=database, name=table_id, head=head)
    assert isinstance(user.ratify(names=(change,)), Ratified)


def end(url: str) -> None:
    """The time of all that are kept is over."""
    execute(url, "UPDATE txlake_tables SET kept_until_ms = 1 WHERE kept_until_ms IS NOT NULL")


def kept(user: User) -> list[str]:
    return [one.entry.id for one in user.catalog.dropped.entries()]


def test_a_dropped_table_comes_back_as_it_was(url: str) -> None:
    """On each database."""
    catalog = Catalog(url, System())
    user = User(catalog)
    user.create("a")
    user.write(version("a", 1))
    before = catalog.find("default", "a")
    drop(user, "a")
    [dropped] = catalog.dropped.entries()
    assert catalog.find("default", "a") is None
    assert catalog.tables("default") == []
    assert catalog.ledger.head("a") is None
    assert dropped.entry == before
    assert (dropped.kept_until_ms - dropped.dropped_ms, dropped.is_expired) == (DAY_MS, False)
    assert not dropped.has_drop_note
    assert catalog.dropped.record_drop_note("a", dropped.dropped_ms)
    assert catalog.dropped.entries()[0].has_drop_note
    catalog.dropped.clear_drop_note("a")
    undrop(user, "a")
    after = catalog.find("default", "a")
    assert before is not None
    assert after is not None
    assert (after.id, after.number, after.created_ms) == (
        before.id, before.number, before.created_ms,
    )  # fmt: skip
    found = catalog.ledger.head("a")
    assert found is not None
    assert [one.version for one in found.pending] == [0, 1]
    assert catalog.dropped.entries() == []
    user.write(version("a", 2))
    catalog.close()


def test_what_is_not_kept_does_not_come_back(user: User) -> None:
    drop(user, "a", 0)
    assert kept(user) == []
    assert user.catalog.dropped.find("a") is None
    [table] = user.catalog.ledger.dropped_tables()
    assert not table.is_retained
    with pytest.raises(InvalidRequest, match="its time is over"):
        undrop(user, "a")


def test_each_is_kept_for_its_own_time(user: User) -> None:
    user.create("b")
    drop(user, "a", DAY_MS)
    drop(user, "b", 2 * DAY_MS)
    dropped = user.catalog.dropped.entries()
    assert {one.entry.id: one.kept_until_ms - one.dropped_ms for one in dropped} == {
        "a": DAY_MS,
        "b": 2 * DAY_MS,
    }


@pytest.mark.parametrize("how", ["over", "given up", "back", "never dropped"])
def test_one_has_its_way(user: User, sqlite_url: str, how: str) -> None:
    if how != "never dropped":
        drop(user, "a")
    if how in ("over", "given up"):
        end(sqlite_url)
    if how == "given up":
        assert user.catalog.dropped.expire("a")
        assert kept(user) == []
    if how == "back":
        undrop(user, "a")
        execute(sqlite_url, "UPDATE txlake_tables SET kept_until_ms = 1")
    said = "another table" if how in ("back", "never dropped") else "came back meanwhile"
    with pytest.raises(InvalidRequest, match=said):
        undrop(user, "a")
    assert user.catalog.dropped.expire("a") is (how == "over")


def test_what_is_within_its_time_is_not_given_up(user: User) -> None:
    drop(user, "a")
    assert not user.catalog.dropped.expire("a")
    assert not user.catalog.dropped.expire("nowhere")
    assert kept(user) == ["a"]
    undrop(user, "a")


def test_when_what_was_given_up_was_dropped_is_remembered(user: User, sqlite_url: str) -> None:
    drop(user, "a")
    dropped = user.catalog.dropped.entries()[0].dropped_ms
    assert user.catalog.dropped.removed_ms("default", "a") is None
    end(sqlite_url)
    assert user.catalog.dropped.entries()[0].is_expired
    assert user.catalog.dropped.expire("a")
    assert user.catalog.dropped.removed_ms("DEFAULT", "A") == dropped
    [table] = user.catalog.ledger.dropped_tables()
    assert not table.is_retained


@pytest.mark.parametrize("by", ["table", "view", "database"])
def test_a_name_that_is_taken_is_refused(user: User, by: str) -> None:
    catalog = user.catalog
    drop(user, "a")
    if by == "table":
        user.create("b")
        user.ratify(names=(RenamedTable(id="b", database="default", name="A"),))
    if by == "view":
        create_view(catalog, "default", "a", "SELECT 1", ())
    database = "nowhere" if by == "database" else "default"
    said = {"table": "rename it first", "view": "is a view", "database": "'nowhere'"}[by]
    with pytest.raises(InvalidRequest, match=said):
        undrop(user, "a", database=database)
    assert kept(user) == ["a"]


def test_a_place_that_another_table_has_is_refused(user: User) -> None:
    drop(user, "a", keeps_files=True)
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.ratify(version("b", 0), names=(replace(new("b"), location="file:///a"),))
    with pytest.raises(InvalidRequest, match="another table of the lake is at its place"):
        undrop(user, "a")
    assert kept(user) == ["a"]


def test_a_folder_that_was_told_in_between_is_told_back_first(user: User) -> None:
    drop(user, "a")
    dropped_ms = user.catalog.dropped.entries()[0].dropped_ms
    assert not user.catalog.dropped.record_drop_note("a", dropped_ms - 1)  # of a drop before
    assert user.catalog.dropped.record_drop_note("a", dropped_ms)
    with pytest.raises(Unavailable, match="try again"):
        undrop(user, "a")
    user.catalog.dropped.clear_drop_note("a")
    undrop(user, "a")
    assert not user.catalog.dropped.record_drop_note("a", dropped_ms)


def test_a_table_comes_back_with_the_version_that_it_has_now(user: User) -> None:
    drop(user, "a", keeps_files=True)
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    assert user.catalog.recovery.table_states() == []  # others write it now
    user.create("b")
    undrop(user, "a", head=7)
    ledger = user.catalog.ledger
    assert ledger.head("a") == Head(version=7, pending=())
    assert ledger.version_at("a", ledger.sequence()) == 7
    assert ledger.version_at("b", ledger.sequence()) == 0
    found = ledger.head("b")
    assert found is not None
    assert found.version == 0
    user.write(version("a", 8))


def test_what_stays_and_waits_to_be_published_still_stands(user: User) -> None:
    drop(user, "a", keeps_files=True)
    [standing] = user.catalog.recovery.table_states()
    assert standing.is_dropped


def test_a_table_comes_back_to_a_database_of_that_name(user: User) -> None:
    catalog = user.catalog
    catalog.create_database("Shop")
    user.create("x", database="shop")
    drop(user, "x")
    catalog.drop_database("shop")
    [dropped] = catalog.dropped.entries()
    assert (dropped.entry.database, dropped.entry.database_number) == ("shop", 0)
    catalog.create_database("SHOP")
    [dropped] = catalog.dropped.entries()
    assert dropped.entry.database == "SHOP"
    undrop(user, "x", database="SHOP")
    assert [one.name for one in catalog.tables("shop")] == ["x"]


def test_the_newest_drop_comes_first(user: User) -> None:
    user.create("b", "c")
    for table_id in ("b", "a", "c"):
        drop(user, table_id)
    assert kept(user) == ["c", "a", "b"]


def test_a_drop_of_long_ago_is_kept_as_long_as_it_was(user: User) -> None:
    user.ratify(names=(DroppedTable(id="a", retention_ms=5, dropped_ms=100),))
    [dropped] = user.catalog.dropped.entries()
    assert (dropped.dropped_ms, dropped.kept_until_ms, dropped.is_expired) == (100, 105, True)
