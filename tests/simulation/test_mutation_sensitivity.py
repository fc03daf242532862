"""The simulation's sensitivity: with a guard of the engine removed, it finds what that breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import sqlalchemy as sa
from pyroaring import BitMap64
from sqlalchemy.engine import Connection

from tests.simulation.case import Case, WorldConfig, world_config
from tests.simulation.database import SimulatedDatabase
from tests.simulation.faults import FaultInjector, FaultKind
from tests.simulation.feeds import FEED
from tests.simulation.shrinking import failure_of
from tests.simulation.world import Failure
from txlake.catalog import branch_rows, publishing, ratifying
from txlake.catalog.commits import CommitLedger
from txlake.catalog.database import Database
from txlake.catalog.fence import Fence
from txlake.catalog.relations import branches, tables
from txlake.commands import maintenance
from txlake.commit import change_feed, lake_commit, publication, rebase, recent_commits, vacuum
from txlake.commit.catalog_managed import CatalogManagedFiles
from txlake.commit.in_commit_time import commit_time
from txlake.commit.lake_commit import LakeCommitter
from txlake.commit.path_commit import PathCommitter
from txlake.commit.publication import RatifiedCommit
from txlake.commit.table_log import TableLog
from txlake.conflict import metadata_rules, row_rules
from txlake.conflict.concurrent_commit import ConcurrentCommit, summarise
from txlake.conflict.rules import RULES_AFTER_SELECTS
from txlake.lake.streaming import source
from txlake.lake.streaming.progress import Progress
from txlake.log.snapshot import Snapshot
from txlake.ports import EndedBranch, Ledger, PutOutcome, TableCommit
from txlake.protocol.actions import Action, Add, Metadata, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.engine import Engine
from txlake.session.transaction import Transaction

pytestmark = pytest.mark.timeout(1800)

SEEDS_MAX = 400
# Sets that select seeds by their tables, whatever the programs are.
WITH_TIMES = {"commits with times"}
WITH_IDENTITIES = {"identity columns"}
WITH_FEED = {"change feeds"}
Off = Callable[[pytest.MonkeyPatch], None]


def _without_rule(patch: pytest.MonkeyPatch, rule: Callable[..., Any]) -> None:
    rules = tuple(one for one in RULES_AFTER_SELECTS if one is not rule)
    assert len(rules) < len(RULES_AFTER_SELECTS)
    patch.setattr(rebase, "RULES_AFTER_SELECTS", rules)


def rows_deleted_twice(patch: pytest.MonkeyPatch) -> None:
    _without_rule(patch, row_rules.rows_deleted_by_both)


def added_rows_ignored(patch: pytest.MonkeyPatch) -> None:
    _without_rule(patch, row_rules.rows_added)


def selects_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebase, "check_selects", lambda *_: None)


def heads_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ratifying._Batch, "_moved_heads", lambda *_: {})


def commits_overwritten(patch: pytest.MonkeyPatch) -> None:
    def write(log: TableLog, version: int, actions: list[Action]) -> PutOutcome:
        log.store.put(commit_path(version), encode_actions(actions))
        return PutOutcome.CREATED

    patch.setattr(TableLog, "write_commit", write)


def own_commit_unrecognised(patch: pytest.MonkeyPatch) -> None:
    def summarised(*given: Any) -> ConcurrentCommit:
        return replace(summarise(*given), txn_id="another")

    patch.setattr(recent_commits, "summarise", summarised)


def lost_ratification_denied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLedger, "_find_ratified", lambda *_: {})


def newest_version_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableLog, "at_sequence", lambda log, _: log.latest())


def own_clock_believed(patch: pytest.MonkeyPatch) -> None:
    def now(previous: Snapshot, metadata: Metadata, now_ms: int) -> int | None:
        return None if commit_time(previous, metadata, now_ms) is None else now_ms

    patch.setattr(rebase, "commit_time", now)


def vacuum_ignores_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintenance, "_others_open", lambda _: None)


def staged_files_known_by_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vacuum, "tags_in", lambda _: frozenset())


def oldest_reads_ignored(patch: pytest.MonkeyPatch) -> None:
    def head(ledger: CommitLedger, table_id: str, *, by_branches: bool = True) -> int | None:
        found = ledger.head(table_id)
        return None if found is None else found.version

    patch.setattr(CommitLedger, "oldest_read", head)


def leases_by_the_time_of_day(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDatabase, "lease_now", Database.now)
    patch.setattr(SimulatedDatabase, "leases_may_step", False)


def no_last_lease(patch: pytest.MonkeyPatch) -> None:
    def lease_now(on: SimulatedDatabase) -> sa.ColumnElement[int]:
        return on.now() if on._process.world.config.is_server else Database.lease_now(on)

    patch.setattr(SimulatedDatabase, "lease_now", lease_now)
    patch.setattr(SimulatedDatabase, "leases_may_step", False)


def a_file_taken_for_published(patch: pytest.MonkeyPatch) -> None:
    def with_those_before(ledger: Ledger, newest: RatifiedCommit) -> Sequence[TableCommit]:
        commit = newest.commit
        before = commit.version - 1
        if before < 0 or newest.store.head(commit_path(before)) is not None:
            return (commit,)
        head = ledger.head(commit.table_id)
        return () if head is None else head.pending

    patch.setattr(publication, "_with_pending", with_those_before)
    # The catalog's own guard, which records only compared files as published.
    patch.setattr(
        publishing, "_last_contiguous", lambda _, vouched: max(one.last for one in vouched)
    )
    # The same guard in the process that commits next.
    nothing_beyond_the_head(patch)


def nothing_beyond_the_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CatalogManagedFiles, "_newest_from", lambda _, version: version)
    patch.setattr(CatalogManagedFiles, "_check_end", lambda *_: None)
    patch.setattr(LakeCommitter, "_check_free", lambda *_: None)


def values_drawn_without_the_catalog(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "_identities", lambda its, handle, _: its.open(handle).drawn)


def identity_marks_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebase.Rebase, "_with_marks", lambda _, metadata: metadata)


def deletes_missing_in_feed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(change_feed, "deleted_positions", lambda *_: BitMap64())


def finished_batches_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Progress, "is_done", lambda *_: False)


def batches_signed_by_two(patch: pytest.MonkeyPatch) -> None:
    _without_rule(patch, metadata_rules.app_id_advanced)


def compactions_read_as_new(patch: pytest.MonkeyPatch) -> None:
    def added(_table: str, _version: int, actions: Sequence[Action], _: object) -> list[Add]:
        return [one for one in actions if isinstance(one, Add)]

    patch.setattr(source, "new_files", added)


def late_commits_of_branches_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ratifying._Batch, "_gone_tables", lambda _: {})


def branches_published_as_they_were(patch: pytest.MonkeyPatch) -> None:
    end = branch_rows.end_branch

    def unfenced(connection: Connection, change: EndedBranch, now_ms: int) -> None:
        of_branch = sa.select(branches.c.number).where(branches.c.id == change.id)
        query = sa.select(tables.c.id, tables.c.head, tables.c.modified_ms).where(
            tables.c.branch.in_(of_branch), tables.c.dropped_sequence.is_(None)
        )
        now = {row.id: (row.head, row.modified_ms) for row in connection.execute(query)}
        end(connection, replace(change, tables=now), now_ms)

    patch.setattr(branch_rows, "end_branch", unfenced)


def branches_read_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lake_commit, "_read_records", lambda _: {})


def vacuum_ignores_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vacuum, "_needed_elsewhere", lambda *_: set())


def unpublished_versions_missed_by_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "_publish_at", lambda *_: None)


def logs_of_ended_branches_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vacuum, "_of_ended_branches", lambda *_: [])


def no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fence, "check", lambda *_, **__: None)
    patch.setattr(Fence, "check_epoch", lambda *_: None)


def replaced_files_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDatabase, "_require_same_file", lambda _: None)


def gaps_filled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PathCommitter, "_check_newest", lambda *_: None)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize(
    ("off", "kinds", "lake"),
    [
        (rows_deleted_twice, {"counters", "bank"}, True),
        (rows_deleted_twice, {"counters", "bank"}, False),
        (added_rows_ignored, {"anything"}, True),
        (selects_unchecked, {"write skew", "list-append"}, True),
        (selects_unchecked, {"write skew", "list-append"}, False),
        (heads_unchecked, {"counters", "bank"}, True),
        (commits_overwritten, {"set-add"}, False),
        (own_commit_unrecognised, {"set-add", "counters"}, False),
        (lost_ratification_denied, {"set-add", "counters", "bank"}, True),
        (newest_version_read, {"long scans", "bank"}, True),
        (vacuum_ignores_open_transactions, {"vacuum"}, True),
        (staged_files_known_by_age, {"clocks"}, True),
        (oldest_reads_ignored, {"clocks"}, True),
        (leases_by_the_time_of_day, {"clocks"}, True),
        (no_last_lease, {"clocks"}, True),
        (own_clock_believed, WITH_TIMES, True),
        (own_clock_believed, WITH_TIMES, False),
        (values_drawn_without_the_catalog, WITH_IDENTITIES, True),
        (identity_marks_not_written, WITH_IDENTITIES, True),
        (deletes_missing_in_feed, WITH_FEED, True),
        (deletes_missing_in_feed, WITH_FEED, False),
        (finished_batches_repeated, {"streams"}, True),
        (batches_signed_by_two, {"streams"}, True),
        (compactions_read_as_new, {"streams"}, True),
        (late_commits_of_branches_lost, {"branches"}, True),
        (branches_published_as_they_were, {"branches"}, True),
        (branches_read_nothing, {"branches"}, True),
        (vacuum_ignores_branches, {"branches"}, True),
        (unpublished_versions_missed_by_branches, {"branches"}, True),
        (logs_of_ended_branches_left, {"branches"}, True),
    ],
)
def test_the_simulation_finds_a_removed_guard(
    monkeypatch: pytest.MonkeyPatch, off: Off, kinds: set[str], lake: bool
) -> None:
    off(monkeypatch)
    seeds = (
        seed
        for seed in range(1, 20_000)
        if (config := world_config(Case(seed))).has_catalog is lake
        and (
            config.plan.kind in kinds
            or (kinds == WITH_TIMES and _has_times(config))
            or (kinds == WITH_IDENTITIES and config.has_identity)
            or (kinds == WITH_FEED and FEED in config.properties)
        )
    )
    assert first_failure(seeds) is not None


@pytest.mark.broad
@pytest.mark.parametrize(
    ("off", "kind"),
    [
        (gaps_filled, FaultKind.LOG_CLEANED),
        (a_file_taken_for_published, FaultKind.FOREIGN_FILE),
        (nothing_beyond_the_head, FaultKind.CATALOG_BACK),
        (no_fence, FaultKind.CATALOG_BACK),
        (replaced_files_accepted, FaultKind.CATALOG_GONE),
    ],
)
def test_the_simulation_finds_a_removed_guard_against_lake_faults(
    monkeypatch: pytest.MonkeyPatch, off: Off, kind: FaultKind
) -> None:
    off(monkeypatch)
    seeds = (seed for seed in range(1, 20_000) if kind in _fault_kinds(seed))
    assert first_failure(seeds) is not None


def first_failure(seeds: Iterable[int]) -> Failure | None:
    """Return the first failure among these seeds, of which 400 are tried at most."""
    logging.disable(logging.CRITICAL)
    try:
        failures = (failure_of(Case(seed)) for seed in islice(seeds, SEEDS_MAX))
        return next((one for one in failures if one is not None), None)
    finally:
        logging.disable(logging.NOTSET)


def _fault_kinds(seed: int) -> set[FaultKind]:
    return FaultInjector(seed, set(world_config(Case(seed)).possible)).kinds


def _has_times(config: WorldConfig) -> bool:
    return ("delta.enableInCommitTimestamps", "true") in config.properties
