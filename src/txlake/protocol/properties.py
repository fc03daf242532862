"""Table properties: what each key of `metaData.configuration` means, its default and its values.

Owns the list of the keys that txlake knows. It only parses and checks; what a property then does
is up to the layers that read `TableProperties`. Source: PROTOCOL.md, "Table Properties" and the
sections of the features; Delta Lake's documentation for the properties that are its writers' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from txlake.errors import CorruptTable, InvalidRequest

CONSTRAINT_PREFIX = "delta.constraints."
FEATURE_PREFIX = "delta.feature."
# They ask for a protocol when they are set, and are never stored.
PROTOCOL_KEYS = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
# Free settings of Delta's Iceberg and Hudi converters.
_FREE_PREFIX = "delta.universalformat.config."

_UNIT_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_TERM = re.compile(r"'?([+-]?\d+(?:\.\d+)?)'?\s*([a-z]+?)s?(?=[\s,'\d]|$)'?")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SIZE_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_COLUMN_PART = re.compile(r"`((?:[^`]|``)+)`|([\w$-]+)")
_LEVELS = {
    "serializable": "serializable",
    "writeserializable": "write_serializable",
    "snapshot": "snapshot",
    "snapshotisolation": "snapshot",
}
_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd")


def interval_ms(text: str) -> int:
    """An interval such as `interval 30 days` or `1 week 12 hours`, in milliseconds.

    Raises ValueError for anything else: months and years have no fixed length, and a negative
    interval has no meaning here.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    if not rest:
        raise ValueError(f"not an interval: {text!r}")
    total = 0.0
    while rest:
        match = _TERM.match(rest)
        if match is None or match[2] not in _UNIT_MS:
            raise ValueError(f"not an interval of weeks, days, hours, minutes or seconds: {text!r}")
        total += float(match[1]) * _UNIT_MS[match[2]]
        rest = rest[match.end() :].lstrip(" ,")
    if total < 0:
        raise ValueError(f"a negative interval: {text!r}")
    if total >= 2**63:
        raise ValueError(f"an interval without an end: {text[:80]!r}")
    return int(total)


