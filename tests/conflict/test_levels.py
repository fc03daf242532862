"""Names and order of the isolation levels."""

from __future__ import annotations

import pytest

from txlake.conflict.levels import Level, checked_at, parse_level, strictest
from txlake.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("serializable", Level.SERIALIZABLE),
        ("Serializable", Level.SERIALIZABLE),
        ("write_serializable", Level.WRITE_SERIALIZABLE),
        ("WriteSerializable", Level.WRITE_SERIALIZABLE),
        ("WRITE SERIALIZABLE", Level.WRITE_SERIALIZABLE),
        ("snapshot", Level.SNAPSHOT),
        ("Snapshot", Level.SNAPSHOT),
        ("SnapshotIsolation", Level.SNAPSHOT),
    ],
)
def test_spellings(text: str, level: Level) -> None:
    assert parse_level(text) is level


def test_an_unknown_level_lists_the_known() -> None:
    with pytest.raises(InvalidRequest, match=r"'repeatable'.*write_serializable"):
        parse_level("repeatable")


def test_the_strictest_counts_and_the_default_is_write_serializable() -> None:
    assert strictest() is Level.WRITE_SERIALIZABLE
    assert strictest(None, None) is Level.WRITE_SERIALIZABLE
    assert strictest(None, Level.SNAPSHOT) is Level.SNAPSHOT
    assert strictest(Level.SNAPSHOT, Level.SERIALIZABLE, None) is Level.SERIALIZABLE
    assert strictest(Level.SNAPSHOT, Level.WRITE_SERIALIZABLE) is Level.WRITE_SERIALIZABLE


def test_what_changes_no_data_is_checked_at_snapshot() -> None:
    for level in Level:
        assert checked_at(level, changes_data=True) is level
        assert checked_at(level, changes_data=False) is Level.SNAPSHOT


def test_names_in_a_commit_info() -> None:
    assert [level.delta_name for level in Level] == [
        "SnapshotIsolation",
        "WriteSerializable",
        "Serializable",
    ]
