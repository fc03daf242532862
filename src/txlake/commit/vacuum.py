"""VACUUM: finds and deletes files below a table that no reader within the retention needs.

Two commits record it. Source: PROTOCOL.md, "Add File and Remove File" (tombstones), "VACUUM
Protocol Check"; Delta's documentation of VACUUM.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from txlake.commit.branch_store import BranchStore
from txlake.commit.expired_files import (
    ExpiredFiles,
    expired_files,
    last_vacuum,
    newest_outside,
    note_vacuum,
)
from txlake.commit.iceberg_publication import needed_by_iceberg
from txlake.commit.notice_commit import BeginTransaction, commit_notice
from txlake.commit.staging import tag_of, tags_in
from txlake.commit.table_branches import (
    branches_in,
    oldest_needed,
    open_branch_logs,
    remove_ended,
)
from txlake.commit.table_log import Commit, TableLog
from txlake.commit.table_paths import files_of, path_in_table, vector_path_in_table
from txlake.datafiles.write_task import CHANGE_FOLDER
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import OpenTransactions, StoredObject
from txlake.protocol.actions import Add, Cdc, Remove
from txlake.protocol.file_names import BRANCHES_FOLDER, LOG_FOLDER
from txlake.protocol.file_rows import vector_of
from txlake.protocol.last_vacuum import LastVacuum
from txlake.protocol.paths import unescape_partition

ReadOpenTransactions = Callable[[], OpenTransactions]
"""Tells which other transactions are open that may own or read files."""

_log = logging.getLogger(__name__)

# How far the clocks of hosts, the store and the catalog may be apart.
_SKEW_MS = 10 * 60_000
# Folders that are hidden by their name and nevertheless hold files of the table.
_TABLE_FOLDERS = ("_change_data", "_delta_index")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_DELETES_AT_ONCE = 10_000
_READINGS_MAX = 5  # of a table's other branches


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan:
    """The files that a VACUUM deletes.

    Attributes:
        paths: the files, relative to the table, decoded, sorted.
        size_bytes: their total size.
        folders: the number of folders searched, the table's own included.
        before_ms: the retention's cut, or an earlier one that open transactions need: older files
            that no version since then needs are deleted.
        version: the version that the plan was made from.
        lite: the files were found by the log alone.
        through: no file that the commits up to this version removed is left after the VACUUM;
            None if that isn't known.
    """

    paths: tuple[str, ...]
    size_bytes: int
    folders: int
    before_ms: int
    version: int
    lite: bool = False
    through: int | None = None


def plan_vacuum(
    log: TableLog,
    retention_ms: int | None = None,
    now_ms: int | None = None,
    *,
    lite: bool = False,
    retention_check: bool = True,
    others_open: ReadOpenTransactions | None = None,
    other_lines: Callable[[], Sequence[TableLog]] = tuple,
    open_branches: Callable[[], Collection[str]] | None = None,
) -> VacuumPlan:
    """Return the files below the table that no reader of a version within the retention needs.

    The default retention is `delta.deletedFileRetentionDuration` (a week by default); `now_ms`
    replaces the clock. The plan never has files younger than the retention, whoever wrote them, nor
    hidden files and folders (`_x`, `.x`) other than partitions, change data and deletion vectors,
    nor other tables below, nor Iceberg metadata that is in use.

    With `lite` the log alone says which files there are: those that its commits removed since the
    last VACUUM. The table isn't listed, and files that no commit names are left to a VACUUM that
    lists it. If the log lacks one of these commits, the table is listed all the same.

    `other_lines` returns the table's logs on the lake's other branches, main's included: what
    readers of their versions need stays too. So does what readers of a path table's open branches
    need. `open_branches` returns the ids of the lake's branches: the logs of branches that have
    ended, which killed processes left, are in the plan.

    Whatever the retention and the clocks are, files that were staged by the transactions that
    `others_open` returns stay: their names identify the transaction. So do files that open
    transactions may read: of a catalog table what was removed after the version that the oldest of
    them reads; of a path table, which has no instants, what was written or removed since the oldest
    of them began.

    Raises InvalidRequest on a branch, and when the retention is negative, or shorter than the
    table's (unless `retention_check` is off: then running readers and writers may lose their
    files), and UnsupportedFeature when txlake can't write the table's protocol.
    """
    _require_main(log)
    snapshot = log.latest()
    snapshot.require_writable()
    least = snapshot.properties.deleted_file_retention_ms
    retention = least if retention_ms is None else retention_ms
    if retention < 0:
        raise InvalidRequest(f"{log.name}: VACUUM: a retention can't be negative: {retention} ms")
    if retention_check and retention < least:
        raise InvalidRequest(
            f"{log.name}: VACUUM: expected a retention of at least {least / _HOUR_MS:g} hours "
            f"(delta.deletedFileRetentionDuration), found {retention / _HOUR_MS:g} hours: readers "
            "and writers that still run could lose their files. Keep more; or, when you are "
            "certain that no reader uses older versions, turn the check off: set Spark's "
            "spark.databricks.delta.retentionDurationCheck.enabled to false"
        )
    before = cut = (log.system.now_ms() if now_ms is None else now_ms) - retention
    expired = _expired(log, before) if lite else None
    listed = [] if expired is not None else list(log.store.list(""))
    candidates, folders = (
        _candidates(listed, snapshot, before)
        if expired is None
        else _expired_candidates(expired, snapshot)
    )
    # Requested after the files were listed, and before the log is read again: a transaction that
    # was open during the listing and isn't now has committed, so that the log has its files, or
    # never will. One that begins later writes later files, and reads this snapshot's version or a
    # later one.
    others = OpenTransactions() if others_open is None else others_open()
    read_ms = None if others.begin_ms is None else others.begin_ms - _SKEW_MS
    read_version = oldest_needed(log, by_branches=False)
    if log.catalog_table is None and read_ms is not None:
        before = min(before, read_ms)
    kept: list[str] = []
    if candidates:
        has_changes = any(path.startswith(f"{CHANGE_FOLDER}/") for path in candidates)
        since = None if not has_changes else before if read_ms is None else min(before, read_ms)
        # After the open transactions: one that has committed on a branch has its files there. And
        # before main's newest commits, which have the files of a branch that is published.
        elsewhere = _needed_elsewhere(log, other_lines, before, since)
        own = _needed(log, snapshot, before, is_longer=retention > least)
        # A later commit names a live file when it removes it; another reason to keep one doesn't.
        present = own if expired is None else _live_files(log.store.url, snapshot)
        for path in chain(present, needed_by_iceberg(log, snapshot, candidates)):
            candidates.pop(path, None)
        needed = chain(own, elsewhere, _added_since(log, snapshot.version))
        if read_version is not None:
            needed = chain(needed, _removed_after(log, read_version, snapshot.version))
        if log.catalog_table is None and read_ms is not None:
            needed = chain(needed, _removed_since(log, read_ms))
        if since is not None:
            needed = chain(needed, _changes_since(log, since))
        kept = [path for path in needed if candidates.pop(path, None) is not None]
    ended = _of_ended_branches(listed, snapshot, before, open_branches)
    tags = frozenset(map(tag_of, others.ids))
    is_catalog_managed = log.catalog_table is not None
    candidates = {
        path: item
        for path, item in candidates.items()
        if not _may_be_staged(item, tags, read_ms, is_catalog_managed=is_catalog_managed)
    }
    return VacuumPlan(
        paths=tuple(sorted(item.path for item in (*candidates.values(), *ended))),
        size_bytes=sum(item.size_bytes for item in (*candidates.values(), *ended)),
        folders=folders,
        before_ms=before,
        version=snapshot.version,
        lite=expired is not None,
        through=_through(log, expired, kept, cut, before),
    )


def _expired(log: TableLog, before_ms: int) -> ExpiredFiles | None:
    """Return the files that the log shows to be deletable; None if it doesn't reach back."""
    found = expired_files(log, before_ms, last=last_vacuum(log), listing=log.listing())
    if found is None:
        _log.info("%s: VACUUM LITE lists the table: its log lacks older commits", log.name)
    return found


