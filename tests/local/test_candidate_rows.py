"""Rows that the driver finds are those that Spark finds, with the same values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.tables import VECTORS, PathTable, table
from txlake.datafiles import parquet
from txlake.local import candidate_rows, choice, file_rows
from txlake.protocol.paths import decode_path
from txlake.spark import dml, driver_frames
from txlake.sql.statements import NativeColumn, Reference, SqlText, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "id INT, b BYTE, h SHORT, l LONG, f FLOAT, x DOUBLE, o BOOLEAN, s STRING, y BINARY,"
    " d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, e DECIMAL(38, 3), c DECIMAL(5, 2), p STRING, q DATE"
)
ROWS = """
VALUES
 (1, 1Y, 1S, 1L, 1.5F, 1.5D, true, 'plain', X'00FF', DATE'2024-03-31',
  TIMESTAMP'2024-03-31 01:30:00', TIMESTAMP_NTZ'2024-03-31 02:30:00', 1.125, 1.25, 'a', DATE'2024-01-01'),
 (2, -128Y, -32768S, -9223372036854775808L, float('NaN'), double('NaN'), false, '', X'',
  DATE'0001-01-01', TIMESTAMP'0001-01-01 00:00:00Z', TIMESTAMP_NTZ'0001-01-01 00:00:00',
  -12345678901234567890123456789012345.678, -999.99, 'a', NULL),
 (3, 127Y, 32767S, 9223372036854775807L, float('-0.0'), -0.0D, NULL, repeat('ü😀', 500), X'C3',
  DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999',
  0.000, 0.00, NULL, DATE'1500-02-03'),
 (4, 0Y, 0S, 0L, 0.0F, 0.0D, true, CAST(X'FF61' AS STRING), X'61', DATE'1582-10-10',
  TIMESTAMP'1899-12-31 12:00:00.000001Z', TIMESTAMP_NTZ'1900-01-01 00:00:00', 0.001, 0.01, 'b', NULL),
 (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (6, 6Y, 6S, 6L, float('Infinity'), double('-Infinity'), false, 'PLAIN', X'00FF', DATE'2024-10-27',
  TIMESTAMP'2024-10-27 00:30:00Z', TIMESTAMP_NTZ'2024-10-27 02:30:00', 1.125, 1.25, 'a', DATE'2024-01-01')
"""  # noqa: E501
CONDITIONS = (
    "id = 1",
    "id >= 2 AND id < 5",
    "b = 127 OR h = -32768 OR l IS NULL",
    "l <= -9223372036854775808",
    "f = 0",
    "x = 0.0D",
    "x > 1.0D",
    "NOT (x < 1.0D)",
    "f = 1.5",
    "o",
    "o = false",
    "o IS NULL AND id > 3",
    "s = 'plain'",
    "s > 'q'",
    "s = ''",
    "y = X'00FF'",
    "d < DATE'1582-10-15'",
    "t >= TIMESTAMP'2024-10-27 02:30:00'",
    "t < TIMESTAMP'1900-01-01 00:00:00'",
    "n = TIMESTAMP_NTZ'2024-03-31 02:30:00'",
    "e = 1.125",
    "e < 0",
    "c = 1.25",
    "p = 'a' AND id > 1",
    "q <=> NULL AND id <> 2",
    "NOT (s = 'plain')",
    "id = 3 AND length(s) > 10",
    "id IN (1, 2, 3) AND c + 1 > 2",
    "id <> 2 AND NULL",
    "b = 1000 OR id = 6",
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> PathTable:
    """Odd values in two partitions and more, one row deleted, columns added and renamed since."""
    properties = {
        **VECTORS,
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
    }
    folder = tmp_path_factory.mktemp("odd") / "t"
    t = table(folder, spark, COLUMNS, partitioned_by="p, q", properties=properties)
    names = [
        name.split()[0] for name in COLUMNS.replace("(38, 3)", "").replace("(5, 2)", "").split(",")
    ]
    t.append(spark.sql(f"SELECT * FROM ({ROWS}) AS v({', '.join(names)})").coalesce(1))
    t.run("DELETE FROM t WHERE id = 6 AND length(s) = 5 AND f > 3")
    t.append(spark.sql(f"SELECT * FROM ({ROWS}) AS v({', '.join(names)})").coalesce(1))
    return t


def _same(one: DataFrame, other: DataFrame) -> None:
    assert one.dtypes == other.dtypes
    assert one.columns == other.columns
    left, right = (
        sorted(map(repr, frame.selectExpr(*_texts(frame)).collect())) for frame in (one, other)
    )
    assert left == right


def _texts(frame: DataFrame) -> Iterator[str]:
    """Every value exactly, times as numbers, so that no time zone of Python's takes part."""
    for name, kind in frame.dtypes:
        yield {
            "timestamp": f"unix_micros({name})",
            "timestamp_ntz": f"CAST({name} AS STRING)",
            "string": f"CAST({name} AS BINARY)",
            "date": f"unix_date({name})",
        }.get(kind, name)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_rows_are_those_that_spark_finds(odd: PathTable, condition: str) -> None:
    work = odd.work()
    spark = work.spark
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        read = work.read(SqlText(condition), None)
        files = work.snapshot.select(read.predicate)
        assert read.predicate is not None
        found = candidate_rows.find_candidates(work, files, read.predicate, 1000)
        frame = driver_frames.rows_at(work, files, found.positions)
        assert frame is not None
        matching = work.scan(files, positions=True).where(condition)
        _same(frame if found.certain else frame.where(condition), matching)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("condition", [*CONDITIONS, "id = 99"])
def test_few_rows_are_as_a_scan_gives_them(odd: PathTable, condition: str) -> None:
    work = odd.work()
    predicate = work.predicate(SqlText(condition), None)
    assert predicate is not None
    files = work.snapshot.select(predicate)
    few = driver_frames.few_rows(work, files, predicate)
    assert few is not None
    scanned = work.scan(files)
    assert few.schema == scanned.schema
    _same(few.where(condition), scanned.where(condition))


@pytest.mark.no_interop("its data file is another than the one logged")
def test_groups_whose_numbers_rule_a_row_out_are_not_read(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table(tmp_path / "t", spark, "id BIGINT, s STRING", properties=VECTORS)
    t.append(spark.range(6).selectExpr("if(id = 2, NULL, id) id", "'' || id s").coalesce(1))
    (add,) = t.adds()
    path = t.folder / decode_path(add.path)
    pq.write_table(pq.read_table(path), path, row_group_size=2)
    read: list[list[int]] = []

    def recording_rows(
        file: pq.ParquetFile, columns: parquet.Columns, groups: list[int]
    ) -> Iterator[pa.RecordBatch]:
        read.append(groups)
        yield from parquet.iter_rows(file, columns, groups)

    monkeypatch.setattr(file_rows, "iter_rows", recording_rows)
    for condition, groups, places in (
        ("id = 4", [[2]], [4]),
        ("id < 1 OR id > 4", [[0], [2]], [0, 5]),
        ("id = 9", [], []),
        ("id IS NULL", [[0], [1], [2]], [2]),
        ("s = '4'", [[0], [1], [2]], [4]),
        ("id = 4 AND length(s) > 0", [[2]], [4]),
    ):
        read.clear()
        found = _candidates(t, condition)
        assert found is not None, condition
        assert read == groups, condition
        assert [list(each) for each in found.positions.values()] == ([places] if places else [])


@pytest.mark.no_interop("its data file is another than the one logged")
def test_groups_without_statistics_are_read(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id BIGINT", properties=VECTORS)
    t.append(spark.range(4).coalesce(1))
    (add,) = t.adds()
    path = t.folder / decode_path(add.path)
    pq.write_table(pq.read_table(path), path, row_group_size=2, write_statistics=False)
    found = _candidates(t, "id = 3")
    assert found is not None
    assert [list(each) for each in found.positions.values()] == [[3]]


def test_spark_scans_large_row_groups(odd: PathTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(condition: str) -> DataFrame | None:
        work = odd.work()
        predicate = work.predicate(SqlText(condition), None)
        assert predicate is not None
        return driver_frames.few_rows(work, work.snapshot.select(None), predicate)

    assert few("id = 3") is not None
    monkeypatch.setattr(driver_frames, "_GROUP_BYTES_MAX", 10)
    assert few("id = 3") is None
    assert few("id = 99") is not None
    assert _candidates(odd, "id = 3") is not None  # as an UPDATE looks for it


def _candidates(
    t: PathTable, condition: str, rows_max: int = 1000
) -> candidate_rows.Candidates | None:
    work = t.work()
    read = work.read(SqlText(condition), None)
    assert read.predicate is not None
    files = work.snapshot.select(read.predicate)
    find = partial(candidate_rows.find_candidates, work, files, read.predicate, rows_max)
    return choice.attempt("search", work, find)


def test_the_log_says_why_spark_has_to_search(
    odd: PathTable, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger=choice.__name__):
        _candidates(odd, "id < 3")
        _candidates(odd, "id < 3", 1)
        _candidates(odd, "length(s) > 3")
    table = odd.work().snapshot.table
    assert [record.getMessage() for record in caplog.records if record.name == choice.__name__] == [
        f"search of {table} by the driver",
        f"search of {table} by Spark: too many rows may match, or have to be read",
        f"search of {table} by Spark: the condition compares no column that the driver can read",
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "f IN (CAST('NaN' AS FLOAT), 1.5F)",
        "s LIKE 'pl%'",  # one of the texts isn't UTF-8
        "length(s) > 3",
        "p = 'a'",
        "true",
        "id IN (SELECT 1)",
    ],
)
def test_spark_handles_conditions_without_a_known_column(odd: PathTable, condition: str) -> None:
    assert _candidates(odd, condition) is None


@pytest.mark.parametrize(("limit", "value"), [("_FILES_MAX", 0), ("_ROWS_MAX", 5)])
def test_spark_handles_many_or_large_files(
    odd: PathTable, limit: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _candidates(odd, "id > 0") is not None
    monkeypatch.setattr(candidate_rows, limit, value)
    assert _candidates(odd, "id > 0") is None


def test_spark_handles_many_rows(odd: PathTable) -> None:
    assert _candidates(odd, "id < 3", 4) is not None
    assert _candidates(odd, "id < 3", 3) is None


def test_spark_handles_large_rows(odd: PathTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_rows, "_HELD_BYTES_MAX", 10)
    work = odd.work()
    found = _candidates(odd, "id = 3")
    assert found is not None
    files = work.snapshot.select(work.predicate(SqlText("id = 3"), None))
    assert driver_frames.rows_at(work, files, found.positions) is None


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_are_read_a_few_at_a_time(
    odd: PathTable, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", rows)
    monkeypatch.setattr(parquet, "_TEXT_BATCH_ROWS", rows)
    work = odd.work()
    files = work.snapshot.select(work.predicate(SqlText("id IN (1, 6)"), None))
    found = _candidates(odd, "id IN (1, 6)")
    assert found is not None
    frame = driver_frames.rows_at(work, files, found.positions)
    assert frame is not None
    _same(frame, work.scan(files, positions=True).where("id IN (1, 6)"))


COLUMNS_OF_FILE = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC"))])


def _rewritten(path: Path, rows: pa.Table, **options: object) -> None:
    pq.write_table(rows, path, **options)


def _as(index: int, kind: pa.DataType) -> Callable[[Path, pa.Table], None]:
    def write(path: Path, rows: pa.Table) -> None:
        item = rows.schema.field(index).with_type(kind)
        _rewritten(path, rows.cast(rows.schema.set(index, item)), row_group_size=2)

    return write


def _of_old_spark(path: Path, rows: pa.Table) -> None:
    footer = {"org.apache.spark.version": "2.4.5"}
    _rewritten(path, rows.replace_schema_metadata(footer))


def _with_two_of_a_name(path: Path, rows: pa.Table) -> None:
    _rewritten(path, rows.append_column("ID", rows.column("id")))


@pytest.mark.no_interop("its data file is another than the one logged")
@pytest.mark.parametrize(
    ("write", "is_read"),
    [
        (lambda path, rows: _rewritten(path, rows, row_group_size=2), True),
        (_as(0, pa.int32()), True),
        (_as(0, pa.uint64()), False),
        (_as(0, pa.string()), False),
        (_as(1, pa.timestamp("ms", "UTC")), False),
        (lambda path, rows: _rewritten(path, rows.rename_columns(["Id", "t"])), False),
        (lambda path, rows: _rewritten(path, rows, use_deprecated_int96_timestamps=True), False),
        (_of_old_spark, False),
        (_with_two_of_a_name, False),
        (lambda path, _: path.write_bytes(b"PARE" * 100), False),
        (lambda path, _: path.unlink(), False),
    ],
    ids=[
        *("groups", "narrower", "unsigned", "text", "milliseconds", "other case", "int96"),
        *("old", "twice", "odd", "gone"),
    ],
)
def test_spark_reads_files_that_pyarrow_may_read_differently(
    tmp_path: Path,
    spark: SparkSession,
    write: Callable[[Path, pa.Table], None],
    is_read: bool,
) -> None:
    t = table(tmp_path / "t", spark, "id BIGINT, t TIMESTAMP", properties=VECTORS)
    t.append(spark.range(5).selectExpr("id", "timestamp_seconds(id) t").coalesce(1))
    (add,) = t.adds()
    path = t.folder / decode_path(add.path)
    rows = pq.read_table(path).cast(COLUMNS_OF_FILE)
    write(path, rows)
    found = _candidates(t, "id >= 3 AND t IS NOT NULL")
    assert (found is not None) == is_read
    if found is not None:
        assert [places.tolist() for places in found.positions.values()] == [[3, 4]]
        frame = driver_frames.rows_at(t.work(), t.snapshot.select(None), found.positions)
        assert frame is not None
        assert sorted(row.id for row in frame.collect()) == [3, 4]


def test_rows_that_only_spark_can_read_are_changed_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id BIGINT, m STRUCT<a: INT>", properties=VECTORS)
    t.append(spark.range(5).selectExpr("id", "named_struct('a', 1) m"))
    t.run("UPDATE t SET m.a = 2 WHERE id = 3")
    found = [(row.id, row.m.a) for row in t.frame().collect()]
    assert sorted(found) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1)]


@pytest.mark.parametrize(
    ("value", "is_held"),
    [
        (SqlText("upper(s)"), True),
        (SqlText("input_file_name()"), False),
        (SqlText("_metadata.file_name"), False),
        (SqlText("(Select 'x')"), False),
        (SqlText("other", (Reference(TableName(("other",)), None, 0, 5),)), False),
        (NativeColumn("x"), False),
    ],
)
def test_spark_computes_values_that_may_depend_on_more_than_the_row(
    odd: PathTable, value: SqlText | NativeColumn, is_held: bool
) -> None:
    work = odd.work()
    condition = SqlText("id = 1")
    files = work.snapshot.select(work.predicate(condition, None))
    found = _candidates(odd, "id = 1")
    assert (dml._few_candidate_rows(work, files, found, [value, condition]) is not None) == is_held
