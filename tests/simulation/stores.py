"""The objects of the simulated world, on a disk or in a bucket, and a process's store on them.

Owns the faults of each kind of store. A disk's calls don't get lost, but a power loss takes what
wasn't durable. A bucket's requests get lost, arrive twice and arrive late. An object under its name
is complete: `storage.local` writes another file first and links it, and buckets show complete
objects only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.faults import FaultKind
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage import join_url
from txlake.storage.locations import locate, validate_path

if TYPE_CHECKING:
    from tests.simulation.process import Process

ROOT = "memory://simulated"
_LISTED_AFTER_MS = 3_000
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
_CATALOG_LOG = "/catalog/log/"
_TEMPORARY = ".txlake-{}.tmp"


@dataclass(frozen=True, slots=True)
class ObjectState:
    """An object.

    Attributes:
        is_durable: a power loss can't bring back the object's previous state, `before`.
        listed_from_ms: the time from which listings show it.
        is_synced: a power loss that leaves the object leaves its bytes too.
    """

    data: bytes
    modified_ms: int
    is_durable: bool = True
    listed_from_ms: float = 0.0
    before: ObjectState | None = None
    is_synced: bool = True


class Storage:
    """All objects by key, which is the path below the world's root.

    Attributes:
        is_disk: a local file system; otherwise a bucket.
        has_stale_listings: listings may lack the newest objects.
        may_be_cleaned: logs are cleaned up under their writers. A commit written where one was
            deleted
            then doesn't count as the version's commit.
        last_written: the bytes last written under each key, also of deleted objects.
        entries: the entries of a catalog's log by key, as first written, also deleted ones.
        delayed_requests: requests that haven't arrived yet.
        deleted_items: deleted objects that a power loss may bring back.
    """

    def __init__(self, *, is_disk: bool) -> None:
        self.is_disk = is_disk
        self.has_stale_listings = False
        self.may_be_cleaned = False
        self.items: dict[str, ObjectState] = {}
        self.last_written: dict[str, bytes] = {}
        self.entries: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.delayed_requests: list[Callable[[], object]] = []
        self.deleted_items: dict[str, ObjectState] = {}
        self.temporary_files: set[str] = set()

    def copy(self, *, is_disk: bool) -> Storage:
        """Return a storage with the same objects."""
        made = Storage(is_disk=is_disk)
        made.items, made.keys, made.last_written = (
            dict(self.items),
            list(self.keys),
            dict(self.last_written),
        )
        made.entries = dict(self.entries)
        return made

    def write(self, key: str, item: ObjectState) -> None:
        """Write an object, or replace it."""
        if key not in self.items:
            insort(self.keys, key)
        is_gap = (
            self.may_be_cleaned
            and is_commit(key)
            and key in self.last_written
            and key not in self.items
        )
        self.items[key] = item
        if not is_gap:
            self.last_written[key] = item.data
        if is_catalog_entry(key):
            self.entries.setdefault(key, item.data)
        self.deleted_items.pop(key, None)

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        items = self.items.pop(key, None)
        if items is not None:
            del self.keys[bisect_left(self.keys, key)]
            self.deleted_items[key] = items

    def keys_in(self, folder: str, after: str) -> Iterator[str]:
        """Yield the keys of a folder after a key, sorted."""
        place = bisect_left(self.keys, max(folder, after))
        while place < len(self.keys) and self.keys[place].startswith(folder):
            if self.keys[place] != after:
                yield self.keys[place]
            place += 1

    def lose_power(self, happens: Callable[[], bool]) -> None:
        """Lose some objects that weren't durable, and undo some deletions; `happens` decides on
        each.
        """
        for key in [key for key, item in self.items.items() if not item.is_durable]:
            item = self.items[key]
            before = item.before
            if not happens():
                data = item.data if item.is_synced or not happens() else b""
                self.items[key] = replace(item, data=data, is_durable=True, before=None)
                self.last_written[key] = data
            elif before is None:
                self.remove(key)
                del self.deleted_items[key], self.last_written[key]
            else:
                self.items[key] = before
                self.last_written[key] = before.data
        for key, item in list(self.deleted_items.items()):
            if item.is_durable and happens():
                self.write(key, item)
        self.deleted_items.clear()


class SimulatedStore:
    """`ports.Store` of one process on a folder of the storage."""

    __slots__ = ("_process", "_root", "_storage")

    def __init__(self, process: Process, root: str = "") -> None:
        self._process = process
        self._storage = process.world.storage
        self._root = root

    @property
    def url(self) -> str:
        return join_url(ROOT, self._root) if self._root else ROOT

    @property
    def excludes_late_writes(self) -> bool:
        return self._storage.is_disk

    def get(self, path: str) -> bytes:
        key = self._send("get", path)
        item = self._storage.items.get(key)
        if item is None:
            raise FileNotFoundError(key)
        return item.data

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        return self.get(path)[offset : offset + length]

    def head(self, path: str) -> StoredObject | None:
        key = self._send("head", path)
        item = self._storage.items.get(key)
        return None if item is None else StoredObject(path, len(item.data), item.modified_ms)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        folder = self._send("list", prefix.rstrip("/"))
        after = "" if start_after is None else self._key(start_after)
        items = {
            key: self._storage.items[key]
            for key in self._storage.keys_in(f"{folder}/" if folder else "", after)
            if before is None or key < self._key(before)
        }
        if self._storage.has_stale_listings:
            now = self._process.world.scheduler.now_ms
            items = {key: item for key, item in items.items() if item.listed_from_ms <= now}
        start = len(self._root) + 1 if self._root else 0
        return iter(
            [
                StoredObject(key[start:], len(item.data), item.modified_ms)
                for key, item in items.items()
            ]
        )

    def put(self, path: str, data: bytes) -> None:
        key = self._send("put", path)
        storage, fault_occurs, weight = self._storage, self._process.fault_occurs, _weight(key)
        if storage.is_disk:
            self._write_aside(key)
            before = storage.items.get(key)
            storage.write(key, replace(self._item(data, is_durable=False), before=before))
            self._make_durable(key)
            return
        if fault_occurs(FaultKind.PUT_LOST, key, weight):
            raise Unavailable(f"{key}: no reply")
        if fault_occurs(FaultKind.PUT_LATE, key, weight):
            storage.delayed_requests.append(lambda: storage.write(key, self._item(data)))
            raise Unavailable(f"{key}: no reply")
        storage.write(key, self._item(data))
        if fault_occurs(FaultKind.PUT_TWICE, key, weight):
            storage.delayed_requests.append(lambda: storage.write(key, self._item(data)))
        if fault_occurs(FaultKind.PUT_UNANSWERED, key, weight):
            raise Unavailable(f"{key}: no reply")
        self._process.step("put", key)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        key = self._send("create", path)
        storage, fault_occurs, weight = self._storage, self._process.fault_occurs, _weight(key)
        if is_commit(key) and fault_occurs(FaultKind.LOG_CLEANED, key, weight):
            self._process.stand_still_while_cleaned(self._root)
        if storage.is_disk:
            self._write_aside(key)
            is_mine = key not in storage.items
            if is_mine:
                storage.write(key, self._item(data, is_durable=False))
            self._make_durable(key)
            return PutOutcome.CREATED if is_mine else PutOutcome.EXISTS
        if fault_occurs(FaultKind.PUT_LOST, key, weight):
            return self._unknown(key)
        if fault_occurs(FaultKind.PUT_LATE, key, weight):
            storage.delayed_requests.append(partial(self._create, key, data))
            return self._unknown(key)
        outcome = self._create(key, data)
        self._process.trace("create", key, outcome.value)
        if fault_occurs(FaultKind.PUT_TWICE, key, weight):
            outcome = self._create(key, data)
        if fault_occurs(FaultKind.PUT_UNANSWERED, key, weight):
            outcome = self._unknown(key)
        self._process.step("created", key)
        return outcome

    def put_unsynced(self, path: str, data: bytes) -> None:
        if not self._storage.is_disk:
            self.put_if_absent(path, data)
            return
        key = self._send("create", path)
        self._write_aside(key)
        if key not in self._storage.items:
            item = self._item(data, is_durable=False)
            self._storage.write(key, replace(item, is_synced=False))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            key = self._send("delete", path)
            self._storage.remove(key)
            if not self._storage.is_disk and self._process.fault_occurs(FaultKind.DELETE_LATE, key):
                self._storage.delayed_requests.append(partial(self._storage.remove, key))

    def sweep(self, prefix: str, before_ms: int) -> None:
        self._send("sweep", prefix)
        self._storage.temporary_files.clear()

    def ensure_safe(self) -> None:
        pass

    def at(self, path: str) -> SimulatedStore:
        return SimulatedStore(self._process, self._key(path.rstrip("/")))

    def _key(self, path: str) -> str:
        if not path:
            return self._root
        checked = validate_path(path)
        return f"{self._root}/{checked}" if self._root else checked

    def _send(self, kind: str, path: str) -> str:
        """Return the key when the request arrives; delayed requests may arrive before it."""
        key = self._key(path)
        process, storage = self._process, self._storage
        process.step(kind, key)
        injector = process.world.injector
        while storage.delayed_requests and (injector.random() < 0.3 or injector.is_paused):
            storage.delayed_requests.pop(int(injector.random() * len(storage.delayed_requests)))()
        if not storage.is_disk and process.fault_occurs(FaultKind.STORE_AWAY, key):
            process.sleep(injector.random() * 100)
            raise Unavailable(f"{key}: the store is away")
        return key

    def _item(self, data: bytes, *, is_durable: bool = True) -> ObjectState:
        scheduler, injector = self._process.world.scheduler, self._process.world.injector
        listed_from_ms = 0.0
        if not self._storage.is_disk and self._process.fault_occurs(
            FaultKind.LISTING_STALE, "listing"
        ):
            listed_from_ms = scheduler.now_ms + injector.random() * _LISTED_AFTER_MS
        return ObjectState(data, self._process.world.store_time_ms, is_durable, listed_from_ms)

    def _create(self, key: str, data: bytes) -> PutOutcome:
        if key in self._storage.items:
            return PutOutcome.EXISTS
        self._storage.write(key, self._item(data))
        return PutOutcome.CREATED

    def _unknown(self, key: str) -> PutOutcome:
        """Return an unknown outcome; the store can't be reached any more after every second put of
        an entry of the catalog's log, which raises Unavailable.
        """
        if is_catalog_entry(key) and self._process.world.injector.random() < 0.5:
            raise Unavailable(f"{key}: no reply")
        return PutOutcome.UNKNOWN

    def _write_aside(self, key: str) -> None:
        """Write the temporary file of a local write; a crash leaves it under a name that nobody
        reads.
        """
        process = self._process
        if process.fault_occurs(FaultKind.DISK_FULL, key):
            raise InvalidRequest(f"can't write {key}: no space left; free space and try again")
        if process.fault_occurs(FaultKind.WRITE_TORN, key):
            folder = key.rpartition("/")[0]
            self._storage.temporary_files.add(
                f"{folder}/{_TEMPORARY.format(len(self._storage.keys))}"
            )
            process.die("in the middle of a write")

    def _make_durable(self, key: str) -> None:
        """Sync a written file; it is visible before, and a power loss may take it until this is
        over.
        """
        self._process.step("sync", key)
        # Syncing the folder makes its other entries and deletions durable too.
        folder = key.rpartition("/")[0]
        items = self._storage.items
        for one in self._storage.keys_in(f"{folder}/", ""):
            item = items[one]
            if one.rpartition("/")[0] == folder and not item.is_durable and item.is_synced:
                items[one] = replace(item, is_durable=True, before=None)
        deleted_items = self._storage.deleted_items
        for gone in [one for one in deleted_items if one.rpartition("/")[0] == folder]:
            del deleted_items[gone]


def is_commit(key: str) -> bool:
    """Return whether an object is a commit of a table's log."""
    return _COMMIT.search(key) is not None


def is_catalog_entry(key: str) -> bool:
    """Return whether an object is an entry of a catalog in the store."""
    return _CATALOG_LOG in key


def _weight(key: str) -> float:
    """Return the factor of a fault's likelihood for an object; commits matter most."""
    return 4.0 if key.endswith(".json") or is_catalog_entry(key) else 0.7


def key_of(location: str) -> str:
    """Return the key of a folder by its URL."""
    place = locate(location)
    assert place.base == "simulated", f"{location} is outside of the simulated world"
    return place.folder
