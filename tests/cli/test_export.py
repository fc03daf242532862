"""`--format csv` and `--format parquet`: the rows of one query, alone on standard output."""

from __future__ import annotations

import datetime
import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from tests.cli.fakes import rows
from txlake.cli import app as app_module
from txlake.cli.app import app
from txlake.cli.export import ExportOutput, csv_file, parquet_file
from txlake.errors import InvalidRequest
from txlake.session.views.results import Column, Result, frame_result
from txlake.sql import parse_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 250, datetime.UTC)


def of(*types: tuple[str, str], values: list[tuple[object, ...]]) -> Result:
    """Rows of columns with Spark's JSON types."""
    columns = tuple(Column(name, kind, kind) for name, kind in types)
    return Result(columns=columns, rows=values, total=len(values))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", '""'),
        ("plain", "plain"),
        ("a,b", '"a,b"'),
        ('say "no"', '"say ""no"""'),
        ("two\nlines", '"two\nlines"'),
        (" padded", '" padded"'),
        ("NULL", "NULL"),
        (True, "true"),
        (-5, "-5"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (Decimal("1E+3"), "1000"),
        (b"\xff", "/w=="),
        (NOON, "2026-01-31T12:00:00.000250+00:00"),
        (datetime.date(2026, 1, 31), "2026-01-31"),
        ([1, None], '"[1, null]"'),
        ({"a": "ä"}, '"{""a"": ""ä""}"'),
    ],
)
def test_csv_values(value: object, text: str) -> None:
    assert csv_file(of(("v", "string"), values=[(value,)])).decode() == f"v\n{text}\n"


def test_csv_has_a_line_of_names_where_there_is_no_row() -> None:
    assert csv_file(of(("a", "string"), ("b, c", "string"), values=[])) == b'a,"b, c"\n'


QUERY = """\
SELECT CAST(1 AS TINYINT) AS t, 2 AS i, 3L AS l, CAST(0.5 AS FLOAT) AS f, 1.25 AS d, 'ä' AS s,
  X'FF' AS b, true AS o, DATE'2026-01-31' AS day, TIMESTAMP'2026-01-31 12:00:00.00025Z' AS ts,
  TIMESTAMP_NTZ'2026-01-31 12:00:00' AS n, array(1, NULL) AS a, map('k', array(1)) AS m,
  map(1, 'x') AS mi, struct(1 AS u, struct(NULL AS w) AS v) AS st, CAST(NULL AS INT) AS nothing
"""


def test_parquet_has_sparks_types_and_values(spark: SparkSession) -> None:
    table = pq.read_table(io.BytesIO(parquet_file(frame_result(spark.sql(QUERY)))))
    theirs = spark.sql(QUERY).toArrow()
    assert table.column_names == theirs.column_names
    for name in table.column_names:
        if name not in {"ts", "st"}:
            assert table.schema.field(name).type == theirs.schema.field(name).type, name
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.to_pylist() == theirs.to_pylist()


def test_parquet_of_no_rows_keeps_the_types(spark: SparkSession) -> None:
    table = pq.read_table(io.BytesIO(parquet_file(frame_result(spark.range(0)))))
    assert (table.num_rows, table.schema.field("id").type) == (0, pa.int64())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT parse_json('{\"a\": 1}') AS v",
        "SELECT array(parse_json('1')) AS v",
        "SELECT INTERVAL '1' DAY AS v",
        "SELECT struct(1 AS a, 2 AS a) AS v",
    ],
)
def test_parquet_refuses_what_it_would_lose(spark: SparkSession, query: str) -> None:
    with pytest.raises(InvalidRequest, match=r"column 'v' is .*; cast it in the query"):
        parquet_file(frame_result(spark.sql(query)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INSERT INTO t VALUES (1)", "none;"),
        ("SELECT 1; SELECT 2", r"2 \(lines 1, 1\)"),
        ("BEGIN ATOMIC SELECT 1; END", "none;"),
        ("", "none;"),
    ],
)
def test_a_script_without_just_one_query_is_refused(text: str, found: str) -> None:
    with pytest.raises(InvalidRequest, match=f"rows of one query, and the script has {found}"):
        ExportOutput("csv").check(parse_script(text))


