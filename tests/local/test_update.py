"""New images that the driver writes are those that Spark writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.tables import PathTable, table
from txlake.errors import InvalidRequest
from txlake.local import update as local_update
from txlake.local.writing import WriteResult
from txlake.log.values import compute, parse_value
from txlake.spark import dml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id INT, b BYTE, h SHORT, i INT, l LONG, f FLOAT, x DOUBLE, o BOOLEAN, s STRING, d DATE,"
    " e DECIMAL(20, 3), t TIMESTAMP, n TIMESTAMP_NTZ, y BINARY, p STRING"
)
ROWS = """
(1, 1Y, 2S, 3, 4L, 1.5F, 2.5D, true, 'a', DATE'2026-01-31', 12.345, TIMESTAMP'2026-01-31 12:00:00',
 TIMESTAMP_NTZ'2026-01-31 12:00:00', X'00FF', 'p'),
(2, -128Y, -32768S, -2147483648, -9223372036854775808L, float('-0.0'), double('-Infinity'), false,
 '', DATE'0001-01-01', -99999999999999999.999, TIMESTAMP'1900-01-01 00:00:00Z',
 TIMESTAMP_NTZ'0001-01-01 00:00:00', X'', 'q'),
(3, 127Y, 32767S, 2147483647, 9223372036854775807L, float('NaN'), double('NaN'), NULL, 'ü😀',
 DATE'9999-12-31', 0.001, TIMESTAMP'9999-12-31 23:59:59.999999Z', NULL, NULL, NULL),
(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'p'),
(5, 0Y, 0S, 0, 9007199254740993L, 16777217F, 0.1D, true, 'x', DATE'2000-02-29', 0.700,
 TIMESTAMP'2026-07-01 12:00:00', TIMESTAMP_NTZ'2026-07-01 12:00:00', X'61', 'p')
"""
VALUES = (
    *("b", "h", "i", "l", "f", "x", "o", "s", "d", "e", "t", "n", "y", "p"),
    *("0", "-1", "32768", "2147483648", "-9223372036854775808", "0.7", "1e-3", "NULL", "TRUE"),
    *("'text'", "''", "DATE'2026-01-31'", "CAST(1 AS DOUBLE)", "-2.5D", "2.5D"),
    *("b + 1", "b + b", "h - b", "i * 2", "l + 1", "1 - i", "-l", "-(b)", "i + l", "- -i"),
    *("x + 1", "x * i", "x - l", "x / 3", "i / 7", "l / b", "1 / x", "x * 1.1", "e * x", "-x"),
    *("s || 'b'", "s || p || s", "'a' || 'b'", "(i + 1) * 2 - h", "2 * (x + i) / 4"),
)
TARGETS = ("b", "h", "i", "l", "f", "x", "o", "s", "d", "e", "t", "n", "y", "p")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> PathTable:
    made = table(tmp_path_factory.mktemp("images") / "t", spark, COLUMNS, partitioned_by="p")
    made.run(f"INSERT INTO t VALUES {ROWS}")
    return made


@pytest.fixture(
    params=["true", pytest.param("false", marks=pytest.mark.broad)], ids=["ansi", "not ansi"]
)
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


@pytest.mark.broad(keep=1)
@pytest.mark.no_interop("the table doesn't change")
def test_values_are_those_of_spark(full: PathTable, spark: SparkSession, ansi: None) -> None:
    """Each row on its own: what fails for one of them is left to Spark for all."""
    frame = full.frame().orderBy("id")
    rows = frame.toArrow()
    computed_count = 0
    for text in VALUES:
        value = parse_value(text, aliases=())
        assert value is not None, text
        here = [compute(value, rows.slice(place, 1), full.snapshot.schema) for place in range(5)]
        for place, found in enumerate(here):
            if found is not None:
                theirs = frame.where(f"id = {place + 1}").selectExpr(f"{text} AS v").toArrow()["v"]
                assert found.type == theirs.type, text
                assert str(found[0]) == str(theirs[0]), (text, place)
                computed_count += 1
    assert computed_count > 180


@pytest.fixture
def by_whom(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each UPDATE that looked at rows, whether this process made their images."""
    noted: list[bool] = []
    write = local_update.write_images

    def write_images(*arguments: object) -> WriteResult:
        noted.append(False)
        made = write(*arguments)  # type: ignore[arg-type]
        noted[-1] = True
        return made

    monkeypatch.setattr(dml, "write_images", write_images)
    return noted


