"""Which values a column takes, and what is said of those that it doesn't."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.local.types import can_store, is_converted, may_overflow, reads_text
from txlake.protocol.types import Array, Field, Primitive, Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=4)


def _type(text: str) -> Primitive:
    return Primitive(text)


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ("integer", "long", True),
        ("long", "integer", True),
        ("double", "integer", True),
        ("decimal(10,2)", "float", True),
        ("integer", "string", True),
        ("timestamp", "string", True),
        ("boolean", "string", True),
        ("binary", "string", False),
        ("string", "integer", False),
        ("string", "date", False),
        ("string", "boolean", False),
        ("boolean", "integer", False),
        ("integer", "boolean", False),
        ("integer", "timestamp", False),
        ("date", "timestamp", True),
        ("timestamp", "date", True),
        ("timestamp_ntz", "timestamp", True),
        ("date", "integer", False),
        ("void", "integer", True),
        ("string", "varchar(3)", True),
        ("binary", "binary", True),
    ],
)
def test_ansi_store_assignment(source: str, target: str, fits: bool) -> None:
    assert can_store(_type(source), _type(target)) is fits
    assert can_store(Array(_type(source)), Array(_type(target))) is fits
    wrapped = Struct((Field("A", _type(source)),))
    assert (
        can_store(wrapped, Struct((Field("b", _type("long")), Field("a", _type(target))))) is fits
    )


def test_structs_by_field_name() -> None:
    target = Struct((Field("a", _type("long")),))
    assert not can_store(Struct((Field("z", _type("long")),)), target)
    assert not can_store(_type("long"), target)
    assert not can_store(Array(_type("long")), _type("long"))


@pytest.mark.parametrize(
    ("source", "target", "may"),
    [
        ("long", "integer", True),
        ("integer", "long", False),
        ("integer", "integer", False),
        ("double", "long", True),
        ("long", "double", False),
        ("double", "float", False),
        ("decimal(10,0)", "integer", True),
        ("decimal(9,0)", "integer", False),
        ("decimal(12,2)", "decimal(10,2)", True),
        ("decimal(10,2)", "decimal(12,2)", False),
        ("decimal(5,2)", "decimal(4,1)", True),
        ("integer", "decimal(10,0)", False),
        ("integer", "decimal(9,0)", True),
        ("float", "decimal(38,0)", True),
        ("string", "integer", False),
    ],
)
def test_which_numbers_may_be_too_large(source: str, target: str, may: bool) -> None:
    assert may_overflow(_type(source), _type(target)) is may


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "INSERT INTO t (i) SELECT 3000000000L",
            "column 'i' is integer, which can't hold the value 3000000000",
        ),
        (
            "INSERT INTO t (i) VALUES (3000000000)",
            "column 'i' is integer, which can't hold the value 3000000000",
        ),
        (
            "INSERT INTO t (i) SELECT DOUBLE('NaN')",
            "column 'i' is integer, which can't hold the value NaN",
        ),
        (
            "INSERT INTO t (d) SELECT 123.45BD",
            "column 'd' is decimal(3,1), which can't hold the value 123.45",
        ),
        (
            "INSERT INTO t (d) SELECT 99.99BD",
            "column 'd' is decimal(3,1), which can't hold the value 99.99",
        ),
        (
            "UPDATE t SET i = 3000000000 WHERE i = 1",
            "column 'i' is integer, which can't hold the value 3000000000",
        ),
        ("UPDATE t SET i = i + 2147483647", "ARITHMETIC_OVERFLOW"),
        ("UPDATE t SET i = CAST(s AS INT)", "CAST_INVALID_INPUT"),
        ("UPDATE t SET i = 1 / 0", "DIVIDE_BY_ZERO"),
        ("UPDATE t SET s = CAST(DATE(s) AS STRING)", "CAST_INVALID_INPUT"),
        (
            "UPDATE t SET i = DATE'2026-01-01'",
            "column 'i' is integer, the value is date, which can't be stored there; cast it",
        ),
        ("UPDATE t SET i = s", "column 'i' is integer, which can't hold the value x"),
        ("INSERT INTO t (i) VALUES ('5 apples')", "which can't hold the value 5 apples"),
        ("INSERT INTO t (d) SELECT '123.4'", "which can't hold the value 123.4"),
        ("INSERT INTO t (n) SELECT named_struct('a', '1')", "which can't be stored there; cast it"),
        ("UPDATE t SET i = explode(array(1, 2))", "for that row: it can't be"),
        ("UPDATE t SET d = 2, i = row_number() OVER (ORDER BY s)", "for that row: it can't be"),
        ("UPDATE t SET i = max(i)", "for that row: it can't be"),
        ("UPDATE t SET i = nope", "nope"),
        ("UPDATE t SET nope = 1", "there is no column 'nope'; the table has i, d, s, n"),
        ("UPDATE t SET n.z = 1", "there is no column 'n.z'"),
        ("UPDATE t SET n.a = 1, n = NULL", "assigned twice"),
        ("UPDATE t SET i = 1 WHERE s > 1 AND nope(i)", "nope"),
        ("DELETE FROM t WHERE missing = 1", "missing"),
        ("DELETE FROM t WHERE CAST(s AS INT) = 1", "CAST_INVALID_INPUT"),
        (
            (
                "MERGE INTO t USING (SELECT 1 i, 3000000000L v) s ON t.i = s.i"
                " WHEN MATCHED THEN UPDATE SET i = v"
            ),
            "column 'i' is integer, which can't hold the value 3000000000",
        ),
        (
            (
                "MERGE INTO t USING (SELECT 1 i, 'x' v) s ON t.i = s.i"
                " WHEN MATCHED THEN UPDATE SET i = v"
            ),
            "column 'i' is integer, which can't hold the value x",
        ),
        (
            (
                "MERGE INTO t USING (SELECT 1 i) s ON t.i = s.i"
                " WHEN MATCHED THEN UPDATE SET i = row_number() OVER (ORDER BY s.i)"
            ),
            "for that row: it can't be",
        ),
        (
            (
                "MERGE INTO t USING (SELECT 1 i) s ON t.i = s.i"
                " WHEN MATCHED AND count(*) OVER () > 1 THEN DELETE"
            ),
            "for that row: it can't be",
        ),
    ],
)
def test_statements_that_fail(tmp_path: Path, spark: SparkSession, sql: str, message: str) -> None:
    t = table(tmp_path / "t", spark, "i INT, d DECIMAL(3,1), s STRING, n STRUCT<a: INT>")
    t.run("INSERT INTO t (i, s) VALUES (1, 'x')")
    files = t.data_files()
    with pytest.raises(InvalidRequest, match=re.escape(message)) as caught:
        t.run(sql)
    assert str(caught.value).startswith("t: ")
    assert "spark.sql.ansi" not in str(caught.value)
    assert t.data_files() == files
    assert t.snapshot.version == 1


def test_values_are_converted(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "i INT, d DECIMAL(4,1), s STRING, t TIMESTAMP, a ARRAY<LONG>, n STRUCT<a: LONG, b: STRING>",
    )
    t.append(
        spark.sql(
            "SELECT 1.9D i, 12.25BD d, 7 s, DATE'2026-01-31' t, array(1) a, named_struct('b', 2) n"
        )
    )
    t.run("INSERT INTO t (i, d, s) VALUES (2, 12.25, 8)")
    seen = t.frame().selectExpr("i", "CAST(d AS STRING)", "s", "CAST(t AS STRING)", "a", "n")
    assert sorted(map(tuple, seen.collect())) == [
        (1, "12.3", "7", "2026-01-31 00:00:00", [1], (None, "2")),
        (2, "12.3", "8", None, None, None),
    ]


def test_text_of_a_value(tmp_path: Path, spark: SparkSession) -> None:
    """A text goes where its value would, as literals of dates and numbers are often written."""
    columns = "i INT, d DECIMAL(4,1), b BOOLEAN, day DATE, at TIMESTAMP, raw BINARY"
    t = table(tmp_path / "t", spark, columns)
    t.run(
        "INSERT INTO t VALUES"
        " ('1', '12.25', 'true', '2026-01-31', '2026-01-31 10:00:00', 'abc'),"
        " (NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    t.append(pa.table({"i": ["2", None], "day": ["2026-02-01", None]}))
    t.run("UPDATE t SET d = '-1', b = 'false' WHERE i = 2")
    t.run(
        "MERGE INTO t USING (SELECT '3' i, '2026-03-01' day) s ON t.i = s.i"
        " WHEN NOT MATCHED THEN INSERT (i, day) VALUES (s.i, s.day)"
    )
    seen = (
        t.frame()
        .where("i IS NOT NULL")
        .selectExpr(
            "i", "CAST(d AS STRING)", "b", "CAST(day AS STRING)", "CAST(at AS STRING)", "raw"
        )
    )
    assert sorted(map(tuple, seen.collect())) == [
        (1, "12.3", True, "2026-01-31", "2026-01-31 10:00:00", b"abc"),
        (2, "-1.0", False, "2026-02-01", None, None),
        (3, None, None, "2026-03-01", None, None),
    ]
    assert t.frame().count() == 5


@pytest.mark.parametrize(
    ("source", "target", "reads"),
    [
        ("string", "integer", True),
        ("varchar(3)", "decimal(5,2)", True),
        ("string", "boolean", True),
        ("char(10)", "date", True),
        ("string", "timestamp_ntz", True),
        ("string", "binary", True),
        ("string", "string", False),
        ("string", "void", False),
        ("integer", "string", False),
        ("boolean", "integer", False),
    ],
)
def test_which_values_are_read_from_text(source: str, target: str, reads: bool) -> None:
    assert reads_text(_type(source), _type(target)) is reads
    assert not reads_text(Array(_type(source)), Array(_type(target)))


SIMPLE = (
    *("byte", "short", "integer", "long", "float", "double", "decimal(10,2)", "boolean"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)


def test_a_column_takes_what_spark_casts(spark: SparkSession) -> None:
    """Delta Spark casts whatever Spark's ANSI cast does."""
    for source in SIMPLE:
        for target in SIMPLE:
            types = _type(source), _type(target)
            taken = can_store(*types) or reads_text(*types) or is_converted(*types)
            names = {"byte": "tinyint", "short": "smallint", "long": "bigint"}
            one, other = (names.get(name, name) for name in (source, target))
            try:
                _ = spark.sql(f"SELECT CAST(CAST(NULL AS {one}) AS {other})").schema
                casts = True
            except AnalysisException:
                casts = False
            assert taken is casts, (source, target)


