"""Lakes whose catalog is in the warehouse's store keep the same promises, by seeds.

Without a rule of the log, the simulation finds what that breaks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import pytest

from tests.simulation.case import POSSIBLE_IN_STORE, Case, world_config
from tests.simulation.seeds import run_batch
from tests.simulation.shrinking import failure_of
from tests.simulation.stores import SimulatedStore
from tests.simulation.world import World
from txlake.catalog.commits import CommitLedger
from txlake.catalog.replicated import retention
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.entries import LOG_FOLDER
from txlake.ports import PutOutcome, StoredObject

pytestmark = pytest.mark.timeout(1800)

Off = Callable[[pytest.MonkeyPatch], None]
_CASES_MAX = 100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.broad
def test_promises_are_kept_and_each_fault_kind_occurs() -> None:
    counts: Counter[str] = Counter()
    for _, result in run_batch(range(1, 61), is_in_store=True):
        assert not isinstance(result, str), result
        counts.update(result[1])
    assert {one.name for one in POSSIBLE_IN_STORE} - counts.keys() == set()
    assert counts["outcome committed"] > 150
    assert counts["deaths"] > 5
    assert counts["catalog entries"] > 1_000
    assert counts["catalog entries deleted"] > 20


def test_a_seed_replays() -> None:
    case = Case(7, is_in_store=True)
    assert World(case).run().digest == World(case).run().digest


def lost_ratification_denied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLedger, "_find_ratified", lambda *_: {})


def old_replicas_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedDatabase, "_catch_up", lambda *_: None)


def entries_overwritten(patch: pytest.MonkeyPatch) -> None:
    put_if_absent = SimulatedStore.put_if_absent

    def put(store: SimulatedStore, path: str, data: bytes) -> PutOutcome:
        if not path.startswith(LOG_FOLDER):
            return put_if_absent(store, path, data)
        store.put(path, data)
        return PutOutcome.CREATED

    patch.setattr(SimulatedStore, "put_if_absent", put)


def new_entries_deleted(patch: pytest.MonkeyPatch) -> None:
    def all_of(entries: Iterable[StoredObject], *_: object) -> Sequence[str]:
        return [found.path for found in entries]

    patch.setattr(retention, "expired_entries", all_of)


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("off", "kinds"),
    [
        (lost_ratification_denied, {"set-add", "counters", "bank"}),
        (old_replicas_read, {"list-append", "bank", "counters"}),
        (entries_overwritten, {"set-add", "counters", "bank"}),
        (new_entries_deleted, {"set-add", "counters", "bank", "anything"}),
    ],
)
def test_the_simulation_finds_a_removed_rule(
    monkeypatch: pytest.MonkeyPatch, off: Off, kinds: set[str]
) -> None:
    off(monkeypatch)
    cases = (
        case
        for seed in range(1, 20_000)
        if world_config(case := Case(seed, is_in_store=True)).plan.kind in kinds
    )
    assert any(failure_of(case) is not None for case in islice(cases, _CASES_MAX))
