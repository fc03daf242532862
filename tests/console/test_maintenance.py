"""The page of maintenance, and a table's own share of it."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from txlake.catalog.maintenance_book import (
    DUE,
    RUNNING,
    MaintenanceBook,
    MaintenanceEntry,
    claim_on,
)
from txlake.commands import HANDLERS
from txlake.console.formatting import time_text
from txlake.console.maintenance import PAGE_SIZE
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.order import Budget
from txlake.session.session import Session

SMALL = "'txlake.maintenance.minSmallFiles' = '3'"


def _round(lake: PlainLake, **limits: int) -> None:
    Maintainer(lake.engine, lambda: Session(lake.engine, HANDLERS), budget=Budget(**limits)).run()


def _book(lake: PlainLake) -> MaintenanceBook:
    return lake.engine.catalog.of_lake().maintenance


def _entry(name: str | None, state: str, number: int = 0) -> MaintenanceEntry:
    return MaintenanceEntry(
        id=f"{state} {name} {number:04}",
        table_name=name,
        need="optimize",
        state=state,
        action=f"OPTIMIZE {name}",
        reason=f"reason {number} of {name}",
    )


def _part(text: str, title: str) -> str:
    """The part of a page under a heading."""
    found = re.search(rf"<h[23]>{title}</h[23]>(.*?)(?=<h[12]|</main>)", text, re.DOTALL)
    return "" if found is None else found[1]


def test_a_lake_that_was_never_maintained_says_how(browser: Browser) -> None:
    text = browser.page("/maintenance")
    assert "<code>txlake maintain</code> runs one" in text
    assert "No work is running" in text
    assert "The last round left nothing" in text
    assert "No work of" in browser.page("/tables/default.orders")


def test_what_a_round_leaves_is_due_and_what_it_does_is_shown_with_its_gain(
    lake: PlainLake, browser: Browser
) -> None:
    lake.sql(f"ALTER TABLE orders SET TBLPROPERTIES ({SMALL})")
    for number in range(3):
        lake.sql(f"INSERT INTO orders VALUES ({number}, 'x', 1)")
    _round(lake, time_ms=0)
    page, table = browser.page("/maintenance"), browser.page("/tables/default.orders")
    for text in (page, table):
        due = _part(text, "Due next")
        assert "4 small files of" in due
        assert "expected gain" in due
        assert "3 files fewer" in due
        assert "budget of 0 s is used up" in due
    assert "No work of" not in table
    _round(lake)
    page, table = browser.page("/maintenance"), browser.page("/tables/default.orders")
    assert "The last round left nothing" in page
    for text in (page, table):
        done = _part(text, "Newest works")
        assert "<td>done</td>" in done
        assert "OPTIMIZE default.orders" in done
        assert "3 files fewer" in done
        assert " freed" in done
    assert 'href="/maintenance?table=default.orders"' in table
    assert "default.orders" not in _part(browser.page("/tables/default.stock"), "Newest works")


def test_until_when_a_table_needs_nothing_is_shown_until_it_changes(
    lake: PlainLake, browser: Browser
) -> None:
    _round(lake)
    assert "2 tables need nothing until they change" in browser.page("/maintenance")
    orders = lake.engine.catalog.find("default", "orders")
    assert orders is not None
    quiet = _book(lake).quiet_tables()[orders.id]
    text = browser.page("/tables/default.orders")
    assert f"It needs nothing until {time_text(quiet.until_ms)}, unless it changes" in text
    assert "No work of" not in text
    lake.sql("INSERT INTO orders VALUES (7, 'x', 1)")
    assert "It needs nothing" not in browser.page("/tables/default.orders")


def test_who_works_and_who_holds_a_claim_is_shown(lake: PlainLake, browser: Browser) -> None:
    worker = lake.another()
    number = worker.number()
    catalog = lake.engine.catalog.of_lake()
    stock = catalog.find("default", "stock")
    assert stock is not None
    claim = claim_on(stock.database_number, stock.number)
    catalog.locks.acquire(number, None, [claim], 0)
    _book(lake).add(replace(_entry("default.stock", RUNNING), session_id=number))
    text = browser.page("/maintenance")
    (session,) = [entry for entry in catalog.sessions.entries() if entry.id == number]
    running, claims = _part(text, "Running"), _part(text, "Claims")
    assert f"running, in session {number}: {session.host} {session.process}" in running
    assert "so far" in running
    assert f"the maintenance of default.stock</td><td>{number}</td>" in claims
    assert f"{session.host} {session.process}" in claims
    worker.close()
    text = browser.page("/maintenance")
    assert "Claims" not in text
    assert "No work is running" in text
    assert '<span class="mark">interrupted</span>' in _part(text, "Newest works")


def test_errors_stand_out_and_works_are_filtered(lake: PlainLake, browser: Browser) -> None:
    error = "CorruptTable: <b>odd</b>"
    _book(lake).add(replace(_entry("default.orders", "failed"), error=error))
    _book(lake).add(_entry("default.stock", "done"))
    _book(lake).add(_entry(None, "done"))
    text = browser.page("/maintenance")
    assert "3 works" in text
    assert '<span class="problem">CorruptTable: &lt;b&gt;odd' in text
    assert "<td>the lake</td>" in text
    failed = browser.page("/maintenance?state=failed")
    assert "1 work." in failed
    assert "default.stock" not in failed
    of_stock = browser.page("/maintenance?table=STO")
    assert "1 work." in of_stock
    assert "default.orders" not in of_stock
    assert "1 work." in browser.page("/maintenance?table=the+lake")
    assert "runs one" not in browser.page("/maintenance?table=nothing")


def test_more_works_than_a_page_holds_have_pages(lake: PlainLake, browser: Browser) -> None:
    for number in range(PAGE_SIZE + 1):
        _book(lake).add(_entry("default.stock", "done", number))
    first = browser.page("/maintenance")
    assert f"reason {PAGE_SIZE} of" in first
    assert "reason 0 of" not in first
    assert "page=1" in first
    last = browser.page("/maintenance?page=1")
    assert "reason 0 of" in last
    assert last.count("reason ") == 1


def test_due_works_keep_their_order(lake: PlainLake, browser: Browser) -> None:
    _book(lake).replace_due([_entry("default.stock", DUE), _entry("default.orders", DUE)])
    due = _part(browser.page("/maintenance"), "Due next")
    assert due.index("default.stock") < due.index("default.orders")
