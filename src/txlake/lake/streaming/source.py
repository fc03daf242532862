"""The streaming source: which files of a table a stream reads next, from the log alone.

First come the files of the whole table at the version at which the stream begins, oldest first,
then those that each later commit adds, in the order of the log. Owns that order, which never
changes, and the limits of a micro-batch; reads no data and needs no Spark. `commits` decides which
commits a stream reads.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from txlake.commit.change_feed import FeedFile
from txlake.commit.table_log import Commit, TableLog
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.lake.streaming.commits import FileAction, FileGroup, new_files
from txlake.lake.streaming.feed import (
    feed_changes,
    file_groups,
    removes_rows_of_older_schema,
    require_feed,
)
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.options import LATEST, SourceOptions
from txlake.lake.streaming.schema_check import check_partitions, check_schema
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Protocol
from txlake.protocol.features import check_readable
from txlake.session.branch_use import BranchMark

_logger = logging.getLogger(__name__)
_OTHER_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
_NO_VERSION = "DELTA_VERSION_NOT_FOUND"


class Source:
    """A table as a streaming source, for use in one thread.

    Every method raises InvalidRequest where the table isn't the one that the stream began with,
    where its schema can't be read as that of `own`, and for a commit that changes rows;
    CorruptTable for a missing version; and what `TableLog` raises.

    Attributes:
        own: the table when the stream was started; its schema is the stream's.
        branch: the branch whose versions of the table the stream reads; None for main's.
    """

    def __init__(
        self,
        log: TableLog,
        own: Snapshot,
        options: SourceOptions,
        branch: BranchMark | None = None,
    ) -> None:
        self.branch = branch
        self._log = log
        self.own = own
        self._options = options
        self._newest_allowed: int | None = None
        self._beginning: Offset | None = None
        self._reported_start: Offset | None = None
        self._initial: tuple[int, list[Add]] | None = None
        self._is_checked = False

    def stop_at_newest(self) -> None:
        """Read no versions that are committed after this call."""
        self._newest_allowed = self._log.latest().version

    def beginning(self) -> Offset:
        """Return the offset at which a new stream begins, always the same; its commit may be gone.

        PySpark 4.0 and 4.1 also ask for it when a stream has long passed that commit. Raises
        InvalidRequest for a version more than one after the newest, and for a time after it.
        """
        if self._beginning is None:
            newest = self._newest()
            version = self._first_version(newest)
            self._beginning = Offset.first(
                newest.metadata.id,
                newest.version if version is None else version,
                is_initial=version is None,
                is_feed=self._options.read_change_feed,
                branch=self.branch,
            )
        return self._beginning

    def initial(self) -> Offset:
        """Return the offset at which a new stream begins.

        Raises InvalidRequest if the commit of `startingVersion` is gone, unless `failOnDataLoss` is
        false, and as `beginning`.
        """
        self._reported_start = self.beginning()
        version = self._options.starting_version
        if isinstance(version, int):
            self._require_commit(version)
        return self._reported_start

    def newest(self, beginning: Offset) -> Offset:
        """Return the offset after the newest version, for a stream that began at `beginning`."""
        version = max(self._newest().version, beginning.version - 1)
        return replace(beginning, version=version + 1, index=0, is_initial=False)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """Return the end of the micro-batch from `start`: if `limited`, at the options' limits,
        else after all versions.

        It ends before a commit that stops the stream. Raises if the batch begins at that commit.
        """
        batch = _Batch(
            self._options.max_files if limited else None,
            self._options.max_bytes if limited else None,
        )
        self._require_same(start)
        self._require_read(start)
        position = start
        try:
            for group in self._groups(start, self._newest().version):
                if not batch.take(self._not_excluded(group.files)):
                    break
                position = group.after
        except TxlakeError:
            if position == start:
                raise
        return position

    def files(self, start: Offset, end: Offset) -> list[Add]:
        """Return the files of new rows from `start` until before `end`, in order."""
        return [
            file
            for group in self._between(start, end)
            for file in group.files
            if isinstance(file, Add)
        ]

    def changes(self, start: Offset, end: Offset) -> list[FeedFile]:
        """Return the changes from `start` until before `end`, in order of their versions."""
        return feed_changes(self._log, self._between(start, end))

    def _between(self, start: Offset, end: Offset) -> Iterator[FileGroup]:
        """Yield the non-empty file groups from `start` until before `end`.

        After a crash in its first micro-batch Spark asks again for the stream's beginning, which
        may be a newer version by then. The end of that batch, from the checkpoint, still has the
        original beginning, which is used. A start from the checkpoint is used whatever the options
        say now.
        """
        self._require_same(end)
        if start == self._reported_start and end.began != start.began:
            start = end.beginning()
        self._require_same(start)
        for offset in (start, end):
            self._require_read(offset)
        last = end.last_version
        for group in self._groups(start, last):
            if group.after.place > end.place:
                break
            files = self._not_excluded(group.files)
            if files:
                yield replace(group, files=files)

    def _not_excluded(self, files: Sequence[FileAction]) -> tuple[FileAction, ...]:
        """Return the files whose paths `excludeRegex` doesn't match; all files without it."""
        exclude = self._options.exclude
        return tuple(file for file in files if exclude is None or not exclude.search(file.path))

    def _newest(self) -> Snapshot:
        """Return the newest version that the stream may read."""
        newest = self._log.latest()
        allowed = self._newest_allowed
        if allowed is None or allowed >= newest.version:
            return newest
        return self._log.snapshot(allowed)

    # The beginning

    def _first_version(self, newest: Snapshot) -> int | None:
        """Return the first version to read; None to read the whole table first.

        Raises InvalidRequest as `beginning`.
        """
        version, timestamp = self._options.starting_version, self._options.starting_timestamp
        if version == LATEST:
            return newest.version + 1
        if isinstance(version, int):
            if version > newest.version + 1:
                raise InvalidRequest(
                    f"[{_NO_VERSION}] "
                    f"{self._log.name}: startingVersion={version}: the newest version is "
                    f"{newest.version}; say that or less, {newest.version + 1} or 'latest' for "
                    "what comes next"
                )
            return version
        return None if timestamp is None else self._version_from(starting_instant_ms(timestamp))

    def _require_commit(self, version: int) -> None:
        """Raise InvalidRequest if the commit at which the stream starts was cleaned up.

        A version that isn't committed yet passes, and any with `failOnDataLoss` false.
        """
        newest = self._newest()
        if version <= newest.version and self._log.commit(version) is None:
            if not self._options.fail_on_data_loss:
                return
            earliest = min(self._log.listing().commits, default=newest.version)
            raise InvalidRequest(
                f"[{_NO_VERSION}] "
                f"{self._log.name}: startingVersion={version}: its commit was cleaned up; the "
                f"earliest is that of version {earliest}. Say that, leave startingVersion out to "
                "read the whole table first, or say failOnDataLoss=false"
            )

    def _version_from(self, time_ms: int) -> int:
        """Return the first version committed at that time or later and still in the log.

        Raises InvalidRequest for a time after the newest version.
        """
        newest = self._log.latest().version
        version = self._log.version_from(time_ms, of_kept=True)
        if version > newest:
            raise InvalidRequest(
                "[DELTA_TIMESTAMP_GREATER_THAN_COMMIT] "
                f"{self._log.name}: startingTimestamp={self._options.starting_timestamp!r} is "
                f"after the newest version, {newest}; say that version's time or an earlier one, "
                "or startingVersion='latest'"
            )
        return version

    # The files

    def _groups(self, start: Offset, last: int) -> Iterator[FileGroup]:
        """Yield the file groups from `start` on, up to and including the version `last`.

        Each version ends with an empty group, whose offset is the next version's.
        """
        self._require_same(start)
        self._check_start(start, last)
        position = start
        if start.is_initial:
            for add in self._initial_files(start.version)[start.index :]:
                position = position.after_files(1)
                yield FileGroup((add,), position)
            position = position.next_version()
            yield FileGroup((), position)
        while position.version <= last:
            commit = self._commit(position.version)
            index = 0
            for files in () if commit is None else self._commit_groups(commit):
                index += len(files)
                if index > position.index:
                    position = position.after_files(index - position.index)
                    yield FileGroup(files, position, commit)
            position = position.next_version()
            yield FileGroup((), position)

    def _initial_files(self, version: int) -> list[Add]:
        """Return the files of the whole table at a version, the oldest first."""
        if self._initial is None or self._initial[0] != version:
            adds = self._log.snapshot(version).files.adds()
            ordered = sorted(adds, key=lambda add: (add.modification_time, add.path))
            self._initial = (version, ordered)
        return self._initial[1]

    def _commit_groups(self, commit: Commit) -> list[tuple[FileAction, ...]]:
        """Return a commit's files for the stream, grouped by what a micro-batch must not split."""
        if self._options.read_change_feed:
            return file_groups(commit)
        added = new_files(self._log.name, commit.version, commit.actions, self._options)
        return [(add,) for add in added]

    def _commit(self, version: int) -> Commit | None:
        """Return a checked commit; None for a missing one if `failOnDataLoss` is false, else raise
        CorruptTable for it. Raises InvalidRequest or UnsupportedFeature if the commit stops the
        stream.
        """
        commit = self._log.commit(version)
        if commit is None:
            if self._options.fail_on_data_loss:
                raise CorruptTable(
                    "[DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE] "
                    f"{self._log.name}: the commit of version {version} is gone, and the stream "
                    "hasn't read it: it was cleaned up (delta.logRetentionDuration). Start a new "
                    "query with a new checkpoint, which reads the whole table first, or say "
                    "failOnDataLoss=false to go on without the rows of versions that are gone"
                )
            _logger.warning("%s: version %d is gone and is skipped", self._log.name, version)
            self._is_checked = False
            return None
        if not self._is_checked:  # after missing versions
            self._check_version(version)
        self._check(commit)
        return commit

    # The table

    def _require_same(self, offset: Offset) -> None:
        """Raise InvalidRequest unless an offset is of this branch, of this table and of this kind
        of stream.
        """
        if _id(offset.branch) != _id(self.branch):
            here = str(self.branch or "main")
            if self.branch is not None and offset.branch is not None:
                here = f"{here} as it is now: that one was published, rebased or dropped"
            raise InvalidRequest(
                f"{self._log.name}: the checkpoint is of a stream that reads "
                f"{offset.branch or 'main'}, and this one reads {here}. Versions of the one aren't "
                "those of the other: rows would be skipped, or read twice. Use a new "
                "checkpointLocation, and startingVersion if this table's first rows were read "
                "already"
            )
        table_id = self._log.latest().metadata.id
        if offset.table_id != table_id:
            raise InvalidRequest(
                f"[{_OTHER_TABLE}] "
                f"{self._log.name}: the stream began on the table with id {offset.table_id}, and "
                f"the one that is there now has id {table_id}: the table was replaced, or the "
                "checkpoint is that of another table's stream. Use a new checkpointLocation to "
                "read this table from its beginning"
            )
        if offset.is_feed is not self._options.read_change_feed:
            was, is_now = ("with", "without") if offset.is_feed else ("without", "with")
            raise InvalidRequest(
                f"{self._log.name}: the stream began {was} readChangeFeed, and goes on {is_now} "
                "it: places in the one aren't places in the other. Say readChangeFeed="
                f"{str(offset.is_feed).lower()}, or use a new checkpointLocation and "
                f"startingVersion={offset.version}"
            )

    def _require_read(self, offset: Offset) -> None:
        """Raise CorruptTable where the log ends before a version that the stream has read."""
        newest = self._log.latest().version
        if offset.last_version > newest:
            raise CorruptTable(
                f"{self._log.name}: the stream has read it up to version {offset.last_version}, "
                f"and its newest version is {newest}: its log was restored from a backup, or its "
                "last versions were removed. Restore them, or start a new query with a new "
                "checkpoint"
            )

    def _check_start(self, start: Offset, last: int) -> None:
        """Compare the schema at the offset where this process begins to read, once.

        The table may have changed between `own` and the first version that is read.
        """
        if not self._is_checked and start.version <= min(last, self._log.latest().version):
            self._check_version(start.version)

    def _check_version(self, version: int) -> None:
        """Check the schema that the table had at a version, once; raises as `_check_metadata`.

        A version that can't be read raises InvalidRequest or CorruptTable; with `failOnDataLoss`
        false it is skipped instead, and a later one is checked.
        """
        try:
            snapshot = self._snapshot_with_metadata(version)
        except (InvalidRequest, CorruptTable):
            if self._options.fail_on_data_loss:
                raise
            return
        self._check_metadata(version, snapshot.metadata, snapshot)
        self._is_checked = True

    def _snapshot_with_metadata(self, version: int) -> Snapshot:
        """Return a snapshot with the table's metadata at a version: the version's own if it can be
        read.

        Else it is the earliest readable one, where log clean-up left that and no commit in between
        changed the metadata. Raises InvalidRequest or CorruptTable otherwise, as
        `TableLog.snapshot` for the version.
        """
        try:
            return self._log.snapshot(version)
        except (InvalidRequest, CorruptTable):
            first = self._log.listing().earliest_version
            if first is None or first <= version:
                raise
            for commit in self._log.commits(version, first):
                if any(isinstance(action, Metadata) for action in commit.actions):
                    raise
            return self._log.snapshot(first)

    def _check(self, commit: Commit) -> None:
        """Raise for a commit after which the stream can't go on: InvalidRequest for another schema,
        UnsupportedFeature for a protocol that txlake can't read.
        """
        for action in commit.actions:
            if isinstance(action, Protocol):
                check_readable(action, table=self._log.name)
            if isinstance(action, Metadata):
                self._check_metadata(commit.version, action, None)
        if self._options.read_change_feed and removes_rows_of_older_schema(commit):
            before = self._log.snapshot(commit.version - 1)
            self._check_schema(before.version, before)

    def _check_metadata(self, version: int, metadata: Metadata, snapshot: Snapshot | None) -> None:
        """Raise InvalidRequest if a version's metadata ends the stream.

        It replaced the table, turned the change feed off that the stream reads, or has a schema
        that the stream can't read. `snapshot` is the table at the version; None reads it if needed.
        """
        own = self.own
        if metadata.id != own.metadata.id:
            raise InvalidRequest(
                f"[{_OTHER_TABLE}] "
                f"{self._log.name}: version {version} replaced the table: its id is {metadata.id}, "
                f"and was {own.metadata.id}. Start a new query with a new checkpoint"
            )
        if metadata == own.metadata:
            snapshot = own
        elif snapshot is None:
            snapshot = self._log.snapshot(version)
        if self._options.read_change_feed:
            require_feed(snapshot, version)
        if snapshot is not own:
            self._check_schema(version, snapshot)

    def _check_schema(self, version: int, snapshot: Snapshot) -> None:
        """Raise InvalidRequest as `check_schema` and `check_partitions` for the table at a version.

        `snapshot` is the table at that version.
        """
        name, own = self._log.name, self.own
        newest = self._log.latest().schema
        is_later = version > own.version
        check_schema(name, version, snapshot.schema, own.schema, newest, is_later=is_later)
        check_partitions(name, version, snapshot.partition_columns, own.partition_columns)


