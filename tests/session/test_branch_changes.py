"""What a branch changed of its tables, and what of it a publication commits."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import msgspec
import pytest

from tests.session.branch_lake import Lake, history
from tests.session.test_published_feeds import RowLake
from txlake.catalog.branch_rows import BranchEntry, BranchTable
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.row_origins import Origins
from txlake.commit.row_sources_codec import ROW_SOURCES_TAG
from txlake.commit.table_log import Commit
from txlake.errors import Conflict, InvalidRequest
from txlake.ports import ReadRecord
from txlake.protocol.actions import Add, CommitInfo, DomainMetadata
from txlake.session.branch_changes import (
    ChangedTable,
    RowCounts,
    branch_table,
    changed_table,
    conflict_on_branch,
    is_renamed,
    net_change,
    reported_rows,
    row_counts,
)
from txlake.session.engine import Engine
from txlake.sql.statements import TablePath


def engine_of(engine: Engine, branch: str) -> Engine:
    return engine.on_branch(branch_of(engine, branch))


def branch_of(engine: Engine, branch: str) -> BranchEntry:
    entry = engine.catalog.of_lake().branches.find(branch)
    assert entry is not None
    return entry


def table_of(engine: Engine, branch: str, name: str) -> BranchTable:
    branches = engine.catalog.of_lake().branches
    [found] = [one for one in branches.tables(branch_of(engine, branch)) if one.entry.name == name]
    return found


def changes_of(
    engine: Engine, table: BranchTable, *, onto_branch: bool = False
) -> ChangedTable | None:
    return changed_table(engine_of(engine, "x"), table, "x", onto_branch=onto_branch)


def changed(engine: Engine, name: str, *, onto_branch: bool = False) -> ChangedTable:
    found = changes_of(engine, table_of(engine, "x", name), onto_branch=onto_branch)
    assert found is not None
    return found


def test_only_tables_that_a_branch_changed_or_read_count(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT)", x)
    assert changes_of(lake.engine, table_of(lake.engine, "x", "t")) is None
    assert changes_of(lake.engine, table_of(lake.engine, "x", "n")) is None
    lake.do("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN", x)
    lake.rows("SELECT * FROM t", x)
    lake.do("INSERT INTO u VALUES (2, 2); COMMIT", x)
    read = changed(lake.engine, "t")
    assert read.actions == ()
    assert read.read.reads
    assert len(changed(lake.engine, "u").actions) == 1
    unread = replace(table_of(lake.engine, "x", "u"), reads=())
    found = changes_of(lake.engine, unread)
    assert found is not None
    assert len(found.actions) == 1
    lake.do("DROP TABLE u", x)
    assert changes_of(lake.engine, table_of(lake.engine, "x", "u")) is None


def test_a_record_of_a_newer_txlake_is_refused(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    newer = ReadRecord(record="{}", level="serializable", version=2)
    table = replace(table_of(lake.engine, "x", "t"), reads=(newer,))
    with pytest.raises(InvalidRequest, match="a newer txlake has committed on the branch"):
        changes_of(lake.engine, table)


def test_marks_of_identity_columns_alone_change_no_definition(lake: Lake) -> None:
    lake.do("CREATE TABLE i (id BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT)")
    x = lake.on("x")
    lake.do("INSERT INTO i (v) VALUES (1), (2)", x)
    moved = changed(lake.engine, "i")
    assert dict(moved.marks) == {"id": 2}
    assert [type(action).__name__ for action in moved.actions] == ["Add"]
    lake.do("ALTER TABLE i ADD COLUMN w BIGINT", x)
    defined = changed(lake.engine, "i")
    assert dict(defined.marks) == {}
    assert {type(action).__name__ for action in defined.actions} >= {"Add", "Metadata"}


# The change data feed


@pytest.fixture
def rows() -> RowLake:
    """A lake whose tables have a change data feed, with a branch x."""
    made = RowLake(random.Random(1))
    made.do("CREATE BRANCH x")
    return made


def test_the_sources_of_rows_are_those_that_the_branch_recorded(rows: RowLake) -> None:
    rows.do("UPDATE many SET v = 70 WHERE id = 7", rows.on("x"))
    for onto_branch in (False, True):
        assert changed(rows.engine, "many", onto_branch=onto_branch).row_sources
    rows.do("ALTER TABLE many SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    rows.do("CREATE BRANCH y")
    rows.do("UPDATE many SET v = 71 WHERE id = 7", rows.on("y"))
    table = table_of(rows.engine, "y", "many")
    found = changed_table(engine_of(rows.engine, "y"), table, "y", onto_branch=False)
    assert found is not None
    assert not found.row_sources


@pytest.mark.parametrize("onto", ["main", "branch"])
def test_sources_are_kept_for_other_branches_alone(rows: RowLake, onto: str) -> None:
    """Main's log doesn't need them in a version that was published as it is."""
    if onto == "branch":
        rows.do("CREATE BRANCH y FROM BRANCH x")
    name = "x" if onto == "main" else "y"
    rows.do("UPDATE many SET v = 70 WHERE id = 7", rows.on(name))
    rows.do(f"PUBLISH BRANCH {name} PER TABLE")
    engine = rows.engine if onto == "main" else engine_of(rows.engine, "x")
    entry = engine.catalog.find("default", "many")
    assert entry is not None
    log = engine.at_entry(entry).log
    [*_, newest] = log.commits(log.latest().version - 1, log.latest().version)
    assert newest.info is not None
    tags = cast("dict[str, str]", newest.info.values["tags"])
    assert (ROW_SOURCES_TAG in tags) == (onto == "branch")


def test_sources_for_another_branch_need_no_deletion_vectors(rows: RowLake) -> None:
    """Those of the branch go with it."""
    x = rows.on("x")
    rows.do("ALTER TABLE many SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", x)
    rows.do("INSERT INTO many VALUES (20, 20, 1), (21, 21, 1), (22, 22, 1)", x)
    rows.do("DELETE FROM many WHERE id = 21; OPTIMIZE many", x)

    def name_vectors(*, onto_branch: bool) -> bool:
        sources = changed(rows.engine, "many", onto_branch=onto_branch).row_sources
        packed = [runs for runs in sources.values() if not isinstance(runs, Origins)]
        return any(run.vector_id is not None for runs in packed for run in runs)

    assert name_vectors(onto_branch=False)
    assert not name_vectors(onto_branch=True)


def test_a_feed_that_could_not_tell_the_changes_is_refused(rows: RowLake) -> None:
    feed = "ALTER TABLE many SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{}')"
    x = rows.on("x")
    rows.do(f"{feed.format('false')}; UPDATE many SET v = 70 WHERE id = 7", x)
    rows.do(feed.format("true"), x)
    with pytest.raises(InvalidRequest, match="while the table had no change data feed"):
        changed(rows.engine, "many")


def test_a_feed_is_refused_where_changed_rows_were_moved_untold(rows: RowLake) -> None:
    """As a clustering of too many rows does: neither the commit nor its files say from where."""
    x = rows.on("x")
    rows.do("INSERT INTO many VALUES (20, 20, 1), (21, 21, 1)", x)
    rows.do("DELETE FROM many WHERE id = 20; OPTIMIZE many", x)
    found = changed(rows.engine, "many")
    log = x.engine.at_entry(found.table.entry).log
    head = log.snapshot(found.table.entry.head)
    untold = tuple(
        replace(
            one,
            info=None,
            actions=tuple(
                msgspec.structs.replace(action, tags=None) if isinstance(action, Add) else action
                for action in one.actions
            ),
        )
        for one in found.commits
    )

    def net(commits: tuple[Commit, ...]) -> None:
        net_change(log, found.base, head, commits, (), found.read, onto_branch=False)

    net(found.commits)
    with pytest.raises(InvalidRequest, match="rewrote in an order that isn't recorded"):
        net(untold)


# Conflicts


def test_a_conflict_without_evidence_stays_as_it_is(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    conflict = Conflict("a deadlock")
    log = lake.engine.at_entry(entry).log
    assert conflict_on_branch(conflict, changed(lake.engine, "t"), log, "x") is conflict


def test_a_conflict_names_the_commit_that_changed_the_file(lake: Lake) -> None:
    lake.do("INSERT INTO t VALUES (8, 8)")
    x = lake.on("x")
    lake.do("DELETE FROM t WHERE id = 8; DELETE FROM t WHERE id = 1", x)
    lake.do("DELETE FROM t WHERE id = 1")
    with pytest.raises(Conflict, match=r"it concerns version 4 \(DELETE\)"):
        lake.do("PUBLISH BRANCH x")


def test_versions_are_published_with_the_domains_of_others(lake: Lake) -> None:
    """The mark of row ids, for instance; but not whose table it is."""
    lake.do("ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    lake.do("PUBLISH BRANCH x PER TABLE")
    [*_, newest] = history(lake, "t", 2)
    domains = [one.domain for one in newest.actions if isinstance(one, DomainMetadata)]
    assert domains == ["delta.rowTracking"]


# Names and numbers


def test_which_tables_were_renamed(lake: Lake) -> None:
    x = lake.on("x")
    entry = branch_of(lake.engine, "x")
    lake.do("CREATE TABLE n (id BIGINT); ALTER TABLE t RENAME TO t2", x)
    renamed, same = table_of(lake.engine, "x", "t2"), table_of(lake.engine, "x", "u")
    assert is_renamed(renamed, entry)
    assert is_renamed(replace(renamed, origin=None), entry), "it was dropped where it began"
    assert not is_renamed(same, entry)
    assert not is_renamed(replace(renamed, is_dropped=True), entry)
    assert not is_renamed(table_of(lake.engine, "x", "n"), entry)
    lake.do("ALTER TABLE u RENAME TO u2")
    assert not is_renamed(table_of(lake.engine, "x", "u"), entry), "main has renamed it"


def test_changes_are_of_tables_of_branches_alone(lake: Lake) -> None:
    x = lake.on("x")
    lake.do("INSERT INTO t VALUES (9, 9)", x)
    own, of_main = x.engine.catalog.find("default", "t"), lake.catalog.find("default", "t")
    assert own is not None
    assert of_main is not None
    assert branch_table(x.engine, x.engine.at_entry(own)).entry.id == own.id
    path = lake.engine.at_path(TablePath("memory:///elsewhere"))
    for engine, handle in ((lake.engine, lake.engine.at_entry(of_main)), (x.engine, path)):
        with pytest.raises(InvalidRequest, match="is no table of a branch of the lake"):
            branch_table(engine, handle)


def test_what_commits_reported_is_summed_up() -> None:
    metrics: tuple[object, ...] = (
        {"numOutputRows": "7", "numTargetRowsUpdated": "2", "numTargetRowsCopied": "1"},
        {"numOutputRows": "3", "numUpdatedRows": "4", "numDeletedRows": "5", "path": "a"},
        {"numOutputRows": 100, "numDeletedRows": "-1", "numUpdatedRows": ["9"]},
        "none",
    )
    commits = [
        Commit(version, (), CommitInfo({"operationMetrics": each}), 0)
        for version, each in enumerate(metrics)
    ]
    commits.append(Commit(9, (), None, 0))
    assert reported_rows(commits) == RowCounts(inserted=7, updated=6, deleted=5)


def test_the_rows_of_a_new_table_are_counted_without_its_commits(lake: Lake) -> None:
    """Those before its checkpoint may be gone."""
    x = lake.on("x")
    lake.do("CREATE TABLE n (id BIGINT); INSERT INTO n VALUES (1), (2); DELETE FROM n", x)
    lake.do("INSERT INTO n VALUES (3), (4)", x)
    table = table_of(lake.engine, "x", "n")
    log = x.engine.at_entry(table.entry).log
    write_checkpoint(log)
    store = x.engine.store_at(table.entry.location)
    store.delete([f"_delta_log/{version:020}.json" for version in range(3)])
    fresh = Lake(lake.place, lake.catalog)
    assert row_counts(engine_of(fresh.engine, "x"), table) == RowCounts(inserted=2)