@pytest.mark.parametrize("query", ["VALUES (1)", "SHOW TABLES", "DESCRIBE HISTORY t"])
def test_what_counts_as_a_query(query: str) -> None:
    ExportOutput("parquet").check(parse_script(f"USE sales; {query}; DELETE FROM t"))


def test_other_answers_are_notes() -> None:
    out, err = io.BytesIO(), io.StringIO()
    output = ExportOutput("csv", out, err)
    first, second, third, query = parse_script("USE a;\nDELETE FROM t;\nVACUUM t;\nSELECT 1")
    output.answer(Result(columns=(), rows=(), total=0), first, 0)
    output.answer(rows(3, name="num_affected_rows"), second, 0)
    output.answer(rows(1, 2, total=2000), third, 0)
    output.answer(rows(7), query, 0)
    assert out.getvalue() == b""
    output.write()
    assert out.getvalue() == b"v\n7\n"
    assert err.getvalue() == "line 1: OK\nline 2: num_affected_rows 3\nline 3: 2,000 rows\n"


@pytest.fixture
def runner(tmp_path: Path, spark: SparkSession) -> CliRunner:
    spark.range(0)  # the commands take the active session
    return CliRunner(env={"TXLAKE_LAKE": str(tmp_path / "warehouse")})


def test_the_command_writes_one_file(runner: CliRunner) -> None:
    text = "CREATE TABLE t (id INT, s STRING); INSERT INTO t VALUES (1, 'a'), (2, NULL); {}"
    done = runner.invoke(app, ["sql", "--format", "csv", text.format("TABLE t ORDER BY id")])
    assert (done.exit_code, done.stdout) == (0, "id,s\n1,a\n2,\n")
    assert done.stderr.startswith("line 1: OK\nline 1: num_affected_rows 2")
    done = runner.invoke(app, ["sql", "--format", "parquet", "SELECT * FROM t ORDER BY id"])
    table = pq.read_table(io.BytesIO(done.stdout_bytes))
    assert table.to_pylist() == [{"id": 1, "s": "a"}, {"id": 2, "s": None}]
    done = runner.invoke(app, ["sql", "--format", "table", "SELECT count(*) AS n FROM t"])
    assert "| 2 |" in done.stdout
    done = runner.invoke(app, ["sql", "--format", "json", "SELECT count(*) AS n FROM t"])
    assert json.loads(done.stdout)["rows"] == [{"n": 2}]


def test_nothing_is_written_unless_the_whole_script_succeeds(runner: CliRunner) -> None:
    done = runner.invoke(app, ["sql", "--format", "csv", "SELECT 1 AS one; DROP TABLE nope"])
    assert (done.exit_code, done.stdout) == (6, "")
    assert "InvalidRequest (line 1): " in done.stderr
    done = runner.invoke(app, ["sql", "--format", "csv", "CREATE TABLE t (id INT)"])
    assert (done.exit_code, done.stdout) == (6, "")
    done = runner.invoke(app, ["sql", "SHOW TABLES"])
    assert "0 rows" in done.stdout


def test_wrong_usage(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, said in (
        (["--json", "--format", "csv", "SELECT 1"], "--json is --format json"),
        (["--format", "xml", "SELECT 1"], "'xml' is not one of"),
    ):
        done = runner.invoke(app, ["sql", *arguments])
        assert done.exit_code == 2
        assert said in " ".join(done.stderr.replace("│", " ").split())
    monkeypatch.setattr(app_module, "_script_text", lambda *_: None)
    done = runner.invoke(app, ["sql", "--format", "csv"])
    assert (done.exit_code, "SQL that is given" in done.stderr) == (2, True)


def test_parquet_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(typer.BadParameter, match="not for a terminal"):
        app_module._output_for("parquet", as_json=False, rows=0)
