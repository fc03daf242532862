"""CONVERT TO DELTA of a Parquet table of Spark's own catalog."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.rows import query, rows
from txlake.errors import InvalidRequest, TxlakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime.date(2026, 1, 5)


@pytest.fixture
def of_spark(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Make tables in Spark's own catalog, which are gone after the test."""
    made: list[str] = []

    def make(name: str, text: str, *more: str) -> None:
        made.append(name)
        for one in (f"CREATE TABLE {name} {text}", *more):
            spark.sql(one)

    yield make
    for name in made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def file_at(folder: Path, **columns: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "x.parquet")


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def test_a_table_keeps_what_the_catalog_says(
    lake: txlake.Lake, spark: SparkSession, of_spark: Callable[..., None]
) -> None:
    of_spark(
        "old",
        "(id INT COMMENT 'key', c CHAR(3), d INT DEFAULT 5, day DATE, s STRING) USING parquet "
        "PARTITIONED BY (day, s) COMMENT 'sales' TBLPROPERTIES (k = 'v', delta.appendOnly = false)",
        "INSERT INTO old VALUES (1, 'x', 2, DATE'2026-01-05', 'a b:c'), (2, 'y', 3, NULL, 'ü%')",
    )
    before = rows(spark.table("old"))
    lake.sql("CONVERT TO DELTA old")
    assert query(lake, "SELECT * FROM old") == before
    assert query(lake, "SELECT id FROM old WHERE s = 'a b:c'") == [(1,)]
    assert query(lake, "SELECT id FROM old WHERE day IS NULL") == [(2,)]
    [detail] = lake.sql("DESCRIBE DETAIL old").collect()
    assert detail["partitionColumns"] == ["day", "s"]
    assert detail["description"] == "sales"
    assert detail["properties"].items() >= {("k", "v"), ("delta.appendOnly", "false")}
    schema = lake.read("old").schema
    assert schema["id"].metadata["comment"] == "key"
    assert schema["c"].metadata["__CHAR_VARCHAR_TYPE_STRING"] == "char(3)"
    lake.sql("INSERT INTO old (id, day, s) VALUES (3, DATE'2026-01-05', 'z')")
    assert query(lake, "SELECT * FROM old WHERE id = 3") == [(3, None, 5, DAY, "z")]
    [history] = lake.sql("DESCRIBE HISTORY old").where("version = 0").collect()
    assert history["operation"] == "CONVERT"
    parameters = history["operationParameters"]
    assert parameters["catalogTable"] == "`spark_catalog`.`default`.`old`"
    lake.sql("CONVERT TO DELTA default.old")  # it is one already
    lake.sql("DROP TABLE old")
    assert rows(spark.table("old"))[:1] == before[:1]  # the files aren't the lake's to delete


@pytest.mark.broad(keep=1)
def test_files_are_those_that_spark_reads(
    lake: txlake.Lake, tmp_path: Path, of_spark: Callable[..., None]
) -> None:
    place = tmp_path / "a b"
    file_at(place / "odd", id=ints(1))
    file_at(place / "p=7", id=ints(2))  # no partition of the table
    of_spark(
        "parts",
        f"(id INT, p INT) USING parquet PARTITIONED BY (p) LOCATION '{place}'",
        "INSERT INTO parts VALUES (3, 1)",
        f"ALTER TABLE parts ADD PARTITION (p = 9) LOCATION '{place}/odd'",
        "ALTER TABLE parts ADD PARTITION (p = 8)",
    )
    lake.sql("CONVERT TO DELTA parts NO STATISTICS")
    assert query(lake, "SELECT * FROM parts") == [(1, 9), (3, 1)]
    place = tmp_path / "plain"
    file_at(place, A=ints(1), more=pa.array(["z"]))
    file_at(place / "sub", A=ints(2))
    of_spark("plain", f"(a INT, b INT) USING parquet LOCATION '{place}'")
    lake.sql("CONVERT TO DELTA plain")
    assert query(lake, "SELECT * FROM plain WHERE a = 1") == [(1, None)]
    assert lake.read("plain").columns == ["A", "b"]
    of_spark("empty", "(a INT) USING parquet")
    lake.sql("CONVERT TO DELTA empty")
    lake.sql("INSERT INTO empty VALUES (1)")
    assert query(lake, "SELECT * FROM empty") == [(1,)]


