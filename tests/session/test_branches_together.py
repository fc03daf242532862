"""Branches beside what other sessions do meanwhile, and what killed processes leave of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.session.branch_lake import Lake, data_sizes, vacuum_all
from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.catalog.branches import Branches
from txlake.commit import vacuum
from txlake.commit.branch_store import BranchStore
from txlake.commit.table_log import TableLog
from txlake.errors import ConcurrentAppendException, InvalidRequest, Unavailable
from txlake.ports import Store, StoredObject
from txlake.protocol.actions import DomainMetadata
from txlake.protocol.branching import Registry, TableBranch
from txlake.protocol.file_names import BRANCHES_FOLDER, LOG_FOLDER
from txlake.session import branches
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

ZERO = "TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
ROWS = [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.fixture
def lake() -> Lake:
    """A lake with tables t and u, whose deleted files are kept for no time."""
    made = Lake()
    made.do(f"CREATE TABLE t (id BIGINT, v BIGINT) {ZERO}")
    made.do(f"CREATE TABLE u (id BIGINT, v BIGINT) {ZERO}")
    made.do("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4); INSERT INTO u VALUES (1, 1)")
    return made


# A branch that begins with a version that isn't in the log yet


@pytest.mark.parametrize("origin", ["main", "y"])
def test_a_version_that_is_not_published_yet_can_be_branched_from(lake: Lake, origin: str) -> None:
    session = lake.on("y") if origin == "y" else lake.session
    lake.failing.update(("put_if_absent", "put_unsynced"))
    lake.do("INSERT INTO t VALUES (9, 9)", session)  # ratified, and put into no log
    lake.do(f"CREATE BRANCH x FROM BRANCH {origin}")
    lake.failing.clear()
    other = Lake(lake.place, lake.catalog)
    x = other.on("x", create=False)
    assert other.rows("SELECT * FROM t", x) == [*ROWS, (9, 9)]
    other.do("UPDATE t SET v = 0 WHERE id = 9", x)
    other.do("PUBLISH BRANCH x")
    on = other.session if origin == "main" else other.on("y", create=False)
    assert other.rows("SELECT * FROM t", on) == [*ROWS, (9, 0)]


def test_the_first_commit_of_a_branch_waits_for_what_it_begins_with(lake: Lake) -> None:
    """Its log would have a gap before it."""
    lake.failing.update(("put_if_absent", "put_unsynced"))
    lake.do("INSERT INTO t VALUES (9, 9)")
    x = lake.on("x")
    with pytest.raises(Unavailable):
        lake.do("INSERT INTO t VALUES (8, 8)", x)
    lake.failing.clear()
    lake.do("INSERT INTO t VALUES (8, 8)", x)
    assert lake.rows("SELECT * FROM t", x) == [*ROWS, (8, 8), (9, 9)]


# VACUUM beside the end of a branch


def beside_vacuum(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None], times: int = 1) -> None:
    """Do something after VACUUM has looked which branches there are, the first times."""
    needed, left = vacuum._needed_on, [do] * times

    def after(line: TableLog, before_ms: int) -> Any:
        if left:
            left.pop()()
        return needed(line, before_ms)

    monkeypatch.setattr(vacuum, "_needed_on", after)


@pytest.mark.parametrize("end", ["PUBLISH", "REBASE", "DROP"])
def test_vacuum_keeps_the_files_of_a_branch_that_ends_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    beside_vacuum(monkeypatch, lambda: lake.do(f"{end} BRANCH x"))
    lake.do("VACUUM t RETAIN 0 HOURS")
    monkeypatch.undo()
    fresh = Lake(lake.place, lake.catalog)
    session = fresh.on("x", create=False) if end == "REBASE" else fresh.session
    found = fresh.rows("SELECT * FROM t WHERE v > 0", session)
    assert found == (ROWS if end == "DROP" else [*ROWS, (9, 9)])


def test_a_branch_that_ends_while_vacuum_reads_its_versions_is_passed_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.do("CREATE BRANCH x; DELETE FROM u")
    oldest, ends = vacuum.oldest_needed, ["DROP BRANCH x"]  # type: ignore[attr-defined]

    def after(log: TableLog, *, by_branches: bool = True) -> int | None:
        if ends and isinstance(log.store, BranchStore):
            lake.do(ends.pop())
        return oldest(log, by_branches=by_branches)

    monkeypatch.setattr(vacuum, "oldest_needed", after)
    lake.do("VACUUM u RETAIN 0 HOURS")
    assert not ends
    assert not [path for path in data_sizes(lake) if path.startswith("u/")]


def test_vacuum_gives_up_if_branches_end_each_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"x{number}" for number in range(10)]
    for name in names:
        lake.do("INSERT INTO t VALUES (9, 9)", lake.on(name))
    beside_vacuum(monkeypatch, lambda: lake.do(f"DROP BRANCH {names.pop(0)}"), len(names))
    with pytest.raises(Unavailable, match=r"branches ended while .* nothing was deleted: run it"):
        lake.do("VACUUM t RETAIN 0 HOURS")


def test_vacuum_of_a_damaged_branch_is_refused(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    fresh = Lake(lake.place, lake.catalog)
    store = fresh.engine.store_at(f"{lake.place}/t")
    store.delete([item.path for item in store.list(BRANCHES_FOLDER)])
    with pytest.raises(Exception, match="isn't there"):
        fresh.do("VACUUM t RETAIN 0 HOURS")


def test_vacuum_knows_commits_that_a_listing_does_not_know_yet(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    listed = BranchStore.list

    def without_newest(
        store: BranchStore, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Any:
        found = listed(store, prefix, start_after, before)
        newest = f"{LOG_FOLDER}/{store.base + 1:020}"
        return (item for item in found if not item.path.startswith(newest))

    fresh = Lake(lake.place, lake.catalog)
    with monkeypatch.context() as patch:
        patch.setattr(BranchStore, "list", without_newest)
        fresh.do("VACUUM t RETAIN 0 HOURS")
    assert lake.rows("SELECT * FROM t WHERE id = 9", x) == [(9, 9)]


def test_vacuum_keeps_the_change_data_that_a_branch_has_since_a_transaction_began() -> None:
    system = System()
    place = f"memory://{system.new_id()}/lake"
    engine = RowEngine(
        system=system,
        settings=Settings(),
        warehouse=open_store(place),
        catalog=Catalog("sqlite://", system),
        spark_settings={"spark.databricks.delta.retentionDurationCheck.enabled": "false"},
    )
    main, x, other = RowSession(engine), RowSession(engine), RowSession(engine)
    main.rows(
        "CREATE TABLE t (id BIGINT, v BIGINT) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true'); INSERT INTO t VALUES (1, 1)"
    )
    held = other.begin()
    other.within(held, "SELECT * FROM t")
    x.rows("CREATE BRANCH x; USE BRANCH x; UPDATE t SET v = 0 WHERE id = 1")
    store = engine.store_at(f"{place}/t")
    written = [item.path for item in store.list("_change_data")]
    assert len(written) == 1
    main.rows("VACUUM t RETAIN 0 HOURS")
    assert [item.path for item in store.list("_change_data")] == written
    held.commit()
    main.rows("VACUUM t RETAIN 0 HOURS")
    assert not list(store.list("_change_data"))


# A read beside the end of a branch


def test_a_read_as_of_a_branch_says_that_it_has_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.do("INSERT INTO t VALUES (9, 9)", lake.on("x"))
    find = Branches.find

    def dropped(of: Branches, name: str) -> Any:
        found = find(of, name)
        monkeypatch.undo()
        lake.do("DROP BRANCH x")
        return found

    monkeypatch.setattr(Branches, "find", dropped)
    with pytest.raises(InvalidRequest, match="'x' has ended"):
        lake.rows("SELECT * FROM t VERSION AS OF 'x'")


# What read a table is no blind append


@pytest.mark.parametrize("level", ["SNAPSHOT", "WRITE SERIALIZABLE"])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_publication_of_what_read_a_table_is_no_blind_append(
    lake: Lake, level: str, is_read: bool
) -> None:
    """As a transaction that reads a table and inserts into it is none on main, at no level."""
    x = lake.on("x")
    lake.do(f"SET TRANSACTION ISOLATION LEVEL {level}; BEGIN", x)
    if is_read:
        lake.rows("SELECT * FROM t", x)
    lake.do("INSERT INTO t VALUES (9, 9); COMMIT", x)
    late = lake.on("late")
    lake.do("USE BRANCH main", late)
    lake.do("SET TRANSACTION ISOLATION LEVEL WRITE SERIALIZABLE; BEGIN", late)
    lake.do("DELETE FROM t WHERE v > 3", late)
    lake.do("PUBLISH BRANCH x")
    if is_read:
        with pytest.raises(ConcurrentAppendException):
            lake.do("COMMIT", late)
    else:
        lake.do("COMMIT", late)


# What killed processes leave


def left_of_branches(lake: Lake, table: str) -> set[str]:
    """The ids of the branches of which the table's log has files."""
    store = lake.engine.store_at(f"{lake.place}/{table}")
    return {item.path.split("/")[2] for item in store.list(BRANCHES_FOLDER)}


