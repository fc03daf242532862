"""The change data feed as a stream: which files tell of it, and which of them belong together.

What a version's changes are is `transaction.change_feed`'s business, as it is for batches. Source:
Delta Lake, "Table streaming reads and writes"; Delta Spark's DeltaSourceCDCSupport.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from txlake.datafiles.vectors import VectorCache
from txlake.errors import InvalidRequest
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Remove
from txlake.streaming.commits import FileAction, Step
from txlake.transaction.change_feed import Told, files_of_changes, recorded_files, told_by
from txlake.transaction.feed_rules import FEED, has_feed
from txlake.transaction.net_changes import INSERT
from txlake.transaction.table_log import Commit, TableLog


def require_feed(snapshot: Snapshot, version: int) -> None:
    """Raises InvalidRequest where the table, as it is at a version, has no feed."""
    if not has_feed(snapshot):
        raise InvalidRequest(
            f"[DELTA_MISSING_CHANGE_DATA] {snapshot.table}: version {version} recorded no "
            f"changes, as {FEED} wasn't true then, and readChangeFeed reads them. Turn it on with "
            "ALTER TABLE ... SET TBLPROPERTIES, and start a new query with a new checkpoint: from "
            "then on, or with a startingVersion from which on it is true"
        )


def pieces_of(commit: Commit) -> list[tuple[FileAction, ...]]:
    """The files that tell of a commit's changes, those together that a micro-batch can't part.

    The two images of an updated row are in one batch, and so are two listings of one file, of which
    only both tell what changed. Where files only come and go, each stands for itself.
    """
    files: tuple[FileAction, ...] = tuple(files_of_changes(commit))
    paths = {canonical_path(file.path) for file in files}
    is_whole = (
        bool(recorded_files(commit))
        or len(paths) < len(files)
        or any(isinstance(one, Add | Remove) and one.deletion_vector is not None for one in files)
    )
    if is_whole:
        return [files]
    return [(file,) for file in files]


def removes_rows_of_before(commit: Commit) -> bool:
    """Whether rows that the version took away may have other columns than it has."""
    return any(isinstance(action, Metadata) for action in commit.actions) and any(
        isinstance(file, Remove) for file in files_of_changes(commit)
    )


def told_of(log: TableLog, steps: Iterable[Step]) -> list[Told]:
    """The changes that the files of these steps tell of, in order.

    Raises CorruptTable where a deletion vector is gone.
    """
    known = list(steps)
    times = log.times_of(sorted({step.after.version for step in known}))
    vectors = VectorCache(log.store, log.external_vectors)
    told: list[Told] = []
    for version, group in groupby(known, key=lambda step: step.after.version):
        found = list(group)
        commit = found[0].commit
        if commit is None:  # the whole table, where the stream begins
            time = times.get(version)
            if time is None:
                time = log.snapshot(version).timestamp_ms
            adds = (file for step in found for file in step.files if isinstance(file, Add))
            told += (Told(add, version, time, INSERT) for add in adds)
            continue
        files = tuple(file for step in found for file in step.files)
        chosen = replace(commit, actions=files)
        told += told_by(log, chosen, times.get(version, commit.timestamp_ms), vectors)
    return told
