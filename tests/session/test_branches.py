"""Branches: neither sees the other, and publishing is judged as one transaction."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.session.offline import Offline
from txlake.catalog.branch_rows import BranchTable
from txlake.catalog.branches import Branches
from txlake.catalog.commits import CommitLedger
from txlake.catalog.relations import branches
from txlake.commands import HANDLERS
from txlake.commit import vacuum
from txlake.commit.commit_info import GROUP
from txlake.commit.membership import membership_of
from txlake.commit.notice_commit import commit_notice
from txlake.commit.table_log import Commit, TableLog
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    InvalidRequest,
    MetadataChangedException,
    OutcomeUnknown,
    SerializableIsolationViolation,
    Unavailable,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import Ratification
from txlake.protocol.deletion_vectors import vector_path
from txlake.session.branch_changes import BRANCH_TAG
from txlake.session.branches import drop_expired, explain_publish
from txlake.session.command import AsRows
from txlake.session.engine import Engine
from txlake.session.membership.attachment import attach, detach
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.membership.opening import open_lake
from txlake.session.membership.recovery import recover
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import Select, TableName, TimeTravel
from txlake.storage import open_store
from txlake.system import System

Row = tuple[object, ...]


class Lake(Offline):
    """A lake whose sessions answer plain queries without Spark."""

    def on(self, name: str, *, create: bool = True) -> Session:
        """A session on a branch."""
        session = Session(self.engine, HANDLERS)
        if create:
            self.do(f"CREATE BRANCH {name}", session)
        self.do(f"USE BRANCH {name}", session)
        return session

    def on_expired(self, name: str) -> Session:
        """A session that uses a branch whose time is over since."""
        entry = self.catalog.branches.find(name)
        assert entry is not None
        return Session(self.engine.on_branch(entry), HANDLERS)

    def do(self, text: str, session: Session | None = None) -> None:
        """Statements as a session's user runs them."""
        used = session or self.session
        for statement in parse(text):
            used.perform(statement)

    def rows(self, text: str, session: Session | None = None) -> list[Row]:
        """The sorted rows of a query, or of a statement that has some."""
        [statement] = parse(text)
        if isinstance(statement, Select):
            statement = replace(statement, as_values=True)
        used = session or self.session
        rows = used.answer_in(used.current, statement)(AsRows())
        assert isinstance(rows, Rows)
        return sorted(rows.rows)

    def data_files(self, name: str, session: Session | None = None) -> set[str]:
        """The data files of a table's newest version."""
        engine: Engine = (session or self.session).engine
        entry = engine.catalog.find("default", name)
        assert entry is not None
        return paths_of(engine.at_entry(entry).log.latest())

    def begin_elsewhere(self) -> None:
        """A transaction of another session, which reads the newest instant and stays open."""
        self.elsewhere = Session(self.engine, HANDLERS)
        self.do("BEGIN", self.elsewhere)
        self.rows("SELECT * FROM u", self.elsewhere)

    def files_at(self, travel: TimeTravel, session: Session | None = None) -> set[str]:
        """The data files of a version of t."""
        return paths_of((session or self.session).snapshot(TableName(("t",)), travel))


def paths_of(snapshot: Snapshot) -> set[str]:
    return {add.path for add in snapshot.files.adds()}


@pytest.fixture
def lake() -> Lake:
    made = Lake()
    made.do("CREATE TABLE t (id BIGINT, v BIGINT); CREATE TABLE u (id BIGINT, v BIGINT)")
    made.do("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4); INSERT INTO u VALUES (1, 1)")
    return made


def tables_of(lake: Lake, session: Session | None = None) -> list[object]:
    return [row[1] for row in lake.rows("SHOW TABLES", session)]


# Work on branches


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


