"""The log of one table: lists, reads and writes its versions.

Owns the I/O of reading a table's state, and the cache of the latest. `log` has the decisions, the
commit loop decides who may commit. Nothing here starts Spark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from txlake.commit.catalog_managed import (
    CatalogManagedFiles,
    CatalogTable,
    LogFiles,
    came_later,
)
from txlake.commit.commit_times import CommitTimes
from txlake.commit.fifo_lock import FifoLock
from txlake.commit.history import HistoryRow, history_row
from txlake.commit.log_reading import LogReader
from txlake.commit.newest_versions import newest_files
from txlake.commit.parallel import FollowingWork, begin, begin_work, is_far
from txlake.commit.recent_commits import RecentCommit, RecentCommits
from txlake.commit.requested_files import RequestedFiles
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.datafiles.vectors import ExternalVectors, RecentVectors
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.log.segment import Checkpoint, Listing, LogEntry, Segment, choose_segment
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome, Store, StoredObject, System
from txlake.protocol.actions import Action, CommitInfo, Txn, decode_actions, encode_actions
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    LOG_FOLDER,
    VERSIONS_END,
    ClassicCheckpoint,
    CommitFile,
    checksum_path,
    commit_path,
    listing_start,
    log_path,
    parse_name,
)
from txlake.protocol.last_checkpoint import HINT_BYTES_MAX, HintedCheckpoint, read_hint
from txlake.settings import Settings

_log = logging.getLogger(__name__)

_OLD_SNAPSHOTS = 4
_CATCH_UP_COMMITS_MAX = 100
# A listing of so many versions is one page, and nearly always has a checkpoint.
_NEAR_VERSIONS = 110
_USUAL_INTERVAL = 10
# For so long a look at a commit file in a far store is as good as another one.
_LOOK_MS = 2_000
_LOOKS_MAX = 4


@dataclass(frozen=True, slots=True)
class LogReading:
    """The reading of a log's newest version, which was begun.

    Attributes:
        begun: when, by the monotonic clock and as the time of day, ms.
        newest: waits for the version; raises as `TableLog.latest`.
    """

    begun: tuple[float, int]
    newest: Callable[[], Snapshot]


@dataclass(frozen=True, slots=True)
class _Look:
    """A look for a commit file: when it was begun, and the function that waits for the result."""

    begun_ms: float
    has_file: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit in the log.

    `timestamp_ms` is its in-commit timestamp, else its commitInfo's, else the file's, in
    milliseconds since the epoch.
    """

    version: int
    actions: tuple[Action, ...]
    info: CommitInfo | None
    timestamp_ms: int


