"""A lake without Spark, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import TOKENS, WRITER, Browser
from tests.console.lakes import ORDERS, STOCK, PlainLake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[PlainLake]:
    """A lake of two tables: 3 orders in one version, none in stock."""
    with PlainLake(tmp_path / "warehouse") as opened:
        opened.sql(f"{ORDERS}; {STOCK}")
        opened.sql(
            "INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 20), (3, '<b>eve</b>', 30)"
        )
        yield opened


@pytest.fixture
def browser(lake: PlainLake) -> Iterator[Browser]:
    """A looker at a console that needs no token and changes nothing."""
    with Browser(lake.engine) as made:
        yield made


@pytest.fixture
def writer(lake: PlainLake) -> Iterator[Browser]:
    """Has logged in, and may change the lake."""
    with Browser(lake.engine, TOKENS) as made:
        assert made.log_in(WRITER).status_code == 200
        yield made
