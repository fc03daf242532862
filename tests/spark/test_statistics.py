"""What a new file's statistics say, by type and by the table's properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.tables import PathTable, table
from txlake.datafiles import write_task
from txlake.log.predicates import bind, parse_predicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _stats(t: PathTable) -> dict[str, Any]:
    (add,) = t.adds()
    assert add.stats is not None
    found: dict[str, Any] = json.loads(add.stats)
    return found


def _write(t: PathTable, sql: str) -> dict[str, Any]:
    t.append(t.spark.sql(sql).coalesce(1))
    return _stats(t)


# Column type, values, minimum, maximum as JSON (None: no bound), number of nulls.
Case = tuple[str, tuple[str, ...], Any, Any, int]
CASES: list[Case] = [
    ("INT", ("3", "-1", "NULL"), -1, 3, 1),
    ("LONG", ("9223372036854775807L", "-9223372036854775808L"), -(2**63), 2**63 - 1, 0),
    ("DOUBLE", ("0.5D", "-2.5D"), -2.5, 0.5, 0),
    ("DOUBLE", ("0.5D", "'NaN'", "NULL"), None, None, 1),
    ("DOUBLE", ("'NaN'",), None, None, 0),
    ("DOUBLE", ("'Infinity'", "1D"), 1.0, None, 0),
    ("FLOAT", ("'-0.0'", "'0.0'"), 0.0, 0.0, 0),
    ("DECIMAL(6,2)", ("1.50BD", "-10.25BD"), -10.25, 1.50, 0),
    ("STRING", ("'b'", "'a'", "NULL", "NULL"), "a", "b", 2),
    ("STRING", ("''",), "", "", 0),
    ("BOOLEAN", ("true", "false", "NULL"), None, None, 1),
    ("BINARY", ("X'00'", "NULL"), None, None, 1),
    ("DATE", ("DATE'2026-01-31'", "DATE'1969-12-31'"), "1969-12-31", "2026-01-31", 0),
    (
        "TIMESTAMP",
        ("TIMESTAMP'2026-01-31 10:00:00.123Z'", "TIMESTAMP'2026-01-31 10:00:00.123456Z'"),
        "2026-01-31T10:00:00.123Z",
        "2026-01-31T10:00:00.123456Z",
        0,
    ),
    (
        "TIMESTAMP_NTZ",
        ("TIMESTAMP_NTZ'2026-01-31 10:00:00'",),
        "2026-01-31T10:00:00.000",
        "2026-01-31T10:00:00.000",
        0,
    ),
    ("INT", ("NULL", "NULL"), None, None, 2),
]
ROWS = 4
NULLS = ("NULL",) * ROWS


@pytest.fixture(scope="module")
def stats(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Any]:
    """The statistics of one file with a column for each case; missing values are null."""
    columns = ", ".join(f"c{place} {case[0]}" for place, case in enumerate(CASES))
    t = table(tmp_path_factory.mktemp("statistics") / "t", spark, columns)
    rows = [
        ", ".join(
            f"CAST({(*case[1], *NULLS)[number]} AS {case[0]}) c{place}"
            for place, case in enumerate(CASES)
        )
        for number in range(ROWS)
    ]
    return _write(t, " UNION ALL ".join(f"SELECT {row}" for row in rows))


@pytest.mark.parametrize(("place", "case"), list(enumerate(CASES)))
def test_bounds_and_nulls(stats: dict[str, Any], place: int, case: Case) -> None:
    _, values, low, high, nulls = case
    assert stats["numRecords"] == ROWS
    assert stats["tightBounds"] is True
    assert stats["minValues"].get(f"c{place}") == low
    assert stats["maxValues"].get(f"c{place}") == high
    assert stats["nullCount"][f"c{place}"] == nulls + ROWS - len(values)


def test_times_that_python_has_no_value_for_have_no_bounds(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "d DATE, t TIMESTAMP, i INT")
    stats = _write(
        t, "SELECT date_add(DATE'9999-12-31', 1) d, timestamp_seconds(253402300800) t, 1 i"
    )
    assert stats["minValues"] == stats["maxValues"] == {"i": 1}
    assert stats["nullCount"] == {"d": 0, "t": 0, "i": 0}


def test_long_texts_are_cut_to_bounds(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "v STRING")
    stats = _write(t, "SELECT repeat('b', 40) v")
    assert stats["minValues"]["v"] == "b" * 32
    assert "b" * 40 <= stats["maxValues"]["v"] < "c"


def test_structs_have_nested_statistics_and_lists_none(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t", spark, "s STRUCT<a: INT, f: DOUBLE, l: ARRAY<INT>>, m MAP<INT, INT>, z INT"
    )
    stats = _write(
        t,
        "SELECT named_struct('a', 1, 'f', DOUBLE('NaN'), 'l', array(1)) s, map(1, 2) m, 5 z"
        " UNION ALL SELECT NULL, NULL, 6",
    )
    assert stats["minValues"] == {"s": {"a": 1}, "z": 5}
    assert stats["maxValues"] == {"s": {"a": 1}, "z": 6}
    assert stats["nullCount"] == {"s": {"a": 1, "f": 1}, "z": 0}


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({}, {"a", "b", "c"}),
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a", "b"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a", "b", "c"}),
        ({"delta.dataSkippingStatsColumns": "c,a"}, {"a", "c"}),
    ],
)
def test_which_columns_have_statistics(
    tmp_path: Path, spark: SparkSession, properties: Mapping[str, str], columns: set[str]
) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "p INT, a INT, b INT, c INT",
        partitioned_by="p",
        properties=properties,
    )
    stats = _write(t, "SELECT 1 p, 2 a, 3 b, 4 c")
    assert set(stats["minValues"]) == set(stats["maxValues"]) == set(stats["nullCount"]) == columns
    assert stats["numRecords"] == 1


def test_statistics_are_keyed_by_physical_names(tmp_path: Path, spark: SparkSession) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    t = table(tmp_path / "t", spark, "a INT, s STRUCT<b: INT>", properties=properties)
    stats = _write(t, "SELECT 1 a, named_struct('b', 2) s")
    one, two = t.snapshot.schema
    inner = two.type.fields[0].physical_name  # type: ignore[union-attr]
    assert stats["minValues"] == {one.physical_name: 1, two.physical_name: {inner: 2}}
    assert "a" not in stats["minValues"]


def test_files_are_skipped_by_them(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT, s STRUCT<b: STRING>")
    for start in (0, 10, 20):
        t.append(
            spark.range(start, start + 10, 1, 1).selectExpr(
                "CAST(id AS INT) a", "named_struct('b', lpad(string(id), 2, '0')) s"
            )
        )
    snapshot = t.snapshot
    for text, files in (("a = 15", 1), ("a >= 19", 2), ("s.b < '05'", 1), ("a IS NULL", 0)):
        assert snapshot.select(bind(parse_predicate(text), snapshot.schema)).num_rows == files, text


def test_bounds_hold_over_row_groups(tmp_path: Path, spark: SparkSession) -> None:
    """A group without any value has no bounds, which says nothing against those of the others."""
    t = table(tmp_path / "t", spark, "v INT, w DOUBLE")
    rows = pa.table({"v": pa.array([None, None, 5, 7], pa.int32()), "w": [1.0, 2.0, 3.0, 4.0]})
    task = write_task.WriteTask(
        schema=rows.schema.serialize().to_pybytes(),
        layout=write_task.Layout(data=2),
        root=t.log.store.url,
        job_id="job",
        folder_of=lambda values: "",
        row_group_rows=2,
    )
    from txlake.local.writing import result_of

    reports = [
        row
        for batch in write_task.run(task, iter(rows.to_batches()), "f")
        for row in batch.to_pylist()
    ]
    (add,) = result_of(t.work().target(), reports).adds
    stats = json.loads(str(add.stats))
    assert stats["minValues"] == {"v": 5, "w": 1.0}
    assert stats["maxValues"] == {"v": 7, "w": 4.0}
    assert stats["nullCount"] == {"v": 2, "w": 0}
