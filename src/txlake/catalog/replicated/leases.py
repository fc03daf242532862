"""Leases of a catalog in a store: an object for each process that holds something.

A process that has open transactions or locks in the catalog renews its heartbeat object. Others
compare the store's own times of the objects, no host's clock. Leases decide whether a process
lives, never whether it may commit: a dead process's rows are removed by an entry of the log, after
which it can't commit any more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Collection

from txlake.ports import Store, System

HEARTBEAT_FOLDER = "heartbeats"
_OBSERVED_PARTS = 3
_OBSERVED_MS_MAX = 5_000.0
_ABANDONED_MS = 86_400_000


class Leases:
    """The leases of one catalog's processes, as this process knows them. Thread-safe.

    Attributes:
        holder: the name of this process's heartbeat object, also in its sessions' rows.
        length_ms: how long this process counts as alive after a heartbeat.
    """

    def __init__(self, store: Store, system: System, length_ms: float) -> None:
        self.holder = system.new_id()
        self.length_ms = length_ms
        self._store = store
        self._system = system
        self._path = f"{HEARTBEAT_FOLDER}/{self.holder}"
        self._beat_ms = float("-inf")
        self._observed_ms = float("-inf")
        # When each process's newest heartbeat was written, by this machine's monotonic clock.
        self._seen_ms: dict[str, float] = {}
        self._lock = threading.Lock()

    def end_ms(self, holder: str | None, length_ms: float) -> int:
        """Return when a session's lease ends, by this machine's monotonic clock.

        A process that was never observed, and this one, have a whole lease.

        Args:
            holder: the heartbeat object of the session's process.
            length_ms: how long the session's lease is.
        """
        now_ms = self._system.monotonic_ms()
        seen_ms = now_ms if holder == self.holder else self._seen_ms.get(holder or "", now_ms)
        return int(seen_ms + length_ms)

    def ensure(self) -> None:
        """Write the heartbeat, unless it is young enough to last until the next one."""
        if self._system.monotonic_ms() - self._beat_ms >= self.length_ms / 2:
            self.beat()

    def beat(self) -> None:
        """Write this process's heartbeat."""
        begun_ms = self._system.monotonic_ms()
        about = {"host": socket.gethostname(), "process": os.getpid()}
        self._store.put(self._path, json.dumps(about).encode())
        self._beat_ms = begun_ms

    def observe(self, holders: Collection[str], *, is_urgent: bool) -> bool:
        """Look at all heartbeats; return False if that was done recently and isn't urgent.

        `holders`: processes with rows in the catalog, read before; one without a heartbeat is dead.
        """
        with self._lock:
            now_ms = self._system.monotonic_ms()
            pause_ms = min(self.length_ms / _OBSERVED_PARTS, _OBSERVED_MS_MAX)
            if not is_urgent and now_ms - self._observed_ms < pause_ms:
                return False
            self.beat()
            modified_ms = {
                found.path.rpartition("/")[2]: found.modified_ms
                for found in self._store.list(HEARTBEAT_FOLDER)
            }
            # The store's time now is that of the heartbeat just written.
            store_ms = modified_ms.get(self.holder, max(modified_ms.values(), default=0))
            seen_ms = dict.fromkeys(holders, float("-1e15"))
            for holder, beat_ms in modified_ms.items():
                seen_ms[holder] = now_ms - (store_ms - beat_ms)
            self._seen_ms = seen_ms
            self._observed_ms = now_ms
            return True

    def remove_abandoned(self, holders: Collection[str]) -> None:
        """Delete the heartbeats of processes that ended long ago without removing them.

        `holders`: processes with rows in the catalog, whose heartbeats are kept.
        """
        listed = list(self._store.list(HEARTBEAT_FOLDER))
        newest_ms = max((found.modified_ms for found in listed), default=0)
        kept = {*holders, self.holder}
        self._store.delete(
            found.path
            for found in listed
            if newest_ms - found.modified_ms >= _ABANDONED_MS
            and found.path.rpartition("/")[2] not in kept
        )

    def remove(self) -> None:
        """Remove this process's heartbeat, if it was ever written."""
        if self._beat_ms > float("-inf"):
            self._store.delete([self._path])
