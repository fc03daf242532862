"""The properties of one table, typed, each parsed when it is read.

Owns their defaults, and which of them a writer must understand. Keys and values are `properties`'.
Source: PROTOCOL.md, "Table Properties".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from txlake.protocol.properties import (
    CONSTRAINT_PREFIX,
    invalid_property,
    is_valid_property,
    parse_property,
)

_DAY_MS = 86_400_000
# An invalid value of these can't change what is read or may be written: the default is used.
_TUNING = frozenset(
    {
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointPolicy",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
    }
)
# These bind writers of files, or set how transactions are isolated from each other.
_BINDING = (
    "delta.appendOnly",
    "delta.columnMapping.mode",
    "delta.enableChangeDataCapture",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.enableInCommitTimestamps",
    "delta.enableMaterializePartitionColumnsFeature",
    "delta.enableRowTracking",
    "delta.enableTypeWidening",
    "delta.enableVariantShredding",
    "delta.isolationLevel",
    "delta.rowTrackingSuspended",
    "txlake.conflictGranularity",
)


_T = TypeVar("_T")


class _Property(Generic[_T]):
    """One property of a table, parsed from its text at each access."""

    def __init__(self, key: str, default: _T, *, older: str | None = None) -> None:
        self._key = key
        self._default = default
        self._older = older

    def __get__(self, of: TableProperties, owner: type[TableProperties]) -> _T:
        key = self._key
        if self._older is not None and key not in of.configuration:
            key = self._older
        text = of.configuration.get(key)
        if text is None:
            return self._default
        try:
            return cast("_T", parse_property(key, text))
        except ValueError as error:
            if key in _TUNING:
                return self._default
            raise invalid_property(of.table, key, text) from error


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of one table, typed, with defaults for those that aren't set.

    Each is parsed when it is read, so that an invalid value fails only what needs it. For an
    invalid value, a tuning property falls back to its default; any other attribute raises
    CorruptTable, which names the table, the key, what was expected, and how to repair it.

    Durations in milliseconds, sizes in bytes. `isolation_level` is `serializable`,
    `write_serializable`, `snapshot` or None; `conflict_granularity` is `row`, `file` or `table`.
    `constraints` maps a name to its SQL expression. `data_skipping_stats_columns` overrides
    `data_skipping_num_indexed_cols` (-1: all columns) when it isn't None. The mapping of columns
    depends on the protocol too: `features.column_mapping_mode`.
    """

    configuration: Mapping[str, str] = field(default_factory=dict)
    table: str = ""

    append_only = _Property("delta.appendOnly", False)
    enable_deletion_vectors = _Property("delta.enableDeletionVectors", False)
    checkpoint_interval = _Property("delta.checkpointInterval", 10)
    checkpoint_policy = _Property("delta.checkpointPolicy", "classic")
    checkpoint_write_stats_as_json = _Property("delta.checkpoint.writeStatsAsJson", True)
    checkpoint_write_stats_as_struct = _Property("delta.checkpoint.writeStatsAsStruct", False)
    isolation_level = _Property[str | None]("delta.isolationLevel", None)
    in_commit_timestamp_enablement_version = _Property[int | None](
        "delta.inCommitTimestampEnablementVersion", None
    )
    in_commit_timestamp_enablement_timestamp_ms = _Property[int | None](
        "delta.inCommitTimestampEnablementTimestamp", None
    )
    row_tracking = _Property("delta.enableRowTracking", False)
    materialized_row_id_column = _Property[str | None](
        "delta.rowTracking.materializedRowIdColumnName", None
    )
    materialized_row_commit_version_column = _Property[str | None](
        "delta.rowTracking.materializedRowCommitVersionColumnName", None
    )
    log_retention_ms = _Property("delta.logRetentionDuration", 30 * _DAY_MS)
    deleted_file_retention_ms = _Property("delta.deletedFileRetentionDuration", 7 * _DAY_MS)
    transaction_retention_ms = _Property[int | None]("delta.setTransactionRetentionDuration", None)
    drop_feature_log_retention_ms = _Property(
        "delta.dropFeatureTruncateHistory.retentionDuration", _DAY_MS
    )
    enable_expired_log_cleanup = _Property("delta.enableExpiredLogCleanup", True)
    data_skipping_num_indexed_cols = _Property("delta.dataSkippingNumIndexedCols", 32)
    data_skipping_stats_columns = _Property[tuple[tuple[str, ...], ...] | None](
        "delta.dataSkippingStatsColumns", None
    )
    type_widening = _Property("delta.enableTypeWidening", False)
    change_data_feed = _Property(
        "delta.enableChangeDataFeed", False, older="delta.enableChangeDataCapture"
    )
    auto_optimize = _Property("delta.autoOptimize", False)
    auto_compact = _Property("delta.autoOptimize.autoCompact", "false")
    optimize_write = _Property("delta.autoOptimize.optimizeWrite", False)
    target_file_size = _Property[int | None]("delta.targetFileSize", None)
    conflict_granularity = _Property("txlake.conflictGranularity", "row")

    @property
    def constraints(self) -> Mapping[str, str]:
        """SQL expressions by the constraints' names."""
        return {
            key[len(CONSTRAINT_PREFIX) :]: value
            for key, value in self.configuration.items()
            if key.lower().startswith(CONSTRAINT_PREFIX)
        }

    def require_writable(self) -> None:
        """Raise CorruptTable when a property that binds writers has an invalid value."""
        for key in _BINDING:
            require_valid_property(self.configuration, key, table=self.table)


def require_valid_property(configuration: Mapping[str, str], key: str, *, table: str) -> None:
    """Raise CorruptTable when this known property is set to an invalid value."""
    text = configuration.get(key)
    if text is not None and not is_valid_property(key, text):
        raise invalid_property(table, key, text)
