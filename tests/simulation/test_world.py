"""The simulation itself: seeds replay, every kind of fault occurs, failures are reduced."""

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
from tests.simulation.faults import FaultKind
from tests.simulation.seeds import run_batch, summary_table
from tests.simulation.shrinking import shrink
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
def test_promises_are_kept_and_each_fault_kind_occurs() -> None:
    counts: Counter[str] = Counter()
    for _, result in run_batch(range(1, 151)):
        assert not isinstance(result, str), result
        kind, occurred = result
        counts.update(occurred + Counter(seeds=1))
        counts[kind] += 1
    assert {one.name for one in FaultKind} - counts.keys() == set()
    assert counts["outcome committed"] > 300
    assert counts["outcome conflict"] > 30
    assert counts["deaths"] > 10
    assert counts["log files cleaned"] > 0
    assert counts["data files vacuumed"] > 0
    assert "seeds" in summary_table({"all": counts})


def test_a_seed_replays_in_any_order_of_seeds() -> None:
    """Another order of seeds, and another order in Python's sets, give the same traces."""

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
def test_a_failure_is_reduced_and_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Batch, "_moved_heads", lambda *_: {})  # the check of heads is off
    failure = next(
        one for seed in range(1, 200) if (one := _record_failure(Case(seed))) is not None
    )
    smallest = shrink(failure)
    reduced = smallest.case
    assert reduced.without_programs or reduced.without_kinds or reduced.without_numbers
    again = _record_failure(smallest.case)
    assert again is not None
    assert again.trace == smallest.trace


@pytest.mark.broad
def test_the_command_prints_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "40", "--processes", "1"]) == 0
    output = capsys.readouterr().out
    assert "commits" in output
    assert "40 seeds in" in output
    assert main(["--seed", "2"]) == 0
    assert "seed 2: every promise was kept" in capsys.readouterr().out


def _record_failure(case: Case) -> Failure | None:
    try:
        World(case).run()
    except Failure as failure:
        return failure
    return None