# Publishing


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
    x.engine.catalog.of_lake().views.create("default", "w", "SELECT 1 AS one", [])
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
        views.create("default", name, "SELECT 1 AS one", [])
    x = lake.on("x")
    own = x.engine.catalog.of_lake().views
    changed, dropped = own.find("default", "changed"), own.find("default", "dropped")
    assert changed is not None
    assert dropped is not None
    own.change(changed.id, "SELECT 2 AS two", [])
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
    views = lake.catalog.views
    views.create("default", "w", "SELECT 1 AS one", [])
    x = lake.on("x")
    for catalog in (x.engine.catalog.of_lake(), lake.catalog):
        view = catalog.views.find("default", "w")
        assert view is not None
        catalog.views.change(view.id, "SELECT 2 AS two", [])
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
    tables = Branches.tables

    def and_one_more(self: Branches, entry: object) -> list[BranchTable]:
        found = tables(self, entry)  # type: ignore[arg-type]
        monkeypatch.undo()
        lake.do("INSERT INTO u VALUES (9, 9)", x)
        return found

    monkeypatch.setattr(Branches, "tables", and_one_more)
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
    tables = Branches.tables

    def and_one_more(self: Branches, entry: object) -> list[BranchTable]:
        found = tables(self, entry)  # type: ignore[arg-type]
        monkeypatch.undo()
        lake.do(statement, x)
        return found

    monkeypatch.setattr(Branches, "tables", and_one_more)
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
    tables = Branches.tables

    def and_published(self: Branches, entry: object) -> list[BranchTable]:
        found = tables(self, entry)  # type: ignore[arg-type]
        monkeypatch.undo()
        lake.do("PUBLISH BRANCH x", Session(lake.engine, HANDLERS))
        return found

    monkeypatch.setattr(Branches, "tables", and_published)
    with pytest.raises((InvalidRequest, Conflict)):
        lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t WHERE id = 9") == [(9, 9)]


# Rebasing


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
    x.engine.catalog.of_lake().views.create("default", "own", "SELECT 1 AS one", [])
    lake.do("CREATE DATABASE own; CREATE TABLE own.n (id BIGINT)", x)
    lake.do("CREATE DATABASE d; ALTER TABLE u RENAME TO w")
    for name in ("kept", "dropped"):
        views.create("default", name, "SELECT 1 AS one", [])
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
    x.engine.catalog.of_lake().views.create("default", "w", "SELECT 1 AS one", [])
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


# The view


def branch_view(lake: Lake) -> dict[object, dict[str, object]]:
    """The rows of the view, by the branch's name."""
    rows = lake.session.catalog_view("txlake.branches")
    return {row[0]: dict(zip(rows.schema.names, row, strict=True)) for row in rows.rows}


def test_the_view_counts_what_a_branch_did(lake: Lake) -> None:
    x, y = lake.on("x"), lake.on("y")
    lake.do("CREATE TAG old")
    lake.do("INSERT INTO t VALUES (8, 8); INSERT INTO t VALUES (9, 9); DROP TABLE u", x)
    lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1)", x)
    lake.do("CREATE TABLE gone (id BIGINT); DROP TABLE gone", x)
    lake.do("BEGIN; INSERT INTO u VALUES (8, 8)", y)
    lake.do("INSERT INTO t VALUES (7, 7)")
    shown = branch_view(lake)
    columns = ("kind", "parent", "changed_tables", "versions", "is_in_use", "is_expired")
    assert {name: tuple(row[column] for column in columns) for name, row in shown.items()} == {
        "old": ("tag", "main", 0, 0, False, False),
        "x": ("branch", "main", 3, 4, False, False),
        "y": ("branch", "main", 0, 0, True, False),
    }
    described = lake.rows("DESCRIBE BRANCH x")
    assert len(described) == 3
    lake.do("COMMIT", y)
    end_time_of_branches(lake, "y")
    shown = branch_view(lake)
    assert [shown["y"][column] for column in columns[2:]] == [1, 1, False, True]


