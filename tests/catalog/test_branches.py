"""Branches in the catalog: names, tables and locks of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from tests.catalog.branching import change_rows, let_expire, of, on_branch
from tests.catalog.ledgers import User, new, version
from tests.catalog.view_changes import create_view
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.pruning import Pruner
from txlake.catalog.relations import tables
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import (
    DroppedTable,
    NewTable,
    Ratified,
    RenamedTable,
    VersionRange,
)

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    """A session on main."""
    return User(opened())


def names_of(catalog: Catalog) -> dict[str, list[str]]:
    """The names of all tables and views."""
    return {
        database.name: [
            *(entry.name for entry in catalog.tables(database.name)),
            *(view.name for view in catalog.views.entries(database.name)),
        ]
        for database in catalog.databases()
    }


def test_a_branch_has_the_names_and_versions_of_its_first_instant(user: User) -> None:
    user.catalog.create_database("Sales", isolation="snapshot")
    user.create("a", "b")
    user.create("c", database="sales")
    create_view(user.catalog, "sales", "v", "SELECT 1", [("x", None)])
    user.write(version("a", 1))
    made = user.catalog.branches.create("Nightly", user_name="me")
    catalog = on_branch(user, "nightly").catalog
    assert names_of(catalog) == names_of(user.catalog)
    assert names_of(catalog) == {"default": ["a", "b"], "Sales": ["c", "v"]}
    assert made.fork_sequence == user.catalog.ledger.sequence()
    sales = catalog.database("SALES")
    assert sales is not None
    assert sales.isolation == "snapshot"
    for name, head in (("a", 1), ("b", 0)):
        entry = catalog.find("default", name)
        assert entry is not None
        assert entry.id != name
        assert (entry.origin_id, entry.base, entry.head, entry.managed) == (name, head, head, False)
        assert entry.location == f"file:///{name}"
        assert catalog.ledger.version_at(entry.id, made.fork_sequence) == head
    assert user.catalog.branches.entries() == [made]


def test_neither_sees_what_the_other_commits(user: User) -> None:
    user.create("a")
    user.catalog.branches.create("x")
    user.catalog.branches.create("y")
    x, y = on_branch(user, "x"), on_branch(user, "y")
    own, _ = of(x.catalog, "a")
    x.write(version(own, 1))
    x.write(version(own, 2))
    user.write(version("a", 1))
    heads = [of(each.catalog, "a")[1] for each in (user, x, y)]
    assert heads == [1, 2, 0]


def test_names_are_the_branchs_own(user: User) -> None:
    user.create("a", "b")
    branch = user.catalog.branches.create("x")
    x = on_branch(user, "x")
    made = NewTable(
        id="n", database="default", name="n", location="file:///n", managed=True,
        branch=branch.number,
    )  # fmt: skip
    renamed = RenamedTable(
        id=of(x.catalog, "a")[0], database="default", name="c", branch=branch.number
    )
    dropped = DroppedTable(id=of(x.catalog, "b")[0], keeps_files=True)
    result = x.ratify(version("n", 0), names=(made, renamed, dropped))
    assert isinstance(result, Ratified)
    x.catalog.create_database("mine")
    create_view(x.catalog, "default", "v", "SELECT 1", [])
    assert names_of(x.catalog) == {"default": ["c", "n", "v"], "mine": []}
    assert names_of(user.catalog) == {"default": ["a", "b"]}
    with pytest.raises(InvalidRequest, match="no database 'mine'"):
        create_view(user.catalog, "mine", "v", "SELECT 1", [])
    user.create("n2")
    assert user.catalog.at_place("file:///n") is None
    assert x.catalog.at_place("file:///n") is not None


def test_a_branch_begins_at_an_instant(user: User) -> None:
    user.create("a")
    instant = user.write(version("a", 1)).sequence
    user.write(version("a", 2))
    user.create("b")
    user.ratify(names=(DroppedTable(id="a", retention_ms=10**9),))
    user.catalog.branches.create("x", instant=instant)
    catalog = on_branch(user, "x").catalog
    assert names_of(catalog) == {"default": ["a"]}
    assert of(catalog, "a")[1] == 1
    with pytest.raises(InvalidRequest, match=r"from 0 to \d+, the newest, found 99"):
        user.catalog.branches.create("y", instant=99)


def test_a_branch_has_the_dropped_tables_whose_files_are_kept(user: User) -> None:
    user.catalog.create_database("d")
    user.create("a", "b", "c", "early")
    user.create("e", database="d")
    user.ratify(names=(DroppedTable(id="early", retention_ms=10**9),))
    instant = user.catalog.ledger.sequence()
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    user.ratify(
        names=(
            DroppedTable(id="a"),
            DroppedTable(id="b"),
            DroppedTable(id="c", retention_ms=10**9),
            DroppedTable(id="e", retention_ms=10**9),
        )
    )
    x.ratify(
        names=(
            DroppedTable(id=of(x.catalog, "b")[0], keeps_files=True),
            DroppedTable(id=of(x.catalog, "c")[0], keeps_files=True),
        )
    )
    user.catalog.drop_database("d")
    user.catalog.branches.create("y", instant=instant)
    assert names_of(on_branch(user, "y").catalog) == {"default": ["a", "c"]}


def test_a_branch_begins_at_no_instant_that_was_pruned(user: User) -> None:
    user.create("a")
    for number in range(1, 9):
        user.write(version("a", number))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 8)})
    Pruner(user.catalog._database, 2).step()
    with pytest.raises(Unavailable, match="instant 3 of the lake is too old"):
        user.catalog.branches.create("x", instant=3)


def test_a_branch_of_a_branch(user: User) -> None:
    user.create("a")
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    own, _ = of(x.catalog, "a")
    x.write(version(own, 1))
    user.catalog.branches.create("y", parent="X")
    y = on_branch(user, "y")
    entry = y.catalog.find("default", "a")
    assert entry is not None
    assert (entry.origin_id, entry.base) == (own, 1)
    parents = [user.catalog.branches.find(name) for name in "xy"]
    ids = [parent.id for parent in parents if parent is not None]
    assert entry.chain == ((ids[0], 0), (ids[1], 1))
    with pytest.raises(InvalidRequest, match="branch 'y' was made from it"):
        user.catalog.branches.drop("x")
    with pytest.raises(InvalidRequest, match="expected an instant from"):
        user.catalog.branches.create("z", parent="x", instant=0)


def test_a_dropped_branch_leaves_nothing(user: User) -> None:
    user.create("a")
    create_view(user.catalog, "default", "v", "SELECT 1", [])
    before = user.catalog.contents.read()
    branch = user.catalog.branches.create("x")
    x = on_branch(user, "x")
    own, _ = of(x.catalog, "a")
    x.write(version(own, 1))
    transaction = x.begin()
    [table] = user.catalog.branches.drop("X")
    assert (table.entry.id, table.entry.location, table.is_changed) == (own, "file:///a", True)
    with pytest.raises(InvalidRequest, match="was dropped meanwhile"):
        x.ratify(version(own, 2), transaction_id=transaction)
    after = user.catalog.contents.read()
    for relation in before:
        # The instants of its transactions stay, as of any that have no commit.
        if relation not in ("txlake_counters", "txlake_bare_ratifications"):
            assert after[relation] == before[relation], relation
    with pytest.raises(InvalidRequest, match="there is no branch 'x': SHOW BRANCHES"):
        user.catalog.branches.drop("x")
    assert user.catalog.branches.find("x") is None
    assert branch.number not in {entry.number for entry in user.catalog.branches.entries()}


def test_names_of_branches(user: User) -> None:
    made = user.catalog.branches.create("x")
    assert user.catalog.branches.create("X", if_not_exists=True) == made
    for name, said in (
        ("x", "there is a branch 'x' already"),
        ("MAIN", "is the lake itself"),
        ("x" * 256, "at"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            user.catalog.branches.create(name)
    with pytest.raises(InvalidRequest, match="no branch 'nowhere'"):
        user.catalog.branches.create("y", parent="nowhere")
    with pytest.raises(InvalidRequest, match="there is a branch 'x' already"):
        user.catalog.branches.create("x", if_not_exists=True, is_tag=True)


def test_the_copy_of_a_long_database_name_is_refused(user: User) -> None:
    user.catalog.create_database("d" * 255)
    with pytest.raises(InvalidRequest, match=r"at most 2\d\d; use"):
        user.catalog.branches.create("x")
    assert user.catalog.branches.entries() == []


def test_new_objects_have_numbers_of_their_own(user: User) -> None:
    """Locks are by numbers: those of a branch are no others'."""
    user.create("a")
    user.catalog.branches.create("x")
    catalog = on_branch(user, "x").catalog
    user.ratify(version("n", 0), names=(new("n"),))
    entries = [*catalog.tables("default"), *user.catalog.tables("default")]
    numbers = {entry.number for entry in entries} | {entry.database_number for entry in entries}
    assert len(numbers) == len(entries) + 2


