"""One worker for each engine, for all tests of a process that come by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delta_spark import delta_jars
from tests.shared_tables.workers import Worker, start_all


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    """The workers by the names of their engines."""
    started = start_all(tmp_path_factory.mktemp("workers"), delta_jars())
    try:
        yield started
    finally:
        for worker in started.values():
            worker.end()
