"""Hostile logs end in an error of ours, within bounded memory and time, in a process of their own.

A child that dies, of memory, time or a crash of a library, fails the test of the case it was at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.security import cases
from tests.security.fuzz import batch
from tests.security.mutations import good_table

ROOT = Path(__file__).resolve().parents[2]
# What is read all the same: the damage is in something that only tunes, or that nobody needs.
READ = {
    "path with a NUL",  # refused when the file is read
    "path of 1 MB",
    "only white space",
    "30 million rows of nothing",  # rows of a checkpoint that hold no action, read by row groups
    "a million lines of nothing",
    "statistics nested deeply",
    "statistics with a huge number",
    "statistics with an endless number",
    "statistics that aren't numbers",
    "statistics with half a character",
    "partitioned by nothing that exists",
    "property of many digits",  # refused by what asks for it
    "commit time beyond all",
    "commitInfo with numbers beyond all",
    "hint nested deeply",
    "hint nested deeply, with a checksum",
    "hint of 20 MB",
    "hint beyond a long",
    "hint with half a character",
    "checksum nested deeply",
    "checksum of 20 MB",
    "checksum with huge numbers",
}


def outcomes(folder: Path, made: Mapping[str, cases.Case]) -> dict[str, str]:
    """What reading each of the tables ends in, by case."""
    places = []
    for number, make in enumerate(made.values()):
        places.append(folder / str(number))
        places[-1].mkdir()
        make(places[-1])
    child = subprocess.run(
        [sys.executable, "-m", "tests.security.child", *map(str, places)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert len(lines) == len(places), child.stderr
    return dict(zip(made, lines))


@pytest.mark.broad(keep=1)
@pytest.mark.no_interop("the logs are damaged")
@pytest.mark.parametrize("group", ["JSON", "SCHEMAS", "VECTORS", "HINTS", "PARQUET"])
def test_reading_ends_in_an_error_of_ours(tmp_path: Path, group: str) -> None:
    found = outcomes(tmp_path, getattr(cases, group))
    good = ("CorruptTable", "UnsupportedFeature")
    assert {name: end for name, end in found.items() if name not in READ and end not in good} == {}
    assert {name: end for name, end in found.items() if name in READ and end != "read"} == {}


@pytest.mark.no_interop("the logs are damaged")
def test_tables_made_hostile_by_chance_end_in_errors_of_ours(tmp_path: Path) -> None:
    """A short `make fuzz`."""
    good = good_table(tmp_path / "good")
    ends, wrong = batch(good, 1, 60)
    assert wrong == []
    assert ends["read"]
    assert ends["CorruptTable"]
