"""A small dbt project on a lake, by dbt-spark's session method, unchanged but for the session."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.dbt.environment import PYTHON, environment
from tests.pages import ROOT
from tests.peers import need


@pytest.mark.peer("dbt")
def test_models_snapshots_tests_and_docs(tmp_path: Path) -> None:
    need("dbt", found=PYTHON.exists())
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "dbt" / "program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment()},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    held = json.loads(done.stdout.strip().splitlines()[-1])
    assert held["orders"] == [[1, "open"], [2, "sent"], [3, "open"]]
    assert held["open_orders"] == [[1], [3]]
    assert held["per_day"] == [["2026-01-01", 8], ["2026-01-02", 7]]
    assert held["states"] == [
        [1, "open", True],
        [2, "open", False],
        [2, "sent", True],
        [3, "open", True],
    ]
    assert held["operations"][0] == "MERGE"
    assert [name for _, name, is_temporary in held["views"] if not is_temporary] == ["open_orders"]
    assert held["catalog"]["per_day"] == ["day", "pieces"]
    assert set(held["catalog"]) == {"orders", "open_orders", "per_day", "states"}


@pytest.mark.peer("dbt")
def test_a_build_on_a_branch_is_published_when_all_of_it_passed(tmp_path: Path) -> None:
    """The example: a failed test, a conflict with somebody else's change, a name that is taken."""
    need("dbt", found=PYTHON.exists())
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "dbt" / "branch_program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment()},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    first, failed, mended, conflicting, again, unnamed = json.loads(
        done.stdout.strip().splitlines()[-1]
    )
    assert first["published"]
    assert first["orders"] == [[1, 5], [2, 3]]
    assert first["branches"] == {}
    kept = {name: value for name, value in first.items() if name not in ("published", "branches")}
    assert failed == {
        **kept,
        "published": False,
        "branches": {"dbt": [[1, 5], [2, 3], [3, 7]]},
    }
    assert mended["published"]
    assert mended["orders"] == [[1, 5], [2, 3], [3, 7]]
    assert mended["per_day"] == [["mon", 8], ["tue", 7]]
    assert mended["large"] == [[1], [3]]
    assert not conflicting["published"]
    assert conflicting["orders"] == [[1, 5], [2, 6], [3, 7]], "somebody else's change alone"
    assert conflicting["per_day"] == mended["per_day"]
    assert conflicting["branches"] == {"dbt": [[1, 5], [2, 9], [3, 7]]}
    assert again["published"]
    assert again["orders"] == [[1, 5], [2, 9], [3, 7]]
    assert again["per_day"] == [["mon", 14], ["tue", 7]]
    assert unnamed == {**again, "published": False}, "no model was built on main"
    assert "added rows that this transaction should have read" in done.stdout
