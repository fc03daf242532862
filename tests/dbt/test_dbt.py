"""A small dbt project on a lake, by dbt-spark's session method, unchanged but for the session."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.peers import need

# Where another environment with dbt-spark is.
VARIABLE = "TXLAKE_TEST_DBT"
PYTHON = Path(os.environ.get(VARIABLE, ROOT / ".cache" / "dbt-spark" / "bin" / "python"))


@pytest.mark.peer("dbt")
def test_models_snapshots_tests_and_docs(tmp_path: Path) -> None:
    need("dbt", found=PYTHON.exists())
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "dbt" / "program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
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
