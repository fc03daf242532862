"""How far a log reaches: the oldest commit, the newest checkpoint and checksum, and by what."""

from __future__ import annotations

import pytest

from tests.commit.distant import Distant
from tests.commit.lake_of import LakeOf
from tests.commit.log_of import Clock, LogOf, add
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.log_extent import LogExtent, log_extent
from txlake.commit.table_log import TableLog
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.settings import Settings


def _log(versions: int, *checkpoints: int) -> LogOf:
    """A log of so many versions, each with a checksum."""
    table = LogOf().create(add("f0"))
    table.store.put(checksum_path(0), b"{}")
    for version in range(1, versions):
        table.commit(version, add(f"f{version}"))
        table.store.put(checksum_path(version), b"{}")
        if version in checkpoints:
            write_checkpoint(table.open())
    return table


def _extent(table: LogOf) -> tuple[LogExtent, list[str]]:
    """What is found, and the folders that were listed for it."""
    log = table.open()
    newest = log.latest()
    table.store.requests.clear()
    found = log_extent(log, newest)
    return found, [path for kind, path in table.store.requests if kind == "list"]


@pytest.mark.parametrize("cleaned", [0, 1, 2, 7, 10, 14, 20])
def test_the_oldest_commit_is_found_by_name(cleaned: int) -> None:
    table = _log(25, 20)
    for version in range(cleaned):
        table.store.delete([commit_path(version)])
    found, listed = _extent(table)
    assert (found.oldest_commit, found.checkpoint, found.checksum) == (cleaned, 20, 24)
    assert listed == []
    assert len(table.store.requests) < 12


def test_a_log_without_commits_has_no_oldest_one() -> None:
    table = _log(11, 10)
    for version in range(11):
        table.store.delete([commit_path(version)])
    found, _ = _extent(table)
    assert (found.oldest_commit, found.checkpoint) == (None, 10)


def test_the_newest_commit_may_be_the_only_one() -> None:
    table = _log(11, 10)
    for version in range(10):
        table.store.delete([commit_path(version)])
    assert _extent(table)[0].oldest_commit == 10


def test_over_a_network_the_oldest_commit_is_the_first_of_a_listing() -> None:
    table = _log(25)
    clock = Clock()
    store = Distant(clock, "s3://bucket/t")
    store.files = {path: data for path, data in table.store.files.items() if path != commit_path(0)}
    log = TableLog(store, clock, Settings())
    newest = table.open().latest()
    write_checkpoint(log, newest)
    store.requests.clear()
    assert log_extent(log, newest).oldest_commit == 1
    assert [kind for kind, path in store.requests if path == commit_path(1)] == []


def test_a_hint_that_may_be_stale_is_not_trusted() -> None:
    table = _log(31, 10, 20, 30)
    table.store.delete([LAST_CHECKPOINT_PATH, log_path(ClassicCheckpoint(10))])
    found, listed = _extent(table)
    assert (found.checkpoint, len(listed)) == (30, 1)
    for version in (10, 20):  # the hint is written for the older of two writers' checkpoints
        stale = _log(31, version)
        newer = _log(31, 30).store.files[log_path(ClassicCheckpoint(30))]
        stale.store.files[log_path(ClassicCheckpoint(30))] = newer
        found, _ = _extent(stale)
        assert found.checkpoint == (30 if version == 10 else 20)


def test_a_checkpoint_that_is_gone_is_not_the_newest() -> None:
    table = _log(31, 10, 30)
    table.store.delete([log_path(ClassicCheckpoint(30))])
    found, _ = _extent(table)
    assert found.checkpoint == 10
    table.store.delete([log_path(ClassicCheckpoint(10))])
    found, _ = _extent(table)
    assert found.checkpoint is None


def test_checksums_are_looked_for_among_the_newest_versions() -> None:
    table = _log(25)
    table.store.delete([checksum_path(version) for version in range(16, 25)])
    assert _extent(table)[0].checksum == 15
    table.store.delete([checksum_path(15)])
    assert _extent(table)[0].checksum is None


def test_versions_that_wait_to_be_published_are_told_apart() -> None:
    lake = LakeOf().create("a")
    lake.append("a", add("f1"))
    log = lake.open("a")
    assert log_extent(log, log.latest()).unpublished == ()
    lake.fake("a").failing.add(commit_path(2))
    lake.append("a", add("f2"))
    log = lake.open("a")
    found = log_extent(log, log.latest())
    assert (found.unpublished, found.oldest_commit) == ((2,), 0)
