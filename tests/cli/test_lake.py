"""The command line on a real lake: values, retries that double nothing, histories without Spark."""

from __future__ import annotations

import datetime
import io
import json
import re
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version
from typer.testing import CliRunner

from tests.catalog.ledgers import living
from tests.cli.fakes import FakeSystem
from txlake.cli import lakes
from txlake.cli.app import app
from txlake.cli.output import JsonOutput
from txlake.cli.scripts import ScriptRunner
from txlake.cli.worker import LakeWorker, SessionState
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import ConcurrentAppendException, Evidence, InvalidRequest
from txlake.lake.lake import Lake, LakeSession, open_session
from txlake.protocol.types import Array, Field, Map, Primitive, Struct
from txlake.session.command import AsRows
from txlake.session.views import VIEWS
from txlake.session.views.describe import Rows
from txlake.session.views.results import Column, Result, frame_result, rows_result
from txlake.spark.types import spark_schema
from txlake.sql import parse_script


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def lake(warehouse: str, spark: SparkSession) -> Iterator[Lake]:
    with Lake(open_session(warehouse, make_spark=lambda: spark)) as opened:
        yield opened


def worker_on(lake: Lake) -> LakeWorker:
    return LakeWorker(lake, lake._session)


def ids(lake: LakeSession, table: str = "t") -> list[int]:
    return sorted(row["id"] for row in lake.read(table).collect())


def test_values_of_every_kind(spark: SparkSession) -> None:
    frame = spark.sql(
        """SELECT 1 AS id, 'a' AS id, 2 AS id, 3 AS id_2, CAST(1.50 AS DECIMAL(10, 2)) AS price,
        TIMESTAMP '2026-07-01 12:00:00+02:00' AS at, TIMESTAMP_NTZ '2026-07-01 12:00:00' AS local,
        DATE '2026-07-01' AS day, X'01FF' AS raw, array(TIMESTAMP '2026-07-01 10:00:00Z') AS times,
        map('k', named_struct('x', 1, 'y', X'02')) AS found, map(1, 'one') AS numbered,
        CAST(NULL AS INT) AS nothing, parse_json('{"a": [1]}') AS variant"""
    )
    made = frame_result(frame)
    assert made.columns[:4] == (
        Column("id", "int", '"integer"'),
        Column("id_3", "string", '"string"'),
        Column("id_4", "int", '"integer"'),
        Column("id_2", "int", '"integer"'),
    )
    out = io.StringIO()
    JsonOutput(out, io.StringIO()).listing(made)
    assert json.loads(out.getvalue()) == {
        "id": 1,
        "id_3": "a",
        "id_4": 2,
        "id_2": 3,
        "price": "1.50",
        "at": "2026-07-01T10:00:00+00:00",
        "local": "2026-07-01T12:00:00",
        "day": "2026-07-01",
        "raw": "Af8=",
        "times": ["2026-07-01T10:00:00+00:00"],
        "found": {"k": {"x": 1, "y": "Ag=="}},
        "numbered": [{"key": 1, "value": "one"}],
        "nothing": None,
        "variant": {"a": [1]},
    }


