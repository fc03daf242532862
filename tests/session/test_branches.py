"""Branches: sessions on them, where they begin, rebasing, and what no two of them share."""

from __future__ import annotations

import pytest

from tests.catalog.view_changes import create_view
from tests.session.branch_lake import Lake, end_time_of_branches, tables_of
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    InvalidRequest,
    OutcomeUnknown,
)
from txlake.session.branches import drop_expired
from txlake.session.membership.attachment import attach, detach
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import TableName, TimeTravel


def test_main_and_two_branches_see_nothing_of_each_other(lake: Lake) -> None:
    x, y = lake.on("x"), lake.on("y")
    lake.do("UPDATE t SET v = 10 WHERE id = 1; CREATE TABLE ofx (id INT)", x)
    lake.do("DELETE FROM t WHERE id = 1; DROP TABLE u", y)
    lake.do("INSERT INTO t VALUES (5, 5)")
    own = [sorted(lake.rows("SELECT * FROM t", each)) for each in (x, y, lake.session)]
    rest = [(2, 2), (3, 3), (4, 4)]
    assert own == [[(1, 10), *rest], rest, [(1, 1), *rest, (5, 5)]]
    assert [tables_of(lake, each) for each in (x, y, None)] == [
        ["ofx", "t", "u"],
        ["t"],
        ["t", "u"],
    ]


def test_sessions_of_a_branch_work_together(lake: Lake) -> None:
    first, second = lake.on("x"), lake.on("X", create=False)
    lake.do("BEGIN; UPDATE t SET v = 10 WHERE id = 1", first)
    lake.do("UPDATE t SET v = 20 WHERE id = 2", second)
    lake.do("COMMIT", first)
    assert lake.rows("SELECT * FROM t WHERE id < 3", second) == [(1, 10), (2, 20)]
    lake.do("BEGIN; UPDATE t SET v = 11 WHERE id = 1", first)
    lake.do("UPDATE t SET v = 12 WHERE id = 1", second)
    with pytest.raises(Conflict):
        lake.do("COMMIT", first)


def test_versions_before_the_branch_are_read_on_it(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("DELETE FROM t", x)
    lake.do("DELETE FROM t WHERE id > 1")
    assert lake.rows("SELECT * FROM t", x) == []
    assert lake.rows("SELECT * FROM t") == [(1, 1)]
    first = lake.files_at(TimeTravel(version=1))
    assert lake.files_at(TimeTravel(version=1), x) == first != set()
    assert lake.files_at(TimeTravel(version=2), x) == set()
    assert lake.files_at(TimeTravel(branch_or_tag="main"), x) == lake.data_files("t") != set()
    assert lake.files_at(TimeTravel(branch_or_tag="X")) == set()


def test_a_tag_is_an_instant(lake: Lake) -> None:
    first = lake.data_files("t")
    lake.do("CREATE TAG `2026-01`; DELETE FROM t")
    assert lake.files_at(TimeTravel(branch_or_tag="2026-01")) == first
    assert lake.data_files("t") == set()
    assert [row[0] for row in lake.rows("SHOW TAGS LIKE '2026*'")] == ["2026-01"]
    assert lake.rows("SHOW BRANCHES") == []
    for statement, said in (
        ("USE BRANCH `2026-01`", "found the tag"),
        ("DROP BRANCH `2026-01`", "found the tag"),
        ("CREATE BRANCH `2026-01`", "there is a tag '2026-01' already"),
        ("RESTORE TABLE t TO VERSION AS OF '2026-01'", "expected a version or a time"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            lake.do(statement)
    with pytest.raises(InvalidRequest, match="no branch or tag 'nothing'"):
        lake.files_at(TimeTravel(branch_or_tag="nothing"))
    lake.do("DROP TAG `2026-01`; DROP TAG IF EXISTS `2026-01`")
    with pytest.raises(InvalidRequest, match="there is no tag"):
        lake.do("DROP TAG `2026-01`")


def test_a_branch_begins_where_it_is_told(lake: Lake) -> None:
    instant = lake.catalog.ledger.sequence()
    lake.do(f"DELETE FROM t; CREATE BRANCH early AT INSTANT {instant}")
    early = lake.on("early", create=False)
    assert len(lake.rows("SELECT * FROM t", early)) == 4
    lake.do("DELETE FROM t WHERE id = 1; CREATE BRANCH inner FROM BRANCH early", early)
    inner = lake.on("inner", create=False)
    assert len(lake.rows("SELECT * FROM t", inner)) == 3
    shown = [row[:2] for row in lake.rows("SHOW BRANCHES")]
    assert shown == [("early", "main"), ("inner", "early")]


def test_a_table_of_a_branch_lies_apart(lake: Lake) -> None:
    """Main, and another branch, may create a table of that name."""
    x, y = lake.on("x"), lake.on("y")
    for session in (x, y, None):
        lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1)", session)
    places = {each.engine.catalog.find("default", "n") for each in (x, y, lake.session)}
    assert len({entry.location for entry in places if entry is not None}) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "USE BRANCH main",
        "PUBLISH BRANCH x",
        "REBASE BRANCH x",
        "DROP BRANCH x",
        "CREATE BRANCH z",
        "CREATE TAG z",
    ],
)
def test_a_transaction_keeps_its_branch(lake: Lake, statement: str) -> None:
    x = lake.on("x")
    lake.do("BEGIN; INSERT INTO t VALUES (9, 9)", x)
    with pytest.raises(InvalidRequest, match="a transaction is open"):
        lake.do(statement, x)
    assert lake.rows("SELECT * FROM t WHERE id = 9") == []


