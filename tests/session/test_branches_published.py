"""Publishing a branch: judged as one transaction, and explained."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import cast

import pytest

from tests.catalog.view_changes import change_view, create_view
from tests.session.branch_lake import (
    Lake,
    explained,
    files_of,
    history,
    once_the_tables_are_known,
    operations,
    tables_of,
)
from tests.session.offline import Offline
from txlake.catalog.commits import CommitLedger
from txlake.commands import HANDLERS
from txlake.commit.membership import membership_of
from txlake.commit.transaction_group import GROUP
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    InvalidRequest,
    MetadataChangedException,
    SerializableIsolationViolation,
    Unavailable,
)
from txlake.ports import Ratification
from txlake.protocol.actions import Action, TransactionGroup
from txlake.session.branch_changes import BRANCH_TAG
from txlake.session.branches import explain_publish
from txlake.session.session import Session
from txlake.sql.statements import TableName


def test_a_branch_is_published_at_one_instant(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("UPDATE t SET v = 10 WHERE id = 1; DELETE FROM t WHERE id = 2", x)
    lake.do("INSERT INTO t VALUES (9, 9); INSERT INTO u VALUES (2, 2)", x)
    lake.do("UPDATE t SET v = 30 WHERE id = 3; INSERT INTO t VALUES (8, 8)")
    before, made = lake.catalog.ledger.sequence(), lake.catalog.branches.find("x")
    assert made is not None
    lake.do("PUBLISH BRANCH x", x)
    assert lake.rows("SELECT * FROM t") == [(1, 10), (3, 30), (4, 4), (8, 8), (9, 9)]
    assert lake.rows("SELECT * FROM u") == [(1, 1), (2, 2)]
    assert lake.catalog.ledger.sequence() == before + 1
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    newest = lake.engine.at_entry(entry).log.history(1)[0]
    assert (newest["version"], newest["operation"]) == (4, "PUBLISH BRANCH")
    assert newest["operationParameters"] == {
        "branch": "x",
        "branchInstant": str(made.fork_sequence),
        "branchCreated": str(made.created_ms),
    }
    assert lake.rows("SHOW BRANCHES") == []
    with pytest.raises(InvalidRequest, match="branch 'x' has ended: it was published"):
        lake.do("INSERT INTO t VALUES (1, 1)", x)
    with pytest.raises(InvalidRequest, match="published or dropped has ended"):
        lake.do("PUBLISH BRANCH x")


@pytest.mark.parametrize(
    ("on_branch", "on_main", "error"),
    [
        (
            "UPDATE t SET v = 0 WHERE id = 1",
            "UPDATE t SET v = 5 WHERE id = 1",
            ConcurrentAppendException,
        ),
        (
            "UPDATE t SET v = 0 WHERE id = 1",
            "DELETE FROM t WHERE id = 1",
            ConcurrentDeleteDeleteException,
        ),
        (
            "DELETE FROM t WHERE id = 1",
            "DELETE FROM t WHERE id = 1",
            ConcurrentDeleteDeleteException,
        ),
        (
            "UPDATE t SET v = 0 WHERE v > 3",
            "UPDATE t SET v = 5 WHERE id = 1",
            ConcurrentAppendException,
        ),
        (
            "UPDATE t SET v = 0 WHERE id = 1",
            "ALTER TABLE t ADD COLUMN w INT",
            MetadataChangedException,
        ),
        (
            "ALTER TABLE t ADD COLUMN w INT",
            "ALTER TABLE t ADD COLUMN w INT",
            MetadataChangedException,
        ),
    ],
)
def test_what_main_changed_meanwhile_conflicts(
    lake: Lake, on_branch: str, on_main: str, error: type[Conflict]
) -> None:
    """A conflict names the commits of both, and what to do."""
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (8, 0)", x)
    lake.do(on_branch, x)
    lake.do("DELETE FROM t WHERE id = 3", x)
    lake.do("INSERT INTO t VALUES (9, 0)")
    lake.do(on_main)
    shown, theirs = lake.rows("SELECT * FROM t"), lake.rows("SELECT * FROM t", x)
    [explained] = explain_publish(lake.session, "x")
    assert type(explained.conflict) is error
    number = 2 if "ALTER" in on_main and "ALTER" not in on_branch else 3
    told = (
        rf"^default\.t: this transaction read version 1; since then version 3 \(.*a plain retry "
        rf"cannot succeed\)\. Of branch 'x' it concerns version {number} \([A-Z ]+\) at .*Z\. "
        r"Running PUBLISH again meets the same conflict: drop the branch, and run its statements "
        r"again on a new one\.$"
    )
    assert re.match(told, str(explained.conflict))
    with pytest.raises(error, match=told) as raised:
        lake.do("PUBLISH BRANCH x")
    assert raised.value.evidence is not None
    assert str(raised.value.evidence.branch_commit).startswith(f"version {number} (")
    with pytest.raises(error, match=told):
        lake.do("REBASE BRANCH x")
    assert lake.rows("SELECT * FROM t") == shown
    assert lake.rows("SELECT * FROM t", x) == theirs, "the branch stays"
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == ["x"]


@pytest.mark.parametrize("level", ["SNAPSHOT", "WRITE SERIALIZABLE", "SERIALIZABLE"])
def test_the_levels_of_its_transactions_count(lake: Lake, level: str) -> None:
    """A SELECT, also of a table that the branch never changed, and the condition of a write."""
    x = lake.on("x")
    lake.do(f"SET TRANSACTION ISOLATION LEVEL {level}; BEGIN", x)
    lake.rows("SELECT * FROM u WHERE v > 0", x)
    lake.do("INSERT INTO t VALUES (9, 9); COMMIT", x)
    lake.do("UPDATE u SET v = 7 WHERE id = 1")
    if level == "SERIALIZABLE":
        what = r"default\.u.* it concerns a transaction that read the table\. Running"
        with pytest.raises(SerializableIsolationViolation, match=what):
            lake.do("PUBLISH BRANCH x")
    else:
        lake.do("PUBLISH BRANCH x")
    y = lake.on("y")
    lake.do(f"SET TRANSACTION ISOLATION LEVEL {level}; UPDATE t SET v = 0 WHERE v = 4", y)
    lake.do("UPDATE t SET v = 4 WHERE id = 1")
    if level == "SNAPSHOT":
        lake.do("PUBLISH BRANCH y")
    else:
        with pytest.raises(ConcurrentAppendException):
            lake.do("PUBLISH BRANCH y")


def test_definitions_are_published(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("ALTER TABLE t ADD COLUMN w BIGINT; INSERT INTO t VALUES (9, 9, 9)", x)
    lake.do("CREATE DATABASE d; CREATE TABLE d.n (id BIGINT); INSERT INTO d.n VALUES (1)", x)
    lake.do("CREATE TABLE m (id BIGINT); DROP TABLE u; CREATE TABLE gone (id BIGINT)", x)
    lake.do("DROP TABLE gone; INSERT INTO m VALUES (2)", x)
    create_view(x.engine.catalog.of_lake(), "default", "w", "SELECT 1 AS one", [])
    changed = [row[:2] for row in lake.rows("DESCRIBE BRANCH x")]
    assert changed == [
        ("d.n", "created"),
        ("default.m", "created"),
        ("default.t", "changed"),
        ("default.u", "dropped"),
    ]
    lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t WHERE w = 9") == [(9, 9, 9)]
    assert lake.rows("SELECT * FROM d.n") == [(1,)]
    assert lake.rows("SELECT * FROM m") == [(2,)]
    assert tables_of(lake) == ["m", "t"]
    assert [view.name for view in lake.catalog.views.entries("default")] == ["w"]
    lake.do("INSERT INTO m VALUES (3); INSERT INTO d.n VALUES (4); CREATE BRANCH y; USE BRANCH y")
    assert lake.rows("SELECT * FROM m") == [(2,), (3,)]


def test_names_are_published(lake: Lake) -> None:
    views = lake.catalog.views
    for name in ("kept", "changed", "dropped"):
        create_view(lake.catalog, "default", name, "SELECT 1 AS one", [])
    x = lake.on("x")
    own = x.engine.catalog.of_lake().views
    changed, dropped = own.find("default", "changed"), own.find("default", "dropped")
    assert changed is not None
    assert dropped is not None
    change_view(x.engine.catalog.of_lake(), changed, "SELECT 2 AS two", [])
    own.drop(dropped.id)
    lake.do("ALTER TABLE u RENAME TO renamed; INSERT INTO renamed VALUES (2, 2)", x)
    lake.do("ALTER TABLE t RENAME TO t2", x)
    branchs, mains = (
        membership_of(each.snapshot(TableName((name,))))
        for each, name in ((x, "t2"), (lake.session, "t"))
    )
    assert branchs is not None
    assert branchs == mains, "whose table it is, main says until then"
    lake.do("PUBLISH BRANCH x")
    now = membership_of(lake.session.snapshot(TableName(("t2",))))
    assert now is not None
    assert now.name == "default.t2"
    assert tables_of(lake) == ["renamed", "t2"]
    assert lake.rows("SELECT * FROM renamed") == [(1, 1), (2, 2)]
    shown = [(view.name, view.query) for view in views.entries("default")]
    assert shown == [("changed", "SELECT 2 AS two"), ("kept", "SELECT 1 AS one")]


def test_names_that_changed_on_both_sides_are_refused(lake: Lake) -> None:
    create_view(lake.catalog, "default", "w", "SELECT 1 AS one", [])
    x = lake.on("x")
    for catalog in (x.engine.catalog.of_lake(), lake.catalog):
        view = catalog.views.find("default", "w")
        assert view is not None
        change_view(catalog, view, "SELECT 2 AS two", [])
    with pytest.raises(InvalidRequest, match=r"view default\.w was changed by branch 'x'"):
        lake.do("PUBLISH BRANCH x")
    y = lake.on("y")
    lake.do("CREATE TABLE n (id BIGINT)", y)
    lake.do("CREATE TABLE n (id BIGINT)")
    with pytest.raises(InvalidRequest, match=r"default\.n exists already: it was created since"):
        lake.do("PUBLISH BRANCH y")
    z = lake.on("z")
    lake.do("DROP TABLE u", z)
    lake.do("INSERT INTO u VALUES (2, 2)")
    with pytest.raises(InvalidRequest, match=r"dropped default\.u, which has changed since"):
        lake.do("PUBLISH BRANCH z")
    lake.do("ALTER TABLE t RENAME TO t2; CREATE BRANCH o")
    o = lake.on("o", create=False)
    lake.do("INSERT INTO t2 VALUES (7, 7)", o)
    lake.do("DROP TABLE t2")
    with pytest.raises(InvalidRequest, match=r"t2 was dropped where the branch began"):
        lake.do("PUBLISH BRANCH o")
    assert tables_of(lake) == ["n", "u"]


def test_a_commit_that_comes_while_it_is_published_is_not_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    once_the_tables_are_known(monkeypatch, lambda: lake.do("INSERT INTO u VALUES (9, 9)", x))
    with pytest.raises(Unavailable, match="got another commit while it was published"):
        lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t WHERE id = 9") == []
    lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM u WHERE id = 9") == [(9, 9)]


@pytest.mark.parametrize("statement", ["DROP TABLE u", "ALTER TABLE u RENAME TO u2"])
def test_names_that_change_while_it_is_published_are_not_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    once_the_tables_are_known(monkeypatch, lambda: lake.do(statement, x))
    with pytest.raises(Unavailable, match="got another commit while it was published"):
        lake.do("PUBLISH BRANCH x")
    lake.do("PUBLISH BRANCH x")
    assert "u" not in tables_of(lake)


def test_a_name_that_another_table_gave_up_is_published(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("ALTER TABLE u RENAME TO z; ALTER TABLE t RENAME TO u", x)
    lake.do("PUBLISH BRANCH x")
    assert tables_of(lake) == ["u", "z"]
    assert lake.rows("SELECT * FROM z") == [(1, 1)]
    y = lake.on("y")
    lake.do("ALTER TABLE u RENAME TO w; ALTER TABLE w RENAME TO u; DELETE FROM u WHERE id > 1", y)
    lake.do("PUBLISH BRANCH y")
    assert lake.rows("SELECT * FROM u") == [(1, 1)], "it has its name again"


def test_names_that_were_exchanged_are_refused(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("ALTER TABLE t RENAME TO w; ALTER TABLE u RENAME TO t; ALTER TABLE w RENAME TO u", x)
    with pytest.raises(InvalidRequest, match=r"exchanged the names of default\.t and default\.u"):
        lake.do("PUBLISH BRANCH x")
    lake.do("ALTER TABLE t RENAME TO a; ALTER TABLE u RENAME TO b", x)
    lake.do("PUBLISH BRANCH x")
    assert tables_of(lake) == ["a", "b"]


def test_a_table_renamed_into_a_new_database_is_refused(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("CREATE DATABASE d; ALTER TABLE u RENAME TO d.u", x)
    with pytest.raises(InvalidRequest, match=r"into a database that it created: CREATE DATABASE"):
        lake.do("PUBLISH BRANCH x")
    lake.do("CREATE DATABASE d; PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM d.u") == [(1, 1)]


def test_it_is_published_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    once_the_tables_are_known(
        monkeypatch, lambda: lake.do("PUBLISH BRANCH x", Session(lake.engine, HANDLERS))
    )
    with pytest.raises((InvalidRequest, Conflict)):
        lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t WHERE id = 9") == [(9, 9)]


def is_group(action: Action) -> bool:
    return isinstance(action, TransactionGroup)


def test_a_table_gets_the_versions_of_the_branch(lake: Lake) -> None:
    """One by one, at one instant, where nobody else has changed it; else the net changes."""
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); UPDATE t SET v = 0 WHERE id = 1", x)
    lake.do("ALTER TABLE t ADD COLUMN w INT", x)
    lake.do("BEGIN; DELETE FROM t WHERE id = 9; INSERT INTO u VALUES (2, 2); COMMIT", x)
    lake.do("INSERT INTO u VALUES (3, 3)", x)
    assert [one for one in history(lake, "t", 2, x) if any(map(is_group, one.actions))]
    ours = [files_of(lake, version, x) for version in range(2, 6)]
    lake.do("INSERT INTO u VALUES (4, 4)")
    before = lake.catalog.ledger.sequence()
    lake.do("PUBLISH BRANCH x PER TABLE")
    assert lake.catalog.ledger.sequence() == before + 1
    made = history(lake, "t", 2)
    assert operations(made) == ["WRITE", "UPDATE", "ADD COLUMNS", "DELETE"]
    assert operations(history(lake, "u", 2)) == ["WRITE", "PUBLISH BRANCH"]
    tags = [one.info.values["tags"] for one in made if one.info is not None]
    assert [cast("dict[str, str]", tag)[BRANCH_TAG] for tag in tags] == ["x"] * 4
    assert len({cast("dict[str, str]", tag)[GROUP] for tag in tags}) == 1
    groups = [action for one in made for action in one.actions if is_group(action)]
    assert len(groups) == len(made)
    assert all(one == groups[0] for one in groups)
    assert len(cast("TransactionGroup", groups[0]).participants or ()) == len(made) + 1
    assert [files_of(lake, version) for version in range(2, 6)] == ours
    assert lake.rows("SELECT id, v FROM t") == [(1, 0), (2, 2), (3, 3), (4, 4)]
    assert lake.rows("SELECT id FROM u") == [(1,), (2,), (3,), (4,)]
    lake.do("INSERT INTO t VALUES (5, 5, 5)")
    fresh = Offline(lake.place, lake.catalog)
    entry = fresh.engine.catalog.find("default", "t")
    assert entry is not None
    assert fresh.engine.at_entry(entry).log.latest().version == 6


def test_a_commit_that_comes_between_makes_it_one_version(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt to commit the branch's versions finds them taken."""
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (8, 8); INSERT INTO t VALUES (9, 9)", x)
    ratify = CommitLedger.ratify

    def late(self: CommitLedger, request: Ratification) -> object:
        monkeypatch.undo()
        lake.do("INSERT INTO t VALUES (7, 7)")
        return ratify(self, request)

    monkeypatch.setattr(CommitLedger, "ratify", late)
    lake.do("PUBLISH BRANCH x PER TABLE")
    assert operations(history(lake, "t", 2)) == ["WRITE", "PUBLISH BRANCH"]
    assert [row[0] for row in lake.rows("SELECT id FROM t WHERE id > 6")] == [7, 8, 9]


