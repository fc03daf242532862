"""The check of the list: every mutant makes its killer fail.

Each killer also passes without a mutant, before and after its mutants.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from tests.mutation.guards import Mutant
from tests.mutation.listing import Entry
from tests.mutation.running import LIMIT_S, call_with_tests, run

# A test that takes longer than this multiple of its usual time counts as hanging.
_SLOWER = 10.0
_LIMIT_S_MIN = 2.0


def check(mutants: Sequence[Mutant], entries: Mapping[str, Entry]) -> list[str]:
    """Return what is wrong, a line each. Mutants without a killer are skipped."""
    by_killer: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        entry = entries.get(mutant.key)
        if entry is not None and entry.killer is not None:
            by_killer[entry.killer].append(mutant)
    problems: list[str] = []

    def work(items: Sequence[pytest.Item]) -> None:
        items_by_id = {item.nodeid: item for item in items}
        for killer, mutants_of_killer in by_killer.items():
            item = items_by_id.get(killer)
            if item is None:
                problems.extend(
                    f"{mutant.key}: there is no test {killer} that runs without Spark"
                    for mutant in mutants_of_killer
                )
            else:
                problems.extend(_check_killer(item, mutants_of_killer))

    call_with_tests(sorted({killer.partition("::")[0] for killer in by_killer}), work)
    return problems


def _check_killer(item: pytest.Item, mutants: Sequence[Mutant]) -> list[str]:
    problems: list[str] = []
    began = time.monotonic()
    before = run(item)
    limit_s = min(LIMIT_S, max(_LIMIT_S_MIN, _SLOWER * (time.monotonic() - began)))
    if not before.passed:
        return [f"{item.nodeid} fails without a mutant: {before.error}"]
    for mutant in mutants:
        if run(item, mutant, limit_s).passed:
            problems.append(f"{mutant.key} survives {item.nodeid}")
    after = run(item)
    if not after.passed:
        problems.append(f"{item.nodeid} fails after its mutants: {after.error}")
    return problems
