"""The works on what has just been started: a process until its first answer, by its whole time.

Each repeat starts a process. What it is given is there already: a table that nobody has opened
before in that process, for txlake in a lake.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import txlake
from bench.engines.transactions import ROOT
from bench.sources.rows import large_rows
from bench.stage import Stage
from txlake.session.command import AsRows

_TIMEOUT_S = 600
_VIEW = "SELECT request_mode FROM sys.dm_tran_locks"


def first_sum(stage: Stage, number: int) -> float:
    """From the start of a process to its first answer, the sums of `few_rows`."""
    rows = large_rows(stage.data, stage.sizes.few_rows, stage.sizes.few_files)
    place = stage.keep("lake", lambda: _lake(stage))
    seconds, answer = _first(stage, [stage.engine_name, str(place), "sum"])
    total = stage.keep("few", rows.total)
    stage.expect(json.loads(answer), [total.rows, total.k, total.v], place)
    return seconds


def select_one(stage: Stage, number: int) -> float:
    """The same of `SELECT 1`: by the command line, where there is one."""
    place = stage.keep("lake", lambda: _lake(stage))
    if stage.engine_name == "txlake":
        return _by_command(stage, place, "SELECT 1 AS one", "one\n1\n")
    seconds, answer = _first(stage, [stage.engine_name, str(place), "one"])
    stage.expect(json.loads(answer), [1], "SELECT 1")
    return seconds


def view(stage: Stage, number: int) -> float:
    """The command line's answer to a query of a view of the catalog, of which no table is read."""
    place = stage.keep("lake", lambda: _lake(stage))
    return _by_command(stage, place, _VIEW, "request_mode\n")


def show(stage: Stage, number: int) -> float:
    """The command line's answer to SHOW TABLES."""
    place = stage.keep("lake", lambda: _lake(stage))
    return _by_command(
        stage, place, "SHOW TABLES", "namespace,tableName,isTemporary\ndefault,t,false\n"
    )


def _lake(stage: Stage) -> Path:
    """The table; for txlake the lake that it is in, as `t`."""
    rows = large_rows(stage.data, stage.sizes.few_rows, stage.sizes.few_files)
    table = stage.table("first", rows.log("live"), rows.data)
    if stage.engine_name != "txlake":
        return table
    place = stage.scratch / "lake"
    with txlake.connect(str(place)) as lake:
        lake._run_sql(f"CREATE TABLE t USING DELTA LOCATION '{table}'", None, AsRows())
    return place


def _by_command(stage: Stage, lake: Path, text: str, expected: str) -> float:
    command = Path(sysconfig.get_path("scripts")) / "txlake"
    outside = {"TXLAKE_ALLOW_OUTSIDE_PATHS": str(stage.scratch)}
    chosen = [str(command), "sql", "--lake", str(lake), "--format", "csv", text]
    seconds, answer = _answered(chosen, lambda process: process.communicate()[0], outside)
    stage.expect(answer.lower(), expected.lower(), text)
    return seconds


def _first(stage: Stage, arguments: Sequence[str]) -> tuple[float, str]:
    scratch = str(stage.scratch / "first process")
    script = str(Path(__file__).resolve().parent.parent / "engines" / "first_answer.py")
    return _answered([sys.executable, script, *arguments, scratch], _line)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _answered(
    command: Sequence[str],
    answer: Callable[[subprocess.Popen[str]], str],
    more: dict[str, str] | None = None,
) -> tuple[float, str]:
    """Seconds until the answer, and the answer. Raises RuntimeError when the process fails."""
    environment = {**os.environ, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1", **(more or {})}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True
    ) as process:
        found = answer(process)
        seconds = time.perf_counter() - start
        code = process.wait(timeout=_TIMEOUT_S)
    if code != 0:
        raise RuntimeError(f"{command[0]} ended with {code}; it said why above")
    return seconds, found
