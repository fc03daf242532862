"""Table properties: the keys of `metaData.configuration`, their parsers and valid values.

Owns the list of known keys. Only parses and checks; `table_properties` reads the properties of one
table. Source: PROTOCOL.md, "Table Properties" and the sections of the features; Delta Lake's
documentation for the properties that are its writers' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from txlake.errors import CorruptTable, InvalidRequest
from txlake.nearest import did_you_mean, nearest

CONSTRAINT_PREFIX = "delta.constraints."
KEY_PREFIX = "txlake.constraints."  # PRIMARY KEY and FOREIGN KEY
FEATURE_PREFIX = "delta.feature."
# Requests for a protocol when they are set; never stored.
PROTOCOL_KEYS = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
# Free settings of Delta's Iceberg and Hudi converters.
_FREE_PREFIX = "delta.universalformat.config."

_UNIT_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_UNIT_MONTHS = {"month": 1, "year": 12}
_TERM = re.compile(
    r"([+-]?)\s*(?:(\d+)(?:\.(\d{0,9}))?|\.(\d{1,9}))\s+"
    rf"({'|'.join((*_UNIT_US, *_UNIT_MONTHS))})s?(?:\s+|$)",
    re.ASCII,
)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"\d*\.?\d+", re.ASCII)
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
    """Return an interval such as `interval 30 days` or `1 week 12 hours` in milliseconds, rounded
    down.

    The grammar is Delta's, which is Spark's `CalendarInterval`: one or more pairs of a number and a
    unit, with a space between them; only seconds have a fraction. Raises ValueError for other
    texts, for months and years, which have no fixed length, and for a negative interval, which is
    meaningless here.
    """
    folded = text.strip().lower()
    rest = re.sub(r"^interval\s+", "", folded)
    if not rest:
        raise ValueError(f"not an interval: {text!r}")
    total_us = months = 0
    while rest:
        match = _TERM.match(rest)
        if match is None:
            raise ValueError(f"not an interval of weeks, days, hours, minutes or seconds: {text!r}")
        sign, whole, part, part_alone, unit = match.groups()
        fraction = part if part_alone is None else part_alone
        if fraction is not None and unit != "second":
            raise ValueError(f"only seconds have a fraction: {text!r} is no interval")
        count = int(f"{sign}{whole or 0}")
        fraction_us = int(f"{sign}{(fraction or '').ljust(6, '0')[:6]}")
        if unit in _UNIT_MONTHS:
            months += count * _UNIT_MONTHS[unit]
        else:
            total_us += count * _UNIT_US[unit] + fraction_us
        rest = rest[match.end() :]
    if months:
        raise ValueError(f"months and years have no fixed length: {text!r}")
    if total_us < 0:
        raise ValueError(f"a negative interval: {text!r}")
    if total_us >= 2**63:
        raise ValueError(f"an interval without an end: {text[:80]!r}")
    return total_us // 1_000


def size_bytes(text: str) -> int:
    """Return a size such as `104857600`, `128mb` or `1g`, in bytes.

    Raises ValueError for any other text.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) * _SIZE_FACTOR[match[2].lower()]


