"""What becomes of a branch's names, reads and traces as it is published, rebased or dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.catalog.branching import ended, of, on_branch
from tests.catalog.ledgers import User, version
from tests.catalog.view_changes import change_view, create_view, rename_view
from txlake.catalog import Catalog
from txlake.catalog.branch_rows import of_kind
from txlake.catalog.views import ViewEntry
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import (
    AdoptedTable,
    DroppedTable,
    EndedBranch,
    NewTable,
    Ratification,
    Ratified,
    ReadRecord,
)

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    """A session on main."""
    return User(opened())


def make(on: User, name: str, *, database: str = "default", managed: bool = True) -> None:
    """Make a table on a branch, with version 0."""
    made = NewTable(
        id=name, database=database, name=name, location=f"file:///{name}", managed=managed,
        branch=on.catalog.branch,
    )  # fmt: skip
    assert isinstance(on.ratify(version(name, 0), names=(made,)), Ratified)


def publish(user: User, name: str, *adopted: tuple[str, str]) -> None:
    """End a branch for main, which adopts tables: their ids, and their databases."""
    new = tuple(
        AdoptedTable(id=table_id, database=database, name=table_id, branch=0)
        for table_id, database in adopted
    )
    user.ratify(names=(*new, ended(user, name, *(one.id for one in new))))


def show(on: User, name: str, query: str = "SELECT 1", *, database: str = "default") -> None:
    create_view(on.catalog, database, name, query, [("x", None)])


def view(on: User, name: str, *, database: str = "default") -> ViewEntry:
    found = on.catalog.views.find(database, name)
    assert found is not None
    return found


def change(on: User, name: str, query: str) -> None:
    change_view(on.catalog, view(on, name), query, [("x", None)])


def shown(on: User, database: str = "default") -> dict[str, str]:
    """The views of a database, by name with their queries."""
    return {one.name: one.query for one in on.catalog.views.entries(database)}


@pytest.mark.parametrize(
    ("name", "ends_first"), [("a", True), ("a", False), ("n", True)], ids=["begun", "late", "new"]
)
def test_a_branch_gets_no_commit_in_the_batch_that_ends_it(
    user: User, name: str, ends_first: bool
) -> None:
    user.create("a")
    branch = user.catalog.branches.create("x")
    x = on_branch(user, "x")
    made = NewTable(
        id="n", database="default", name="n", location="file:///n", managed=True,
        branch=branch.number,
    )  # fmt: skip
    x.ratify(version("n", 0), names=(made,))
    own, head = of(x.catalog, name)
    assert head == 0
    end = Ratification(transaction_id=user.begin(), names=(ended(user, "x"),))
    commit = Ratification(transaction_id=x.begin(), commits=(version(own, 1),))
    requests = [end, commit] if ends_first else [commit, end]
    first, second = user.catalog.ledger._ratify_batch(requests)
    assert isinstance(first, Ratified)
    assert isinstance(second, InvalidRequest if ends_first else Unavailable)
    assert (user.catalog.branches.find("x") is None) == ends_first


@pytest.mark.parametrize("is_published", [True, False])
def test_a_commit_without_a_reply_is_found_after_the_branchs_end(
    user: User, is_published: bool
) -> None:
    """It was ratified, perhaps published: its writer must not take it for a failed one."""
    user.create("a", "b")
    branch = user.catalog.branches.create("x")
    x = on_branch(user, "x")
    made = NewTable(
        id="n", database="default", name="n", location="file:///n", managed=True,
        branch=branch.number,
    )  # fmt: skip
    ids = [x.begin() for _ in range(3)]  # one of which never commits
    own, other = of(x.catalog, "a")[0], of(x.catalog, "b")[0]
    found = [
        x.ratify(version(own, 1), version(other, 1), transaction_id=ids[0]),
        x.ratify(version("n", 0), version(own, 2), names=(made,), transaction_id=ids[1]),
    ]
    if is_published:
        adopted = AdoptedTable(id="n", database="default", name="n", branch=0)
        user.ratify(names=(adopted, ended(user, "x", "n")))
    else:
        user.catalog.branches.drop("x")
    traces = user.catalog.ledger._find_ratified([*ids, branch.id])
    assert all(isinstance(each, Ratified) for each in found)
    assert {each: traces[each].sequence for each in traces} == {ids[0]: 2, ids[1]: 3}


def test_the_traces_of_a_branch_that_was_rebased_are_kept_once(user: User) -> None:
    user.create("a")
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    transaction = x.begin()
    made = NewTable(
        id="n", database="default", name="n", location="file:///n", managed=False,
        branch=x.catalog.branch,
    )  # fmt: skip
    own, _ = of(x.catalog, "a")
    x.ratify(version("n", 0), version(own, 1), names=(made,), transaction_id=transaction)
    successor = user.catalog.branches.create("y")
    adopted = AdoptedTable(id="n", database="default", name="n", branch=successor.number)
    end = ended(user, "x", "n")
    moved = EndedBranch(
        id=end.id, tables=end.tables, target=successor.number, successor=successor.id
    )
    user.ratify(names=(adopted, moved))
    user.catalog.branches.drop("x")
    traces = user.catalog.contents.read()["txlake_bare_ratifications"]
    assert [row["sequence"] for row in traces if row["transaction_id"] == transaction] == [2]
    assert len(traces) == 2, "its own, and the publication's, which has no commit"


def test_a_branch_ends_once(user: User) -> None:
    user.catalog.branches.create("x")
    end = ended(user, "x")
    user.ratify(names=(end,))
    with pytest.raises(InvalidRequest, match="has ended meanwhile: it was published or dropped"):
        user.ratify(names=(end,))


def test_a_table_that_a_dropped_branch_created_is_dropped_now(user: User) -> None:
    user.create("a")
    user.catalog.branches.create("x")
    make(on_branch(user, "x"), "n")
    user.write(version("a", 1))
    user.catalog.branches.drop("x")
    rows = user.catalog.contents.read()["txlake_tables"]
    [dropped] = [row["dropped_sequence"] for row in rows if row["id"] == "n"]
    assert dropped == user.catalog.ledger.sequence()


# What its transactions read


def read_and_write(on: User, reads: dict[str, str], *written: tuple[str, int]) -> None:
    """Commit versions, having read of tables what the records say."""
    records = {
        table_id: ReadRecord(record=record, level="serializable")
        for table_id, record in reads.items()
    }
    commits = tuple(version(*one) for one in written)
    ratified = on.catalog.ledger.ratify(
        Ratification(transaction_id=on.begin(), commits=commits, reads=records)
    )
    assert isinstance(ratified, Ratified)


def test_the_reads_of_a_branch_are_with_the_versions_that_were_committed(user: User) -> None:
    user.create("a", "b")
    for name in "xy":
        user.catalog.branches.create(name)
    x, y = on_branch(user, "x"), on_branch(user, "y")
    a, b = of(x.catalog, "a")[0], of(x.catalog, "b")[0]
    read_and_write(x, {a: "first", b: "other"}, (a, 1), (b, 1))
    read_and_write(x, {a: "second"}, (b, 2))
    read_and_write(x, {a: "third"}, (a, 2))
    of_y = of(y.catalog, "a")[0]
    read_and_write(y, {of_y: "its own"}, (of_y, 1))

    def reads(name: str) -> list[list[tuple[str, int | None]]]:
        entry = user.catalog.branches.find(name)
        assert entry is not None
        tables = user.catalog.branches.tables(entry)
        return [[(one.record, one.version) for one in table.reads] for table in tables]

    assert reads("x") == [[("first", 1), ("second", None), ("third", 2)], [("other", 1)]]
    assert reads("y") == [[("its own", 1)], []]
    user.catalog.branches.drop("x")
    [left] = user.catalog.contents.read()["txlake_branch_reads"]
    assert (left["table_id"], left["record"]) == (of_y, "its own")


def test_a_new_table_is_none_that_a_branch_changed(user: User) -> None:
    user.create("a")
    entry = user.catalog.branches.create("x")
    x = on_branch(user, "x")
    make(x, "n")
    x.write(version("n", 1))
    x.write(version(of(x.catalog, "a")[0], 1))
    tables = user.catalog.branches.tables(entry)
    assert {table.entry.name: table.is_changed for table in tables} == {"a": True, "n": False}


# Its databases and tables


def test_databases_that_a_branch_created_are_published(user: User) -> None:
    for name in "xy":
        user.catalog.branches.create(name)
    x, y = on_branch(user, "x"), on_branch(user, "y")
    for name in ("full", "empty"):
        x.catalog.create_database(name)
    y.catalog.create_database("other")
    make(x, "n", database="full")
    publish(user, "x", ("n", "full"))
    assert {one.name for one in user.catalog.databases()} == {"default", "empty", "full"}
    assert {one.name for one in y.catalog.databases()} == {"default", "other"}
    entry = user.catalog.find("full", "n")
    assert entry is not None
    assert (entry.id, entry.branch) == ("n", 0)


def test_a_database_that_both_created_is_one(user: User) -> None:
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    for each in (user, x):
        each.catalog.create_database("d")
    user.create("a", database="d")
    make(x, "n", database="d")
    publish(user, "x", ("n", "d"))
    assert [entry.name for entry in user.catalog.tables("d")] == ["a", "n"]


def refuse(user: User, names: Sequence[AdoptedTable | EndedBranch], error: str) -> None:
    """The names can't be changed, and stay as they are."""
    before = user.catalog.contents.read()
    with pytest.raises(InvalidRequest, match=error):
        user.ratify(names=tuple(names))
    after = user.catalog.contents.read()
    for relation in ("txlake_tables", "txlake_views", "txlake_databases", "txlake_branches"):
        assert after[relation] == before[relation]


