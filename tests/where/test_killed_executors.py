"""Executors die in the middle of a write, attempts run twice: no row is lost, none is double."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from tests.lake.rows import number, query
from tests.where.marks import on_a_cluster
from txlake.spark import compact, writing
from txlake.spark.shipping import Function, Task, travelling

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [on_a_cluster, pytest.mark.no_interop("one table, whose rows are all checked here")]

Killer = Callable[[], None]


def killer(folder: Path) -> Killer:
    """What a task calls to kill its executor: the first call of all does, later ones return.

    Nothing of this module may be named inside: it travels to an executor that has no tests.
    """
    marker = str(folder / "killed")

    def kill() -> None:
        import os
        import signal
        import subprocess

        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        daemon = os.getppid()
        asked = ["ps", "-o", "ppid=", "-p", str(daemon)]
        machine = int(subprocess.run(asked, check=True, capture_output=True).stdout)
        os.kill(machine, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return kill


@pytest.fixture
def kill(tmp_path: Path) -> Iterator[Killer]:
    yield killer(tmp_path)
    assert (tmp_path / "killed").exists(), "no executor was killed"


@pytest.fixture
def dies_writing(kill: Killer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor that first finishes a data file dies before its task has reported."""

    def dying(spark: SparkSession, task: Task) -> Function:
        whole = travelling(spark, task)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            for report in whole(batches):  # once its files are finished
                kill()
                yield report

        return run

    for module in (writing, compact):
        monkeypatch.setattr(module, "travelling", dying)


@pytest.fixture
def t(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """A lake with a table `t` of 4,000 rows in four files, `v` its `id`, deletion vectors on."""
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        rows = spark.range(0, 4000, 1, 4).selectExpr("id", "id v", "repeat('x', 1000) wide")
        lake.write(rows, "t")
        assert len(_live(lake)) == 4
        yield lake
        _check_orphans(lake, tmp_path / "lake" / "t")


def _live(lake: txlake.Lake) -> set[str]:
    (detail,) = lake.sql("DESCRIBE DETAIL t").collect()
    files = txlake.Log(detail["location"]).snapshot().files()
    return set(files.column("path").to_pylist())


def _check_orphans(lake: txlake.Lake, folder: Path) -> None:
    """What the dead executor left is no part of the table, and VACUUM removes it."""
    before = query(lake, "SELECT id, v FROM t")
    lake.sql("VACUUM t RETAIN 0 HOURS")
    left = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.parquet")
        if "_delta_log" not in path.parts
    }
    assert left == _live(lake)
    assert query(lake, "SELECT id, v FROM t") == before


@pytest.fixture(autouse=True)
def small_steps(spark: SparkSession) -> Iterator[None]:
    """Tasks hand on few rows at a time; VACUUM may remove what is young."""
    chosen = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }
    for key, value in chosen.items():
        spark.conf.set(key, value)
    yield
    for key in chosen:
        spark.conf.unset(key)


def test_append(t: txlake.Lake, tmp_path: Path, spark: SparkSession, kill: Killer) -> None:
    folder = str(tmp_path / "lake" / "t")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path
        from time import sleep

        from pyspark import TaskContext

        before = set(Path(folder).rglob("*.parquet"))
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            while context.attemptNumber() == 0 and set(Path(folder).rglob("*.parquet")) <= before:
                sleep(0.01)  # until this task's file is there, half written
            kill()

    more = spark.range(4000, 8000, 1, 4).selectExpr("id", "id v", "repeat('y', 1000) wide")
    t.write(more.mapInArrow(rows, more.schema), "t", mode="append")
    assert query(t, "SELECT id, v FROM t") == sorted(((i, i) for i in range(8000)), key=repr)


def test_second_attempts(t: txlake.Lake, spark: SparkSession) -> None:
    """One task ends only when Spark has started it a second time, elsewhere: speculation."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from time import sleep

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        while context.partitionId() == 1 and context.attemptNumber() == 0:
            sleep(0.01)  # until Spark gives this attempt up, because the second has ended

    more = spark.range(4000, 8000, 1, 4).selectExpr("id", "id v", "repeat('y', 1000) wide")
    t.write(more.mapInArrow(rows, more.schema), "t", mode="append")
    assert query(t, "SELECT id, v FROM t") == sorted(((i, i) for i in range(8000)), key=repr)


@pytest.mark.usefixtures("dies_writing")
def test_update(t: txlake.Lake) -> None:
    (counts,) = t.sql("UPDATE t SET v = -id WHERE id % 2 = 0").collect()
    assert counts["num_affected_rows"] == 2000
    assert number(t, "SELECT count(*) FROM t") == 4000
    assert number(t, "SELECT count(DISTINCT id) FROM t WHERE v = if(id % 2 = 0, -id, id)") == 4000


@pytest.mark.usefixtures("dies_writing")
def test_merge(t: txlake.Lake, spark: SparkSession) -> None:
    source = spark.range(2000, 6000, 1, 4).selectExpr("id", "-id v", "'new' wide")
    changes = t.table("t").alias("t").merge(source.repartition(4, "id").alias("s"), "t.id = s.id")
    changes.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert number(t, "SELECT count(*) FROM t") == 6000
    found = "SELECT count(DISTINCT id) FROM t WHERE v = if(id >= 2000, -id, id)"
    assert number(t, found) == 6000


@pytest.mark.usefixtures("dies_writing")
def test_compaction(t: txlake.Lake) -> None:
    t.sql("DELETE FROM t WHERE id % 3 = 0")
    t.sql("OPTIMIZE t")
    expected = sorted(((i, i) for i in range(4000) if i % 3), key=repr)
    assert query(t, "SELECT id, v FROM t") == expected
