"""The properties of one table: what each is, and that an odd one is in nobody's way."""

from __future__ import annotations

import pytest

from txlake.errors import CorruptTable
from txlake.protocol.table_properties import TableProperties

HOUR = 3_600_000
DAY = 24 * HOUR

# Attribute: its default, a text and what that means.
PROPERTIES: dict[str, tuple[object, str, str, object]] = {
    "append_only": (False, "delta.appendOnly", "TRUE", True),
    "enable_deletion_vectors": (False, "delta.enableDeletionVectors", "true", True),
    "checkpoint_interval": (10, "delta.checkpointInterval", "3", 3),
    "checkpoint_policy": ("classic", "delta.checkpointPolicy", "v2", "v2"),
    "checkpoint_write_stats_as_json": (True, "delta.checkpoint.writeStatsAsJson", "false", False),
    "checkpoint_write_stats_as_struct": (
        False,
        "delta.checkpoint.writeStatsAsStruct",
        "true",
        True,
    ),
    "isolation_level": (None, "delta.isolationLevel", "SnapshotIsolation", "snapshot"),
    "in_commit_timestamp_enablement_version": (
        None,
        "delta.inCommitTimestampEnablementVersion",
        "0",
        0,
    ),
    "in_commit_timestamp_enablement_timestamp_ms": (
        None,
        "delta.inCommitTimestampEnablementTimestamp",
        "12",
        12,
    ),
    "row_tracking": (False, "delta.enableRowTracking", "true", True),
    "materialized_row_id_column": (
        None,
        "delta.rowTracking.materializedRowIdColumnName",
        "_id",
        "_id",
    ),
    "materialized_row_commit_version_column": (
        None,
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "_version",
        "_version",
    ),
    "log_retention_ms": (30 * DAY, "delta.logRetentionDuration", "0 days", 0),
    "deleted_file_retention_ms": (
        7 * DAY,
        "delta.deletedFileRetentionDuration",
        "interval 1 hour",
        HOUR,
    ),
    "transaction_retention_ms": (None, "delta.setTransactionRetentionDuration", "1 day", DAY),
    "drop_feature_log_retention_ms": (
        DAY,
        "delta.dropFeatureTruncateHistory.retentionDuration",
        "2 days",
        2 * DAY,
    ),
    "enable_expired_log_cleanup": (True, "delta.enableExpiredLogCleanup", "false", False),
    "data_skipping_num_indexed_cols": (32, "delta.dataSkippingNumIndexedCols", "0", 0),
    "data_skipping_stats_columns": (
        None,
        "delta.dataSkippingStatsColumns",
        "a,s.b",
        (("a",), ("s", "b")),
    ),
    "type_widening": (False, "delta.enableTypeWidening", "true", True),
    "change_data_feed": (False, "delta.enableChangeDataFeed", "true", True),
    "auto_optimize": (False, "delta.autoOptimize", "true", True),
    "auto_compact": ("false", "delta.autoOptimize.autoCompact", "auto", "auto"),
    "optimize_write": (False, "delta.autoOptimize.optimizeWrite", "true", True),
    "target_file_size": (None, "delta.targetFileSize", "1mb", 1 << 20),
    "conflict_granularity": ("row", "txlake.conflictGranularity", "table", "table"),
}
TUNING = (
    "auto_compact",
    "auto_optimize",
    "checkpoint_interval",
    "checkpoint_policy",
    "checkpoint_write_stats_as_json",
    "checkpoint_write_stats_as_struct",
    "data_skipping_num_indexed_cols",
    "data_skipping_stats_columns",
    "optimize_write",
    "target_file_size",
    "transaction_retention_ms",
)
FREE = ("materialized_row_id_column", "materialized_row_commit_version_column")
ODD = {key: "`odd" for _, key, _, _ in PROPERTIES.values()}


@pytest.mark.parametrize("name", PROPERTIES)
def test_each_is_read(name: str) -> None:
    default, key, text, value = PROPERTIES[name]
    assert getattr(TableProperties({}), name) == default
    assert getattr(TableProperties({key: text}), name) == value


def test_there_are_no_others() -> None:
    others = {"configuration", "table", "constraints", "require_writable"}
    names = {name for name in dir(TableProperties()) if not name.startswith("_")}
    assert names == PROPERTIES.keys() | others


@pytest.mark.parametrize("name", TUNING)
def test_a_value_that_only_tunes_gives_way_to_the_default(name: str) -> None:
    assert getattr(TableProperties(ODD), name) == PROPERTIES[name][0]


@pytest.mark.parametrize("name", sorted(PROPERTIES.keys() - {*TUNING, *FREE}))
def test_a_value_on_which_meaning_depends_is_refused_where_it_is_asked_for(name: str) -> None:
    key = PROPERTIES[name][1]
    with pytest.raises(CorruptTable, match=rf"^lake\.t: table property '{key}': expected .*`odd"):
        getattr(TableProperties(ODD, "lake.t"), name)
    alone = {other: text for other, text in ODD.items() if other != key}
    assert getattr(TableProperties(alone), name) == PROPERTIES[name][0]


def test_the_error_says_how_to_mend_it() -> None:
    odd = {"delta.logRetentionDuration": "interval 1 month"}
    with pytest.raises(CorruptTable, match=r"SET TBLPROPERTIES \('delta.logRetentionDuration'"):
        _ = TableProperties(odd, "t").log_retention_ms
    began = {"delta.inCommitTimestampEnablementVersion": "one"}
    with pytest.raises(CorruptTable, match=r"Turn delta.enableInCommitTimestamps off and on again"):
        _ = TableProperties(began, "t").in_commit_timestamp_enablement_version


@pytest.mark.parametrize(
    ("key", "is_needed"),
    [
        ("delta.appendOnly", True),
        ("delta.columnMapping.mode", True),
        ("delta.enableRowTracking", True),
        ("delta.isolationLevel", True),
        ("delta.checkpointPolicy", False),
        ("delta.logRetentionDuration", False),
    ],
)
def test_what_a_writer_of_files_must_understand(key: str, is_needed: bool) -> None:
    properties = TableProperties({key: "odd"}, "t")
    if not is_needed:
        properties.require_writable()
        return
    with pytest.raises(CorruptTable, match=key):
        properties.require_writable()


def test_the_older_name_of_change_data_feed() -> None:
    older = {"delta.enableChangeDataCapture": "true"}
    assert TableProperties(older).change_data_feed
    assert not TableProperties({**older, "delta.enableChangeDataFeed": "false"}).change_data_feed


def test_constraints_by_name() -> None:
    given = {"delta.constraints.positive": "a > 0", "owner": "me"}
    assert TableProperties(given).constraints == {"positive": "a > 0"}