def column_list(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the columns of a list such as ``a, s.b, `odd name` ``, each as a path. Raises
    ValueError.
    """
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
    """Return `serializable`, `write_serializable` or `snapshot` for any usual spelling.

    Raises ValueError when the text names no level.
    """
    level = _LEVELS.get(text.strip().lower().replace("_", "").replace(" ", ""))
    if level is None:
        raise ValueError(f"not an isolation level: {text!r}")
    return level


def is_true(configuration: Mapping[str, str], key: str) -> bool:
    """Return whether a property is `true`, in any letter case; False for an invalid value."""
    return configuration.get(key, "").strip().lower() == "true"


def _boolean(text: str) -> bool:
    """Return the boolean of `true` or `false` in any letter case.

    Raises ValueError for another text.
    """
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(f"not a boolean: {text!r}")
    return folded == "true"


def _whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` on."""

    def parse(text: str) -> int:
        """Return the number. Raises ValueError for other texts, and below `least`."""
        if _WHOLE.fullmatch(text.strip()) is None:
            raise ValueError(f"not a whole number: {text!r}")
        value = int(text)
        if value < least:
            raise ValueError(f"below {least}: {text!r}")
        return value

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of these texts in any letter case, which gives them in lower case."""

    def parse(text: str) -> str:
        """Return the folded text. Raises ValueError if it isn't one of the choices."""
        folded = text.strip().lower()
        if folded not in choices:
            raise ValueError(f"not one of {', '.join(choices)}: {text!r}")
        return folded

    return parse


def _share(text: str) -> float:
    """Return a share, more than 0 and at most 1. Raises ValueError for other texts."""
    if _DECIMAL.fullmatch(text.strip()) is None or not 0 < float(text) <= 1:
        raise ValueError(f"not a share: {text!r}")
    return float(text)


def _feature_request(text: str) -> str:
    return _one_of("supported", "enabled")(text)


def _format_version(text: str) -> str:
    """Return the version of Parquet's format, 1.0.0 or 2.x.x.

    Raises ValueError for another text.
    """
    if re.fullmatch(r"1\.0\.0|2\.\d+\.\d+", text.strip()) is None:
        raise ValueError(f"not a Parquet format version: {text!r}")
    return text.strip()


def _anything(text: str) -> str:
    return text


_Parser = Callable[[str], object]
_BOOLEAN = (_boolean, "true or false")
_INTERVAL = (interval_ms, "an interval without months and years, such as '2 weeks' or '30 days'")
_COUNT = (_whole_number(1), "a whole number from 1")
_NATURAL = (_whole_number(0), "a whole number from 0")
_SIZE_OF = (size_bytes, "a size in bytes, such as '128mb'")
_SHARE = (_share, "a share of more than 0 and at most 1, such as 0.2")
_FREE = (_anything, "any text")
MAINTENANCE_PREFIX = "txlake.maintenance."
"""What databases and tables say of their maintenance begins with it."""

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
    "delta.rowTrackingSuspended": _BOOLEAN,
    "delta.sampleRetentionDuration": _INTERVAL,
    "delta.setTransactionRetentionDuration": _INTERVAL,
    "delta.targetFileSize": _SIZE_OF,
    "delta.tuneFileSizesForRewrites": _BOOLEAN,
    "delta.universalFormat.enabledFormats": _FREE,
    "delta.universalFormat.iceberg.atomicConversion.supported": _BOOLEAN,
    "delta.writePartitionColumnsToParquet": _BOOLEAN,
    "txlake.conflictGranularity": (_one_of("row", "file", "table"), "row, file or table"),
    "txlake.maintenance.checkpoint": _BOOLEAN,
    "txlake.maintenance.cluster": _BOOLEAN,
    "txlake.maintenance.deletedRowsShare": _SHARE,
    "txlake.maintenance.enabled": _BOOLEAN,
    "txlake.maintenance.fullVacuumInterval": _INTERVAL,
    "txlake.maintenance.iceberg": _BOOLEAN,
    "txlake.maintenance.logCleanup": _BOOLEAN,
    "txlake.maintenance.minExpiredFiles": _COUNT,
    "txlake.maintenance.minSmallFiles": (_whole_number(2), "a whole number from 2"),
    "txlake.maintenance.optimize": _BOOLEAN,
    "txlake.maintenance.purge": _BOOLEAN,
    "txlake.maintenance.statistics": _BOOLEAN,
    "txlake.maintenance.unclusteredShare": _SHARE,
    "txlake.maintenance.vacuum": _BOOLEAN,
}
# Keys that only the engine sets.
_INTERNAL: Mapping[str, tuple[_Parser, str]] = {
    "delta.columnMapping.maxColumnId": _NATURAL,
    "delta.inCommitTimestampEnablementTimestamp": _NATURAL,
    "delta.inCommitTimestampEnablementVersion": _NATURAL,
    "delta.requireCheckpointProtectionBeforeVersion": _NATURAL,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _FREE,
    "delta.rowTracking.materializedRowIdColumnName": _FREE,
}
_CANONICAL = {key.lower(): key for key in (*_KNOWN, *_INTERNAL)}


