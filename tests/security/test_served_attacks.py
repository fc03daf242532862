"""Attacks by SQL on the machine that serves a lake, by each door; and what must go on working."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession

import txlake
import txlake.dbapi
from tests.server.agent import over_stdio
from tests.server.client import Client
from tests.server.flight.raw import RawClient
from tests.server.test_sql import ALL, READER, TOKENS, done, say
from txlake.commands import COMMANDS
from txlake.commands.controls import CONTROLS
from txlake.console.playground import Playground, StatementStatus
from txlake.console.timelines import LEVELS, TIMELINES
from txlake.server.api_errors import ApiError
from txlake.server.flight.serving import FlightServer
from txlake.server.mcp.tools import LakeTools, ToolSettings
from txlake.server.refusals import READ_STATEMENTS, WRITE_STATEMENTS
from txlake.server.tokens import Caller, Tokens
from txlake.sql.statements import (
    ConvertTable,
    ConvertToDelta,
    CopyInto,
    CreateTemporaryView,
    ExecuteImmediate,
    Generate,
    ReadTable,
    RefreshTable,
    SparkCommand,
    Write,
)

KEY = "txlake.test.attack"
SECRET = "a-secret-of-the-server"
METHOD = f"('java.lang.System', 'setProperty', '{KEY}', 'done')"
RECURSION = "SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 3"
CALL = f"java_method{METHOD}"

REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
)
NOT_SERVED = frozenset(
    {
        *(SparkCommand, CopyInto, ConvertToDelta, ConvertTable, Generate, ExecuteImmediate),
        *(CreateTemporaryView, ReadTable, Write, RefreshTable),
    }
)

QUERIES = {
    "a name": f"SELECT {CALL}",
    "in quotes": f"SELECT `Java_Method`{METHOD}",
    "reflect": f"SELECT reflect{METHOD}",
    "try_reflect": f"SELECT try_reflect{METHOD}",
    "spaces and comments": f"SELECT reflect /* a /* b */ */ -- c\n {METHOD}",
    "its full name": f"SELECT system.builtin.reflect{METHOD}",
    "half its name": f"SELECT builtin.java_method{METHOD}",
    "a name in another catalog": f"SELECT spark_catalog.default.reflect{METHOD}",
    "a computed name": f"SELECT IDENTIFIER('java_' || 'method'){METHOD}",
    "a concatenated name": f"SELECT IDENTIFIER(concat('ref', 'lect')){METHOD}",
    "a computed name in quotes": f"SELECT IDENTIFIER(lower('REFLECT')){METHOD}",
    "a name of characters": f"SELECT IDENTIFIER(chr(114) || 'eflect'){METHOD}",
    "a computed column": f"SELECT IDENTIFIER({CALL}) FROM orders",
    "a computed table": f"SELECT * FROM IDENTIFIER({CALL})",
    "a CTE": f"WITH c AS (SELECT {CALL} AS x) SELECT * FROM c",
    "a CTE in a subquery": f"SELECT * FROM (WITH c AS (SELECT reflect{METHOD} AS x) FROM c)",
    "a subquery": f"SELECT (SELECT {CALL})",
    "EXISTS": f"SELECT 1 WHERE EXISTS (SELECT 1 WHERE {CALL} IS NULL)",
    "a lambda": f"SELECT transform(array(1), x -> {CALL})",
    "a filter": f"SELECT * FROM orders WHERE {CALL} IS NULL",
    "a join": f"SELECT * FROM orders a JOIN orders b ON {CALL} IS NULL",
    "VALUES": f"SELECT * FROM VALUES ({CALL}) AS t(a)",
    "VALUES alone": f"VALUES ({CALL})",
    "LIMIT": f"SELECT * FROM orders LIMIT length({CALL})",
    "OFFSET": f"SELECT * FROM orders LIMIT 1 OFFSET length({CALL})",
    "ORDER BY": f"SELECT * FROM orders ORDER BY {CALL}",
    "GROUP BY": f"SELECT count(*) FROM orders GROUP BY {CALL}",
    "HAVING": f"SELECT count(*) FROM orders HAVING {CALL} IS NULL",
    "a window": f"SELECT sum(n) OVER (ORDER BY {CALL}) FROM orders",
    "PIVOT": f"SELECT * FROM orders PIVOT (sum(n) FOR id IN ({CALL} AS a))",
    "a table function": f"SELECT * FROM explode(array({CALL}))",
    "a table function's name": f"SELECT * FROM reflect{METHOD}",
    "LATERAL VIEW": f"SELECT * FROM orders LATERAL VIEW explode(array({CALL})) e AS x",
    "LATERAL VIEW of it": f"SELECT * FROM orders LATERAL VIEW java_method{METHOD} e AS x",
    "TABLESAMPLE": f"SELECT * FROM orders TABLESAMPLE (length({CALL}) ROWS)",
    "a hint": f"SELECT /*+ REPARTITION({CALL}) */ reflect{METHOD} FROM orders",
    "time travel": f"SELECT * FROM orders TIMESTAMP AS OF {CALL}",
    "changes": f"SELECT * FROM table_changes('orders', {CALL})",
    "a pipe": f"FROM orders |> SELECT {CALL}",
    "an aggregate": f"SELECT max({CALL}) FILTER (WHERE {CALL} IS NULL) FROM orders",
    "a cast": f"SELECT CAST({CALL} AS INT), {CALL}::INT",
    "CASE": f"SELECT CASE WHEN {CALL} IS NULL THEN 1 END",
    "a column default of another table": f"SELECT coalesce(n, {CALL}) FROM orders",
    "DESCRIBE QUERY": f"DESCRIBE QUERY SELECT * FROM VALUES ({CALL}) AS t(a)",
    "EXPLAIN": f"EXPLAIN SELECT * FROM VALUES ({CALL}) AS t(a)",
    "TRANSFORM": f"SELECT TRANSFORM (id) USING 'touch /tmp/{KEY}' FROM orders",
    "TRANSFORM in quotes": f'SELECT TRANSFORM (id) USING "touch /tmp/{KEY}" FROM orders',
    "MAP": f"FROM orders MAP id USING 'touch /tmp/{KEY}'",
    "REDUCE": f"FROM (FROM orders REDUCE id USING r'touch /tmp/{KEY}') SELECT *",
    "a file": "SELECT * FROM text.`/etc/passwd`",
    "a file of an expression": "SELECT (SELECT count(*) FROM csv.`/etc/passwd`)",
    "a file in a CTE": "WITH c AS (SELECT * FROM binaryFile.`/etc/passwd`) SELECT * FROM c",
    "a file by a scheme": "SELECT * FROM `text`.`file:/etc/passwd`",
    "a file in double quotes": 'SELECT * FROM text."/etc/passwd"',
    "a table by its path": "SELECT * FROM delta.`{folder}`",
    "a table's name that is a path": "SELECT * FROM `{folder}`",
    "an insert into a folder": f"FROM orders INSERT OVERWRITE DIRECTORY '/tmp/{KEY}' SELECT *",
    "an insert into a local folder": (
        f"INSERT OVERWRITE LOCAL DIRECTORY '/tmp/{KEY}' USING csv SELECT 1"
    ),
    "Spark's own table": "SELECT * FROM spark_catalog.default.txlake_attacked",
    "Spark's own table by one name": "SELECT * FROM txlake_attacked",
    "Spark's own table in EXISTS": "SELECT 1 WHERE EXISTS (SELECT 1 FROM txlake_attacked)",
    "a view of another session": "SELECT * FROM global_temp.txlake_attacked",
    "a function of another session": "SELECT txlake_attack()",
    "Avro": "SELECT from_avro(X'00', '{{\"type\": \"int\"}}')",
    "Protobuf": "SELECT from_protobuf(X'00', 'M', '/etc/passwd')",
    "XML": "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "XPath": "SELECT xpath_string('<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///x\">]><a/>', 'a')",
    "a Python worker's log": "SELECT * FROM python_worker_logs()",
    "a setting": "SET spark.sql.runSQLOnFiles = true",
    "a setting's value": "SET",
    "a jar": "ADD JAR '/tmp/a.jar'",
    "a file for all": "ADD FILE '/etc/passwd'",
    "a function": "CREATE TEMPORARY FUNCTION f AS 'java.lang.System'",
    "a SQL function": f"CREATE TEMPORARY FUNCTION f() RETURNS STRING RETURN {CALL}",
    "a variable": f"DECLARE VARIABLE v STRING DEFAULT {CALL}",
    "a variable that is set": f"SET VARIABLE v = {CALL}",
    "EXECUTE IMMEDIATE": f"EXECUTE IMMEDIATE 'SELECT {CALL.replace(chr(39), chr(34))}'",
    "a cache": f"CACHE TABLE c AS SELECT {CALL}",
    "a refresh": "REFRESH TABLE orders",
    "a path's refresh": "REFRESH '/etc'",
    "statistics": "ANALYZE TABLE txlake_attacked COMPUTE STATISTICS",
    "data to load": "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE orders",
    "a temporary view": f"CREATE TEMPORARY VIEW v AS SELECT {CALL}",
    "a temporary view of files": "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
    "functions": "SHOW FUNCTIONS LIKE 'reflect'",
    "a script": f"BEGIN DECLARE v STRING DEFAULT {CALL}; SELECT v; END",
    "a loop": f"BEGIN ATOMIC FOR r AS SELECT {CALL} AS x DO SELECT 1; END FOR; END",
    "a condition": f"BEGIN ATOMIC IF {CALL} IS NULL THEN SELECT 1; END IF; END",
    "a catalog": "USE CATALOG spark_catalog",
}
"""What nobody's token may run, each for a reason of its own."""