def _expired_candidates(
    expired: ExpiredFiles, snapshot: Snapshot
) -> tuple[dict[str, StoredObject], int]:
    """Return the files that the log shows to be deletable by canonical path, and 0 folders.

    Those that a listing wouldn't yield are left out: hidden ones, and those outside of the table.
    """
    partitions = _partition_names(snapshot)
    files = {
        path: StoredObject(path, file.size_bytes, 0)
        for path, file in expired.files.items()
        if not path.startswith(("/", "../"))
        and not any(_is_hidden(part, partitions) for part in path.split("/"))
    }
    return files, 0


def _through(
    log: TableLog, expired: ExpiredFiles | None, kept: Sequence[str], cut_ms: int, before_ms: int
) -> int | None:
    """Return `VacuumPlan.through`. `kept`: files that another line or an open transaction needs;
    `cut_ms`: the retention's cut, `before_ms` the one that open transactions need.
    """
    if expired is None:
        return None if kept or before_ms < cut_ms else newest_outside(log.listing(), cut_ms)
    if not kept:
        return expired.version
    oldest = min(expired.files[path].version for path in kept)
    return oldest - 1 if oldest else None


def vacuum(
    log: TableLog,
    retention_ms: int | None = None,
    *,
    lite: bool = False,
    dry_run: bool = False,
    retention_check: bool = True,
    begin: BeginTransaction | None = None,
    others_open: ReadOpenTransactions | None = None,
    other_lines: Callable[[], Sequence[TableLog]] = tuple,
    open_branches: Callable[[], Collection[str]] | None = None,
) -> VacuumPlan:
    """Delete what `plan_vacuum` returns, between a VACUUM START and a VACUUM END commit.

    A dry run only plans; the plan is returned either way. Without `retention_check` any retention
    is allowed. `begin` begins a transaction of the lake's catalog, for each of the two commits of a
    catalog table. Raises what `plan_vacuum` and the store raise, and InvalidRequest for a catalog
    table that was opened by its path; when deleting fails, VACUUM END says so.
    """
    begun_ms = log.system.now_ms()
    plan = plan_vacuum(
        log,
        retention_ms,
        lite=lite,
        retention_check=retention_check,
        others_open=others_open,
        other_lines=other_lines,
        open_branches=open_branches,
    )
    if dry_run:
        return plan
    default = log.latest().properties.deleted_file_retention_ms
    parameters: dict[str, object] = {"retentionCheckEnabled": retention_check}
    if retention_ms is not None:
        parameters["specifiedRetentionMillis"] = retention_ms
    parameters["defaultRetentionMillis"] = default
    found = {"numFilesToDelete": len(plan.paths), "sizeOfDataToDelete": plan.size_bytes}
    commit_notice(log, begin, "VACUUM START", parameters, found)
    live_again = _needed_elsewhere(log, other_lines, plan.before_ms)
    live_again.update(_added_since(log, plan.version))
    paths = [path for path in plan.paths if posixpath.normpath(path) not in live_again]
    try:
        for start in range(0, len(paths), _DELETES_AT_ONCE):
            log.store.delete(paths[start : start + _DELETES_AT_ONCE])
        if not plan.lite:
            # Of writers that were killed: those that live are done within a day.
            log.store.sweep("", min(plan.before_ms, log.system.now_ms() - _DAY_MS))
            remove_ended(log, plan.before_ms)
    except TxlakeError:
        commit_notice(log, begin, "VACUUM END", {"status": "FAILED"}, {})
        raise
    done = {"numDeletedFiles": len(paths), "numVacuumedDirectories": plan.folders}
    commit_notice(log, begin, "VACUUM END", {"status": "COMPLETED"}, done)
    through = plan.through if len(paths) == len(plan.paths) else None
    note_vacuum(log, LastVacuum(through, None if plan.lite else begun_ms))
    _log.info("%s: VACUUM deleted %d files", log.name, len(paths))
    return plan