def test_a_long_result_is_cut_and_counted(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id FROM range(10) ORDER BY id DESC")
    assert frame_result(frame, 2) == Result(
        columns=(Column("id", "bigint", '"long"'),), rows=[(9,), (8,)], total=10
    )
    assert frame_result(frame, 10).total == len(frame_result(frame, 10).rows) == 10
    assert len(frame_result(frame).rows) == 10
    assert frame_result(frame.select()) == Result(columns=(), rows=(), total=0)


WITHOUT_SPARK = """
CREATE DATABASE shop;
CREATE TABLE shop.t (id INT, n BIGINT, at TIMESTAMP, name STRING);
INSERT INTO shop.t VALUES (1, 1, NULL, 'a'), (2, 2, TIMESTAMP'2026-01-31 12:00:00Z', 'b');
UPDATE shop.t SET n = n + 1, name = name || '!' WHERE id = 1;
DELETE FROM shop.t WHERE id = 2 AND name LIKE 'b%';
UPDATE shop.t SET n = 7, name = 'of nobody' WHERE id > 2 AND name IS NOT NULL;
BEGIN; INSERT INTO shop.t VALUES (3, 3, NULL, 'c'); UPDATE shop.t SET n = 0 WHERE id = 3; COMMIT;
BEGIN; DELETE FROM shop.t; ROLLBACK;
ALTER TABLE shop.t ADD COLUMN more INT;
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SHOW DATABASES; SHOW TABLES IN shop; DESCRIBE shop.t; DESCRIBE DETAIL shop.t;
DESCRIBE HISTORY shop.t; SHOW TBLPROPERTIES shop.t; SHOW CREATE TABLE shop.t;
USE shop; TRUNCATE TABLE t; DROP TABLE t; SHOW TABLES DROPPED; UNDROP TABLE t
"""


def test_what_asks_for_no_query_starts_no_spark(warehouse: str, spark: SparkSession) -> None:
    def no_spark() -> SparkSession:
        raise AssertionError("Spark was started")

    with Lake(open_session(warehouse, make_spark=no_spark)) as opened:
        worker = worker_on(opened)
        told = {piece.text: worker.run(piece.text, None) for piece in parse_script(WITHOUT_SPARK)}
        assert not opened._session.engine.plane.is_started
    assert [row for text, one in told.items() if "UPDATE" in text for row in one.rows] == [
        (1,),
        (0,),
        (1,),
    ]
    assert told["DESCRIBE shop.t"].rows[1] == ("n", "bigint", None)
    with Lake(open_session(warehouse, make_spark=lambda: spark)) as opened:
        session = opened._session
        for text in ("SHOW DATABASES", "DESCRIBE DETAIL shop.t", "DESCRIBE HISTORY shop.t"):
            worker = worker_on(opened)
            assert worker.run(text, None) == frame_result(opened.sql(text)), text
        assert session.engine.plane.is_started


def test_rows_that_no_query_gave_are_as_plain_as_others(spark: SparkSession) -> None:
    point = Struct((Field("x", Primitive("long")),))
    schema = Struct(
        (
            Field("p", point),
            Field("l", Array(point, True)),
            Field("m", Map(Primitive("string"), point, True)),
            Field("k", Map(Primitive("long"), Primitive("string"), True)),
            Field("k", Primitive("decimal(5,2)")),
            Field("at", Primitive("timestamp")),
        )
    )
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    row = ((1,), [(2,), None], {"a": (3,)}, {4: "b"}, Decimal("1.50"), at)
    rows = [row, (None,) * 6, row]
    answer = Rows(schema=schema, rows=rows)
    frame = spark.createDataFrame(rows, spark_schema(schema))
    assert rows_result(answer) == frame_result(frame)
    assert rows_result(answer, 2) == frame_result(frame, 2)
    assert rows_result(AsRows().nothing()) == frame_result(frame.select())


def test_branches_as_the_command_line_sees_them(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "quiet_spark", started)
    assert txlake("sql", "-l", warehouse, "CREATE TABLE t (id INT); CREATE BRANCH `a/1`")[0] == 0
    change = "USE BRANCH `a/1`; INSERT INTO t VALUES (1); CREATE TAG old"
    assert txlake("sql", "-l", warehouse, change)[0] == 0
    code, out, _ = txlake("branches", "-l", warehouse, "--json")
    assert code == 0
    first, second = map(json.loads, out.splitlines())
    assert set(first) == set(VIEWS["txlake.branches"].schema.names)
    assert (first["name"], first["versions"]) == ("a/1", 1)
    assert (second["name"], second["kind"], second["parent"]) == ("old", "tag", "a/1")
    assert first["size_in_bytes"] == second["size_in_bytes"] == 0, "both keep the file"
    assert txlake("sql", "-l", warehouse, "DROP TAG old")[0] == 0
    _, out, _ = txlake("branches", "-l", warehouse, "--json")
    assert json.loads(out)["size_in_bytes"] > 0


def test_a_session_as_the_command_line_sees_it(lake: Lake) -> None:
    worker = worker_on(lake)
    assert worker.state() == SessionState(database="default", isolation="write_serializable")
    worker.run("CREATE TABLE t (id INT)", None)
    worker.run("CREATE DATABASE sales ISOLATION LEVEL SERIALIZABLE", None)
    worker.run("USE sales", None)
    worker.run("CREATE TABLE orders (id INT)", None)
    assert worker.names() == ["default", "default.t", "orders", "sales", "sales.orders"]
    worker.run("BEGIN READ ONLY", None)
    standing = worker.state()
    assert (standing.database, standing.isolation) == ("sales", "serializable")
    assert standing.transaction is not None
    assert (standing.failed, standing.read_only) == (False, True)
    assert worker.rollback()
    assert not worker.rollback()
    worker.use("default")
    worker.run("BEGIN ISOLATION LEVEL SNAPSHOT", None)
    worker.parse_failed(InvalidRequest("what is this?"))
    standing = worker.state()
    assert (standing.database, standing.isolation, standing.failed) == ("default", "snapshot", True)
    assert worker.rollback()


def test_a_query_that_fails_while_its_rows_are_read_fails_the_transaction(lake: Lake) -> None:
    worker = worker_on(lake)
    worker.run("CREATE TABLE t (id INT)", None)
    worker.run("INSERT INTO t VALUES (0)", None)
    worker.run("BEGIN", None)
    with pytest.raises(InvalidRequest, match="DIVIDE_BY_ZERO"):
        worker.run("SELECT 1 / id FROM t", None)
    assert worker.state().failed
    assert worker.rollback()


class Overtaken(LakeWorker):
    """A worker that another session overtakes before its first `times` COMMITs."""

    def __init__(self, lake: Lake, sql: str, times: int) -> None:
        super().__init__(lake, lake._session)
        self._other = lake.session()
        self._sql, self._times = sql, times

    def run(self, text: str, rows_max: int | None) -> Result:
        if text == "COMMIT" and self._times:
            self._times -= 1
            self._other.sql(self._sql)
        return super().run(text, rows_max)


def test_a_retried_script_adds_every_row_once(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INT); CREATE TABLE done (id INT); INSERT INTO t VALUES (1)")
    worker = Overtaken(lake, "INSERT INTO t SELECT max(id) + 10 FROM t", times=2)
    out, err = io.StringIO(), io.StringIO()
    runner = ScriptRunner(
        worker=worker, output=JsonOutput(out, err), system=FakeSystem(), retries=2
    )
    runner.run_script(
        parse_script(
            "INSERT INTO done VALUES (7);\n"
            "BEGIN ISOLATION LEVEL SERIALIZABLE;\n"
            "SELECT max(id) AS newest FROM t; INSERT INTO t SELECT max(id) + 1 FROM t; COMMIT;\n"
            "INSERT INTO done VALUES (8)"
        )
    )
    assert ids(lake) == [1, 11, 21, 22]
    assert ids(lake, "done") == [7, 8]
    assert err.getvalue().count("run again from line 2") == 2
    read = [answer for answer in map(json.loads, out.getvalue().splitlines()) if answer["columns"]]
    assert next(answer["rows"] for answer in read if answer["line"] == 3) == [{"newest": 21}]


def txlake(*arguments: str, text: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_script_from_end_to_end(spark: SparkSession, warehouse: str) -> None:
    create = "CREATE TABLE t (id INT, name STRING); INSERT INTO t VALUES (1, 'a'), (2, NULL);"
    code, out, err = txlake("sql", "-l", warehouse, text=f"{create} SELECT * FROM t ORDER BY id")
    assert (code, err) == (0, "")
    assert "|  1 | a    |\n|  2 | NULL |" in out
    code, out, err = txlake("sql", "-l", warehouse, "BEGIN; DELETE FROM t", "--json")
    assert code == 6
    assert "ends inside a transaction" in err
    code, out, err = txlake("sql", "-l", warehouse, "SELECT count(*) AS n FROM t", "--json")
    assert json.loads(out)["rows"] == [{"n": 2}]


def test_what_pyspark_says_of_pandas_3_is_no_message(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pd, "__version__", "3.0.0")
    with warnings.catch_warnings(record=True) as before:
        warnings.resetwarnings()
        require_minimum_pandas_version()
    with warnings.catch_warnings(record=True) as after:
        warnings.resetwarnings()
        assert lakes.quiet_spark() is spark
        require_minimum_pandas_version()
    assert ([one.category for one in before], after) == ([FutureWarning], [])


def test_a_history_starts_no_spark(
    lake: Lake, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1); DELETE FROM t")

    monkeypatch.setattr(lakes, "quiet_spark", started)
    for arguments in (["t", "-l", warehouse], [f"{warehouse}/t"]):
        code, out, _ = txlake("history", *arguments, "--json")
        assert code == 0
        commits = [json.loads(line) for line in out.splitlines()]
        assert [one["operation"] for one in commits] == ["DELETE", "WRITE", "CREATE TABLE"]
        assert commits[0]["timestamp"].endswith("+00:00")
        assert set(commits[0]) == set(lakes.HISTORY)
        code, out, _ = txlake("history", *arguments, "-n", "1")
        assert code == 0
        assert out.splitlines()[-1] == "1 row"
    code, _, err = txlake("history", "nope", "-l", warehouse)
    assert (code, err.count("InvalidRequest: there is no table 'nope'")) == (6, 1)
    code, _, err = txlake("history", f"{warehouse}/nope")
    assert (code, err.count("InvalidRequest")) == (6, 1)


def test_a_transaction_of_any_process_is_listed_and_ended(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "quiet_spark", started)
    place = lakes.ConnectionSettings(location=warehouse)
    with lakes.open_lake(place) as (_, own):
        catalog = own.engine.catalog.of_lake()
        session = catalog.sessions.open()
        first = catalog.transactions.begin("one", session, isolation="snapshot", read_only=True)
        catalog.transactions.begin("two", session)
        catalog.transactions.begin("a statement's own", session, explicit=False)
        code, out, _ = txlake("transactions", "-l", warehouse, "--json")
        assert code == 0
        one, two = map(json.loads, out.splitlines())
        assert set(one) == set(VIEWS["txlake.transactions"].schema.names)
        assert (one["transaction_id"], one["number"], one["session_id"]) == ("one", first, session)
        assert (one["isolation"], one["read_only"], one["state"]) == ("snapshot", True, "active")
        assert one["transaction_begin_time"].endswith("+00:00")
        assert two["transaction_id"] == "two"
        assert txlake("transactions", "-l", warehouse, "--kill", str(first))[0] == 0
        assert living(catalog.transactions) == {"two", "a statement's own"}
        code, _, err = txlake("transactions", "-l", warehouse, "--kill", "one")
        assert code == 6
        assert "no open transaction 'one'; there are: two\n" in err
        assert txlake("transactions", "-l", warehouse, "--kill", "two")[0] == 0
        assert "two" not in living(catalog.transactions)


def started() -> None:
    """In the place of what starts Spark where it must not be started."""
    raise AssertionError("Spark was started")


def test_locks_and_conflicts_of_any_process_are_listed(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "quiet_spark", started)
    table = Resource(type=ResourceType.OBJECT, database=1, entity=7)
    evidence = Evidence(table="t", read_version=1, winning_version=2, winning_timestamp_ms=500)
    with lakes.open_lake(lakes.ConnectionSettings(location=warehouse)) as (_, own):
        catalog = own.engine.catalog.of_lake()
        session = catalog.sessions.open()
        catalog.transactions.begin("one", session)
        request = LockRequest(resource=table, mode=LockMode.IX)
        catalog.locks.acquire(session, "one", [request], 0)
        catalog.journal.record("one", session, ConcurrentAppendException("lost", evidence))
        code, out, _ = txlake("locks", "-l", warehouse, "--json")
        assert code == 0
        lock = json.loads(out)
        assert (lock["request_mode"], lock["request_status"]) == ("IX", "GRANT")
        assert lock["resource_associated_entity_id"] == 7
        code, out, _ = txlake("conflicts", "-l", warehouse, "--json")
        assert code == 0
        conflict = json.loads(out)
        assert (conflict["error"], conflict["table"]) == ("ConcurrentAppendException", "t")
        assert conflict["winning_time"] == "1970-01-01T00:00:00.500000+00:00"
        assert "| IX " in txlake("locks", "-l", warehouse)[1]
        assert "ConcurrentAppendException" in txlake("conflicts", "-l", warehouse)[1]


def test_a_lake_where_nothing_goes_on(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "quiet_spark", started)
    assert txlake("sql", "-l", warehouse, "SHOW TABLES")[0] == 0
    for command in ("locks", "transactions", "conflicts", "branches"):
        assert txlake(command, "-l", warehouse, "--json") == (0, "", "")
        assert txlake(command, "-l", warehouse)[1] == "0 rows\n"
    code, _, err = txlake("transactions", "--kill", "nope", "-l", warehouse)
    assert code == 6
    assert "no open transaction 'nope'; there are: none" in err


@pytest.mark.parametrize(
    "command",
    [
        *("locks", "transactions", "transactions --kill 1", "conflicts", "branches"),
        *("history t", "console -p 0"),
    ],
)
def test_who_only_looks_makes_no_lake_at_a_mistyped_place(
    command: str, warehouse: str, tmp_path: Path
) -> None:
    code, _, err = txlake(*command.replace("-p", "--port").split(), "--lake", warehouse)
    assert code == 6
    assert f"no lake at file://{warehouse}, which has no _txlake/lake.json" in err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_place_is_not_recovered(warehouse: str, tmp_path: Path) -> None:
    code, _, err = txlake("recover", "--lake", warehouse)
    assert code == 6
    assert f"no lake at file://{warehouse}, which holds no file; name" in err
    assert list(tmp_path.iterdir()) == []
    assert txlake("sql", "--lake", warehouse, "CREATE TABLE t (id INT)")[0] == 0
    for file in Path(warehouse, "_txlake").iterdir():
        file.unlink()
    marked = Path(warehouse, "_txlake", "lake.json")
    told = txlake("recover", "--lake", warehouse, "--json")[1]
    [found] = re.findall(r"its marker was lost, write (\{.*?\}) into", json.loads(told)["what"])
    Path(warehouse, "_txlake", "catalog.db").unlink()
    marked.write_text(found)
    assert "default.t" in txlake("recover", "--lake", warehouse)[1]


def test_a_catalog_is_moved(warehouse: str, tmp_path: Path) -> None:
    assert txlake("catalog", "move", "warehouse", "--lake", warehouse)[0] == 6
    assert txlake("sql", "--lake", warehouse, "CREATE TABLE t (id INT)")[0] == 0
    code, _, err = txlake("catalog", "move", "nonsense", "--lake", warehouse)
    assert (code, "or a URL like" in err) == (6, True)
    assert txlake("catalog", "move", "warehouse", "--lake", warehouse)[0] == 0
    assert Path(warehouse, "_txlake", "catalog", "log").is_dir()
    code, out, _ = txlake("sql", "--lake", warehouse, "SHOW TABLES")
    assert (code, "t" in out) == (0, True)
