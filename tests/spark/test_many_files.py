"""Many small files of this machine are read by few tasks; what their rows tell stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.tables import table
from txlake.spark import reading
from txlake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1024 * 1024
FILES = 70


@pytest.fixture
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine for which one task is enough."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(reading, "_TASKS_PER_CORE", 1)


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([1000] * 63, None),
        ([1000] * 64, 1),
        ([1000] * 5000, 1),
        ([MIB] * 1000, 8),
        ([60 * MIB] * 100, None),
        ([], None),
    ],
)
def test_how_many_tasks_are_enough(
    tmp_path: Path, spark: SparkSession, one_task: None, sizes: list[int], tasks: int | None
) -> None:
    assert reading._tasks_max(spark, open_store(str(tmp_path)), sizes) == tasks


def test_tasks_are_as_many_as_someone_asked_for(
    tmp_path: Path, spark: SparkSession, one_task: None
) -> None:
    store, sizes = open_store(str(tmp_path)), [1000] * 5000
    assert reading._tasks_max(spark, open_store("memory://many/t"), sizes) is None
    for key in ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"):
        spark.conf.set(key, "1000000b")
        try:
            assert reading._tasks_max(spark, store, sizes) is None
        finally:
            spark.conf.unset(key)
    assert reading._tasks_max(spark, store, sizes) == 1


def test_rows_and_what_is_known_of_them_stay(
    tmp_path: Path, spark: SparkSession, one_task: None, capsys: pytest.CaptureFixture[str]
) -> None:
    t = table(tmp_path / "t", spark, "id LONG, v STRING")
    t.append(spark.range(0, FILES, 1, FILES).selectExpr("id", "'x' v"))
    frame = t.frame()
    assert frame.rdd.getNumPartitions() == 1
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
