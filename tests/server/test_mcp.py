"""Tools for agents: what each does, what it refuses, and the protocol by the official client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import txlake
from tests.server.agent import Agent, bearer, connected, over_http, over_stdio
from tests.server.process import ServerProcess
from txlake.commands import COMMANDS, HANDLERS
from txlake.commands.controls import CONTROLS
from txlake.server.calls import ServedLake, SessionPool
from txlake.server.mcp.app import mcp_server
from txlake.server.mcp.tools import QUERIES, WRITES, LakeTools, ToolSettings
from txlake.server.refusals import READ_STATEMENTS, WRITE_STATEMENTS
from txlake.server.serving import restricted_engine
from txlake.server.tokens import Caller
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.sql.statements import Atomic, PublishBranch, UseBranch

READS = {
    "list_tables",
    "describe_table",
    "history",
    "query",
    "explain_conflicts",
    "list_branches",
    "describe_branch",
}
CHANGES = {"create_branch", "write", "drop_branch"}
SHOP = (
    "CREATE TABLE orders (id INT COMMENT 'the key', n BIGINT) TBLPROPERTIES ('team' = 'shop')",
    "INSERT INTO orders VALUES (1, 10), (2, 20)",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[txlake.Lake]:
    """A lake with a table of two rows; no Spark is started."""
    with txlake.connect(str(tmp_path / "lake")) as made:
        run(made, *SHOP)
        yield made


def run(lake: txlake.Lake, *texts: str) -> None:
    """Run statements of the lake's owner; no Spark is started for a result's sake."""
    for text in texts:
        lake._run_sql(text, None, AsRows())


def tools_of(lake: txlake.Lake, **settings: Any) -> LakeTools:
    """The tools of a lake."""
    engine = restricted_engine(lake._session.engine, owns_spark=False)
    served = ServedLake(engine=engine, sessions=SessionPool(lambda: Session(engine, HANDLERS)))
    return LakeTools(served, ToolSettings(**settings))


def agent_of(lake: txlake.Lake, caller: Caller | None = None, **settings: Any) -> Any:
    """An agent of a lake, in this process."""
    made = mcp_server(
        tools_of(lake, **settings),
        caller or Caller("agent"),
        may_publish=bool(settings.get("may_publish")),
    )
    return connected(made)


@pytest.fixture
def agent(lake: txlake.Lake) -> Iterator[Agent]:
    with agent_of(lake) as made:
        yield made


def test_a_tool_takes_what_served_sql_serves_and_no_statement_that_leaves_the_branch() -> None:
    assert QUERIES <= READ_STATEMENTS
    assert WRITES <= WRITE_STATEMENTS
    assert not WRITES & CONTROLS.keys()
    assert {UseBranch, Atomic, PublishBranch} <= CONTROLS.keys()
    left_out = {kind.__name__ for kind in READ_STATEMENTS - QUERIES}
    assert left_out == {
        *("Begin", "Commit", "Rollback", "RollbackTo", "Savepoint", "ReleaseSavepoint"),
        *("SetIsolation", "SetLockTimeout", "SetXactAbort", "UseBranch", "UseDatabase"),
    }
    assert COMMANDS.keys() & WRITE_STATEMENTS == WRITES


def test_an_agent_reads(lake: txlake.Lake, agent: Agent) -> None:
    assert agent.tools().keys() == READS | CHANGES
    assert {
        name for name, tool in agent.tools().items() if tool.annotations.read_only_hint
    } == READS
    assert agent.done("list_tables") == [{"name": "default.orders", "is_view": False}]
    found = agent.done("describe_table", table="orders")
    assert found["columns"] == [
        {"name": "id", "type": "int", "comment": "the key"},
        {"name": "n", "type": "bigint", "comment": None},
    ]
    assert found["properties"]["team"] == "shop"
    rows = agent.done("history", table="default.orders", limit=1)
    assert [row[rows["columns"].index("operation")] for row in rows["rows"]] == ["WRITE"]
    found = agent.done("query", sql="SELECT n FROM orders WHERE id = 2")
    assert (found["columns"], found["rows"], found["note"]) == (["n"], [[20]], None)
    found = agent.done("explain_conflicts", sql="UPDATE orders SET n = 1 WHERE id = 1")
    assert ["statement", "reads", "id = 1", None] in found["rows"]
    assert "there is no table" in agent.refused("describe_table", table="lost")
    run(lake, "CREATE DATABASE shop")
    run(lake, "CREATE TABLE shop.`a table` (id INT)")
    names = [table["name"] for table in agent.done("list_tables")]
    assert names == ["default.orders", "shop.`a table`"]
    assert agent.done("query", sql="SELECT * FROM `a table`", database="shop")["total"] == 0


@pytest.mark.broad
def test_a_view_is_described_without_properties(lake: txlake.Lake, agent: Agent) -> None:
    run(lake, "CREATE VIEW seen AS SELECT id FROM orders")
    assert {"name": "default.seen", "is_view": True} in agent.done("list_tables")
    found = agent.done("describe_table", table="seen")
    assert [column["name"] for column in found["columns"]] == ["id"]
    assert found["properties"] == {}


def test_rows_are_limited_and_said_so(lake: txlake.Lake) -> None:
    with agent_of(lake, rows_max=1) as agent:
        found = agent.done("query", sql="SELECT id FROM orders")
        assert (len(found["rows"]), found["total"]) == (1, 2)
        assert "1 of 2 rows" in found["note"]
    with agent_of(lake, bytes_max=5) as agent:
        found = agent.done("query", sql="SELECT id FROM orders")
        assert len(found["rows"]) == 1
        assert "5 bytes" in found["note"]
    with agent_of(lake, rows_max=2) as agent:
        assert agent.done("query", sql="SELECT id FROM orders")["note"] is None
        assert "narrow" in agent.refused("describe_table", table="orders")


def test_an_agent_writes_on_its_branch_and_main_stays(lake: txlake.Lake, agent: Agent) -> None:
    found = agent.done("create_branch", branch="agent/prices")
    owner = found["columns"].index("user_name")
    assert [(row[0], row[owner]) for row in found["rows"]] == [("agent/prices", "token:agent")]
    assert found["rows"][0][found["columns"].index("kept_until")] is not None
    found = agent.done("write", branch="agent/prices", sql="UPDATE orders SET n = 11 WHERE id = 1")
    assert found["result"]["rows"] == [[1]]
    assert found["changes"]["rows"][0][:2] == ["default.orders", "changed"]
    ask = {"sql": "SELECT n FROM orders WHERE id = 1"}
    assert agent.done("query", **ask)["rows"] == [[10]]
    assert agent.done("query", branch="agent/prices", **ask)["rows"] == [[11]]
    found = agent.done("describe_branch", branch="agent/prices")
    assert found["publication"]["rows"][0][3] == "publishes"
    agent.done("write", branch="agent/prices", sql="DROP TABLE orders")
    assert agent.done("list_tables", branch="agent/prices") == []
    assert agent.done("list_tables")
    assert agent.done("drop_branch", branch="agent/prices")["rows"] == []


ON_MAIN = {
    "main by its name": ("write", {"branch": "main", "sql": "DELETE FROM orders"}),
    "main in capitals": ("write", {"branch": "MAIN", "sql": "DELETE FROM orders"}),
    "no branch": ("write", {"branch": "", "sql": "DELETE FROM orders"}),
    "a branch of somebody else": ("write", {"branch": "owners", "sql": "DELETE FROM orders"}),
    "a tag": ("write", {"branch": "kept", "sql": "DELETE FROM orders"}),
    "the tool that reads": ("query", {"sql": "DROP TABLE orders"}),
    "the tool that reads, on a branch": ("query", {"sql": "DELETE FROM orders", "branch": "own"}),
    "behind a query": ("query", {"sql": "SELECT 1; DROP TABLE orders"}),
    "behind a comment": ("query", {"sql": "SELECT 1 /* ; */ ; -- x\n DROP TABLE orders"}),
    "in a comment that ends": ("query", {"sql": "/* SELECT 1 */ DROP TABLE orders"}),
    "a hidden semicolon": ("query", {"sql": "SELECT ';'; DELETE FROM orders"}),
    "two changes": ("write", {"branch": "own", "sql": "USE BRANCH main; DELETE FROM orders"}),
    "leaving the branch": ("write", {"branch": "own", "sql": "USE BRANCH main"}),
    "leaving it in a query": ("query", {"sql": "USE BRANCH main", "branch": "own"}),
    "a block that leaves it": (
        "write",
        {"branch": "own", "sql": "BEGIN ATOMIC USE BRANCH main; DELETE FROM orders; END"},
    ),
    "a transaction": ("write", {"branch": "own", "sql": "BEGIN"}),
    "publishing": ("write", {"branch": "own", "sql": "PUBLISH BRANCH own"}),
    "publishing by a query": ("query", {"sql": "PUBLISH BRANCH own"}),
    "another's branch dropped": ("drop_branch", {"branch": "owners"}),
    "more behind a branch's name": ("create_branch", {"branch": "x`; DROP TABLE orders; --"}),
    "more behind a dropped name": ("drop_branch", {"branch": "own` ; DROP TABLE orders; --"}),
    "more behind a table's name": ("describe_table", {"table": "orders; DROP TABLE orders"}),
    "more behind a history": ("history", {"table": "orders; DROP TABLE orders; --"}),
    "more behind an explanation": ("explain_conflicts", {"sql": "SELECT 1; DROP TABLE orders"}),
    "a table's name that is a file": ("describe_table", {"table": "delta.`/etc`"}),
    "a history of a path": ("history", {"table": "delta.`/etc`"}),
    "a path table's branch": ("query", {"sql": "SHOW BRANCHES FOR TABLE delta.`/etc`"}),
    "an empty text": ("query", {"sql": ""}),
    "a comment alone": ("query", {"sql": "-- DROP TABLE orders"}),
    "a view of files": ("query", {"sql": "CREATE TEMPORARY VIEW v USING text"}),
    "a killed session": ("query", {"sql": "KILL 1"}),
}


@pytest.mark.broad(keep=12)
@pytest.mark.parametrize("attack", ON_MAIN)
def test_main_and_other_branches_stay_as_they_are(lake: txlake.Lake, attack: str) -> None:
    run(lake, "CREATE BRANCH owners")
    run(lake, "CREATE TAG kept")
    with agent_of(lake, may_publish=False) as agent:
        agent.done("create_branch", branch="own")
        tool, arguments = ON_MAIN[attack]
        is_done, found = agent.call(tool, **arguments)
        if attack == "more behind a branch's name":  # an odd name, and nothing else
            agent.done("list_branches")
        else:
            assert not is_done, found
            assert "executing tool" in found
        for branch in (None, "own", "owners"):
            rows = agent.done("query", sql="SELECT id, n FROM orders", branch=branch)["rows"]
            assert sorted(rows) == [[1, 10], [2, 20]]


def test_publishing_is_only_there_when_it_was_allowed(lake: txlake.Lake, agent: Agent) -> None:
    agent.done("create_branch", branch="own")
    agent.done("write", branch="own", sql="DELETE FROM orders WHERE id = 1")
    assert "Unknown tool" in agent.refused("publish_branch", branch="own")
    with pytest.raises(Exception, match="agents publish nothing here"):
        tools_of(lake).publish_branch(Caller("agent"), "own")
    with agent_of(lake, Caller("other"), may_publish=True) as other:
        assert "no branch of 'other'" in other.refused("publish_branch", branch="own")
        assert "no branch of 'other'" in other.refused("publish_branch", branch="lost")
        assert other.done("describe_branch", branch="own")["publication"] is None
    bound = Caller("agent", read_only=True, branches=True)
    with agent_of(lake, bound, may_publish=True) as on_branches:
        assert "may not change main" in on_branches.refused("publish_branch", branch="own")
    assert agent.done("query", sql="SELECT id FROM orders")["total"] == 2
    with agent_of(lake, may_publish=True) as publisher:
        publisher.done("publish_branch", branch="own")
        assert publisher.done("query", sql="SELECT id FROM orders")["rows"] == [[2]]


def test_a_reader_changes_nothing(lake: txlake.Lake) -> None:
    with agent_of(lake, Caller("reports", read_only=True), may_publish=True) as agent:
        assert agent.done("query", sql="SELECT count(*) FROM orders")["rows"] == [[2]]
        for tool, arguments in (
            ("create_branch", {"branch": "own"}),
            ("write", {"branch": "own", "sql": "DELETE FROM orders"}),
            ("drop_branch", {"branch": "own"}),
            ("publish_branch", {"branch": "own"}),
        ):
            agent.refused(tool, **arguments)
        assert agent.done("list_branches")["rows"] == []


@pytest.mark.broad
def test_calls_leave_no_session(lake: txlake.Lake) -> None:
    tools = tools_of(lake)
    for _ in range(200):  # more than a server keeps sessions
        tools.query(Caller("agent"), "SHOW DATABASES")


def test_the_command_serves_over_standard_input_and_output(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, *SHOP)
    with over_stdio(tmp_path / "lake", "--name", "helper", "--rows", "1") as agent:
        assert agent.tools().keys() == READS | CHANGES
        found = agent.done("query", sql="SELECT id FROM orders")
        assert "1 of 2 rows" in found["note"]
        agent.done("create_branch", branch="helper/work")
        agent.done("write", branch="helper/work", sql="INSERT INTO orders VALUES (3, 30)")
        assert "Unknown tool" in agent.refused("publish_branch", branch="helper/work")
    with txlake.connect(str(tmp_path / "lake")) as lake:
        (branch,) = lake._session.engine.catalog.of_lake().branches.entries()
        assert (branch.name, branch.user_name) == ("helper/work", "token:helper")


@pytest.mark.broad
def test_over_http_each_token_is_a_caller(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, *SHOP)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(
        json.dumps(
            [
                {"token": "the-token-of-an-agent", "name": "agent", "branches": True},
                {"token": "a-token-that-only-reads", "name": "reports", "read_only": True},
            ]
        )
    )
    options = ("--http", "--token-file", str(tokens))
    with ServerProcess(tmp_path / "lake", *options, command="mcp") as server:
        assert httpx.post(server.url, json={}).status_code == 401
        assert httpx.post(server.url, json={}, headers=bearer("another-token")).status_code == 401
        with over_http(server.url, "the-token-of-an-agent") as agent:
            agent.done("create_branch", branch="own")
            agent.done("write", branch="own", sql="DELETE FROM orders WHERE id = 1")
            assert agent.done("query", sql="SELECT id FROM orders")["total"] == 2
        with over_http(server.url, "a-token-that-only-reads") as reader:
            assert reader.done("query", sql="SELECT id FROM orders", branch="own")["total"] == 1
            assert "may only read" in reader.refused("create_branch", branch="more")


@pytest.mark.broad
def test_over_http_other_hosts_need_tokens(tmp_path: Path) -> None:
    ran = command(str(lake_at(tmp_path)), "--http", "--port", "0", "--host", "0.0.0.0")
    assert ran.returncode == 6
    assert "there are no tokens" in " ".join(ran.stderr.split())
    with ServerProcess(lake_at(tmp_path), "--http", command="mcp") as server:
        rebound = httpx.post(server.url, json={}, headers={"host": "evil.example"})
        assert rebound.status_code == 421
        with over_http(server.url) as agent:
            assert agent.done("list_tables") == []


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command that ends by itself said."""
    words = [sys.executable, "-m", "txlake", "mcp", *arguments]
    return subprocess.run(words, input="", capture_output=True, text=True, timeout=120)


def lake_at(folder: Path) -> Path:
    """A lake without tables in a folder."""
    txlake.connect(str(folder / "lake")).close()
    return folder / "lake"


@pytest.mark.broad
def test_the_command_makes_no_lake_and_takes_no_token_over_standard_input(tmp_path: Path) -> None:
    ran = command(str(tmp_path / "nothing"))
    assert ran.returncode == 6
    assert "there is no lake at" in ran.stderr
    assert not (tmp_path / "nothing").exists()
    ran = command(str(tmp_path), "--token-file", "tokens.json")
    assert ran.returncode == 2
    assert "--http" in ran.stderr


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; sys.modules['mcp.server'] = None; "
        "from txlake.__main__ import main; sys.argv = ['txlake', 'mcp', sys.argv[1]]; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, os.fspath(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 6, ran.stderr
    assert 'pip install "txlake[mcp]"' in " ".join(ran.stderr.split())
