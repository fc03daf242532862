"""The change feed as a stream: the files that hold a commit's changes, and their grouping.

`commit.change_feed` derives the changes of a version from the files, as for batches. Source:
Delta Lake, "Table streaming reads and writes"; Delta Spark's DeltaSourceCDCSupport.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from txlake.commit.change_feed import FeedFile, feed_files, files_of_changes, recorded_files
from txlake.commit.feed_rules import FEED, has_feed
from txlake.commit.net_changes import INSERT
from txlake.commit.table_log import Commit, TableLog
from txlake.datafiles.vectors import VectorCache
from txlake.errors import InvalidRequest
from txlake.lake.streaming.commits import FileAction, FileGroup
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Remove


def require_feed(snapshot: Snapshot, version: int) -> None:
    """Raise InvalidRequest where the table had no change feed at the version."""
    if not has_feed(snapshot):
        raise InvalidRequest(
            f"[DELTA_MISSING_CHANGE_DATA] {snapshot.table}: version {version} recorded no "
            f"changes, as {FEED} wasn't true then, and readChangeFeed reads them. Turn it on with "
            "ALTER TABLE ... SET TBLPROPERTIES, and start a new query with a new checkpoint: from "
            "then on, or with a startingVersion from which on it is true"
        )


def file_groups(commit: Commit) -> list[tuple[FileAction, ...]]:
    """Return the files with a commit's changes, grouped by what a micro-batch must not split.

    One micro-batch has both images of an updated row, and both actions of a file, which only
    together show what changed. Where files are only added or removed, each is a group of its own.
    """
    files: tuple[FileAction, ...] = tuple(files_of_changes(commit))
    paths = {canonical_path(file.path) for file in files}
    is_one_group = (
        bool(recorded_files(commit))
        or len(paths) < len(files)
        or any(
            isinstance(file, Add | Remove) and file.deletion_vector is not None for file in files
        )
    )
    if is_one_group:
        return [files]
    return [(file,) for file in files]


def removes_rows_of_older_schema(commit: Commit) -> bool:
    """Return whether the rows that a commit deleted may have other columns than its version."""
    return any(isinstance(action, Metadata) for action in commit.actions) and any(
        isinstance(file, Remove) for file in files_of_changes(commit)
    )


def feed_changes(log: TableLog, batch_groups: Iterable[FileGroup]) -> list[FeedFile]:
    """Return the changes in the files of the groups, in order.

    The files of an initial snapshot count as inserts. Raises CorruptTable if the file of a deletion
    vector is gone.
    """
    groups = list(batch_groups)
    times = log.times_of(sorted({group.after.version for group in groups}))
    vectors = VectorCache(log.store, log.external_vectors)
    changes: list[FeedFile] = []
    for version, version_groups in groupby(groups, key=lambda group: group.after.version):
        of_version = list(version_groups)
        commit = of_version[0].commit
        if commit is None:  # files of the initial snapshot
            time = times.get(version)
            if time is None:
                time = log.snapshot(version).timestamp_ms
            adds = (file for group in of_version for file in group.files if isinstance(file, Add))
            changes += (FeedFile(add, version, time, INSERT) for add in adds)
            continue
        files = tuple(file for group in of_version for file in group.files)
        selected = replace(commit, actions=files)
        changes += feed_files(log, selected, times.get(version, commit.timestamp_ms), vectors)
    return changes
