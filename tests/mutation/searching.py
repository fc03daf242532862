"""The search for a killer of each mutant that has none, among the tests that run its lines.

Owns the choice among several killers: the module's own tests before others, tests that run little
before tests that run much, failed assertions before other exceptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.mutation.guards import Mutant, path_of
from tests.mutation.listing import Entry
from tests.mutation.running import Hung, Outcome, call_with_tests, run, traced

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

_BREAKAGES = {
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
    record: Callable[[Mutant, Entry | None], None],
) -> None:
    """Call `record` with each mutant and the entry of its killer; with None if no test kills it."""
    files = {str(path_of(mutant.module)): mutant.module for mutant in mutants}

    def work(items: Sequence[pytest.Item]) -> None:
        tests: list[_Test] = []
        for item in items:
            outcome, lines = traced(item, files)
            if outcome.passed and outcome.seconds < SECONDS_MAX:
                tests.append(_Test(item, outcome.seconds, lines))
        kills: Counter[tuple[str, str, str]] = Counter()
        for mutant in mutants:
            killer = _killer(mutant, tests, tries, kills)
            record(mutant, None if killer is None else Entry(killer))
            if killer is not None:
                kills[mutant.module, mutant.function, killer] += 1

    call_with_tests(folders, work)


def _killer(
    mutant: Mutant,
    tests: Sequence[_Test],
    tries: int,
    kills: Mapping[tuple[str, str, str], int],
) -> str | None:
    """Return the best killer.

    `kills`: how many mutants of a function each test has killed so far; tests
    with kills are tried first.
    """
    lines = range(mutant.line, mutant.last_line + 1)
    folder, _, name = mutant.module.partition(".")
    where = mutant.module, mutant.function

    def order(test: _Test) -> tuple[bool, bool, int, float]:
        is_own = f"tests/{folder}/test_{name}.py" in test.item.nodeid
        return test.seconds > 0.1, not is_own, test.extent, test.seconds

    own = [test for test in tests if _runs(test, mutant, lines)]
    fallback: str | None = None
    hung = 0
    candidates = _round_robin(sorted(own, key=order))
    candidates.sort(key=lambda test: -kills.get((*where, test.item.nodeid), 0))
    for test in candidates[:tries]:
        outcome = run(test.item, mutant)
        if outcome.passed or not run(test.item).passed:
            continue
        if not _is_breakage(outcome):
            return test.item.nodeid
        fallback = fallback or test.item.nodeid
        hung += outcome.error == Hung.__name__
        if hung > HANGS_MAX:
            break
    return fallback


def _round_robin(tests: Sequence[_Test]) -> list[_Test]:
    """Return the tests so that one case of each test function comes first, then another of each."""
    cases: Counter[str] = Counter()
    turns: list[tuple[int, int, _Test]] = []
    for place, test in enumerate(tests):
        name = test.item.nodeid.partition("[")[0]
        turns.append((cases[name], place, test))
        cases[name] += 1
    return [test for *_, test in sorted(turns, key=lambda one: one[:2])]


def _is_breakage(outcome: Outcome) -> bool:
    return outcome.error in _BREAKAGES


def _runs(test: _Test, mutant: Mutant, lines: range) -> bool:
    if mutant.function:
        return not test.lines[mutant.module].isdisjoint(lines)
    return any(test.lines.values())  # lines don't show which tests read a table
