"""One worker for each engine, for all tests of a process that come by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delta_spark import delta_jars
from tests.shared_tables.workers import Worker, start


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    """The workers by the names of their engines."""
    jars = delta_jars()
    scratch = tmp_path_factory.mktemp("workers")
    started: dict[str, Worker] = {}
    try:
        for engine in ("delta-spark", "txlake", "delta-rs"):
            own = jars if engine == "delta-spark" else []
            started[engine] = start(engine, scratch / engine, own)
        yield started
    finally:
        for worker in started.values():
            worker.end()
