"""A lake in a global, and a process that multiprocessing forks from the one that opened it."""

from __future__ import annotations

from pathlib import Path

import pytest

import txlake
from tests.support.forking import in_a_fork
from txlake.errors import InvalidRequest


@pytest.mark.parametrize("location", ["{}/w", "memory://forked"])
def test_a_fork_has_a_lake_of_its_own_or_none(tmp_path: Path, location: str) -> None:
    place = location.format(tmp_path)
    lake = txlake.connect(place)
    tx = lake.begin()

    def child() -> None:
        for use in (lake.begin, lambda: lake.session().begin(), lambda: lake.sql("SELECT 1")):
            with pytest.raises(InvalidRequest, match=r"Connect again in this process"):
                use()
        with pytest.raises(InvalidRequest, match=r"Connect again in this process"):
            tx.sql("SELECT 1")
        lake.close()
        if not place.startswith("memory:"):
            with txlake.connect(place) as own:
                own.sql("CREATE DATABASE d")

    assert in_a_fork(child) == ""
    tx.commit()
    assert tx.state == "committed"
    lake.close()


def test_a_fork_that_leaves_a_block_leaves_the_transaction_as_it_is(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "w")) as lake:
        block = lake.transaction()
        tx = block.__enter__()
        ended = SystemExit(0)
        assert in_a_fork(lambda: block.__exit__(SystemExit, ended, None)) == ""
        catalog = lake._session.engine.catalog.of_lake()
        assert [one.id for one in catalog.transactions.entries()] == [tx.id]
        block.__exit__(None, None, None)
        assert tx.state == "committed"