def test_versions_are_published_through_another_branch(lake: Lake) -> None:
    """Which is judged by what they read, and knows where their rows are from."""
    x = lake.on("x")
    lake.do("CREATE BRANCH y FROM BRANCH x")
    y = lake.on("y", create=False)
    lake.do("UPDATE t SET v = 0 WHERE v > 3; DELETE FROM t WHERE id = 1", y)
    lake.do("PUBLISH BRANCH y PER TABLE")
    assert operations(history(lake, "t", 2, x)) == ["UPDATE", "DELETE"]
    lake.do("UPDATE t SET v = 6 WHERE id = 2")
    with pytest.raises(ConcurrentAppendException, match=r"it concerns version 2 \(UPDATE\)"):
        lake.do("PUBLISH BRANCH x PER TABLE")
    lake.do("DROP BRANCH x")
    z = lake.on("z")
    lake.do("DELETE FROM t WHERE id = 1; DELETE FROM t WHERE id = 2", z)
    lake.do("PUBLISH BRANCH z PER TABLE")
    assert operations(history(lake, "t", 3)) == ["DELETE", "DELETE"]


def test_what_stops_a_publication_is_explained_table_by_table(lake: Lake) -> None:
    for name in ("dropped", "gone", "named"):
        lake.do(f"CREATE TABLE {name} (id BIGINT); INSERT INTO {name} VALUES (1)")
    x = lake.on("x")
    lake.do("UPDATE t SET v = 0 WHERE id = 1; INSERT INTO u VALUES (2, 2)", x)
    lake.do("INSERT INTO gone VALUES (2); DROP TABLE dropped; CREATE TABLE n (id BIGINT)", x)
    lake.do("ALTER TABLE named RENAME TO other", x)
    names = ("t", "u", "gone", "dropped", "n", "named")
    assert explained(lake, "x") == dict.fromkeys((f"default.{name}" for name in names), "")
    lake.do("UPDATE t SET v = 1 WHERE id = 1; DROP TABLE gone; CREATE TABLE n (id BIGINT)")
    lake.do("INSERT INTO dropped VALUES (2); ALTER TABLE named RENAME TO third")
    found = explained(lake, "x")
    assert "since then version 2 (UPDATE)" in found.pop("default.t")
    assert "gone was dropped where the branch began" in found.pop("default.gone")
    assert "dropped default.dropped, which has changed" in found.pop("default.dropped")
    assert "default.n exists already" in found.pop("default.n")
    assert "which was dropped or renamed where" in found.pop("default.third")
    assert found == {"default.u": ""}
    assert lake.rows("SELECT id FROM u") == [(1,)]


