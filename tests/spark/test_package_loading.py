"""Code of txlake in Spark processes that have no txlake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tests.spark_session import without_txlake
from txlake.spark.package_loading import module_loader
from txlake.spark.shipping import Package, _whole_archive

PROGRAM = """\
import os, pickle, sys
module = pickle.load(open(sys.argv[1], "rb"))
offsets = module("lake.streaming.offsets")
if os.path.exists(sys.argv[2]):
    os.remove(sys.argv[2])
planning = module("lake.streaming.planning")
source = planning.__spec__.loader.get_source("PACKAGE.lake.streaming")
print(planning.__name__, source.count("\\n") > 0)
assert planning.__file__ == offsets.__file__.replace("offsets", "planning"), planning.__file__
"""


def ran(tmp_path: Path, *, carries: bool, is_there: bool) -> subprocess.CompletedProcess[str]:
    """A process without txlake, which imports some of a package that goes away meanwhile."""
    name, made = _whole_archive()
    archive = tmp_path / made.name
    shutil.copy(made, archive)
    pickled = tmp_path / "module"
    pickled.write_bytes(
        cloudpickle.dumps(module_loader(Package(name, str(archive)), carries=carries))
    )
    if not is_there:
        archive.unlink()
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("PACKAGE", name), str(pickled), str(archive)],
        env={"PYTHONPATH": str(without_txlake(tmp_path))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_code_that_is_carried_needs_no_file(tmp_path: Path, is_there: bool) -> None:
    done = ran(tmp_path, carries=True, is_there=is_there)
    assert done.returncode == 0, done.stderr
    name, _ = _whole_archive()
    assert done.stdout.split() == [f"{name}.lake.streaming.planning", "True"]


def test_other_code_needs_the_archive_while_it_runs(tmp_path: Path) -> None:
    done = ran(tmp_path, carries=False, is_there=True)
    assert "FileNotFoundError" in done.stderr
