"""The core and the rest are all tests, each in one of them; marks decide which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.parts import of_part, of_share


@dataclass(eq=False)
class Node:
    """A test or a file, as far as a test's part depends on it."""

    nodeid: str
    parent: Node | None = None
    keep: int | None = None
    """As many as its mark keeps."""
    peer: str | None = None
    """What its mark says that it needs."""
    marks: list[tuple[Node, pytest.Mark]] = field(init=False)

    def __post_init__(self) -> None:
        self.marks = [] if self.parent is None else list(self.parent.marks)
        if self.keep is not None:
            self.marks.insert(0, (self, pytest.mark.broad(keep=self.keep).mark))
        if self.peer is not None:
            self.marks.insert(0, (self, pytest.mark.peer(self.peer).mark))

    def iter_markers_with_node(self, name: str) -> Iterator[tuple[Node, pytest.Mark]]:
        return ((node, mark) for node, mark in self.marks if mark.name == name)

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for _, mark in self.iter_markers_with_node(name))


def file_of(keep: int | None = None) -> Node:
    return Node("tests/test_a.py", keep=keep)


def cells(
    name: str, number: int, file: Node, keep: int | None = None, peer: str | None = None
) -> list[pytest.Item]:
    made = [Node(f"{file.nodeid}::test_{name}[{n}]", file, keep, peer) for n in range(number)]
    return cast(list[pytest.Item], made)


EVERY = list(range(6))


@pytest.mark.parametrize(
    ("keep", "core"), [(0, []), (1, [3]), (2, [1, 4]), (3, [1, 3, 5]), (6, EVERY), (9, EVERY)]
)
def test_a_broad_test_keeps_some_cells_in_the_core(keep: int, core: list[int]) -> None:
    file = file_of()
    other, broad = cells("other", 2, file), cells("broad", 6, file, keep)
    items = other + broad
    assert of_part(items, "core") == other + [broad[n] for n in core]
    assert of_part(items, "rest") == [broad[n] for n in EVERY if n not in core]
    assert of_part(items, "all") == items


def test_a_broad_file_keeps_some_of_all_its_tests_and_a_test_its_own() -> None:
    file = file_of(keep=2)
    one, other, third = cells("one", 3, file), cells("other", 3, file), cells("third", 2, file, 1)
    assert of_part(one + other + third, "core") == [one[1], other[1], third[1]]
    assert of_part(one + other + third, "rest") == [one[0], one[2], other[0], other[2], third[0]]


def test_the_shares_are_all_files_each_in_one_of_them() -> None:
    files = [cells("some", 2, Node(f"tests/test_{name}.py")) for name in "dacbe"]
    d, a, c, b, e = files
    items = [test for file in files for test in file]
    assert of_share(items, "1/1") == items
    assert of_share(items, "1/2") == d[:0] + a + c + e
    assert of_share(items, "2/2") == d + b
    assert [of_share(items, f"{number}/9") for number in (2, 6)] == [b, []]


def test_what_needs_a_peer_is_in_the_rest_and_counts_among_no_kept() -> None:
    file = file_of()
    with_peer, without = cells("s", 2, file, 2, "judge"), cells("s", 4, file, 2)
    assert of_part(with_peer + without, "core") == [without[1], without[3]]
    assert of_part(with_peer + without, "rest") == [*with_peer, without[0], without[2]]


def test_what_needs_a_peer_and_is_not_broad_is_in_every_share() -> None:
    a, b = (Node(f"tests/test_{name}.py") for name in "ab")
    needs, broad, both = (
        cells("n", 1, a, None, "spin"),
        cells("b", 1, a, 1),
        cells("c", 1, a, 1, "spin"),
    )
    other = cells("o", 1, b)
    items = needs + broad + both + other
    assert of_share(items, "1/2") == needs + broad + both
    assert of_share(items, "2/2") == needs + other


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", ""])
def test_what_is_no_share(share: str) -> None:
    with pytest.raises(ValueError, match=r"isn't one of|invalid literal|not enough values"):
        of_share([], share)