def test_names_that_were_exchanged_are_explained(lake: Lake) -> None:
    x = lake.on("x")
    for old, new in (("t", "s"), ("u", "t"), ("s", "u")):
        lake.do(f"ALTER TABLE {old} RENAME TO {new}", x)
    found = explained(lake, "x")
    assert found.keys() == {"default.t", "default.u"}
    assert all(
        "has exchanged the names of default.t and default.u" in text for text in found.values()
    )


def test_names_alone_are_explained_of_the_branch(lake: Lake) -> None:
    create_view(lake.catalog, "default", "w", "SELECT 1 AS one", [])
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); DROP TABLE u", x)
    create_view(x.engine.catalog.of_lake(), "default", "u", "SELECT 3 AS three", [])
    assert explained(lake, "x") == {"default.t": "", "default.u": ""}
    for catalog in (x.engine.catalog.of_lake(), lake.catalog):
        view = catalog.views.find("default", "w")
        assert view is not None
        change_view(catalog, view, "SELECT 2 AS two", [])
    found = explained(lake, "x")
    assert "view default.w was changed by branch 'x'" in found.pop("branch x")
    assert found == {"default.t": "", "default.u": ""}
    lake.do("DROP BRANCH x")
    assert [view.query for view in lake.catalog.views.entries("default")] == ["SELECT 2 AS two"]


