"""The DAG of SQL in examples/airflow, task by task, by Airflow's operators on a lake."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import txlake.dbapi
from tests.pages import ROOT
from tests.peers import need

PYTHON = ROOT / ".cache" / "airflow" / "bin" / "python"
TASKS = "define done\nload done\ncolumns done\ntable done\ntotal done\n"


@pytest.mark.broad
@pytest.mark.peer("airflow")
def test_operators_on_a_lake(tmp_path: Path) -> None:
    need("airflow", found=PYTHON.exists())
    place = str(tmp_path / "lake")
    report = tmp_path / "report.txt"
    connection = {"conn_type": "txlake", "extra": {"warehouse": place}}
    done = subprocess.run(
        [
            *(str(PYTHON), str(Path(__file__).with_name("airflow_program.py"))),
            *(str(ROOT / "examples" / "airflow" / "sql_dag.py"), str(report)),
        ],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_LAKE": json.dumps(connection),
            "PYTHONPATH": str(ROOT / "src"),
            "PYSPARK_PYTHON": str(PYTHON),
        },
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert report.read_text() == (
        f"{TASKS}{TASKS}[(datetime.date(2026, 1, 2), 12)]\n(4,)\n['orders', 'totals']\n"
        "columns: AirflowException\ntable: AirflowException\n"
    )
    with txlake.dbapi.connect(place) as con:
        assert len(con.execute("SELECT * FROM orders").fetchall()) == 4