def test_values_that_are_cast(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i TINYINT, b BOOLEAN, at TIMESTAMP, s STRING")
    t.run("INSERT INTO t VALUES (true, 2, 86400, X'6162')")
    assert [(row.i, row.b, str(row.at), row.s) for row in t.frame().collect()] == [
        (1, True, "1970-01-02 00:00:00", "ab")
    ]
    t.run("UPDATE t SET i = TIMESTAMP'1970-01-01 00:00:07', b = 0, s = X'63'")
    t.run(
        "MERGE INTO t USING (SELECT 7 AS k, false AS n) s ON t.i = s.k "
        "WHEN MATCHED THEN UPDATE SET i = n, b = k"
    )
    assert [(row.i, row.b, row.s) for row in t.frame().collect()] == [(0, True, "c")]
    with pytest.raises(InvalidRequest, match=r"byte, which can't hold the value 1970-01-02"):
        t.run("UPDATE t SET i = at")


def test_lists_maps_and_structs_as_text(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "i INT, s STRING, n STRUCT<a: INT, b: STRING>")
    t.run("INSERT INTO t (i, s) SELECT 1, array(1, NULL)")
    t.run("INSERT INTO t (i, s) SELECT 2, map('a', array(2))")
    t.run("INSERT INTO t SELECT 3, n, n FROM (SELECT named_struct('a', 1, 'b', 'x') n)")
    t.run("UPDATE t SET s = array(i) WHERE i = 1")
    t.run(
        "MERGE INTO t USING (SELECT 4 i, array('y') s) s ON t.i = s.i "
        "WHEN NOT MATCHED THEN INSERT (i, s) VALUES (s.i, s.s)"
    )
    seen = [(row.i, row.s) for row in t.frame().orderBy("i").collect()]
    assert seen == [(1, "[1]"), (2, "{a -> [2]}"), (3, "{1, x}"), (4, "[y]")]
    with pytest.raises(InvalidRequest, match="which can't be stored there"):
        t.run("UPDATE t SET n = s")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (v) SELECT 1 WHERE false",
        "INSERT INTO t BY NAME SELECT 1 AS v WHERE false",
        "INSERT INTO t (id, v) VALUES (DEFAULT, 1)",
        "INSERT INTO t (id, v) VALUES (DEFAULT, 1 + 1)",
        "UPDATE t SET id = DEFAULT WHERE false",
        "UPDATE t SET id = DEFAULT",
    ],
)
def test_a_value_that_must_be_given(tmp_path: Path, spark: SparkSession, sql: str) -> None:
    """Whatever rows there are."""
    t = table(tmp_path / "t", spark, "id INT NOT NULL, v INT, d INT NOT NULL DEFAULT 7")
    with pytest.raises(InvalidRequest, match=r"NOT NULL of column 'id' .* no value is given"):
        t.run(sql)
    assert t.snapshot.version == 0
    with pytest.raises(InvalidRequest, match="no value is given"):
        t.append(pa.table({"v": pa.array([], pa.int32())}))
    t.run("INSERT INTO t (id) VALUES (1)")
    assert t.rows() == [(1, None, 7)]


def test_a_field_has_no_default(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT, n STRUCT<a: INT>")
    with pytest.raises(InvalidRequest, match=r"n\.a is a field of a struct, which has no DEFAULT"):
        t.run("UPDATE t SET n.a = DEFAULT")
