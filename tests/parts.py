"""Which tests `make test` runs: the core, which is all that isn't marked `broad`.

`make test-all` runs the rest. A mark on a test or on a file may keep some of what it is on in the
core, evenly spread: `@pytest.mark.broad(keep=2)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

PARTS = ("all", "core", "rest")


def of_part(items: Sequence[pytest.Item], part: str) -> list[pytest.Item]:
    """The tests of a part of the suite, in their order."""
    if part == PARTS[0]:
        return list(items)
    rest = set(_rest(items))
    return [item for item in items if (item in rest) == (part == PARTS[2])]


def _rest(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    keeps: dict[str, int] = {}
    marked: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        for node, mark in item.iter_markers_with_node("broad"):
            on = node.nodeid.partition("[")[0]
            keeps[on] = mark.kwargs.get("keep", 0)
            marked[on].append(item)
            break  # the closest
    return [item for on, among in marked.items() for item in _left_out(among, keeps[on])]


def _left_out(items: Sequence[pytest.Item], keep: int) -> list[pytest.Item]:
    kept = {(2 * n + 1) * len(items) // (2 * keep) for n in range(keep)}
    return [item for number, item in enumerate(items) if number not in kept]
