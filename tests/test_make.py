"""Every target of the Makefile works in a fresh clone, with no variable but PATH and HOME.

Programs that take long (Python, the scripts in tools except setup.sh) are replaced by stand-ins.
What is tested: a recipe finds the folders that it writes to, and depends on no other variable.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT, page

TARGETS = re.findall(r"^([a-z-]+):.*## ", page("Makefile"), re.MULTILINE)
VARIABLES = {
    "delta-tests": ["CHECKOUT=delta"],
    "uc-suites": ["UNITYCATALOG=unitycatalog", "DELTA=delta"],
}
PROGRAM = "#!/bin/sh\nexit 0\n"
# Like the script itself, it makes an environment.
PYSPARK_VENV = """#!/bin/sh
mkdir -p ".cache/$1-$2/bin" && ln -s "$PWD/.venv/bin/python" ".cache/$1-$2/bin/python"
"""
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15'\n"


def put(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what the Makefile's recipes refer to, and .venv as tools/setup.sh leaves it."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for script in (ROOT / "tools").glob("*.sh"):
        put(folder / "tools" / script.name, PROGRAM)
    put(folder / "tools/pyspark_venv.sh", PYSPARK_VENV)
    shutil.copy(ROOT / "tools/setup.sh", folder / "tools")
    put(folder / ".venv/bin/python", PROGRAM)
    put(folder / ".venv/bin/lint-imports", PROGRAM)
    stamp = "pwd; cksum requirements.lock pyproject.toml"
    made = subprocess.run(stamp, shell=True, cwd=folder, capture_output=True, check=True)
    (folder / ".venv/.txlake-stamp").write_bytes(made.stdout)
    put(tmp_path / "bin/java", JAVA)
    (tmp_path / "home").mkdir()
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_needs_no_folder_that_nothing_made(clone: Path, target: str) -> None:
    beside = clone.parent
    done = subprocess.run(
        ["make", target, *VARIABLES.get(target, [])],
        cwd=clone,
        env={
            "PATH": f"{beside / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(beside / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"cannot create|[Nn]o such file|not set|nonexistent", done.stderr), (
        done.stderr
    )
    assert list((beside / "home").iterdir()) == []
