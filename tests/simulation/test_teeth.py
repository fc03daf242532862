"""The simulation has teeth: with a guard of the engine switched off it finds what that breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.case import Case, Shape, shape_of
from tests.simulation.shrinking import failure_of
from tests.simulation.world import Failure
from txlake.catalog import ratifying
from txlake.catalog.commits import CommitLedger
from txlake.conflict import rules_of_rows
from txlake.conflict.rules import RULES_AFTER_SELECTS
from txlake.conflict.winner import Winner, summarise
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, Metadata, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session import upkeep
from txlake.transaction import following
from txlake.transaction.in_commit_time import commit_time
from txlake.transaction.table_log import TableLog

SEEDS_MAX = 60
WITH_TIMES = {"commits with times"}  # whatever the programs are
Off = Callable[[pytest.MonkeyPatch], None]


def _without_rule(patch: pytest.MonkeyPatch, rule: Callable[..., Any]) -> None:
    rules = tuple(one for one in RULES_AFTER_SELECTS if one is not rule)
    assert len(rules) < len(RULES_AFTER_SELECTS)
    patch.setattr(following, "RULES_AFTER_SELECTS", rules)


def rows_taken_twice(patch: pytest.MonkeyPatch) -> None:
    _without_rule(patch, rules_of_rows.rows_deleted_by_both)


def rows_added_unseen(patch: pytest.MonkeyPatch) -> None:
    _without_rule(patch, rules_of_rows.rows_added)


def selects_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "check_selects", lambda *_: None)


def heads_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ratifying._Book, "_moved", lambda *_: {})


def commits_overwritten(patch: pytest.MonkeyPatch) -> None:
    def write(log: TableLog, version: int, actions: list[Action]) -> PutOutcome:
        log.store.put(commit_path(version), encode_actions(actions))
        return PutOutcome.CREATED

    patch.setattr(TableLog, "write_commit", write)


def own_commit_unrecognised(patch: pytest.MonkeyPatch) -> None:
    def summarised(*given: Any) -> Winner:
        return replace(summarise(*given), txn_id="another")

    patch.setattr(following, "summarise", summarised)


def lost_ratification_denied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLedger, "_looked_up", lambda *_: {})


def newest_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableLog, "at_sequence", lambda log, _: log.latest())


def own_clock_believed(patch: pytest.MonkeyPatch) -> None:
    def now(previous: Snapshot, metadata: Metadata, now_ms: int) -> int | None:
        return None if commit_time(previous, metadata, now_ms) is None else now_ms

    patch.setattr(following, "commit_time", now)


def vacuum_looks_at_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "_oldest_begin", lambda _: None)


@pytest.mark.parametrize(
    ("off", "kinds", "lake"),
    [
        (rows_taken_twice, {"counters", "bank"}, True),
        (rows_taken_twice, {"counters", "bank"}, False),
        (rows_added_unseen, {"anything"}, True),
        (selects_unchecked, {"write skew", "list-append"}, True),
        (selects_unchecked, {"write skew", "list-append"}, False),
        (heads_unchecked, {"counters", "bank"}, True),
        (commits_overwritten, {"set-add"}, False),
        (own_commit_unrecognised, {"set-add", "counters"}, False),
        (lost_ratification_denied, {"set-add", "counters", "bank"}, True),
        (newest_read, {"long scans", "bank"}, True),
        (vacuum_looks_at_nobody, {"vacuum"}, True),
        (own_clock_believed, WITH_TIMES, True),
        (own_clock_believed, WITH_TIMES, False),
    ],
)
def test_a_guard_that_is_off_is_found(
    monkeypatch: pytest.MonkeyPatch, off: Off, kinds: set[str], lake: bool
) -> None:
    off(monkeypatch)
    logging.disable(logging.CRITICAL)
    try:
        assert first_failure(kinds, lake=lake) is not None
    finally:
        logging.disable(logging.NOTSET)


def first_failure(kinds: set[str], *, lake: bool) -> Failure | None:
    """Of the first seeds with such programs."""
    seeds = (
        seed
        for seed in range(1, 20_000)
        if (shape := shape_of(Case(seed))).has_catalog is lake
        and (shape.plan.kind in kinds or (kinds == WITH_TIMES and _has_times(shape)))
    )
    for _, seed in zip(range(SEEDS_MAX), seeds):
        if (failure := failure_of(Case(seed))) is not None:
            return failure
    return None


def _has_times(shape: Shape) -> bool:
    return ("delta.enableInCommitTimestamps", "true") in shape.properties