@pytest.mark.parametrize("seed", range(6))
def test_the_size_is_what_vacuum_deletes_when_the_branch_is_gone(lake: Lake, seed: int) -> None:
    """The view says it, with the data files of what was done on main, branches and a tag."""
    chance = random.Random(seed)
    zero = "TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    lake.do(f"ALTER TABLE t SET {zero}; ALTER TABLE u SET {zero}")
    sessions = {"main": lake.session}
    for number in range(1, 40):
        at = chance.choice(list(sessions))
        if chance.random() < 0.15 and len(sessions) < 4:
            sessions[f"b{number}"] = lake.on(f"b{number}")
        elif chance.random() < 0.1:
            lake.do(f"CREATE TAG tag{number}", sessions[at])
        table = chance.choice("tu")
        change = chance.choice(
            [
                f"INSERT INTO {table} VALUES ({number}, {number}), ({number}, 0)",
                f"INSERT INTO {table} VALUES ({number}, {number}), ({number}, 0)",
                f"DELETE FROM {table} WHERE v = 0",
                f"DELETE FROM {table} WHERE id < {number - 10}",
            ]
        )
        lake.do(change, sessions[at])
    lake.do("CREATE TABLE ofmain (id BIGINT)")
    if "b1" in sessions:
        lake.do("CREATE TABLE ofb1 (id BIGINT); INSERT INTO ofb1 VALUES (1)", sessions["b1"])
    while shown := branch_view(lake):
        without_child = shown.keys() - {row["parent"] for row in shown.values()}
        name = chance.choice(sorted(map(str, without_child)))
        vacuum_all(lake)
        before = data_sizes(lake)
        lake.do(f"DROP {str(shown[name]['kind']).upper()} {name}")
        vacuum_all(lake)
        gone = before.keys() - data_sizes(lake).keys()
        files = sum(before[path] for path in gone if path.endswith(".parquet"))
        vectors = sum(before[path] for path in gone if path.endswith(".bin"))
        size = cast(int, shown[name]["size_in_bytes"])
        assert files <= size <= files + vectors
        assert (size > files) == (vectors > 0)


def vacuum_all(lake: Lake) -> None:
    lake.do("VACUUM t RETAIN 0 HOURS; VACUUM u RETAIN 0 HOURS")


def data_sizes(lake: Lake) -> dict[str, int]:
    """The sizes of all data files and deletion vectors of the lake."""
    store = lake.engine.warehouse
    assert store is not None
    found = {item.path: item.size_bytes for item in store.list("")}
    return {path: size for path, size in found.items() if "_delta_log" not in path}


def test_the_view_reads_nothing_of_tables_that_are_the_same_everywhere(lake: Lake) -> None:
    """Nor anything of data: logs of tables that differ alone."""
    x = lake.on("x")
    lake.do("CREATE TAG old; CREATE BRANCH y FROM BRANCH x")
    lake.do("INSERT INTO u VALUES (2, 2)", x)
    fresh = Lake(lake.place, lake.catalog)
    read: list[str] = []
    store = type(fresh.engine.store_at(lake.place))

    class Recorded(store):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            if name not in {"get", "get_range", "head", "list"}:
                return found

            def recorded(path: str, *more: Any, **named: Any) -> Any:
                read.append(f"{self._inner.url}/{path}")
                return found(path, *more, **named)

            return recorded

    fresh.engine.open_store = lambda location, options: Recorded(
        open_store(location, options), fresh.failing, fresh.instead
    )
    shown = branch_view(fresh)
    assert {name: row["size_in_bytes"] for name, row in shown.items() if name != "x"} == {
        "old": 0,
        "y": 0,
    }
    assert cast(int, shown["x"]["size_in_bytes"]) > 0
    assert read
    assert [path for path in read if "/u/_delta_log" not in path] == []


