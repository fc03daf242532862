"""The order of needs, the budget of a round, and how users write durations and sizes."""

from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.maintenance.arguments import budget_of, duration_ms
from txlake.maintenance.needs import Need
from txlake.maintenance.order import Budget, Due, in_order
from txlake.maintenance.policy import Work


def due(name: str, gain: float, cost: float, work: Work = Work.OPTIMIZE) -> Due[str]:
    return Due(name, name, Need(work=work, why="", gain=gain, cost=cost))


def test_what_gains_most_for_its_cost_comes_first() -> None:
    found = [due("dear", 10, 100), due("cheap", 1, 2), due("best", 100, 1)]
    assert [one.name for one in in_order(found)] == ["best", "cheap", "dear"]


def test_of_equals_the_first_by_name_and_kind() -> None:
    found = [due("b", 1, 1), due("a", 2, 2), due("a", 1, 1, Work.CHECKPOINT)]
    assert [(one.name, one.need.work) for one in in_order(found)] == [
        ("a", Work.CHECKPOINT),
        ("a", Work.OPTIMIZE),
        ("b", Work.OPTIMIZE),
    ]


@pytest.mark.parametrize(
    ("budget", "cost_bytes", "elapsed_ms", "used_bytes", "refused"),
    [
        (Budget(), 10**15, 1e12, 10**15, False),
        (Budget(time_ms=1_000), 1, 999, 0, False),
        (Budget(time_ms=1_000), 1, 1_000, 0, True),
        (Budget(data_bytes=100), 60, 1e12, 40, False),
        (Budget(data_bytes=100), 61, 0, 40, True),
        (Budget(data_bytes=100), 0, 0, 100, False),
    ],
)
def test_what_a_budget_allows(
    budget: Budget, cost_bytes: int, elapsed_ms: float, used_bytes: int, refused: bool
) -> None:
    told = budget.refusal(cost_bytes, elapsed_ms=elapsed_ms, used_bytes=used_bytes)
    assert (told is not None) is refused


def test_a_refusal_says_how_much_there_is() -> None:
    told = Budget(data_bytes=1_000).refusal(5_000, elapsed_ms=0, used_bytes=250)
    assert told == "5,000 bytes are more than the 750 that are left of the round's budget"
    told = Budget(time_ms=90_000).refusal(1, elapsed_ms=90_000, used_bytes=0)
    assert told == "the round's budget of 90 s is used up"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10m", 600_000),
        ("30s", 30_000),
        (" 2 H ", 7_200_000),
        ("1d", 86_400_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        ("10", 10_000),
        (90, 90_000),
        (0.5, 500),
    ],
)
def test_durations(given: str | float, expected: int) -> None:
    assert duration_ms(given, "every") == expected


@pytest.mark.parametrize(
    "given",
    ["", "m", "-10m", "10 minutes", "0s", 0, -1, True, 1e13, "10m 5s", "inf", float("nan")],
)
def test_what_is_no_duration(given: str | float) -> None:
    with pytest.raises(InvalidRequest, match="every: expected a duration such as '30s'"):
        duration_ms(given, "every")


def test_budgets() -> None:
    assert budget_of(None, None) == Budget()
    assert budget_of("30m", "50gb") == Budget(time_ms=1_800_000, data_bytes=50 << 30)
    assert budget_of(5, 1024) == Budget(time_ms=5_000, data_bytes=1024)


@pytest.mark.parametrize("given", ["", "many", "-1", 0, "0", True, "1.5gb"])
def test_what_is_no_size(given: str | int) -> None:
    with pytest.raises(InvalidRequest, match="budget_bytes: expected a size"):
        budget_of(None, given)
