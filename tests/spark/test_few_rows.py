"""Few rows of a DataFrame are written by this process, laid out as Spark would have done it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.spark.tables import PathTable, table
from tests.spark.test_native_writer import EVERY_TYPE
from txlake.errors import InvalidRequest
from txlake.local.writing import WriteResult, WriteTarget
from txlake.protocol.paths import decode_path
from txlake.spark import inserts, native_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEN_OF_ONE = "SELECT explode(sequence(0L, 9L)) id"


def _files(t: PathTable) -> list[list[object]]:
    """The rows of each file."""
    return [
        pq.read_table(t.folder / decode_path(add.path)).column("id").to_pylist() for add in t.adds()
    ]


@pytest.fixture
def spark_writes(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """The frames that Spark's own writer was given."""
    given: list[DataFrame] = []
    write = native_writer.write

    def noted(frame: DataFrame, target: WriteTarget) -> WriteResult:
        given.append(frame)
        return write(frame, target)

    monkeypatch.setattr(native_writer, "write", noted)
    return given


def test_each_partition_that_has_rows_gives_a_file_in_order(
    tmp_path: Path, spark: SparkSession, spark_writes: list[DataFrame]
) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    change = t.append(spark.range(0, 40, 1, 4).where("id NOT BETWEEN 10 AND 19"))
    assert sorted(_files(t)) == [list(range(start, start + 10)) for start in (0, 20, 30)]
    assert change.metrics["numOutputRows"] == 30
    assert change.metrics["numFiles"] == 3
    assert spark_writes == []


@pytest.mark.no_interop("it has no rows")
def test_no_rows_give_no_file(
    tmp_path: Path, spark: SparkSession, spark_writes: list[DataFrame]
) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    change = t.append(spark.range(0))
    assert change.actions == ()
    assert change.affected == {"num_affected_rows": 0, "num_inserted_rows": 0}
    assert spark_writes == []


def test_what_spark_takes_for_little_may_be_much(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    spark_writes: list[DataFrame],
) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    monkeypatch.setattr(inserts, "_FEW_ROWS_MAX", 10)
    t.append(spark.sql(TEN_OF_ONE))
    assert spark_writes == []
    monkeypatch.setattr(inserts, "_FEW_ROWS_MAX", 9)
    t.append(spark.sql(TEN_OF_ONE))
    assert len(spark_writes) == 1
    assert t.rows() == sorted([(number,) for number in range(10)] * 2)


@pytest.mark.no_interop("nothing is written to it")
def test_a_row_that_violates_a_constraint_is_named(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG, CONSTRAINT few CHECK (id < 9)")
    with pytest.raises(InvalidRequest, match=r'few \(id < 9\) is violated by the row \{"id":9\}'):
        t.append(spark.range(10))
    with pytest.raises(InvalidRequest, match="DIVIDE_BY_ZERO"):
        t.run("INSERT INTO t SELECT 1L DIV (id - 5) FROM range(8)")
    assert t.snapshot.version == 0


def test_every_type_is_as_sparks_writer_writes_it(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = spark.sql(EVERY_TYPE).drop("arr", "m", "st").coalesce(1)
        columns = ", ".join(f"{item.name} {item.dataType.simpleString()}" for item in rows.schema)
        t = table(tmp_path / "t", spark, columns)
        written = []
        for most in (inserts._FEW_BYTES_MAX, -1):
            monkeypatch.setattr(inserts, "_FEW_BYTES_MAX", most)
            t.overwrite(rows)
            (add,) = t.adds()
            data = pq.read_table(t.folder / decode_path(add.path))
            schema = data.schema.to_string(show_schema_metadata=False).replace(" not null", "")
            written.append((schema, data.to_pylist(), json.loads(add.stats or "")))
            assert ("/" in add.path) is (most == -1)
        assert written[0] == written[1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
