"""`txlake maintain`, as users type it: its page, its rounds, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.pages import blocks, codes, page, table
from txlake.cli.app import app
from txlake.errors import InvalidRequest
from txlake.lake.lake import Lake, connect
from txlake.maintenance.policy import Work
from txlake.protocol.properties import _KNOWN, MAINTENANCE_PREFIX

TEXT = page("docs/maintenance.md")
CREATE = "CREATE TABLE t (id INT) TBLPROPERTIES ('txlake.maintenance.minSmallFiles' = '2')"


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake with a table of two small files."""
    monkeypatch.delenv("TXLAKE_LAKE", raising=False)
    place = str(tmp_path / "warehouse")
    run("sql", "-l", place, f"{CREATE}; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
    return place


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def rows_of(done: Result) -> list[dict[str, object]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    runner = CliRunner(env={"TXLAKE_LAKE": str(tmp_path / "warehouse")})
    ran = []
    for block in blocks(TEXT, "console"):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = example.partition("\n")
            program, *arguments = shlex.split(command)
            assert program == "txlake"
            done = runner.invoke(app, arguments)
            assert done.exit_code == 0, done.output
            if shown:
                assert done.stdout == shown
            ran.append(arguments[0])
    assert ran == ["sql", "sql", "maintain", "maintain"]
    for block in blocks(TEXT, "sql"):
        assert runner.invoke(app, ["sql", block]).exit_code == 0, block


def test_the_page_has_every_need_and_every_property() -> None:
    needs = [codes(cells[0]) for cells in table(TEXT, "need")]
    named = [name for names in needs for name in names]
    assert set(named) == {work.value for work in Work}
    said = {
        MAINTENANCE_PREFIX + name
        for cells in table(TEXT, "property `txlake.maintenance.`")
        for name in codes(cells[0])
    }
    assert said == {key for key in _KNOWN if key.startswith(MAINTENANCE_PREFIX)}


def test_a_plan_a_round_and_the_record(warehouse: str) -> None:
    [due] = rows_of(run("maintain", warehouse, "--dry-run", "--json"))
    assert (due["state"], due["table"], due["need"]) == ("due", "default.t", "optimize")
    [done] = rows_of(run("maintain", warehouse, "--once", "--budget", "1m", "--json"))
    assert (done["state"], done["files"]) == ("done", 1)
    assert rows_of(run("maintain", "-l", warehouse, "--json")) == []
    query = "SELECT state, need, duration_ms FROM txlake.maintenance"
    [result] = rows_of(run("sql", "-l", warehouse, "--json", query))
    rows: Any = result["rows"]
    [row] = rows
    assert (row["state"], row["need"]) == ("done", "optimize")


def test_a_budget_bounds_a_round(warehouse: str) -> None:
    [left] = rows_of(run("maintain", warehouse, "--budget-bytes", "1", "--json"))
    assert left["state"] == "due"
    assert "left of the round's budget" in str(left["error"])


def test_rounds_go_on(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real = time.sleep

    def sleep(duration_s: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            real(duration_s)  # a thread of PySpark's, if another test has started Spark
            return
        slept.append(duration_s)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    done = run("maintain", warehouse, "--every", "10m", "--json")
    assert done.exit_code == 130
    assert json.loads(done.stdout.splitlines()[0])["state"] == "done"
    assert all(0 < each <= 600 for each in slept)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--every", "10m", "--once"], 2, "give --every, or else --once or --dry-run"),
        (["--every", "10m", "--dry-run"], 2, "give --every, or else --once or --dry-run"),
        (["--every", "soon"], 6, "every: expected a duration"),
        (["--budget", "much"], 6, "budget: expected a duration"),
        (["--budget-bytes", "much"], 6, "budget_bytes: expected a size"),
        (["-l", "elsewhere"], 2, "give WAREHOUSE or --lake, not both"),
    ],
)
def test_what_is_refused(warehouse: str, arguments: list[str], exit_code: int, said: str) -> None:
    done = run("maintain", warehouse, *arguments)
    assert (done.exit_code, said in done.output) == (exit_code, True), done.output


def test_a_place_with_nothing_to_maintain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXLAKE_LAKE", raising=False)
    done = run("maintain", str(tmp_path / "nowhere"))
    assert done.exit_code == 6
    assert "has neither _txlake/lake.json nor _delta_log" in done.output
    assert not (tmp_path / "nowhere").exists()
    done = run("maintain")
    assert done.exit_code == 2
    assert "no lake is named" in done.output


def test_a_path_table_is_maintained_without_a_lake(warehouse: str, tmp_path: Path) -> None:
    place = str(tmp_path / "alone")
    statements = CREATE.replace(" t ", f" delta.`{place}` ")
    for number in (1, 2):
        statements += f"; INSERT INTO delta.`{place}` VALUES ({number})"
    assert run("sql", "-l", warehouse, statements).exit_code == 0
    [done] = rows_of(run("maintain", place, "--json"))
    assert (done["state"], done["files"]) == ("done", 1)
    [off] = rows_of(run("maintain", f"{warehouse}/t", "--dry-run", "--json"))
    assert off["state"] == "off"


def test_a_process_of_the_command(warehouse: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "txlake", "maintain", warehouse, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout)["state"] == "done"


def test_the_lakes_own_method(warehouse: str) -> None:
    with connect(warehouse) as lake:
        [due] = lake.maintain(dry_run=True).to_pylist()
        assert (due["state"], due["table"]) == ("due", "default.t")
        handle = lake.maintain(every="10m")
        while lake.view("txlake.maintenance").num_rows == 0 or _is_running(lake):
            pass  # the test's time limit ends this
        assert handle.stop(60)
        assert lake.maintain(once=True).num_rows == 0
        assert [row["state"] for row in lake.view("txlake.maintenance").to_pylist()] == ["done"]


def _is_running(lake: Lake) -> bool:
    return any(row["state"] == "running" for row in lake.view("txlake.maintenance").to_pylist())


@pytest.mark.parametrize(
    "arguments",
    [
        {"every": "10m", "once": True},
        {"every": "10m", "dry_run": True},
        {"every": "often"},
        {"budget": "much"},
        {"budget_bytes": "much"},
    ],
)
def test_arguments_that_mean_nothing(warehouse: str, arguments: dict[str, Any]) -> None:
    with connect(warehouse) as lake, pytest.raises(InvalidRequest):
        lake.maintain(**arguments)