def test_a_branch_keeps_the_version_that_it_began_with(user: User) -> None:
    user.create("a", "b")
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    for number in range(1, 4):
        user.write(version("a", number), version("b", number))
    ledger = user.catalog.ledger
    assert [ledger.oldest_read(name) for name in "ab"] == [0, 0]
    assert [ledger.oldest_read(name, by_branches=False) for name in "ab"] == [3, 3]
    x.write(version(of(x.catalog, "b")[0], 1))
    assert ledger.oldest_read(of(x.catalog, "b")[0]) == 0, "its own branch began with it"
    x.ratify(names=(DroppedTable(id=of(x.catalog, "a")[0], keeps_files=True),))
    assert [ledger.oldest_read(name) for name in "ab"] == [3, 0]
    user.catalog.branches.drop("x")
    assert [ledger.oldest_read(name) for name in "ab"] == [3, 3]


def test_the_commits_of_the_lake_are_mains(user: User) -> None:
    user.create("a")
    before = user.catalog.ledger.newest_commits()
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    x.write(version(of(x.catalog, "a")[0], 1))
    assert user.catalog.ledger.newest_commits() == before


def test_the_last_instant_by_a_time(opened: Callable[[], Catalog]) -> None:
    user = User(opened())
    branches = user.catalog.branches
    with pytest.raises(InvalidRequest, match="has no instant as old as that time"):
        branches.instant_at(1)
    made = user.create("a")
    assert branches.instant_at(made.time_ms) == made.sequence
    with pytest.raises(InvalidRequest, match=r"that time is [\d,]+ seconds in the future"):
        branches.instant_at(made.time_ms + 10**9)
    later = user.write(version("a", 1))
    while later.time_ms == made.time_ms:
        later = user.write(version("a", later.sequence))
    assert branches.instant_at(later.time_ms - 1) < later.sequence
    assert branches.instant_at(later.time_ms) == later.sequence


