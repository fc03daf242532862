"""What the driver already holds is written without Spark, wherever that is exact."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.spark.tables import PathTable, table
from txlake.commit.data_plane import Placement
from txlake.errors import InvalidRequest
from txlake.local import caller_rows
from txlake.spark import inserts
from txlake.sql.statements import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "i INT, l LONG, s STRING, d DOUBLE, x DECIMAL(6,2), b BINARY, o BOOLEAN, day DATE,"
    " n TIMESTAMP_NTZ, a ARRAY<LONG>, m MAP<STRING,LONG>, st STRUCT<u: LONG, v: STRING>, p STRING"
)
NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 250, datetime.UTC).replace(tzinfo=None)
ROW: dict[str, Any] = {
    "i": 1,
    "l": 2**40,
    "s": "ä",
    "d": 0.5,
    "x": Decimal("1.25"),
    "b": b"\x00",
    "o": True,
    "day": NOON.date(),
    "n": NOON,
    "a": [1, None],
    "m": [("k", 1)],
    "st": {"u": 1, "v": "w"},
    "p": "a/b",
}
READ = (1, 2**40, "ä", 0.5, Decimal("1.25"), bytearray(b"\x00"), True, NOON.date(), NOON)


def _arrow(t: PathTable) -> pa.Table:
    return pa.Table.from_pylist([ROW, dict.fromkeys(ROW)], schema=t.snapshot.arrow_schema)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> PathTable:
    """A table to which each kind of frame was appended, without Spark."""
    t = table(tmp_path_factory.mktemp("held") / "t", spark, COLUMNS, partitioned_by="p")
    rows = _arrow(t)
    plain = rows.drop_columns(["a", "m", "st"])
    without = t.without_spark()
    frames: list[object] = [
        rows,
        rows.to_batches()[0],
        pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()),
        pl.from_arrow(plain),
        pl.from_arrow(plain).lazy(),  # type: ignore[union-attr]
        plain.to_pandas(integer_object_nulls=True),
    ]
    for frame in frames:
        found = caller_rows.as_arrow(frame)
        assert found is not None
        without.append(found)
    return t


KINDS = ("arrow", "batch", "reader", "polars", "lazy", "pandas")


@pytest.mark.parametrize(("version", "kind"), list(enumerate(KINDS, 1)))
def test_frames_of_the_driver(full: PathTable, version: int, kind: str) -> None:
    before = full.rows(version - 1)
    added = list(full.rows(version))
    for row in before:
        added.remove(row)
    nested: tuple[Any, ...] = ([1, None], {"k": 1}, (1, "w"))
    if kind in {"polars", "lazy", "pandas"}:
        nested = (None, None, None)
    assert sorted(added, key=repr) == [(*READ, *nested, "a/b"), (None,) * 13]


def test_other_things_are_not_frames() -> None:
    assert caller_rows.as_arrow([{"a": 1}]) is None
    assert caller_rows.as_arrow(pd.Series([1])) is None
    assert caller_rows.as_arrow(pl.Series([1])) is None


def test_pandas_indexes_are_no_columns() -> None:
    found = caller_rows.as_arrow(pd.DataFrame({"a": [1]}, index=[7]))
    assert found is not None
    assert found.column_names == ["a"]


def test_types_of_pandas_are_plain() -> None:
    noon = pd.Timestamp("2026-01-31 12:00")
    frame = pd.DataFrame(
        {
            "s": ["x", None],
            "c": pd.Categorical(["x", None]),
            "n": pd.Series([noon, None]).astype("datetime64[s]"),
            "t": pd.Series([noon.tz_localize("Europe/Berlin"), None]),
            "i": pd.array([1, None], "Int64"),
        }
    )
    zoned = pa.timestamp("us", "UTC")
    assert caller_rows.as_arrow(frame) == pa.table(
        {
            "s": ["x", None],
            "c": ["x", None],
            "n": pa.array([noon, None], pa.timestamp("us")),
            "t": pa.array([noon.tz_localize("Europe/Berlin"), None], zoned),
            "i": [1, None],
        }
    )


def test_dictionaries_and_large_types_are_plain() -> None:
    rows = pa.table(
        {
            "c": pa.array(["x", "y"]).dictionary_encode(),
            "l": pa.array(["x", "y"], pa.large_string()),
            "v": pa.array(["x", "y"], pa.string_view()),
            "t": pa.array([0, 1], pa.timestamp("ns", "America/New_York")),
            "a": pa.array([[1], [2]], pa.large_list(pa.uint32())),
            "h": pa.array([1, 2], pa.uint8()),
            "d": pa.array([0, 86_400_000], pa.date64()),
        }
    )
    found = caller_rows.as_arrow(rows)
    assert found is not None
    assert found.schema.types == [
        pa.string(),
        pa.string(),
        pa.string(),
        pa.timestamp("us", "UTC"),
        pa.list_(pa.int64()),
        pa.int32(),
        pa.date32(),
    ]


@pytest.mark.parametrize(
    "values",
    [
        "(1, 2, 'x', 0.5D), (NULL, NULL, NULL, NULL)",
        "(1, 9000000000, '', 1)",
    ],
)
def test_values_without_spark(tmp_path: Path, spark: SparkSession, values: str) -> None:
    t = table(tmp_path / "t", spark, "i INT, l LONG, s STRING, d DOUBLE")
    t.without_spark().run(f"INSERT INTO t VALUES {values}")
    assert t.rows() == sorted(map(tuple, spark.sql(f"VALUES {values}").collect()), key=repr)


def test_values_by_column_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i INT, s STRING, p DATE", partitioned_by="p")
    without = t.without_spark()
    without.run("INSERT INTO t (p, i) VALUES (DATE'2026-01-31', 1), (NULL, 2)")
    assert t.rows() == [(1, None, datetime.date(2026, 1, 31)), (2, None, None)]
    change = inserts.overwrite(without.work(), Values(((3, "x", None),)), Placement(by_name=False))
    without.commit(change)
    assert t.rows() == [(3, "x", None)]


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("America/Los_Angeles", "2026-07-01 19:00:00"),
        ("+05:30", "2026-07-01 06:30:00"),
        ("GMT-2", "2026-07-01 14:00:00"),
        ("PST", "2026-07-01 19:00:00"),
    ],
)
def test_times_of_values_are_of_the_sessions_zone(
    tmp_path: Path, spark: SparkSession, zone: str, shown: str
) -> None:
    t = table(tmp_path / "t", spark, "v TIMESTAMP")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        t.run("INSERT INTO t VALUES (TIMESTAMP'2026-07-01 12:00:00')")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    (seen,) = t.frame().selectExpr("CAST(v AS STRING)").collect()
    assert seen[0] == shown


def test_spark_does_inexact_conversions(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i INT, s STRING, d DECIMAL(4,1)")
    for rows in (
        pa.table({"i": [1.5]}),
        pa.table({"s": [1]}),
        pa.table({"d": pa.array([Decimal("1.25")])}),
        pa.table({"i": [2**40]}),
        pa.table({"i": ["7"]}),
    ):
        assert caller_rows.fit_by_name(rows, t.snapshot) is None
    t.append(pa.table({"i": [1.5], "s": [7], "d": pa.array([Decimal("1.25")])}))
    assert t.rows() == [(1, "7", Decimal("1.3"))]
    with pytest.raises(InvalidRequest, match="column 'i' is integer, which can't hold the value"):
        t.append(pa.table({"i": [2**40]}))


def _some(kind: pa.DataType) -> pa.ChunkedArray:
    """Values of a type, those among them at which conversions differ."""
    dice = random.Random(7)
    few = [0, 1, -1, 2, 7, 100, -128]
    match str(kind):
        case "int8" | "int16" | "int32" | "int64":
            values: list[Any] = [*few, 2 ** (kind.bit_width - 1) - 1, -(2 ** (kind.bit_width - 1))]
        case "float" | "double":
            halves = [0.125, 0.135, 1.005, 2.675, -0.005, 0.1, 1e15, 1e-7, 99999.995]
            values = [*few, *halves, *(dice.uniform(-1e6, 1e6) for _ in range(100))]
        case "date32[day]":
            values = [datetime.date(2024, 6, 1), datetime.date(1900, 1, 1)]
        case _:
            assert isinstance(kind, pa.Decimal128Type)
            scale = Decimal(1).scaleb(-kind.scale)
            wide = 10 ** min(kind.precision, 17) - 1
            values = [dice.randint(-wide, wide) * scale for _ in range(200)]
            values += [one * scale for one in few if abs(one) <= wide]
            values.append(Decimal("0.70").quantize(scale))
    return pa.chunked_array([pa.array([*values, None], kind)])


SOURCES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()),
    *(pa.decimal128(2, 2), pa.decimal128(9, 3), pa.decimal128(38, 18)),
)
TARGETS = (
    *("BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    *("DECIMAL(4, 2)", "DECIMAL(20, 0)", "DECIMAL(38, 18)", "STRING", "BOOLEAN"),
)


@pytest.mark.no_interop("no table is written")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_what_is_done_without_spark_is_what_spark_does(
    tmp_path: Path, spark: SparkSession, source: pa.DataType
) -> None:
    """One value at a time, as one of them that isn't exact leaves all to Spark."""
    values = _some(source)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        frame = spark.createDataFrame(pa.table({"v": values}))
        for number, kind in enumerate(TARGETS):
            t = table(tmp_path / f"t{number}", spark, f"v {kind}")
            fitted = []
            for place in range(len(values)):
                rows = pa.table({"v": values.slice(place, 1)})
                try:
                    fitted.append(caller_rows.fit_by_name(rows, t.snapshot))
                except InvalidRequest:
                    fitted.append(None)
            if any(one is not None for one in fitted[:-1]):
                cast = frame.selectExpr(f"try_cast(v AS {kind}) AS v").toArrow()["v"]
                for place, one in enumerate(fitted):
                    if one is not None:
                        assert str(one["v"][0]) == str(cast[place]), (values[place], kind)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize(
    "cells",
    [
        ("2147483647", "1.25"),
        ("-0.00125", "1000", "NULL"),
        ("123456789012345678901234567890", "0.12345678"),
        ("1BD", "-99999999.5"),
    ],
)
def test_decimals_of_any_scale_beside_whole_numbers(
    tmp_path: Path, spark: SparkSession, cells: tuple[str, ...]
) -> None:
    t = table(tmp_path / "t", spark, "d DECIMAL(38, 8)")
    t.without_spark().run(f"INSERT INTO t VALUES {', '.join(f'({cell})' for cell in cells)}")
    expected = [None if cell == "NULL" else Decimal(cell.removesuffix("BD")) for cell in cells]
    assert [row[0] for row in t.rows()] == sorted(expected, key=lambda one: (one is None, one))


