"""OPTIMIZE: which files are packed, that order is kept and told, and Z-ordering."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.errors import InvalidRequest
from txlake.local.compaction import pack
from txlake.protocol.actions import Add, DeletionVector, Remove
from txlake.protocol.sources import SOURCES_TAG
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

MODES = pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])


def _add(name: str, size: int, *, deleted: int = 0, rows: int | None = 100, p: str = "a") -> Add:
    vector = None
    if deleted:
        vector = DeletionVector(
            storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=1, cardinality=deleted
        )
    return Add(
        path=name,
        partition_values={"p": p},
        size=size,
        modification_time=0,
        data_change=True,
        stats=None if rows is None else json.dumps({"numRecords": rows}),
        deletion_vector=vector,
    )


def _packed(*adds: Add) -> list[list[str]]:
    return [[add.path for add in one.files] for one in pack(list(adds), 100)]


def test_small_files_are_packed_up_to_the_target() -> None:
    assert _packed(_add("a", 40), _add("b", 50), _add("c", 60), _add("d", 30)) == [["d", "a"]]
    assert _packed(_add("a", 10), _add("b", 10), _add("c", 100)) == [["a", "b"]]
    assert _packed(_add("a", 10)) == []
    assert _packed() == []


def test_partitions_are_packed_apart() -> None:
    packed = _packed(_add("a", 1), _add("b", 1, p="b"), _add("c", 1), _add("d", 1, p="b"))
    assert packed == [["a", "c"], ["b", "d"]]


def test_files_with_many_deleted_rows_are_rewritten() -> None:
    assert _packed(_add("a", 500, deleted=6)) == [["a"]]
    assert _packed(_add("a", 500, deleted=5)) == []
    assert _packed(_add("a", 500, deleted=1, rows=None)) == [["a"]]


def _table(folder: Path, spark: SparkSession, properties: Mapping[str, str]) -> PathTable:
    """Three files of ten rows, in an order that no column has."""
    t = table(folder / "t", spark, "k INT, v INT", properties=properties)
    for start in (20, 0, 10):
        rows = [(start + (i * 7) % 10, i) for i in range(10)]
        t.append(spark.createDataFrame(rows, "k INT, v INT").coalesce(1))
    return t


def _ordered(t: PathTable) -> list[tuple[int, int]]:
    frame = t.frame(positions=True)
    return [(row[0], row[1]) for row in frame.orderBy("__txlake_file", "__txlake_row").collect()]


@MODES
def test_order_is_kept_and_recorded(
    tmp_path: Path, spark: SparkSession, properties: Mapping[str, str]
) -> None:
    t = _table(tmp_path, spark, properties)
    t.run("DELETE FROM t WHERE k IN (3, 4, 25)")
    sources = {add.path: add for add in t.adds()}
    by_path = {add.path: _rows_of(t, add) for add in sources.values()}
    change = t.compact()
    (output,) = t.adds()
    assert output.data_change is False
    assert all(a.data_change is False for a in change.actions if isinstance(a, Remove))
    told = json.loads(str((output.tags or {})[SOURCES_TAG]))
    assert [path for path, *_ in told] == [
        add.path for add in sorted(sources.values(), key=lambda add: add.size)
    ]
    expected = []
    for path, vector, first, count in told:
        assert vector == sources[path].key[1]
        expected += by_path[path][first : first + count]
    assert _ordered(t) == expected
    assert len(expected) == 27


def _rows_of(t: PathTable, add: Add) -> list[tuple[int, int]]:
    """The live rows of one file, in its order."""
    from txlake.log.files import files_table

    frame = t.work().scan(files_table([add]), positions=True)
    return [(row[0], row[1]) for row in frame.orderBy("__txlake_row").collect()]


def test_bins_become_files_of_the_target_size(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT")
    for start in range(3):
        rows = spark.range(0, 2_000, 1, 1).selectExpr("INT(id) k", f"hash(id, {start}) v")
        t.append(rows)
    sizes = sorted(add.size for add in t.adds())
    t = replace(t, settings=Settings(target_file_bytes=sum(sizes[:2])))
    before = t.rows()
    change = t.compact()
    assert len(t.adds()) == 2
    assert change.metrics["numRemovedFiles"] == 2
    assert change.metrics["numAddedFiles"] == 1
    assert t.rows() == before
    assert t.compact().actions == ()


def test_partitions_and_where(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, p STRING", partitioned_by="p")
    for k in range(3):
        t.run(f"INSERT INTO t VALUES ({k}, 'a'), ({k}, 'b'), ({k}, NULL)")
    before = t.rows()
    t.compact("p = 'a'")
    assert len(t.adds()) == 7
    t.compact("p = substr('ab', 2)")
    assert len(t.adds()) == 5
    t.compact()
    assert len(t.adds()) == 3
    assert t.rows() == before
    with pytest.raises(InvalidRequest, match="non-partition column 'k'"):
        t.compact("k = 1")


def test_purging_rewrites_what_has_vectors(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark, VECTORS)
    t.run("DELETE FROM t WHERE k = 5")
    before = t.rows()
    change = t.compact(purge=True)
    assert change.operation == "REORG"
    assert change.parameters == {"predicate": [], "applyPurge": True}
    assert change.metrics["numRemovedFiles"] == change.metrics["numAddedFiles"] == 1
    assert all(add.deletion_vector is None for add in t.adds())
    assert len(t.adds()) == 3
    assert t.rows() == before


def test_zordering_brings_near_rows_together(tmp_path: Path, spark: SparkSession) -> None:
    settings = Settings(target_file_bytes=20_000)
    t = table(tmp_path / "t", spark, "x INT, y INT, pad STRING", settings=settings)
    t.append(
        spark.range(0, 4096, 1, 2).selectExpr(
            "INT(pmod(hash(id, 1), 64)) x", "INT(pmod(hash(id, 2), 64)) y", "uuid() pad"
        )
    )
    before = [row[:2] for row in t.rows()]
    change = t.zorder("x", "y")
    assert [row[:2] for row in t.rows()] == before
    assert change.parameters == {
        "predicate": [],
        "zOrderBy": ["x", "y"],
        "clusterBy": [],
        "auto": False,
    }
    assert len(t.adds()) > 3
    sizes = sorted(add.size for add in t.adds())
    told = [change.metrics[f"{name}FileSize"] for name in ("min", "p25", "p50", "p75", "max")]
    of = len(sizes)
    assert told == [sizes[place] for place in (0, of // 4, of // 2, of * 3 // 4, -1)]
    areas = []
    for add in t.adds():
        stats = json.loads(str(add.stats))
        low, high = stats["minValues"], stats["maxValues"]
        areas.append((high["x"] - low["x"] + 1) * (high["y"] - low["y"] + 1))
    assert sum(areas) / len(areas) < 64 * 64 / 2


def test_zorder_refuses_what_it_cannot_order(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, p INT", partitioned_by="p")
    t.run("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(InvalidRequest, match="p is a partition column"):
        t.zorder("p")
    with pytest.raises(InvalidRequest, match="there is no column 'q'"):
        t.zorder("q")


def test_zorder_of_nulls_texts_and_times(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "s STRING, d DATE, n DOUBLE, p INT", partitioned_by="p")
    t.append(
        spark.range(0, 50, 1, 2).selectExpr(
            "IF(id % 5 = 0, NULL, STRING(id)) s", "date_add(DATE'2026-01-01', INT(id)) d",
            "IF(id % 7 = 0, DOUBLE('Infinity'), id / 2) n", "INT(id % 2) p",
        )
    )  # fmt: skip
    before = t.rows()
    t.zorder("s", "d", "n")
    assert t.rows() == before
