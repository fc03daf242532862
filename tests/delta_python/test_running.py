"""The runner of Delta Spark's own tests, on a checkout with a tiny file of ours; without Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import txlake
from tests.delta_python import stand_in
from tests.delta_python.left_out import LEFT_OUT
from tests.delta_python.running import Outcome, load, run

FILE = """
import unittest

import delta
from delta.exceptions import ConcurrentAppendException
from delta.tables import DeltaTable
from delta.testing.base import Base
from delta.version import __version__


class TinyTests(Base):
    def test_names(self):
        assert DeltaTable is delta.DeltaTable
        assert __version__ == delta.__version__ == delta.version.__version__
        assert issubclass(ConcurrentAppendException, Exception)

    def test_wrong(self):
        self.assertEqual(1, 2)

    def test_broken(self):
        raise KeyError("gone")

    def test_other(self):
        raise AssertionError("it runs")

    def test_skipped(self):
        self.skipTest("not here")


class NeverSetUpTests(Base):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no Spark")

    def test_one(self):
        pass
"""
LEFT = {"test_tiny.TinyTests.test_other": "isn't ours"}


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    package = tmp_path / "python" / "delta"
    (package / "tests").mkdir(parents=True)
    (package / "testing").mkdir()
    (package / "tests" / "test_tiny.py").write_text(FILE)
    (package / "testing" / "base.py").write_text(
        "import unittest\n\n\nclass Base(unittest.TestCase):\n    pass\n"
    )
    (package / "tables.py").write_text("raise ImportError('theirs')\n")
    (package / "pip_utils.py").write_text("")
    before = dict(sys.modules)
    stand_in.install(tmp_path)
    try:
        yield tmp_path
    finally:
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]


def outcome_of(checkout: Path, *only: str) -> Outcome:
    classes = load("delta.tests", checkout / "python" / "delta" / "tests")
    return run(classes, LEFT, frozenset(only), lambda line: None)


def test_what_passed_what_failed_and_what_was_left_out(checkout: Path) -> None:
    outcome = outcome_of(checkout)
    assert outcome.passed == ["test_tiny.TinyTests.test_names"]
    failed = {name: trace.splitlines()[-1] for name, trace in outcome.failed.items()}
    [setup] = failed.keys() - {"test_tiny.TinyTests.test_wrong", "test_tiny.TinyTests.test_broken"}
    assert "NeverSetUpTests" in setup
    assert failed == {
        "test_tiny.TinyTests.test_wrong": "AssertionError: 1 != 2",
        "test_tiny.TinyTests.test_broken": "KeyError: 'gone'",
        setup: "RuntimeError: no Spark",
    }
    assert outcome.left_out == {
        "test_tiny.TinyTests.test_other": "isn't ours",
        "test_tiny.TinyTests.test_skipped": "not here",
    }


def test_some_alone(checkout: Path) -> None:
    outcome = outcome_of(checkout, "test_tiny.TinyTests.test_names")
    assert outcome == Outcome(passed=["test_tiny.TinyTests.test_names"])


def test_delta_is_txlake_and_nothing_else_of_the_checkout_is_found(checkout: Path) -> None:
    assert sys.modules["delta.tables"] is sys.modules["txlake.lake.tables"]
    assert sys.modules["delta.exceptions"] is txlake.errors
    with pytest.raises(ModuleNotFoundError, match="pip_utils"):
        __import__("delta.pip_utils")


def test_each_test_left_out_has_a_reason() -> None:
    assert all(name.count(".") == 2 and reason for name, reason in LEFT_OUT.items())
