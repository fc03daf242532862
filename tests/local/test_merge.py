"""A MERGE that the driver carries out has the same result as Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.errors import InvalidRequest
from txlake.local import candidate_rows
from txlake.local import merge as local_merge
from txlake.local.file_rows import read_rows
from txlake.local.writing import WriteResult
from txlake.spark import merge as merging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)

COLUMNS = "k INT, p STRING, v BIGINT, s STRING, d DATE, x DOUBLE"
TARGET = """
(1, 'a', 10, 'one', DATE'2026-01-01', 1.5), (2, 'a', 20, 'two', NULL, -0.0),
(3, 'b', NULL, NULL, DATE'2026-01-03', double('NaN')), (NULL, 'b', 40, 'null', NULL, NULL),
(5, NULL, 50, 'five', DATE'2026-01-05', 5.0), (6, 'a', 60, '', DATE'2026-01-06', 6.0)
"""
SOURCE = """
(SELECT * FROM VALUES (2L, 'a', 21, 'TWO', DATE'2026-02-02', 2.25F),
 (3L, 'c', NULL, 'THREE', NULL, NULL), (NULL, 'b', 41, 'none', NULL, 4.0F),
 (5L, NULL, 51, 'FIVE', DATE'2026-02-05', 5.5F), (7L, 'a', 70, 'SEVEN', DATE'2026-02-07', 7.5F),
 (-1L, 'd', -1, NULL, NULL, -1.5F) AS r(k, p, v, s, d, x))
"""
ALL = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MERGES = (
    f"ON t.k = s.k {ALL}",
    "ON s.k = t.k WHEN MATCHED THEN UPDATE SET v = s.v, s = 'changed', x = t.v",
    "ON t.k = s.k WHEN MATCHED THEN DELETE",
    "ON t.k = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, v, s) VALUES (s.k, v + 1, 'new ' || s.s)",
    f"ON t.k = s.k AND t.p = s.p {ALL}",
    f"ON t.d = s.d {ALL}",
    f"ON t.s = s.s {ALL}",
    "ON t.k = s.v WHEN NOT MATCHED THEN INSERT (t.k, p) VALUES (s.k, NULL)",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.p = 'moved', t.d = s.d",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = -7",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = t.v + s.v, x = s.v * 2, s = t.s || '-' || s.s",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = -(s.v - 1) + 2 * t.k, x = t.v / 4",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = 100, v = t.k, s = t.p, p = s.s, d = t.d",
)
BY_SPARK = (
    f"ON t.k = s.k AND t.v > 15 {ALL}",
    "ON t.k = s.k WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v",
    "ON t.k = s.k WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "ON t.x = s.x WHEN MATCHED THEN DELETE",
    "ON t.k <=> s.k WHEN MATCHED THEN DELETE",
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET s = concat(t.s, s.s)",
    "ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, s) VALUES (s.k, upper(s.s))",
)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the driver carried out each MERGE with a local source."""
    noted: list[bool] = []
    carry_out = local_merge.merge_on_driver

    def merged(*arguments: Any) -> WriteResult:
        noted.append(False)
        made = carry_out(*arguments)
        noted[-1] = True
        return made

    monkeypatch.setattr(merging, "merge_on_driver", merged)
    return noted


def made(folder: Path, spark: SparkSession, **options: Any) -> PathTable:
    """The target, of two files, one with a deleted row."""
    t = table(folder, spark, COLUMNS, **options)
    t.run(f"INSERT INTO t VALUES {TARGET}")
    t.run("INSERT INTO t VALUES (8, 'a', 80, 'eight', NULL, 8.0), (9, 'b', 90, 'nine', NULL, 9.0)")
    t.run("DELETE FROM t WHERE k = 6")
    return t


def rows(t: PathTable) -> list[str]:
    """The table's rows, as texts: NaN is equal to itself then."""
    return sorted(str(tuple(row)) for row in t.frame().collect())


def counts(t: PathTable) -> dict[str, object]:
    """What the last statement said it did to rows."""
    change = t.changes[-1]
    row_metrics = {key: value for key, value in change.metrics.items() if "Rows" in key}
    return {**change.affected, **row_metrics}


