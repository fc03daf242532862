"""Finds a test for each mutant that has none: tries those that run its lines, the plainest first.

Owns the choice among tests that would do: one of the module's own tests before others, one that
runs little before one that runs much, one that fails for what it checks before one that breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.mutation.guards import Mutant, path_of
from tests.mutation.listing import Known
from tests.mutation.running import Hung, Outcome, run, traced, with_tests

FOLDERS = (
    "tests/conflict",
    "tests/commit",
    "tests/catalog",
    "tests/session",
    "tests/session/membership",
    "tests/storage",
)
SECONDS_MAX = 4.0
"""A test that takes longer, traced, isn't named as a killer."""

HANGS_MAX = 1
"""How many tests that hang with a mutant are tried before one of them is named."""

_BREAKS = {
    "AttributeError",
    "Hung",
    "IndexError",
    "KeyError",
    "NameError",
    "RecursionError",
    "TypeError",
    "UnboundLocalError",
    "Skipped",
}


@dataclass(slots=True)
class _Test:
    item: pytest.Item
    seconds: float
    lines: Mapping[str, set[int]]

    @property
    def extent(self) -> int:
        return sum(map(len, self.lines.values()))


def search(
    mutants: Sequence[Mutant],
    folders: Sequence[str],
    tries: int,
    found: Callable[[Mutant, Known | None], None],
) -> None:
    """Calls `found` with each mutant and the test that kills it, None where none of them does."""
    files = {str(path_of(mutant.module)): mutant.module for mutant in mutants}

    def work(items: Sequence[pytest.Item]) -> None:
        tests: list[_Test] = []
        for item in items:
            outcome, lines = traced(item, files)
            if outcome.passed and outcome.seconds < SECONDS_MAX:
                tests.append(_Test(item, outcome.seconds, lines))
        proven: Counter[tuple[str, str, str]] = Counter()
        for mutant in mutants:
            killer = _killer(mutant, tests, tries, proven)
            found(mutant, None if killer is None else Known(killer))
            if killer is not None:
                proven[mutant.module, mutant.function, killer] += 1

    with_tests(folders, work)


def _killer(
    mutant: Mutant,
    tests: Sequence[_Test],
    tries: int,
    proven: Mapping[tuple[str, str, str], int],
) -> str | None:
    """`proven`: how many mutants of a function a test has killed so far; such come first."""
    asked = range(mutant.line, mutant.last_line + 1)
    folder, _, name = mutant.module.partition(".")
    where = mutant.module, mutant.function

    def order(test: _Test) -> tuple[bool, bool, int, float]:
        is_own = f"tests/{folder}/test_{name}.py" in test.item.nodeid
        return test.seconds > 0.1, not is_own, test.extent, test.seconds

    own = [test for test in tests if _runs(test, mutant, asked)]
    poor: str | None = None
    hung = 0
    in_turn = _in_turn(sorted(own, key=order))
    in_turn.sort(key=lambda test: -proven.get((*where, test.item.nodeid), 0))
    for test in in_turn[:tries]:
        outcome = run(test.item, mutant)
        if outcome.passed or not run(test.item).passed:
            continue
        if not _breaks(outcome):
            return test.item.nodeid
        poor = poor or test.item.nodeid
        hung += outcome.error == Hung.__name__
        if hung > HANGS_MAX:
            break
    return poor


def _in_turn(tests: Sequence[_Test]) -> list[_Test]:
    """One case of each test function, then another of each, and so on."""
    cases: Counter[str] = Counter()
    turns: list[tuple[int, int, _Test]] = []
    for place, test in enumerate(tests):
        name = test.item.nodeid.partition("[")[0]
        turns.append((cases[name], place, test))
        cases[name] += 1
    return [test for *_, test in sorted(turns, key=lambda one: one[:2])]


def _breaks(outcome: Outcome) -> bool:
    return outcome.error in _BREAKS


def _runs(test: _Test, mutant: Mutant, asked: range) -> bool:
    if mutant.function:
        return not test.lines[mutant.module].isdisjoint(asked)
    return any(test.lines.values())  # who reads a table isn't known by lines
