"""Properties that the Spark session gives to new tables, by whatever statement they are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest

PREFIX = "spark.databricks.delta.properties.defaults."
ROWS = pa.table({"id": [1]})


@pytest.fixture
def defaults(spark: SparkSession) -> Iterator[dict[str, str]]:
    """The settings, of a session that has them for this test alone."""
    given = {
        "logRetentionDuration": "interval 60 days",
        "enableDeletionVectors": "false",
        "feature.v2Checkpoint": "supported",
        "ofAnotherEngine": "true",
    }
    for key, value in given.items():
        spark.conf.set(PREFIX + key, value)
    yield given
    for key in given:
        spark.conf.unset(PREFIX + key)


def properties(lake: txlake.Lake, table: str) -> dict[object, object]:
    return {row[0]: row[1] for row in query(lake, f"SHOW TBLPROPERTIES {table}")}


@pytest.mark.parametrize("how", ["create", "as select", "write", "replace", "builder"])
def test_a_new_table_has_them(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path, defaults: dict[str, str], how: str
) -> None:
    match how:
        case "create":
            lake.sql("CREATE TABLE t (id INT)")
        case "as select":
            lake.sql("CREATE TABLE t AS SELECT 1 AS id")
        case "write":
            lake.write(ROWS, "t")
        case "replace":
            lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES (delta.appendOnly = TRUE)")
            lake.sql("CREATE OR REPLACE TABLE t (id INT)")
        case _:
            place = str(tmp_path / "built")
            txlake.DeltaTable.create(spark).location(place).addColumn("id", "INT").execute()
            lake.attach(place, "t")
    found = properties(lake, "t")
    assert found["delta.logRetentionDuration"] == "interval 60 days"
    assert found["delta.enableDeletionVectors"] == "false"
    assert "delta.ofAnotherEngine" not in found
    assert "delta.appendOnly" not in found


def test_the_statement_counts_more(lake: txlake.Lake, defaults: dict[str, str]) -> None:
    lake.sql(
        "CREATE TABLE t (id INT) TBLPROPERTIES ('delta.ENABLEdeletionvectors' = 'true', mine = 1)"
    )
    found = properties(lake, "t")
    assert found["delta.enableDeletionVectors"] == "true"
    assert found["mine"] == "1"
    lake.sql("CREATE TABLE u LIKE t; CREATE TABLE v SHALLOW CLONE t")
    for name in ("u", "v"):
        assert properties(lake, name)["delta.enableDeletionVectors"] == "true"


def test_one_that_is_no_value_is_named(lake: txlake.Lake, spark: SparkSession) -> None:
    spark.conf.set(f"{PREFIX}appendOnly", "perhaps")
    try:
        with pytest.raises(InvalidRequest, match=r"delta\.appendOnly.*perhaps"):
            lake.sql("CREATE TABLE t (id INT)")
    finally:
        spark.conf.unset(f"{PREFIX}appendOnly")
    assert query(lake, "SHOW TABLES") == []


def test_which_property_lets_to_pandas_of_delta_rs_read_a_table(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    """The README says so: it has to say less when this fails."""
    for name, vectors in (("new", "true"), ("old", "false")):
        lake.sql(
            f"CREATE TABLE {name} TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}') "
            "AS SELECT id FROM range(3)"
        )
        lake.sql(f"DELETE FROM {name} WHERE id = 1")
    new, old = (DeltaTable(tmp_path / "warehouse" / name) for name in ("new", "old"))
    assert sorted(old.to_pandas()["id"]) == [0, 2]
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        new.to_pandas()


COMMIT_INFO = "spark.databricks.delta.commitInfo.enabled"


def test_a_commit_tells_less_where_the_session_says_so(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "path table")
    lake.sql("CREATE TABLE t (id INT)")
    lake.write(ROWS, place)
    spark.conf.set(COMMIT_INFO, "FALSE")
    try:
        lake.sql("INSERT INTO t VALUES (1)")
        lake.write(ROWS, place, "append")
        spark.conf.set(COMMIT_INFO, "perhaps")
        with pytest.raises(InvalidRequest, match="expected true or false, found 'perhaps'"):
            lake.sql("INSERT INTO t VALUES (2)")
    finally:
        spark.conf.unset(COMMIT_INFO)
    assert query(lake, "SELECT * FROM t") == [(1,)]
    for folder in (tmp_path / "warehouse" / "t", tmp_path / "path table"):
        before, after = txlake.Log(str(folder)).history()[1], txlake.Log(str(folder)).history()[0]
        assert before["operationParameters"]
        assert (after["operationParameters"], after["operationMetrics"]) == ({}, {})
        assert (after["operation"], after["isBlindAppend"]) == ("WRITE", True)
        assert after["isolationLevel"] == "WriteSerializable"