def test_the_rows_that_a_branch_changed_are_counted(lake: Lake) -> None:
    """Net where the feed or the beginning tells, else as statements reported."""
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    lake.do(f"CREATE TABLE f (id BIGINT, v BIGINT) {feed}; CREATE TABLE named (id BIGINT)")
    lake.do("INSERT INTO f VALUES (1, 1), (2, 2), (3, 3); DELETE FROM t WHERE id = 4")
    x = lake.on("x")
    lake.do("INSERT INTO f VALUES (4, 4), (5, 5); DELETE FROM f WHERE id IN (1, 4)", x)
    lake.do("UPDATE t SET v = 0 WHERE id < 3; INSERT INTO t VALUES (7, 7)", x)
    lake.do("DELETE FROM t WHERE id IN (1, 7); DROP TABLE u", x)
    lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1), (2); DELETE FROM n", x)
    lake.do("INSERT INTO n VALUES (3); ALTER TABLE named RENAME TO other", x)
    counted = [
        ("default.f", "changed", 1, 3, 1, 0, 1),
        ("default.n", "created", None, 3, 1, 0, 0),
        ("default.other", "renamed", 0, 0, 0, 0, 0),
        ("default.t", "changed", 2, 5, 1, 2, 2),
        ("default.u", "dropped", 1, 1, None, None, None),
    ]
    assert lake.rows("DESCRIBE BRANCH x") == counted
    lake.do("INSERT INTO t VALUES (8, 8); REBASE BRANCH x")
    rebased = {str(row[0]): row[4:] for row in lake.rows("DESCRIBE BRANCH x")}
    assert rebased["default.t"] == (1, 2, 2)
    assert rebased["default.f"] == (1, 0, 1)
    lake.do("PUBLISH BRANCH x")
    [newest] = history(lake, "t", 4)
    assert newest.info is not None
    metrics = cast("dict[str, str]", newest.info.values["operationMetrics"])
    names = ("numOutputRows", "numUpdatedRows", "numDeletedRows")
    assert [metrics[name] for name in names] == ["1", "2", "2"]


