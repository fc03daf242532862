"""What branches and tags keep, for how long, and the view of what each costs."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.catalog.view_changes import create_view
from tests.session.branch_lake import (
    Lake,
    change_rows,
    data_sizes,
    end_time_of_branches,
    paths_of,
    tables_of,
    vacuum_all,
)
from txlake.catalog.branches import Branches
from txlake.catalog.relations import branches
from txlake.commit import vacuum
from txlake.commit.notice_commit import commit_notice
from txlake.commit.table_log import TableLog
from txlake.errors import (
    InvalidRequest,
)
from txlake.protocol.deletion_vectors import vector_path
from txlake.session.branches import drop_expired
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.membership.opening import open_lake
from txlake.session.membership.recovery import recover
from txlake.session.session import Session
from txlake.sql.statements import TableName, TimeTravel
from txlake.storage import open_store
from txlake.system import System


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
    create_view(lake.catalog, "default", "v", "SELECT 1 AS one", [])
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