def test_a_log_that_cannot_be_read_leaves_the_size_unknown(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    lake.do("CREATE TAG old")
    fresh = Lake(lake.place, lake.catalog)
    fresh.failing.update(("get", "get_range", "list"))
    shown = branch_view(fresh)
    assert [shown[name]["size_in_bytes"] for name in ("old", "x")] == [None, None]
    assert shown["x"]["versions"] == 1


# What is kept


def end_time_of_branches(lake: Lake, *names: str) -> None:
    """Let the time of branches and tags be over; without names of all that have one."""
    ending = sa.update(branches).where(branches.c.kept_until_ms.is_not(None))
    if names:
        ending = sa.update(branches).where(branches.c.name.in_(names))
    change_rows(lake, ending.values(kept_until_ms=1_000))


def change_rows(lake: Lake, change: sa.Update) -> None:
    """Change rows of the catalog."""
    database = lake.catalog.branches._database
    database.run_shielded(
        lambda: database.write(lambda connection: connection.execute(change).close())
    )


EXPIRED = "'x' has expired: it was kept until 1970-01-01 00:00:01 UTC"


@pytest.mark.parametrize(
    "statement",
    [
        "USE BRANCH x",
        "PUBLISH BRANCH x",
        "REBASE BRANCH x",
        "DESCRIBE BRANCH x",
        "EXPLAIN PUBLISH BRANCH x",
        "CREATE BRANCH y FROM BRANCH x",
        "SELECT * FROM t VERSION AS OF 'x'",
    ],
)
def test_an_expired_branch_is_refused(lake: Lake, statement: str) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    end_time_of_branches(lake, "x")
    with pytest.raises(InvalidRequest, match=EXPIRED):
        lake.rows(statement)
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == ["x"]


def test_a_session_of_an_expired_branch_is_told_so(lake: Lake) -> None:
    x, begun = lake.on("x"), lake.on("x", create=False)
    lake.do("BEGIN; INSERT INTO t VALUES (9, 9)", begun)
    end_time_of_branches(lake, "x")
    used, also = lake.on_expired("x"), lake.on_expired("x")
    for statement in ("INSERT INTO t VALUES (8, 8)", "SELECT * FROM t", "BEGIN", "CREATE TAG old"):
        with pytest.raises(InvalidRequest, match=EXPIRED):
            lake.rows(statement, used)
    lake.do("COMMIT", begun)
    assert len(lake.rows("SELECT * FROM t", x)) == 5, "it doesn't know, and the branch is there"
    lake.do("VACUUM t")
    with pytest.raises(InvalidRequest, match="has expired"):
        lake.rows("SELECT * FROM t", also)
    with pytest.raises(InvalidRequest, match="has ended"):
        lake.do("INSERT INTO t VALUES (8, 8)", x)
    lake.do("USE BRANCH main", used)
    assert len(lake.rows("SELECT * FROM t", used)) == 4


def test_expired_branches_are_dropped_from_the_newest_on(lake: Lake) -> None:
    """One from which another was made that is kept longer stays, with what that one reads."""
    for name, origin in (("a", "main"), ("b", "a"), ("c", "b"), ("d", "main"), ("e", "d")):
        lake.do(f"CREATE BRANCH {name} FROM BRANCH {origin}")
    lake.do("CREATE TAG f; CREATE TAG g")
    end_time_of_branches(lake, "a", "b", "c", "d", "f")
    found = [entry.name for entry in lake.catalog.branches.expired()]
    assert found == ["f", "c", "b", "a"]
    assert [entry.name for entry in drop_expired(lake.engine)] == found
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == ["d", "e"]
    assert [row[0] for row in lake.rows("SHOW TAGS")] == ["g"]


def test_a_branch_that_got_more_time_meanwhile_is_not_dropped(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one of its name, too: what was found to be expired is looked at again."""
    lake.do("CREATE BRANCH x; CREATE BRANCH y; CREATE BRANCH z")
    end_time_of_branches(lake, "x", "y", "z")
    found = lake.catalog.branches.expired()
    lake.do("DROP BRANCH x; CREATE BRANCH x")
    named_y = sa.update(branches).where(branches.c.name == "y")
    change_rows(lake, named_y.values(kept_until_ms=None))
    monkeypatch.setattr(Branches, "expired", lambda self: found)
    assert [entry.name for entry in drop_expired(lake.engine)] == ["z"]
    assert [row[0] for row in lake.rows("SHOW BRANCHES")] == ["x", "y"]


def test_a_clock_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch is created after each change of its names, unless the clock doesn't go on."""
    monkeypatch.setattr(System, "now_ms", lambda self: 10**13)
    lake = Lake()
    lake.catalog.views.create("default", "v", "SELECT 1 AS one", [])
    lake.do("CREATE BRANCH x")
    entry = lake.catalog.branches.find("x")
    assert entry is not None
    assert entry.created_ms == 10**13


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize("clause", ["", "IF NOT EXISTS "])
def test_the_name_of_an_expired_one_is_free(lake: Lake, kind: str, clause: str) -> None:
    lake.do(f"CREATE {kind} x RETAIN 1 DAY")
    before = lake.catalog.branches.find("x")
    end_time_of_branches(lake, "x")
    lake.do(f"CREATE {kind} {clause}x RETAIN 1 DAY")
    after = lake.catalog.branches.find("x")
    assert before is not None
    assert after is not None
    assert before.id != after.id
    lake.do(f"CREATE {kind} IF NOT EXISTS x")
    assert lake.catalog.branches.find("x") == after
    with pytest.raises(InvalidRequest, match="already: choose another name"):
        lake.do(f"CREATE {kind} x")


@pytest.mark.parametrize("end", ["DROP BRANCH x", "PUBLISH BRANCH x", "expiry"])
def test_vacuum_keeps_exactly_what_main_branches_and_tags_read(lake: Lake, end: str) -> None:
    zero = "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    lake.do(f"ALTER TABLE t SET TBLPROPERTIES {zero}; INSERT INTO t VALUES (5, 5); CREATE TAG old")
    x, y = lake.on("x"), lake.on("y")
    lake.do("UPDATE t SET v = 10 WHERE id = 1; INSERT INTO t VALUES (9, 9)", x)
    lake.do("INSERT INTO t VALUES (6, 6); DELETE FROM t WHERE id = 6; DELETE FROM t", y)
    lake.do("DELETE FROM t WHERE id = 5; INSERT INTO t VALUES (7, 7)")
    lake.do("INSERT INTO t VALUES (8, 8); DELETE FROM t WHERE id = 8")  # files of nobody now

    def vacuumed(*read: Session | str) -> None:
        """VACUUM deletes what it said it would, and leaves what these read, no more."""
        dry = {str(path) for (path,) in lake.rows("VACUUM t RETAIN 0 HOURS DRY RUN")}
        before = all_files()
        lake.do("VACUUM t RETAIN 0 HOURS")
        left = all_files()
        assert {path.rpartition("/")[2] for path in dry} == before - left
        assert left == set().union(*map(files_read, read))

    def all_files() -> set[str]:
        place = lake.tables()["default.t"]
        return {path for path in lake.files(place) if not path.startswith("_delta_log")}

    def files_read(by: Session | str) -> set[str]:
        """The data files and deletion vectors of a session's newest version, of the one that its
        branch began with, which publishing compares, or of a tag's.
        """
        session = lake.session if isinstance(by, str) else by
        travels = [TimeTravel(branch_or_tag=by) if isinstance(by, str) else None]
        if session.engine.branch is not None:
            entry = session.engine.catalog.find("default", "t")
            assert entry is not None
            travels.append(TimeTravel(version=entry.base))
        versions = [session.snapshot(TableName(("t",)), travel) for travel in travels]
        vectors = {
            vector_path(add.deletion_vector, found.table)
            for found in versions
            for add in found.files.adds()
            if add.deletion_vector is not None
        }
        return set().union(*map(paths_of, versions)) | vectors

    main = lake.session
    vacuumed(main, x, y, "old")
    lake.do("DROP TAG old")
    vacuumed(main, x, y)
    if end == "expiry":
        end_time_of_branches(lake, "x")
    else:
        lake.do(end)
    vacuumed(main, y)
    lake.do("DROP BRANCH y")
    vacuumed(main)


def test_a_branch_and_a_tag_are_told_apart(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("CREATE TAG old", x)
    for statement, says in (
        ("DROP BRANCH old", "expected a branch, found the tag 'old': .* DROP TAG drops it"),
        ("DROP TAG x", "expected a tag, found the branch 'x': DROP BRANCH drops it"),
        ("PUBLISH BRANCH x", "PUBLISH BRANCH x: tag 'old' was made from it; drop that one first"),
        ("REBASE BRANCH x", "REBASE BRANCH x: tag 'old' was made from it; drop that one first"),
    ):
        with pytest.raises(InvalidRequest, match=says):
            lake.do(statement)


def test_a_recovery_leaves_the_tables_of_branches_alone(lake: Lake) -> None:
    open_lake(lake.session)
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1); INSERT INTO t VALUES (9, 9)", x)
    report = recover(lake.session, ())
    assert (report.tables, report.done, report.unknown) == ((), (), ())
    lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM n") == [(1,)]


@pytest.mark.parametrize("end", ["DROP", "PUBLISH"])
def test_a_folder_that_a_killed_process_leaves_is_removed(lake: Lake, end: str) -> None:
    """It was of a table that was created on the branch, and dropped with it, or before."""
    open_lake(lake.session)
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1)", x)
    if end == "PUBLISH":
        lake.do("DROP TABLE n", x)
    lake.failing.update(("delete", "list"))
    lake.do(f"{end} BRANCH x")
    lake.failing.clear()
    report = recover(lake.session, ())
    assert (report.tables, report.done, report.unknown) == ((), (), ())
    open_lake(lake.session)
    store = lake.engine.warehouse
    assert store is not None
    assert [item.path for item in store.list("") if item.path.startswith("n@")] == []
    assert tables_of(lake) == ["t", "u"]


def test_a_dropped_branch_leaves_nothing_behind(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1)", x)
    with pytest.raises(InvalidRequest, match="this session uses it"):
        lake.do("DROP BRANCH x", x)
    lake.do("DROP BRANCH x; DROP BRANCH IF EXISTS x")
    store = lake.engine.warehouse
    assert store is not None
    left = [item.path for item in store.list("") if "_branches" in item.path or "n@" in item.path]
    assert left == []
    with pytest.raises(InvalidRequest, match="has ended"):
        lake.do("INSERT INTO t VALUES (1, 1)", x)


def test_vacuum_keeps_what_other_branches_read(lake: Lake) -> None:
    zero = "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    lake.do(f"ALTER TABLE t SET TBLPROPERTIES {zero}")
    x, first = lake.on("x"), lake.data_files("t")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    lake.do("DELETE FROM t; INSERT INTO t VALUES (5, 5)")
    of_branch = lake.rows("SELECT * FROM t", x)
    lake.do("VACUUM t RETAIN 0 HOURS")
    assert lake.rows("SELECT * FROM t", x) == of_branch
    assert len(of_branch) == 5
    with pytest.raises(InvalidRequest, match="Run VACUUM on main"):
        lake.do("VACUUM t RETAIN 0 HOURS", x)
    lake.do("DELETE FROM t; INSERT INTO t VALUES (7, 7)", x)
    lake.do("VACUUM t RETAIN 0 HOURS")
    assert lake.rows("SELECT * FROM t") == [(5, 5)]
    assert lake.rows("SELECT * FROM t", x) == [(7, 7)]
    kept = lake.data_files("t") | lake.data_files("t", x)
    lake.do("DROP BRANCH x")
    lake.begin_elsewhere()
    lake.do("VACUUM t RETAIN 0 HOURS")
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    store = lake.engine.store_at(entry.location)
    there = {item.path for item in store.list("") if item.path.endswith(".parquet")}
    assert lake.data_files("t") <= there
    assert not there & (kept - lake.data_files("t")), "the branch's files are nobody's any more"
    assert not there & first, "nor are those that it began with"


def test_a_branch_that_lives_long_can_be_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log keeps the versions since it began, which publishing reads, however old they are."""
    lake.do(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval' = '2', "
        "'delta.logRetentionDuration' = 'interval 1 day')"
    )
    x = lake.on("x")
    for number in range(3):
        lake.do(f"INSERT INTO t VALUES ({number + 10}, 0)", x)
    now_ms = type(lake.engine.system).now_ms
    monkeypatch.setattr(
        type(lake.engine.system), "now_ms", lambda self: now_ms(self) + 10 * 86_400_000
    )
    for number in range(4):
        lake.do(f"INSERT INTO t VALUES ({number + 20}, 0)", x)
        lake.do(f"INSERT INTO t VALUES ({number + 30}, 0)")
    lake.do("VACUUM t; PUBLISH BRANCH x")
    assert len(lake.rows("SELECT * FROM t")) == 4 + 3 + 4 + 4


def test_a_table_that_main_drops_stays_for_its_branches(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    store = lake.engine.store_at(entry.location)
    lake.do("DROP TABLE t PURGE")
    finish_interrupted(lake.engine)
    assert len(lake.rows("SELECT * FROM t", x)) == 5
    with pytest.raises(InvalidRequest, match="was dropped where the branch began"):
        lake.do("PUBLISH BRANCH x")
    lake.do("DROP BRANCH x")
    assert list(store.list(""))
    finish_interrupted(lake.engine)
    assert not list(store.list(""))


@pytest.mark.parametrize("kept_ms", [0, 1])
def test_a_dropped_table_stays_for_the_branches_that_have_it(kept_ms: int) -> None:
    lake = Lake(kept_ms=kept_ms)
    lake.do("CREATE TABLE t (id BIGINT, v BIGINT); INSERT INTO t VALUES (1, 1); CREATE TAG old")
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (2, 2)", x)
    place = lake.tables()["default.t"]
    lake.do("DROP TABLE t")
    wait_until_expired(lake)
    finish_interrupted(lake.engine)
    assert lake.rows("SELECT * FROM t", x) == [(1, 1), (2, 2)]
    old = lake.catalog.branches.find("old")
    assert old is not None
    lake.do(f"CREATE BRANCH y AT INSTANT {old.fork_sequence}")
    y = lake.on("y", create=False)
    assert lake.rows("SELECT * FROM t", y) == [(1, 1)], "its files are there"
    lake.do("DROP BRANCH x; DROP BRANCH y; DROP TAG old")
    lake.do(f"CREATE BRANCH z AT INSTANT {old.fork_sequence}")
    finish_interrupted(lake.engine)
    assert tables_of(lake, lake.on("z", create=False)) == [], "its files may be gone by now"
    assert lake.files(place) == []


def wait_until_expired(lake: Lake) -> None:
    """Wait until the catalog's clock is past the retention of all dropped tables."""
    dropped = lake.catalog.dropped
    while len(dropped.expired()) < len(dropped.entries()):
        continue


def test_a_table_comes_back_beside_its_branches() -> None:
    lake = Lake(kept_ms=10**9)
    lake.do("CREATE TABLE t (id BIGINT, v BIGINT); INSERT INTO t VALUES (1, 1)")
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (2, 2); CREATE TABLE n (id BIGINT)", x)
    place = x.engine.catalog.of_lake().find("default", "n").location  # type: ignore[union-attr]
    lake.do("DROP TABLE n", x)
    lake.do("DROP TABLE t; UNDROP TABLE t")
    assert [row[2] for row in lake.rows("SHOW TABLES DROPPED")] == [], "n was the branch's"
    with pytest.raises(InvalidRequest, match="there is no dropped table 'n'"):
        lake.do("UNDROP TABLE n")
    lake.do("PUBLISH BRANCH x")
    assert lake.rows("SELECT * FROM t") == [(1, 1), (2, 2)]
    assert lake.files(place) == []


def test_vacuum_keeps_what_transactions_on_branches_read(lake: Lake) -> None:
    zero = "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    lake.do(f"ALTER TABLE t SET TBLPROPERTIES {zero}")
    x, other = lake.on("x"), lake.on("x", create=False)
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    lake.do("BEGIN", x)
    before = lake.rows("SELECT * FROM t", x)
    lake.do("DELETE FROM t", other)
    lake.do("VACUUM t RETAIN 0 HOURS")
    assert lake.rows("SELECT * FROM t WHERE id > 0", x) == before


def test_vacuum_keeps_what_a_branch_restores_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero = "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    lake.do(f"ALTER TABLE t SET TBLPROPERTIES {zero}; INSERT INTO t VALUES (9, 9)")
    lake.do("DELETE FROM t WHERE id = 9")
    x = lake.on("x")
    notice = commit_notice

    def restored(log: TableLog, begin: Any, operation: str, *rest: Any) -> None:
        if operation == "VACUUM START":
            lake.do("RESTORE TABLE t TO VERSION AS OF 3", x)
        notice(log, begin, operation, *rest)

    monkeypatch.setattr(vacuum, "commit_notice", restored)
    lake.do("VACUUM t RETAIN 0 HOURS")
    assert (9, 9) in lake.rows("SELECT * FROM t", x)


def test_identity_values_are_given_once(lake: Lake) -> None:
    lake.do("CREATE TABLE i (k BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT)")
    lake.do("INSERT INTO i (v) VALUES (0)")
    x, y = lake.on("x"), lake.on("y")
    for number, session in enumerate((x, None, y, x, None, y)):
        lake.do(f"INSERT INTO i (v) VALUES ({number})", session)
    lake.do("DROP BRANCH y; PUBLISH BRANCH x; INSERT INTO i (v) VALUES (9)")
    keys = [row[0] for row in lake.rows("SELECT k FROM i")]
    assert len(keys) == len(set(keys)) == 6


def history(lake: Lake, name: str, first: int, session: Session | None = None) -> list[Commit]:
    """The commits of a table from a version on."""
    engine = (session or lake.session).engine
    entry = engine.catalog.find("default", name)
    assert entry is not None
    log = engine.at_entry(entry).log
    return list(log.commits(first - 1, log.latest().version))


def operations(commits: Sequence[Commit]) -> list[str | None]:
    return [None if one.info is None else one.info.text("operation") for one in commits]


def test_a_table_gets_the_versions_of_the_branch(lake: Lake) -> None:
    """One by one, at one instant, where nobody else has changed it; else the net changes."""
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); UPDATE t SET v = 0 WHERE id = 1", x)
    lake.do("ALTER TABLE t ADD COLUMN w INT; DELETE FROM t WHERE id = 9", x)
    lake.do("INSERT INTO u VALUES (2, 2); INSERT INTO u VALUES (3, 3)", x)
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
    assert [files_of(lake, version) for version in range(2, 6)] == ours
    assert lake.rows("SELECT id, v FROM t") == [(1, 0), (2, 2), (3, 3), (4, 4)]
    assert lake.rows("SELECT id FROM u") == [(1,), (2,), (3,), (4,)]
    lake.do("INSERT INTO t VALUES (5, 5, 5)")
    fresh = Offline(lake.place, lake.catalog)
    entry = fresh.engine.catalog.find("default", "t")
    assert entry is not None
    assert fresh.engine.at_entry(entry).log.latest().version == 6


def files_of(lake: Lake, version: int, session: Session | None = None) -> set[str]:
    """The data files of a version of t."""
    return lake.files_at(TimeTravel(version=version), session)


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


def explained(lake: Lake, name: str) -> dict[str, str]:
    """What EXPLAIN PUBLISH says stops each table, and a part of why."""
    return {
        one.name: "" if one.conflict is None else str(one.conflict)
        for one in explain_publish(lake.session, name)
    }


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
    lake.catalog.views.create("default", "w", "SELECT 1 AS one", [])
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); DROP TABLE u", x)
    x.engine.catalog.of_lake().views.create("default", "u", "SELECT 3 AS three", [])
    assert explained(lake, "x") == {"default.t": "", "default.u": ""}
    for catalog in (x.engine.catalog.of_lake(), lake.catalog):
        view = catalog.views.find("default", "w")
        assert view is not None
        catalog.views.change(view.id, "SELECT 2 AS two", [])
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


# Against a model


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