def size_bytes(text: str) -> int:
    """A size such as `104857600`, `128mb` or `1g`, in bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) * _SIZE_FACTOR[match[2].lower()]


def column_list(text: str) -> tuple[tuple[str, ...], ...]:
    """The columns of a list such as ``a, s.b, `odd name` ``, each a path. Raises ValueError."""
    columns: list[tuple[str, ...]] = []
    rest = text.strip()
    while rest:
        path: list[str] = []
        while True:
            match = _COLUMN_PART.match(rest)
            if match is None:
                raise ValueError(f"not a list of columns: {text!r}")
            path.append(match[1].replace("``", "`") if match[1] is not None else match[2])
            rest = rest[match.end() :].lstrip()
            if not rest.startswith("."):
                break
            rest = rest[1:].lstrip()
        columns.append(tuple(path))
        if rest and not rest.startswith(","):
            raise ValueError(f"not a list of columns: {text!r}")
        rest = rest[1:].lstrip()
        if text.rstrip().endswith(",") and not rest:
            raise ValueError(f"not a list of columns: {text!r}")
    return tuple(columns)


def isolation_level(text: str) -> str:
    """`serializable`, `write_serializable` or `snapshot`, of any usual spelling.

    Raises ValueError when the text names no level.
    """
    level = _LEVELS.get(text.strip().lower().replace("_", "").replace(" ", ""))
    if level is None:
        raise ValueError(f"not an isolation level: {text!r}")
    return level


def _boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(f"not a boolean: {text!r}")
    return folded == "true"


def _whole_number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(f"below {least}: {text!r}")
        return value

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        folded = text.strip().lower()
        if folded not in choices:
            raise ValueError(f"not one of {', '.join(choices)}: {text!r}")
        return folded

    return parse


def _feature_request(text: str) -> str:
    return _one_of("supported", "enabled")(text)


def _format_version(text: str) -> str:
    if re.fullmatch(r"1\.0\.0|2\.\d+\.\d+", text.strip()) is None:
        raise ValueError(f"not a Parquet format version: {text!r}")
    return text.strip()


def _anything(text: str) -> str:
    return text


_Parser = Callable[[str], object]
_BOOLEAN = (_boolean, "true or false")
_INTERVAL = (interval_ms, "an interval without months and years, such as '2 weeks'")
_COUNT = (_whole_number(1), "a whole number from 1")
_NATURAL = (_whole_number(0), "a whole number from 0")
_SIZE_OF = (size_bytes, "a size in bytes, such as '128mb'")
_FREE = (_anything, "any text")

# Every key that may be set, with its parser and what it expects.
_KNOWN: Mapping[str, tuple[_Parser, str]] = {
    "delta.appendOnly": _BOOLEAN,
    "delta.autoOptimize": _BOOLEAN,
    "delta.autoOptimize.autoCompact": (
        _one_of("true", "false", "auto", "legacy"),
        "true, false, auto or legacy",
    ),
    "delta.autoOptimize.optimizeWrite": _BOOLEAN,
    "delta.castIcebergTimeType": _BOOLEAN,
    "delta.checkpoint.writeStatsAsJson": _BOOLEAN,
    "delta.checkpoint.writeStatsAsStruct": _BOOLEAN,
    "delta.checkpointInterval": _COUNT,
    "delta.checkpointPolicy": (_one_of("classic", "v2"), "classic or v2"),
    "delta.checkpointRetentionDuration": _INTERVAL,
    "delta.columnMapping.mode": (_one_of("none", "name", "id"), "none, name or id"),
    "delta.compatibility.symlinkFormatManifest.enabled": _BOOLEAN,
    "delta.dataSkippingNumIndexedCols": (_whole_number(-1), "a whole number from -1"),
    "delta.dataSkippingStatsColumns": (column_list, "a list of columns, odd names in backquotes"),
    "delta.dataSkippingStringPrefixLength": _NATURAL,
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.dropFeatureTruncateHistory.retentionDuration": _INTERVAL,
    "delta.enableChangeDataCapture": _BOOLEAN,
    "delta.enableChangeDataFeed": _BOOLEAN,
    "delta.enableDeletionVectors": _BOOLEAN,
    "delta.enableExpiredLogCleanup": _BOOLEAN,
    "delta.enableFullRetentionRollback": _BOOLEAN,
    "delta.enableIcebergCompatV1": _BOOLEAN,
    "delta.enableIcebergCompatV2": _BOOLEAN,
    "delta.enableIcebergCompatV3": _BOOLEAN,
    "delta.enableInCommitTimestamps": _BOOLEAN,
    "delta.enableMaterializePartitionColumnsFeature": _BOOLEAN,
    "delta.enableRowTracking": _BOOLEAN,
    "delta.enableTypeWidening": _BOOLEAN,
    "delta.enableVariantShredding": _BOOLEAN,
    "delta.ignoreIcebergBucketPartition": _BOOLEAN,
    "delta.ignoreProtocolDefaults": _BOOLEAN,
    "delta.isolationLevel": (isolation_level, "Serializable, WriteSerializable or Snapshot"),
    "delta.logRetentionDuration": _INTERVAL,
    "delta.minReaderVersion": (_one_of("1", "2", "3"), "1, 2 or 3"),
    "delta.minWriterVersion": (_one_of(*"1234567"), "a number from 1 to 7"),
    "delta.parquet.compression.codec": (_one_of(*_CODECS), ", ".join(_CODECS)),
    "delta.parquet.format.version": (_format_version, "1.0.0 or 2.x.x"),
    "delta.randomPrefixLength": _COUNT,
    "delta.randomizeFilePrefixes": _BOOLEAN,
    "delta.requireCheckpointProtectionBeforeVersion": _NATURAL,
    "delta.rowTrackingSuspended": _BOOLEAN,
    "delta.sampleRetentionDuration": _INTERVAL,
    "delta.setTransactionRetentionDuration": _INTERVAL,
    "delta.targetFileSize": _SIZE_OF,
    "delta.tuneFileSizesForRewrites": _BOOLEAN,
    "delta.universalFormat.enabledFormats": _FREE,
    "delta.universalFormat.iceberg.atomicConversion.supported": _BOOLEAN,
    "delta.writePartitionColumnsToParquet": _BOOLEAN,
    "txlake.conflictGranularity": (_one_of("row", "file", "table"), "row, file or table"),
}
# Keys that the engine keeps itself.
_INTERNAL: Mapping[str, tuple[_Parser, str]] = {
    "delta.columnMapping.maxColumnId": _NATURAL,
    "delta.inCommitTimestampEnablementTimestamp": _NATURAL,
    "delta.inCommitTimestampEnablementVersion": _NATURAL,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _FREE,
    "delta.rowTracking.materializedRowIdColumnName": _FREE,
}
_CANONICAL = {key.lower(): key for key in (*_KNOWN, *_INTERNAL)}
# A bad value of these can't change what is read or may be written: the default stands in.
_TUNING = frozenset(
    {
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.dataSkippingStringPrefixLength",
        "delta.parquet.compression.codec",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
    }
)


def canonical_key(key: str) -> str:
    """The key as it is stored: letter case of a known key doesn't count when it is set."""
    folded = key.lower()
    if folded.startswith(FEATURE_PREFIX):
        return FEATURE_PREFIX + key[len(FEATURE_PREFIX) :]
    if folded.startswith(CONSTRAINT_PREFIX):
        return CONSTRAINT_PREFIX + key[len(CONSTRAINT_PREFIX) :]
    return _CANONICAL.get(folded, key)


