"""The files of a log's newest versions on this machine's disks, looked up by name.

A local file system lists a folder as a whole, and a log has thousands of files before the versions
that are needed. Commit files have consecutive numbers: the first one that is missing ends the log,
unless the log has lost files. What looks like a loss is left to a listing. Source: PROTOCOL.md,
"Delta Log Entries", "Metadata Cleanup".
"""

from __future__ import annotations

from collections.abc import Sequence

from txlake.ports import Store, StoredObject
from txlake.protocol.file_names import (
    VERSION_MAX,
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.protocol.last_checkpoint import HintedCheckpoint

_VERSIONS_MAX = 110
# A log's clean-up deletes older files only, the oldest first.
_YOUNG_MS = 86_400_000
# After the end: the next versions, and others ever further away, so that a gap of any length is
# found that has as many versions after it as it lacks.
_BEYOND = (*range(1, 5), *(2**power for power in range(3, 15)))


def newest_files(
    store: Store, start: int, checkpoint: HintedCheckpoint | None, now_ms: int
) -> Sequence[StoredObject] | None:
    """Return the files of version `start` and later, by path: the commits, the newest one's
    checksum, and the checkpoint of `start` if one is named; other checkpoints are left out.

    None where the folder has to be listed: in other stores than a folder of this machine, if the
    checkpoint isn't one file that exists, if `start` has no commit file or an old one, for more
    than 110 versions, and if the log goes on after the first missing one.
    """
    if not store.url.startswith("file:"):
        return None
    found: list[StoredObject] = []
    if checkpoint is not None:
        file = None if checkpoint.path is None else store.head(checkpoint.path)
        if file is None:
            return None
        found.append(file)
    first = store.head(commit_path(start))
    if first is None or now_ms - first.modified_ms > _YOUNG_MS:
        return None
    commits = [first]
    while (commit := store.head(commit_path(start + len(commits)))) is not None:
        commits.append(commit)
        if len(commits) > _VERSIONS_MAX:
            return None
    newest = start + len(commits) - 1
    if _continues(store, newest + 1) or store.head(commit_path(start)) != first:
        return None
    checksum = store.head(checksum_path(newest))
    found += [*commits, *(() if checksum is None else (checksum,))]
    return sorted(found, key=lambda item: item.path)


def _continues(store: Store, missing: int) -> bool:
    """Return whether the log goes on after a commit file that is missing: it has a later version's,
    or a checkpoint of its version. Then it is lost, or was made since.

    A log that lost so many versions that fewer are left after them is taken to end before them.
    """
    versions = (missing + distance for distance in _BEYOND if missing + distance <= VERSION_MAX)
    later = (log_path(ClassicCheckpoint(missing)), *map(commit_path, versions))
    return any(store.head(path) is not None for path in later)
