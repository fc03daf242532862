"""`format("txlake")` as a registered data source, in sessions that no lake was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

import txlake
from tests.lake.rows import rows
from txlake.doors.data_source import Staged, TxlakeDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=4)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(txlake.TxlakeDataSource)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
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
    assert found.where("p = 1").select("v").count() == 4
    old = spark.read.format("txlake").option("versionAsOf", 0).load(place)
    assert old.count() == 10


def test_partitions_and_mapped_columns(lake: txlake.Lake, spark: SparkSession, place: str) -> None:
    lake.write(
        spark.range(6).selectExpr("id", "id % 3 AS p", "struct(id AS a) AS s"),
        place,
        partition_by="p",
    )
    lake.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql(f"ALTER TABLE delta.`{place}` RENAME COLUMN id TO number")
    lake.sql(f"ALTER TABLE delta.`{place}` ADD COLUMN more INT")
    found = spark.read.format("txlake").load(place)
    assert rows(found) == rows(lake.read(place))
    found.write.format("txlake").mode("append").save(place)
    assert rows(lake.read(place)) == sorted(rows(found) * 2, key=repr)[:12]
    assert lake.read(place).where("p = 2").count() == 4


def test_appends_commit_once(lake: txlake.Lake, spark: SparkSession, place: str) -> None:
    lake.write(spark.range(0), place)
    frame = spark.range(0, 100, 1, 3)
    frame.write.format("txlake").mode("append").option("userMetadata", "mine").save(place)
    assert lake.read(place).count() == 100
    newest = lake.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()[0]
    assert (newest["version"], newest["operation"]) == (1, "WRITE")
    assert newest["userMetadata"] == "mine"
    assert newest["operationMetrics"]["numOutputRows"] == "100"
    frame.write.format("txlake").mode("overwrite").save(place)
    assert lake.read(place).count() == 100
    for _ in range(2):
        writer = frame.write.format("txlake").mode("append")
        writer.options(txnAppId="job", txnVersion=7).save(place)
    assert lake.read(place).count() == 200


def test_tables_of_a_lake_by_name(lake: txlake.Lake, spark: SparkSession, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL)")
    options = {"lake": str(tmp_path / "lake")}
    spark.range(3).write.format("txlake").mode("append").options(**options).save("t")
    assert lake.read("t").count() == 3
    assert spark.read.format("txlake").options(**options).load("default.t").count() == 3
    with pytest.raises(AnalysisException, match="no lake is given"):
        spark.read.format("txlake").load("t")


def files(place: str) -> int:
    return len(list(Path(place).rglob("*.parquet")))


def test_a_failed_task_leaves_nothing(lake: txlake.Lake, spark: SparkSession, place: str) -> None:
    lake.sql(f"CREATE TABLE delta.`{place}` (id BIGINT NOT NULL)")
    frame = spark.range(0, 100, 1, 2).selectExpr("IF(id = 99, NULL, id) AS id")
    with pytest.raises(PySparkException, match="NOT NULL of column 'id' is violated"):
        frame.write.format("txlake").mode("append").save(place)
    assert files(place) == 0
    assert lake.read(place).count() == 0


def test_a_commit_that_cannot_stand_leaves_nothing(
    lake: txlake.Lake, spark: SparkSession, place: str
) -> None:
    lake.write(spark.range(1), place)
    before = files(place)
    source = TxlakeDataSource({"path": place})
    writer = source.writer(spark.range(1).schema, overwrite=False)
    staged = writer.write(iter(spark.range(5).toArrow().to_batches()))
    assert isinstance(staged, Staged)
    assert files(place) == before + 1
    lake.sql(f"ALTER TABLE delta.`{place}` ADD COLUMN more INT")
    with pytest.raises(txlake.errors.InvalidRequest, match="definition changed"):
        writer.commit([staged])
    assert files(place) == before
    writer.abort([staged])


def test_an_aborted_write_is_removed_and_a_tried_one_is_not(
    lake: txlake.Lake, spark: SparkSession, place: str
) -> None:
    lake.write(spark.range(1), place)
    before = files(place)
    writer = TxlakeDataSource({"path": place}).writer(spark.range(1).schema, overwrite=False)
    staged = writer.write(iter(spark.range(5).toArrow().to_batches()))
    writer.abort([staged, None])
    assert files(place) == before
    staged = writer.write(iter(spark.range(5).toArrow().to_batches()))
    writer.commit([staged])
    writer.abort([staged])  # Spark's, when it doesn't learn that the commit stands
    assert lake.read(place).count() == 6


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ("v INT", "has the schema"),
        ("", "give the path"),
    ],
)
def test_bad_reads(lake: txlake.Lake, spark: SparkSession, place: str, ask: str, said: str) -> None:
    lake.write(spark.range(1), place)
    reader = spark.read.format("txlake")
    with pytest.raises(AnalysisException, match=said):
        (reader.schema(ask).load(place) if ask else reader.load()).collect()


def test_what_spark_alone_can_write_is_refused(
    lake: txlake.Lake, spark: SparkSession, place: str
) -> None:
    lake.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2))")
    with pytest.raises(PySparkException, match=r"txlake\.enable"):
        spark.range(1).write.format("txlake").mode("append").save(place)
    with pytest.raises(PySparkException, match="mergeSchema isn't known"):
        spark.range(1).write.format("txlake").mode("append").option("mergeSchema", True).save(place)
    with pytest.raises(PySparkException, match="is not a Delta table"):
        spark.range(1).write.format("txlake").mode("append").save(place + "/nothing")
