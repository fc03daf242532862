"""The conflicts' list and heat map, and the page of each."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from txlake.errors import Conflict


def _lose(lake: PlainLake, losing: str, winning: str) -> None:
    loser, winner = lake.another(), lake.another()
    lake.sql(f"BEGIN; {losing}", loser)
    lake.sql(winning, winner)
    with pytest.raises(Conflict):
        lake.sql("COMMIT", loser)


@pytest.fixture
def lost(lake: PlainLake) -> PlainLake:
    """Three transactions lost, two of them the same way."""
    for _ in range(2):
        _lose(
            lake,
            "UPDATE orders SET pieces = 1 WHERE id = 1",
            "UPDATE orders SET pieces = pieces + 1 WHERE id = 1",
        )
    _lose(lake, "DELETE FROM orders WHERE id = 2", "UPDATE orders SET pieces = 5 WHERE id = 2")
    return lake


def test_a_lake_without_conflicts_says_so(browser: Browser) -> None:
    assert "No transaction lost" in browser.page("/conflicts")


def test_the_heat_map_counts_what_met(lost: PlainLake, browser: Browser) -> None:
    text = browser.page("/conflicts")
    assert "<th>UPDATE<br>lost to UPDATE</th>" in text
    assert "<th>DELETE<br>lost to UPDATE</th>" in text
    assert '<td class="heat-4">2</td>' in text
    assert '<td class="heat-2">1</td>' in text


def test_the_list_is_chosen_by_table_and_error(lost: PlainLake, browser: Browser) -> None:
    assert browser.page("/conflicts").count('href="/conflicts/') == 3
    assert browser.page("/conflicts?table=default.orders").count('href="/conflicts/') == 3
    assert browser.page("/conflicts?table=default.stock").count('href="/conflicts/') == 0
    assert browser.page("/conflicts?error=MetadataChangedException").count('href="/conflicts/') == 0


def test_a_conflicts_page_tells_both_sides(lost: PlainLake, browser: Browser) -> None:
    text = browser.page("/conflicts/3")
    assert "ConcurrentAppendException on default.orders" in text
    assert "<code>id = 2</code>" in text  # its own condition
    assert "the winner's predicate" in text
    assert "<svg" in text
    assert "What would have avoided the conflict" in text
    assert "A plain retry can succeed" in text
    assert "DELETE FROM default.orders WHERE id = 2" in text  # offered to be tried


def test_explain_conflicts_is_asked_from_the_page(lost: PlainLake, browser: Browser) -> None:
    statement = quote("UPDATE default.orders SET pieces = 0 WHERE id = 2")
    text = browser.page(f"/conflicts/3?statement={statement}")
    assert "<td>both commit</td>" in text
    assert "<td>id = 2</td>" in text
    assert lost.sql("SELECT * FROM orders WHERE pieces = 0") == []  # it wasn't run


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE default.orders",
        "DELETE FROM default.orders; DROP TABLE default.orders",
        "DELETE FROM nothing",
        "DELETE FROM default.orders WHERE",
        "INSERT INTO default.orders SELECT * FROM default.orders CROSS JOIN default.stock",
        "x" * 5_000,
    ],
)
def test_what_can_not_be_explained_is_told(
    lost: PlainLake, browser: Browser, statement: str
) -> None:
    text = browser.page(f"/conflicts/3?statement={quote(statement)}")
    assert 'role="alert"' in text
    assert len(lost.sql("SELECT * FROM orders")) == 3


def test_a_conflict_of_a_dropped_table_is_still_shown(lost: PlainLake, browser: Browser) -> None:
    lost.sql("DROP TABLE orders")
    assert "ConcurrentAppendException" in browser.page("/conflicts/1")


def test_a_conflict_that_is_not_kept_is_told(lost: PlainLake, browser: Browser) -> None:
    answer = browser.get("/conflicts/99")
    assert answer.status_code == 404
    assert "no conflict 99" in answer.text
