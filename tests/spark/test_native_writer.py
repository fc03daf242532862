"""What Spark's own writer writes is what ours would have written, and nothing else is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import txlake
from tests.spark.tables import SYSTEM, PathTable, table
from txlake.datafiles import footers
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.paths import decode_path
from txlake.spark import inserts, native_writer
from txlake.spark.types import spark_schema
from txlake.storage import local_path, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broad(keep=2)

NAN = float("nan")
MAPPED = {"delta.columnMapping.mode": "id"}


@pytest.fixture(autouse=True)
def _nothing_is_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserts, "_FEW_BYTES_MAX", -1)


def _is_native(t: PathTable) -> bool:
    return all("/" in add.path for add in t.adds())


def _files(folder: Path) -> set[str]:
    """Everything in the table's folder but the log."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {path for path in found if not path.startswith("_delta_log")}


def _stats(t: PathTable) -> dict[str, Any]:
    (add,) = t.adds()
    assert add.stats is not None
    found: dict[str, Any] = json.loads(add.stats)
    return found


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Mapping[str, str]]:
    """Setting of a session whose files would be others, if it were asked."""
    chosen = {
        "spark.sql.parquet.compression.codec": "gzip",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.fieldId.write.enabled": "false",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.files.maxRecordsPerFile": "1",
    }
    for key, value in chosen.items():
        spark.conf.set(key, value)
    yield chosen
    for key in chosen:
        spark.conf.unset(key)


@pytest.mark.parametrize(
    ("columns", "options", "is_native"),
    [
        ("a INT, s STRUCT<x: ARRAY<TIMESTAMP>, y: MAP<STRING, DECIMAL(9,2)>>", {}, True),
        ("a INT NOT NULL, CONSTRAINT c CHECK (a < 9)", {}, True),
        ("a INT, c CHAR(3), v VARCHAR(3)", {}, True),
        ("a INT, n VOID", {}, True),
        ("a INT, b STRING", {"properties": MAPPED}, True),
        ("a INT, s STRUCT<x: INT>", {"properties": MAPPED}, False),
        ("a INT, p INT", {"partitioned_by": "p"}, False),
        ("n VOID", {}, False),
    ],
)
def test_which_writer(
    tmp_path: Path, spark: SparkSession, columns: str, options: dict[str, Any], is_native: bool
) -> None:
    t = table(tmp_path / "t", spark, columns, **options)
    frame = spark.createDataFrame([], spark_schema(t.snapshot.schema))
    assert native_writer.suits(frame, t.work().target()) is is_native


def test_statements_that_add_rows(tmp_path: Path, spark: SparkSession) -> None:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.write(spark.range(3), "t")
        lake.write(spark.range(4), "t", mode="append")
        lake.sql("INSERT INTO t SELECT id FROM range(5)")
        assert lake.read("t").count() == 12
        lake.sql("CREATE TABLE c AS SELECT * FROM t")
        lake.sql("INSERT OVERWRITE c SELECT id + 1 FROM t")
        lake.write(lake.read("c"), "t", mode="overwrite")
        for name in ("t", "c"):
            (detail,) = lake.sql(f"DESCRIBE DETAIL {name}").collect()
            log = txlake.Log(detail["location"])
            for version in range(log.snapshot().version + 1):
                paths = log.snapshot(version).files().column("path").to_pylist()
                assert paths
                assert all("/" in path for path in paths)
        assert sorted(row[0] for row in lake.read("t").collect()) == sorted(
            [1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5]
        )


