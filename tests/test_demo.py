"""The demo, run as `make demo` runs it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pages import ROOT

pytestmark = pytest.mark.timeout(1800)


# Spark waits ten seconds for the Python of a stream to start, which beside other load isn't enough.
TOO_LATE = "Python worker failed to connect back"


def demo(name: str = "demo.py", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.broad
def test_the_demo_comes_to_its_end() -> None:
    ran = demo()
    if TOO_LATE in ran.stderr:
        ran = demo()
    assert ran.returncode == 0, ran.stderr[-4000:]
    shown = ran.stdout
    assert "\x1b" not in shown  # plain in a pipe
    for said in (
        "651 flights of New Year's Eve 2013 have 96,287 free seats",
        "a reader, at the same time: 0 seats taken",
        "the reader, after COMMIT: 2 seats taken, 2 sold, $398.00 paid",
        "CHECK constraint paid (dollars > 0) is violated",
        "everybody: 14 seats taken, 14 sold, $2,398.00 paid",
        "│ SNAPSHOT     │ COMMIT │ COMMIT",
        "│ SERIALIZABLE │ COMMIT │ SerializableIsolationViolation (1023,)",
        "Sch-M        │ WAIT",
        "with the new column: 15 seats taken",
        "after it stopped in the middle: 15 seats taken, 15 sold, $2,597.00 paid",
        "one more request, and started twice: 22 seats taken, 22 sold, $4,047.00 paid",
        "The answers are equal",
        "txlakeCatalog",
        "The other engine appends: 200",
        "to the version that it knew: 409",
        "$200 are paid back, and nothing was lost",
        "All 400 rows are there, in ",
    ):
        assert said in shown, f"{said!r} isn't in:\n{shown}"


@pytest.mark.broad
def test_two_hosts_take_orders_in_a_bucket() -> None:
    """Nothing else is needed, Java neither."""
    ran = demo("two_hosts.py", JAVA_HOME="/nowhere")
    assert ran.returncode == 0, ran.stderr[-4000:]
    for said in (
        r"west-1 │ west │ +[3-6] │ killed",
        r"west-2 │ west │ +6 │ done",
        r"lake\.recover\(\) has nothing to do",
        r"delta-rs │ +\d+ │ +\d+ │ ",
        r"polars +│ +\d+ │ +\d+ │ ",
    ):
        assert re.search(said, ran.stdout), f"{said!r} isn't in:\n{ran.stdout}"


def test_its_data_is_found_wherever_the_package_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes a path as it stands, and decodes no URL."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    nycflights = importlib.import_module("nycflights")
    file = tmp_path / "a b ü" / "data" / "planes.csv"
    file.parent.mkdir(parents=True)
    file.touch()
    package = SimpleNamespace(origin=str(file.parent.parent / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: package)
    spark = SimpleNamespace(read=SimpleNamespace(csv=lambda path, **_: path))
    assert nycflights.read(spark, "planes", tmp_path) == str(file)
