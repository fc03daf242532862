"""What publishing, rebasing and dropping a branch refuse, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.session.branch_lake import (
    Lake,
    end_time_of_branches,
    explained,
    once_the_tables_are_known,
    tables_of,
)
from txlake.catalog.branch_rows import BranchEntry
from txlake.catalog.branches import Branches
from txlake.commands import HANDLERS
from txlake.conflict.read_set import ReadSet
from txlake.errors import (
    Conflict,
    CorruptTable,
    Evidence,
    InvalidRequest,
    Unavailable,
)
from txlake.log.snapshot import Snapshot
from txlake.session import branches
from txlake.session.branch_changes import NetChange
from txlake.session.branches import (
    drop_branch,
    drop_expired,
    explain_publish,
    publish,
    rebase,
    stage_net_change,
)
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.permission import NotPermitted, Permission
from txlake.session.session import Session
from txlake.session.transaction import Transaction


@pytest.mark.parametrize("end", [publish, rebase])
def test_no_transaction_may_be_open(lake: Lake, end: Callable[[Session, str], None]) -> None:
    lake.on("x")
    lake.do("BEGIN")
    with pytest.raises(InvalidRequest, match=r"BRANCH x: a transaction is open; COMMIT or"):
        end(lake.session, "x")


def refuse(entry: BranchEntry, what: str) -> None:
    raise NotPermitted(f"{what}: {entry.name} isn't yours")


@pytest.mark.parametrize(
    ("do", "what"),
    [
        (explain_publish, "EXPLAIN PUBLISH BRANCH x"),
        (rebase, "REBASE BRANCH x"),
        (drop_branch, "DROP BRANCH x"),
    ],
)
def test_a_branch_of_somebody_else_is_left_alone(
    lake: Lake, do: Callable[[Session, str], object], what: str
) -> None:
    lake.on("x")
    lake.session.permission = cast(Permission, SimpleNamespace(require_own=refuse))
    with pytest.raises(NotPermitted, match=f"^{what}: x isn't yours"):
        do(lake.session, "x")
    assert [entry.name for entry in lake.catalog.branches.entries()] == ["x"]


def test_a_session_drops_no_branch_that_it_uses(lake: Lake) -> None:
    x = lake.on("x")
    lake.on("y")
    with pytest.raises(InvalidRequest, match="DROP BRANCH X: this session uses it; USE BRANCH"):
        lake.do("DROP BRANCH X", x)
    lake.do("DROP BRANCH y", x)
    lake.do("DROP BRANCH x")
    assert lake.rows("SHOW BRANCHES") == []


# While it is published


def test_a_conflict_of_a_table_that_is_not_the_branchs_is_told_as_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    conflict = Conflict(
        "u has changed", Evidence(table="default.u", read_version=1, winning_version=2)
    )

    def lost(_: Transaction) -> None:
        raise conflict

    monkeypatch.setattr(Transaction, "commit", lost)
    with pytest.raises(Conflict) as raised:
        lake.do("PUBLISH BRANCH x")
    assert raised.value is conflict


def test_a_rebase_that_fails_as_the_branch_ends_says_why(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The branch that was to take its place has ended with it, and nothing is left to warn of."""
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)

    def ends(_: Transaction) -> None:
        lake.catalog.branches.drop("x")
        raise Conflict("it has ended")

    monkeypatch.setattr(Transaction, "commit", ends)
    with pytest.raises(Conflict, match="it has ended"):
        rebase(lake.session, "x")
    assert [record for record in caplog.records if record.name == branches.__name__] == []


def test_a_rebase_that_fails_leaves_what_it_cannot_drop(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)

    def fails(*_: object) -> None:
        raise Conflict("first")

    def is_down(*_: object) -> None:
        raise Unavailable("second")

    monkeypatch.setattr(Transaction, "commit", fails)
    monkeypatch.setattr(Branches, "drop", is_down)
    with pytest.raises(Conflict, match="first"):
        rebase(lake.session, "x")
    assert len(lake.catalog.branches.entries()) == 2