def adoption(name: str, database: str = "default") -> AdoptedTable:
    return AdoptedTable(id=name, database=database, name=name, branch=0)


def test_a_table_whose_database_was_dropped_meanwhile_is_refused(user: User) -> None:
    user.catalog.create_database("d")
    user.catalog.branches.create("x")
    make(on_branch(user, "x"), "n", database="d")
    user.catalog.drop_database("d")
    refuse(user, [adoption("n", "d"), ended(user, "x", "n")], "no database 'd'")
    refuse(user, [adoption("nowhere", "d")], "no database 'd'")


def test_a_table_with_the_name_of_a_view_is_refused(user: User) -> None:
    user.catalog.branches.create("x")
    make(on_branch(user, "x"), "n")
    show(user, "N")
    refuse(user, [adoption("n"), ended(user, "x", "n")], "default.n is a view")


def test_a_table_that_was_dropped_meanwhile_is_refused(user: User) -> None:
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    make(x, "n")
    adopted, end = adoption("n"), ended(user, "x", "n")
    x.ratify(names=(DroppedTable(id="n", keeps_files=True),))
    refuse(user, [adopted, end], "was dropped meanwhile")


# Its views


def test_views_are_published_beside_what_main_changed(user: User) -> None:
    for name in ("changed", "dropped", "renamed", "mains", "gone", "moved"):
        show(user, name)
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    show(x, "new")
    change(x, "changed", "SELECT 2")
    x.catalog.views.drop(view(x, "dropped").id)
    rename_view(x.catalog, view(x, "renamed"), "default", "renamed_here")
    change(user, "mains", "SELECT 3")
    user.catalog.views.drop(view(user, "gone").id)
    rename_view(user.catalog, view(user, "moved"), "default", "moved_there")
    before_ms = view(user, "changed").created_ms
    publish(user, "x")
    assert shown(user) == {
        "changed": "SELECT 2",
        "mains": "SELECT 3",
        "moved_there": "SELECT 1",
        "new": "SELECT 1",
        "renamed_here": "SELECT 1",
    }
    assert view(user, "changed").created_ms == before_ms


