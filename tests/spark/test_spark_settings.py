"""Every setting of the running release of Spark is classified: what txlake does about it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from tests.spark_session import KIND
from txlake.errors import InvalidRequest
from txlake.local.types import can_up_cast
from txlake.log.predicates import Opaque, parse_predicate
from txlake.log.text_rules import DEFAULT_RULES, StoreAssignment, TextRules
from txlake.log.values import parse_value
from txlake.protocol.types import Array, Primitive
from txlake.spark.session_rules import classified, rules_of, unclassified
from txlake.spark.spark_settings import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(txlake.__file__).parent
_TREATMENTS = {"evaluated", "refused", "overridden", "spark", "unused", "planning"}
_READERS = {"parse_or_opaque", "parse_predicate"}


def _settings_of(spark: SparkSession) -> set[str]:
    """The keys of all settings of the release, internal and static ones too."""
    classic: Any = spark
    java = classic._jvm.java.lang.Class
    modules = [
        java.forName(f"org.apache.spark.sql.internal.{name}$").getField("MODULE$").get(None)
        for name in ("SQLConf", "StaticSQLConf")
    ]
    return {str(entry.key()) for entry in modules[0].getConfigEntries().toArray()}


@pytest.mark.skipif(KIND == "connect", reason="a client sees no settings that aren't public")
def test_every_setting_of_the_release_is_classified(spark: SparkSession) -> None:
    unknown = sorted(_settings_of(spark) - set(classified()))
    assert not unknown, (
        f"Spark {spark.version} has settings that spark_settings.py lacks: put "
        f"each into the part that says what txlake does about it:\n{chr(10).join(unknown)}"
    )


def test_the_list_has_known_parts_each_setting_once() -> None:
    keys = [line for line in SETTINGS.splitlines() if line and line[0] not in "#["]
    assert len(keys) == len(set(keys)) == len(classified())
    assert set(classified().values()) == _TREATMENTS


def test_whoever_reads_a_text_says_by_which_rules() -> None:
    """A call without them would read every session's texts by Spark's defaults."""
    missing = []
    for path in sorted(_SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in _READERS:
                continue
            if "rules" not in {one.arg for one in node.keywords}:
                missing.append(f"{path.relative_to(_SOURCE)}:{node.lineno}")
    # Texts of Log, which has no Spark session, and what Spark itself says of a Column.
    assert [one.partition(":")[0] for one in missing] == ["lake/log.py", "spark/table_access.py"]


def _rules(**settings: str) -> TextRules:
    return rules_of({f"spark.sql.{key.replace('__', '.')}": one for key, one in settings.items()})


def test_without_settings_the_rules_are_the_defaults() -> None:
    assert rules_of({}) == DEFAULT_RULES
    harmless = _rules(shuffle__partitions="2", ansi__enabled="false", session__timeZone="UTC")
    assert harmless == DEFAULT_RULES


@pytest.mark.parametrize(
    ("settings", "read", "left"),
    [
        ({}, ["v = 1", "s = 'a\\nb'", "x > 1e2"], ["s = '${env:HOME}'"]),
        ({"variable__substitute": "false"}, ["s = '${env:HOME}'"], []),
        (
            {"parser__escapedStringLiterals": "true"},
            ["v = 1", "s = 'a'", "r = 'a'"],
            ["s = 'a\\nb'", "s = 'it''s'", "s = r'a'", 's = "a""b"'],
        ),
        ({"ansi__doubleQuotedIdentifiers": "true"}, ["s = 'zz'"], ['s = "zz"']),
        (
            {"ansi__doubleQuotedIdentifiers": "true", "ansi__enabled": "false"},
            ['s = "zz"'],
            [],
        ),
        (
            {"timestampType": "TIMESTAMP_NTZ"},
            ["t > '2020-01-01'", "t = TIMESTAMP_NTZ'2020-01-01'", "t = TIMESTAMP_LTZ'2020-01-01'"],
            ["t = TIMESTAMP'2020-01-01'", "t = CAST('2020' AS timestamp)", "t < to_timestamp(s)"],
        ),
        ({"legacy__exponentLiteralAsDecimal__enabled": "true"}, ["x = 1.5"], ["x = 1e2"]),
        ({"legacy__consecutiveStringLiterals__enabled": "true"}, ["s = 'a'"], ["s = 'it''s'"]),
        ({"a__setting__of__tomorrow": "x"}, [], ["v = 1"]),
    ],
    ids=str,
)
def test_a_text_that_a_setting_may_change_is_left_to_spark(
    settings: dict[str, str], read: list[str], left: list[str]
) -> None:
    rules = _rules(**settings)
    assert [text for text in (*read, *left) if rules.agrees_on(text)] == read
    assert all(parse_predicate(text, rules=rules) == Opaque(text) for text in left)
    assert all(parse_value(text, rules=rules) is None for text in left)


def test_settings_of_other_projects_change_no_text() -> None:
    assert _rules(catalog__other__uri="x", iceberg__vectorization__enabled="true") == DEFAULT_RULES
    assert unclassified(["spark.sql.a.new.one", "spark.hadoop.x", "spark.sql.ansi.enabled"]) == {
        "spark.sql.a.new.one"
    }


def test_a_policy_that_spark_lacks_is_refused() -> None:
    assert _rules(storeAssignmentPolicy="strict").assignment is StoreAssignment.STRICT
    with pytest.raises(InvalidRequest, match="storeAssignmentPolicy=LOOSE: expected one of ANSI"):
        _rules(storeAssignmentPolicy="LOOSE")


def test_a_setting_that_leaves_files_out_is_refused() -> None:
    assert _rules(files__ignoredPathSegmentRegex="^[._]") == DEFAULT_RULES
    with pytest.raises(InvalidRequest, match=r"ignoredPathSegmentRegex=part.*unset it"):
        _rules(files__ignoredPathSegmentRegex="part")


def test_a_stored_expression_that_a_setting_changes_is_refused() -> None:
    rules = _rules(parser__escapedStringLiterals="true")
    rules.check_stored("s <> 'a'", "constraint c")
    with pytest.raises(InvalidRequest, match=r"constraint c: spark\.sql\.parser\.escaped.*=true"):
        rules.check_stored(r"s <> 'a\nb'", "constraint c")


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ("integer", "long", True),
        ("long", "integer", False),
        ("long", "double", True),
        ("integer", "decimal(10,0)", True),
        ("integer", "decimal(9,0)", False),
        ("long", "decimal(20,0)", True),
        ("decimal(5,0)", "integer", True),
        ("decimal(2,1)", "double", False),
        ("decimal(4,2)", "decimal(5,2)", True),
        ("decimal(4,2)", "decimal(4,3)", False),
        ("date", "timestamp", True),
        ("timestamp", "date", False),
        ("timestamp_ntz", "timestamp", True),
        ("double", "string", True),
        ("string", "integer", False),
        ("void", "integer", True),
    ],
)
def test_what_the_strict_policy_lets_in(source: str, target: str, fits: bool) -> None:
    assert can_up_cast(Primitive(source), Primitive(target)) is fits
    assert can_up_cast(Array(Primitive(source)), Array(Primitive(target))) is fits