def test_what_concerns_all_branches_is_done_on_main(lake: Lake) -> None:
    x = lake.on("x")
    for statement in ("DROP DATABASE d", "ALTER DATABASE default ISOLATION LEVEL SNAPSHOT"):
        with pytest.raises(InvalidRequest, match="isn't done on a branch, and this is 'x'"):
            lake.do(statement, x)
    lake.do("DROP TABLE u", x)
    with pytest.raises(InvalidRequest, match="UNDROP TABLE isn't done on a branch"):
        lake.do("UNDROP TABLE u", x)
    with pytest.raises(InvalidRequest, match="detaching a table isn't done"):
        detach(x, "t")
    with pytest.raises(InvalidRequest, match="attaching a table isn't done"):
        attach(x, lake.path_table(f"{lake.place}-elsewhere"), "p")


@pytest.mark.parametrize("end", ["PUBLISH", "REBASE", "DROP"])
def test_a_commit_on_a_branch_that_has_ended_says_so(lake: Lake, end: str) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); BEGIN; INSERT INTO t VALUES (8, 8)", x)
    lake.do(f"{end} BRANCH x")
    with pytest.raises(InvalidRequest, match="branch 'x' has ended"):
        lake.do("COMMIT", x)
    assert lake.rows("SELECT * FROM t WHERE id = 8") == []


