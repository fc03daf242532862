from __future__ import annotations

import pytest

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.properties import (
    TableProperties,
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
        ("interval '2' days", 2 * DAY),
        ("0 hours", 0),
        ("1.5 seconds", 1500),
        ("2 minutes 3 milliseconds", 120_003),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "interval", "1 month", "2 years", "-1 days", "days", "7", "1 day x"]
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(ValueError, match="interval"):
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
    parsed = TableProperties.parse({"delta.isolationLevel": text}, table="t")
    assert parsed.isolation_level == level


def test_defaults() -> None:
    found = TableProperties.parse({}, table="t")
    assert found == TableProperties()
    assert (found.checkpoint_interval, found.data_skipping_num_indexed_cols) == (10, 32)
    assert (found.log_retention_ms, found.deleted_file_retention_ms) == (30 * DAY, 7 * DAY)
    assert found.isolation_level is None
    assert found.conflict_granularity == "row"


def test_every_property_is_read() -> None:
    found = TableProperties.parse(
        {
            "delta.appendOnly": "TRUE",
            "delta.enableDeletionVectors": "true",
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "7",
            "delta.checkpointInterval": "3",
            "delta.checkpointPolicy": "v2",
            "delta.checkpoint.writeStatsAsJson": "false",
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "0",
            "delta.inCommitTimestampEnablementTimestamp": "12",
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
            "delta.logRetentionDuration": "0 days",
            "delta.deletedFileRetentionDuration": "interval 1 hour",
            "delta.setTransactionRetentionDuration": "1 day",
            "delta.enableExpiredLogCleanup": "false",
            "delta.dataSkippingNumIndexedCols": "0",
            "delta.dataSkippingStatsColumns": "a,s.b",
            "delta.enableTypeWidening": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.enableIcebergCompatV2": "true",
            "delta.targetFileSize": "1mb",
            "delta.parquet.compression.codec": "ZSTD",
            "txlake.conflictGranularity": "table",
            "delta.constraints.positive": "a > 0",
            "owner": "me",
            "delta.unknownToUs": "x",
        },
        table="t",
    )
    assert found == TableProperties(
        append_only=True,
        enable_deletion_vectors=True,
        column_mapping_mode="name",
        max_column_id=7,
        checkpoint_interval=3,
        checkpoint_policy="v2",
        checkpoint_write_stats_as_json=False,
        checkpoint_write_stats_as_struct=True,
        in_commit_timestamps=True,
        in_commit_timestamp_enablement_version=0,
        in_commit_timestamp_enablement_timestamp_ms=12,
        row_tracking=True,
        materialized_row_id_column="_id",
        materialized_row_commit_version_column="_version",
        log_retention_ms=0,
        deleted_file_retention_ms=HOUR,
        transaction_retention_ms=DAY,
        enable_expired_log_cleanup=False,
        data_skipping_num_indexed_cols=0,
        data_skipping_stats_columns=(("a",), ("s", "b")),
        type_widening=True,
        change_data_feed=True,
        iceberg_compat=True,
        target_file_size=1 << 20,
        compression_codec="zstd",
        conflict_granularity="table",
        constraints={"positive": "a > 0"},
    )


def test_the_older_name_of_change_data_feed() -> None:
    older = {"delta.enableChangeDataCapture": "true"}
    assert TableProperties.parse(older, table="t").change_data_feed
    both = {**older, "delta.enableChangeDataFeed": "false"}
    assert not TableProperties.parse(both, table="t").change_data_feed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.columnMapping.mode", "guess"),
        ("delta.isolationLevel", "Chaos"),
        ("delta.logRetentionDuration", "1 month"),
        ("txlake.conflictGranularity", "page"),
    ],
)
def test_a_value_on_which_meaning_depends_must_make_sense(key: str, value: str) -> None:
    with pytest.raises(CorruptTable, match=rf"lake\.t: .*'{key}'.*{value}"):
        TableProperties.parse({key: value}, table="lake.t")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.checkpointInterval", "0"),
        ("delta.dataSkippingNumIndexedCols", "many"),
        ("delta.dataSkippingStatsColumns", "a,,"),
        ("delta.targetFileSize", "big"),
    ],
)
def test_a_value_that_only_tunes_gives_way_to_the_default(key: str, value: str) -> None:
    assert TableProperties.parse({key: value}, table="t") == TableProperties()
    with pytest.raises(InvalidRequest, match=key):
        validate_set(key, value)


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
    ],
)
def test_what_users_may_not_set(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        validate_set(key, value)


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
