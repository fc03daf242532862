"""Z-order and clustering on Spark: no row changes, near rows meet, and each row's way is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.tables import PathTable, table
from txlake.datafiles.vectors import VectorCache
from txlake.local.control_columns import ROW, ROW_ID, ROW_VERSION
from txlake.log.cubes import plan_clustering
from txlake.log.files import files_table
from txlake.protocol.actions import Add
from txlake.protocol.clustering import cube_of
from txlake.protocol.sources import SOURCES_TAG, parse_sources
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

_BYTES = 40_000


def _rows_of(t: PathTable, add: Add) -> dict[int, str]:
    """The live rows of one file, by their places, as text: NaN doesn't equal itself."""
    frame = t.work().scan(files_table([add]), positions=True)
    width = len(t.snapshot.schema.fields)
    return {row[ROW]: repr(tuple(row)[:width]) for row in frame.collect()}


def _check_told(t: PathTable, sources: Sequence[Add], outputs: Sequence[Add]) -> int:
    """Each output's rows are those that its tag names, in that order; the number of sets used."""
    vectors = VectorCache(t.log.store)
    before = {add.path: (add, _rows_of(t, add)) for add in sources}
    sets = 0
    for output in outputs:
        expected = []
        for source in parse_sources(str((output.tags or {})[SOURCES_TAG])):
            add, rows = before[source.path]
            assert source.vector_id == add.key[1]
            places = sorted(rows)
            if source.positions_id is not None:
                places = list(vectors.of_id(source.positions_id))
                sets += 1
            assert len(places) == source.rows
            expected += [rows[place] for place in places]
        found = _rows_of(t, output)
        assert [found[place] for place in sorted(found)] == expected
    return sets


def _filled(
    folder: Path, spark: SparkSession, *, file_bytes: int = _BYTES, told_rows_max: int = 10_000
) -> PathTable:
    """Four files of 1,500 rows each, one of them with deleted rows."""
    chosen = Settings(target_file_bytes=file_bytes, told_rows_max=told_rows_max)
    t = table(folder / "t", spark, "x INT, y INT, id INT, pad STRING", settings=chosen)
    for number in range(4):
        rows = spark.range(number * 1_500, (number + 1) * 1_500, 1, 1).selectExpr(
            "INT(pmod(hash(id, 1), 4000)) x", "INT(pmod(hash(id, 2), 4000)) y", "INT(id) id",
            "uuid() pad",
        )  # fmt: skip
        t.append(rows)
    t.run("DELETE FROM t WHERE id % 50 = 3 AND id < 1500")
    return t


def _clustered(t: PathTable, *columns: str) -> Any:
    plan = plan_clustering(
        t.adds(),
        [(name,) for name in columns],
        full=False,
        target_file_bytes=t.settings.target_file_bytes,
    )
    return t.commit(t.work().cluster(plan))


def _area(t: PathTable) -> float:
    """The share of the plane that a file covers, on average."""
    areas = []
    for add in t.adds():
        stats = json.loads(str(add.stats))
        low, high = stats["minValues"], stats["maxValues"]
        areas.append((high["x"] - low["x"] + 1) * (high["y"] - low["y"] + 1) / 4000**2)
    return sum(areas) / len(areas)


