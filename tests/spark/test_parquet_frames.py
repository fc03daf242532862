"""Scans of small Parquet files that the driver reads itself have the rows that Spark reads."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.tables import VECTORS, PathTable, table
from txlake.errors import InvalidRequest
from txlake.spark import inserts, merge_source
from txlake.spark.parquet_frames import parquet_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broad(keep=4)

ROWS = pa.table(
    {
        "i": pa.array([1, None, -(2**31)], pa.int32()),
        "b": pa.array([-128, 127, None], pa.int8()),
        "h": pa.array([None, 1, 2], pa.int16()),
        "l": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "f": pa.array([float("nan"), -0.0, None], pa.float32()),
        "x": pa.array([float("inf"), float("nan"), -0.0], pa.float64()),
        "o": pa.array([True, None, False]),
        "s": pa.array(["", None, "ü😀"], pa.large_string()),
        "y": pa.array([b"", b"\x00\xff", None], pa.binary()),
        "e": pa.array([Decimal("1.125"), None, Decimal("-9.000")], pa.decimal128(20, 3)),
        "d": pa.array([dt.date(2026, 1, 1), None, dt.date(1582, 10, 15)]),
        "t": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
        "n": pa.array([None, 0, 1], pa.timestamp("us")),
    }
)
COLUMNS = (
    "i INT, b BYTE, h SHORT, l LONG, f FLOAT, x DOUBLE, o BOOLEAN, s STRING, y BINARY,"
    " e DECIMAL(20, 3), d DATE, t TIMESTAMP, n TIMESTAMP_NTZ"
)
KEYS = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "v": ["one", "two", "three"]})


def saved(folder: Path, *tables: pa.Table, **options: Any) -> str:
    folder.mkdir(exist_ok=True)
    for place, rows in enumerate(tables):
        pq.write_table(rows, folder / f"{place}.parquet", **options)
    return str(folder)


def plain(rows: pa.Table) -> list[str]:
    """The rows as texts, in which NaN equals itself and -0.0 doesn't equal 0.0."""
    return [repr(row) for row in rows.to_pylist()]


def as_utc(rows: pa.Table) -> pa.Table:
    """Spark's rows: its times have the session's zone, which is no matter of the values."""
    kinds = [
        item.with_type(pa.timestamp("us", "UTC"))
        if pa.types.is_timestamp(item.type) and item.type.tz is not None
        else item
        for item in rows.schema
    ]
    return rows.cast(pa.schema(kinds))


@pytest.mark.parametrize(
    "case", ["all", "some columns", "a view", "text", "several files", "empty"]
)
def test_the_rows_are_sparks(tmp_path: Path, spark: SparkSession, case: str) -> None:
    tables = [ROWS, ROWS.slice(1)] if case == "several files" else [ROWS]
    frame = spark.read.parquet(
        saved(tmp_path / "f", *([ROWS.slice(0, 0)] if case == "empty" else tables))
    )
    if case == "some columns":
        frame = frame.select("s", "l")
    if case == "a view":
        frame.createOrReplaceTempView("parquet_frames")
        frame = spark.sql("SELECT * FROM (SELECT t, n, x FROM parquet_frames) AS v")
    if case == "text":
        frame = spark.sql(f"SELECT * FROM parquet.`{tmp_path / 'f'}`")
    found = parquet_rows(frame, 100, files_max=2)
    expected = as_utc(frame.toArrow())
    assert found is not None
    assert found.schema.types == expected.schema.types
    assert found.column_names == expected.column_names
    assert sorted(plain(found)) == sorted(plain(expected))


def old(rows: pa.Table, name: str, value: object) -> pa.Table:
    place = rows.column_names.index(name)
    kind = rows.schema.field(name).type
    return rows.set_column(place, name, pa.array([value] * rows.num_rows, kind))


BEFORE_1582 = old(ROWS, "d", dt.date(1582, 10, 4))
BEFORE_1900 = old(ROWS, "n", -(2**53))
NESTED = pa.table({"k": [1], "s": [{"x": 1}]})
OTHERS: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "a filter": lambda spark, f: spark.read.parquet(saved(f, KEYS)).where("k > 1"),
    "an expression": lambda spark, f: spark.read.parquet(saved(f, KEYS)).selectExpr("k + 1 AS k"),
    "another name": lambda spark, f: spark.read.parquet(saved(f, KEYS)).selectExpr("k AS v"),
    "a limit": lambda spark, f: spark.read.parquet(saved(f, KEYS)).limit(1),
    "metadata": lambda spark, f: spark.read.parquet(saved(f, KEYS)).select("_metadata.file_path"),
    "another letter case": lambda spark, f: spark.read.parquet(saved(f, KEYS)).select("K"),
    "a partition": lambda spark, f: spark.read.parquet(_partitioned(f)),
    "a missing column": lambda spark, f: spark.read.schema("k BIGINT, w INT").parquet(
        saved(f, KEYS)
    ),
    "a wider type": lambda spark, f: spark.read.schema("i BIGINT").parquet(saved(f, ROWS)),
    "an old date": lambda spark, f: spark.read.parquet(saved(f, BEFORE_1582)),
    "an old time": lambda spark, f: spark.read.parquet(saved(f, BEFORE_1900)),
    "INT96": lambda spark, f: spark.read.parquet(
        saved(f, ROWS.select(["t"]), use_deprecated_int96_timestamps=True)
    ),
    "nested": lambda spark, f: spark.read.parquet(saved(f, NESTED)),
    "two files": lambda spark, f: spark.read.parquet(saved(f, KEYS, KEYS)),
    "many rows": lambda spark, f: spark.read.parquet(saved(f, pa.concat_tables([KEYS] * 40))),
    "other files": lambda spark, f: spark.read.json(_json(f)),
    "no columns": lambda spark, f: spark.read.parquet(saved(f, KEYS)).select(),
    "rows of its own": lambda spark, f: spark.range(3).toDF("k"),
    "cached": lambda spark, f: spark.read.parquet(saved(f, KEYS)).cache(),
}


