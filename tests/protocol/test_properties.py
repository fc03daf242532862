from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.protocol.properties import (
    canonical_key,
    column_list,
    interval_ms,
    isolation_level,
    size_bytes,
    stored_configuration,
    validate_set,
    validate_unset,
)

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("INTERVAL 1 Week", 7 * DAY),
        ("2 weeks", 14 * DAY),
        ("1 day 12 hours", 36 * HOUR),
        ("0 hours", 0),
        ("1.5 seconds", 1500),
        (".25 second", 250),
        ("2. seconds", 2000),
        ("2 minutes 3 milliseconds 1999 microseconds", 120_004),
        ("+ 1 day  -1 hour", 23 * HOUR),
        ("1 year -12 months 1 day", DAY),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "interval", "interval1 day", "1 month", "2 years", "-1 days", "days", "7", "1 day x"),
        *("30days", "1 day, 2 hours", "'2' days", "1.5 days", ". seconds", "1.0000000001 seconds"),
        *("- days", "1 quarter", "1 dayss", "1 ms", "99999999999999999 weeks", "\u0661 day"),
    ],
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(ValueError, match=r"interval|no fixed length"):
        interval_ms(text)


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 1 << 20), ("128mb", 128 << 20), ("1g", 1 << 30), ("5 KB", 5120)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5g", "lots"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a", [("a",)]),
        ("a, s.b ,c", [("a",), ("s", "b"), ("c",)]),
        ("`odd, na``me`.x", [("odd, na`me", "x")]),
        ("", []),
    ],
)
def test_lists_of_columns(text: str, columns: list[tuple[str, ...]]) -> None:
    assert list(column_list(text)) == columns


@pytest.mark.parametrize("text", ["a,", ",a", "a b", "a..b", "`a", "a.,b"])
def test_what_is_no_list_of_columns(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of columns"):
        column_list(text)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Serializable", "serializable"),
        ("WriteSerializable", "write_serializable"),
        ("write_serializable", "write_serializable"),
        ("Snapshot", "snapshot"),
        ("SnapshotIsolation", "snapshot"),
    ],
)
def test_isolation_levels_in_any_spelling(text: str, level: str) -> None:
    assert isolation_level(text) == level


def test_known_keys_are_stored_in_their_own_spelling() -> None:
    assert validate_set("DELTA.APPENDONLY", "true") == ("delta.appendOnly", "true")
    assert canonical_key("delta.FEATURE.rowTracking") == "delta.feature.rowTracking"
    assert canonical_key("Owner") == "Owner"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("owner", "me"),
        ("spark.x", ""),
        ("delta.feature.rowTracking", "supported"),
        ("delta.minWriterVersion", "7"),
        ("delta.isolationLevel", "Snapshot"),
        ("delta.universalFormat.config.iceberg.x", "1"),
    ],
)
def test_what_users_may_set(key: str, value: str) -> None:
    assert validate_set(key, value) == (key, value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("delta.nosuch", "1", "'delta.nosuch' is unknown: known keys are .*delta.appendOnly"),
        ("txlake.nosuch", "1", "is unknown"),
        ("delta.appendOnly", "yes", "expected true or false, found 'yes'"),
        ("delta.isolationLevel", "ReadCommitted", "expected Serializable, WriteSerializable"),
        ("delta.checkpointInterval", "0", "a whole number from 1"),
        ("delta.minReaderVersion", "9", "expected 1, 2 or 3"),
        ("delta.feature.rowTracking", "yes", "expected supported"),
        ("delta.columnMapping.maxColumnId", "3", "kept by the engine"),
        ("delta.constraints.c", "a > 0", "ADD CONSTRAINT"),
        ("delta.parquet.format.version", "3", "1.0.0 or 2.x.x"),
        ("delta.checkpointInterval", "1_0", "a whole number from 1"),
        ("delta.targetFileSize", "big", "a size in bytes"),
        ("delta.dataSkippingStatsColumns", "a,,", "a list of columns"),
        ("delta.logRetentionDuration", "interval 1 month", "without months and years"),
    ],
)
def test_what_users_may_not_set(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        validate_set(key, value)


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("delta.checkpointPolicy", " V2 ", "v2"),
        ("delta.appendOnly", " TRUE", "TRUE"),
        ("delta.checkpointInterval", "10 ", "10"),
    ],
)
def test_a_value_is_stored_as_every_reader_of_delta_takes_it(
    key: str, value: str, stored: str
) -> None:
    assert validate_set(key, value) == (key, stored)


def test_constraints_come_with_a_new_table() -> None:
    stored = validate_set("Delta.Constraints.Positive", "a > 0", creating=True)
    assert stored == ("delta.constraints.Positive", "a > 0")


def test_what_users_may_remove() -> None:
    assert validate_unset("DELTA.appendonly") == "delta.appendOnly"
    assert validate_unset("owner") == "owner"
    with pytest.raises(InvalidRequest, match="kept by the engine"):
        validate_unset("delta.columnMapping.maxColumnId")
    with pytest.raises(InvalidRequest, match="DROP CONSTRAINT"):
        validate_unset("delta.constraints.c")


def test_what_asks_for_a_protocol_is_not_stored() -> None:
    asked = {
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.ignoreProtocolDefaults": "true",
        "delta.feature.rowTracking": "supported",
        "delta.appendOnly": "true",
        "owner": "me",
    }
    assert stored_configuration(asked) == {"delta.appendOnly": "true", "owner": "me"}
