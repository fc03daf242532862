"""Rows keep their ids, and know the commit that last changed them, wherever they are moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.local.control_columns import ROW_ID, ROW_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

MODES = pytest.mark.parametrize("vectors", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])


def _table(folder: Path, spark: SparkSession, vectors: Mapping[str, str]) -> PathTable:
    """Rows 0 to 9 in two files, written at versions 1 and 2."""
    properties = {"delta.enableRowTracking": "true", **vectors}
    t = table(folder / "t", spark, "k INT, v INT", properties=properties)
    for start in (0, 5):
        t.append(spark.range(start, start + 5, 1, 1).selectExpr("INT(id) k", "INT(id) v"))
    return t


def _ids(t: PathTable) -> dict[int, tuple[int, int]]:
    """(row id, version of the last change) by key."""
    frame = t.frame(positions=True).select("k", ROW_ID, ROW_VERSION)
    return {row[0]: (row[1], row[2]) for row in frame.collect()}


START = {k: (k, 1 if k < 5 else 2) for k in range(10)}


@MODES
def test_new_rows_get_ids(tmp_path: Path, spark: SparkSession, vectors: Mapping[str, str]) -> None:
    t = _table(tmp_path, spark, vectors)
    assert _ids(t) == START
    assert t.snapshot.row_id_high_water_mark == 9
    t.run("INSERT INTO t VALUES (10, 10)")
    assert _ids(t) == {**START, 10: (10, 3)}


@MODES
def test_updated_rows_keep_theirs(
    tmp_path: Path, spark: SparkSession, vectors: Mapping[str, str]
) -> None:
    t = _table(tmp_path, spark, vectors)
    t.run("UPDATE t SET v = v + 1 WHERE k IN (3, 7)")
    assert _ids(t) == {**START, 3: (3, 3), 7: (7, 3)}
    t.run("UPDATE t SET v = v + 1 WHERE k IN (3, 4)")
    assert _ids(t) == {**START, 3: (3, 4), 4: (4, 4), 7: (7, 3)}
    t.run("DELETE FROM t WHERE k IN (3, 5)")
    assert _ids(t) == {k: v for k, v in {**START, 4: (4, 4), 7: (7, 3)}.items() if k not in {3, 5}}


@MODES
def test_merged_rows_keep_theirs_and_inserted_ones_get_new_ones(
    tmp_path: Path, spark: SparkSession, vectors: Mapping[str, str]
) -> None:
    t = _table(tmp_path, spark, vectors)
    t.run(
        "MERGE INTO t USING (SELECT * FROM VALUES (1, 100), (20, 200), (21, 210) AS x(k, v)) s"
        " ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        " WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN UPDATE SET v = 0"
        " WHEN NOT MATCHED BY SOURCE AND t.k = 8 THEN DELETE"
    )
    found = _ids(t)
    new = [found.pop(20), found.pop(21)]
    assert found == {k: v for k, v in {**START, 1: (1, 3), 9: (9, 3)}.items() if k != 8}
    assert all(version == 3 for _, version in new)
    assert {row_id for row_id, _ in new} & set(range(10)) == set()
    assert new[0][0] != new[1][0]
    assert t.snapshot.row_id_high_water_mark >= max(row_id for row_id, _ in new)


@MODES
def test_compaction_moves_ids_and_versions(
    tmp_path: Path, spark: SparkSession, vectors: Mapping[str, str]
) -> None:
    t = _table(tmp_path, spark, vectors)
    t.run("UPDATE t SET v = v + 1 WHERE k = 3")
    t.run("DELETE FROM t WHERE k = 6")
    before = _ids(t)
    t.compact()
    assert len(t.adds()) == 1
    assert _ids(t) == before
    t.run("UPDATE t SET v = v + 1 WHERE k = 0")
    t.zorder("v")
    assert _ids(t) == {**before, 0: (0, t.snapshot.version - 1)}


def test_ids_are_materialised_only_where_rows_moved(tmp_path: Path, spark: SparkSession) -> None:
    import pyarrow.parquet as pq

    t = _table(tmp_path, spark, VECTORS)
    properties = t.snapshot.properties
    hidden = {
        properties.materialized_row_id_column,
        properties.materialized_row_commit_version_column,
    }
    before = t.data_files()
    assert all(not hidden & set(pq.read_schema(t.folder / file).names) for file in before)
    t.run("UPDATE t SET v = 0 WHERE k = 3")
    (moved,) = t.data_files() - before
    assert hidden <= set(pq.read_schema(t.folder / moved).names)
    assert t.frame().columns == ["k", "v"]


def test_tables_without_row_tracking_have_no_ids(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT")
    t.run("INSERT INTO t VALUES (1)")
    assert ROW_ID not in t.frame(positions=True).columns
    assert all(add.base_row_id is None for add in t.adds())
