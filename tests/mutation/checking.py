"""Every mutant of the list, and the test that has to fail with it.

Owns the verdict: each killer passes by itself, before and after, and fails with each of its
mutants.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from tests.mutation.guards import Mutant
from tests.mutation.listing import Known
from tests.mutation.running import LIMIT_S, run, with_tests

# A test that takes so many times as long as without the mutant hangs, but for the shortest.
_SLOWER = 10.0
_LIMIT_S_MIN = 2.0


def check(mutants: Sequence[Mutant], known: Mapping[str, Known]) -> list[str]:
    """What is wrong, a line each. Mutants that no test is named for are passed over."""
    by_killer: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        one = known.get(mutant.key)
        if one is not None and one.killer is not None:
            by_killer[one.killer].append(mutant)
    wrong: list[str] = []

    def work(items: Sequence[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        for killer, its_mutants in by_killer.items():
            item = found.get(killer)
            if item is None:
                wrong.extend(
                    f"{mutant.key}: there is no test {killer} that runs without Spark"
                    for mutant in its_mutants
                )
            else:
                wrong.extend(_of_killer(item, its_mutants))

    with_tests(sorted({killer.partition("::")[0] for killer in by_killer}), work)
    return wrong


def _of_killer(item: pytest.Item, mutants: Sequence[Mutant]) -> list[str]:
    wrong: list[str] = []
    began = time.monotonic()
    before = run(item)
    limit_s = min(LIMIT_S, max(_LIMIT_S_MIN, _SLOWER * (time.monotonic() - began)))
    if not before.passed:
        return [f"{item.nodeid} fails without a mutant: {before.error}"]
    for mutant in mutants:
        if run(item, mutant, limit_s).passed:
            wrong.append(f"{mutant.key} survives {item.nodeid}")
    after = run(item)
    if not after.passed:
        wrong.append(f"{item.nodeid} fails after its mutants: {after.error}")
    return wrong
