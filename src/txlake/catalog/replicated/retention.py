"""Delete the entries and snapshots of a catalog's log that nobody needs.

An entry is deleted when it and a later snapshot are older than the retention, by the store's own
times, the lowest number first. Two rules of readers follow:

- While entry N is there, entry N+1 was never deleted.
- A process that was at the end of the log, or listed the snapshots, less than the retention ago
  misses no entry after its position: the snapshot that allows the deletion is younger than that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from txlake.catalog.replicated.entries import (
    LOG_FOLDER,
    SNAPSHOT_FOLDER,
    decode,
    entry_path,
    number_of,
    snapshot_path,
)
from txlake.errors import InvalidRequest
from txlake.ports import Store, StoredObject

_SNAPSHOTS_KEPT = 3
_DELETED_MAX = 10_000
_PERIODS = 8
_MIN_TIMES_SURE = 6


@dataclass(frozen=True, slots=True)
class Surplus:
    """What of a log may be deleted.

    Attributes:
        snapshots: the paths of snapshots that nothing depends on.
        floor: entries with lower numbers may be deleted if they are old enough; 0 for none.
        expired: the paths of snapshots to be deleted after the entries below the floor.
    """

    snapshots: Sequence[str] = ()
    floor: int = 0
    expired: Sequence[str] = ()


def require_retention(retention_ms: object, sure_ms: float) -> None:
    """Raise InvalidRequest for a retention that is neither None nor whole milliseconds, or too
    short.

    `sure_ms`: for how long a process trusts its last look at the end of the log.
    """
    least_ms = int(_MIN_TIMES_SURE * sure_ms)
    if retention_ms is None:
        return
    is_bool = isinstance(retention_ms, bool)
    if not isinstance(retention_ms, int) or is_bool or retention_ms < least_ms:
        raise InvalidRequest(
            "catalog_log_retention_ms: expected None, which keeps all entries of the catalog's "
            f"log, or at least {least_ms} milliseconds, found {retention_ms!r}"
        )


def find_surplus(
    snapshots: Iterable[StoredObject], position: int, now_ms: int, retention_ms: int | None
) -> Surplus:
    """Return what may be deleted of a log.

    The newest snapshots are kept, and one for each eighth of the retention, so that one expires
    from time to time. The newest that has expired is kept too, as the floor.

    Args:
        snapshots: all snapshots, by ascending number.
        position: the number of the entry that the caller's replica has reached. Later snapshots
            are left alone.
        now_ms: the store's time, or an earlier one.
        retention_ms: how old what is deleted is at least; None for entries that are kept for good.
    """
    older = [found for found in snapshots if (number_of(found.path) or position + 1) <= position]
    del older[-_SNAPSHOTS_KEPT + 1 :]  # the last that stays is the newest possible floor
    if retention_ms is None:
        return Surplus(snapshots=[found.path for found in older[:-1]])
    expired = [found for found in older if now_ms - found.modified_ms >= retention_ms]
    young = [found for found in older if now_ms - found.modified_ms < retention_ms]
    periods = [found.modified_ms // max(1, retention_ms // _PERIODS) for found in young]
    return Surplus(
        snapshots=[
            found.path
            for place, found in enumerate(young[:-1])
            if place > 0 and periods[place] == periods[place - 1]
        ],
        floor=(number_of(expired[-1].path) or 0) if len(expired) > 1 else 0,
        expired=[found.path for found in expired[:-1]],
    )


def expired_entries(
    entries: Iterable[StoredObject], floor: int, now_ms: int, retention_ms: int
) -> Iterator[str]:
    """Yield the paths of the entries that may be deleted, in the order in which they have to be.

    `entries`: all entries, by ascending number. The others are as for `find_surplus`.
    """
    for found in entries:
        number = number_of(found.path)
        if number is None:
            continue
        if number >= floor or now_ms - found.modified_ms < retention_ms:
            return
        yield found.path


def snapshot_numbers(store: Store) -> Iterator[int]:
    """Yield the numbers of the entries after which a log has snapshots, in ascending order."""
    for found in store.list(SNAPSHOT_FOLDER):
        number = number_of(found.path)
        if number is not None:
            yield number


class LogCleanup:
    """Deletes objects of a log. Thread-safe.

    `retention_ms`: how old entries are when they are deleted; None to keep them for good.
    """

    def __init__(self, store: Store, retention_ms: int | None) -> None:
        self._store = store
        self._retention_ms = retention_ms
        self._deleting = threading.Lock()
        self._is_stopped = False

    def stop(self) -> None:
        """Let a deletion that is under way end early."""
        self._is_stopped = True

    def delete_surplus(self, position: int) -> None:
        """Delete the snapshots and entries that nobody needs, up to a number of entries.

        Does nothing while another thread does it. `position`: the number of the newest entry that
        the process has applied. Raises as the store.
        """
        if not self._deleting.acquire(blocking=False):
            return
        try:
            snapshots = list(self._store.list(SNAPSHOT_FOLDER))
            # The newest was just written.
            now_ms = max((found.modified_ms for found in snapshots), default=0)
            surplus = find_surplus(snapshots, position, now_ms, self._retention_ms)
            self._store.delete(surplus.snapshots)
            if surplus.floor and self._retention_ms is not None:
                entries = self._store.list(LOG_FOLDER)
                old = expired_entries(entries, surplus.floor, now_ms, self._retention_ms)
                if self._delete_in_order(old):
                    self._store.delete(surplus.expired)
        finally:
            self._deleting.release()

    def _delete_in_order(self, paths: Iterable[str]) -> bool:
        """Delete each entry after the one before; return False if some are left for later."""
        for count, path in enumerate(paths):
            if count == _DELETED_MAX or self._is_stopped:
                return False
            self._store.delete([path])  # several in one request have no order
        return True

    def delete_strays(self, position: int) -> None:
        """Delete the entries and snapshots that don't belong to the log.

        A process that works while an older log is put in place may write them after a gap, before
        it notices. `position` as for `delete_surplus`. Raises as the store.
        """
        listed = [
            number
            for found in self._store.list(LOG_FOLDER, entry_path(position))
            if (number := number_of(found.path)) is not None
        ]
        gap = position + 1
        while gap in listed:
            gap += 1
        snapshots = [number for number in snapshot_numbers(self._store) if number > gap]
        if self._store.head(entry_path(gap)) is not None:
            return  # others have gone on meanwhile
        for path in (entry_path(number) for number in listed if number > gap):
            if self._is_stray(path):
                self._store.delete([path])
        self._store.delete(snapshot_path(number) for number in snapshots)

    def _is_stray(self, path: str) -> bool:
        """Return whether the entry says which one is before it, which a claim of a turn doesn't."""
        try:
            data = self._store.get(path)
        except FileNotFoundError:
            return False
        return bool(decode(data, f"{self._store.url}/{path}").previous)
