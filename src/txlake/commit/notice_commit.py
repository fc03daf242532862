"""Commits that change no row and record an event: a VACUUM, a version for a checkpoint.

A path table's is the next file of its log, a lake table's is ratified by its catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.checkpointing import after_commit
from txlake.commit.commit_info import Provenance, commit_info
from txlake.commit.in_commit_time import commit_time
from txlake.commit.lake_commit import Part, commit_together
from txlake.commit.membership import bypass_error, is_catalog_managed
from txlake.commit.rebase import Proposal
from txlake.commit.table_log import TableLog
from txlake.conflict.footprint import Footprint
from txlake.conflict.levels import Level
from txlake.errors import OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Remove

BeginTransaction = Callable[[], AbstractContextManager[str]]
"""Begins a transaction of the lake's catalog and gives its id; leaving ends it."""

_log = logging.getLogger(__name__)


def commit_notice(
    log: TableLog,
    begin: BeginTransaction | None,
    operation: str,
    parameters: Mapping[str, object],
    metrics: Mapping[str, object],
    removed: Sequence[Remove] = (),
) -> None:
    """Commit a commitInfo, which changes nothing and so conflicts with nothing.

    `removed` are files that no version of the table has, and that must not be deleted for a while.
    `begin` begins a transaction of the lake's catalog, for the commit of a catalog table.

    Raises Unavailable, OutcomeUnknown, UnsupportedFeature for a protocol that txlake can't write,
    and InvalidRequest for a catalog table that was opened by its path.
    """
    if log.catalog_table is not None and begin is not None:
        _commit_in_lake(log, log.catalog_table, begin, operation, parameters, metrics, removed)
        return
    txn_id = log.system.new_id()
    for attempt in range(1, log.settings.retry.commit_attempts_max + 1):
        base = log.latest()
        base.require_writable()
        if is_catalog_managed(base.protocol):
            raise bypass_error(log.name, base.version, tuple(base.domains.values()))
        provenance = _provenance(operation, parameters, metrics, base, txn_id)
        now = log.system.now_ms()
        time = commit_time(base, base.metadata, now)
        info = commit_info(provenance, now_ms=now, in_commit_ms=time, tags={})
        version = base.version + 1
        outcome = log.write_commit(version, [info, *removed])
        # A commit that is there may be our own: the store's client sent it twice.
        is_ours = outcome is PutOutcome.CREATED or log.find_txn_id(version) == txn_id
        if outcome is PutOutcome.UNKNOWN and not is_ours:
            raise OutcomeUnknown(
                f"{log.name}: {operation}: whether version {version} was written isn't known; look "
                f"for txnId {txn_id} in it. No data changes with that commit"
            )
        if is_ours:
            committed = base.apply([info, *removed], version=version, timestamp_ms=now)
            log.adopt(committed)
            after_commit(log, committed, txn_id=txn_id)
            return
        _log.debug(
            "%s: %s: version %d was taken, attempt %d", log.name, operation, version, attempt
        )
    raise Unavailable(
        f"{log.name}: {operation}: other writers took {log.settings.retry.commit_attempts_max} "
        "versions in a row; try again when fewer write"
    )


def _commit_in_lake(
    log: TableLog,
    catalog_table: CatalogTable,
    begin: BeginTransaction,
    operation: str,
    parameters: Mapping[str, object],
    metrics: Mapping[str, object],
    removed: Sequence[Remove],
) -> None:
    """Commit the notice as a transaction of the lake's catalog."""
    base = log.latest()
    base.require_writable()
    with begin() as transaction_id:
        proposal = Proposal(
            base=base,
            footprint=Footprint(read_version=base.version, removed=tuple(removed)),
            actions=tuple(removed),
            level=Level.SNAPSHOT,
            provenance=_provenance(operation, parameters, metrics, base, transaction_id),
        )
        commit_together(
            catalog_table.ledger,
            [Part(log, proposal, always_commits=True)],
            transaction_id=transaction_id,
            system=log.system,
            settings=log.settings,
        )


def _provenance(
    operation: str,
    parameters: Mapping[str, object],
    metrics: Mapping[str, object],
    base: Snapshot,
    txn_id: str,
) -> Provenance:
    """Return the commitInfo's constant parts, as a blind append's."""
    return Provenance(
        operation=operation,
        parameters=parameters,
        metrics=metrics,
        level=Level.SNAPSHOT,
        is_blind_append=True,
        read_version=base.version,
        txn_id=txn_id,
    )
