"""Overwrite, replace_where and dynamic partition overwrite: which rows go, which stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.errors import InvalidRequest
from txlake.log.predicates import And, Comparison, IsNull, Operator, Or

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

MODES = pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])


def _partitioned(folder: Path, spark: SparkSession, properties: dict[str, str]) -> PathTable:
    t = table(folder / "t", spark, "id INT, p STRING", partitioned_by="p", properties=properties)
    t.run("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b'), (4, NULL)")
    return t


@MODES
def test_overwrite(tmp_path: Path, spark: SparkSession, properties: dict[str, str]) -> None:
    t = _partitioned(tmp_path, spark, properties)
    change = t.overwrite(spark.sql("SELECT 9 id, 'z' p"))
    assert t.rows() == [(9, "z")]
    assert t.rows(1) == [(1, "a"), (2, "a"), (3, "b"), (4, None)]
    assert change.parameters["mode"] == "Overwrite"
    assert [read.predicate for read in change.reads] == [None]
    t.overwrite(spark.sql("SELECT 9 id, 'z' p WHERE false"))
    assert t.rows() == []


@MODES
def test_replace_where_on_partitions(
    tmp_path: Path, spark: SparkSession, properties: dict[str, str]
) -> None:
    t = _partitioned(tmp_path, spark, properties)
    change = t.replace_where(spark.sql("SELECT 7 id, 'a' p"), "p = 'a'")
    assert t.rows() == [(3, "b"), (4, None), (7, "a")]
    assert change.parameters == {
        "mode": "Overwrite",
        "partitionBy": ["p"],
        "predicate": "p = 'a'",
    }
    assert change.metrics["numDeletedRows"] == 2
    assert change.metrics["numCopiedRows"] == 0


@MODES
def test_replace_where_on_data(
    tmp_path: Path, spark: SparkSession, properties: dict[str, str]
) -> None:
    t = _partitioned(tmp_path, spark, properties)
    t.replace_where(spark.sql("SELECT 20 id, 'b' p UNION ALL SELECT 2, 'q'"), "id >= 2 AND id < 30")
    assert t.rows() == [(1, "a"), (2, "q"), (20, "b")]
    t.run("INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 'new')")
    assert t.rows() == [(1, "new"), (2, "q"), (20, "b")]


@pytest.mark.parametrize(
    ("condition", "row"),
    [("p = 'a'", '{"id":5,"p":"b"}'), ("id > 5", '{"id":5,"p":"b"}'), ("p > 'b'", '"p":"b"')],
)
def test_rows_outside_replace_where(
    tmp_path: Path, spark: SparkSession, condition: str, row: str
) -> None:
    t = _partitioned(tmp_path, spark, {})
    files = t.data_files()
    message = f"replace_where {condition} is violated by the row"
    with pytest.raises(InvalidRequest, match=re.escape(message)) as caught:
        t.replace_where(spark.sql("SELECT 5 id, 'b' p"), condition)
    assert row in str(caught.value)
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        t.replace_where(pa.table({"id": pa.array([5], pa.int32()), "p": ["b"]}), condition)
    assert t.data_files() == files
    assert t.snapshot.version == 1


def test_a_null_is_outside_of_replace_where(tmp_path: Path, spark: SparkSession) -> None:
    t = _partitioned(tmp_path, spark, {})
    with pytest.raises(InvalidRequest, match="replace_where p <> 'a' is violated"):
        t.replace_where(spark.sql("SELECT 5 id, CAST(NULL AS STRING) p"), "p <> 'a'")
    t.replace_where(spark.sql("SELECT 5 id, CAST(NULL AS STRING) p"), "p IS NULL")
    assert t.rows() == [(1, "a"), (2, "a"), (3, "b"), (5, None)]


@MODES
def test_dynamic_partition_overwrite(
    tmp_path: Path, spark: SparkSession, properties: dict[str, str]
) -> None:
    t = _partitioned(tmp_path, spark, properties)
    t.run("DELETE FROM t WHERE id = 1")
    change = t.overwrite_partitions(
        spark.sql("SELECT 7 id, 'a' p UNION ALL SELECT 8, NULL UNION ALL SELECT 9, 'new'")
    )
    assert t.rows() == [(3, "b"), (7, "a"), (8, None), (9, "new")]
    (read,) = change.reads
    assert read.files is False
    assert read.predicate == Or(
        (
            Comparison(("p",), Operator.EQUAL, "a"),
            Comparison(("p",), Operator.EQUAL, "new"),
            IsNull(("p",)),
        )
    )


def test_dynamic_overwrite_by_several_columns(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT, d DATE, n INT", partitioned_by="d, n")
    t.run("INSERT INTO t VALUES (1, DATE'2026-01-01', 1), (2, DATE'2026-01-01', 2)")
    change = t.overwrite_partitions(spark.sql("SELECT 3 id, DATE'2026-01-01' d, 2 n"))
    assert [row[0] for row in t.rows()] == [1, 3]
    assert isinstance(change.reads[0].predicate, And)


def test_dynamic_overwrite_of_nothing(tmp_path: Path, spark: SparkSession) -> None:
    t = _partitioned(tmp_path, spark, {})
    change = t.overwrite_partitions(spark.sql("SELECT 3 id, 'a' p WHERE false"))
    assert change.actions == ()
    assert len(t.rows()) == 4


def test_dynamic_overwrite_without_partitions_replaces_all(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id INT")
    t.run("INSERT INTO t VALUES (1), (2)")
    t.overwrite_partitions(spark.sql("SELECT 3 id"))
    assert t.rows() == [(3,)]


def test_append_only_tables_refuse_to_lose_rows(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT", properties={"delta.appendOnly": "true"})
    t.run("INSERT INTO t VALUES (1)")
    for sql in (
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 2",
        "INSERT OVERWRITE t VALUES (2)",
    ):
        with pytest.raises(InvalidRequest, match="appendOnly"):
            t.run(sql)
    t.run("INSERT INTO t VALUES (2)")
    assert t.rows() == [(1,), (2,)]