def is_known(key: str) -> bool:
    """Whether a key names a table feature or a property that users may set."""
    stored = canonical_key(key)
    return stored in _KNOWN or stored.startswith(FEATURE_PREFIX)


def validate_set(key: str, value: str, *, creating: bool = False) -> tuple[str, str]:
    """The property as it is to be stored, after a check that users may set it to that value.

    Keys outside `delta.` and `txlake.` are the users' own. Constraints may be given here only
    while `creating` a table: later, the rows that are there already must be checked first.

    Raises InvalidRequest for an unknown `delta.` or `txlake.` key, a key that the engine keeps
    itself, and a value that the key doesn't take.
    """
    stored = canonical_key(key)
    if stored.startswith(CONSTRAINT_PREFIX):
        if not creating:
            raise InvalidRequest(
                f"table property {key!r} can't be set: add the constraint with "
                f"ALTER TABLE ... ADD CONSTRAINT, which checks the rows that are there"
            )
        return stored, value
    if stored in _INTERNAL:
        raise InvalidRequest(f"table property {key!r} is kept by the engine and can't be set")
    if stored.startswith(FEATURE_PREFIX):
        _checked(stored, value, _feature_request, "supported")
        return stored, value
    known = _KNOWN.get(stored)
    if known is not None:
        _checked(stored, value, *known)
    elif stored.lower().startswith(("delta.", "txlake.")) and not _is_free(stored):
        raise InvalidRequest(
            f"table property {key!r} is unknown: known keys are {', '.join(sorted(_KNOWN))}, "
            f"delta.constraints.<name> and delta.feature.<name>; the users' own properties "
            f"don't start with 'delta.' or 'txlake.'"
        )
    return stored, value


def _is_free(key: str) -> bool:
    return key.lower().startswith(_FREE_PREFIX)


def validate_unset(key: str) -> str:
    """The stored key, after a check that users may remove it. Raises InvalidRequest."""
    stored = canonical_key(key)
    if stored in _INTERNAL:
        raise InvalidRequest(f"table property {key!r} is kept by the engine and can't be removed")
    if stored.startswith(CONSTRAINT_PREFIX):
        raise InvalidRequest(
            f"table property {key!r} can't be removed: use ALTER TABLE ... DROP CONSTRAINT"
        )
    return stored


def stored_configuration(configuration: Mapping[str, str]) -> dict[str, str]:
    """The configuration without what asks for a protocol, which the log holds as `protocol`."""
    asking = {key.lower() for key in PROTOCOL_KEYS}
    return {
        key: value
        for key, value in configuration.items()
        if key.lower() not in asking and not key.lower().startswith(FEATURE_PREFIX)
    }