def test_a_branch_is_created_after_each_change_of_its_names(user: User) -> None:
    """By the times, which tell publishing what came after it: never of the same millisecond."""
    for number in range(40):
        create_view(user.catalog, "default", f"v{number}", "SELECT 1", [("x", None)])
        branch = user.catalog.branches.create(f"x{number}")
        view = user.catalog.views.find("default", f"v{number}")
        assert view is not None
        assert view.modified_ms < branch.created_ms
        user.catalog.branches.drop(f"x{number}")


# What the view of branches and the console show


def test_expired_branches_end_from_the_newest_on(user: User) -> None:
    made = user.catalog.branches
    for name, parent in (("a", "main"), ("b", "a"), ("c", "main"), ("d", "c")):
        made.create(name, parent=parent, retention_ms=10**9)
    made.create("e", is_tag=True)
    assert made.expired() == []
    let_expire(user, "a", "b", "c", "e")
    found = made.expired()
    assert [entry.name for entry in found] == ["e", "b", "a"]
    assert [made.expire(entry.id) is None for entry in found] == [False] * 3
    assert made.expire(found[0].id) is None, "it has ended"
    last = made.find("d")
    assert last is not None
    assert made.expire(last.id) is None, "its time isn't over"
    with pytest.raises(InvalidRequest, match="branch 'c' has expired: it was kept until 1970-01"):
        made.create("f", parent="c")
    with pytest.raises(InvalidRequest, match="there is a branch 'c' already"):
        made.create("c", if_not_exists=True)
    assert made.create("D", if_not_exists=True) == last


CLOCK_MS = 10**13


