"""Deletion vectors that are too many to broadcast are read by the executors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.protocol import deletion_vectors as codec
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)

NO_BROADCAST = Settings(broadcast_vector_bytes_max=0)


def _table(folder: Path, spark: SparkSession, **properties: str) -> PathTable:
    wanted = {**VECTORS, **properties}
    t = table(
        folder / "t", spark, "id LONG, p LONG", partitioned_by="p", properties=wanted,
        settings=NO_BROADCAST,
    )  # fmt: skip
    t.append(spark.range(0, 1000, 1, 2).selectExpr("id", "id % 2 p"))
    t.run("DELETE FROM t WHERE id % 10 = 3")
    return t


def _ids(t: PathTable) -> list[int]:
    return sorted(row[0] for row in t.rows())


LIVE = [i for i in range(1000) if i % 10 != 3]


def test_rows_are_left_out_by_executors(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark)
    assert _ids(t) == LIVE
    frame = t.frame()
    assert frame.where("id < 20 AND p = 1").count() == 8
    assert frame.selectExpr("sum(id)").collect()[0][0] == sum(LIVE)


def test_they_are_not_loaded_by_the_driver(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlake.spark import scan

    t = _table(tmp_path, spark)
    monkeypatch.setattr(scan, "load_vectors", lambda *_: pytest.fail("the driver loads vectors"))
    assert _ids(t) == LIVE
    small = replace(t, settings=Settings())
    with pytest.raises(pytest.fail.Exception):
        small.rows()


def test_changes_on_top(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark)
    t.run("DELETE FROM t WHERE id % 10 = 4")
    t.run("UPDATE t SET id = -id WHERE id % 10 = 5")
    left = [i for i in LIVE if i % 10 not in {4, 5}]
    assert _ids(t) == sorted([*left, *(-i for i in range(1000) if i % 10 == 5)])
    t.compact()
    assert len(_ids(t)) == 800


def test_copies_leave_out_what_they_are_given(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG", properties=NO_VECTORS, settings=NO_BROADCAST)
    t.append(spark.range(0, 100, 1, 1))
    t.run("DELETE FROM t WHERE id % 10 = 3")
    assert _ids(t) == [i for i in range(100) if i % 10 != 3]


def test_inline_vectors(tmp_path: Path, spark: SparkSession) -> None:
    import msgspec
    from pyroaring import BitMap64

    from txlake.commit.change import Change

    t = table(tmp_path / "t", spark, "id LONG", properties=VECTORS, settings=NO_BROADCAST)
    t.append(spark.range(0, 100, 1, 1))
    (add,) = t.adds()
    marked = msgspec.structs.replace(add, deletion_vector=codec.inline(BitMap64([0, 7])))
    t.commit(Change(operation="DELETE", actions=(add.tombstone(timestamp_ms=1), marked)))
    assert _ids(t) == [i for i in range(100) if i not in {0, 7}]


@pytest.mark.no_interop("its deletion vectors are destroyed")
def test_damage_is_named(tmp_path: Path, spark: SparkSession) -> None:
    from txlake.errors import CorruptTable
    from txlake.spark.spark_errors import spark_errors

    t = _table(tmp_path, spark)
    for vector in t.folder.glob("deletion_vector_*.bin"):
        data = vector.read_bytes()
        vector.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptTable, match=r"deletion_vector_.*checksum"), spark_errors("t"):
        t.rows()
    for vector in t.folder.glob("deletion_vector_*.bin"):
        vector.unlink()
    with pytest.raises(CorruptTable, match=r"deletion_vector_"), spark_errors("t"):
        t.rows()
