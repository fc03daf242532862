"""The files that a table's log shows to be deletable: what commits before a time have removed.

It reads only the commits that left the retention since the last VACUUM, and lists no file of the
table. Source: Delta's VacuumCommand.scala, "lite vacuum".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from txlake.commit.commit_times import increasing_file_times
from txlake.commit.table_log import TableLog
from txlake.commit.table_paths import path_in_table, vector_path_in_table
from txlake.errors import TxlakeError
from txlake.log.segment import Listing
from txlake.protocol.actions import Action, Cdc, Remove
from txlake.protocol.last_vacuum import (
    LAST_VACUUM_PATH,
    LastVacuum,
    read_last_vacuum,
    write_last_vacuum,
)

_log = logging.getLogger(__name__)

_NOTED_COMMITS_MIN = 100


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file that a commit removed.

    Attributes:
        size_bytes: its size; 0 if the log doesn't state it, as for deletion vectors.
        version: the newest commit that removed it.
    """

    size_bytes: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredFiles:
    """The files that commits outside the retention have removed since the last VACUUM.

    Attributes:
        files: by their canonical paths below the table.
        version: the newest commit outside the retention; None if there is none.
    """

    files: Mapping[str, ExpiredFile]
    version: int | None

    @property
    def size_bytes(self) -> int:
        """The size of all files, as far as the log states it."""
        return sum(file.size_bytes for file in self.files.values())


def last_vacuum(log: TableLog) -> LastVacuum:
    """Return how far the last VACUUM of the table came, as far as that may be true."""
    try:
        noted = read_last_vacuum(log.store.get(LAST_VACUUM_PATH))
    except FileNotFoundError:
        return LastVacuum()
    newest = None if log.known is None else log.newest_known
    return noted.possible(newest, log.system.now_ms())


def note_vacuum(log: TableLog, done: LastVacuum) -> None:
    """Record how far a VACUUM came; log if that fails, as the next one then only reads more."""
    try:
        log.store.put(LAST_VACUUM_PATH, write_last_vacuum(last_vacuum(log).then(done)))
    except TxlakeError as error:
        _log.warning("%s: %s was not written: %s", log.name, LAST_VACUUM_PATH, error)


def note_read(log: TableLog, last: LastVacuum, found: ExpiredFiles) -> None:
    """Record that commits removed no file that is left, so that nobody reads them again for that.

    `found`: what the commits after those that `last` covers removed. Nothing is written for less
    than a hundred commits.
    """
    clean = min((file.version - 1 for file in found.files.values()), default=found.version)
    known = -1 if last.version is None else last.version
    if clean is not None and clean - known >= _NOTED_COMMITS_MIN:
        note_vacuum(log, LastVacuum(clean))


def newest_outside(listing: Listing, before_ms: int) -> int | None:
    """Return the newest version that was committed before a time; None if there is none."""
    times = increasing_file_times(listing)
    return max((version for version, time in times.items() if time < before_ms), default=None)


def expired_files(
    log: TableLog, before_ms: int, *, last: LastVacuum, listing: Listing
) -> ExpiredFiles | None:
    """Return the files that commits before a time removed, after those that `last` covers.

    They may be needed all the same: by a branch, an open transaction, or because a later commit
    added them again. None if the log lacks one of the commits, so that only a listing of the table
    finds the files.
    """
    newest = newest_outside(listing, before_ms)
    first = 0 if last.version is None else last.version + 1
    if newest is None:
        return ExpiredFiles(files={}, version=None)
    files: dict[str, ExpiredFile] = {}
    for version in range(first, newest + 1):
        commit = log.commit(version) if version in listing.commits else None
        if commit is None:
            return None
        for action in commit.actions:
            for path, size_bytes in _removed(log.store.url, action):
                files[path] = ExpiredFile(size_bytes, version)
    return ExpiredFiles(files=files, version=newest)


def _removed(url: str, action: Action) -> Iterator[tuple[str, int]]:
    """Yield the canonical paths and sizes of the files that no version after an action's reads."""
    if isinstance(action, Remove):
        for path in path_in_table(url, action.path):
            yield path, action.size or 0
        if action.deletion_vector is not None:
            for path in vector_path_in_table(url, action.deletion_vector):
                yield path, 0
    elif isinstance(action, Cdc):
        for path in path_in_table(url, action.path):
            yield path, action.size
