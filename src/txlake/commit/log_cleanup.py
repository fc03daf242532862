"""Which files of the log have expired, and their deletion.

Owns what a reader of the oldest kept version needs: a checkpoint at or before it, that version's
commit, and everything later. Source: PROTOCOL.md, "Metadata Cleanup".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from txlake.commit.branch_store import BranchStore
from txlake.commit.commit_times import increasing_file_times
from txlake.commit.table_branches import oldest_needed
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable
from txlake.log.replay import sidecars_of
from txlake.log.segment import Checkpoint, Listing
from txlake.ports import Store, StoredObject
from txlake.protocol.checkpoints import read_checkpoint
from txlake.protocol.file_names import (
    BRANCHES_FOLDER,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    Checksum,
    ClassicCheckpoint,
    CommitFile,
    Compaction,
    MultiPartCheckpoint,
    StagedCommit,
    V2Checkpoint,
    listing_start,
    parse_name,
    sidecar_path,
)
from txlake.protocol.paths import decode_path

_log = logging.getLogger(__name__)

_DAY_MS = 86_400_000


def clean_log_once(log: TableLog, *, retention_ms: int) -> None:
    """Run `clean_log` unless this log was cleaned up to the same midnight before.

    What open transactions retained then is deleted a day later, or by another process.
    """
    now = log.system.now_ms()
    until = (start_of_unit(now - retention_ms, _DAY_MS), midnight(now))
    if log.cleaned_until != until:
        clean_log(log, retention_ms=retention_ms)
        log.cleaned_until = until


def clean_log(log: TableLog, *, retention_ms: int, unit_ms: int = _DAY_MS) -> list[str]:
    """Delete log files older than the retention that no retained version needs; return their paths.

    The cut is at the beginning of a unit of time: midnight UTC by default, so that a day's
    checkpoints clean up once. Nothing is deleted if the checkpoint that begins the retained log
    isn't complete and readable. For a catalog table, versions that its open transactions read or
    are checked against are retained, however old; for a path table, those since an open branch
    began; on such a branch all of its versions. Sidecars that no checkpoint names and unfinished
    files of writers that were killed are deleted too, a day later. Files that a branch has from its
    parent, and a table's branches, are no part of its log here.
    """
    objects, listing = log_files(log)
    now = log.system.now_ms()
    expired: list[str] = []
    kept = oldest_retained(log, listing, retention_ms=retention_ms, unit_ms=unit_ms)
    if kept is not None:
        expired = [item.path for item in objects if is_expired(item.path, kept)]
        if expired and not _is_readable(log, listing, kept):
            return []
    kept_version = -1 if kept is None else kept
    checkpoints = [item for item in listing.checkpoints if item.version >= kept_version]
    young = midnight(now) - _DAY_MS
    sidecars = [
        item.path
        for item in objects
        if item.path.startswith(f"{SIDECAR_FOLDER}/") and item.modified_ms < young
    ]
    if sidecars:
        needed = _needed_sidecars(log, checkpoints)
        if needed is not None:
            expired += [path for path in sidecars if path not in needed]
    if expired:
        _log.info("%s: %d expired files of the log are deleted", log.name, len(expired))
        # Oldest first: whatever stops this, what is left can be read from the kept checkpoint on.
        log.store.delete(sorted(expired))
    log.store.sweep(LOG_FOLDER, young)
    return sorted(expired)


def log_files(log: TableLog) -> tuple[list[StoredObject], Listing]:
    """Return the objects of the log, and those that replay uses, by one listing of the folder."""
    objects = list(_own_objects(log.store))
    return objects, Listing.of((item.path, item.size_bytes, item.modified_ms) for item in objects)


def oldest_retained(
    log: TableLog, listing: Listing, *, retention_ms: int, unit_ms: int = _DAY_MS
) -> int | None:
    """Return the version of the checkpoint from which `clean_log` keeps the log; None if it keeps
    every version.

    Older versions may be gone already. Doesn't read the checkpoint: `clean_log` deletes nothing if
    it is damaged.
    """
    cutoff = start_of_unit(log.system.now_ms() - retention_ms, unit_ms)
    kept = oldest_retained_checkpoint(listing, cutoff)
    if kept is None:
        return None
    return oldest_retained_checkpoint(listing, cutoff, oldest_needed(log))


def midnight(time_ms: int) -> int:
    """Return the midnight UTC at or before a time."""
    return start_of_unit(time_ms, _DAY_MS)


def start_of_unit(time_ms: int, unit_ms: int) -> int:
    """Return the beginning of a time's day, or other unit of time, in UTC."""
    return time_ms - time_ms % unit_ms


def oldest_retained_checkpoint(
    listing: Listing, cutoff_ms: int, read: int | None = None
) -> int | None:
    """Return the version of the newest checkpoint at or before the cut.

    The cut is the newest commit at or before `cutoff_ms`, or the version `read` if that is older.
    None if there is no such commit or checkpoint: then nothing may be deleted.
    """
    times = increasing_file_times(listing)
    cut = max((version for version, time in times.items() if time <= cutoff_ms), default=None)
    if cut is None:
        return None
    needed = cut if read is None else min(cut, read)
    versions = [item.version for item in listing.checkpoints if item.version <= needed]
    return max(versions, default=None)


def is_expired(path: str, kept: int) -> bool:
    """Return whether a log file may be deleted if `kept` is the oldest retained checkpoint's
    version.

    False for sidecars and files that aren't the log's.
    """
    match parse_name(path):
        case (
            CommitFile(version)
            | Checksum(version)
            | ClassicCheckpoint(version)
            | MultiPartCheckpoint(version)
            | V2Checkpoint(version)
        ):
            return version < kept
        case Compaction(start, _):
            return start <= kept
        case StagedCommit(version, _):
            return version <= kept
        case _:
            return False


def _own_objects(store: Store) -> Iterator[StoredObject]:
    """Yield a log's own files from version 0 on, sorted by path: without its branches', and on a
    branch without the parent's.
    """
    first = store.base + 1 if isinstance(store, BranchStore) else 0
    yield from store.list(LOG_FOLDER, listing_start(first), BRANCHES_FOLDER)
    yield from store.list(LOG_FOLDER, start_after=f"{BRANCHES_FOLDER}0")


def _is_readable(log: TableLog, listing: Listing, version: int) -> bool:
    """Return whether all checkpoints of a version are readable. Logs the damage."""
    for checkpoint in listing.checkpoints:
        if checkpoint.version == version:
            try:
                log.read_checkpoint(checkpoint)
            except CorruptTable as error:
                _log.warning("%s: the log is kept: %s", log.name, error)
                return False
    return True


def _needed_sidecars(log: TableLog, checkpoints: Iterable[Checkpoint]) -> set[str] | None:
    """Return the paths of the sidecars that these checkpoints name; None when one can't be read."""
    needed: set[str] = set()
    for checkpoint in checkpoints:
        for path in checkpoint.paths:
            try:
                others = read_checkpoint(log.store.get(path), file=f"{log.name}: {path}").others
                named = sidecars_of(checkpoint, others)
                needed.update(sidecar_path(decode_path(item.path)) for item in named)
            except (CorruptTable, FileNotFoundError) as error:
                _log.warning("%s: sidecars are kept: %s", log.name, error)
                return None
    return needed