def test_it_is_part_of_a_transaction(
    lake: txlake.Lake, spark: SparkSession, of_spark: Callable[..., None]
) -> None:
    of_spark("once", "(a INT) USING parquet", "INSERT INTO once VALUES (1)")
    transaction = lake.begin()
    transaction.sql("CONVERT TO DELTA once")
    assert query(transaction, "SELECT * FROM once") == [(1,)]
    transaction.rollback()
    assert lake.sql("SHOW TABLES").count() == 0
    location = spark.sql("DESCRIBE TABLE EXTENDED once").where("col_name = 'Location'")
    place = location.collect()[0]["data_type"].removeprefix("file:")
    lake.sql(f"CONVERT TO DELTA parquet.`{place}`")
    lake.sql("CONVERT TO DELTA once")  # it gets its name
    assert query(lake, "SELECT * FROM once") == [(1,)]


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("made", "name", "said"),
    [
        ("(a INT) USING orc", "old", "only Parquet tables are converted, found the format 'orc'"),
        ("(a INT) USING parquet", "missing", "neither the lake nor Spark's own catalog has"),
        (
            "(a INT, p INT) USING parquet PARTITIONED BY (p)",
            "old PARTITIONED BY (p STRING)",
            r"PARTITIONED BY \(p string\) isn't what Spark's catalog says, \(p int\)",
        ),
        (
            "(a INT, p INT) USING parquet PARTITIONED BY (p)",
            "old",
            r"partition p=8 is at .*elsewhere, outside of the table's folder",
        ),
        ("(a BIGINT) USING parquet LOCATION '{}'", "old", "a has type int, in Spark's catalog big"),
        ("(s STRUCT<f: INT>) USING parquet LOCATION '{}'", "old", r"s.more isn't in the table's"),
        (
            "(d INT DEFAULT 5) USING parquet LOCATION '{}'",
            "old",
            "x.parquet hasn't column 'd', whose default value 5",
        ),
        ("(s STRING COLLATE UTF8_LCASE) USING parquet", "old", "s has a collation"),
        ("(a INT) USING parquet TBLPROPERTIES ('delta.appendOnly' = 'x')", "old", "appendOnly"),
    ],
)
def test_what_is_refused(
    lake: txlake.Lake,
    spark: SparkSession,
    tmp_path: Path,
    of_spark: Callable[..., None],
    made: str,
    name: str,
    said: str,
) -> None:
    place = tmp_path / "place"
    struct = pa.array([{"f": 1, "more": 2}], pa.struct([("f", pa.int32()), ("more", pa.int32())]))
    file_at(place, a=ints(1), s=struct)
    file_at(tmp_path / "elsewhere", a=ints(1))
    of_spark("old", made.format(place))
    if "p=8" in said:
        spark.sql(f"ALTER TABLE old ADD PARTITION (p=8) LOCATION '{tmp_path}/elsewhere'")
    with pytest.raises(TxlakeError, match=said):
        lake.sql(f"CONVERT TO DELTA {name}")
    assert lake.sql("SHOW TABLES").count() == 0
    assert not (place / "_delta_log").exists()


def test_views_and_databases_that_the_lake_lacks(
    lake: txlake.Lake, spark: SparkSession, of_spark: Callable[..., None]
) -> None:
    spark.sql("CREATE VIEW seen AS SELECT 1 AS a")
    spark.sql("CREATE DATABASE elsewhere")
    try:
        with pytest.raises(InvalidRequest, match="is a view, not a Parquet table"):
            lake.sql("CONVERT TO DELTA seen")
        of_spark("elsewhere.old", "(a INT) USING parquet")
        said = "CREATE DATABASE elsewhere makes it. Or CONVERT TO DELTA parquet.`/.*old`"
        with pytest.raises(InvalidRequest, match=said):
            lake.sql("CONVERT TO DELTA elsewhere.old")
        lake.sql("CREATE DATABASE elsewhere")
        lake.sql("CONVERT TO DELTA elsewhere.old")
        assert query(lake, "SELECT * FROM elsewhere.old") == []
    finally:
        spark.sql("DROP VIEW seen")
        spark.sql("DROP DATABASE elsewhere CASCADE")


def test_an_enabled_session_converts_its_own(
    lake: txlake.Lake, spark: SparkSession, of_spark: Callable[..., None]
) -> None:
    of_spark("old", "(a INT) USING parquet", "INSERT INTO old VALUES (1)")
    txlake.enable(spark, lake)
    try:
        txlake.DeltaTable.convertToDelta(spark, "old")
        spark.sql("CONVERT TO DELTA old")
        spark.sql("UPDATE old SET a = 2")
        assert rows(spark.table("old")) == [(2,)]
        spark.sql("DROP TABLE old")
    finally:
        txlake.disable(spark)