@pytest.mark.parametrize("kind", ["plain", "partitioned", "no vectors", "row tracking"])
def test_it_does_what_spark_does(
    tmp_path: Path,
    spark: SparkSession,
    here: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    options: dict[str, Any] = {"properties": VECTORS}
    if kind == "partitioned":
        options["partitioned_by"] = "p"
    if kind == "no vectors":
        options["properties"] = NO_VECTORS
    if kind == "row tracking":
        options["properties"] = {**VECTORS, "delta.enableRowTracking": "true"}
    merges = MERGES if kind == "plain" else MERGES[:6]
    for place, merge in enumerate(merges):
        found = []
        for who in ("here", "spark"):
            t = made(tmp_path / f"{who} {place}", spark, **options)
            with monkeypatch.context() as patched:
                if who == "spark":
                    patched.setattr(merging, "merge_on_driver", lambda *arguments: None)
                t.run(f"MERGE INTO t USING {SOURCE} AS s {merge}")
            found.append((rows(t), counts(t)))
        assert found[0] == found[1], merge
    assert here == [True] * len(merges)


@pytest.mark.parametrize(
    ("clause", "read"),
    [
        ("UPDATE SET *", []),
        ("UPDATE SET v = t.v + s.v, x = s.x", ["p", "v", "s", "d"]),
        ("UPDATE SET k = 0, v = t.k", ["p", "s", "d", "x"]),
    ],
)
def test_only_columns_that_images_depend_on_are_read(
    tmp_path: Path,
    spark: SparkSession,
    here: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    clause: str,
    read: list[str],
) -> None:
    noted: list[list[str]] = []

    def reading(work: Any, add: Any, items: Any, positions: Any = None, known: Any = None) -> Any:
        if positions is not None:
            noted.append([item.name for item in items])
        return read_rows(work, add, items, positions, known)

    t = made(tmp_path / "t", spark, properties=VECTORS)
    monkeypatch.setattr(candidate_rows, "read_rows", reading)
    t.run(f"MERGE INTO t USING {SOURCE} AS s ON t.k = s.k WHEN MATCHED THEN {clause}")
    assert here == [True]
    assert noted == ([read] if read else [])


def test_values_of_every_kind(
    tmp_path: Path, spark: SparkSession, here: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (
        "k BIGINT, b BYTE, h SHORT, f FLOAT, o BOOLEAN, e DECIMAL(20, 3), t TIMESTAMP, "
        "n TIMESTAMP_NTZ, y BINARY, p DATE"
    )
    ours = (
        "1, 1Y, 2S, 1.5F, true, 1.125, TIMESTAMP'2026-01-01 12:00:00Z', "
        "TIMESTAMP_NTZ'2026-01-01 12:00:00', X'00FF', DATE'2026-01-01'"
    )
    theirs = (
        "{k}L, -1Y, 3S, float('NaN'), CAST(NULL AS BOOLEAN), 2.250, "
        "TIMESTAMP'1999-12-31 23:59:59.999999Z', "
        "TIMESTAMP_NTZ'0001-01-01 00:00:00', X'', DATE'1999-12-31'"
    )
    names = ", ".join(part.split()[0] for part in columns.replace("(20, 3)", "").split(", "))
    values = ", ".join(f"({theirs.format(k=k)})" for k in (1, 2))
    source = f"(SELECT * FROM VALUES {values} AS r({names}))"
    found = []
    for who in ("here", "spark"):
        t = table(tmp_path / who, spark, columns, partitioned_by="p", properties=VECTORS)
        t.run(f"INSERT INTO t VALUES ({ours})")
        with monkeypatch.context() as patched:
            if who == "spark":
                patched.setattr(merging, "merge_on_driver", lambda *arguments: None)
            t.run(f"MERGE INTO t USING {source} AS s ON t.k = s.k {ALL}")
        found.append(rows(t))
    assert here == [True]
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_spark_carries_out_other_merges(
    tmp_path: Path, spark: SparkSession, here: list[bool]
) -> None:
    for place, merge in enumerate(BY_SPARK):
        t = made(tmp_path / str(place), spark, properties=VECTORS)
        t.run(f"MERGE INTO t USING {SOURCE} AS s {merge}")
    assert here == [False] * len(BY_SPARK)


def test_source_rows_with_one_key_are_sparks(
    tmp_path: Path, spark: SparkSession, here: list[bool]
) -> None:
    t = made(tmp_path / "t", spark, properties=VECTORS)
    twice = "(SELECT * FROM VALUES (1, 11L), (1, 12L) AS r(k, v))"
    with pytest.raises(InvalidRequest, match="2 source rows match the target row"):
        t.run(f"MERGE INTO t USING {twice} AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v")
    t.run(f"MERGE INTO t USING {twice} AS s ON t.k = s.k WHEN MATCHED THEN DELETE")
    assert here == [False, False]
    assert counts(t)["num_deleted_rows"] == 1


def test_spark_reports_values_that_cannot_be_stored(
    tmp_path: Path, spark: SparkSession, here: list[bool]
) -> None:
    t = table(tmp_path / "t", spark, "k INT, n INT NOT NULL", properties=VECTORS)
    t.run("INSERT INTO t VALUES (1, 1)")
    for source, said in (
        ("SELECT 1 AS k, 2147483648L AS n", "overflow|can't hold"),
        ("SELECT 1 AS k, CAST(NULL AS INT) AS n", "NOT NULL"),
        ("SELECT 2 AS k, CAST(NULL AS INT) AS n", "NOT NULL"),
    ):
        with pytest.raises(InvalidRequest, match=f"(?i){said}"):
            t.run(f"MERGE INTO t USING ({source}) AS s ON t.k = s.k {ALL}")
    with pytest.raises(InvalidRequest, match="the source has no column 'n'"):
        t.run(f"MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k {ALL}")
    with pytest.raises(InvalidRequest, match="gone"):
        t.run(
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET gone = 1"
        )
    assert not any(here)
    assert [tuple(row) for row in t.frame().collect()] == [(1, 1)]


def test_a_table_with_rules_is_sparks(
    tmp_path: Path, spark: SparkSession, here: list[bool]
) -> None:
    t = table(tmp_path / "t", spark, "k INT, n INT, twice INT GENERATED ALWAYS AS (n * 2)")
    t.run("INSERT INTO t (k, n) VALUES (1, 1)")
    t.run(
        "MERGE INTO t USING (SELECT 1 AS k, 5 AS n) AS s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = s.n"
    )
    assert here == [False]
    assert [tuple(row) for row in t.frame().collect()] == [(1, 5, 10)]


def test_many_rows_are_sparks(
    tmp_path: Path, spark: SparkSession, here: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    t = made(tmp_path / "t", spark, properties=VECTORS)
    for limit, most in (("_ROWS_MAX", 5), ("_BYTES_MAX", 100)):
        with monkeypatch.context() as patched:
            patched.setattr(local_merge, limit, most)
            t.run(f"MERGE INTO t USING {SOURCE} AS s ON t.k = s.k {ALL}")
    assert here == [False, False]
    assert counts(t)["num_affected_rows"] == 6
