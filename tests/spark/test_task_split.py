"""Tasks as all cores have them done together, by settings that one read has for itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.tables import table
from txlake.log.files import adds_of
from txlake.spark import reading, task_split
from txlake.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

MIB = 1024 * 1024
FILES = 70


@pytest.mark.parametrize(
    ("sizes", "opening", "cores", "tasks"),
    [
        ([14 * MIB] * 20, 0, 2, 4),  # by Spark's own 128 MiB: 3
        ([14 * MIB] * 21, 0, 2, 4),  # six, six, six, three
        ([1000] * 5000, MIB // 8, 2, 6),
        ([60 * MIB] * 100, 0, 2, 50),  # many rounds: as Spark
        ([300 * MIB], 0, 2, 4),
        ([70 * MIB, 60 * MIB, 60 * MIB, 50 * MIB], 0, 2, 2),
        ([1], 0, 2, 1),
        ([], 0, 2, 1),
    ],
)
def test_tasks_fill_rounds_of_cores(sizes: list[int], opening: int, cores: int, tasks: int) -> None:
    limit = task_split.task_bytes(sizes, opening, cores)
    assert task_split._tasks(sizes, opening, limit) == tasks
    assert limit <= 2 * 128 * MIB


def test_spark_makes_as_many_tasks_as_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    for rows in (50_000, 20_000, 20_000, 10_000, 10_000):
        t.append(spark.range(0, rows, 1, 1))
    sizes = [add.size for add in adds_of(t.snapshot.select(None))]
    session = spark.conf
    options = {"pathGlobFilter": "*.parquet", "recursiveFileLookup": "true"}
    for limit in (20_000, 50_000, 90_000, 300_000):
        settings = {
            "spark.sql.files.maxPartitionBytes": str(limit),
            "spark.sql.files.openCostInBytes": "1000",
            "spark.sql.files.minPartitionNum": "1",
        }
        before = {key: session.get(key, None) for key in settings}
        found = reading._parquet(spark, str(tmp_path / "t"), t.frame().schema, options, settings)
        assert found.rdd.getNumPartitions() == task_split._tasks(sizes, 1000, limit)
        assert {key: session.get(key, None) for key in settings} == before


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if few files were enough to make a difference."""
    monkeypatch.setattr(task_split, "_OPEN_BYTES", 128 * MIB)


def test_settings_of_somebody_else_stay(
    tmp_path: Path, spark: SparkSession, small_tasks: None
) -> None:
    store, sizes = open_store(str(tmp_path)), [1000] * 5000
    assert task_split.sharing(spark, store, [1000] * 5)["spark.sql.files.openCostInBytes"]
    assert not task_split.sharing(spark, store, [])
    for key in ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"):
        spark.conf.set(key, "1000000b")
        try:
            assert not task_split.sharing(spark, store, sizes)
        finally:
            spark.conf.unset(key)
    assert task_split.sharing(spark, store, sizes)


def test_a_file_of_a_bucket_takes_as_long_to_open_as_spark_says(
    tmp_path: Path, spark: SparkSession
) -> None:
    def opening(settings: Mapping[str, str]) -> int:
        return int(settings["spark.sql.files.openCostInBytes"])

    sizes = [1000] * 64
    here = opening(task_split.sharing(spark, open_store(str(tmp_path)), sizes))
    there = opening(task_split.sharing(spark, open_store("memory://sharing/t"), sizes))
    assert here < there == 4 * MIB


def test_rows_and_what_is_known_of_them_stay(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    t = table(tmp_path / "t", spark, "id LONG, v STRING")
    t.append(spark.range(0, FILES, 1, FILES).selectExpr("id", "'x' v"))
    frame = t.frame()
    assert frame.rdd.getNumPartitions() == 2  # local[2]; by Spark's own: 3
    assert sorted(t.rows()) == [(number, "x") for number in range(FILES)]
    names = frame.select("id", F.input_file_name().alias("n"), "_metadata.file_name").collect()
    assert len({row["file_name"] for row in names}) == FILES
    assert all(row["n"].endswith(row["file_name"]) for row in names)
    frame.where("id = 7").select("id").explain()
    plan = capsys.readouterr().out
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,7)]" in plan
    assert "v:string" not in plan
    t.run("DELETE FROM t WHERE id IN (3, 5)")
    assert sorted(row[0] for row in t.rows()) == [n for n in range(FILES) if n not in (3, 5)]
