"""Names of a real catalog that knows Delta, with Delta Spark's jars, classic and Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connect_port import connect_port
from tests.delta_spark import delta_jars

pytestmark = pytest.mark.timeout(1800)

PROGRAM = Path(__file__).with_name("spark_catalog_program.py")
SOURCES = Path(__file__).parents[3] / "src"


@pytest.mark.broad
@pytest.mark.no_interop("the program compares with Delta Spark itself")
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_names_from_creation_to_drop_and_again(kind: str, tmp_path: Path) -> None:
    jars = delta_jars()
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable}
    with connect_port():
        done = subprocess.run(
            [sys.executable, str(PROGRAM), kind, str(tmp_path), *jars],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=540,
        )
    assert done.returncode == 0, done.stderr[-4000:]
