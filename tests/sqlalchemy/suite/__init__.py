"""SQLAlchemy's own suite for dialects, which each part's test runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OLDER = ROOT / ".cache" / "sqlalchemy-2.0"
"""Where tools/python_peer.sh sqlalchemy-2.0 puts SQLAlchemy 2.0."""


def run(part: str, place: Path, libraries: Path | None = None) -> Counter[str]:
    """Run the tests of `cases_PART.py` on a lake in a folder, and return how many passed and how
    many were skipped. `libraries`: a folder that is searched before the installed libraries.

    Fails with the output's end if a test failed.
    """
    report = place / "report.xml"
    path = os.pathsep.join(map(str, [*([libraries] if libraries else []), ROOT / "src", ROOT]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", "pytest.ini", "--rootdir", str(HERE), "-q"),
            *("--tb=short", "--maxfail=20", f"--dburi=txlake:///{place / 'lake'}"),
            *(f"--junitxml={report}", f"cases_{part}.py"),
        ],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    cases = ET.parse(report).getroot().iter("testcase")
    return Counter("passed" if case.find("skipped") is None else "skipped" for case in cases)
