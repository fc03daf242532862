"""Conditions evaluated before deleted rows are filtered out: same rows, and no failure."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.log.predicates import bind, parse_predicate
from txlake.protocol.types import Struct
from txlake.spark.prefilters import prefilters
from txlake.sql.statements import Assignment, SqlText

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id LONG, n INT, d DATE, s STRING, f DOUBLE, c CHAR(3)"
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ("n = 3", 1),
        ("n >= 3 AND n < 7 AND s = 'x'", 3),
        ("n IN (1, 2) AND d = DATE '2026-01-03'", 2),
        ("n = 3 OR n = 4", 0),
        ("n != 3", 0),
        ("NOT n = 3", 0),
        ("n IS NULL", 0),
        ("f > 1.5", 0),
        ("c = 'a'", 0),
        ("s = 5", 0),  # a cast of s, which may fail
        ("n <=> 3", 0),
        ("1 / n > 0 AND n > 0", 1),
    ],
)
def test_infallible_conditions_are_evaluated_first(
    tmp_path: Path, spark: SparkSession, condition: str, asked: int
) -> None:
    t = table(tmp_path / "t", spark, SCHEMA)
    predicate = bind(parse_predicate(condition), t.snapshot.schema)
    assert len(list(prefilters(predicate, t.snapshot.schema))) == asked
    assert not list(prefilters(predicate, Struct(())))


@pytest.mark.parametrize("properties", [{}, MAPPED], ids=["plain", "mapped"])
def test_rows_are_the_same(tmp_path: Path, spark: SparkSession, properties: dict[str, str]) -> None:
    t = table(tmp_path / "t", spark, SCHEMA, properties=properties)
    rows: list[tuple[object, ...]] = [
        (number, number % 5, date(2026, 1, 1 + number), f"s{number % 3}", 0.5, "a")
        for number in range(20)
    ]
    rows.append((20, None, None, None, None, None))
    t.append(spark.createDataFrame(rows, SCHEMA.replace("CHAR(3)", "STRING")).coalesce(1))
    t.run("DELETE FROM t WHERE id IN (0, 5)")
    t.run("UPDATE t SET f = f + 1 WHERE n = 0 AND d >= DATE '2026-01-01' AND s IN ('s0', 's1')")
    left = {row[0]: row[4] for row in t.rows()}
    assert len(left) == 19
    assert {key for key, value in left.items() if value == 1.5} == {10, 15}
    t.run("DELETE FROM t WHERE n = 4 AND s = 's1'")
    assert sorted({*left} - {row[0] for row in t.rows()}) == [4, 19]


def test_a_deleted_row_fails_no_condition(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG, n INT")
    t.append(spark.range(0, 10, 1, 1).selectExpr("id", "CAST(id AS INT) n"))
    t.run("DELETE FROM t WHERE n = 0")
    t.run("DELETE FROM t WHERE id < 5 AND 10 / n >= 5")
    assert sorted(row[0] for row in t.rows()) == [3, 4, 5, 6, 7, 8, 9]


def test_a_condition_that_only_spark_understands_finds_its_rows(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id LONG, n INT")
    t.append(spark.range(0, 10, 1, 1).selectExpr("id", "CAST(id AS INT) n"))
    change = t.work().delete(SqlText("n !< 7"))
    assert change.metrics["numDeletedRows"] == 3
    change = t.work().update((Assignment(("n",), SqlText("0")),), SqlText("n !> 1 AND id = 1"))
    assert change.affected == {"num_affected_rows": 1}
    with pytest.raises(InvalidRequest, match=r"(?i)syntax error"):
        t.work().delete(SqlText("n !! 7"))