def _partitioned(folder: Path) -> str:
    folder.mkdir()
    saved(folder / "p=1", KEYS)
    return str(folder)


def _json(folder: Path) -> str:
    folder.mkdir()
    (folder / "rows.json").write_text('{"k": 1}')
    return str(folder)


@pytest.mark.parametrize("case", OTHERS)
def test_other_frames_are_sparks(tmp_path: Path, spark: SparkSession, case: str) -> None:
    frame = OTHERS[case](spark, tmp_path / "f")
    assert parquet_rows(frame, 100) is None
    frame.unpersist()


def test_what_cannot_be_read_is_sparks(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.parquet(saved(tmp_path / "f", KEYS))
    path = tmp_path / "f" / "0.parquet"
    content = path.read_bytes()
    assert parquet_rows(frame, 3) is not None
    assert parquet_rows(frame, 2) is None
    with monkeypatch.context() as patched:
        patched.setattr("txlake.spark.parquet_frames._BYTES_MAX", len(content) - 1)
        assert parquet_rows(frame, 100) is None
    path.write_bytes(content[:-8] + b"\0" * 8)
    assert parquet_rows(frame, 100) is None
    path.unlink()
    assert parquet_rows(frame, 100) is None


def test_another_tables_scan_is_sparks(tmp_path: Path, spark: SparkSession) -> None:
    """It has deleted rows, and its files are listed in a log."""
    t = table(tmp_path / "t", spark, "k LONG", properties=VECTORS)
    t.append(spark.range(0, 10, 1, 1).toDF("k"))
    assert parquet_rows(t.frame(), 100) is None
    t.run("DELETE FROM t WHERE k = 3")
    assert parquet_rows(t.frame(), 100) is None


def state(t: PathTable) -> tuple[object, ...]:
    """The rows, and what the log says of the newest files."""
    change = t.changes[-1]
    stats = [json.loads(add.stats or "{}") for add in t.adds()]
    return sorted(map(str, t.frame().collect())), stats, change.affected, change.parameters


UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
STATEMENTS = {
    "INSERT INTO t SELECT * FROM {source}": True,
    "INSERT OVERWRITE t SELECT * FROM {source}": True,
    "INSERT INTO t BY NAME SELECT * FROM {source}": True,
    "INSERT INTO t (i, s) SELECT i, s FROM {source}": False,  # other columns are computed
    f"MERGE INTO t USING {{source}} AS s ON t.i = s.i {UPSERT}": True,
    "MERGE INTO t USING {source} AS s ON t.i = s.i AND t.s = s.s WHEN MATCHED THEN DELETE": True,
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_do_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    columns = COLUMNS if "(i, s)" not in statement else f"{COLUMNS}, w INT GENERATED ALWAYS AS (i)"
    source = f"parquet.`{saved(tmp_path / 'f', ROWS)}`"
    read: list[pa.Table | None] = []

    def noted(*arguments: Any) -> pa.Table | None:
        read.append(parquet_rows(*arguments))
        return read[-1]

    found: list[tuple[object, ...]] = []
    for who in (noted, lambda *arguments: None):
        t = table(tmp_path / str(len(found)), spark, columns, properties=VECTORS)
        t.run("INSERT INTO t (i, s) VALUES (1, ''), (7, 'seven')")
        with monkeypatch.context() as patched:
            for module in (inserts, merge_source):
                patched.setattr(module, "parquet_rows", who)
            t.run(statement.format(source=source))
        found.append(state(t))
    assert found[0] == found[1]
    assert any(rows is not None for rows in read) is STATEMENTS[statement]


def test_several_source_rows_for_one_target_row(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"parquet.`{saved(tmp_path / 'f', KEYS, KEYS)}`"
    t = table(tmp_path / "t", spark, "k LONG, v STRING", properties=VECTORS)
    t.run("INSERT INTO t VALUES (1, 'a')")
    merge = f"MERGE INTO t USING {source} AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *"
    said = []
    for read_by in (parquet_rows, lambda *arguments: None):
        with monkeypatch.context() as patched:
            patched.setattr(merge_source, "parquet_rows", read_by)
            with pytest.raises(InvalidRequest, match="2 source rows match") as raised:
                t.run(merge)
        said.append(str(raised.value))
    assert said[0] == said[1]
