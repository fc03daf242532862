"""The simulation itself: it replays, its misfortunes happen, and what fails is made small."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.case import Case
from tests.simulation.luck import Misfortune
from tests.simulation.many import some, table
from tests.simulation.shrinking import shrunk
from tests.simulation.world import Failure, World
from txlake.catalog.ratifying import _Batch

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
_DIGESTS = """
import logging, sys
from tests.simulation.case import Case
from tests.simulation.world import World
logging.disable(logging.CRITICAL)
print([World(Case(int(seed))).run().digest for seed in sys.argv[1:]])
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.broad
def test_promises_are_kept_and_each_misfortune_happens() -> None:
    counts: Counter[str] = Counter()
    for _, found in some(range(1, 151)):
        assert not isinstance(found, str), found
        kind, happened = found
        counts.update(happened + Counter(seeds=1))
        counts[kind] += 1
    assert {one.name for one in Misfortune} - counts.keys() == set()
    assert counts["told committed"] > 300
    assert counts["told conflict"] > 30
    assert counts["deaths"] > 10
    assert counts["log files cleaned"] > 0
    assert counts["data files vacuumed"] > 0
    assert "seeds" in table({"all": counts})


def test_a_seed_replays_whatever_ran_before_it() -> None:
    """Other order of the seeds, another order of Python's sets: the same traces."""

    def digests(hash_seed: str, seeds: list[int]) -> dict[int, str]:
        ran = subprocess.run(
            [sys.executable, "-c", _DIGESTS, *map(str, seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src:."},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(zip(seeds, eval(ran.stdout), strict=True))

    seeds = list(range(200, 212))
    assert digests("1", seeds) == digests("2", seeds[::-1])


@pytest.mark.broad
def test_a_failure_is_made_small_and_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Batch, "_moved_heads", lambda *_: {})  # heads aren't looked at
    failure = next(one for seed in range(1, 200) if (one := _failed(Case(seed))) is not None)
    smallest = shrunk(failure)
    assert len(smallest.trace) <= len(failure.trace)
    again = _failed(smallest.case)
    assert again is not None
    assert again.trace == smallest.trace


@pytest.mark.broad
def test_the_command_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "40", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "commits" in said
    assert "40 seeds in" in said
    assert main(["--seed", "2"]) == 0
    assert "seed 2: every promise was kept" in capsys.readouterr().out


def _failed(case: Case) -> Failure | None:
    try:
        World(case).run()
    except Failure as failure:
        return failure
    return None
