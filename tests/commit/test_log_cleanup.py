from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.commit.lake_of import LakeOf
from tests.commit.log_of import DAY, HOUR, START, LogOf, add, with_damaged_stats
from tests.commit.test_checkpointing import _V2
from txlake.commit.checkpointing import maybe_checkpoint, write_checkpoint
from txlake.commit.log_cleanup import clean_log, clean_log_once
from txlake.ports import StoredObject
from txlake.protocol.actions import encode_actions
from txlake.protocol.file_names import (
    ClassicCheckpoint,
    Compaction,
    LogFile,
    StagedCommit,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.settings import Settings

_MONTH = 30 * DAY


def _a_commit_a_day(days: int, checkpoints: tuple[int, ...]) -> LogOf:
    """Version n is written n days and an hour after the start."""
    table = LogOf()
    for version in range(days):
        table.clock.time_ms = START + version * DAY
        if version:
            table.commit(version, add(f"f{version}", stats="{}"), after_ms=HOUR)
        else:
            table.create(add("f0"))
        table.store.put(checksum_path(version), b"{}")
        if version in checkpoints:
            write_checkpoint(table.open())
    return table


@pytest.mark.parametrize(("read", "first_kept"), [(None, 9), (8, 6), (6, 6), (5, 3), (2, 0)])
def test_what_open_transactions_of_a_lake_read_stays_whatever_the_clock_says(
    read: int | None, first_kept: int
) -> None:
    lake = LakeOf().create("a", configuration={"delta.checkpointInterval": "3"})
    for number in range(1, 11):
        lake.append("a", add(f"f{number}"))
    # The instant after the table was made is 1.
    lake.ledger.read = [] if read is None else [1 + read, 8]
    lake.clock.time_ms += 1_000 * DAY
    clean_log(lake.open("a"), retention_ms=_MONTH)
    assert [v for v in range(11) if lake.store("a").head(commit_path(v))] == list(
        range(first_kept, 11)
    )


def test_the_catalog_is_asked_only_where_something_is_old_enough() -> None:
    lake = LakeOf().create("a", configuration={"delta.checkpointInterval": "3"})
    for number in range(1, 4):
        lake.append("a", add(f"f{number}"))
    log = lake.open("a")
    lake.ledger.requests.clear()
    clean_log(log, retention_ms=_MONTH)
    assert lake.ledger.requests == []
    lake.clock.time_ms += 1_000 * DAY
    clean_log(log, retention_ms=_MONTH)
    assert lake.ledger.requests[0] == "oldest_read"


@pytest.mark.parametrize(
    ("checkpoints", "now_day", "first_kept"),
    [
        pytest.param((5, 10, 15), 45, 10, id="the checkpoint before the cut is kept"),
        pytest.param((5, 10, 15), 50, 15, id="later, the next one"),
        pytest.param((5, 10, 15), 41, 10, id="from the midnight after it on"),
        pytest.param((5, 10, 15), 40, 5, id="not on its own day"),
        pytest.param((5, 10, 15), 500, 15, id="the newest is always kept"),
        pytest.param((5,), 34, 0, id="nothing is old enough"),
        pytest.param((5,), 20, 0, id="no commit is"),
        pytest.param((), 500, 0, id="no checkpoint, nothing deleted"),
    ],
)
def test_what_the_oldest_kept_version_needs_stays(
    checkpoints: tuple[int, ...], now_day: int, first_kept: int
) -> None:
    table = _a_commit_a_day(20, checkpoints)
    table.clock.time_ms = START + now_day * DAY + 2 * HOUR
    clean_log(table.open(), retention_ms=_MONTH)
    assert [v for v in range(20) if commit_path(v) in table.paths] == list(range(first_kept, 20))
    assert [v for v in range(20) if checksum_path(v) in table.paths] == list(range(first_kept, 20))
    kept = [v for v in checkpoints if log_path(ClassicCheckpoint(v)) in table.paths]
    assert kept == [v for v in checkpoints if v >= first_kept]
    for version in range(first_kept, 20):
        assert len(table.open().snapshot(version).files) == version + 1


@pytest.mark.parametrize("part", ["all", "statistics"])
def test_a_checkpoint_that_can_not_be_read_deletes_nothing(part: str) -> None:
    table = _a_commit_a_day(20, (5, 10))
    path = log_path(ClassicCheckpoint(10))
    whole = table.store.files[path][0]
    table.store.put(path, b"PAR1garbage" if part == "all" else with_damaged_stats(whole))
    table.clock.time_ms = START + 500 * DAY
    before = table.paths
    assert clean_log(table.open(), retention_ms=_MONTH) == []
    assert table.paths == before


def test_a_later_checkpoint_that_can_not_be_read_keeps_nothing() -> None:
    table = _a_commit_a_day(20, (5, 10))
    table.store.put(log_path(ClassicCheckpoint(15)), b"PAR1garbage")
    table.clock.time_ms = START + 45 * DAY
    assert commit_path(9) in clean_log(table.open(), retention_ms=_MONTH)


def test_the_log_is_listed_up_to_the_first_commit_of_the_retention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _a_commit_a_day(40, (2, 4, 30))
    table.clock.time_ms = START + 36 * DAY
    taken: list[str] = []
    real = table.store.list

    def watched(*given: object, **more: object) -> Iterator[StoredObject]:
        for item in real(*given, **more):  # type: ignore[arg-type]
            taken.append(item.path)
            yield item

    monkeypatch.setattr(table.store, "list", watched)
    assert commit_path(3) in clean_log(table.open(), retention_ms=_MONTH)
    assert commit_path(6) in taken
    assert [path for path in taken if commit_path(7) < path < commit_path(29)] == []


def test_one_log_is_cleaned_once_for_each_midnight() -> None:
    table = _a_commit_a_day(20, (5, 10, 15))
    table.clock.time_ms = START + 41 * DAY + 2 * HOUR
    log = table.open()
    clean_log_once(log, retention_ms=_MONTH)
    assert commit_path(9) not in table.paths
    listings = len(table.store.sweeps)
    table.clock.time_ms += 20 * HOUR
    clean_log_once(log, retention_ms=_MONTH)
    assert len(table.store.sweeps) == listings
    clean_log_once(log, retention_ms=_MONTH - 5 * DAY)
    assert commit_path(14) not in table.paths
    listings = len(table.store.sweeps)
    table.clock.time_ms += 4 * HOUR
    clean_log_once(log, retention_ms=_MONTH - 5 * DAY)
    assert len(table.store.sweeps) == listings + 1


def test_leftovers_of_killed_writers_go_a_day_later() -> None:
    table = _a_commit_a_day(3, ())
    table.clock.time_ms = START + 5 * DAY + 2 * HOUR
    clean_log(table.open(), retention_ms=_MONTH)
    assert table.store.sweeps == [("_delta_log", START + 4 * DAY)]


def test_compactions_and_staged_commits_go_with_their_versions() -> None:
    table = _a_commit_a_day(10, (5,))
    kept: list[LogFile] = [Compaction(6, 8), StagedCommit(6, "x")]
    gone: list[LogFile] = [
        Compaction(2, 4),
        Compaction(4, 8),
        Compaction(5, 6),
        StagedCommit(5, "x"),
    ]
    for file in (*kept, *gone):
        table.store.put(log_path(file), encode_actions([]))
    table.clock.time_ms = START + 500 * DAY
    clean_log(table.open(), retention_ms=_MONTH)
    assert [log_path(file) in table.paths for file in kept] == [True] * 2
    assert [log_path(file) in table.paths for file in gone] == [False] * 4


def test_sidecars_live_as_long_as_a_checkpoint_that_names_them() -> None:
    table = LogOf(Settings())
    policy = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1"}
    table.create(add("a"), configuration=policy, protocol=_V2)
    write_checkpoint(table.open())
    table.store.put("_delta_log/_sidecars/orphan.parquet", b"x")
    table.clock.time_ms = START + 40 * DAY
    table.commit(1, add("b"))
    write_checkpoint(table.open())
    table.store.put("_delta_log/_sidecars/young.parquet", b"x")
    names = [path for path in table.paths if "_sidecars" in path]
    table.clock.time_ms = START + 40 * DAY + 2 * HOUR
    gone = clean_log(table.open(), retention_ms=_MONTH)
    assert gone == ["_delta_log/_sidecars/orphan.parquet"]
    table.clock.time_ms = START + 80 * DAY
    clean_log(table.open(), retention_ms=_MONTH)
    left = [path for path in table.paths if "_sidecars" in path]
    assert len(names) == 4
    assert len(left) == 1
    assert len(table.open().latest().files) == 2


def test_unreadable_manifests_keep_all_sidecars() -> None:
    table = LogOf().create(add("a"), configuration={"delta.checkpointPolicy": "v2"}, protocol=_V2)
    write_checkpoint(table.open())
    manifest = next(path for path in table.paths if ".checkpoint." in path)
    table.store.put(manifest, b"")
    table.clock.time_ms = START + 80 * DAY
    assert clean_log(table.open(), retention_ms=_MONTH) == []


@pytest.mark.parametrize(("enabled", "first"), [("true", 10), ("false", 0)])
def test_a_checkpoint_by_interval_cleans_the_log_unless_told_not_to(
    enabled: str, first: int
) -> None:
    table = LogOf().create(
        add("f0"),
        configuration={
            "delta.enableExpiredLogCleanup": enabled,
            "delta.logRetentionDuration": "interval 5 days",
        },
    )
    for version in range(1, 21):
        table.clock.time_ms = START + version * DAY
        table.commit(version, add(f"f{version}"))
        log = table.open()
        maybe_checkpoint(log, log.latest())
    assert min(v for v in range(21) if commit_path(v) in table.paths) == first
    assert len(table.open().latest().files) == 21