CHANGED = {
    "INSERT SELECT": f"INSERT INTO stock SELECT 5, length({CALL})",
    "INSERT VALUES": f"INSERT INTO stock VALUES (5, length({CALL}))",
    "INSERT of a file": "INSERT INTO stock SELECT 1, length(value) FROM text.`/etc/passwd`",
    "INSERT with a CTE": f"WITH c AS (SELECT {CALL} AS x) INSERT INTO stock SELECT 5, x FROM c",
    "INSERT REPLACE WHERE": f"INSERT INTO stock REPLACE WHERE {CALL} IS NULL SELECT 1, 2",
    "INSERT PARTITION": f"INSERT INTO parts PARTITION (p = {CALL}) SELECT 1",
    "CREATE TABLE AS": f"CREATE TABLE made AS SELECT {CALL} AS x",
    "CREATE TABLE LOCATION": "CREATE TABLE made (id INT) LOCATION '/tmp/txlake-attack'",
    "CREATE TABLE USING": "CREATE TABLE made USING text OPTIONS (path '/etc/passwd')",
    "UPDATE": f"UPDATE stock SET n = length({CALL})",
    "UPDATE WHERE": f"UPDATE stock SET n = 1 WHERE {CALL} IS NULL",
    "UPDATE of a subquery": f"UPDATE stock SET n = (SELECT length({CALL}))",
    "UPDATE of a file": "UPDATE stock SET n = (SELECT count(*) FROM text.`/etc/passwd`)",
    "UPDATE of Spark's table": "UPDATE stock SET n = (SELECT count(*) FROM txlake_attacked)",
    "UPDATE by a computed name": f"UPDATE stock SET n = length(IDENTIFIER(lower('R')){METHOD})",
    "UPDATE by a function": "UPDATE stock SET n = length(txlake_attack())",
    "DELETE": f"DELETE FROM stock WHERE {CALL} IS NULL",
    "DELETE by a subquery": f"DELETE FROM stock WHERE id IN (SELECT length({CALL}))",
    "MERGE ON": f"MERGE INTO stock USING orders o ON {CALL} IS NULL WHEN MATCHED THEN DELETE",
    "MERGE source": (
        f"MERGE INTO stock USING (SELECT {CALL} AS x) s ON stock.id = 1 WHEN MATCHED THEN DELETE"
    ),
    "MERGE of a file": (
        "MERGE INTO stock USING text.`/etc/passwd` s ON stock.id = 1 WHEN MATCHED THEN DELETE"
    ),
    "MERGE SET": (
        "MERGE INTO stock USING orders o ON stock.id = o.id "
        f"WHEN MATCHED THEN UPDATE SET n = length({CALL})"
    ),
    "a view": f"CREATE VIEW v AS SELECT {CALL} AS x",
    "a view of a computed name": f"CREATE VIEW v AS SELECT IDENTIFIER('ref' || 'lect'){METHOD} x",
    "a view of a file": "CREATE VIEW v AS SELECT * FROM text.`/etc/passwd`",
    "a view that is changed": f"ALTER VIEW harmless AS SELECT {CALL} AS id",
    "a CHECK": f"ALTER TABLE stock ADD CONSTRAINT c CHECK ({CALL} IS NULL)",
    "a CHECK by its property": (
        f"ALTER TABLE stock SET TBLPROPERTIES ('delta.constraints.c' = \"{CALL} IS NULL\")"
    ),
    "a DEFAULT": f"CREATE TABLE made (id INT, s STRING DEFAULT {CALL})",
    "a generated column": f"CREATE TABLE made (id INT, s STRING GENERATED ALWAYS AS ({CALL}))",
    "COPY INTO": "COPY INTO stock FROM '/etc' FILEFORMAT = TEXT",
    "CLONE": "CREATE TABLE made SHALLOW CLONE delta.`{folder}`",
    "CONVERT": "CONVERT TO DELTA parquet.`{folder}`",
    "OPTIMIZE": f"OPTIMIZE stock WHERE {CALL} IS NULL",
    "VACUUM of a path": "VACUUM delta.`{folder}`",
    "RESTORE": f"RESTORE TABLE stock TO TIMESTAMP AS OF {CALL}",
    "DROP of a path": "DROP TABLE delta.`{folder}`",
    "a cached table": "CACHE TABLE stock",
}
"""What a token that writes may not run besides."""