def test_frames_that_do_not_fit(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i INT, s STRING")
    with pytest.raises(InvalidRequest, match="column 'i' is integer, the value is binary"):
        t.without_spark().append(pa.table({"i": [b"x"]}))
    with pytest.raises(InvalidRequest, match="the rows have column 'z', the table has i, s"):
        t.append(pa.table({"z": ["x"]}))
    assert t.data_files() == set()


def test_mapped_columns_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "`a b` INT, s STRUCT<`x y`: INT>, l ARRAY<STRUCT<q: INT>>, m MAP<STRING, STRUCT<r: INT>>",
        properties={"delta.columnMapping.mode": "name"},
    )
    row = {"a b": 1, "s": {"x y": 2}, "l": [{"q": 3}, None], "m": [("k", {"r": 4})]}
    rows = pa.Table.from_pylist([row, {"a b": 2}, row], schema=t.snapshot.arrow_schema)
    t.without_spark().append(rows.slice(1))
    assert t.rows() == [(1, (2,), [(3,), None], {"k": (4,)}), (2, None, None, None)]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"a": [1, "x"]}), "column a .*Could not convert 'x'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
        (pd.DataFrame({"a": [1 + 2j]}), "column a .*complex128"),
        (pd.DataFrame({"a": [2**70]}), "too large"),
        (pl.DataFrame({"a": [object()]}), "column 'a' has Python objects"),
        (pl.LazyFrame({"a": [1]}).select("b"), 'unable to find column "b"'),
        (pa.table({"a": pa.array([2**62], pa.timestamp("s"))}), "out of bounds timestamp"),
    ],
)
def test_what_arrow_has_no_form_for_is_refused(frame: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^the rows can't be converted to Arrow: .*{said}"):
        caller_rows.as_arrow(frame)


def test_nanoseconds_are_cut() -> None:
    table = pa.table({"a": pa.array([1_999], pa.timestamp("ns"))})
    assert caller_rows.as_arrow(table) == pa.table({"a": pa.array([1], pa.timestamp("us"))})