def canonical_key(key: str) -> str:
    """Return the key as it is stored: users may set a known key in any letter case."""
    folded = key.lower()
    if folded.startswith(FEATURE_PREFIX):
        return FEATURE_PREFIX + key[len(FEATURE_PREFIX) :]
    if folded.startswith(CONSTRAINT_PREFIX):
        return CONSTRAINT_PREFIX + key[len(CONSTRAINT_PREFIX) :]
    return _CANONICAL.get(folded, key)


def is_known(key: str) -> bool:
    """Return whether a key names a table feature or a property that users may set."""
    stored = canonical_key(key)
    return stored in _KNOWN or stored.startswith(FEATURE_PREFIX)


def validate_set(key: str, value: str, *, creating: bool = False) -> tuple[str, str]:
    """Return the property as it is to be stored, after a check that users may set it to that value.

    Keys outside `delta.` and `txlake.` are the users' own. Constraints are accepted only while
    `creating` a table: later, the existing rows must be checked first.

    Raises InvalidRequest for an unknown `delta.` or `txlake.` key, a key that only the engine sets,
    and an invalid value.
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
        return stored, _checked(stored, value, *known)
    if stored.lower().startswith(("delta.", "txlake.")) and not _is_free(stored):
        asked = did_you_mean(nearest(key, _KNOWN)) or (
            f"known keys are {', '.join(sorted(_KNOWN))}, delta.constraints.<name> and "
            "delta.feature.<name>."
        )
        raise InvalidRequest(
            f"table property {key!r} is unknown: {asked} The users' own properties don't start "
            "with 'delta.' or 'txlake.'"
        )
    return stored, value


def _is_free(key: str) -> bool:
    return key.lower().startswith(_FREE_PREFIX)


def validate_unset(key: str) -> str:
    """Return the stored key, after a check that users may remove it.

    Unknown keys are accepted, and stay as they are. Raises InvalidRequest for a key that only the
    engine sets, and for a constraint.
    """
    stored = canonical_key(key)
    if stored in _INTERNAL:
        raise InvalidRequest(f"table property {key!r} is kept by the engine and can't be removed")
    if stored.startswith(CONSTRAINT_PREFIX):
        raise InvalidRequest(
            f"table property {key!r} can't be removed: use ALTER TABLE ... DROP CONSTRAINT"
        )
    return stored


def stored_configuration(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration without requests for a protocol, which the log holds as
    `protocol`.
    """
    asking = {key.lower() for key in PROTOCOL_KEYS}
    return {
        key: value
        for key, value in configuration.items()
        if key.lower() not in asking and not key.lower().startswith(FEATURE_PREFIX)
    }


def _checked(key: str, value: str, parse: _Parser, expected: str) -> str:
    """Return the value as it is to be stored: trimmed, since Delta's readers don't trim; a
    checkpoint policy in lower case.

    Raises InvalidRequest, which says what was `expected`, where `parse` refuses it.
    """
    try:
        found = parse(value)
    except ValueError as error:
        raise InvalidRequest(
            f"table property {key!r}: expected {expected}, found {value!r}"
        ) from error
    if key == "delta.checkpointPolicy":
        return str(found)
    return value if parse is _anything else value.strip()


def is_valid_property(key: str, text: str) -> bool:
    """Return whether the value is valid; True for every value of an unknown key."""
    try:
        parse_property(key, text)
    except ValueError:
        return False
    return True


def parse_property(key: str, text: str) -> object:
    """Return the typed value of a known property, or the text of an unknown one.

    Raises ValueError for an invalid value.
    """
    known = _KNOWN.get(key) or _INTERNAL.get(key)
    return text if known is None else known[0](text)


def invalid_property(table: str, key: str, text: str) -> CorruptTable:
    """Return the error for an invalid value of a known property, with advice on its repair."""
    _, expected = _KNOWN.get(key) or _INTERNAL[key]
    advice = f"Mend it with ALTER TABLE ... SET TBLPROPERTIES ({key!r} = ...), or UNSET it"
    if key.startswith("delta.inCommitTimestampEnablement"):
        advice = "Turn delta.enableInCommitTimestamps off and on again, which sets it anew"
    elif key in _INTERNAL:
        advice = "Only the engine that set it can tell which value it should have"
    return CorruptTable(
        f"{table}: table property {key!r}: expected {expected}, found {text!r}. {advice}"
    )
