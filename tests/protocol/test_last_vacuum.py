"""`_last_vacuum_info`: what a VACUUM leaves for the next one."""

from __future__ import annotations

import json

import pytest

from txlake.protocol.last_vacuum import LastVacuum, read_last_vacuum, write_last_vacuum


@pytest.mark.parametrize(
    "last", [LastVacuum(), LastVacuum(3), LastVacuum(0, 1_700_000_000_000), LastVacuum(None, 5)]
)
def test_what_is_written_is_read(last: LastVacuum) -> None:
    assert read_last_vacuum(write_last_vacuum(last)) == last


def test_the_keys_are_delta_sparks_and_one_of_our_own() -> None:
    assert json.loads(write_last_vacuum(LastVacuum(3, 4))) == {
        "latestCommitVersionOutsideOfRetentionWindow": 3,
        "txlake.fullVacuumMs": 4,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"[" * 100_000,
        b'{"latestCommitVersionOutsideOfRetentionWindow": "3"}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": true}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": -1}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": 1.5}',
    ],
)
def test_a_damaged_file_says_nothing(data: bytes) -> None:
    assert read_last_vacuum(data) == LastVacuum()


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (LastVacuum(5, 10), LastVacuum(5, 10)),
        (LastVacuum(6, 10), LastVacuum(None, 10)),
        (LastVacuum(5, 11), LastVacuum(5, None)),
        (LastVacuum(), LastVacuum()),
    ],
)
def test_later_versions_and_times_are_not_believed(noted: LastVacuum, expected: LastVacuum) -> None:
    assert noted.possible(newest=5, now_ms=10) == expected


def test_nothing_goes_back() -> None:
    assert LastVacuum(5, 10).then(LastVacuum(3, None)) == LastVacuum(5, 10)
    assert LastVacuum(5, 10).then(LastVacuum(None, 11)) == LastVacuum(5, 11)
    assert LastVacuum().then(LastVacuum(0, 1)) == LastVacuum(0, 1)
