"""The files of the partitions that a condition names, also where Spark has to evaluate it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.spark.whole_partitions import files_of_partitions
from txlake.sql.statements import SqlText

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_condition_that_is_computed_names_partitions(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "v INT, g INT, k CHAR(3)", partitioned_by="g, k")
    t.run("INSERT INTO t VALUES (0, 1, 'a'), (0, 1, 'b'), (0, 2, 'a'), (0, NULL, 'c')")
    t.run("INSERT INTO t VALUES (1, 1, 'a')")
    for where, files in (
        ("g = CAST('1' AS INT)", 3),
        ("g = length('a')", 3),
        ("length('a') = g AND k = 'a '", 2),
        ("upper(k) = 'A  '", 3),
        ("t.g = length('a') + 1", 1),
        ("exists(array(1, 9), x -> x = G)", 3),
        ("NOT (g <=> length('a'))", 2),
        ("coalesce(g, 7) = 7", 1),
        ("length('a') = 1", 5),
        ("length('a') = 2", 0),
    ):
        assert files_of_partitions(t.work(), SqlText(where)).num_rows == files, where


def test_a_table_without_partitions_has_all_files_or_none(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "v INT")
    t.run("INSERT INTO t VALUES (0)")
    assert files_of_partitions(t.work(), SqlText("length('a') = 1")).num_rows == 1
    assert files_of_partitions(t.work(), SqlText("length('a') = 2")).num_rows == 0


def test_a_condition_that_is_computed_is_over_partition_columns_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "k INT, p STRING", partitioned_by="p")
    t.run("INSERT INTO t VALUES (1, 'a')")
    for where, said in (
        ("upper(p) = 'A' AND k + 1 = 2", "non-partition column 'k'"),
        ("exists(array(1), x -> x = k)", "`k` cannot be resolved"),
        ("upper(nope) = 'A'", "non-partition column 'nope'"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            files_of_partitions(t.work(), SqlText(where))
