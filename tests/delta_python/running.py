"""Runs tests of `unittest` one by one, but those that are left out, and collects what comes out."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.delta_python.sql_of_lake import on_a_lake


@dataclass
class Outcome:
    """The tests by name: those that passed, and why the others failed or were left out."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def load(package: str, folder: Path) -> list[type[unittest.TestCase]]:
    """The classes of tests of the folder's files, imported as the package's modules."""
    found: list[type[unittest.TestCase]] = []
    for file in sorted(folder.glob("test_*.py")):
        module = import_module(f"{package}.{file.stem}")
        own = [one for one in vars(module).values() if _is_of(module.__name__, one)]
        found += map(on_a_lake, own) if file.stem == "test_sql" else own
    return found


def _is_of(module: str, value: object) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, unittest.TestCase)
        and value.__module__ == module
    )


def run(
    classes: list[type[unittest.TestCase]],
    left_out: Mapping[str, str],
    only: frozenset[str],
    tell: Callable[[str], object],
) -> Outcome:
    """Run the classes' tests; `only` those of these names, or all when it is empty.

    A test that skips itself counts as left out, with its own reason.
    """
    outcome = Outcome()
    for kind in classes:
        names = dict(_names(kind))
        if only:
            names = {name: method for name, method in names.items() if name in only}
        for name in names.keys() & left_out.keys():
            outcome.left_out[name] = left_out[name]
        result = _Result({method: name for name, method in names.items()}, outcome, tell)
        tests = [kind(method) for name, method in names.items() if name not in left_out]
        unittest.TestSuite(tests).run(result)
    return outcome


def _names(kind: type[unittest.TestCase]) -> Iterator[tuple[str, str]]:
    """The class's tests, by `file.Class.test`, without those that PySpark's own classes bring."""
    file = kind.__module__.rpartition(".")[2]
    for method in unittest.defaultTestLoader.getTestCaseNames(kind):
        function: Any = getattr(kind, method)
        if not function.__module__.startswith("pyspark."):
            yield f"{file}.{kind.__name__}.{method}", method


class _Result(unittest.TestResult):
    """Puts each test of one class into the outcome; what breaks around a class is a failure."""

    def __init__(
        self, names: dict[str, str], outcome: Outcome, tell: Callable[[str], object]
    ) -> None:
        super().__init__()
        self._names = names
        self._outcome = outcome
        self._tell = tell

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._outcome.passed.append(self._name(test))
        self._tell(f"passed: {self._name(test)}")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._outcome.left_out[self._name(test)] = reason

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._failed(test, self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._failed(test, self.errors[-1][1])

    def _failed(self, test: unittest.TestCase, trace: str) -> None:
        self._outcome.failed[self._name(test)] = trace
        self._tell(f"FAILED: {self._name(test)}")

    def _name(self, test: unittest.TestCase) -> str:
        # A class that can't be set up stands here itself, without a method.
        method = getattr(test, "_testMethodName", "")
        return self._names.get(method, str(test))