@pytest.mark.parametrize("features", ["none", "row tracking"])
def test_rows_are_updated_without_spark(
    tmp_path: Path, spark: SparkSession, by_whom: list[bool], features: str
) -> None:
    properties = {"delta.enableRowTracking": "true"} if features == "row tracking" else {}
    t = table(tmp_path / "t", spark, COLUMNS, partitioned_by="p", properties=properties)
    t.run(f"INSERT INTO t VALUES {ROWS}")
    t.run("UPDATE t SET i = i + 1, x = 0.7, s = s || '!', p = 'r', d = NULL WHERE id = 1")
    t.run("UPDATE t SET o = TRUE WHERE id = 4 AND i = 0")
    assert by_whom == [True, True]
    [row] = t.frame().where("id = 1").collect()
    assert (row.i, row.x, row.s, row.p, row.d, row.l) == (4, 0.7, "a!", "r", None, 4)
    assert t.frame().count() == 5


def test_what_spark_has_to_do_it_does(
    tmp_path: Path, spark: SparkSession, by_whom: list[bool]
) -> None:
    t = table(tmp_path / "t", spark, "id INT, i INT NOT NULL, s STRING, v STRUCT<a: INT>")
    t.run("INSERT INTO t VALUES (1, 2147483647, 'a', named_struct('a', 1))")
    for statement, said in (
        ("UPDATE t SET i = i + 1 WHERE id = 1", "overflow"),
        ("UPDATE t SET i = NULL WHERE id = 1", "NOT NULL of column 'i' is violated by the row"),
        ("UPDATE t SET i = 2147483648 WHERE id = 1", "can't hold the value"),
        ("UPDATE t SET i = TRUE || 'x' WHERE id = 1", "can't be stored|CAST_INVALID|can't hold"),
        ("UPDATE t SET i = gone WHERE id = 1", "gone"),
    ):
        with pytest.raises(InvalidRequest, match=f"(?i){said}"):
            t.run(statement)
    t.run("UPDATE t SET v.a = 2 WHERE id = 1")
    t.run("UPDATE t SET s = upper(s) WHERE id = 1")
    t.run("UPDATE t SET s = id WHERE id = 1")
    assert not any(by_whom)
    assert [tuple(row) for row in t.frame().collect()] == [(1, 2147483647, "1", (2,))]


def test_a_value_of_another_type_is_refused(
    tmp_path: Path, spark: SparkSession, by_whom: list[bool]
) -> None:
    t = table(tmp_path / "t", spark, "id INT, d DATE")
    t.run("INSERT INTO t VALUES (1, DATE'2026-01-31')")
    with pytest.raises(InvalidRequest, match=r"column 'd' is date, the value is integer"):
        t.run("UPDATE t SET d = 7 WHERE id = 1")
    with pytest.raises(InvalidRequest, match=r"column 'd' is date, the value is integer"):
        t.run("UPDATE t SET d = id + 7 WHERE id > 1")


def test_rules_of_the_table_are_sparks(
    tmp_path: Path, spark: SparkSession, by_whom: list[bool]
) -> None:
    t = table(tmp_path / "t", spark, "id INT, i INT", properties={"delta.constraints.c": "i < 5"})
    t.run("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(InvalidRequest, match="CHECK constraint c"):
        t.run("UPDATE t SET i = 7 WHERE id = 1")
    t.run("UPDATE t SET i = 4 WHERE id = 1")
    assert by_whom == []
