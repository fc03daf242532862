"""Names that a transaction changes: with its commits, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.catalog.ledgers import User, new, selected, version
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import Catalog
from txlake.catalog.fence import Fence
from txlake.catalog.ratifying import Ratifier
from txlake.errors import InvalidRequest
from txlake.ports import (
    DroppedTable,
    Head,
    HeadsMoved,
    NameChange,
    NewTable,
    Ratification,
    Ratified,
    RenamedTable,
    VersionRange,
)

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    return User(opened())


def names(user: User, database: str = "default") -> list[tuple[str, str, int | None]]:
    return [(entry.name, entry.id, entry.head) for entry in user.catalog.tables(database)]


def test_a_new_table_has_its_entry(user: User) -> None:
    user.catalog.create_database("Sales")
    made = user.create("t", database="sALES")
    entry = user.catalog.find("sales", "T")
    owner = user.catalog.database("sales")
    assert entry is not None
    assert owner is not None
    assert (entry.id, entry.database, entry.name, entry.head) == ("t", "Sales", "t", 0)
    assert (entry.location, entry.managed) == ("file:///t", True)
    assert (owner.number, entry.database_number, entry.number) == (2, 2, 3)
    assert entry.created_ms == entry.modified_ms == made.time_ms


def test_names_change_in_order(user: User) -> None:
    user.create("a", "b")
    swap: tuple[NameChange, ...] = (
        RenamedTable(id="a", database="default", name="tmp"),
        RenamedTable(id="b", database="default", name="a"),
        RenamedTable(id="a", database="default", name="b"),
    )
    user.ratify(names=swap)
    assert names(user) == [("a", "b", 0), ("b", "a", 0)]
    replaced = NewTable(id="c", database="default", name="A", location="file:///c", managed=False)
    user.ratify(version("c", 0), names=(DroppedTable(id="b"), replaced))
    assert names(user) == [("A", "c", 0), ("b", "a", 0)]
    assert user.catalog.ledger.sequence() == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((new("x"), new("A")), r"table default\.A exists already; use IF NOT EXISTS"),
        ((new("x"), new("y", database="d")), "no database 'd'; CREATE DATABASE d makes it"),
        ((DroppedTable(id="a"), DroppedTable(id="a")), r"table default\.a was dropped meanwhile"),
        ((DroppedTable(id="nowhere"),), "table nowhere was dropped meanwhile"),
        (
            (new("x"), RenamedTable(id="b", database="default", name="A")),
            r"table default\.A exists already",
        ),
        ((RenamedTable(id="nowhere", database="default", name="z"),), "dropped meanwhile"),
        ((new("x"), new("a2", head=3)), "expected version 4 as its first commit, found 0"),
    ],
)
def test_a_change_that_can_not_be_made_leaves_nothing(
    user: User, changes: tuple[NameChange, ...], said: str
) -> None:
    user.create("a", "b")
    before = names(user)
    commits = [version(change.id, 0) for change in changes if isinstance(change, NewTable)]
    transaction_id = user.begin()
    with pytest.raises(InvalidRequest, match=said):
        user.ratify(version("b", 1), *commits, names=changes, transaction_id=transaction_id)
    assert (names(user), user.catalog.ledger.sequence()) == (before, 1)
    assert isinstance(user.ratify(version("b", 1), transaction_id=transaction_id), Ratified)


def test_names_stay_when_a_head_moved(user: User) -> None:
    user.create("a")
    assert user.ratify(version("a", 5), version("b", 0), names=(new("b"),)) == HeadsMoved(
        heads={"a": 0}
    )
    assert names(user) == [("a", "a", 0)]


def test_a_dropped_table_is_gone_at_once_and_remembered_until_it_is_published(
    user: User, url: str
) -> None:
    user.create("a")
    user.ratify(version("a", 1), names=(DroppedTable(id="a"),))
    ledger = user.catalog.ledger
    assert names(user) == []
    assert ledger.head("a") is None
    with pytest.raises(InvalidRequest, match=r"default\.a was dropped meanwhile"):
        user.ratify(version("a", 2))
    [left] = ledger.pending_tables()
    assert (left.is_dropped, left.pending) == (True, (version("a", 0), version("a", 1)))
    assert ledger.dropped_tables() == [left]
    with pytest.raises(InvalidRequest, match="aren't published yet"):
        ledger.forget("a")
    ledger.record_publication({"a": VersionRange(0, 1)})
    assert ledger.pending_tables() == []
    [left] = ledger.dropped_tables()
    assert left.pending == ()
    assert ledger.newest_commits(1)[0].table == "default.a"
    ledger.forget("a")
    assert ledger.dropped_tables() == []
    [newest, _] = ledger.newest_commits()
    assert (newest.table, newest.is_published) == (None, True)
    assert ledger.version_at("a", 1) == 0


def test_a_living_table_is_not_forgotten(user: User) -> None:
    user.create("a")
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.catalog.ledger.forget("a")
    assert names(user) == [("a", "a", 0)]


def test_a_dropped_table_outlives_its_database(user: User) -> None:
    user.catalog.create_database("d")
    user.create("a", database="d")
    user.ratify(names=(DroppedTable(id="a"),))
    user.catalog.drop_database("d")
    [left] = user.catalog.ledger.pending_tables()
    assert (left.table_id, left.is_dropped) == ("a", True)
    assert user.catalog.ledger.newest_commits()[0].table == "a"
    assert user.catalog.ledger.sequence() == 2


def test_a_table_comes_with_the_head_that_it_has(user: User) -> None:
    made = user.ratify(version("a", 8), names=(new("a", head=7),))
    assert isinstance(made, Ratified)
    ledger = user.catalog.ledger
    assert ledger.head("a") == Head(version=8, pending=(version("a", 8),))
    assert (ledger.version_at("a", 0), ledger.version_at("a", 1)) == (None, 8)


def test_a_table_may_come_without_a_commit(user: User) -> None:
    user.ratify(names=(new("a", head=7),))
    ledger = user.catalog.ledger
    assert ledger.head("a") == Head(version=7)
    assert (ledger.version_at("a", 0), ledger.version_at("a", 1)) == (None, 7)
    user.write(version("a", 8))
    assert ledger.head("a") == Head(version=8, pending=(version("a", 8),))


def test_a_name_alone_is_attached(user: User) -> None:
    entry = user.name("t", managed=False)
    assert entry.head is None
    attached = NewTable(
        id=entry.id, database="default", name="t", location="file:///t", managed=False, head=3
    )
    user.ratify(version(entry.id, 4), names=(attached,))
    found = user.catalog.find("default", "t")
    assert found is not None
    assert (found.id, found.number, found.head) == (entry.id, entry.number, 4)
    with pytest.raises(InvalidRequest, match="in the lake already"):
        user.ratify(version(entry.id, 4), names=(attached,))


def test_a_table_goes_and_comes_again(user: User) -> None:
    user.ratify(version("a", 8), names=(new("a", head=7),))
    user.ratify(version("a", 9), names=(DroppedTable(id="a"),))
    ledger = user.catalog.ledger
    with pytest.raises(InvalidRequest, match="aren't published yet"):
        user.ratify(names=(new("a", head=9),))
    ledger.record_publication({"a": VersionRange(0, 9)})
    user.ratify(version("a", 10), names=(new("a", head=9),))
    assert ledger.head("a") == Head(version=10, pending=(version("a", 10),))
    assert [ledger.version_at("a", at) for at in (1, 3)] == [8, 10]


def test_a_table_that_went_back_comes_again(user: User) -> None:
    user.create("a")
    for number in (1, 2):
        user.write(version("a", number))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 2)})
    user.ratify(names=(DroppedTable(id="a"),))
    user.ratify(version("a", 2), names=(new("a", head=1),))
    ledger = user.catalog.ledger
    assert ledger.head("a") == Head(version=2, pending=(version("a", 2),))
    assert [ledger.version_at("a", at) for at in (1, 4, 5)] == [0, 0, 2]


def test_names_see_what_was_ratified_in_the_same_group(user: User) -> None:
    """A table that is dropped with its last commit doesn't come again before that is published."""
    user.create("a")
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    requests = [
        Ratification(
            transaction_id=user.begin(),
            commits=(version("a", 1),),
            names=(DroppedTable(id="a"),),
        ),
        Ratification(transaction_id=user.begin(), names=(new("a", head=1),)),
    ]
    database = user.catalog._database
    with write_transaction(database) as connection:
        ratifier = Ratifier(database, Fence("catalog"), user.catalog.unregistered)
        decided = ratifier.decide(connection, requests)
        decided.commit()
    first, second = decided.decisions
    assert isinstance(first, Ratified)
    assert isinstance(second, InvalidRequest)
    [left] = user.catalog.ledger.pending_tables()
    assert left.pending == (version("a", 1),)


def test_two_tables_of_a_lake_are_not_at_one_place(user: User) -> None:
    user.create("a")
    twin = NewTable(
        id="b", database="default", name="b", location="file:///a", managed=False, head=0
    )
    with pytest.raises(InvalidRequest, match="another table at file:///a"):
        user.ratify(names=(twin,))
    user.ratify(names=(DroppedTable(id="a"),))
    for _ in ("unpublished", "not cleared away"):
        with pytest.raises(InvalidRequest, match="isn't published and cleared away yet"):
            user.ratify(names=(twin,))
        user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.catalog.ledger.forget("a")
    assert isinstance(user.ratify(names=(twin,)), Ratified)


def test_names_alone_leave_a_trace(user: User, url: str) -> None:
    transaction_id = user.begin()
    made = user.ratify(names=(new("t"),), transaction_id=transaction_id)
    assert isinstance(made, Ratified)
    trace = "SELECT transaction_id, sequence, time_ms FROM txlake_bare_ratifications"
    assert selected(url, trace) == [(transaction_id, 1, made.time_ms)]
