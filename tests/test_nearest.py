"""What an error suggests for a name that isn't known."""

from __future__ import annotations

import pytest

from txlake.nearest import did_you_mean, nearest

TABLES = ["Orders", "order_items", "stock", "customers"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ordrs", ["Orders"]),
        ("ORDERS", ["Orders"]),
        ("oder_items", ["order_items"]),
        ("costumers", ["customers"]),
        ("nothing", []),
    ],
)
def test_the_likest_first_whatever_their_letter_case(name: str, found: list[str]) -> None:
    assert nearest(name, TABLES) == found


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "did you mean a?"),
        (["a", "b"], "did you mean a or b?"),
        (["a", "b", "c"], "did you mean a, b or c?"),
    ],
)
def test_they_are_listed(names: list[str], text: str) -> None:
    assert did_you_mean(names) == text