def _require_main(log: TableLog) -> None:
    """Raise InvalidRequest on a branch: files that its versions don't need may be main's."""
    if isinstance(log.store, BranchStore):
        raise InvalidRequest(
            f"{log.name}: VACUUM: expected the table on main, found a branch of it: the files of "
            "main and of all its branches are in one folder. Run VACUUM on main, which keeps what "
            "its branches need"
        )


def _of_ended_branches(
    listed: Iterable[StoredObject],
    snapshot: Snapshot,
    before_ms: int,
    open_branches: Callable[[], Collection[str]] | None,
) -> list[StoredObject]:
    """Return old files of the logs of branches that have ended.

    A branch is in the catalog before it has a file, and its id isn't given again: of a branch that
    isn't open after the listing, nobody reads a listed file. Those in the table's own registry are
    others' branches.
    """
    found = [item for item in listed if item.path.startswith(f"{BRANCHES_FOLDER}/")]
    if open_branches is None or not found:
        return []
    kept = {*open_branches(), *(branch.id for branch in branches_in(snapshot).branches)}
    ids = {item.path: item.path.split("/")[2] for item in found}
    return [item for item in found if item.modified_ms < before_ms and ids[item.path] not in kept]


def _candidates(
    listed: Iterable[StoredObject], snapshot: Snapshot, before_ms: int
) -> tuple[dict[str, StoredObject], int]:
    """Return old files of this table by canonical path, and the number of its folders.

    Hidden files and other tables below are left out.
    """
    partitions = _partition_names(snapshot)
    folders = {""}
    tables_below: set[str] = set()
    files: dict[str, StoredObject] = {}
    for item in listed:
        folder, _, name = item.path.rpartition("/")
        parts = folder.split("/") if folder else []
        if LOG_FOLDER in parts:
            tables_below.add("/".join(parts[: parts.index(LOG_FOLDER)]))
            continue
        if any(_is_hidden(part, partitions) for part in (*parts, name)):
            continue
        folders.add(folder)
        if item.modified_ms < before_ms:
            files[posixpath.normpath(item.path)] = item
    own = {
        path: item
        for path, item in files.items()
        if not any(item.path.startswith(f"{table}/") for table in tables_below)
    }
    return own, len(folders)


