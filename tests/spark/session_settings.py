"""Settings of a Spark session that change what texts mean, and the texts that tell.

Owns the values that are worth drawing in random tests, and plain Spark's answers to the same texts
in the same session: rows in memory, tables of Parquet files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SQL = "spark.sql."
_DRAWN = {
    "ansi.doubleQuotedIdentifiers": ("true",),
    "ansi.enabled": ("false",),
    "ansi.enforceReservedKeywords": ("true",),
    "ansi.relationPrecedence": ("true",),
    "caseSensitive": ("true",),
    "charAsVarchar": ("true",),
    "datetime.java8API.enabled": ("true",),
    "decimalOperations.allowPrecisionLoss": ("false",),
    "files.ignoreCorruptFiles": ("true",),
    "files.ignoreMissingFiles": ("true",),
    "groupByOrdinal": ("false",),
    "legacy.allowNegativeScaleOfDecimal": ("true",),
    "legacy.bangEqualsNot": ("true",),
    "legacy.charVarcharAsString": ("true",),
    "legacy.consecutiveStringLiterals.enabled": ("true",),
    "legacy.createEmptyCollectionUsingStringType": ("true",),
    "legacy.ctePrecedencePolicy": ("LEGACY", "EXCEPTION"),
    "legacy.exponentLiteralAsDecimal.enabled": ("true",),
    "legacy.literal.pickMinimumPrecision": ("false",),
    "legacy.parameterSubstitution.constantsOnly": ("true",),
    "legacy.setopsPrecedence.enabled": ("true",),
    "legacy.timeParserPolicy": ("LEGACY", "EXCEPTION"),
    "mapKeyDedupPolicy": ("LAST_WIN",),
    "orderByOrdinal": ("false",),
    "parquet.binaryAsString": ("true",),
    "parquet.datetimeRebaseModeInRead": ("LEGACY", "EXCEPTION"),
    "parquet.fieldId.read.enabled": ("true",),
    "parquet.filterPushdown": ("false",),
    "parquet.inferTimestampNTZ.enabled": ("false",),
    "parquet.int96RebaseModeInRead": ("LEGACY", "EXCEPTION"),
    "parquet.mergeSchema": ("true",),
    "parquet.outputTimestampType": ("TIMESTAMP_MILLIS", "INT96"),
    "parser.escapedStringLiterals": ("true",),
    "parser.quotedRegexColumnNames": ("true",),
    "parser.singleCharacterPipeOperator.enabled": ("false",),
    "session.timeZone": ("Europe/Berlin", "America/Los_Angeles", "+05:30"),
    "sources.partitionColumnTypeInference.enabled": ("false",),
    "storeAssignmentPolicy": ("STRICT", "LEGACY"),
    "timestampType": ("TIMESTAMP_NTZ",),
    "variable.substitute": ("false",),
}

SETTINGS_TO_DRAW: Mapping[str, Sequence[str]] = {
    _SQL + key: values for key, values in _DRAWN.items()
}
"""By setting, its values other than Spark's default that tests draw."""


@contextlib.contextmanager
def settings_made(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, also those that its release doesn't have."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


COLUMNS = (
    "id INT, v INT, s STRING, x DOUBLE, e DECIMAL(10,2), d DATE, ts TIMESTAMP_LTZ, "
    "n TIMESTAMP_NTZ, c CHAR(3)"
)

CONDITIONS = (
    r"s = 'a\nb'",
    r"s = 'a\\b'",
    r"s <> 'a\tb'",
    "s = 'it''s'",
    's = "zz"',
    "\"s\" = 'zz'",
    "S = 'zz'",
    "V = 1",
    "v = 1",
    "v IN (1, 3)",
    "v = 1.0",
    "v = '1'",
    "v > 5e-1",
    "x = 1E2",
    "x > 99",
    "e = 1",
    "e >= 1.25",
    "d = '2020-1-5'",
    "d < DATE'2020-01-06'",
    "ts = TIMESTAMP'2020-01-05 12:00:00'",
    "ts = '2020-01-05 12:00:00'",
    "n = TIMESTAMP'2020-01-05 12:00:00'",
    "n >= CAST('2020-01-05 12:00:00' AS TIMESTAMP)",
    r"s LIKE 'a\\%'",
    "s LIKE 'a%'",
    r"s = r'a\nb'",
    "s = '${spark.txlake.test}'",
    "!(v = 1)",
    "`v` = 1",
    "`v.*` = 1",
    "startswith(s, 'a')",
    "s = '1' OR v IS NULL",
    "c = 'q'",
    "to_date(s, 'yyyy') IS NULL",
)

VALUES = (
    (r"'a\nb'", "s"),
    ("'it''s'", "s"),
    ('"zz"', "s"),
    (r"'\u0041'", "s"),
    ("'${spark.txlake.test}'", "s"),
    ("1e2", "x"),
    ("1e2", "e"),
    ("1.5", "e"),
    ("1.5", "v"),
    ("1", "s"),
    ("1L", "v"),
    ("3000000000", "v"),
    ("'x'", "v"),
    ("'1'", "v"),
    ("DATE'2020-01-05'", "ts"),
    ("TIMESTAMP'2020-01-05 12:00:00'", "ts"),
    ("TIMESTAMP'2020-01-05 12:00:00'", "n"),
    ("TIMESTAMP'2020-01-05 12:00:00'", "d"),
    ("TIMESTAMP'2020-01-05 12:00:00'", "s"),
    ("'abcdef'", "c"),
)

_NOON, _ELEVEN = (
    f"TIMESTAMP_LTZ'{time}', TIMESTAMP_NTZ'{time}'"
    for time in ("2020-01-05 12:00:00", "2020-01-05 11:00:00")
)
ROWS = (
    f"(1, 1, 'a' || chr(10) || 'b', 100D, 1.00, DATE'2020-01-05', {_NOON}, 'q')",
    f"(2, 2, 'a' || chr(92) || 'nb', 1D, 1.25, DATE'2020-01-06', {_ELEVEN}, 'qq')",
    "(3, 3, 'zz', 0D, 0.50, DATE'2019-12-31', NULL, NULL, NULL)",
    "(4, NULL, 'it' || chr(39) || 's', double('NaN'), NULL, NULL, NULL, NULL, 'abc')",
    "(5, 1, 'a' || chr(92) || 'b', -1D, -1.00, DATE'2020-01-05', NULL, NULL, NULL)",
    "(6, 0, 'its', NULL, NULL, NULL, NULL, NULL, NULL)",
)
"""What CONDITIONS tell apart, in texts that every session reads alike."""
