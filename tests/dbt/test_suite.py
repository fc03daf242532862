"""dbt's own tests of adapters (dbt-tests-adapter), on dbt-txlake.

They are classes that tests/dbt/suite takes over, each file in a process that has one Spark session.
`make dbt-suite` runs all of them, in ten minutes; otherwise those run that CHOSEN names.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.dbt.environment import PYTHON, environment
from tests.pages import ROOT
from tests.peers import need

SUITE = ROOT / "tests" / "dbt" / "suite"
# `make dbt-suite` sets it.
WHOLE = "TXLAKE_TEST_DBT_SUITE"
CHOSEN = [
    ("adapter.py", ""),
    (
        "basic.py",
        "SimpleMaterializations or GenericTests or SnapshotTimestamp or Docs or SingleRelation",
    ),
    (
        "contracts.py incremental.py snapshots.py",
        "Grants or Configs or TestConstraintsRollback or Microbatch or Predicates or NewRecordDbt",
    ),
]
"""By files, which tests run: names as pytest's option -k has them."""
ALL = [(path.name, "") for path in sorted(SUITE.glob("*.py"))]


@pytest.mark.broad
@pytest.mark.peer("dbt")
@pytest.mark.parametrize(("files", "chosen"), ALL if os.environ.get(WHOLE) else CHOSEN)
def test_the_suite_passes(files: str, chosen: str, tmp_path: Path) -> None:
    suite = PYTHON.parents[1].glob("lib/python*/site-packages/dbt/tests/adapter")
    need("dbt", found=any(suite))
    inherited = {key: text for key, text in os.environ.items() if key != "PYTEST_ADDOPTS"}
    no_spark = {"TXLAKE_TEST_DBT_DSN": "none"} if files == "adapter.py" else {}
    done = subprocess.run(
        [
            *(str(PYTHON), "-m", "pytest", "-q", "-W", "ignore", "--tb=short", "-k", chosen),
            *("-c", str(SUITE / "pytest.ini"), "--rootdir", str(SUITE)),
            *(
                "-p",
                "dbt.tests.fixtures.project",
                "-p",
                "tests.dbt.suite_plugin",
                "--basetemp",
                str(tmp_path / "tmp"),
            ),
            *(str(SUITE / name) for name in files.split()),
        ],
        capture_output=True,
        text=True,
        env={**inherited, **environment(), **no_spark},
        cwd=tmp_path,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-4000:]
