"""`delta.autoOptimize.optimizeWrite`: many tasks write few files, and each partition few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import VECTORS, PathTable, table
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broad(keep=3)

SETTING = "spark.databricks.delta.optimizeWrite.enabled"
ON = {"delta.autoOptimize.optimizeWrite": "true"}


@pytest.fixture
def spark_with(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.unset(SETTING)


def rows(spark: SparkSession, number: int = 4_000) -> DataFrame:
    return spark.range(0, number, 1, 8).selectExpr("id n", "id % 4 p")


def made(
    folder: Path, spark: SparkSession, properties: dict[str, str], *, apart: bool
) -> PathTable:
    return table(
        folder / "t",
        spark,
        "n LONG, p LONG",
        partitioned_by="p" if apart else None,
        properties={**VECTORS, **properties},
    )


@pytest.mark.parametrize("apart", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize(
    ("properties", "setting", "is_optimized"),
    [
        ({}, None, False),
        (ON, None, True),
        ({"delta.autoOptimize": "true"}, None, True),
        (ON, "false", False),
        ({}, "true", True),
    ],
)
def test_inserts(
    tmp_path: Path,
    spark_with: SparkSession,
    properties: dict[str, str],
    setting: str | None,
    is_optimized: bool,
    apart: bool,
) -> None:
    t = made(tmp_path, spark_with, properties, apart=apart)
    if setting is not None:
        spark_with.conf.set(SETTING, setting)
    t.append(rows(spark_with))
    files = len(t.adds())
    assert files == ((4 if apart else 1) if is_optimized else (32 if apart else 8))
    assert sorted(t.rows()) == [(n, n % 4) for n in range(4_000)]


def test_an_insert_of_many_rows(tmp_path: Path, spark_with: SparkSession) -> None:
    t = made(tmp_path, spark_with, ON, apart=False)
    t.append(rows(spark_with, 40_000))
    assert len(t.adds()) == 1
    assert len(t.rows()) == 40_000


def test_a_merge(tmp_path: Path, spark_with: SparkSession) -> None:
    t = made(tmp_path, spark_with, ON, apart=True)
    t.append(rows(spark_with))
    rows(spark_with, 80_000).createOrReplaceTempView("optimized_source")
    t.run(
        "MERGE INTO t USING optimized_source s ON t.n = s.n WHEN MATCHED THEN UPDATE SET n = -s.n "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    spark_with.catalog.dropTempView("optimized_source")
    assert len(t.adds()) == 4
    assert sum(row[0] for row in t.rows()) == sum(range(4_000, 80_000)) - sum(range(4_000))


def test_a_large_partition_is_shared_by_tasks(tmp_path: Path, spark_with: SparkSession) -> None:
    size = "spark.databricks.delta.optimizeWrite.binSize"
    t = made(tmp_path, spark_with, ON, apart=True)
    spark_with.conf.set(size, "8k")
    try:
        t.append(spark_with.range(0, 20_000, 1, 8).selectExpr("id n", "0 p"))
    finally:
        spark_with.conf.unset(size)
    assert len(t.adds()) > 1
    assert len(t.rows()) == 20_000


def test_a_violated_constraint_leaves_nothing(tmp_path: Path, spark_with: SparkSession) -> None:
    t = table(
        tmp_path / "t", spark_with, "n LONG, p LONG, CONSTRAINT few CHECK (n < 3999)", properties=ON
    )
    with pytest.raises(InvalidRequest, match="few"):
        t.append(rows(spark_with))
    assert t.rows() == []