def test_views_of_a_new_database_are_published(user: User) -> None:
    show(user, "v", "SELECT 7")
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    x.catalog.create_database("d")
    show(x, "new", database="d")
    rename_view(x.catalog, view(x, "v"), "d", "v")
    publish(user, "x")
    assert shown(user) == {}
    assert shown(user, "d") == {"new": "SELECT 1", "v": "SELECT 7"}


def test_views_of_a_new_database_stay_when_a_later_branch_is_published(user: User) -> None:
    """It began before they came to main: it hasn't dropped them."""
    user.catalog.branches.create("x")
    x = on_branch(user, "x")
    x.catalog.create_database("d")
    show(x, "v", database="d")
    user.catalog.branches.create("y")
    publish(user, "x")
    publish(user, "y")
    assert shown(user, "d") == {"v": "SELECT 1"}


def drop(on: User) -> None:
    on.catalog.views.drop(view(on, "v").id)


def rename(on: User) -> None:
    rename_view(on.catalog, view(on, "v"), "default", "w")


def redefine(on: User) -> None:
    change(on, "v", "SELECT 2")


@pytest.mark.parametrize(
    ("on_branch_x", "on_main", "error"),
    [
        (drop, redefine, "view default.v was changed by branch 'x', and where the branch began"),
        (redefine, redefine, "view default.v was changed by branch 'x', and where the branch"),
        (redefine, drop, "view default.v was changed by branch 'x', and dropped or renamed where"),
        (rename, drop, "view default.w was changed by branch 'x', and dropped or renamed where"),
        (drop, rename, "view default.w was changed by branch 'x', and where the branch began"),
        (redefine, rename, "view default.w was changed by branch 'x', and where the branch began"),
    ],
)
def test_a_view_that_both_changed_is_refused(
    user: User,
    on_branch_x: Callable[[User], None],
    on_main: Callable[[User], None],
    error: str,
) -> None:
    show(user, "v")
    user.catalog.branches.create("x")
    on_branch_x(on_branch(user, "x"))
    on_main(user)
    refuse(user, [ended(user, "x")], error)


def test_a_view_with_the_name_of_a_table_is_refused(user: User) -> None:
    user.catalog.branches.create("x")
    show(on_branch(user, "x"), "V")
    user.create("v")
    refuse(user, [ended(user, "x")], "default.V is a table now; rename the view")


# What a name stands for


def test_a_tag_is_no_branch(user: User) -> None:
    branch = user.catalog.branches.create("b")
    tag = user.catalog.branches.create("t", is_tag=True)
    assert of_kind(branch, "b") == branch
    assert of_kind(tag, "t", is_tag=True) == tag
    for entry, name, is_tag, error in (
        (None, "n", True, "there is no tag 'n': SHOW TAGS"),
        (None, "n", False, "there is no branch 'n': SHOW BRANCHES"),
        (tag, "t", False, "expected a branch, found the tag 't': VERSION AS OF"),
        (branch, "b", True, "expected a tag, found the branch 'b': DROP BRANCH"),
    ):
        with pytest.raises(InvalidRequest, match=error):
            of_kind(entry, name, is_tag=is_tag)
