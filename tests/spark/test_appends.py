"""Appended rows come back as they were, whatever their type, and files say what they must."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.protocol.paths import decode_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)


# Column type and values that Spark's literals give; the first of each is not null.
VALUES: dict[str, list[str]] = {
    "BYTE": ["-128Y", "127Y", "NULL"],
    "SHORT": ["-32768S", "32767S", "NULL"],
    "INT": ["-2147483648", "2147483647", "NULL"],
    "LONG": ["-9223372036854775808", "9223372036854775807", "NULL"],
    "FLOAT": ["1.5F", "FLOAT('NaN')", "FLOAT('-Infinity')", "FLOAT('-0.0')", "NULL"],
    "DOUBLE": ["0.1D", "DOUBLE('NaN')", "DOUBLE('Infinity')", "DOUBLE('-0.0')", "NULL"],
    "DECIMAL(5,2)": ["-999.99BD", "0.01BD", "NULL"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789BD", "NULL"],
    "STRING": ["''", "'a/b=c %20 ü \\u0001'", "NULL"],
    "BINARY": ["X'00FF'", "X''", "NULL"],
    "BOOLEAN": ["true", "false", "NULL"],
    "DATE": ["DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-10'", "NULL"],
    "TIMESTAMP": [
        "TIMESTAMP'2026-01-31 23:59:59.123456'",
        "TIMESTAMP'1582-10-10 00:00:00'",
        "TIMESTAMP'9999-12-31 23:59:59.999999'",
        "NULL",
    ],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2026-01-31 23:59:59.123456'", "NULL"],
    "CHAR(3)": ["'abc'", "NULL"],
    "VARCHAR(3)": ["'ab'", "NULL"],
    "ARRAY<INT>": ["array(1, null)", "array()", "NULL"],
    "MAP<STRING,DOUBLE>": ["map('a', 1.5D, 'b', null)", "map()", "NULL"],
    "STRUCT<a:INT,b:STRUCT<c:STRING>>": [
        "named_struct('a', 1, 'b', named_struct('c', 'x'))",
        "named_struct('a', null, 'b', null)",
        "NULL",
    ],
    "ARRAY<STRUCT<a:INT,b:MAP<STRING,ARRAY<INT>>>>": [
        "array(named_struct('a', 1, 'b', map('k', array(1))), null)",
        "NULL",
    ],
}


PARTITION_TYPES = [name for name in VALUES if "<" not in name and name != "BINARY"]


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Columns:
    """One table with a column of every type."""
    return _columns(tmp_path_factory.mktemp("types"), spark, list(VALUES), False)


@pytest.fixture(scope="module")
def partition_columns(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Columns:
    """One table with a partition column of every type that there may be."""
    return _columns(
        tmp_path_factory.mktemp("types") / "t", spark, PARTITION_TYPES, partitioned=True
    )


Columns = dict[str, tuple[list[Any], list[Any]]]
"""The values written and the values read, by type."""


def _columns(folder: Path, spark: SparkSession, types: list[str], partitioned: bool) -> Columns:
    names = [f"c{place}" for place in range(len(types))]
    described = [f"{name} {type_name}" for name, type_name in zip(names, types, strict=True)]
    t = table(
        folder,
        spark,
        ", ".join(["i INT", *described]),
        partitioned_by=", ".join(names) if partitioned else None,
    )
    selects = []
    for row in range(max(map(len, VALUES.values()))):
        values = [
            f"CAST({(VALUES[kind][row:] or ['NULL'])[0]} AS {_plain(kind)}) {name}"
            for name, kind in zip(names, types, strict=True)
        ]
        selects.append(f"SELECT {row} i, {', '.join(values)}")
    source = spark.sql(" UNION ALL ".join(selects))
    t.append(source)
    assert not partitioned or all(
        pq.read_schema(t.folder / decode_path(add.path)).names == ["i"] for add in t.adds()
    )
    written = sorted(map(tuple, source.collect()))
    read = sorted(map(tuple, t.frame().collect()))
    assert [row[0] for row in read] == [row[0] for row in written]
    return {
        kind: ([row[place] for row in written], [row[place] for row in read])
        for place, kind in enumerate(types, 1)
    }


def _plain(type_name: str) -> str:
    return "STRING" if "CHAR" in type_name else type_name


@pytest.mark.parametrize("type_name", VALUES)
def test_values_of_every_type(columns: Columns, type_name: str) -> None:
    written, read = columns[type_name]
    assert list(map(repr, read)) == list(map(repr, written))


@pytest.mark.parametrize("type_name", PARTITION_TYPES)
def test_partition_values_of_every_type(partition_columns: Columns, type_name: str) -> None:
    written, read = partition_columns[type_name]
    # As a partition value an empty text is null, and zero has no sign.
    expected = [
        None if value == "" else 0.0 if repr(value) == "-0.0" else value for value in written
    ]
    assert list(map(repr, read)) == list(map(repr, expected))


def test_partition_folders_hold_any_text(tmp_path: Path, spark: SparkSession) -> None:
    texts = ["a b", "a/b", "a=b", "100%", "ü", "x:y", "[1]", "#?&", "'\"`", "..", "%20", " "]
    t = table(tmp_path / "t t=1", spark, "i INT, p STRING", partitioned_by="p")
    t.append(spark.createDataFrame(list(enumerate(texts)), "i INT, p STRING"))
    assert t.rows() == sorted(enumerate(texts), key=repr)
    assert {add.partition_values["p"] for add in t.adds()} == set(texts)
    assert {decode_path(add.path) for add in t.adds()} == t.data_files()


def test_a_text_like_the_folder_of_nulls_stays_a_text(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i INT, p STRING", partitioned_by="p")
    t.run("INSERT INTO t VALUES (1, '__HIVE_DEFAULT_PARTITION__'), (2, NULL)")
    assert t.rows() == [(1, "__HIVE_DEFAULT_PARTITION__"), (2, None)]
    assert t.frame().where("p IS NULL").collect() == [(2, None)]


def test_names_with_dots_spaces_and_quotes(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "`a.b` INT, `c d` STRUCT<`e.f`: INT, `g``h`: STRING>",
        properties={"delta.columnMapping.mode": "name"},
    )
    t.append(spark.sql("SELECT 1 `a.b`, named_struct('e.f', 2, 'g`h', 'x') `c d`"))
    t.run("UPDATE t SET `c d`.`e.f` = `a.b` + 2 WHERE `c d`.`g``h` = 'x'")
    (row,) = t.frame().collect()
    assert row.asDict(recursive=True) == {"a.b": 1, "c d": {"e.f": 3, "g`h": "x"}}


def test_columns_go_by_name_whatever_their_order_and_case(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id BIGINT, Name STRING, s STRUCT<a: INT, b: INT>")
    t.append(spark.sql("SELECT named_struct('B', 2, 'A', 1) S, 'x' NAME, 1L ID"))
    t.append(spark.sql("SELECT 2L id"))
    assert [tuple(row) for row in t.rows()] == [(1, "x", (1, 2)), (2, None, None)]


def test_insert_goes_by_position(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT, b STRING, c DOUBLE")
    t.run("INSERT INTO t SELECT 1 c, 'x' a, 2.0D b")
    t.run("INSERT INTO t (c, a) SELECT 3.0D, 2")
    assert t.rows() == [(1, "x", 2.0), (2, None, 3.0)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO t SELECT 1, 'x'", "expected 3 columns (a, b, c), found 2"),
        ("INSERT INTO t SELECT 1, 'x', 2.0D, 4", "expected 3 columns (a, b, c), found 4"),
        ("INSERT INTO t (a, z) SELECT 1, 2", "no column 'z'; the table has a, b, c"),
        ("INSERT INTO t (a, A) SELECT 1, 2", "column A is named twice"),
        ("INSERT INTO t VALUES (1, 'x')", "expected 3 values a row (a, b, c), found 2"),
        ("INSERT INTO t (q) VALUES (1)", "no column 'q'"),
        ("INSERT INTO t SELECT X'01', 'x', 2.0D", "column 'a' is integer, the value is binary"),
        ("INSERT INTO t SELECT nope, 'x', 2.0D", "nope"),
        (
            "INSERT INTO t SELECT 1, 'x', DATE'2026-01-01'",
            "column 'c' is double, the value is date",
        ),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, spark: SparkSession, sql: str, message: str) -> None:
    t = table(tmp_path / "t", spark, "a INT, b STRING, c DOUBLE")
    with pytest.raises((InvalidRequest, AnalysisException), match=re.escape(message)):
        t.run(sql)
    assert t.data_files() == set()
    assert t.snapshot.version == 0


def test_columns_that_the_table_lacks(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT")
    with pytest.raises(InvalidRequest, match="the rows have columns 'b', 'C', the table has a"):
        t.append(spark.sql("SELECT 1 a, 2 b, 3 C"))
    with pytest.raises(InvalidRequest, match="two columns 'a' and 'A'"):
        t.append(spark.sql("SELECT 1 a").crossJoin(spark.sql("SELECT 2 A")))
    assert t.data_files() == set()


def test_field_ids_are_written(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "a INT, s STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>, m MAP<STRING, STRUCT<w: INT>>",
        properties={"delta.columnMapping.mode": "id"},
    )
    t.append(
        spark.sql(
            "SELECT 1 a, named_struct('x', 2, 'y', array(named_struct('z', 3))) s,"
            " map('k', named_struct('w', 4)) m"
        )
    )
    (add,) = t.adds()
    written = pq.read_schema(t.folder / decode_path(add.path))
    wanted = list(t.snapshot.schema)
    assert written.names == [item.physical_name for item in wanted]
    assert [_id(item) for item in written] == [item.column_id for item in wanted]
    struct = wanted[1].type
    assert [_id(item) for item in written.field(1).type] == [f.column_id for f in struct]  # type: ignore[union-attr]
    inner = written.field(1).type.field(1).type.value_type
    assert _id(inner.field(0)) is not None
    assert _id(written.field(2).type.item_type.field(0)) is not None
    assert t.rows() == [(1, (2, [(3,)]), {"k": (4,)})]


def _id(item: pa.Field) -> int | None:
    text = (item.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


def test_times_are_the_same_in_every_session_zone(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t", spark, "p TIMESTAMP, n TIMESTAMP_NTZ, v TIMESTAMP", partitioned_by="p, n"
    )
    frame = spark.sql(
        "SELECT TIMESTAMP'2026-07-01 12:00:00Z' p, TIMESTAMP_NTZ'2026-07-01 12:00' n,"
        " TIMESTAMP'2026-07-01 12:00:00Z' v"
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
        t.append(frame)
        (seen,) = (
            t.frame()
            .selectExpr("CAST(p AS STRING)", "CAST(n AS STRING)", "unix_micros(p) = unix_micros(v)")
            .collect()
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    (add,) = t.adds()
    assert add.partition_values["p"] == "2026-07-01T12:00:00.000000Z"
    assert add.partition_values["n"] == "2026-07-01 12:00:00"
    assert tuple(seen) == ("2026-07-01 05:00:00", "2026-07-01 12:00:00", True)
    rows = t.frame().selectExpr("unix_micros(p)", "n").collect()
    noon = datetime.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("UTC"))
    assert tuple(rows[0]) == (int(noon.timestamp() * 1_000_000), noon.replace(tzinfo=None))


def test_an_empty_frame_adds_no_file(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT")
    change = t.append(spark.sql("SELECT 1 a WHERE false"))
    assert change.actions == ()
    assert change.affected == {"num_affected_rows": 0, "num_inserted_rows": 0}
    assert t.data_files() == set()
    assert t.rows() == []


def test_metrics_and_parameters(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT, p INT", partitioned_by="p")
    change = t.append(spark.range(10).selectExpr("CAST(id AS INT) a", "CAST(id % 2 AS INT) p"))
    assert change.operation == "WRITE"
    assert change.parameters == {"mode": "Append", "partitionBy": ["p"]}
    assert change.affected == {"num_affected_rows": 10, "num_inserted_rows": 10}
    assert change.metrics["numOutputRows"] == 10
    assert change.metrics["numFiles"] == len(t.adds())
    sizes = {decode_path(a.path): a.size for a in t.adds()}
    assert sizes == {name: (t.folder / name).stat().st_size for name in t.data_files()}
    assert change.metrics["numOutputBytes"] == sum(sizes.values())


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, X'00FF', NULL)",
        "INSERT INTO t SELECT 1, X'00FF', NULL",
        "INSERT INTO t SELECT 1, X'00FF', CAST(array(2) AS STRING) FROM range(20)",
        "INSERT INTO t SELECT 1, NULL, CAST(X'00FF' AS STRING)",
    ],
)
def test_bytes_that_are_no_text_are_no_partition(
    tmp_path: Path, spark: SparkSession, sql: str
) -> None:
    t = table(tmp_path / "t", spark, "i INT, b BINARY, s STRING", partitioned_by="b, s")
    with pytest.raises(InvalidRequest, match=r"column '[bs]' .*UTF-8, found the bytes 00FF"):
        t.run(sql)
    assert t.data_files() == set()


def test_rows_of_many_partitions_make_one_file_each_and_task(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "i INT, p INT", partitioned_by="p")
    t.append(spark.range(0, 100, 1, 1).selectExpr("CAST(id AS INT) i", "CAST(id % 7 AS INT) p"))
    assert len(t.adds()) == 7
    assert len(t.rows()) == 100
