"""A log's newest commits in memory: which are kept, and that conflict checks read none twice."""

from __future__ import annotations

import json

import pytest

from tests.commit.committing import append
from tests.commit.lake_of import lake_of
from tests.commit.log_of import VECTORS, LogOf, add
from tests.commit.test_rebase import deleting
from txlake.commit import recent_commits
from txlake.commit.recent_commits import RecentCommit, RecentCommits
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import CorruptTable
from txlake.protocol.actions import CommitInfo
from txlake.protocol.file_names import commit_path


def recent(version: int, actions: int = 1) -> RecentCommit:
    files = tuple(add(f"f{version}-{number}") for number in range(actions))
    return RecentCommit(version=version, actions=files, timestamp_ms=version)


def kept(commits: RecentCommits) -> list[int]:
    return [version for version in range(1000) if commits.summary(version) is not None]


def test_the_newest_commits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_commits, "_COMMITS_MAX", 3)
    monkeypatch.setattr(recent_commits, "_ACTIONS_MAX", 10)
    monkeypatch.setattr(recent_commits, "_ACTIONS_OF_ONE_MAX", 6)
    commits = RecentCommits()
    commits.add([recent(2), recent(1)])
    commits.add([recent(3)])
    commits.add([recent(4)])
    assert kept(commits) == [2, 3, 4]
    commits.add([recent(5, actions=7)])
    assert kept(commits) == [2, 3, 4], "5 is too large"
    commits.add([recent(5, actions=6), recent(6, actions=4)])
    assert kept(commits) == [5, 6], "ten actions, and no more"
    commits.clear()
    assert kept(commits) == []


def test_a_commit_is_summarised_once() -> None:
    commits = RecentCommits()
    commits.add([recent(7)])
    first = commits.summary(7)
    assert first is not None
    assert (first.version, first.timestamp_ms, len(first.added)) == (7, 7, 1)
    assert commits.summary(7) is first


def reads(table: LogOf, version: int) -> int:
    return table.store.requests.count(("get", commit_path(version)))


def appended(log: TableLog, path: str) -> TableTransaction:
    transaction = TableTransaction(log, log.latest())
    transaction.stage([add(path)], operation="WRITE")
    return transaction


def test_transactions_that_share_a_log_read_a_winner_once() -> None:
    table = LogOf().create(add("a"))
    log = table.open()
    first, second = appended(log, "x"), appended(log, "y")
    append(table, "b")
    append(table, "c")
    table.store.requests.clear()
    assert first.commit().rebased_over == (1, 2)
    assert second.commit().rebased_over == (1, 2, 3)
    assert [reads(table, version) for version in (1, 2, 3)] == [1, 1, 1]


def test_the_time_of_a_winner_is_that_of_its_file_if_its_commit_info_has_none() -> None:
    table = LogOf().create(add("a"))
    log = table.open()
    log.latest()
    table.commit(1, add("b"))
    table.commit(2, CommitInfo({"timestamp": 77}), add("c"))
    assert log.latest().version == 2
    written_ms = table.store.files[commit_path(1)][1]
    assert [one.timestamp_ms for one in log.concurrent_commits(0, 2)] == [written_ms, 77]
    fresh = table.open()
    fresh.latest()
    assert list(fresh.concurrent_commits(0, 2)) == list(log.concurrent_commits(0, 2))


def test_a_missing_winner_is_named() -> None:
    table = LogOf().create(add("a"))
    for version in (1, 2):
        table.commit(version, add(f"b{version}"))
    log = table.open()
    log.latest()
    table.remove_file(commit_path(1))
    with pytest.raises(CorruptTable, match=r"1\.json is missing \(expected every commit from 1 to"):
        list(log.concurrent_commits(0, 2))


def test_the_commits_of_a_table_made_anew_are_read() -> None:
    table = LogOf().create(add("a"))
    log = table.open()
    log.latest()
    table.commit(1, add("b"))
    log.latest()
    table.remove_file(*table.paths)
    table.create(add("new")).commit(1, add("other")).commit(2)
    log.latest()
    (winner,) = log.concurrent_commits(0, 1)
    assert [file.path for file in winner.added] == ["other"]


def test_transactions_that_share_a_log_read_a_vector_once() -> None:
    rows = json.dumps({"numRecords": 6})
    table = LogOf().create(
        add("a", stats=rows),
        configuration={"delta.enableDeletionVectors": "true"},
        protocol=VECTORS,
    )
    log = table.open()
    changes = [deleting(table, position, log=log) for position in (1, 2, 3)]
    table.store.requests.clear()
    for change in changes:
        change.commit()
    vectors = [path for kind, path in table.store.requests if kind == "get" and ".bin" in path]
    assert len(vectors) == len(set(vectors)) == 3, "those of the statements, and none made of them"


def test_a_writer_that_met_others_looks_for_their_commits_before_its_next_attempt() -> None:
    lake = lake_of()
    log = lake.open("a")

    def commit(*others: str) -> int:
        tx = lake.begin(logs={"a": log})
        tx.table("a").stage([add(f"own {len(lake.fake('a').files)}")], operation="WRITE")
        for path in others:
            lake.append("a", add(path))
        return tx.commit().attempts

    assert commit() == 1
    assert commit("x") == 2, "nothing said that there was another"
    assert commit("y") == 1
    assert commit() == 1
    assert commit("z") == 2, "it had met none"
