"""A server over a lake whose rows are Python's, called without a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.client import Client
from tests.simulation.rows.lake import RowLake


@pytest.fixture
def row_lake() -> Iterator[RowLake]:
    """An empty lake."""
    with RowLake() as opened:
        yield opened


@pytest.fixture
def client(row_lake: RowLake) -> Iterator[Client]:
    """A client of a server that everybody may call."""
    with Client(row_lake) as made:
        yield made
