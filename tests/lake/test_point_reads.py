"""A SELECT of a few rows by a condition gets them without a Spark job over the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import txlake
from txlake.spark import driver_frames

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def _reads_files(frame: DataFrame) -> bool:
    return "FileScan" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> txlake.LakeSession:
    made = txlake.connect(str(tmp_path / "lake"), spark=spark)
    made.sql("CREATE TABLE t (id BIGINT, p STRING, c CHAR(3), s STRING) PARTITIONED BY (p)")
    made.sql("CREATE TABLE plain (id BIGINT, p STRING, s STRING) PARTITIONED BY (p)")
    rows = "SELECT id, if(id < 5, 'a', 'b') p, 'x' || id s FROM range(10)"
    made.sql(f"INSERT INTO plain {rows}")
    made.sql("INSERT INTO t SELECT id, p, 'c', s FROM plain")
    made.sql("DELETE FROM plain WHERE id = 3")
    return made


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM plain WHERE id = 7", [(7, "b", "x7")]),
        ("SELECT count(*), max(s) FROM plain x WHERE x.id BETWEEN 2 AND 4", [(2, "x4")]),
        ("SELECT s FROM plain WHERE id = 3", []),
        ("SELECT s FROM plain WHERE id = 99", []),
        ("SELECT id FROM plain WHERE s = 'x1' AND length(p) = 1", [(1,)]),
        ("SELECT id FROM plain VERSION AS OF 1 WHERE id = 3", [(3,)]),
    ],
)
def test_the_driver_finds_few_rows(
    lake: txlake.LakeSession, query: str, rows: list[tuple[object, ...]]
) -> None:
    found = lake.sql(query)
    assert not _reads_files(found)
    assert [tuple(row) for row in found.collect()] == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM plain",
        "SELECT id FROM plain WHERE p = 'a'",
        "SELECT id FROM plain WHERE length(s) = 2",
        "SELECT id, input_file_name() FROM plain WHERE id = 7",
        "SELECT id, _metadata.file_path FROM plain WHERE id = 7",
        "SELECT id, c FROM t WHERE id = 7",
        "SELECT id FROM (SELECT * FROM plain) WHERE id = 7",
    ],
)
def test_all_else_is_spark_s(lake: txlake.LakeSession, query: str) -> None:
    assert _reads_files(lake.sql(query))


def test_what_a_schema_shows_of_columns_is_spark_s(lake: txlake.LakeSession) -> None:
    lake.sql("CREATE TABLE shown (id BIGINT, p STRING NOT NULL) PARTITIONED BY (p)")
    lake.sql("INSERT INTO shown VALUES (1, 'a')")
    found = lake.sql("SELECT * FROM shown WHERE id = 1")
    assert _reads_files(found)
    assert found.schema == lake.read("shown").schema


def test_many_rows_are_spark_s(lake: txlake.LakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_frames, "_READ_ROWS_MAX", 2)
    assert not _reads_files(lake.sql("SELECT * FROM plain WHERE id < 2"))
    assert _reads_files(lake.sql("SELECT * FROM plain WHERE id < 4"))


def test_a_transaction_finds_its_own_changes(lake: txlake.LakeSession) -> None:
    lake.sql("BEGIN")
    lake.sql("UPDATE plain SET s = 'new' WHERE id = 7")
    lake.sql("INSERT INTO plain VALUES (50, 'c', 'more')")
    found = lake.sql("SELECT s FROM plain WHERE id IN (7, 50) ORDER BY id")
    assert not _reads_files(found)
    assert [row[0] for row in found.collect()] == ["new", "more"]
    lake.sql("ROLLBACK")