def test_a_publication_closes_its_session(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    before = {entry.id for entry in lake.catalog.sessions.entries()}
    explain_publish(lake.session, "x")
    publish(lake.session, "x")
    assert {entry.id for entry in lake.catalog.sessions.entries()} == before


def test_a_table_that_cannot_be_published_is_explained(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); INSERT INTO u VALUES (9, 9)", x)
    stage = branches._stage

    def fails_for_t(context: Context, one: Any, entry: BranchEntry, **more: bool) -> Handle:
        if one.table.entry.name == "t":
            raise CorruptTable("t is damaged")
        return stage(context, one, entry, **more)

    monkeypatch.setattr(branches, "_stage", fails_for_t)
    assert explained(lake, "x") == {"default.t": "t is damaged", "default.u": ""}
    with pytest.raises(CorruptTable):
        publish(lake.session, "x")


@pytest.mark.parametrize(("kind", "head"), [("", 2), (" PER TABLE", 3)])
def test_a_table_without_net_changes_gets_no_version(lake: Lake, kind: str, head: int) -> None:
    """One that was read alone, and one whose changes were taken back."""
    lake.do("CREATE TABLE w (id BIGINT)")
    x = lake.on("x")
    lake.do("INSERT INTO w VALUES (1); DELETE FROM w WHERE id = 1", x)
    lake.do("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN", x)
    lake.rows("SELECT * FROM u", x)
    lake.do("INSERT INTO t VALUES (8, 8); COMMIT; INSERT INTO t VALUES (9, 9)", x)
    lake.do(f"PUBLISH BRANCH x{kind}")
    found = {entry.name: entry.head for entry in lake.catalog.tables("default")}
    assert found == {"t": head, "u": 1, "w": 0}


def test_what_a_branch_read_is_read_by_the_publication(lake: Lake) -> None:
    """Reads by predicates, files, application ids and domains, each noted as what it is."""
    noted: list[tuple[str, object]] = []

    class Part:
        row_ids: object = None

        def __getattr__(self, name: str) -> Callable[[object], None]:
            return lambda value: noted.append((name, value))

    part = Part()
    tables = SimpleNamespace(open_at=lambda handle, base: part)
    transaction = SimpleNamespace(tables=tables, stage=lambda handle, change: None)
    context = SimpleNamespace(transaction=transaction)
    reads = ReadSet(
        reads=cast(Any, ("predicate",)),
        read_files=frozenset({"file"}),
        read_app_ids=frozenset({"app"}),
        read_domains=frozenset({"domain"}),
    )
    change = NetChange(
        base=Snapshot.empty("t"),
        records=(),
        read=reads,
        actions=(),
        marks={},
        row_sources={},
        row_ids=cast(Any, "ids"),
        commits=(),
    )
    stage_net_change(cast(Context, context), cast(Handle, None), change, {})
    assert noted == [
        ("add_read", "predicate"),
        ("read_files", frozenset({"file"})),
        ("app_version", "app"),
        ("read_domain", "domain"),
    ]
    assert part.row_ids == "ids"


def test_a_table_that_gets_the_name_meanwhile_is_not_changed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    swap = "ALTER TABLE t RENAME TO s; ALTER TABLE u RENAME TO t"
    once_the_tables_are_known(monkeypatch, lambda: lake.do(swap))
    with pytest.raises(InvalidRequest, match=r"default\.t was replaced or renamed meanwhile"):
        publish(lake.session, "x")
    publish(lake.session, "x")
    assert len(lake.rows("SELECT * FROM s")) == 5


def test_a_table_that_both_dropped_is_dropped(lake: Lake) -> None:
    x = lake.on("x")
    for session in (x, None):
        lake.do("DROP TABLE u", session)
    lake.do("PUBLISH BRANCH x")
    assert tables_of(lake) == ["t"]


def test_a_table_that_was_renamed_and_dropped_is_refused(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("ALTER TABLE u RENAME TO w", x)
    lake.do("DROP TABLE u")
    said = "default.w was dropped where the branch began, and the branch changed or read it"
    with pytest.raises(InvalidRequest, match=said):
        lake.do("PUBLISH BRANCH x")
    assert said in explained(lake, "x")["default.w"]


# What is left


def expire(lake: Lake) -> None:
    end_time_of_branches(lake, "x")
    drop_expired(lake.engine)


def doing(text: str) -> Callable[[Lake], None]:
    return lambda lake: lake.do(text)


def files_of_branches(lake: Lake) -> list[str]:
    """The files in logs of branches, and in the folders of tables that main doesn't have."""
    store = lake.engine.warehouse
    assert store is not None
    mains = tuple(f"{entry.location}/" for entry in lake.catalog.tables("default"))
    paths = [item.path for item in store.list("")]
    return [
        path
        for path in paths
        if "/_branches/" in path or not f"{store.url}/{path}".startswith(mains)
    ]


@pytest.mark.parametrize(
    "end",
    [
        doing("PUBLISH BRANCH x"),
        doing("DROP BRANCH x"),
        doing("REBASE BRANCH x; PUBLISH BRANCH x"),
        expire,
    ],
    ids=["publish", "drop", "rebase", "expire"],
)
def test_nothing_is_left_of_a_branch(lake: Lake, end: Callable[[Lake], None]) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9); CREATE TABLE n (id BIGINT); DROP TABLE n", x)
    assert files_of_branches(lake)
    end(lake)
    assert files_of_branches(lake) == []


def test_the_folder_of_a_new_table_goes_with_its_branch(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT)", x)
    lake.do("DROP BRANCH x")
    assert files_of_branches(lake) == []


@pytest.mark.parametrize("end", ["PUBLISH BRANCH x", "DROP BRANCH x"])
def test_the_folder_that_a_drop_left_goes_with_the_branch(lake: Lake, end: str) -> None:
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT)", x)
    lake.failing.add("delete")
    lake.do("DROP TABLE n", x)
    lake.failing.clear()
    assert files_of_branches(lake)
    lake.do(end)
    assert files_of_branches(lake) == []


def test_a_rebased_branch_leaves_no_log_of_the_one_before(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    before = lake.catalog.branches.find("x")
    assert before is not None
    lake.do("REBASE BRANCH x")
    store = lake.engine.warehouse
    assert store is not None
    assert [item.path for item in store.list("") if before.id in item.path] == []


def test_what_cannot_be_removed_stays(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    lake.failing.add("list")
    lake.do("DROP BRANCH x")
    lake.failing.clear()
    assert files_of_branches(lake)
    assert lake.rows("SHOW BRANCHES") == []


def test_branches_expire_beside_others_that_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "xyz":
        lake.do(f"CREATE BRANCH {name}")
    end_time_of_branches(lake, *"xyz")
    first = Branches.expire

    def ends(self: Branches, branch_id: str) -> object:
        if branch_id == ids["z"]:
            raise Unavailable("z can't be dropped")
        return None if branch_id == ids["y"] else first(self, branch_id)

    ids = {entry.name: entry.id for entry in lake.catalog.branches.entries()}
    monkeypatch.setattr(Branches, "expire", ends)
    assert [entry.name for entry in drop_expired(Session(lake.engine, HANDLERS).engine)] == ["x"]
