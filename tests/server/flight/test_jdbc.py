"""Flight SQL by its JDBC driver, in a small Java program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import txlake
from tests.pages import ROOT
from tests.peers import need
from tests.server.flight.serving import WRITER, ServedFlight

_FOLDER = ROOT / ".cache" / "flight_jdbc"
_PROGRAM = Path(__file__).with_name("JdbcClient.java")
FACTS = """\
inserted: 2
column: id INTEGER
column: name VARCHAR
column: price DECIMAL
column: day DATE
row: 1 a 1.50 2026-11-28
tables: default t false
batch: 3
prepared: n4 n5
updated: 1
product: txlake true true `
catalogs: lake
schemas: default more
tables of: t
columns of: id name price day
kinds: TABLE VIEW
keys:
left: 1 2
database: 7
password: 1
"""


@pytest.mark.peer("flight-jdbc")
def test_a_java_program(tmp_path: Path) -> None:
    need("flight-jdbc", found=(_FOLDER / ".stamp").exists() and shutil.which("javac") is not None)
    with txlake.connect(str(tmp_path / "lake")) as lake, ServedFlight(lake) as served:
        place = f"jdbc:arrow-flight-sql://{served.address.partition('://')[2]}/?useEncryption=false"
        options = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", f"{_FOLDER}/*"]
        found = subprocess.run(
            ["java", *options, str(_PROGRAM), f"{place}&token={WRITER}", "lake", place, WRITER],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    printed = [line[2:].rstrip() for line in found.stdout.splitlines() if line.startswith("> ")]
    assert found.returncode == 0, found.stdout + found.stderr
    facts = [line for line in printed if not line.startswith("refused: ")]
    assert "\n".join(facts) + "\n" == FACTS
    refused = [line for line in printed if line.startswith("refused: ")]
    assert "expected a statement" in refused[0]
    assert "isn't served" in refused[1]