class TableLog:
    """The log of the table at a store's root. The latest snapshot is cached and refreshed.

    With `catalog_table`, its versions are those that the ledger has ratified, and no others. One
    that isn't published yet is published when it is read, or else read from the ledger. `elsewhere`
    reads files that the table has outside its folder.

    Every method that reads state raises InvalidRequest when there is no Delta table, CorruptTable
    naming the file when the log is damaged, UnsupportedFeature when its protocol is beyond us, and
    Unavailable when the store can't be reached.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        settings: Settings,
        *,
        name: str | None = None,
        catalog_table: CatalogTable | None = None,
        external_vectors: ExternalVectors | None = None,
    ) -> None:
        self.store = store
        self.system = system
        self.settings = settings
        self.name = name or store.url
        # The latest version with its commit file as it was listed. Replaced, never changed, as are
        # the old versions: threads may share a log.
        self._latest: tuple[Snapshot, LogEntry | None] | None = None
        self._old: Mapping[int, Snapshot] = {}
        self._recent = RecentCommits()  # of the log that the latest version was read from
        self._fifo_lock = FifoLock(system)
        self.following = FollowingWork()
        self.packing = threading.Lock()  # held while this process packs the table's small files
        self._looks: Mapping[int, _Look] = {}
        self.catalog_table = catalog_table
        self.external_vectors = external_vectors
        self.recent_vectors = RecentVectors()
        # Whether the last transaction that committed here met commits of others.
        self.is_contended = False
        self.cleaned_until: tuple[int, int] | None = None  # the cut and the day of the clean-up
        self._ledger_files: CatalogManagedFiles | None = None
        if catalog_table is not None:
            self._ledger_files = CatalogManagedFiles(
                store,
                catalog_table,
                self.name,
                self._fifo_lock.is_taken,
                system.monotonic_ms,
            )
        self._files: LogFiles = self._ledger_files or store
        self._reader = LogReader(self._files, self.name)

    def turn(self) -> AbstractContextManager[bool]:
        """Wait for the turn to commit among the threads that share this log; the context yields
        success.

        After `retry.queue_ms_max` it yields False. Committing without the turn is still correct; it
        may lose the race for the version.
        """
        return self._fifo_lock.acquired(self.settings.retry.queue_ms_max)

    def exists(self) -> bool:
        """Return whether there is a Delta table: any of its files in `_delta_log`, damaged or not;
        of a catalog table, a version in the ledger.

        `latest_or_none` returns the snapshot too.
        """
        if self._ledger_files is not None:
            head = self._ledger_files.refresh()
            return head is not None and head.version >= 0
        known = self.newest_known
        if known >= 0 and self.store.head(commit_path(known)) is not None:
            return True
        found = self.store.list(LOG_FOLDER, before=VERSIONS_END)
        names = (parse_name(item.path) for item in found)
        return any(isinstance(name, CommitFile | ClassicCheckpoint) for name in names) or (
            not self.listing().is_empty
        )

    def require_published(self) -> None:
        """Raise CorruptTable if a catalog table's log lacks its last published file.

        Does nothing for a path table. Publishes pending commits first.
        """
        if self._ledger_files is not None:
            self._ledger_files.refresh()
            list(self._ledger_files.list(LOG_FOLDER, before=VERSIONS_END))

    @property
    def newest_known(self) -> int:
        """The newest version that was read or committed here, -1 for none; without I/O."""
        latest = self._latest
        return -1 if latest is None else latest[0].version

    @property
    def known(self) -> Snapshot | None:
        """The version `newest_known`; None for none."""
        latest = self._latest
        return None if latest is None else latest[0]

    def latest(self) -> Snapshot:
        """Return the newest version. Costs one listing and the commits that are new since the last.

        For a catalog table: one request to its ledger, and no listing if nothing is new. Raises
        InvalidRequest if there is no Delta table, CorruptTable for a damaged log.
        """
        state = self.latest_or_none()
        if state is None:
            raise self._reader.not_a_table()
        return state

    def begin_reading(self) -> tuple[Snapshot, LogReading] | None:
        """Return the newest version that this process knows, and begin to read the log's newest
        one; None for a table that isn't known, is a catalog's, or is in a near store.
        """
        latest = self._latest
        if latest is None or self.catalog_table is not None or not is_far(self.store):
            return None
        clocks = self.system.monotonic_ms(), self.system.now_ms()
        return latest[0], LogReading(clocks, begin_work(self.latest, store=self.store))

    def latest_or_none(self) -> Snapshot | None:
        """Return the newest version; None if there is no Delta table. Raises CorruptTable for a
        damaged log.
        """
        if self._ledger_files is None:
            return self._newest(None)
        latest = self._latest
        head = self._ledger_files.refresh(-1 if latest is None else latest[0].version)
        if head is None or head.version < 0:
            return None
        if latest is not None and latest[0].version >= head.version:
            return latest[0]
        return self._newest(head.version)

    def _newest(self, head: int | None) -> Snapshot | None:
        """Return the newest version in the log, listed anew; None if there is no Delta table.

        `head`: a catalog table's. Raises CorruptTable for a damaged log.
        """
        latest = self._latest
        if latest is None:
            return self._open(head)
        known, was = latest
        if head is not None and head - known.version > _CATCH_UP_COMMITS_MAX:
            self.forget()
            return self._open(head)
        requested = self._reader.request(_commit_paths(known.version, head))
        listing = self._newest_listing(known.version)
        entry = listing.commits.get(known.version)
        if self.catalog_table is not None:
            is_same = entry is not None
        else:
            is_same = entry == was if was else listing.latest_version >= known.version
        new = listing.latest_version - known.version
        following = range(known.version + 1, listing.latest_version + 1)
        # Commits that a clean-up deleted since are in a checkpoint.
        is_whole = all(version in listing.commits for version in following)
        if not is_same or not is_whole or new > _CATCH_UP_COMMITS_MAX:
            self.forget()
            return self._open(head)
        if new > 0:
            segment = choose_segment(
                Listing(commits=listing.commits), table=self.name, after=known.version
            )
            try:
                newest, entry = self._caught_up(known, segment, requested), segment.newest
            except CorruptTable:
                if self.listing(known.version) == listing:
                    raise
                self.forget()  # a clean-up deletes commits between the listing and their reading
                return self._open(head)
            self._keep_old(known)
        else:
            newest = _as_stored(known, entry)
        self._latest = (newest, entry)
        return newest

    def _caught_up(self, known: Snapshot, segment: Segment, requested: RequestedFiles) -> Snapshot:
        """Return the state after the segment's commits on top of the latest one, and keep them for
        the conflict checks. Raises as `LogReader.replayed`.
        """
        commits: list[RecentCommit] = []

        def keep(entry: LogEntry, actions: Sequence[Action]) -> None:
            if isinstance(entry.file, CommitFile):
                time = _time_of(_info_of(actions))
                commits.append(
                    RecentCommit(
                        version=entry.file.version,
                        actions=tuple(actions),
                        timestamp_ms=entry.modified_ms if time is None else time,
                    )
                )

        state = self._reader.replayed(known, segment, requested, keep=keep)
        self._recent.add(commits)
        return state

    def look_for(self, version: int) -> Callable[[], bool]:
        """Begin to look whether the log has a version's commit file; return the function that waits
        for the result.

        In a store over a network a file that was seen within the last two seconds is taken to be
        there, and a look that was begun then is not repeated unless it failed.
        """
        now_ms = self.system.monotonic_ms()
        known = self._looks.get(version)
        if known is not None and now_ms - known.begun_ms < _LOOK_MS:
            return partial(self._looked_again, version, known)
        look = begin(partial(self.store.head, commit_path(version)), store=self.store)

        def has_file() -> bool:
            return look() is not None

        return self._note_look(version, _Look(now_ms, has_file))

    def _looked_again(self, version: int, known: _Look) -> bool:
        """Return the result of a look that another statement began; of a new one if it failed."""
        try:
            return known.has_file()
        except (TxlakeError, TimeoutError):
            if self._looks.get(version) is known:
                self._looks = {at: one for at, one in self._looks.items() if at != version}
            return self.look_for(version)()

    def note_file(self, version: int) -> None:
        """Record that the log has a version's commit file."""
        self._note_look(version, _Look(self.system.monotonic_ms(), lambda: True))

    def _note_look(self, version: int, look: _Look) -> Callable[[], bool]:
        """Keep a look at a far store, and return the function that waits for its result."""
        if is_far(self.store):
            kept = [item for item in self._looks.items() if item[0] != version]
            self._looks = dict([*kept[1 - _LOOKS_MAX :], (version, look)])
        return look.has_file

    def at_sequence(
        self,
        sequence: int,
        version: int | None = None,
        *,
        postpone: Callable[[Callable[[], None]], None] | None = None,
    ) -> Snapshot:
        """Return the table at an instant of its lake; a path table's newest version.

        `version`: its version then, if that is known; else the ledger is asked for it. `postpone`
        is given the function that raises CorruptTable for a log with versions that the lake doesn't
        know, if the store is far: the caller calls it before it uses what it has read.

        Raises MetadataChangedException when it wasn't in the lake then, CorruptTable when its log
        has versions that the lake doesn't know.
        """
        if self.catalog_table is None:
            return self.latest()
        if version is None:
            version = self.catalog_table.ledger.version_at(self.catalog_table.table_id, sequence)
        if version is None or version < 0:
            raise came_later(self.catalog_table, self.name, sequence)
        if self._ledger_files is not None and version > self.newest_known:
            head = self._ledger_files.use_known()
            newest = None if head is None else self._newest(head.version)
            if newest is not None and newest.version == version:
                return newest
        if self._ledger_files is not None and version >= self.newest_known:
            check = partial(self._require_end, self.look_for(version + 1))
            if postpone is not None and is_far(self.store):
                postpone(check)
            else:
                check()
        return self.snapshot(version)

    def _require_end(self, has_next: Callable[[], bool]) -> None:
        """Raise CorruptTable if a catalog table's log has a next version, by that look, which the
        ledger doesn't know.
        """
        if self._ledger_files is not None and has_next():
            self._ledger_files.refresh()

    def snapshot(
        self,
        version: int | None = None,
        timestamp_ms: int | None = None,
        *,
        newest_if_later: bool = False,
    ) -> Snapshot:
        """Return a version, or the newest one at or before a time; the latest without either.

        Raises InvalidRequest when both are given, the version never existed or was cleaned up, or
        the time is before the oldest or (unless `newest_if_later`) after the newest commit.
        """
        if version is not None and timestamp_ms is not None:
            raise InvalidRequest(f"{self.name}: give a version or a timestamp, not both")
        if timestamp_ms is not None:
            version = self.version_at(timestamp_ms, newest_if_later=newest_if_later)
        if version is None:
            return self.latest()
        latest, old = self._latest, self._old
        if latest is not None and version == latest[0].version:
            return latest[0]
        known = old.get(version)
        if known is None:
            if self._ledger_files is not None:
                newest = self.latest()
                if newest.version == version:
                    return newest
            known = self._from_known(version) or self._load(version, self.listing())[0]
            self._keep_old(known)
        return known

    def version_at(self, timestamp_ms: int, *, newest_if_later: bool = False) -> int:
        """Return the number of the newest version at or before a time.

        Raises InvalidRequest for a time before the oldest or, unless `newest_if_later`, after the
        newest commit.
        """
        return self._times().version_at(timestamp_ms, newest_if_later=newest_if_later)

    def version_from(self, timestamp_ms: int, *, of_kept: bool = False) -> int:
        """Return the oldest version committed at or after a time; newest + 1 if there is none.

        `of_kept`: the oldest whose commit file exists, as in `CommitTimes.version_from`.
        """
        return self._times().version_from(timestamp_ms, of_kept=of_kept)

    def times_of(self, versions: Sequence[int]) -> Mapping[int, int]:
        """Return the commit times of these versions, without those whose commit file is gone."""
        return self._times().of(versions)

    def commits(self, after: int, up_to: int | None = None) -> Iterator[Commit]:
        """Yield the commits after version `after`, up to and including `up_to` if given.

        Without `up_to` the first missing commit ends them. Raises CorruptTable when one up to
        `up_to` is missing, or any is damaged.
        """
        version = after + 1
        while up_to is None or version <= up_to:
            commit = self.commit(version)
            if commit is None:
                if up_to is None:
                    return
                raise self._commit_missing(version, after, up_to)
            yield commit
            version += 1

    def concurrent_commits(self, after: int, up_to: int) -> Iterator[ConcurrentCommit]:
        """Yield the commits after version `after` up to and including `up_to`, as the conflict
        checks see them; those that this log read lately aren't read again.

        `up_to` isn't after the latest version. Raises CorruptTable as `commits`.
        """
        for version in range(after + 1, up_to + 1):
            summary = self._recent.summary(version)
            if summary is None:
                commit = self.commit(version)
                if commit is None:
                    raise self._commit_missing(version, after, up_to)
                read = RecentCommit(
                    version=version, actions=commit.actions, timestamp_ms=commit.timestamp_ms
                )
                self._recent.add([read])
                summary = read.summary
            yield summary

    def _commit_missing(self, version: int, after: int, up_to: int) -> CorruptTable:
        """Return the error for a missing commit of those after `after` up to `up_to`."""
        mend = "restore the file, or read a version after it"
        if self.catalog_table is not None:  # one that was ratified need not be published
            mend += (
                ". Where the lake's catalog was restored from a backup, connect again and "
                "let lake.recover() bring it up to the tables' logs"
            )
        return CorruptTable(
            f"{self.name}: {commit_path(version)} is missing (expected every commit from "
            f"{after + 1} to {up_to}); {mend}"
        )

    def commit(self, version: int) -> Commit | None:
        """Return one commit; None when its file isn't there."""
        path = commit_path(version)
        try:
            data = self._files.get(path)
        except FileNotFoundError:
            return None
        actions = tuple(decode_actions(data, file=f"{self.name}: {path}"))
        info = _info_of(actions)
        time = _time_of(info)
        if time is None:
            stored = self._files.head(path)
            time = 0 if stored is None else stored.modified_ms
        return Commit(version, actions, info, time)

    def history(self, limit: int | None = None) -> list[HistoryRow]:
        """Return the newest `limit` commits (None: all), newest first, in delta-spark's columns.

        Commits that were cleaned up are left out. The times of the commit files are made increasing
        among those that are returned, as in Delta Spark. Raises InvalidRequest for a limit below 1.
        """
        if limit is not None and limit < 1:
            raise InvalidRequest(f"{self.name}: history limit: expected at least 1, found {limit}")
        latest = self.latest().version
        start = 0 if limit is None else max(0, latest - limit + 1)
        times = self._times(start)
        versions = [v for v in sorted(times.listing.commits) if start <= v <= latest]
        rows: list[HistoryRow] = []
        at = times.of(versions)
        for version in reversed(versions):
            try:
                info = self.commit_info(version)
            except FileNotFoundError:
                continue  # cleaned up since the listing
            rows.append(history_row(version, info, at[version]))
        return rows

    def write_commit(self, version: int, actions: Iterable[Action]) -> PutOutcome:
        """Create the commit file of a version unless there is one.

        Raises InvalidRequest naming the store when it doesn't refuse to overwrite, and Unavailable.
        """
        self.store.ensure_safe()
        return self.store.put_if_absent(commit_path(version), encode_actions(actions))

    def find_txn_id(self, version: int) -> str | None:
        """Return the `txnId` of a version's commit; None without a commit or a txnId."""
        try:
            info = self.commit_info(version)
        except FileNotFoundError:
            return None
        return None if info is None else info.text("txnId")

    def app_version_in_commits(self, app_id: str) -> int | None:
        """Return an application's newest `txn` version in the commits that the log still has; None
        without.

        Reads them one by one, the newest first, until one is missing; for ids that a checkpoint no
        longer keeps.
        """
        for version in range(self.latest().version, -1, -1):
            commit = self.commit(version)
            if commit is None:
                return None
            for action in commit.actions:
                if isinstance(action, Txn) and action.app_id == app_id:
                    return action.version
        return None

    def commit_info(self, version: int) -> CommitInfo | None:
        """Return a version's commitInfo, reading the file's head; None if it has none.

        Raises FileNotFoundError.
        """
        return self._reader.commit_info(version)

    def read_checkpoint(self, checkpoint: Checkpoint) -> Snapshot:
        """Return the state in a listed checkpoint. Raises CorruptTable naming the file."""
        return self._reader.read_checkpoint(checkpoint)

    def adopt(self, snapshot: Snapshot) -> None:
        """Cache the snapshot after an own commit as the latest, without reading it; an older one
        than the cached is ignored.
        """
        latest = self._latest
        if latest is None or snapshot.version > latest[0].version:
            self._latest = (snapshot, None)
            if latest is not None and self.catalog_table is not None:
                self._keep_old(latest[0])

    def forget(self) -> None:
        """Drop what is cached; the next read starts from the store."""
        self._latest = None
        self._old = {}
        self._recent.clear()

    def hinted_checkpoint(self) -> HintedCheckpoint | None:
        """Return the checkpoint of the hint file; None without one, or if it can't be parsed."""
        try:
            return read_hint(self.store.get_range(LAST_CHECKPOINT_PATH, 0, HINT_BYTES_MAX + 1))
        except FileNotFoundError:
            return None

    def listing(self, from_version: int | None = None) -> Listing:
        """Return the log's files of versions; only those of `from_version` and later when it is
        given.
        """
        after = None if from_version is None else listing_start(from_version)
        return _listing_of(self._files.list(LOG_FOLDER, after, VERSIONS_END))

    def _newest_listing(self, start: int, checkpoint: HintedCheckpoint | None = None) -> Listing:
        """Return the log's files of version `start` and later, as far as its newest version is
        built from them; `checkpoint`: the one of `start`, or None if its state is known.

        On this machine's disks they are looked up by name where that is enough.
        """
        found = newest_files(self.store, start, checkpoint, self.system.now_ms())
        if found is None:
            return self.listing(start)
        if self._ledger_files is None:
            return _listing_of(found)
        after = listing_start(start)
        return _listing_of(self._ledger_files.visible(LOG_FOLDER, found, after, VERSIONS_END))

    def _open(self, head: int | None) -> Snapshot | None:
        """Return the latest version from the store alone, by a catalog table's head or the hint
        where it helps; None without a table.
        """
        loaded = None if head is None or not is_far(self.store) else self._load_near(head)
        loaded = loaded or self._load_from_hint()
        if loaded is None:
            listing = self.listing()
            if listing.is_empty:
                return None
            loaded = self._load(None, listing)
        state, segment = loaded
        self._latest = (state, segment.newest)
        return state

    def _load_near(self, head: int) -> tuple[Snapshot, Segment] | None:
        """Return a catalog table's newest version from the files of the versions before its head;
        None if that isn't possible.

        The files that the version is probably built from are requested while the log is listed.
        """
        requested = self._reader.request(_expected_paths(head))
        start = max(0, head - _NEAR_VERSIONS)
        listing = self.listing(start)
        if start > 0 and not listing.checkpoints:
            return None
        try:
            return self._reader.load(listing, None, requested=requested)
        except (CorruptTable, InvalidRequest) as error:
            _log.info("%s: files near the head didn't help, listing more: %s", self.name, error)
            return None

    def _load_from_hint(self) -> tuple[Snapshot, Segment] | None:
        """Return the latest version from the files since the hint's checkpoint; None if that isn't
        possible.
        """
        hint = self.hinted_checkpoint()
        if hint is None:
            return None
        listing = self._newest_listing(hint.version, hint)
        if not any(item.version >= hint.version for item in listing.checkpoints):
            return None
        try:
            return self._reader.load(listing, None)
        except (CorruptTable, InvalidRequest) as error:
            _log.info("%s: the hint didn't help, listing all: %s", self.name, error)
            return None

    def _load(self, version: int | None, listing: Listing) -> tuple[Snapshot, Segment]:
        """Return a version, or the newest one, from a listing of the whole log; list again if files
        vanish. Raises InvalidRequest for a log without the version, CorruptTable for a damaged one.
        """
        if listing.is_empty:
            raise self._reader.not_a_table()
        try:
            return self._reader.load(listing, version)
        except CorruptTable:
            again = self.listing()
            if again == listing:
                raise
            return self._reader.load(again, version)

    def _from_known(self, version: int) -> Snapshot | None:
        """Return a catalog table's version by replay on a cached, somewhat older one.

        None for a path table, without such a cached version, and if a commit between the two was
        cleaned up.
        """
        latest = self._latest
        kept = [*self._old.values(), *(() if latest is None else (latest[0],))]
        older = [one for one in kept if version - _CATCH_UP_COMMITS_MAX <= one.version < version]
        if self.catalog_table is None or not older:
            return None
        known = max(older, key=lambda one: one.version)
        commits = self.listing(known.version).commits
        if any(number not in commits for number in range(known.version, version + 1)):
            return None  # cleaned up since
        segment = choose_segment(
            Listing(commits=commits), table=self.name, version=version, after=known.version
        )
        return self._reader.replayed(known, segment)

    def _keep_old(self, snapshot: Snapshot) -> None:
        kept = [item for item in self._old.items() if item[0] != snapshot.version]
        self._old = dict([*kept[1 - _OLD_SNAPSHOTS :], (snapshot.version, snapshot)])

    def _times(self, start: int = 0) -> CommitTimes:
        """Return the times of the commits from version `start` on."""
        latest = self.latest()
        listing = self._newest_listing(start) if start else self.listing()
        return CommitTimes(self.name, listing, latest.properties, self._in_commit_timestamp)

    def _in_commit_timestamp(self, version: int) -> int | None:
        """Return a version's in-commit timestamp; None if it has none, or its commit is gone."""
        try:
            info = self.commit_info(version)
        except FileNotFoundError:
            return None
        return None if info is None else info.in_commit_timestamp_ms