def test_which_writer_by_place_and_rows(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT")
    frame = spark.sql("SELECT 1 a")
    target = t.work().target()
    assert native_writer.suits(frame, target)
    assert not native_writer.suits(frame, replace(target, rows_max=5))
    assert not native_writer.suits(frame, replace(target, store=open_store("memory://native/t")))
    assert not native_writer.suits(frame, replace(target, store=open_store(str(tmp_path / "a\nb"))))
    assert not native_writer.suits(spark.sql("SELECT 1 a, 10 __txlake_action"), target)


EVERY_TYPE = """
    SELECT CAST(-128 AS BYTE) i8, CAST(7 AS SHORT) i16, 3 i32, 5L i64, 1.5F f, -2.5D d, true b,
        X'00FF' bin, 'text' s, DATE'0001-01-01' da, TIMESTAMP'1582-10-10 00:00:00.123456' ts,
        TIMESTAMP_NTZ'9999-12-31 23:59:59' tn, 1.25BD d3, -12345678901.25BD d13,
        1234567890123456789012345678.0123456789BD d38,
        array(1, null) arr, map('k', TIMESTAMP'2026-01-31 10:00:00') m,
        named_struct('x', 1, 'y', named_struct('z', TIMESTAMP'0999-01-01 00:00:00')) st
    UNION ALL SELECT 127Y, null, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null, null, null
"""


@pytest.mark.parametrize("nested", [True, False], ids=["plain", "mapped"])
def test_files_are_those_of_the_other_writer(
    tmp_path: Path,
    spark: SparkSession,
    settings: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    nested: bool,
) -> None:
    rows = spark.sql(EVERY_TYPE).coalesce(1)
    if not nested:
        rows = rows.drop("arr", "m", "st")
    columns = ", ".join(f"{item.name} {item.dataType.simpleString()}" for item in rows.schema)
    written = []
    t = table(tmp_path / "t", spark, columns, properties=None if nested else MAPPED)
    for suits in (native_writer.suits, lambda *_: False):
        monkeypatch.setattr(native_writer, "suits", suits)
        t.overwrite(rows)
        (add,) = t.adds()
        file = pq.ParquetFile(t.folder / decode_path(add.path))
        codec = file.metadata.row_group(0).column(0).compression
        data = file.read()
        schema = data.schema.to_string(show_schema_metadata=False).replace(" not null", "")
        written.append((schema, data.to_pylist(), _stats(t), codec))
        assert ("/" in add.path) is (len(written) == 1)
    assert written[0] == written[1]
    assert {key: spark.conf.get(key) for key in settings} == settings


@pytest.mark.no_interop("delta-rs takes the %20 in its folder's name for a space")
def test_only_data_files_are_left(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t t=1 %20 [x] {y} #?* ü", spark, "id LONG")
    rows = spark.range(0, 10, 1, 4).where("id < 2 OR id > 7")  # two of four tasks have no rows
    change = t.append(rows)
    paths = {decode_path(add.path) for add in t.adds()}
    assert _is_native(t)
    assert _files(t.folder) == {*paths, *(path.partition("/")[0] for path in paths)}
    assert change.metrics == {
        "numFiles": 2,
        "numOutputRows": 4,
        "numOutputBytes": sum((t.folder / path).stat().st_size for path in paths),
    }
    assert t.rows() == [(0,), (1,), (8,), (9,)]


@pytest.mark.no_interop("it has no rows")
def test_no_rows_leave_nothing(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    assert t.append(spark.range(0)).actions == ()
    assert _files(t.folder) == set()


@pytest.mark.no_interop("nothing is written to it")
def test_a_failed_job_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG, CONSTRAINT few CHECK (id < 9)")
    with pytest.raises(InvalidRequest, match=r'few \(id < 9\) is violated by the row \{"id":9\}'):
        t.append(spark.range(0, 10, 1, 1))
    with pytest.raises(InvalidRequest, match="DIVIDE_BY_ZERO"):
        t.run("INSERT INTO t SELECT 1L DIV (id - 5) FROM range(8)")
    assert _files(t.folder) == set()
    assert t.snapshot.version == 0


def test_rows_are_those_that_the_frame_keeps(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "d DOUBLE")
    kept = spark.range(100).selectExpr("rand() d").cache()
    expected = sorted((tuple(row) for row in kept.collect()), key=repr)
    t.append(kept)
    kept.unpersist()
    assert _is_native(t)
    assert t.rows() == expected


# Values of one file; each of the bounds, None for none.
Case = tuple[list[float | None], float | None, float | None]
FLOATS: list[Case] = [
    ([NAN], None, None),
    ([1.0, NAN, 2.0], None, None),
    ([NAN, None, -1.0], None, None),
    ([-0.0], -0.0, 0.0),
    ([0.0], -0.0, 0.0),
    ([-1.5, 2.5, None], -1.5, 2.5),
    ([1.0, float("inf")], 1.0, None),
    ([None], None, None),
]


def test_bounds_of_floats(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "d DOUBLE, f FLOAT, s STRUCT<d: DOUBLE>")
    for number, (values, minimum, maximum) in enumerate(FLOATS):
        rows = [(value, value, (value,)) for value in values]
        t.overwrite(spark.createDataFrame(rows, spark_schema(t.snapshot.schema)).coalesce(1))
        stats = _stats(t)
        for bounds, bound in (("minValues", minimum), ("maxValues", maximum)):
            found = stats[bounds]
            expected = {"d": bound, "f": bound, "s": {"d": bound}}
            leaves = {**{key: found.get(key) for key in "dfs"}, "s": found.get("s") or {"d": None}}
            assert repr(leaves) == repr(expected), (number, bounds)


def test_what_a_frame_says_of_its_columns_stays_out(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id LONG")
    t.append(spark.range(3).select(F.col("id").alias("id", metadata={"parquet.field.id": 99})))
    schema = pq.read_schema(t.folder / decode_path(t.adds()[0].path))
    assert schema.field("id").metadata is None
    assert b"99" not in (schema.metadata or {})[b"org.apache.spark.sql.parquet.row.metadata"]


def test_a_nan_in_one_of_two_row_groups(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"parquet.block.size": "800", "parquet.block.size.row.check.min": "100"}
    monkeypatch.setattr(native_writer, "_OPTIONS", {**native_writer._OPTIONS, **small})
    monkeypatch.setattr(footers, "_TAIL_BYTES", 16)  # and a footer longer than what is read first
    t = table(tmp_path / "t", spark, "i LONG, d DOUBLE")
    rows = spark.range(0, 1000, 1, 1)
    for nan_at in (0, 500, 999):
        t.overwrite(rows.selectExpr("id i", f"if(id = {nan_at}, double('NaN'), double(id)) d"))
        (add,) = t.adds()
        assert pq.read_metadata(t.folder / add.path).num_row_groups > 1
        stats = _stats(t)
        assert (stats["minValues"], stats["maxValues"]) == ({"i": 0}, {"i": 999})
        assert t.frame().where("isnan(d)").count() == 1


def test_long_texts_have_bounds(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "s STRING, b BINARY")
    texts = ["ä" * 9000, "z" * 5000, None]
    t.append(spark.createDataFrame([(s, s and s.encode()) for s in texts], "s STRING, b BINARY"))
    adds = [json.loads(add.stats or "") for add in t.adds()]
    assert sum(stats["nullCount"]["s"] for stats in adds) == 1
    assert sum(stats["nullCount"]["b"] for stats in adds) == 1
    assert min(stats["minValues"]["s"] for stats in adds if stats["minValues"]) == "z" * 32
    assert max(stats["maxValues"]["s"] for stats in adds if stats["maxValues"]) > "ä" * 9000


def _leaving(*paths: str) -> Any:
    """What writes like Spark's writer: a row in each file."""

    def save(_: DataFrame, url: str, settings: object) -> None:
        folder = Path(str(local_path(url)))
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if path.endswith("_SUCCESS"):
                (folder / path).touch()
            else:
                pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), folder / path)

    return save


def test_files_of_other_attempts_are_ignored(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = "_temporary/0/_temporary/attempt_1/part-00000.parquet"
    monkeypatch.setattr(
        native_writer, "_save", _leaving("part-00000.parquet", left, ".part-1.parquet", "_SUCCESS")
    )
    t = table(tmp_path / "t", spark, "id LONG")
    t.append(spark.range(1))
    assert [add.path.partition("/")[2] for add in t.adds()] == ["part-00000.parquet"]
    assert t.rows() == [(1,)]


@pytest.mark.no_interop("nothing is written to it")
@pytest.mark.parametrize("left", [(), ("part-00000.parquet",)], ids=["nothing", "no-mark"])
def test_files_written_elsewhere_are_missed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...]
) -> None:
    monkeypatch.setattr(native_writer, "_save", _leaving(*left))
    t = table(tmp_path / "t", spark, "id LONG")
    with pytest.raises(TxlakeError, match="aren't in this machine's folder"):
        t.append(spark.range(1))
    assert _files(t.folder) == set()


def test_files_are_durable_before_they_are_named(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(native_writer, "sync", synced.append)
    t = table(tmp_path / "t t", spark, "id LONG")
    target = replace(t.work().target(), system=SYSTEM)
    written = native_writer.write(spark.range(0, 10, 1, 2), target)
    paths = [decode_path(add.path) for add in written.adds]
    (folder,) = {path.partition("/")[0] for path in paths}
    assert sorted(synced[:2]) == [str(t.folder / path) for path in sorted(paths)]
    assert synced[2:] == [str(t.folder / folder), str(t.folder)]
    shutil.rmtree(t.folder / folder)
