"""Identity columns that Spark's rows fill: COPY INTO, frames, DeltaTable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.rows import number, query
from txlake import IdentityGenerator
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = "SELECT id, name FROM t"


def test_files_get_values(lake: txlake.Lake, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    pq.write_table(pa.table({"name": ["a", "b"]}), landing / "1.parquet")
    copy = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET"
    lake.sql("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5), name STRING)")
    assert query(lake, f"{copy} VALIDATE") == [(5, "a"), (5, "b")]  # none is drawn
    assert number(lake, copy) == 2
    assert {row[0] for row in query(lake, ALL)} == {5, 6}
    assert number(lake, copy) == 0
    pq.write_table(pa.table({"id": [1], "name": ["c"]}), landing / "2.parquet")
    for statement in (f"{copy} VALIDATE", copy):
        with pytest.raises(InvalidRequest, match=r"^default\.t: \[\w+\] column 'id' is GENERATED"):
            lake.sql(statement)
    lake.sql("INSERT INTO t (name) VALUES ('d')")
    assert query(lake, "SELECT id FROM t WHERE name = 'd'") == [(7,)]


def test_frames_and_delta_tables_get_values(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    (
        txlake.DeltaTable.create(spark)
        .location(place)
        .addColumn("id", "BIGINT", generatedByDefaultAs=IdentityGenerator(10, -5))
        .addColumn("name", "STRING")
        .execute()
    )
    lake.attach(place, "t")
    lake.write(pa.table({"name": ["a"]}).to_pandas(), "t", mode="append")
    lake.write(spark.createDataFrame([("b",)], "name STRING"), "t", mode="append")
    source = spark.createDataFrame([("a",), ("c",)], "name STRING").alias("s")
    merge = lake.table("t").alias("t").merge(source, "t.name = s.name")
    merge.whenNotMatchedInsertAll().execute()
    lake.write(spark.createDataFrame([(7, "d")], "id BIGINT, name STRING"), "t", mode="append")
    found = {name: value for value, name in query(lake, ALL)}
    assert (found["a"], found["d"]) == (10, 7)
    # Spark doesn't tell how many rows such a frame has: there may be a gap.
    first, second = cast("int", found["b"]), cast("int", found["c"])
    assert 10 > first > second
    assert first % 5 == second % 5 == 0


def test_both_of_two_that_insert_rows_of_queries_commit(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, name STRING)")
    first, second = lake.begin(), lake.begin()
    for tx in (first, second, first):
        tx.sql("INSERT INTO t (name) SELECT CAST(id AS STRING) FROM range(0, 20, 1, 2)")
    second.commit()
    first.commit()
    assert query(lake, "SELECT count(*), count(DISTINCT id) FROM t") == [(60, 60)]
