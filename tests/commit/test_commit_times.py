from __future__ import annotations

import pytest

from tests.commit.log_of import HOUR, START, LogOf, add, metadata
from txlake.commit.checkpointing import write_checkpoint
from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import Action, CommitInfo, Protocol
from txlake.protocol.file_names import commit_path


def _by_file_times(*hours: int) -> LogOf:
    """Versions whose commit files have these times, hours after the start."""
    table = LogOf().create(add("a"))
    for version in range(1, len(hours)):
        table.commit(version, add(f"f{version}"))
    for version, hour in enumerate(hours):
        path = commit_path(version)
        table.store.files[path] = (table.store.files[path][0], START + hour * HOUR)
    return table


@pytest.mark.parametrize(
    ("hour", "version"), [(1, 0), (1.5, 0), (2, 1), (2.9, 1), (3, 2), (4, 2), (5, 3)]
)
def test_the_newest_version_at_or_before(hour: float, version: int) -> None:
    log = _by_file_times(1, 2, 3, 5).open()
    time = START + int(hour * HOUR)
    assert log.version_at(time) == version
    assert log.snapshot(timestamp_ms=time).version == version


@pytest.mark.parametrize(
    ("hour", "version"), [(0, 0), (1, 0), (1.5, 1), (2, 1), (3.1, 3), (5, 3), (5.1, 4)]
)
def test_the_oldest_version_at_or_after(hour: float, version: int) -> None:
    log = _by_file_times(1, 2, 3, 5).open()
    assert log.version_from(START + int(hour * HOUR)) == version


def test_before_the_first_and_after_the_last() -> None:
    log = _by_file_times(1, 2, 3).open()
    with pytest.raises(
        InvalidRequest, match=r"before the oldest version .*: version 0 of 2024-10-04"
    ):
        log.snapshot(timestamp_ms=START)
    with pytest.raises(
        InvalidRequest, match="after the latest version: version 2 of 2024-10-04 03"
    ):
        log.snapshot(timestamp_ms=START + 3 * HOUR + 1)
    assert log.snapshot(timestamp_ms=START + 9 * HOUR, newest_if_later=True).version == 2


def test_a_version_or_a_time() -> None:
    with pytest.raises(InvalidRequest, match="not both"):
        _by_file_times(1).open().snapshot(0, START)


def test_file_times_are_made_increasing() -> None:
    log = _by_file_times(5, 5, 4, 9).open()
    times = [row["timestamp"] for row in log.history()]
    assert times == [START + 9 * HOUR, START + 5 * HOUR + 2, START + 5 * HOUR + 1, START + 5 * HOUR]
    assert log.version_at(START + 5 * HOUR + 1) == 1
    assert log.version_at(START + 6 * HOUR) == 2


def test_what_can_not_be_rebuilt_has_no_time() -> None:
    table = _by_file_times(1, 2, 3, 4)
    log = table.open()
    write_checkpoint(log, log.snapshot(2))
    table.remove_file(commit_path(0))
    fresh = table.open()
    with pytest.raises(InvalidRequest, match=r"before the oldest version .*version 2"):
        fresh.version_at(START + 2 * HOUR)
    assert fresh.version_at(START + 3 * HOUR) == 2
    with pytest.raises(InvalidRequest, match=r"before the oldest .*version 2 of .* are gone"):
        fresh.version_from(START + 2 * HOUR)
    assert fresh.version_from(START + 3 * HOUR) == 2
    of_kept = {0: 1, 1: 1, 2: 1, 2.5: 2, 4: 3, 5: 4}
    for hour, version in of_kept.items():
        assert fresh.version_from(START + int(hour * HOUR), of_kept=True) == version
    table.remove_file(*(path for path in table.paths if path.endswith("json")))
    with pytest.raises(InvalidRequest, match="Ask for a version instead"):
        table.open().version_at(START + 3 * HOUR)


_ON = {"delta.enableInCommitTimestamps": "true"}


def _info(hour: float) -> CommitInfo:
    return CommitInfo({"inCommitTimestamp": START + int(hour * HOUR), "timestamp": 1})


def _with_in_commit_times(*hours: float) -> LogOf:
    table = LogOf()
    for version, hour in enumerate(hours):
        first: list[Action] = [] if version else [*_protocol(), metadata(_ON)]
        table.commit(version, _info(hour), *first, add(f"f{version}"))
    return table


def _protocol() -> list[Action]:
    return [
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
    ]


def test_in_commit_times_win_over_those_of_files() -> None:
    log = _with_in_commit_times(10, 20, 30).open()
    assert log.latest().timestamp_ms == START + 30 * HOUR
    assert log.version_at(START + 25 * HOUR) == 1
    assert [row["timestamp"] for row in log.history(2)] == [START + 30 * HOUR, START + 20 * HOUR]
    with pytest.raises(InvalidRequest, match="before the oldest"):
        log.version_at(START + 9 * HOUR)


def test_a_checkpoint_has_none_so_that_the_commit_is_asked() -> None:
    table = _with_in_commit_times(10, 20)
    write_checkpoint(table.open())
    snapshot = table.open().latest()
    assert (snapshot.timestamp_ms, snapshot.in_commit_timestamp_ms) == (START + 20 * HOUR,) * 2


def test_times_from_before_they_were_in_the_commits() -> None:
    table = _by_file_times(1, 2)
    enabled = {
        **_ON,
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(START + 50 * HOUR),
    }
    table.commit(2, _info(50), *_protocol(), metadata(enabled))
    table.commit(3, _info(60), add("d"))
    log = table.open()
    assert log.version_at(START + 55 * HOUR) == 2
    assert log.version_at(START + 60 * HOUR) == 3
    assert log.version_at(START + 49 * HOUR) == 1
    assert log.version_at(START + 1 * HOUR) == 0
    since = {0: 0, 1: 0, 1.5: 1, 2: 1, 3: 2, 50: 2, 50.5: 3, 60: 3, 61: 4}
    for hour, version in since.items():
        assert log.version_from(START + int(hour * HOUR)) == version
    hours = [(int(str(row["timestamp"])) - START) // HOUR for row in log.history()]
    assert hours == [60, 50, 2, 1]


def test_a_commit_without_its_time_is_damage() -> None:
    table = _with_in_commit_times(10, 20, 30)
    table.commit(1, CommitInfo({"timestamp": 1}), add("x"))
    with pytest.raises(CorruptTable, match=f"{commit_path(1)}: expected an inCommitTimestamp"):
        table.open().version_at(START + 20 * HOUR)