def _checked(key: str, value: str, parse: _Parser, expected: str) -> None:
    try:
        parse(value)
    except ValueError as error:
        raise InvalidRequest(
            f"table property {key!r}: expected {expected}, found {value!r}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """The properties of one table, typed, with defaults for those that aren't set.

    Durations in milliseconds, sizes in bytes. `isolation_level` is `serializable`,
    `write_serializable`, `snapshot` or None; `conflict_granularity` is `row`, `file` or `table`.
    `constraints` maps a name to its SQL expression. `data_skipping_stats_columns` overrides
    `data_skipping_num_indexed_cols` (-1: all columns) when it isn't None.
    """

    append_only: bool = False
    enable_deletion_vectors: bool = False
    column_mapping_mode: str = "none"
    max_column_id: int = 0
    checkpoint_interval: int = 10
    checkpoint_policy: str = "classic"
    checkpoint_write_stats_as_json: bool = True
    checkpoint_write_stats_as_struct: bool = False
    isolation_level: str | None = None
    in_commit_timestamps: bool = False
    in_commit_timestamp_enablement_version: int | None = None
    in_commit_timestamp_enablement_timestamp_ms: int | None = None
    row_tracking: bool = False
    row_tracking_suspended: bool = False
    materialized_row_id_column: str | None = None
    materialized_row_commit_version_column: str | None = None
    log_retention_ms: int = 30 * _UNIT_MS["day"]
    deleted_file_retention_ms: int = _UNIT_MS["week"]
    transaction_retention_ms: int | None = None
    enable_expired_log_cleanup: bool = True
    data_skipping_num_indexed_cols: int = 32
    data_skipping_stats_columns: tuple[tuple[str, ...], ...] | None = None
    data_skipping_string_prefix_length: int = 32
    type_widening: bool = False
    change_data_feed: bool = False
    iceberg_compat: bool = False
    target_file_size: int | None = None
    compression_codec: str | None = None
    conflict_granularity: str = "row"
    constraints: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, configuration: Mapping[str, str], *, table: str) -> TableProperties:
        """The properties of `table` from its metadata's configuration.

        Unknown keys are ignored. A value that only tunes and makes no sense gives way to the
        default; for one on which meaning depends: CorruptTable naming table, key and value.
        """
        values = _Values(configuration, table)
        b, n = values.boolean, values.number
        return cls(
            append_only=b("delta.appendOnly", False),
            enable_deletion_vectors=b("delta.enableDeletionVectors", False),
            column_mapping_mode=values.text("delta.columnMapping.mode") or "none",
            max_column_id=n("delta.columnMapping.maxColumnId") or 0,
            checkpoint_interval=n("delta.checkpointInterval") or 10,
            checkpoint_policy=values.text("delta.checkpointPolicy") or "classic",
            checkpoint_write_stats_as_json=b("delta.checkpoint.writeStatsAsJson", True),
            checkpoint_write_stats_as_struct=b("delta.checkpoint.writeStatsAsStruct", False),
            isolation_level=values.text("delta.isolationLevel"),
            in_commit_timestamps=b("delta.enableInCommitTimestamps", False),
            in_commit_timestamp_enablement_version=n("delta.inCommitTimestampEnablementVersion"),
            in_commit_timestamp_enablement_timestamp_ms=n(
                "delta.inCommitTimestampEnablementTimestamp"
            ),
            row_tracking=b("delta.enableRowTracking", False),
            row_tracking_suspended=b("delta.rowTrackingSuspended", False),
            materialized_row_id_column=values.text("delta.rowTracking.materializedRowIdColumnName"),
            materialized_row_commit_version_column=values.text(
                "delta.rowTracking.materializedRowCommitVersionColumnName"
            ),
            log_retention_ms=_or(n("delta.logRetentionDuration"), 30 * _UNIT_MS["day"]),
            deleted_file_retention_ms=_or(
                n("delta.deletedFileRetentionDuration"), _UNIT_MS["week"]
            ),
            transaction_retention_ms=n("delta.setTransactionRetentionDuration"),
            enable_expired_log_cleanup=b("delta.enableExpiredLogCleanup", True),
            data_skipping_num_indexed_cols=_or(n("delta.dataSkippingNumIndexedCols"), 32),
            data_skipping_stats_columns=values.columns("delta.dataSkippingStatsColumns"),
            data_skipping_string_prefix_length=_or(n("delta.dataSkippingStringPrefixLength"), 32),
            type_widening=b("delta.enableTypeWidening", False),
            change_data_feed=b(
                "delta.enableChangeDataFeed", b("delta.enableChangeDataCapture", False)
            ),
            iceberg_compat=any(b(f"delta.enableIcebergCompatV{v}", False) for v in (1, 2, 3)),
            target_file_size=n("delta.targetFileSize"),
            compression_codec=values.text("delta.parquet.compression.codec"),
            conflict_granularity=values.text("txlake.conflictGranularity") or "row",
            constraints={
                key[len(CONSTRAINT_PREFIX) :]: value
                for key, value in configuration.items()
                if key.lower().startswith(CONSTRAINT_PREFIX)
            },
        )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class _Values:
    """The configuration of one table, read key by key."""

    def __init__(self, configuration: Mapping[str, str], table: str) -> None:
        self._configuration = configuration
        self._table = table

    def _parsed(self, key: str) -> object:
        text = self._configuration.get(key)
        if text is None:
            return None
        parse, expected = _KNOWN.get(key) or _INTERNAL[key]
        try:
            return parse(text)
        except ValueError as error:
            if key in _TUNING:
                return None
            raise CorruptTable(
                f"{self._table}: table property {key!r}: expected {expected}, found {text!r}; "
                f"set it to such a value, or remove it"
            ) from error

    def boolean(self, key: str, default: bool) -> bool:
        value = self._parsed(key)
        return value if isinstance(value, bool) else default

    def number(self, key: str) -> int | None:
        value = self._parsed(key)
        return value if isinstance(value, int) else None

    def text(self, key: str) -> str | None:
        value = self._parsed(key)
        return value if isinstance(value, str) else None

    def columns(self, key: str) -> tuple[tuple[str, ...], ...] | None:
        text = self._configuration.get(key)
        try:
            return None if text is None else column_list(text)
        except ValueError:
            return None