def _partition_names(snapshot: Snapshot) -> set[str]:
    """Return the partition columns' names, logical and physical, which may begin folders' names."""
    found = (snapshot.schema.find(name) for name in snapshot.partition_columns)
    return {name for item in found if item is not None for name in (item.name, item.physical_name)}


def _is_hidden(name: str, partitions: set[str]) -> bool:
    """Return whether a file or folder is hidden by its name, unless it is a partition's or the
    table's.
    """
    if not name.startswith(("_", ".")) or name in _TABLE_FOLDERS:
        return False
    column, equals, _ = name.partition("=")
    return not (equals and unescape_partition(column) in partitions)


def _needed(log: TableLog, snapshot: Snapshot, before_ms: int, *, is_longer: bool) -> Iterator[str]:
    """Yield the canonical paths of all files that a version since `before_ms` has.

    `is_longer`: whether that is longer ago than the table's own retention.
    """
    url = log.store.url
    yield from _live_files(url, snapshot)
    removes: list[Iterable[Remove]] = [snapshot.tombstones.values()]
    if is_longer:
        # The table's own retention is shorter: its checkpoints may have dropped these tombstones.
        removes.append(_removes_since(log, before_ms))
    for remove in (remove for some in removes for remove in some):
        if (remove.deletion_timestamp or 0) >= before_ms:
            yield from files_of(url, remove)


def _live_files(url: str, snapshot: Snapshot) -> Iterator[str]:
    """Yield the canonical paths of a version's data files and deletion vectors."""
    rows = snapshot.files.columns("path", "deletion_vector")
    for batch in rows.to_batches():
        for path in batch.column("path").to_pylist():
            yield from path_in_table(url, path)
        vectors = batch.column("deletion_vector")
        if vectors.null_count < len(vectors):
            for value in vectors.to_pylist():
                if value is not None:
                    yield from vector_path_in_table(url, vector_of(value))


def _needed_elsewhere(
    log: TableLog,
    other_lines: Callable[[], Sequence[TableLog]],
    before_ms: int,
    changes_since_ms: int | None = None,
) -> set[str]:
    """Return the canonical paths of all files that the table's other lines need.

    With `changes_since_ms` the change data files of commits since then are among them. If a branch
    ends meanwhile, all lines are read again: what it had may be its parent's now, or its
    successor's. Raises Unavailable if one ends each time.
    """
    for _ in range(_READINGS_MAX):
        lines = [*other_lines(), *open_branch_logs(log)]
        try:
            found = {path for line in lines for path in _needed_on(line, before_ms)}
            if changes_since_ms is not None:
                for line in lines:
                    found.update(_changes_since(line, changes_since_ms))
        except (InvalidRequest, CorruptTable):
            if not any(oldest_needed(line) is None for line in lines):
                raise
        else:
            return found
    raise Unavailable(
        f"{log.name}: VACUUM: branches ended while their versions were read; nothing was deleted: "
        "run it again"
    )