@pytest.mark.parametrize("kind", ["Z-order", "Hilbert", "one column"])
def test_rows_stay_and_near_ones_meet(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    t = _filled(tmp_path, spark)
    before, sources = t.rows(), t.adds()
    assert _area(t) > 0.9
    match kind:
        case "Z-order":
            change = t.zorder("x", "y")
        case "Hilbert":
            change = _clustered(t, "x", "y")
        case _:
            change = _clustered(t, "x")
    assert t.rows() == before
    outputs = t.adds()
    assert 4 <= len(outputs) <= 12
    assert change.metrics["numRemovedFiles"] == 4
    assert all(not one.data_change for one in outputs)
    assert all(one.deletion_vector is None for one in outputs)
    assert _area(t) < (0.5 if kind == "Hilbert" else 0.6)
    assert _check_told(t, sources, outputs) >= 2 * len(outputs)
    cubes = {cube_of(one) for one in outputs}
    assert len(cubes) == 1
    assert (None in cubes) == (kind == "Z-order")


def test_what_fits_one_row_group_keeps_its_order(tmp_path: Path, spark: SparkSession) -> None:
    t = _filled(tmp_path, spark, file_bytes=100_000_000)
    sources = t.adds()
    _clustered(t, "x", "y")
    [output] = t.adds()
    assert _check_told(t, sources, [output]) == 0


def test_beyond_the_bound_nothing_is_told(tmp_path: Path, spark: SparkSession) -> None:
    t = _filled(tmp_path, spark, told_rows_max=5_000)
    before = t.rows()
    _clustered(t, "x", "y")
    assert t.rows() == before
    assert all(SOURCES_TAG not in (add.tags or {}) for add in t.adds())
    assert _area(t) < 0.5


def test_rows_keep_their_ids(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "x INT, y INT, k LONG",
        properties={"delta.enableRowTracking": "true"},
        settings=Settings(target_file_bytes=8_000),
    )
    for start in (0, 1_000):
        t.append(
            spark.range(start, start + 1_000, 1, 1).selectExpr(
                "INT(pmod(hash(id, 1), 4000)) x", "INT(pmod(hash(id, 2), 4000)) y", "id k"
            )
        )

    def ids() -> dict[int, tuple[int, int]]:
        rows = t.frame(positions=True).select("k", ROW_ID, ROW_VERSION).collect()
        return {row[0]: (row[1], row[2]) for row in rows}

    before = ids()
    assert {one[0] for one in before.values()} == set(range(2_000))
    _clustered(t, "x", "y")
    assert len(t.adds()) > 1
    assert ids() == before


def test_partitions_are_sorted_apart(tmp_path: Path, spark: SparkSession) -> None:
    settings = Settings(target_file_bytes=20_000)
    t = table(
        tmp_path / "t", spark, "p STRING, x INT, y INT", partitioned_by="p", settings=settings
    )
    for number in range(2):
        t.append(
            spark.range(3_000).selectExpr(
                "IF(id % 3 = 0, NULL, STRING(id % 3)) p", f"hash(id, {number}) x", "hash(id, 9) y"
            )
        )
    before, sources = t.rows(), t.adds()
    t.zorder("x", "y")
    assert t.rows() == before
    _check_told(t, sources, t.adds())


def test_every_type_by_which_rows_have_an_order(tmp_path: Path, spark: SparkSession) -> None:
    columns = (
        "b BYTE, f FLOAT, n DECIMAL(38, 2), d DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, s STRING, "
        "z BOOLEAN, v BINARY, st STRUCT<x: INT>, pad STRING"
    )
    t = table(tmp_path / "t", spark, columns, settings=Settings(target_file_bytes=4_000))
    t.append(
        spark.range(0, 300, 1, 2).selectExpr(
            "IF(id % 5 = 0, NULL, TINYINT(id % 100)) b",
            "IF(id % 7 = 0, FLOAT('NaN'), FLOAT(id / 3)) f",
            "CAST(concat(id, '99999999999999999999999999999999.5') AS DECIMAL(38, 2)) n",
            "date_add(DATE'1600-01-01', INT(id * 900)) d",
            "timestamp_micros(id * 1000000007 * 100000 - 50000000000000000) ts",
            "TIMESTAMP_NTZ'0001-01-01 00:00:00' + make_dt_interval(INT(id) * 10000) tn",
            r"IF(id % 11 = 0, '', concat('a,\u001f\"', id)) s", "id % 2 = 0 z",
            "CAST(STRING(id) AS BINARY) v", "IF(id % 4 = 0, NULL, named_struct('x', INT(id))) st",
            "uuid() pad",
        )
    )  # fmt: skip
    before = repr(t.rows())
    sources = t.adds()
    t.zorder("b", "f", "n", "d", "ts", "tn", "s", "z", "v", "st")
    assert repr(t.rows()) == before
    assert len(t.adds()) > 1
    _check_told(t, sources, t.adds())
    for columns_of_one in (("f", "n"), ("d", "ts", "tn"), ("s", "b"), ("s",)):
        _clustered(t, *columns_of_one)
        plan = plan_clustering(
            t.adds(), [(name,) for name in columns_of_one], full=True, target_file_bytes=4_000
        )
        t.commit(t.work().cluster(plan))
        assert repr(t.rows()) == before
