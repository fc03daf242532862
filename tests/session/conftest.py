"""Lakes of several processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.session.branch_lake import Lake
from tests.session.processes import Lakes


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.broad)])
def lakes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lakes]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'catalog.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    made = Lakes(url)
    made.process().run("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    yield made
    made.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Lakes]:
    made = Lakes(f"sqlite:///{tmp_path / 'catalog.db'}")
    made.process().run("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    yield made
    made.close()


@pytest.fixture
def lake() -> Lake:
    """A lake with tables t and u."""
    made = Lake()
    made.do("CREATE TABLE t (id BIGINT, v BIGINT); CREATE TABLE u (id BIGINT, v BIGINT)")
    made.do("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4); INSERT INTO u VALUES (1, 1)")
    return made
