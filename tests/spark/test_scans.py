"""What a scan leaves to Spark: its plan, its push-down, and the ways to leave deleted rows out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyroaring import BitMap64

from tests.spark.tables import MANIFESTS, VECTORS, PathTable, table
from txlake.local.control_columns import FILE, ROW
from txlake.protocol.actions import Add
from txlake.protocol.types import Field, Primitive
from txlake.spark import log_columns
from txlake.spark.log_columns import FileValues
from txlake.spark.manifest import Manifests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
GONE = {0, 63, 64, 4095, 4096, 12_289, 19_999}


def _table(folder: Path, spark: SparkSession) -> PathTable:
    """Two files of 20,000 rows, some deleted from the first, and one with none deleted."""
    t = table(folder / "t", spark, "id LONG, v STRING", properties=VECTORS)
    for start in (0, ROWS, 2 * ROWS):
        t.append(spark.range(start, start + ROWS, 1, 1).selectExpr("id", "'v' || id v"))
    t.run(f"DELETE FROM t WHERE id IN ({', '.join(map(str, sorted(GONE)))})")
    t.run(f"DELETE FROM t WHERE id = {2 * ROWS - 1}")
    return t


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> PathTable:
    return _table(tmp_path_factory.mktemp("base"), spark)


def _plan(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain()
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("bytes_max", "joined"), [(log_columns._TRAVELLING_BYTES_MAX, False), (0, True)]
)
def test_deleted_rows_are_left_out(
    base: PathTable,
    bytes_max: int,
    joined: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(log_columns, "_TRAVELLING_BYTES_MAX", bytes_max)
    frame = base.frame(positions=True)
    found = {row[0] for row in frame.select("id").collect()}
    assert found == set(range(3 * ROWS)) - GONE - {2 * ROWS - 1}
    assert ("BroadcastHashJoin" in _plan(frame, capsys)) is joined


def test_bits_stand_in_chunks() -> None:
    wanted = {0: BitMap64([0, 63, 64, 4095, 4096, 20_000]), 2: BitMap64([12_293]), 3: BitMap64()}
    words = log_columns._words([0, 2, 3], wanted).to_pylist()
    found = [
        {
            chunk * 4096 + word * 64 + bit
            for chunk, held in enumerate(chunks)
            for word, value in enumerate(held)
            for bit in range(64)
            if value >> bit & 1
        }
        for chunks in words
    ]
    assert found == [set(wanted[0]), set(), set(wanted[2]), set()]
    assert [len(chunk) for chunk in words[2]] == [0, 0, 0, 64]


def test_a_lookup_of_nothing_joins_nothing(spark: SparkSession) -> None:
    frame = spark.range(1)
    assert FileValues({}).join(spark, frame) is frame


def test_a_partition_value_looked_up_is_not_null_where_the_table_says_so(
    spark: SparkSession,
) -> None:
    add = Add(path="a", partition_values={"p": "1"}, size=1, modification_time=1, data_change=True)
    found = FileValues({0: add})
    for name in ("p", "broken"):
        found.add_partition_value(Field(name, Primitive("integer"), nullable=False))
    joined = found.join(spark, spark.range(1).withColumnRenamed("id", FILE))
    assert (joined.schema["p"].nullable, joined.schema["broken"].nullable) == (False, True)
    ((_, _, p, broken),) = joined.collect()
    assert (p, broken) == (1, None)


@pytest.mark.parametrize("columns", [[ROW], [ROW, "id"], [FILE], [FILE, ROW]])
def test_positions_of_rows_are_read_without_their_files(
    tmp_path: Path, spark: SparkSession, columns: list[str]
) -> None:
    """Spark prunes what a plan doesn't use, of `_metadata` too."""
    t = table(tmp_path / "t", spark, "id INT")
    t.append(spark.range(3).selectExpr("CAST(id AS INT) AS id").repartition(1))
    found = t.frame(positions=True).select(*columns).collect()
    expected = {"id": [0, 1, 2], FILE: [0, 0, 0], ROW: [0, 1, 2]}
    assert sorted(map(tuple, found)) == sorted(
        zip(*(expected[name] for name in columns), strict=True)
    )


def test_filters_and_columns_are_pushed_down(
    base: PathTable, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in ("planned", "the plan that was kept"):
        plan = _plan(base.frame().where("id = 7").select("id"), capsys)
        assert plan.count("PushedFilters: [IsNotNull(id), EqualTo(id,7)]") == 2
        assert "v:string" not in plan
    plain = _plan(base.frame(version=1).where("id = 7"), capsys)
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,7)]" in plain
    assert "_metadata" not in plain
    assert plain.count("Project") <= 1


def test_a_snapshot_is_planned_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    t.append(spark.range(4))
    written: list[str] = []
    write = MANIFESTS.write

    def counted(_: Manifests, files: Iterable[tuple[int, str, int]]) -> str:
        written.append(write(files))
        return written[-1]

    monkeypatch.setattr(Manifests, "write", counted)
    one, other = t.frame(), t.frame()
    assert len(written) == 1
    assert one.join(other, one.id < other.id).count() == 6
    assert sorted(map(tuple, other.collect())) == [(i,) for i in range(4)]
    t.append(spark.range(4, 5))
    assert [row[0] for row in t.rows()] == [0, 1, 2, 3, 4]
    assert len(written) == 2
    some = t.snapshot.select(None).slice(0, 1)
    assert t.work().scan(some).count() < 5
    assert len(written) == 3


def test_a_plan_kept_still_finds_columns_by_id(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG", properties={"delta.columnMapping.mode": "id"})
    t.append(spark.range(3))
    assert t.rows() == [(0,), (1,), (2,)]
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    assert t.rows() == [(0,), (1,), (2,)]