def _statements(chance: random.Random, keys: list[int]) -> list[str]:
    """Random changes of rows with these keys."""
    made: list[Callable[[int], str]] = [
        lambda key: f"UPDATE t SET v = v + {chance.randrange(1, 9)} WHERE id = {key}",
        lambda key: f"DELETE FROM t WHERE id = {key}",
        lambda key: f"INSERT INTO t VALUES ({key}, {chance.randrange(100)})",
        lambda key: f"UPDATE t SET v = 0 WHERE id = {key} AND v > 50",
    ]
    return [chance.choice(made)(chance.choice(keys)) for _ in range(chance.randrange(1, 6))]


@pytest.mark.parametrize("seed", range(25))
def test_publishing_is_as_if_the_branch_came_after_main(seed: int) -> None:
    """Whatever the two did: equal to main's statements, and then the branch's; or a conflict.

    Where no row is both's, there is none.
    """
    chance = random.Random(seed)
    is_disjoint = chance.random() < 0.5
    ours, theirs = [1, 2, 3, 4], [5, 6, 7, 8] if is_disjoint else [3, 4, 5, 6]
    on_branch, on_main = _statements(chance, ours), _statements(chance, theirs)
    lake, serial = Lake(), Lake()
    for each in (lake, serial):
        each.do("CREATE TABLE t (id BIGINT, v BIGINT)")
        each.do("INSERT INTO t VALUES (1, 1), (2, 60), (3, 3), (4, 70), (5, 5), (6, 80)")
    x = lake.on("x")
    turns = [True] * len(on_branch) + [False] * len(on_main)
    chance.shuffle(turns)
    left = {True: iter(on_branch), False: iter(on_main)}
    for is_branchs in turns:
        lake.do(next(left[is_branchs]), x if is_branchs else None)
        if chance.random() < 0.2:
            try:
                lake.do("REBASE BRANCH x")
            except Conflict:
                assert not is_disjoint
            else:
                x = lake.on("x", create=False)
    for text in (*on_main, *on_branch):
        serial.do(text)
    try:
        lake.do("PUBLISH BRANCH x")
    except Conflict:
        assert not is_disjoint
    else:
        assert lake.rows("SELECT * FROM t") == serial.rows("SELECT * FROM t")


def test_a_read_of_all_rows_conflicts_with_any_change(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("DELETE FROM t", x)
    lake.do("DELETE FROM t WHERE id = 1")
    with pytest.raises((ConcurrentDeleteReadException, Conflict)):
        lake.do("PUBLISH BRANCH x")
