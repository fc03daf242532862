"""Which files of the log have expired, and their deletion.

Owns what a reader of the oldest kept version needs: a checkpoint at or before it, that version's
commit, and everything later. Source: PROTOCOL.md, "Metadata Cleanup".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from txlake.commit.branch_store import BranchStore
from txlake.commit.table_branches import oldest_needed
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable
from txlake.log.replay import sidecars_of
from txlake.log.segment import Checkpoint, Listing, LogEntry
from txlake.ports import Store, StoredObject
from txlake.protocol.checkpoints import read_checkpoint
from txlake.protocol.file_names import (
    BRANCHES_FOLDER,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    VERSIONS_END,
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
    now = log.system.now_ms()
    found = expired_versions(log, retention_ms=retention_ms, unit_ms=unit_ms)
    kept = -1 if found.kept is None else found.kept
    others = list(log.store.list(LOG_FOLDER, start_after=f"{BRANCHES_FOLDER}0"))
    expired = [*found.paths, *(item.path for item in others if is_expired(item.path, kept))]
    if expired and not _is_readable(log, found.oldest_checkpoints):
        return []
    young = midnight(now) - _DAY_MS
    sidecars = [
        item.path
        for item in others
        if item.path.startswith(f"{SIDECAR_FOLDER}/") and item.modified_ms < young
    ]
    if sidecars:
        needed = _needed_sidecars(log, _checkpoints_from(log.store, kept))
        if needed is not None:
            expired += [path for path in sidecars if path not in needed]
    if expired:
        _log.info("%s: %d expired files of the log are deleted", log.name, len(expired))
        # Oldest first: whatever stops this, what is left can be read from the kept checkpoint on.
        log.store.delete(sorted(expired))
    log.store.sweep(LOG_FOLDER, young)
    return sorted(expired)


def listing_until(log: TableLog, time_ms: int, *, first: int) -> Listing:
    """Return the files of the versions from `first` up to the newest commit at or before a time.

    Versions that aren't published yet have no files, and those that a branch has from its parent
    are left out. The log is listed up to the first later commit.
    """
    return _listing_of(files_until(_version_files(log.store, first), time_ms)[1])


def oldest_commit(log: TableLog, *, first: int) -> LogEntry | None:
    """Return the file of the oldest published commit from the version `first` on; None without one.

    The log is listed up to there.
    """
    for item in _version_files(log.store, first):
        file = parse_name(item.path)
        if isinstance(file, CommitFile):
            return LogEntry(file, item.size_bytes, item.modified_ms)
    return None


def oldest_checkpoint_time_ms(log: TableLog, *, first: int) -> int | None:
    """Return when the version of the oldest complete checkpoint from the version `first` on was
    committed, as `checkpoint_time_ms`. The log is listed up to there.
    """
    return checkpoint_time_ms(_version_files(log.store, first))


def checkpoint_time_ms(objects: Iterable[StoredObject]) -> int | None:
    """Return when the version of the first complete checkpoint was committed; None without one. If
    that commit is gone, it is when the checkpoint was written.

    `objects`: of a log, by path, in which a version's checkpoints come before its commit. Takes no
    more of them than up to the first commit after the checkpoint.
    """
    parts: list[StoredObject] = []
    for item in objects:
        file = parse_name(item.path)
        if isinstance(file, ClassicCheckpoint | MultiPartCheckpoint | V2Checkpoint):
            parts.append(item)
        elif isinstance(file, CommitFile):
            for checkpoint in _listing_of(parts).checkpoints[:1]:
                is_own = file.version == checkpoint.version
                return item.modified_ms if is_own else checkpoint.parts[0].modified_ms
    return next((one.parts[0].modified_ms for one in _listing_of(parts).checkpoints), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredVersions:
    """The files of versions that a clean-up of the log deletes.

    Attributes:
        kept: the version of the checkpoint from which the log is kept; None: every version is.
        paths: the files of the versions before it, by path.
        oldest_checkpoints: the complete checkpoints of the version `kept`.
    """

    kept: int | None
    paths: Sequence[str] = ()
    oldest_checkpoints: Sequence[Checkpoint] = ()


def expired_versions(
    log: TableLog, *, retention_ms: int, unit_ms: int = _DAY_MS
) -> ExpiredVersions:
    """Return the files of versions that `clean_log` deletes, which may be gone already.

    The log is listed up to the first commit of the retention. Doesn't read the checkpoint:
    `clean_log` deletes nothing if it is damaged.
    """
    cutoff_ms = start_of_unit(log.system.now_ms() - retention_ms, unit_ms)
    cut, files = files_until(_version_files(log.store), cutoff_ms)
    checkpoints = _listing_of(files).checkpoints
    kept = _newest_at(checkpoints, cut)
    if kept is not None:
        needed = oldest_needed(log)
        kept = kept if needed is None else _newest_at(checkpoints, min(kept, needed))
    if kept is None:
        return ExpiredVersions(kept=None)
    return ExpiredVersions(
        kept=kept,
        paths=[item.path for item in files if is_expired(item.path, kept)],
        oldest_checkpoints=[item for item in checkpoints if item.version == kept],
    )


def files_until(objects: Iterable[StoredObject], time_ms: int) -> tuple[int, list[StoredObject]]:
    """Return the version of the newest commit at or before a time, -1 if there is none, and the
    files of the versions up to it, by path.

    `objects`: of a log, by path. Takes no more of them than up to the first later commit. The time
    of a commit is at least 1 ms after the one before, as in `increasing_file_times`.
    """
    cut = -1
    files: list[StoredObject] = []
    previous_ms = -1
    for item in objects:
        file = parse_name(item.path)
        if isinstance(file, CommitFile):
            previous_ms = max(item.modified_ms, previous_ms + 1)
            if previous_ms > time_ms:
                break
            cut = file.version
        files.append(item)
    end = listing_start(cut + 1)
    return cut, [item for item in files if item.path < end]


def _newest_at(checkpoints: Iterable[Checkpoint], version: int) -> int | None:
    """Return the version of the newest checkpoint at or before a version; None if there is none."""
    return max((item.version for item in checkpoints if item.version <= version), default=None)


def midnight(time_ms: int) -> int:
    """Return the midnight UTC at or before a time."""
    return start_of_unit(time_ms, _DAY_MS)


def start_of_unit(time_ms: int, unit_ms: int) -> int:
    """Return the beginning of a time's day, or other unit of time, in UTC."""
    return time_ms - time_ms % unit_ms


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


def _version_files(store: Store, first: int = 0) -> Iterator[StoredObject]:
    """Yield a log's files of version `first` and later, by path: on a branch without the
    parent's.
    """
    first = max(first, store.base + 1) if isinstance(store, BranchStore) else first
    yield from store.list(LOG_FOLDER, listing_start(first), VERSIONS_END)


def _listing_of(objects: Iterable[StoredObject]) -> Listing:
    return Listing.of((item.path, item.size_bytes, item.modified_ms) for item in objects)


def _checkpoints_from(store: Store, version: int) -> Sequence[Checkpoint]:
    """Return the complete checkpoints of a version and later ones."""
    return _listing_of(
        item
        for item in _version_files(store, version)
        if isinstance(parse_name(item.path), ClassicCheckpoint | MultiPartCheckpoint | V2Checkpoint)
    ).checkpoints


def _is_readable(log: TableLog, checkpoints: Iterable[Checkpoint]) -> bool:
    """Return whether all of these checkpoints are readable. Logs the damage."""
    for checkpoint in checkpoints:
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
