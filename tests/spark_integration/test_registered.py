"""`format("txlake")` in Spark sessions that no lake was given: a registered data source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import txlake
from tests.lake.rows import rows
from txlake.spark.spark_sessions import active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=1)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    spark.dataSource.register(txlake.TxlakeDataSource)
    # Spark's writers look data sources up in the thread's active session, and an earlier test may
    # have left another one active.
    with active(spark), txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


def test_rows_of_every_kind_are_read(lake: txlake.Lake, spark: SparkSession, place: str) -> None:
    lake.sql(
        f"CREATE TABLE delta.`{place}` AS SELECT id, CAST(id % 2 AS INT) AS p, 'v' || id AS v, "
        "1.25 AS n, DATE'2026-02-28' AS day, TIMESTAMP'2026-02-28 01:02:03.000004' AS at, "
        "TIMESTAMP_NTZ'1500-01-01 00:00:00' AS ntz, X'00FF' AS x, "
        "named_struct('a', 1, 'b', array('x', NULL)) AS st, map('k', struct(1L AS v)) AS m "
        "FROM range(10)"
    )
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id IN (3, 4)")
    found = spark.read.format("txlake").load(place)
    expected = lake.read(place)
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)
    found.where("p = 1").write.format("txlake").mode("append").save(place)
    assert lake.read(place).count() == 12
    lake.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql(f"ALTER TABLE delta.`{place}` RENAME COLUMN v TO renamed")
    assert rows(spark.read.format("txlake").load(place)) == rows(lake.read(place))


def test_what_spark_alone_can_write_is_refused(
    lake: txlake.Lake, spark: SparkSession, place: str
) -> None:
    lake.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2))")
    with pytest.raises(PySparkException, match=r"txlake\.enable"):
        spark.range(1).write.format("txlake").mode("append").save(place)
