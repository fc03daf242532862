"""The objects of the simulated world, on a disk or in a bucket, and a process's way to them.

Owns what each kind of store can do wrong. A disk's calls don't get lost, but it loses what wasn't
made durable with the power; a bucket's requests get lost, come twice and come late. What is there
under its name is whole: `storage.local` writes aside and links, buckets show whole objects alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.luck import Misfortune
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage import join_url
from txlake.storage.locations import locate, validate_path

if TYPE_CHECKING:
    from tests.simulation.process import Process

ROOT = "memory://simulated"
_SEEN_LATER_MS = 3_000
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
_TEMPORARY = ".txlake-{}.tmp"


@dataclass(frozen=True, slots=True)
class Item:
    """An object.

    Attributes:
        is_durable: a power cut can't bring back what was there `before`.
        seen_ms: since when it is listed.
        is_synced: a power cut that leaves it leaves its bytes too.
    """

    data: bytes
    modified_ms: int
    is_durable: bool = True
    seen_ms: float = 0.0
    before: Item | None = None
    is_synced: bool = True


class Storage:
    """All objects by key: the path below the world's root.

    Attributes:
        is_disk: a local file system, else a bucket.
        is_seen_late: whether listings may miss the newest objects.
        is_cleaned: whether logs are cleaned up under their writers: a commit that is put where one
            was deleted isn't the version's.
        ever: what was written last under each key, whether it is there or not.
        late: requests that are still on their way.
        ghosts: deleted objects that a power cut may bring back, or a stale listing still shows.
    """

    def __init__(self, *, is_disk: bool) -> None:
        self.is_disk = is_disk
        self.is_seen_late = False
        self.is_cleaned = False
        self.items: dict[str, Item] = {}
        self.ever: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.late: list[Callable[[], object]] = []
        self.ghosts: dict[str, Item] = {}
        self.temporaries: set[str] = set()

    def copy(self, *, is_disk: bool) -> Storage:
        """Another with the same objects."""
        made = Storage(is_disk=is_disk)
        made.items, made.keys, made.ever = dict(self.items), list(self.keys), dict(self.ever)
        return made

    def write(self, key: str, item: Item) -> None:
        """Puts an object where there was one or none."""
        if key not in self.items:
            insort(self.keys, key)
        is_gap = self.is_cleaned and is_commit(key) and key in self.ever and key not in self.items
        self.items[key] = item
        if not is_gap:
            self.ever[key] = item.data
        self.ghosts.pop(key, None)

    def remove(self, key: str) -> None:
        """Takes an object away."""
        found = self.items.pop(key, None)
        if found is not None:
            del self.keys[bisect_left(self.keys, key)]
            self.ghosts[key] = found

    def below(self, folder: str, after: str) -> Iterator[str]:
        """The keys of a folder, in order."""
        place = bisect_left(self.keys, max(folder, after))
        while place < len(self.keys) and self.keys[place].startswith(folder):
            if self.keys[place] != after:
                yield self.keys[place]
            place += 1

    def lose_power(self, happens: Callable[[], bool]) -> None:
        """What wasn't durable may be gone, and deletions undone."""
        for key in [key for key, item in self.items.items() if not item.is_durable]:
            item = self.items[key]
            before = item.before
            if not happens():
                data = item.data if item.is_synced or not happens() else b""
                self.items[key] = replace(item, data=data, is_durable=True, before=None)
                self.ever[key] = data
            elif before is None:
                self.remove(key)
                del self.ghosts[key], self.ever[key]
            else:
                self.items[key] = before
                self.ever[key] = before.data
        for key, item in list(self.ghosts.items()):
            if item.is_durable and happens():
                self.write(key, item)
        self.ghosts.clear()


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
        key = self._request("get", path)
        item = self._storage.items.get(key)
        if item is None:
            raise FileNotFoundError(key)
        return item.data

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        return self.get(path)[offset : offset + length]

    def head(self, path: str) -> StoredObject | None:
        key = self._request("head", path)
        item = self._storage.items.get(key)
        return None if item is None else StoredObject(path, len(item.data), item.modified_ms)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        folder = self._request("list", prefix.rstrip("/"))
        after = "" if start_after is None else self._key(start_after)
        found = {
            key: self._storage.items[key]
            for key in self._storage.below(f"{folder}/" if folder else "", after)
        }
        if self._storage.is_seen_late:
            now = self._process.world.scheduler.now_ms
            found = {key: item for key, item in found.items() if item.seen_ms <= now}
        start = len(self._root) + 1 if self._root else 0
        return iter(
            [
                StoredObject(key[start:], len(item.data), item.modified_ms)
                for key, item in found.items()
            ]
        )

    def put(self, path: str, data: bytes) -> None:
        key = self._request("put", path)
        storage, hits, weight = self._storage, self._process.hits, _weight(key)
        if storage.is_disk:
            self._write_aside(key)
            before = storage.items.get(key)
            storage.write(key, replace(self._item(data, is_durable=False), before=before))
            self._make_durable(key)
            return
        if hits(Misfortune.PUT_LOST, key, weight):
            raise Unavailable(f"{key}: no reply")
        if hits(Misfortune.PUT_LATE, key, weight):
            storage.late.append(lambda: storage.write(key, self._item(data)))
            raise Unavailable(f"{key}: no reply")
        storage.write(key, self._item(data))
        if hits(Misfortune.PUT_TWICE, key, weight):
            storage.late.append(lambda: storage.write(key, self._item(data)))
        if hits(Misfortune.PUT_UNANSWERED, key, weight):
            raise Unavailable(f"{key}: no reply")
        self._process.step("put", key)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        key = self._request("create", path)
        storage, hits, weight = self._storage, self._process.hits, _weight(key)
        if is_commit(key) and hits(Misfortune.LOG_CLEANED, key, weight):
            self._process.stand_still_while_cleaned(self._root)
        if storage.is_disk:
            self._write_aside(key)
            is_mine = key not in storage.items
            if is_mine:
                storage.write(key, self._item(data, is_durable=False))
            self._make_durable(key)
            return PutOutcome.CREATED if is_mine else PutOutcome.EXISTS
        if hits(Misfortune.PUT_LOST, key, weight):
            return PutOutcome.UNKNOWN
        if hits(Misfortune.PUT_LATE, key, weight):
            storage.late.append(partial(self._create, key, data))
            return PutOutcome.UNKNOWN
        outcome = self._create(key, data)
        self._process.note("create", key, outcome.value)
        if hits(Misfortune.PUT_TWICE, key, weight):
            outcome = self._create(key, data)
        if hits(Misfortune.PUT_UNANSWERED, key, weight):
            outcome = PutOutcome.UNKNOWN
        self._process.step("created", key)
        return outcome

    def put_unsynced(self, path: str, data: bytes) -> None:
        if not self._storage.is_disk:
            self.put_if_absent(path, data)
            return
        key = self._request("create", path)
        self._write_aside(key)
        if key not in self._storage.items:
            item = self._item(data, is_durable=False)
            self._storage.write(key, replace(item, is_synced=False))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            key = self._request("delete", path)
            self._storage.remove(key)
            if not self._storage.is_disk and self._process.hits(Misfortune.DELETE_LATE, key):
                self._storage.late.append(partial(self._storage.remove, key))

    def sweep(self, prefix: str, before_ms: int) -> None:
        self._request("sweep", prefix)
        self._storage.temporaries.clear()

    def ensure_safe(self) -> None:
        pass

    def at(self, path: str) -> SimulatedStore:
        return SimulatedStore(self._process, self._key(path.rstrip("/")))

    def _key(self, path: str) -> str:
        if not path:
            return self._root
        checked = validate_path(path)
        return f"{self._root}/{checked}" if self._root else checked

    def _request(self, kind: str, path: str) -> str:
        """The key, once the request arrives; late ones may arrive before it."""
        key = self._key(path)
        process, storage = self._process, self._storage
        process.step(kind, key)
        luck = process.world.luck
        while storage.late and (luck.random() < 0.3 or luck.is_quiet):
            storage.late.pop(int(luck.random() * len(storage.late)))()
        if not storage.is_disk and process.hits(Misfortune.STORE_AWAY, key):
            process.sleep(luck.random() * 100)
            raise Unavailable(f"{key}: the store is away")
        return key

    def _item(self, data: bytes, *, is_durable: bool = True) -> Item:
        scheduler, luck = self._process.world.scheduler, self._process.world.luck
        seen_ms = 0.0
        if not self._storage.is_disk and self._process.hits(Misfortune.LISTING_STALE, "listing"):
            seen_ms = scheduler.now_ms + luck.random() * _SEEN_LATER_MS
        return Item(data, self._process.world.time_of_day_ms, is_durable, seen_ms)

    def _create(self, key: str, data: bytes) -> PutOutcome:
        if key in self._storage.items:
            return PutOutcome.EXISTS
        self._storage.write(key, self._item(data))
        return PutOutcome.CREATED

    def _write_aside(self, key: str) -> None:
        """The first half of a local write: what a death leaves has a name that nobody reads."""
        process = self._process
        if process.hits(Misfortune.DISK_FULL, key):
            raise InvalidRequest(f"can't write {key}: no space left; free space and try again")
        if process.hits(Misfortune.WRITE_TORN, key):
            folder = key.rpartition("/")[0]
            self._storage.temporaries.add(f"{folder}/{_TEMPORARY.format(len(self._storage.keys))}")
            process.die("in the middle of a write")

    def _make_durable(self, key: str) -> None:
        """The second half: visible already, and a power cut may take it until this is over."""
        self._process.step("sync", key)
        # With the folder's entry of this file, its others are for good, and what was removed.
        folder = key.rpartition("/")[0]
        items = self._storage.items
        for one in self._storage.below(f"{folder}/", ""):
            item = items[one]
            if one.rpartition("/")[0] == folder and not item.is_durable and item.is_synced:
                items[one] = replace(item, is_durable=True, before=None)
        ghosts = self._storage.ghosts
        for gone in [one for one in ghosts if one.rpartition("/")[0] == folder]:
            del ghosts[gone]


def is_commit(key: str) -> bool:
    """Whether an object is a commit of a table's log."""
    return _COMMIT.search(key) is not None


def _weight(key: str) -> float:
    """How much likelier something goes wrong with an object: commits are what matters most."""
    return 4.0 if key.endswith(".json") else 0.7


def key_of(location: str) -> str:
    """The key of a folder that is named by its URL."""
    place = locate(location)
    assert place.base == "simulated", f"{location} is outside of the simulated world"
    return place.folder
