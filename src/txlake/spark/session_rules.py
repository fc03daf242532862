"""Settings of the Spark session become rules: how its SQL text reads, and what txlake refuses.

Owns which of Spark's settings matter to what txlake parses, evaluates and writes itself, and the
list of all others (`spark_settings.py`), release by release. A setting that neither knows is
taken for one that may change everything: Spark evaluates each text then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from txlake.errors import InvalidRequest
from txlake.log.text_rules import (
    ANY_TEXT,
    STORE_ASSIGNMENT,
    SUBSTITUTED,
    Divergence,
    Refusal,
    StoreAssignment,
    TextRules,
)
from txlake.spark.spark_sessions import is_connect
from txlake.spark.spark_settings import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSI = "spark.sql.ansi.enabled"
CASE_SENSITIVE = "spark.sql.caseSensitive"
TIMESTAMP_TYPE = "spark.sql.timestampType"
RAW_STRINGS = "spark.sql.parser.escapedStringLiterals"
DOUBLE_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
REGEX_NAMES = "spark.sql.parser.quotedRegexColumnNames"
BOUNDED_AS_STRING = "spark.sql.legacy.charVarcharAsString"
CHAR_AS_VARCHAR = "spark.sql.charAsVarchar"
PARTITION_NUMBERS = "spark.sql.legacy.keepPartitionSpecAsStringLiteral"
PARTITION_NULLS = "spark.sql.legacy.parseNullPartitionSpecAsStringLiteral"
DEFAULTS = "spark.sql.defaultColumn.enabled"
SUBSTITUTE = "spark.sql.variable.substitute"
SKIPPED_FILES = "spark.sql.files.ignoredPathSegmentRegex"
_SKIPPED_FILES = "^[._]"

# What other projects and users name so, and Spark's own parser and evaluation don't know.
_OF_OTHERS = (
    "spark.sql.catalog.",
    "spark.sql.extensions",
    "spark.sql.hudi.",
    "spark.sql.iceberg.",
    "spark.sql.queryExecutionListeners",
    "spark.sql.sources.commitProtocolClass",
    "spark.sql.streaming.",
)
_SEPARATOR = "\x01"


@dataclass(frozen=True, slots=True)
class _Text:
    """A setting that changes what some texts mean: Spark reads them.

    Attributes:
        key: the setting.
        plain: its value by which texts mean what txlake takes them to mean.
        pattern: texts that it may concern.
        in_stored: as `Divergence.in_stored`.
    """

    key: str
    plain: str
    pattern: re.Pattern[str] = field(default=ANY_TEXT)
    in_stored: bool = False


_STRING = re.compile(r"['\"]")
_TEXTS = (
    _Text(SUBSTITUTE, "false", SUBSTITUTED, in_stored=True),
    _Text(RAW_STRINGS, "false", re.compile(r"\\|''|\"\"|\b[rR]['\"]"), in_stored=True),
    _Text(
        "spark.sql.legacy.consecutiveStringLiterals.enabled",
        "false",
        re.compile(r"''|\"\""),
        in_stored=True,
    ),
    _Text(
        TIMESTAMP_TYPE, "timestamp_ltz", re.compile("timestamp(?!_[nl]tz)", re.I), in_stored=True
    ),
    _Text(
        "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
        "false",
        re.compile(r"[\d.]e", re.I),
        in_stored=True,
    ),
    _Text("spark.sql.legacy.bangEqualsNot", "false", re.compile(r"!(?!=)")),
    _Text("spark.sql.legacy.literal.pickMinimumPrecision", "true", re.compile(r"\d")),
    _Text("spark.sql.legacy.typeCoercion.datetimeToString.enabled", "false", _STRING),
    _Text("spark.sql.functionResolution.sessionOrder", "second", re.compile(r"\w\s*\(")),
    _Text("spark.sql.path.enabled", "false", re.compile(r"\w\s*\(")),
)
"""Settings by which Spark alone reads the texts that may be concerned."""


def _is(value: str) -> bool:
    return value.strip().lower() == "true"


def rules_of(settings: Mapping[str, str]) -> TextRules:
    """Return the rules of a session with these settings; Spark's defaults for others.

    Raises InvalidRequest for a policy of store assignment that Spark doesn't have, and for a
    setting by which Spark leaves files out.
    """
    shown = settings.get(SKIPPED_FILES, _SKIPPED_FILES)
    if shown != _SKIPPED_FILES:
        raise InvalidRequest(
            f"{SKIPPED_FILES}={shown} may leave files of tables out, so no statement runs with it: "
            f"unset it (spark.conf.unset({SKIPPED_FILES!r}))"
        )
    ansi = _is(settings.get(ANSI, "true"))
    quoted = ansi and _is(settings.get(DOUBLE_QUOTES, "false"))
    doubts = list(_doubts(settings))
    if quoted:
        doubts.append(Divergence(f"{DOUBLE_QUOTES}=true", re.compile('"'), True))
    return TextRules(
        divergences=tuple(doubts),
        names_in_double_quotes=quoted,
        zoned=settings.get(TIMESTAMP_TYPE, "").upper() != "TIMESTAMP_NTZ",
        case_sensitive=_is(settings.get(CASE_SENSITIVE, "false")),
        assignment=_assignment(settings.get(STORE_ASSIGNMENT, "ANSI")),
        char_varchar_refusal=_refusal(
            settings, (BOUNDED_AS_STRING, CHAR_AS_VARCHAR), "declare the column as STRING"
        ),
        partition_value_refusal=_refusal(
            settings, (PARTITION_NUMBERS, PARTITION_NULLS), "write the value as a string"
        ),
        backquotes_refusal=_refusal(
            settings, (REGEX_NAMES,), "unset it for this statement, or leave the backquotes out"
        ),
        default_refusal=_refusal(settings, (DEFAULTS,), "leave DEFAULT out", value="false"),
    )


def _doubts(settings: Mapping[str, str]) -> Iterator[Divergence]:
    """Yield the settings by which this session may read texts in another way than txlake.

    Settings of a later release than txlake knows count for every text.
    """
    for one in _TEXTS:
        default = "true" if one.key == SUBSTITUTE else one.plain
        value = settings.get(one.key, default).strip()
        if value.lower() != one.plain:
            yield Divergence(f"{one.key}={value}", one.pattern, one.in_stored)
    for key in sorted(unclassified(settings)):
        yield Divergence(f"{key}={settings[key]}", ANY_TEXT)


def _refusal(
    settings: Mapping[str, str], keys: Iterable[str], instead: str, *, value: str = "true"
) -> Refusal | None:
    """Return the refusal by the first of the settings that has the value; None if none has it."""
    for key in keys:
        found = settings.get(key, "")
        if found.strip().lower() == value:
            return Refusal(setting=f"{key}={found}", advice=instead)
    return None


def _assignment(value: str) -> StoreAssignment:
    """Return the policy of this name, in any letter case. Raises InvalidRequest for an
    unknown one.
    """
    try:
        return StoreAssignment(value.strip().upper())
    except ValueError:
        known = ", ".join(StoreAssignment)
        raise InvalidRequest(f"{STORE_ASSIGNMENT}={value}: expected one of {known}") from None


def unclassified(keys: Iterable[str]) -> frozenset[str]:
    """Return the `spark.sql.` settings among the keys that `classified` lacks: a later release has
    them.

    Settings of other projects' prefixes are left out.
    """
    known = classified()
    return frozenset(
        key
        for key in keys
        if key.startswith("spark.sql.") and key not in known and not key.startswith(_OF_OTHERS)
    )


@lru_cache(maxsize=1)
def classified() -> Mapping[str, str]:
    """Return how each Spark setting is treated, by its key: 'evaluated', 'refused', ...

    The parts are those of `spark_settings.SETTINGS`.
    """
    found: dict[str, str] = {}
    treatment = ""
    for line in SETTINGS.splitlines():
        if line.startswith("["):
            treatment = line.strip("[]")
        elif line and not line.startswith("#"):
            found[line] = treatment
    return found


def text_rules(spark: SparkSession, settings: Mapping[str, str]) -> TextRules:
    """Return a session's rules for texts by its present settings, as `session_settings`.

    Raises InvalidRequest as `rules_of`.
    """
    found = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    if DOUBLE_QUOTES in found:  # the environment may have set the other one
        found[ANSI] = spark.conf.get(ANSI) or "true"
    return _cached(frozenset(found.items()))


def session_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the session's settings by key, in one round trip to the server, or two to the JVM.

    On Spark Connect all of them, else those that were set.
    """
    session: Any = spark
    if is_connect(spark):
        return dict(session.conf.getAll)
    shown = _conf(spark).getAllConfs().mkString(_SEPARATOR)
    pairs = (entry.partition(" -> ") for entry in str(shown).split(_SEPARATOR))
    return {key: value for key, _, value in pairs}


@lru_cache(maxsize=16)
def _conf(spark: SparkSession) -> Any:  # noqa: ANN401 - py4j's
    """Return the configuration of a session in the JVM, which lives as long as the session."""
    classic: Any = spark
    return classic._jsparkSession.sessionState().conf()


@lru_cache(maxsize=64)
def _cached(settings: frozenset[tuple[str, str]]) -> TextRules:
    return rules_of(dict(settings))