def _info_of(actions: Iterable[Action]) -> CommitInfo | None:
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def _time_of(info: CommitInfo | None) -> int | None:
    """Return a commit's time by its commitInfo, in ms; None if that says none."""
    return None if info is None else info.in_commit_timestamp_ms or info.number("timestamp")


def _listing_of(objects: Iterable[StoredObject]) -> Listing:
    return Listing.of((item.path, item.size_bytes, item.modified_ms) for item in objects)


def _commit_paths(known: int, head: int | None) -> Iterator[str]:
    """Yield the paths of a catalog table's commits after a version."""
    if head is not None:
        yield from (commit_path(version) for version in range(known + 1, head + 1))


def _expected_paths(head: int) -> Iterator[str]:
    """Yield the paths of the files that a catalog table's head is built from, if a checkpoint is at
    each tenth version, where txlake writes it by default.
    """
    base = head - head % _USUAL_INTERVAL
    if base > 0:
        yield log_path(ClassicCheckpoint(base))
    # That of a checkpoint's own version has the in-commit timestamp.
    first = 0 if base == 0 else min(base + 1, head)
    yield from (commit_path(version) for version in range(first, head + 1))
    yield checksum_path(head)


def _as_stored(snapshot: Snapshot, entry: LogEntry | None) -> Snapshot:
    """Return the snapshot with its commit file's time, which an adopted one doesn't know."""
    if entry is None or snapshot.in_commit_timestamp_ms is not None:
        return snapshot
    if snapshot.timestamp_ms == entry.modified_ms:
        return snapshot
    return replace(snapshot, timestamp_ms=entry.modified_ms)