class _Batch:
    """The files and bytes of a micro-batch so far, and their limits; None for no limit."""

    def __init__(self, files_max: int | None, bytes_max: int | None) -> None:
        self._files_max, self._bytes_max = files_max, bytes_max
        self._count = self._size = 0

    def take(self, files: Sequence[FileAction]) -> bool:
        """Take the files if they fit, or if they are the first. Returns whether they were taken.

        A single file may exceed the limit of bytes. A group of several may not, and waits for the
        next batch.
        """
        more, size = len(files), sum(file.size or 0 for file in files)
        has_room = (
            more == 0
            or self._count == 0
            or (
                _fits(self._count, more, self._files_max)
                and _fits(self._size, size if more > 1 else 0, self._bytes_max)
            )
        )
        if has_room:
            self._count, self._size = self._count + more, self._size + size
        return has_room


def _fits(used: int, more: int, limit: int | None) -> bool:
    """Return whether more fits under a limit that isn't reached yet."""
    return limit is None or (used < limit and used + more <= limit)


def _id(branch: BranchMark | None) -> str | None:
    """Return a branch's id; None for main."""
    return None if branch is None else branch.id


def starting_instant_ms(text: str) -> int:
    """Return a timestamp in milliseconds since the epoch; UTC if it has no zone.

    Raises InvalidRequest for any other text.
    """
    try:
        timestamp = datetime.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidRequest(
            "[DELTA_TIMESTAMP_INVALID] "
            f"startingTimestamp={text!r}: expected a text like '2026-01-31' or "
            "'2026-01-31 12:00:00.000'"
        ) from error
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=datetime.UTC)
    return (timestamp - _EPOCH) // datetime.timedelta(milliseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
