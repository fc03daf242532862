"""One process with both engines, for all tests of a process that come by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delta_spark import delta_jars
from tests.shared_tables.features.one_session import Peers, started


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """Delta Spark and txlake on one Spark."""
    with started(tmp_path_factory.mktemp("peers"), delta_jars()) as both:
        yield both