def id_of(lake: Lake, name: str) -> str:
    entry = lake.catalog.branches.find(name)
    assert entry is not None
    return entry.id


@pytest.mark.parametrize("end", ["PUBLISH", "REBASE", "DROP"])
def test_vacuum_removes_the_logs_that_a_killed_process_leaves(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    for name in ("x", "y", "z"):
        lake.do("INSERT INTO t VALUES (9, 9)", lake.on(name))
    lake.do("INSERT INTO t VALUES (8, 8)", lake.on("child"))
    lake.do("CREATE BRANCH of_child FROM BRANCH child")
    ids = {name: id_of(lake, name) for name in ("x", "y", "z", "child")}

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(branches, "_remove_logs", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.do(f"{end} BRANCH x")
    assert left_of_branches(lake, "t") >= set(ids.values())
    lake.do("VACUUM t RETAIN 1 HOURS")
    assert ids["x"] in left_of_branches(lake, "t"), "it is younger than the retention"
    vacuum_all(lake)
    kept = set(ids.values()) - {ids["x"]}
    assert left_of_branches(lake, "t") == (kept | {id_of(lake, "x")} if end == "REBASE" else kept)
    lake.do("PUBLISH BRANCH y; DROP BRANCH of_child; DROP BRANCH child; DROP BRANCH z")


def test_vacuum_leaves_branches_alone_that_others_have_registered(lake: Lake) -> None:
    handle = lake.at(f"{lake.place}/t")
    store: Store = handle.store
    store.put(f"{BRANCHES_FOLDER}/theirs/{LOG_FOLDER}/{1:020}.json", b"{}")
    store.put(f"{BRANCHES_FOLDER}/nobodys/{LOG_FOLDER}/{1:020}.json", b"{}")
    theirs = TableBranch(id="theirs", name="t", base=0, created_version=1)
    domain = Registry((theirs,), "t").action()
    plan = planned(lake, handle.log, [domain])
    assert [path for path in plan if "_branches" in path] == [
        f"{BRANCHES_FOLDER}/nobodys/{LOG_FOLDER}/{1:020}.json"
    ]
    assert not [path for path in planned(lake, handle.log, [domain], None) if "_branches" in path]


def planned(
    lake: Lake,
    log: TableLog,
    domains: Sequence[DomainMetadata],
    open_branches: Callable[[], list[str]] | None = list,
) -> Sequence[str]:
    """The files of branches that VACUUM would delete of a table with these domains."""
    snapshot = log.latest()
    snapshot.domains.update({each.domain: each for each in domains})  # type: ignore[attr-defined]
    listed: list[StoredObject] = list(log.store.list(""))
    found = vacuum._of_ended_branches(listed, snapshot, 10**15, open_branches)
    return [item.path for item in found]