def _needed_on(line: TableLog, before_ms: int) -> Iterator[str]:
    """Yield the canonical paths of all files that a version since `before_ms` of the table's log on
    another branch has, or the one that the branch began with, or an open transaction may read
    there.
    """
    snapshot, head = line.latest(), _head_of(line)
    read_version = oldest_needed(line, by_branches=False)
    if read_version is None:
        raise InvalidRequest(f"{line.name} isn't in the catalog any more: its branch has ended")
    newest = snapshot.version if head is None else max(snapshot.version, head)
    yield from _needed(line, snapshot, before_ms, is_longer=True)
    # A listing may not know the newest commits yet, and nothing is committed that would meet them.
    yield from _added_since(line, snapshot.version, newest)
    yield from _removed_after(line, read_version, newest)
    if isinstance(line.store, BranchStore):
        yield from _live_files(line.store.url, line.snapshot(line.store.base))


def _head_of(log: TableLog) -> int | None:
    """Return a catalog table's newest version; None if the catalog doesn't have the table."""
    table = log.catalog_table
    head = None if table is None else table.ledger.head(table.table_id)
    return None if head is None else head.version


def _removed_since(log: TableLog, since_ms: int) -> Iterator[str]:
    """Yield the canonical paths of all files that commits since then removed.

    A long transaction's commit removes files with a `deletionTimestamp` from before the commit:
    transactions that began meanwhile still read them.
    """
    for remove in _removes_since(log, since_ms):
        yield from files_of(log.store.url, remove)


def _removed_after(log: TableLog, version: int, newest: int) -> Iterator[str]:
    """Yield the canonical paths of all files that the versions after `version` removed, up to
    `newest`.

    Raises CorruptTable when one of their commits is missing.
    """
    for commit in log.commits(version, newest):
        for action in commit.actions:
            if isinstance(action, Remove):
                yield from files_of(log.store.url, action)


def _may_be_staged(
    item: StoredObject, tags: Set[str], since_ms: int | None, *, is_catalog_managed: bool
) -> bool:
    """Return whether a file may be an open transaction's, which may still commit it.

    True if its name has the tag of one of the open transactions, `tags`. If the name has no tag or,
    unless the table is catalog-managed, another tag, its age decides: True if it was written at or
    after `since_ms`, False if that is None.
    """
    own = tags_in(item.path)
    if not own.isdisjoint(tags):
        return True
    if own and is_catalog_managed:
        return False
    return since_ms is not None and item.modified_ms >= since_ms


def _removes_since(log: TableLog, before_ms: int) -> Iterator[Remove]:
    for commit, _ in _commits_since(log, before_ms):
        yield from (action for action in commit.actions if isinstance(action, Remove))


def _changes_since(log: TableLog, since_ms: int) -> Iterator[str]:
    """Yield the canonical paths of the change data files that commits since then have.

    A version doesn't need them any more once it is older than the retention. They may have been
    written long before their commit.
    """
    for commit, time_ms in _commits_since(log, since_ms):
        for action in commit.actions if time_ms >= since_ms else ():
            if isinstance(action, Cdc):
                yield from path_in_table(log.store.url, action.path)


def _commits_since(log: TableLog, since_ms: int) -> Iterator[tuple[Commit, int]]:
    """Yield the newest commits with their times, back to the first older one inclusive."""
    listing = log.listing()
    for version in sorted(listing.commits, reverse=True):
        commit = log.commit(version)
        if commit is None:
            continue
        time_ms = max(commit.timestamp_ms, listing.commits[version].modified_ms)
        yield commit, time_ms
        if time_ms < since_ms:
            return


def _added_since(log: TableLog, version: int, up_to: int | None = None) -> Iterator[str]:
    """Yield the canonical paths of files that commits after a version added, e.g. RESTORE.

    `up_to`: the last of the versions; None for all.
    """
    for commit in log.commits(version, up_to):
        for action in commit.actions:
            if isinstance(action, Add):
                yield from files_of(log.store.url, action)
            elif isinstance(action, Cdc):
                yield from path_in_table(log.store.url, action.path)