def test_a_rebased_branch_has_what_main_committed(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("UPDATE t SET v = 10 WHERE id = 1; CREATE TABLE n (id BIGINT); DROP TABLE u", x)
    lake.do("INSERT INTO n VALUES (1)", x)
    lake.do("UPDATE t SET v = 20 WHERE id = 2; INSERT INTO t VALUES (5, 5)")
    lake.do("REBASE BRANCH x", x)
    x = lake.on("x", create=False)
    rows = [(1, 10), (2, 20), (3, 3), (4, 4), (5, 5)]
    assert lake.rows("SELECT * FROM t", x) == rows
    assert tables_of(lake, x) == ["n", "t"]
    assert lake.rows("SELECT * FROM n", x) == [(1,)]
    lake.do("UPDATE t SET v = 30 WHERE id = 3", x)
    lake.do("UPDATE t SET v = 40 WHERE id = 4")
    lake.do("PUBLISH BRANCH x", x)
    rows[2:4] = [(3, 30), (4, 40)]
    assert lake.rows("SELECT * FROM t") == rows
    assert tables_of(lake) == ["n", "t"]


def test_a_rebased_branch_has_the_names_that_main_has(lake: Lake) -> None:
    """What main named before the rebase isn't a change of the branch's, nor a conflict."""
    views = lake.catalog.views
    x = lake.on("x")
    create_view(x.engine.catalog.of_lake(), "default", "own", "SELECT 1 AS one", [])
    lake.do("CREATE DATABASE own; CREATE TABLE own.n (id BIGINT)", x)
    lake.do("CREATE DATABASE d; ALTER TABLE u RENAME TO w")
    for name in ("kept", "dropped"):
        create_view(lake.catalog, "default", name, "SELECT 1 AS one", [])
    lake.do("REBASE BRANCH x", x)
    x = lake.on("x", create=False)
    there = x.engine.catalog.of_lake().views
    dropped = there.find("default", "dropped")
    assert dropped is not None
    there.drop(dropped.id)
    lake.do("INSERT INTO w VALUES (2, 2); CREATE TABLE own.m (id BIGINT)", x)
    lake.do("DROP DATABASE d; PUBLISH BRANCH x")
    assert tables_of(lake) == ["t", "w"]
    assert lake.rows("SELECT * FROM w") == [(1, 1), (2, 2)]
    assert [view.name for view in views.entries("default")] == ["kept", "own"]
    assert [each.name for each in lake.catalog.databases()] == ["default", "own"]
    assert lake.rows("SELECT * FROM own.m") == []


def test_a_view_that_another_branch_published_stays(lake: Lake) -> None:
    x = lake.on("x")
    create_view(x.engine.catalog.of_lake(), "default", "w", "SELECT 1 AS one", [])
    y = lake.on("y")
    lake.do("INSERT INTO t VALUES (9, 9)", y)
    lake.do("PUBLISH BRANCH x; PUBLISH BRANCH y")
    assert [view.name for view in lake.catalog.views.entries("default")] == ["w"]


@pytest.mark.parametrize("end", ["PUBLISH BRANCH x", "DROP BRANCH x", "REBASE BRANCH x"])
def test_what_a_killed_rebase_leaves_is_dropped_with_the_branch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    kill_in_rebase(lake, monkeypatch)
    assert len(lake.rows("SHOW BRANCHES")) == 2
    lake.do(end)
    left = ["x"] if end == "REBASE BRANCH x" else []
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == left


def test_what_a_killed_rebase_leaves_can_be_dropped_and_expires(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    kill_in_rebase(lake, monkeypatch)
    kill_in_rebase(lake, monkeypatch)
    [(name, *_, creator, _, kept_until), _, (kept, *_)] = lake.rows("SHOW BRANCHES")
    assert (creator, kept) == ("REBASE BRANCH x", "x")
    assert kept_until is not None
    lake.do(f"DROP BRANCH `{name}`")
    end_time_of_branches(lake)
    drop_expired(lake.engine)
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == ["x"]


def kill_in_rebase(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebase that ends with nothing undone, as a killed process's."""

    def killed(*_: object, **__: object) -> None:
        raise OutcomeUnknown("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit", killed)
        with pytest.raises(OutcomeUnknown):
            lake.do("REBASE BRANCH x")


def test_what_a_rebased_branch_read_is_still_judged(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("UPDATE t SET v = 0 WHERE v > 3", x)
    lake.do("INSERT INTO u VALUES (2, 2)")
    lake.do("REBASE BRANCH x", x)
    lake.do("UPDATE t SET v = 5 WHERE id = 1")
    with pytest.raises(ConcurrentAppendException):
        lake.do("PUBLISH BRANCH x")


def test_a_branch_of_a_branch_is_published_to_it(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("UPDATE t SET v = 10 WHERE id = 1; CREATE BRANCH y", x)
    y = lake.on("y", create=False)
    lake.do("UPDATE t SET v = 20 WHERE id = 2", y)
    with pytest.raises(InvalidRequest, match="branch 'y' was made from it"):
        lake.do("PUBLISH BRANCH x")
    lake.do("PUBLISH BRANCH y")
    assert lake.rows("SELECT * FROM t WHERE id = 2") == [(2, 2)]
    assert lake.rows("SELECT * FROM t WHERE id < 3", x) == [(1, 10), (2, 20)]
    lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t WHERE id < 3") == [(1, 10), (2, 20)]


def test_identity_values_are_given_once(lake: Lake) -> None:
    lake.do("CREATE TABLE i (k BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT)")
    lake.do("INSERT INTO i (v) VALUES (0)")
    x, y = lake.on("x"), lake.on("y")
    for number, session in enumerate((x, None, y, x, None, y)):
        lake.do(f"INSERT INTO i (v) VALUES ({number})", session)
    lake.do("DROP BRANCH y; PUBLISH BRANCH x; INSERT INTO i (v) VALUES (9)")
    keys = [row[0] for row in lake.rows("SELECT k FROM i")]
    assert len(keys) == len(set(keys)) == 6


def test_rows_of_branches_have_ids_of_their_own(lake: Lake) -> None:
    """No two lines hand out the same, and publishing changes none."""
    lake.do("CREATE TABLE r (v BIGINT) TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    lake.do("INSERT INTO r VALUES (0)")
    x, y = lake.on("x"), lake.on("y")
    for session in (x, None, y, x, None, y):
        lake.do("INSERT INTO r VALUES (1)", session)
    given = {**ids_of_files(lake, x), **ids_of_files(lake, y), **ids_of_files(lake)}
    assert len(set(given.values())) == len(given) == 7
    lake.do("PUBLISH BRANCH y; PUBLISH BRANCH x")
    assert ids_of_files(lake) == given
    lake.do("DELETE FROM r WHERE v = 0; INSERT INTO r VALUES (2)")
    found = ids_of_files(lake)
    assert len(set(found.values())) == len(found) == 7


def ids_of_files(lake: Lake, session: Session | None = None) -> dict[str, int | None]:
    """The first row ids of r's files."""
    snapshot = (session or lake.session).snapshot(TableName(("r",)), None)
    return {file.path: file.base_row_id for file in snapshot.files.adds()}
