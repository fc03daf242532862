"""dbt-txlake: a build is one transaction, or one branch, or each model by itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.dbt.environment import PYTHON, environment
from tests.pages import ROOT
from tests.peers import need

TABLES = ["orders", "products", "revenue", "sales"]


def _seen(folder: Path, unit: str) -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """Run the builds of units_program.py; return what was seen during the first, and after each."""
    need("dbt", found=PYTHON.exists())
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "dbt" / "units_program.py"), str(folder), unit],
        capture_output=True,
        text=True,
        env={**os.environ, **environment()},
        cwd=folder,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    during, seen = json.loads(done.stdout.strip().splitlines()[-1])
    return during, {item["what"]: item for item in seen}


def _state(item: dict[str, Any]) -> tuple[bool, list[str], list[int]]:
    return item["passed"], item["tables"], item["orders"]


@pytest.mark.broad
@pytest.mark.peer("dbt")
def test_a_build_is_one_transaction(tmp_path: Path) -> None:
    during, seen = _seen(tmp_path, "build")
    assert during == [[]], "nothing of a build that is under way is visible"
    assert _state(seen["killed"]) == (False, [], [])
    assert "3 of 8 OK created" in seen["killed"]["said"], "models were built when it was killed"
    assert _state(seen["first"]) == (True, TABLES, [1, 2, 3])
    assert "committed: this run was one transaction" in seen["first"]["said"]
    views = {name: item["views"] for name, item in seen.items()}
    assert (views["killed"], views["first"]) == ([], ["best_day"]), "a view comes with its tables"
    assert _state(seen["failed"]) == (False, TABLES, [1, 2, 3]), "a failed test undoes its build"
    assert "rolled back: nothing of this run is visible (test.shop.rel" in seen["failed"]["said"]
    assert _state(seen["retried"]) == (False, TABLES, [1, 2, 3])
    assert "run the whole command again" in seen["retried"]["said"]
    assert _state(seen["warned"]) == (True, TABLES, [1, 2, 3, 4]), "a warning lets it commit"
    assert _state(seen["conflict"]) == (False, TABLES, [1, 2, 3, 4, 9])
    assert "wasn't committed: shop.orders: this transaction read" in seen["conflict"]["said"]
    assert seen["one"]["passed"]
    assert all(item["branches"] == [] for item in seen.values())


@pytest.mark.broad
@pytest.mark.peer("dbt")
def test_a_build_is_a_branch(tmp_path: Path) -> None:
    during, seen = _seen(tmp_path, "branch")
    assert during == [[]], "nothing of a build that is under way is visible"
    assert _state(seen["killed"]) == (False, [], [])
    assert "3 of 8 OK created" in seen["killed"]["said"], "models were built when it was killed"
    assert len(seen["killed"]["branches"]) == 1, "its branch is kept"
    assert _state(seen["first"]) == (True, TABLES, [1, 2, 3])
    assert seen["first"]["branches"] == seen["killed"]["branches"], "its own has ended"
    assert _state(seen["failed"]) == (False, TABLES, [1, 2, 3])
    [kept] = set(seen["failed"]["branches"]) - set(seen["first"]["branches"])
    assert (
        f"not published: branch {kept}, which is kept for 7 DAYS (test.shop.rel"
        in (seen["failed"]["said"])
    )
    assert seen["retried"]["branches"] == seen["failed"]["branches"]
    assert "run the whole command again" in seen["retried"]["said"]
    assert _state(seen["warned"]) == (True, TABLES, [1, 2, 3, 4])
    assert _state(seen["conflict"]) == (False, TABLES, [1, 2, 3, 4, 9])
    assert (
        "wasn't published, and is kept for 7 DAYS: shop.orders: this" in (seen["conflict"]["said"])
    )
    assert seen["one"]["passed"]


@pytest.mark.broad
@pytest.mark.peer("dbt")
def test_builds_over_http(tmp_path: Path) -> None:
    need("dbt", found=PYTHON.exists())
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "dbt" / "served_program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment()},
        cwd=tmp_path,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == [
        {"passed": True, "orders": [1, 2, 3]},
        {"passed": False, "orders": [1, 2, 3]},
        {"passed": True, "orders": [1, 2, 3, 4, 5]},
        {"branches": 0},
    ]