class Clock:
    """The times that a catalog's database has, the last one again and again."""

    def __init__(self, patch: pytest.MonkeyPatch, *times_ms: int) -> None:
        self._times_ms = list(times_ms)
        self.readings = 0
        patch.setattr(Database, "now_ms", lambda _, __: self.read())

    def read(self) -> int:
        self.readings += 1
        return self._times_ms.pop(0) if len(self._times_ms) > 1 else self._times_ms[0]


def create_database(on: User, name: str) -> None:
    on.catalog.create_database(name)


def create_table(on: User, name: str) -> None:
    made = NewTable(
        id=name, database="default", name=name, location=f"file:///{name}", managed=True,
        branch=on.catalog.branch,
    )  # fmt: skip
    on.ratify(version(name, 0), names=(made,))
    named = sa.update(tables).where(tables.c.id == name)
    change_rows(on, named.values(modified_ms=CLOCK_MS))


def create_a_view(on: User, name: str) -> None:
    create_view(on.catalog, "default", name, "SELECT 1", [("x", None)])


CREATIONS = pytest.mark.parametrize("create", [create_database, create_table, create_a_view])


@CREATIONS
def test_a_branch_waits_for_a_clock_that_stands_still(
    user: User, create: Callable[[User, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Clock(patch, CLOCK_MS)
        create(user, "n")
        clock = Clock(patch, CLOCK_MS, CLOCK_MS, CLOCK_MS - 1, CLOCK_MS + 1, CLOCK_MS + 2)
        assert user.catalog.branches.create("x").created_ms == CLOCK_MS + 1
        assert clock.readings == 4


@CREATIONS
def test_a_branch_does_not_wait_for_names_of_other_branches(
    user: User, create: Callable[[User, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    user.catalog.branches.create("other")
    with monkeypatch.context() as patch:
        Clock(patch, CLOCK_MS)
        create(on_branch(user, "other"), "n")
        clock = Clock(patch, CLOCK_MS)
        user.catalog.branches.create("x")
        assert clock.readings == 2


def test_what_is_known_of_the_use_of_branches(user: User) -> None:
    user.create("a", "b")
    user.write(version("a", 1))
    x = user.catalog.branches.create("x", user_name="ann")
    user.catalog.branches.create("y", parent="x", is_tag=True)
    on_x = on_branch(user, "x")
    own, _ = of(on_x.catalog, "a")
    on_x.write(version(own, 2))
    on_x.write(version(own, 3))
    on_x.ratify(names=(DroppedTable(id=of(on_x.catalog, "b")[0], keeps_files=True),))
    first, second = user.catalog.branches.usage()
    assert (first.entry, first.parent, first.is_expired) == (x, "main", False)
    assert (first.changed_tables, first.versions, first.is_in_use) == (2, 2, False)
    assert (second.parent, second.changed_tables, second.versions) == ("x", 0, 0)
    assert first.age_ms >= 0
    listed = user.catalog.branches.commits_between(0, 10**15, 10)
    assert [(one.branch, one.table, one.version) for one in listed] == [
        (x.number, "default.a", 3),
        (x.number, "default.a", 2),
    ]
    assert user.catalog.branches.commits_between(0, 10**15, 1) == listed[:1]
    assert user.catalog.branches.commits_between(0, x.created_ms - 1, 10) == []
    shared = user.catalog.branches.shared_tables()
    assert [[(entry.branch, entry.head) for entry in each] for each in shared] == [
        [(0, 1), (x.number, 3), (second.entry.number, 1)],
        [(0, 0), (second.entry.number, 0)],
    ]
    transaction = on_x.begin()
    entry = on_x.catalog.find("default", "a")
    assert entry is not None
    lock = Resource(type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number)
    on_x.catalog.locks.acquire(
        on_x.session, transaction, [LockRequest(resource=lock, mode=LockMode.IX)], 0
    )
    assert [one.is_in_use for one in user.catalog.branches.usage()] == [True, False]


def test_a_name_that_another_branch_has_got_is_not_dropped(user: User) -> None:
    before = user.catalog.branches.create("x")
    user.catalog.branches.drop("x", branch_id=before.id)
    after = user.catalog.branches.create("x")
    with pytest.raises(InvalidRequest, match="there is another one of its name now"):
        user.catalog.branches.drop("x", branch_id=before.id)
    user.catalog.branches.drop("X", branch_id=after.id)
