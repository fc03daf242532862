"""The log of a catalog in a store: append entries, and apply those of other processes.

Entry N+1 is created by put-if-absent by a process whose replica has applied entry N. If the name
is taken, another process has written first: its entry is applied, and the transaction runs again.
A put that succeeds therefore proves that the replica was current.

An entry whose reply was lost is found by its id. If it can't be found either, the number is
undecided: this process writes no other entry's outcome before it has read or taken that number.

A process that hasn't looked at the log for a while also reads the newest entry that it applied,
after each entry that it finds, misses or puts: if it is gone, old entries were deleted meanwhile,
or the log was restored, and the replica is made anew. `retention` says why that is enough. While it
works it reads two entries that it applied every few seconds, beside its other requests, and so
notices soon that an older log was put in place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil, isfinite

import msgspec

from txlake.catalog.database import CommitUnsettled
from txlake.catalog.relations import REVISION
from txlake.catalog.replicated import replica
from txlake.catalog.replicated.entries import (
    LOG_FOLDER,
    LogEntry,
    compress,
    decode,
    decompress,
    encode,
    entry_path,
    number_of,
    snapshot_path,
)
from txlake.catalog.replicated.replica import Position
from txlake.catalog.replicated.retention import (
    LogCleanup,
    require_retention,
    snapshot_numbers,
)
from txlake.catalog.replicated.writer_queue import WriterQueue
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.ports import PutOutcome, Store, System

_FETCHERS = 64
_ATTEMPTS = 6
_WAIT_MS = 50.0
# For so long after a look at the end of the log no later entry can have been deleted.
_SURE_MS = 600_000
# So often a process that works checks that the entries that it applied are still in the log.
_CHECK_MS = 5_000
_SNAPSHOT_ENTRIES = 32
_SNAPSHOT_BYTES = 1 << 20
_LOAD_WINDOW = 64
# So many entries are requested when a put has met one: others may have followed.
_TAKEN_WINDOW = 3
_EXPECTED_MAX = 15
# A request that took longer says more of this process, which was stopped, than of the store.
_LATENCY_MS_MAX = 1_000.0


class Superseded(Exception):
    """Another process has written first: nothing happened, and the transaction runs again.

    Attributes:
        number: the number of the first of the others' entries, if it was read.
        entries: the others' entries from that number on.
        seen_ms: when they were requested (monotonic).
    """

    def __init__(
        self, number: int = 0, entries: Sequence[bytes] = (), seen_ms: float = 0.0
    ) -> None:
        super().__init__(number)
        self.number = number
        self.entries = entries
        self.seen_ms = seen_ms


class CatalogLog:
    """The log of one catalog, and this process's replica of its database. Thread-safe.

    `retention_ms`: how long entries are kept, None for good. Raises InvalidRequest if that is too
    short.

    Attributes:
        lock: held while this process changes the replica.
        position: the place in the log that the replica has reached.
        writer: this process's name in entries.
        queue: the processes that wrote recently, as the entries show them.
        latency_ms: how long a request takes, as an average of the recent ones.
        free_ms: when the number after the position was last known to be free (monotonic).
        is_undecided: a put of this process may still arrive.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        path: str,
        writer: str,
        retention_ms: int | None = None,
    ) -> None:
        require_retention(retention_ms, _SURE_MS)
        self._cleanup = LogCleanup(store, retention_ms)
        self._store = store
        self._system = system
        self._path = path
        self._replica = replica.connect(path)
        self.lock = threading.RLock()
        self.position = Position()
        self.writer = writer
        self.queue = WriterQueue()
        self.latency_ms = 0.0
        self.free_ms = float("-inf")
        self.is_undecided = False
        self._looking = threading.Lock()
        # How many entries the next look will probably find.
        self._expected = 0
        self._end_seen_ms = float("-inf")
        self._sure: tuple[float, float] | None = None
        # The position at the last check that the log is still the one that was applied, and when.
        self._checked = Position()
        self._checked_at: tuple[float, float] | None = None
        self._fetchers: ThreadPoolExecutor | None = None
        # Why this process can't use the catalog any more: an upgrade, or its log is gone.
        self._refusal: TxlakeError | None = None

    @property
    def url(self) -> str:
        """The folder of the log."""
        return self._store.url

    def load(self) -> None:
        """Make the replica anew: the newest snapshot, and the entries after it.

        Both are requested at once, with as many entries as there may be before the next snapshot.
        """
        with self.lock:
            self.queue.clear()
            self.free_ms = float("-inf")
            checked_at = self._clocks()
            while not self._load_entries():
                pass
            self._checked, self._checked_at = self.position, checked_at

    def reopen(self) -> None:
        """Make the replica anew in a new file."""
        with self.lock:
            self._replica.close()
            self._replica = replica.connect(self._path)
            self.load()

    def _load_entries(self) -> bool:
        """Load a snapshot and the entries after it; return False if some were deleted meanwhile."""
        begun, contents = self._load_snapshot()
        base, found, is_end = self.position, list[bytes](), False
        for data in contents:
            if data is None:
                is_end = True
                break
            found.append(data)
        if base.number == 0 and not found and self._first_listed() > 1:
            self._sure = None
            if self._has_entry(base):
                raise self._damage(f"expected {entry_path(1)} or a snapshot, found neither")
        if not self._has_entry(base):
            return False
        for data in found:
            self._apply(self.position.number + 1, data)
        if is_end:
            self._note_end(begun)
        else:
            while self.apply_next(_LOAD_WINDOW):
                pass
        return True

    def _first_listed(self) -> int:
        """Return the number of the first entry that is listed; 0 if there is none."""
        numbers = (number_of(found.path) for found in self._store.list(LOG_FOLDER))
        return next((number for number in numbers if number is not None), 0)

    def _load_snapshot(self) -> tuple[tuple[float, float], Iterator[bytes | None]]:
        """Load the newest snapshot whose entry is in the log, or nothing if there is none.

        Returns the clocks before it was requested, and the contents of the next entries, None for
        one that is missing. Raises CorruptTable if the log has the entry of no snapshot.
        """
        damaged = 0
        while True:
            begun, self._sure = self._clocks(), None
            numbers = sorted(snapshot_numbers(self._store))
            newest = max(numbers, default=0)
            following = range(newest + 1, newest + 2 + _interval(numbers))
            entries = [entry_path(number) for number in following]
            if not numbers:
                replica.clear(self._replica)
                self.position, self._sure = Position(), begun
                return begun, self._contents(entries)
            contents = self._contents([snapshot_path(newest), entry_path(newest), *entries])
            snapshot, entry = next(contents), next(contents)
            if snapshot is None:  # a newer one has replaced it
                continue
            if self._take_snapshot(newest, snapshot, entry):
                self._sure = begun
                return begun, contents
            for number in reversed(numbers[:-1]):
                pair = self._contents([snapshot_path(number), entry_path(number)])
                if self._take_snapshot(number, *pair):
                    return begun, self._contents([entry_path(number + 1)])
            if newest == damaged:
                raise self._damage(f"expected {entry_path(newest)}, whose snapshot is there")
            damaged = newest  # unless the entry was deleted meanwhile

    def _take_snapshot(self, number: int, snapshot: bytes | None, entry: bytes | None) -> bool:
        """Load a snapshot, if it and its entry are there; return whether they are."""
        if snapshot is None or entry is None:
            return False
        path = snapshot_path(number)
        replica.load_database(self._replica, decompress(snapshot, f"{self.url}/{path}"))
        self.position = replica.read_position(self._replica)
        is_taken = self._is_entry(self.position, entry)
        if is_taken:
            self._note_schema()
        return is_taken

    def catch_up(self, since_ms: float | None = None) -> None:
        """Apply all entries that were in the log when this was called, or at `since_ms` of the
        monotonic clock.

        As many entries are requested at once as the last looks found, and one more: its absence is
        the end.
        """
        if since_ms is None:
            since_ms = self._system.monotonic_ms()
        self._require_known_schema()
        with self._looking:
            if self._end_seen_ms >= since_ms:
                return
            window, checked_at, before = 1 + self._expected, self._checked_at, self.position
            while self.apply_next(window):
                window = min(4 * window, _LOAD_WINDOW)
            found = self.position.number - before.number
            self._expected = min(max(found, self._expected // 2), _EXPECTED_MAX)
            if self._checked_at != checked_at:
                self._checked = self.position  # all up to there was just read
        self._require_known_schema()

    def apply_next(self, window: int = 1) -> bool:
        """Apply up to `window` next entries; return whether there may be more."""
        begun, base = self._clocks(), self.position
        found = self._fetch(base, window)
        is_end = found is not None and len(found) < window
        if found or found is None or not self._is_sure():
            with self.lock:
                if self.position != base:  # this process has written, or applied them, meanwhile
                    return True
                if found is None or not self._has_entry(base):
                    self.load()
                    self._require_any_entry()
                    return True
                self._apply_all(base.number + 1, found, begun[0])
        if is_end:
            self._note_end(begun)
        return not is_end

    def _note_end(self, begun: tuple[float, float]) -> None:
        """Record that the replica has all entries that were in the log at these clocks."""
        self._sure = begun
        self._end_seen_ms = max(self._end_seen_ms, begun[0])
        self.free_ms = max(self.free_ms, begun[0] + self.latency_ms / 2)

    def apply_taken(self, superseded: Superseded) -> None:
        """Apply the entry that a put has met, and those after it."""
        with self.lock:
            if superseded.number == self.position.number + 1:
                self._apply_all(superseded.number, superseded.entries, superseded.seen_ms)
        if not 0 < len(superseded.entries) < _TAKEN_WINDOW:
            self.catch_up()

    def _apply_all(self, first: int, entries: Sequence[bytes], seen_ms: float) -> None:
        """Apply entries from the number `first` on, which were requested at `seen_ms`.

        They were created since the number was known to be free, at even intervals as far as this
        process knows.
        """
        since_ms = max(self.free_ms, self.queue.newest_ms)
        interval_ms = (seen_ms + self.latency_ms / 2 - since_ms) / (len(entries) + 1)
        for place, data in enumerate(entries):
            self._apply(first + place, data, since_ms + (place + 1) * interval_ms)

    def append(self, entry: LogEntry) -> Position:
        """Append an entry after the replica's position; return the position after it.

        The caller holds `lock`, and applies the entry's changes itself.

        Raises:
            Superseded: another entry has the number, or the replica's newest entry is gone.
            CommitUnsettled: the store can't say whether the entry was created.
        """
        self._require_known_schema()
        base = self.position
        if not self._has_entry(base):
            raise Superseded
        path, ids = entry_path(base.number + 1), set[bytes]()
        begun, wait_ms = self._clocks(), _WAIT_MS
        for _ in range(_ATTEMPTS):
            # An entry that was deleted meanwhile must not come back under its id.
            if ids:
                entry = msgspec.structs.replace(entry, id=new_entry_id(self._system))
            ids.add(entry.id)
            data = encode(entry)
            try:
                outcome = self._store.put_if_absent(path, data)
            except Unavailable as error:
                raise self._unsettled(str(error)) from error
            self._note_latency(begun[0])
            seen_ms = self._system.monotonic_ms()
            try:  # whatever fails from here on, the entry may be in the log
                present = [data]
                if outcome is not PutOutcome.CREATED:
                    present = self._following(base, _TAKEN_WINDOW)
                found = decode(present[0], f"{self.url}/{path}") if present else None
                # What is there says nothing if its number was deleted and given again.
                is_final = not present or (self._has_entry(base) and not self._is_replaced())
            except TxlakeError as error:
                raise self._unsettled(str(error)) from error
            is_own = found is not None and found.id in ids
            if not is_final and is_own and self._is_cut(base):
                self._store.delete([path])  # nobody reads an entry after a gap
                raise Superseded
            if not is_final:
                raise self._unsettled(
                    f"{self.url}/{path}: entries before it are gone: this process stood still for "
                    "so long that they were deleted, or an older catalog was put in place; run "
                    "the transaction again"
                )
            if found is not None and is_own:
                self._sure = begun
                self.is_undecided = False
                return Position(base.number + 1, found.id, found.time_ms)
            if present:
                self.is_undecided = False
                raise Superseded(base.number + 1, present, seen_ms)
            # A lost put may arrive later: this number stays the next one until it is taken.
            self._system.wait_ms(wait_ms * (0.5 + self._system.random()))
            wait_ms *= 2
        raise self._unsettled(
            f"{self.url}/{path}: the store didn't say in {_ATTEMPTS} attempts whether the entry "
            "was created"
        )

    def _unsettled(self, reason: str) -> CommitUnsettled:
        """Return the error for an entry that may be in the log, or come there later."""
        self.is_undecided = True
        return CommitUnsettled(reason)

    def note_written(self, position: Position) -> None:
        """Record that the replica has reached a position, by an entry of this process."""
        self.position = position
        self.free_ms = self._system.monotonic_ms() - self.latency_ms / 2
        self.queue.record(self.writer, self.free_ms, self.latency_ms)

    def claim(self, number: int) -> bool:
        """Put an entry without changes at a number ahead, so that the others let this process
        write after it. Returns False if the number is taken.
        """
        entry = LogEntry(
            id=new_entry_id(self._system),
            previous=b"",
            writer=self.writer,
            time_ms=0,
            latency_ms=ceil(self.latency_ms),
        )
        outcome = self._store.put_if_absent(entry_path(number), encode(entry))
        return outcome is not PutOutcome.EXISTS

    def is_snapshot_due(self, position: Position) -> bool:
        """Return whether the process that wrote an entry also writes a snapshot.

        The larger the database, the rarer: a snapshot is no larger than the entries that it saves
        a new process from reading.
        """
        if position.number % _SNAPSHOT_ENTRIES:
            return False
        with self.lock:
            size = replica.size_bytes(self._replica)
        return position.number % (_SNAPSHOT_ENTRIES * (1 + size // _SNAPSHOT_BYTES)) == 0

    def write_snapshot(self) -> None:
        """Write a snapshot of the replica."""
        with self.lock:
            content = replica.database_bytes(self._replica)
            number = self.position.number
        self._store.put_if_absent(snapshot_path(number), compress(content))

    def delete_surplus(self) -> None:
        """Delete the snapshots and entries that nobody needs. Raises as the store."""
        self._cleanup.delete_surplus(self.position.number)

    def delete_strays(self) -> None:
        """Delete the entries and snapshots that don't belong to the log. Raises as the store."""
        with self.lock:
            self._cleanup.delete_strays(self.position.number)

    def close(self) -> None:
        """Close the replica."""
        self._cleanup.stop()
        if self._fetchers is not None:
            self._fetchers.shutdown(wait=False)
            self._fetchers = None
        with self.lock:  # a snapshot may be under way
            self._replica.close()

    def _apply(self, number: int, data: bytes, created_ms: float = float("-inf")) -> None:
        """Apply the next entry. `created_ms`: when it was created (monotonic), if that is known."""
        url = f"{self.url}/{entry_path(number)}"
        entry = decode(data, url)
        if entry.previous not in (b"", self.position.entry_id):
            raise self._damage(
                f"{entry_path(number)}: expected the entry after "
                f"{self.position.entry_id.hex() or 'nothing'}, found one after "
                f"{entry.previous.hex()}"
            )
        time_ms = max(entry.time_ms, self.position.time_ms)
        replica.apply_entry(self._replica, entry, Position(number, entry.id, time_ms))
        if entry.database:
            self._note_schema()
        self.position = Position(number, entry.id, time_ms)
        if isfinite(created_ms):
            self.queue.record(entry.writer, created_ms, entry.latency_ms, is_claim=entry.is_claim)

    def _damage(self, found: str) -> CorruptTable:
        """Return the error for a log whose entries don't fit together."""
        return CorruptTable(
            f"{self.url}: {found}: entries were removed or restored. Stop all writers, move "
            f"{self.url} away, connect again, and let lake.recover() rebuild the catalog from the "
            "tables' logs"
        )

    def _note_schema(self) -> None:
        """Look at the schema that an entry or snapshot brought."""
        revision = replica.read_revision(self._replica)
        if revision is not None and revision > REVISION:
            self._refusal = InvalidRequest(
                f"catalog {self.url}: its schema has revision {revision}, this txlake knows "
                f"{REVISION}; a newer txlake has upgraded it: upgrade txlake"
            )

    def _require_any_entry(self) -> None:
        """Raise Unavailable, from now on, if the whole log was removed while it was in use."""
        if self.position.number == 0:
            self._refusal = Unavailable(
                f"catalog {self.url}: its log was removed while this process used it. Put it back, "
                "or connect again and let lake.recover() rebuild the catalog"
            )
            raise self._refusal

    def _require_known_schema(self) -> None:
        """Raise InvalidRequest if a newer txlake has upgraded the catalog, Unavailable if its log
        was removed.
        """
        if self._refusal is not None:
            raise self._refusal

    def _fetch(self, base: Position, window: int) -> Sequence[bytes] | None:
        """Return the entries after `base`, up to the first that is missing.

        Returns None if entries that were applied are gone, which is checked from time to time.
        """
        begun = self._clocks()
        checks = self._due_checks(base)
        following = range(base.number + 1, base.number + 1 + window)
        paths = [*(each.number for each in checks), *following]
        contents = self._contents([entry_path(number) for number in paths])
        if not self._are_entries(checks, contents):
            return None
        if checks:
            self._checked, self._checked_at = base, begun
        found = _present(contents)
        if window == 1:
            self._note_latency(begun[0])
        return found

    def _following(self, base: Position, window: int) -> list[bytes]:
        """Return the entries after `base` as `_fetch`, without checks."""
        following = range(base.number + 1, base.number + 1 + window)
        return _present(self._contents([entry_path(number) for number in following]))

    def _due_checks(self, base: Position) -> Sequence[Position]:
        """Return positions whose entries are to be read again: the replica's, and that of the last
        check, if no entry of it can have been deleted since.
        """
        if self._is_recent(self._checked_at, _CHECK_MS):
            return ()
        checks = [base]
        if self._checked != base and self._is_recent(self._checked_at, _SURE_MS):
            checks.append(self._checked)
        return [each for each in checks if each.number > 0]

    def _are_entries(self, positions: Sequence[Position], contents: Iterator[bytes | None]) -> bool:
        """Return whether the next contents are the entries of these positions."""
        present = [self._is_entry(each, data) for each, data in zip(positions, contents)]
        return all(present)

    def _is_replaced(self) -> bool:
        """Return whether a check is due, and finds that the log isn't the one that was applied."""
        begun, checks = self._clocks(), self._due_checks(self.position)
        paths = [entry_path(each.number) for each in checks]
        if not self._are_entries(checks, self._contents(paths)):
            return True
        if checks:
            self._checked, self._checked_at = self.position, begun
        return False

    def _is_cut(self, base: Position) -> bool:
        """Return whether an entry that was applied is gone without having been deleted as old."""
        newest = max(snapshot_numbers(self._store), default=0)
        positions = [each for each in (base, self._checked) if each.number > newest]
        paths = [entry_path(each.number) for each in positions]
        return not self._are_entries(positions, self._contents(paths))

    def _contents(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        """Return the contents of objects in order, None for a missing one.

        They are requested at once, except from a local store and while Python shuts down.
        """
        if len(paths) == 1 or self._store.excludes_late_writes:
            return map(self._get, paths)
        if self._fetchers is None:
            self._fetchers = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="txlake-catalog")
        try:
            return self._fetchers.map(self._get, paths)
        except RuntimeError:  # the main thread has ended: an executor takes no more work
            return map(self._get, paths)

    def _get(self, path: str) -> bytes | None:
        try:
            return self._store.get(path)
        except FileNotFoundError:
            return None

    def _clocks(self) -> tuple[float, float]:
        return self._system.monotonic_ms(), float(self._system.now_ms())

    def _is_sure(self) -> bool:
        """Return whether no entry after the replica's position can have been deleted."""
        return self._is_recent(self._sure, _SURE_MS)

    def _is_recent(self, then: tuple[float, float] | None, age_ms: float) -> bool:
        """Return whether both clocks say that less than `age_ms` has passed since then."""
        if then is None:
            return False
        passed = [now - begun for now, begun in zip(self._clocks(), then)]
        return min(passed) >= 0 and max(passed) < age_ms

    def _has_entry(self, position: Position) -> bool:
        """Return whether no entry after a position has been deleted: its own is still there.

        What was found after the position before this call is then in the log.
        """
        if self._is_sure():
            return True
        if position.number == 0:  # nothing is deleted before there are snapshots
            return not any(snapshot_numbers(self._store))
        return self._is_entry(position, self._get(entry_path(position.number)))

    def _is_entry(self, position: Position, data: bytes | None) -> bool:
        """Return whether data is the entry of a position; None is none."""
        url = f"{self.url}/{entry_path(position.number)}"
        return data is not None and decode(data, url).id == position.entry_id

    def _note_latency(self, begun_ms: float) -> None:
        took_ms = min(self._system.monotonic_ms() - begun_ms, _LATENCY_MS_MAX)
        self.latency_ms += (0.1 if self.latency_ms else 1.0) * (took_ms - self.latency_ms)


def _interval(snapshots: Sequence[int]) -> int:
    """Return how many entries to expect from one snapshot to the next, by the numbers of those that
    there are.
    """
    before, newest = [0, 0, *snapshots][-2:]
    return min(newest - before, _LOAD_WINDOW) or _SNAPSHOT_ENTRIES


def _present(contents: Iterator[bytes | None]) -> list[bytes]:
    """Return the contents up to the first that is missing."""
    present: list[bytes] = []
    for data in contents:
        if data is None:
            break
        present.append(data)
    return present


def new_entry_id(system: System) -> bytes:
    """Return a new id of an entry."""
    return bytes.fromhex(system.new_id().replace("-", ""))
