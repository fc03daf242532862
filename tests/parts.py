"""Which tests `make test` runs: the core, which is all that isn't marked `broad` or `peer`.

`make test-all` runs the rest. A mark on a test or on a file may keep some of what it is on in the
core, evenly spread: `@pytest.mark.broad(keep=2)`. A test that needs a program of tests/peers.py is
never in the core, and doesn't count among the kept. A share of a part, "2/3", is every third of its
files from the second on, as a file's tests have their set-up in common, and what needs a program
and isn't broad.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.peers import peers_of

PARTS = ("all", "core", "rest")


def of_part(items: Sequence[pytest.Item], part: str) -> list[pytest.Item]:
    """The tests of a part of the suite, in their order."""
    if part == PARTS[0]:
        return list(items)
    rest = set(_rest(items))
    return [item for item in items if (item in rest) == (part == PARTS[2])]


def of_share(items: Sequence[pytest.Item], share: str) -> list[pytest.Item]:
    """The tests of a share, in their order. Raises ValueError for one that can't be."""
    number, count = (int(text) for text in share.split("/"))
    if not 1 <= number <= count:
        raise ValueError(
            f"{share} isn't one of {count} shares: expected 1/{count} to {count}/{count}"
        )
    files = sorted({_file(item) for item in items})
    chosen = set(files[number - 1 :: count])
    return [item for item in items if _file(item) in chosen or _is_in_every_share(item)]


def _is_in_every_share(item: pytest.Item) -> bool:
    return bool(peers_of(item)) and next(item.iter_markers("broad"), None) is None


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _rest(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    keeps: dict[str, int] = {}
    marked: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    rest = [item for item in items if peers_of(item)]
    for item in items:
        if peers_of(item):
            continue
        for node, mark in item.iter_markers_with_node("broad"):
            on = node.nodeid.partition("[")[0]
            keeps[on] = mark.kwargs.get("keep", 0)
            marked[on].append(item)
            break  # the closest
    return rest + [item for on, among in marked.items() for item in _left_out(among, keeps[on])]


def _left_out(items: Sequence[pytest.Item], keep: int) -> list[pytest.Item]:
    kept = {(2 * n + 1) * len(items) // (2 * keep) for n in range(keep)}
    return [item for number, item in enumerate(items) if number not in kept]