@pytest.fixture(scope="module")
def attacked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A served lake; the owner's Spark session has a table, a view and a function of its own."""
    folder = tmp_path_factory.mktemp("served")
    os.environ["TXLAKE_TEST_SECRET"] = SECRET
    spark.sql("CREATE TABLE txlake_attacked (a INT) USING parquet")
    spark.sql("CREATE GLOBAL TEMPORARY VIEW txlake_attacked AS SELECT 1 AS a")
    spark.udf.register("txlake_attack", lambda: "ran")
    with (
        txlake.connect(str(folder / "lake"), spark=spark) as lake,
        Client(lake, tokens=TOKENS) as made,
    ):
        for name in ("orders", "stock"):
            lake.sql(f"CREATE TABLE {name} (id INT, n BIGINT)")
            lake.sql(f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
        lake.sql("CREATE TABLE parts (id INT, p STRING) PARTITIONED BY (p)")
        lake.sql("CREATE VIEW harmless AS SELECT id FROM orders")
        yield made
    spark.sql("DROP TABLE txlake_attacked")
    spark.catalog.dropGlobalTempView("txlake_attacked")
    spark.sql("DROP TEMPORARY FUNCTION txlake_attack")


@pytest.fixture
def client(attacked: Client, spark: SparkSession) -> Iterator[Client]:
    """The served lake; afterwards nothing has run on the machine, and both tables are as before."""
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    system.clearProperty(KEY)
    yield attacked
    assert system.getProperty(KEY) is None, "a method of the JVM was called"
    assert not Path(f"/tmp/{KEY}").exists()
    for table in ("orders", "stock"):
        found = done(attacked, f"SELECT id, n FROM {table} ORDER BY id")
        assert found["rows"] == [[1, 10], [2, 20]]


# Which statements are served is decided twice: by the commands, and by these two sets.
FOR_READERS = {
    "Begin",
    "Commit",
    "DescribeBranch",
    "DescribeDatabase",
    "DescribeDetail",
    "DescribeHistory",
    "DescribeQuery",
    "DescribeTable",
    "ExplainConflicts",
    "ReadChanges",
    "ReleaseSavepoint",
    "Rollback",
    "RollbackTo",
    "Savepoint",
    "Select",
    "SetIsolation",
    "SetLockTimeout",
    "SetXactAbort",
    "ShowBranches",
    "ShowColumns",
    "ShowCreateTable",
    "ShowDatabases",
    "ShowDroppedTables",
    "ShowIsolation",
    "ShowPartitions",
    "ShowProperties",
    "ShowTables",
    "ShowTags",
    "ShowViews",
    "UseBranch",
    "UseDatabase",
}


FOR_WRITERS_TOO = {
    "AddColumns",
    "AddConstraint",
    "AddFeature",
    "AlterColumn",
    "AlterDatabase",
    "AlterView",
    "AlterViewSchema",
    "AnalyzeTable",
    "Atomic",
    "Clone",
    "ClusterBy",
    "CreateBranch",
    "CreateDatabase",
    "CreateTable",
    "CreateTableLike",
    "CreateTag",
    "CreateView",
    "Delete",
    "DropBranch",
    "DropColumns",
    "DropConstraint",
    "DropDatabase",
    "DropFeature",
    "DropKey",
    "DropTable",
    "DropTag",
    "DropView",
    "ExplainPublish",
    "Insert",
    "Kill",
    "LockTable",
    "Merge",
    "Optimize",
    "PublishBranch",
    "RebaseBranch",
    "RenameColumn",
    "RenameTable",
    "RenameView",
    "Reorg",
    "RepairTable",
    "ReplaceColumns",
    "Restore",
    "SetComment",
    "SetProperties",
    "SyncIdentity",
    "Truncate",
    "UndropTable",
    "UnsetProperties",
    "Update",
    "UpgradeProtocol",
    "Vacuum",
}


def test_every_statement_is_served_to_somebody_or_to_nobody() -> None:
    assert {kind.__name__ for kind in READ_STATEMENTS} == FOR_READERS
    assert {kind.__name__ for kind in WRITE_STATEMENTS} == FOR_WRITERS_TOO
    assert {*COMMANDS, *CONTROLS} == READ_STATEMENTS | WRITE_STATEMENTS | NOT_SERVED
    assert not READ_STATEMENTS & WRITE_STATEMENTS
    assert not (READ_STATEMENTS | WRITE_STATEMENTS) & NOT_SERVED


@pytest.mark.broad(keep=16)
@pytest.mark.parametrize("attack", QUERIES)
@pytest.mark.parametrize("token", [READER, ALL], ids=["reader", "writer"])
def test_no_query_runs_code_or_reads_files(client: Client, token: str, attack: str) -> None:
    folder = client.engine.warehouse.url.removeprefix("file://") + "/orders"  # type: ignore[union-attr]
    answer = say(client, QUERIES[attack].replace("{folder}", folder), token=token)
    assert answer.status_code in (400, 403, 404), answer.text
    assert "root:x" not in answer.text


@pytest.mark.broad(keep=8)
@pytest.mark.parametrize("attack", CHANGED)
def test_no_change_runs_code_or_reads_files(client: Client, attack: str) -> None:
    folder = client.engine.warehouse.url.removeprefix("file://") + "/orders"  # type: ignore[union-attr]
    answer = say(client, CHANGED[attack].replace("{folder}", folder))
    assert answer.status_code in (400, 403, 404), answer.text
    assert "root:x" not in answer.text


@pytest.fixture(scope="module")
def flight(attacked: Client) -> Iterator[RawClient]:
    """Flight SQL of the same lake."""
    server = FlightServer(attacked.served, Tokens(TOKENS), host="127.0.0.1", port=0)
    made = RawClient(server.address, ALL)
    yield made
    made.close()
    server.stop()


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("attack", [*QUERIES, *CHANGED])
def test_flight_sql_runs_no_more(client: Client, flight: RawClient, attack: str) -> None:
    folder = client.engine.warehouse.url.removeprefix("file://") + "/orders"  # type: ignore[union-attr]
    text = (QUERIES | CHANGED)[attack].replace("{folder}", folder)
    for attempt in (
        lambda: list(flight.rows(flight.query(text))),
        lambda: flight.update(text),
        lambda: flight.query_prepared(text),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            attempt()
        assert refused.value.code() in REFUSALS, refused.value
        assert "root:x" not in str(refused.value)


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("attack", [*QUERIES, *CHANGED])
def test_no_tool_of_an_agent_runs_code_or_reads_files(client: Client, attack: str) -> None:
    tools, agent = LakeTools(client.served, ToolSettings()), Caller("agent")
    folder = client.engine.warehouse.url.removeprefix("file://") + "/orders"  # type: ignore[union-attr]
    text = {**QUERIES, **CHANGED}[attack].replace("{folder}", folder)
    if not tools.list_branches(agent).rows:
        tools.create_branch(agent, "work")
    for run in (
        lambda: tools.query(agent, text),
        lambda: tools.query(agent, text, "work"),
        lambda: tools.write(agent, "work", text),
    ):
        with pytest.raises(ApiError) as refused:
            run()
        assert refused.value.status in (400, 403, 404), refused.value
        assert "root:x" not in str(refused.value)
    with suppress(ApiError):  # what it explains it doesn't run, as the fixture checks
        assert "root:x" not in str(tools.explain_conflicts(agent, text).rows)


def test_parameters_name_no_function(client: Client) -> None:
    for text, given in (
        (f"SELECT IDENTIFIER(:f){METHOD}", {"f": "reflect"}),
        (f"SELECT IDENTIFIER(?){METHOD}", ["java_method"]),
        (f"SELECT IDENTIFIER('ref' || :f){METHOD}", {"f": "lect"}),
        (f"SELECT :f{METHOD}", {"f": "reflect"}),
        ("SELECT * FROM IDENTIFIER(:f)", {"f": "text.`/etc/passwd`"}),
    ):
        answer = say(client, text, token=READER, parameters=given)
        assert answer.status_code in (400, 403), answer.text
    found = done(client, "SELECT :f AS x", parameters={"f": f"' || {CALL} || '"})
    assert found["rows"] == [[f"' || {CALL} || '"]]


def test_a_text_is_no_variable_of_the_environment(client: Client) -> None:
    texts = "'${env:TXLAKE_TEST_SECRET}', '${system:user.home}', '${spark.app.name}'"
    found = done(client, f"SELECT {texts}, upper('${{env:HOME}}')", token=READER)
    assert found["rows"][0][:3] == [
        "${env:TXLAKE_TEST_SECRET}",
        "${system:user.home}",
        "${spark.app.name}",
    ]
    assert found["rows"][0][3] == "${ENV:HOME}"
    answer = say(client, "SELECT * FROM orders WHERE id = length('${env:TXLAKE_TEST_SECRET}')")
    assert answer.status_code == 200
    assert SECRET not in answer.text
    answer = say(client, "SELECT * FROM orders TIMESTAMP AS OF concat('${env:TXLAKE_TEST_SECRET}')")
    assert SECRET not in answer.text


def test_a_view_of_the_owner_serves_no_function_of_his(client: Client) -> None:
    client.lake.sql("CREATE OR REPLACE VIEW owners AS SELECT txlake_attack() AS x")
    assert client.lake.sql("SELECT x FROM owners").collect()[0][0] == "ran"
    answer = say(client, "SELECT x FROM owners", token=READER)
    assert answer.status_code == 400, answer.text
    client.lake.sql("DROP VIEW owners")


def test_what_users_run_is_served(client: Client) -> None:
    for text, rows in (
        ("SELECT upper('a'), 1 + 1", [["A", 2]]),
        ("SELECT system.builtin.upper('a')", [["A"]]),
        ("SELECT a.id, b.n FROM orders a JOIN stock b ON a.id = b.id AND a.id > 1", [[2, 20]]),
        ("SELECT sum(n) OVER (ORDER BY id) FROM orders ORDER BY 1", [[10], [30]]),
        ("WITH c AS (SELECT id FROM orders) SELECT count(*) FROM c a, c b", [[4]]),
        ("SELECT id FROM orders WHERE id IN (SELECT max(id) FROM stock)", [[2]]),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM stock s WHERE s.n > orders.n)", [[1]]),
        ("SELECT * FROM VALUES (1, 'a') AS t(x, y)", [[1, "a"]]),
        ("SELECT count(*) FROM orders GROUP BY CUBE (id, n) HAVING count(*) > 1", [[2]]),
        ("SELECT * FROM (SELECT id, n FROM orders) PIVOT (sum(n) FOR id IN (1, 2))", [[10, 20]]),
        ("SELECT x FROM orders LATERAL VIEW explode(array(7)) e AS x LIMIT 1", [[7]]),
        ("SELECT transform(array(1, 2), x -> x + 1)", [[[2, 3]]]),
        ("SELECT id FROM harmless ORDER BY id DESC LIMIT 1", [[2]]),
        ("SELECT count(*) FROM orders VERSION AS OF 1", [[2]]),
        ("SELECT id FROM range(3) WHERE id > 1", [[2]]),
        ("SELECT id FROM orders UNION SELECT 3 EXCEPT SELECT 1 ORDER BY 1", [[2], [3]]),
        ("SELECT /*+ BROADCAST(b) */ count(*) FROM orders a, stock b", [[4]]),
        ("SELECT IDENTIFIER('id') FROM IDENTIFIER('orders') WHERE id = 1", [[1]]),
        ("FROM orders |> WHERE id = 2 |> SELECT n", [[20]]),
        ("DESCRIBE QUERY SELECT 1 AS a", [["a", "int", None]]),
        (f"WITH RECURSIVE r(i) AS ({RECURSION}) SELECT max(i) FROM r", [[3]]),
    ):
        assert done(client, text, token=READER)["rows"] == rows, text
    columns = "id INT, s STRING DEFAULT upper('a'), CONSTRAINT short CHECK (length(s) < 5)"
    done(client, f"CREATE TABLE kept ({columns})")
    done(client, "INSERT INTO kept (id) SELECT id FROM orders")
    done(client, "UPDATE kept SET s = concat(s, 'b') WHERE id IN (SELECT max(id) FROM stock)")
    done(
        client,
        "MERGE INTO kept USING stock s ON kept.id = s.id AND length(kept.s) = 1 "
        "WHEN MATCHED THEN UPDATE SET s = lpad(kept.s, 2, 'x')",
    )
    assert done(client, "SELECT s FROM kept ORDER BY id")["rows"] == [["xA"], ["Ab"]]
    done(client, "BEGIN ATOMIC DELETE FROM kept WHERE length(s) > 1; END")
    done(client, "DROP TABLE kept")


def test_the_playground_runs_none_of_it() -> None:
    playground = Playground(next(iter(TIMELINES)), next(iter(LEVELS)))
    session = next(iter(TIMELINES.values())).steps[0].session
    try:
        for attack in QUERIES.values():
            playground.run(session, attack.replace("{folder}", "/tmp"))
        for entry in playground.state().entries:
            assert entry.status in (StatementStatus.FAILED, StatementStatus.REFUSED), entry
    finally:
        playground.close()


@pytest.mark.broad
def test_an_agent_attacks_a_process_of_the_command(tmp_path: Path) -> None:
    """Every attack, by the official client over standard input and output."""
    with txlake.dbapi.connect(str(tmp_path / "lake"), autocommit=True) as con:
        for name in ("orders", "stock"):
            con.execute(f"CREATE TABLE {name} (id INT, n BIGINT)")
            con.execute(f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
    Path(f"/tmp/{KEY}").unlink(missing_ok=True)
    with over_stdio(tmp_path / "lake") as agent:
        agent.done("create_branch", branch="work")
        for attack in [*QUERIES, *CHANGED]:
            text = {**QUERIES, **CHANGED}[attack].replace("{folder}", str(tmp_path / "lake/orders"))
            for found in (
                agent.refused("query", sql=text),
                agent.refused("write", branch="work", sql=text),
            ):
                assert "executing tool" in found, attack
                assert "root:x" not in found
        for table in ("orders", "stock"):
            for branch in (None, "work"):
                ask = {"sql": f"SELECT id, n FROM {table}", "branch": branch}
                assert sorted(agent.done("query", **ask)["rows"]) == [[1, 10], [2, 20]]
    assert not Path(f"/tmp/{KEY}").exists()
