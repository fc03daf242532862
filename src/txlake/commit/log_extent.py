"""How far a log reaches, by a few requests however long it is: its oldest commit, its newest
checkpoint and checksum.

The answers are for people, and for what may be wrong at no cost, such as when a checkpoint is due.
What deletes by them lists the log (`log_cleanup`, `table_log`).
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.commit.checkpointing import checkpoint_interval
from txlake.commit.parallel import is_far
from txlake.commit.table_log import TableLog
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.file_names import (
    LOG_FOLDER,
    VERSIONS_END,
    CommitFile,
    checksum_path,
    commit_path,
    parse_name,
)

CHECKSUMS_LOOKED_FOR = 10
"""So many of the newest versions are looked at for a checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """How far a log reaches.

    Attributes:
        unpublished: the ratified versions whose files aren't in the log yet, oldest first.
        oldest_commit: the version of the oldest commit file; None without one.
        checkpoint: the newest checkpoint's version; None without one.
        checksum: that of the newest checksum among the newest ten versions; None without one.
    """

    unpublished: tuple[int, ...]
    oldest_commit: int | None
    checkpoint: int | None
    checksum: int | None


def log_extent(log: TableLog, newest: Snapshot) -> LogExtent:
    """Return how far the log of a table's newest version reaches.

    A log that lost commits in its middle is taken to begin after them. Costs a whole listing only
    if no usable hint names a checkpoint.
    """
    catalog_table = log.catalog_table
    head = None if catalog_table is None else catalog_table.ledger.head(catalog_table.table_id)
    unpublished = () if head is None else tuple(commit.version for commit in head.pending)
    published = unpublished[0] - 1 if unpublished else newest.version
    checksums = range(newest.version, newest.version - CHECKSUMS_LOOKED_FOR, -1)
    return LogExtent(
        unpublished=unpublished,
        oldest_commit=_oldest_commit(log.store, published),
        checkpoint=newest_checkpoint(log, newest),
        checksum=next(
            (v for v in checksums if v >= 0 and log.store.head(checksum_path(v)) is not None), None
        ),
    )


def _oldest_commit(store: Store, newest: int) -> int | None:
    """Return the version of the oldest commit file, by the first page of a listing; on this
    machine, where a listing has no pages, by looking commits up by name.
    """
    if is_far(store):
        files = (parse_name(item.path) for item in store.list(LOG_FOLDER, before=VERSIONS_END))
        return next((file.version for file in files if isinstance(file, CommitFile)), None)
    if newest < 0 or store.head(commit_path(newest)) is None:
        return None
    missing, kept = -1, newest
    while kept - missing > 1:
        # A log that was never cleaned up begins at version 0.
        version = 0 if missing < 0 and kept == newest else (missing + kept) // 2
        if store.head(commit_path(version)) is None:
            missing = version
        else:
            kept = version
    return kept


def newest_checkpoint(log: TableLog, newest: Snapshot) -> int | None:
    """Return the newest checkpoint's version: the hint's, if none can be due since, else by a
    listing from there on.
    """
    hint = log.hinted_checkpoint()
    if (
        hint is not None
        and hint.path is not None
        and newest.version - hint.version <= checkpoint_interval(newest)
        and log.store.head(hint.path) is not None
    ):
        return hint.version
    found = log.listing(None if hint is None else hint.version).checkpoints
    if not found and hint is not None:
        found = log.listing().checkpoints
    return found[-1].version if found else None
