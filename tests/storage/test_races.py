"""A hundred processes race for one version of a table, and one wins."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.storage.conftest import STORES, Placed
from tests.storage.racing import race
from txlake.ports import PutOutcome
from txlake.protocol.file_names import commit_path

pytestmark = pytest.mark.no_interop("no commits, but the names of racers")

RACERS = 100
VERSIONS = 2


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("place", [each for each in STORES if each != "memory"], indirect=True)
def test_of_a_hundred_processes_one_wins_a_version(place: Placed) -> None:
    told = race(place.url, place.options, processes=RACERS, versions=VERSIONS)
    assert sorted(told) == list(range(VERSIONS))
    for version, outcomes in told.items():
        winners = [process for process, outcome in outcomes if outcome == "CREATED"]
        assert len(winners) == 1
        assert [outcome for _, outcome in outcomes].count("EXISTS") == RACERS - 1
        kept = place.store.get(commit_path(version))
        assert kept == f"{winners[0]}".encode() * 100
    names = [commit_path(version) for version in range(VERSIONS)]
    assert [each.path for each in place.store.list("")] == names


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_of_a_hundred_threads_one_wins_a_version(place: Placed) -> None:
    start = threading.Barrier(RACERS)

    def work(number: int) -> PutOutcome:
        store = place.store
        start.wait(120)
        return store.put_if_absent(commit_path(0), str(number).encode())

    with ThreadPoolExecutor(RACERS) as pool:
        outcomes = list(pool.map(work, range(RACERS)))
    assert outcomes.count(PutOutcome.CREATED) == 1
    winner = outcomes.index(PutOutcome.CREATED)
    assert place.store.get(commit_path(0)) == str(winner).encode()
