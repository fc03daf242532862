"""Which files of a table a stream reads next, from the log alone.

First the files of the whole table at the version at which the stream begins, oldest first, then
those that each later commit adds, in the order of its log. Owns that order, which never changes,
and the limits of a micro-batch; reads no data and needs no Spark. What commits mean to a stream is
`commits`' to say.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Protocol
from txlake.protocol.features import check_readable
from txlake.streaming.commits import FileAction, Step, new_files
from txlake.streaming.feed import pieces_of, removes_rows_of_before, require_feed, told_of
from txlake.streaming.offsets import Offset
from txlake.streaming.options import LATEST, SourceOptions
from txlake.streaming.schema_check import check_partitions, check_schema
from txlake.transaction.change_feed import Told
from txlake.transaction.table_log import Commit, TableLog

_logger = logging.getLogger(__name__)
_OTHER_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
_NO_VERSION = "DELTA_VERSION_NOT_FOUND"


class Source:
    """One table as a stream reads it, in one thread.

    Every method raises InvalidRequest where the table isn't the one that the stream began with,
    where its schema isn't `own`'s any more, and for a commit that changes rows; CorruptTable for a
    version that is gone; and what `TableLog` raises.

    Attributes:
        own: the table when the stream was started: its rows are read by that schema.
    """

    def __init__(self, log: TableLog, own: Snapshot, options: SourceOptions) -> None:
        self._log = log
        self.own = own
        self._options = options
        self._newest_allowed: int | None = None
        self._beginning: Offset | None = None
        self._answered: Offset | None = None
        self._initial: tuple[int, list[Add]] | None = None
        self._is_checked = False

    def stop_at_newest(self) -> None:
        """Versions that come after this moment aren't read any more."""
        self._newest_allowed = self._log.latest().version

    def beginning(self) -> Offset:
        """Where a stream begins that has read nothing yet: one answer, whose commit may be gone.

        PySpark 4.0 and 4.1 need it of streams that have read that commit long ago.
        """
        if self._beginning is None:
            newest = self._newest()
            version = self._first_version(newest)
            self._beginning = Offset.first(
                newest.metadata.id,
                newest.version if version is None else version,
                is_initial=version is None,
                is_feed=self._options.read_change_feed,
            )
        return self._beginning

    def initial(self) -> Offset:
        """Where a stream begins that has read nothing yet."""
        self._answered = self.beginning()
        asked = self._options.starting_version
        if isinstance(asked, int):
            self._require_kept(asked)
        return self._answered

    def newest(self, beginning: Offset) -> Offset:
        """The place after everything that is there now, for a stream that began there."""
        version = max(self._newest().version, beginning.version - 1)
        return replace(beginning, version=version + 1, index=0, is_initial=False)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """Where a micro-batch ends that begins at `start`: at the limits, or after all there is.

        It ends before a commit that stops the stream; one that begins there raises.
        """
        batch = _Batch(
            self._options.max_files if limited else None,
            self._options.max_bytes if limited else None,
        )
        self._require_same(start)
        self._require_read(start)
        position = start
        try:
            for step in self._steps(start, self._newest().version):
                if not batch.take(self._kept(step.files)):
                    break
                position = step.after
        except TxlakeError:
            if position == start:
                raise
        return position

    def files(self, start: Offset, end: Offset) -> list[Add]:
        """The files of new rows from `start` until before `end`, in order."""
        return [
            file
            for step in self._between(start, end)
            for file in step.files
            if isinstance(file, Add)
        ]

    def changes(self, start: Offset, end: Offset) -> list[Told]:
        """The changes from `start` until before `end`, in order of their versions."""
        return told_of(self._log, self._between(start, end))

    def _between(self, start: Offset, end: Offset) -> Iterator[Step]:
        """The steps with files from `start` until before `end`.

        A query that was killed before its first micro-batch was done is asked anew where it begins,
        and answers another version. The batch's end, which was kept, knows where it began then. A
        start that was kept stands, whatever the options say now.
        """
        self._require_same(end)
        if start == self._answered and end.began != start.began:
            start = end.beginning()
        self._require_same(start)
        for offset in (start, end):
            self._require_read(offset)
        last = end.last_version
        for step in self._steps(start, last):
            if step.after.place > end.place:
                break
            files = self._kept(step.files)
            if files:
                yield replace(step, files=files)

    def _kept(self, files: Sequence[FileAction]) -> tuple[FileAction, ...]:
        """Those that `excludeRegex` doesn't leave out."""
        exclude = self._options.exclude
        return tuple(one for one in files if exclude is None or not exclude.search(one.path))

    def _newest(self) -> Snapshot:
        """The newest version that the stream may read."""
        newest = self._log.latest()
        allowed = self._newest_allowed
        if allowed is None or allowed >= newest.version:
            return newest
        return self._log.snapshot(allowed)

    # The beginning

    def _first_version(self, newest: Snapshot) -> int | None:
        """The first commit to read; None for the whole table first."""
        asked, moment = self._options.starting_version, self._options.starting_timestamp
        if asked == LATEST:
            return newest.version + 1
        if isinstance(asked, int):
            if asked > newest.version + 1:
                raise InvalidRequest(
                    f"[{_NO_VERSION}] "
                    f"{self._log.name}: startingVersion={asked}: the newest version is "
                    f"{newest.version}; say that or less, {newest.version + 1} or 'latest' for "
                    "what comes next"
                )
            return asked
        return None if moment is None else self._version_from(instant_ms(moment))

    def _require_kept(self, version: int) -> None:
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

    def _version_from(self, moment_ms: int) -> int:
        """The first version committed at that time or later, of those whose commits are there."""
        newest = self._log.latest().version
        found = self._log.version_from(moment_ms, of_kept=True)
        if found > newest:
            raise InvalidRequest(
                "[DELTA_TIMESTAMP_GREATER_THAN_COMMIT] "
                f"{self._log.name}: startingTimestamp={self._options.starting_timestamp!r} is "
                f"after the newest version, {newest}; say that version's time or an earlier one, "
                "or startingVersion='latest'"
            )
        return found

    # The files

    def _steps(self, start: Offset, last: int) -> Iterator[Step]:
        """The files from `start` on, up to those of the version `last`."""
        self._require_same(start)
        self._check_start(start, last)
        position = start
        if start.is_initial:
            for add in self._initial_files(start.version)[start.index :]:
                position = position.after_files(1)
                yield Step((add,), position)
            position = position.next_version()
            yield Step((), position)
        while position.version <= last:
            commit = self._commit(position.version)
            place = 0
            for files in () if commit is None else self._pieces(commit):
                place += len(files)
                if place > position.index:
                    position = position.after_files(place - position.index)
                    yield Step(files, position, commit)
            position = position.next_version()
            yield Step((), position)

    def _initial_files(self, version: int) -> list[Add]:
        """The files of the whole table at a version, the oldest first."""
        if self._initial is None or self._initial[0] != version:
            adds = self._log.snapshot(version).files.adds()
            ordered = sorted(adds, key=lambda one: (one.modification_time, one.path))
            self._initial = (version, ordered)
        return self._initial[1]

    def _pieces(self, commit: Commit) -> list[tuple[FileAction, ...]]:
        """The files that a commit means to the stream."""
        if self._options.read_change_feed:
            return pieces_of(commit)
        added = new_files(self._log.name, commit.version, commit.actions, self._options)
        return [(add,) for add in added]

    def _commit(self, version: int) -> Commit | None:
        """A commit that can be read; None where it is gone and that is allowed."""
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
            _logger.warning("%s: version %d is gone, and passed over", self._log.name, version)
            self._is_checked = False
            return None
        if not self._is_checked:  # behind versions that are gone
            self._check_version(version)
        self._check(commit)
        return commit

    # The table

    def _require_same(self, offset: Offset) -> None:
        found = self._log.latest().metadata.id
        if offset.table_id != found:
            raise InvalidRequest(
                f"[{_OTHER_TABLE}] "
                f"{self._log.name}: the stream began on the table with id {offset.table_id}, and "
                f"the one that is there now has id {found}: the table was replaced, or the "
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
        """Raises CorruptTable where the log ends before what the stream has read of it."""
        newest = self._log.latest().version
        if offset.last_version > newest:
            raise CorruptTable(
                f"{self._log.name}: the stream has read it up to version {offset.last_version}, "
                f"and its newest version is {newest}: its log was restored from a backup, or its "
                "last versions were removed. Restore them, or start a new query with a new "
                "checkpoint"
            )

    def _check_start(self, start: Offset, last: int) -> None:
        """Compares the schema at the place at which this process begins to read, once.

        The table may have changed since `own` was read, in a version before the first that is read.
        """
        if not self._is_checked and start.version <= min(last, self._log.latest().version):
            self._check_version(start.version)

    def _check_version(self, version: int) -> None:
        try:
            found = self._described(version)
        except (InvalidRequest, CorruptTable):
            if self._options.fail_on_data_loss:
                raise
            return
        self._check_metadata(version, found.metadata, found)
        self._is_checked = True

    def _described(self, version: int) -> Snapshot:
        """A snapshot with the schema and the properties that the table had at a version.

        The version's own. A log that was cleaned up may have commits of which only later versions
        can be rebuilt: then the first of those, where no commit in between changed its metadata.
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
        for action in commit.actions:
            if isinstance(action, Protocol):
                check_readable(action, table=self._log.name)
            if isinstance(action, Metadata):
                self._check_metadata(commit.version, action, None)
        if self._options.read_change_feed and removes_rows_of_before(commit):
            before = self._log.snapshot(commit.version - 1)
            self._check_schema(before.version, before)

    def _check_metadata(self, version: int, metadata: Metadata, found: Snapshot | None) -> None:
        own = self.own
        if metadata.id != own.metadata.id:
            raise InvalidRequest(
                f"[{_OTHER_TABLE}] "
                f"{self._log.name}: version {version} replaced the table: its id is {metadata.id}, "
                f"and was {own.metadata.id}. Start a new query with a new checkpoint"
            )
        if metadata == own.metadata:
            found = own
        elif found is None:
            found = self._log.snapshot(version)
        if self._options.read_change_feed:
            require_feed(found, version)
        if found is not own:
            self._check_schema(version, found)

    def _check_schema(self, version: int, found: Snapshot) -> None:
        name, own = self._log.name, self.own
        newest = self._log.latest().schema
        is_later = version > own.version
        check_schema(name, version, found.schema, own.schema, newest, is_later=is_later)
        check_partitions(name, version, found.partition_columns, own.partition_columns)


class _Batch:
    """How much of a micro-batch's limits is taken; None for no limit."""

    def __init__(self, files_max: int | None, bytes_max: int | None) -> None:
        self._files_max, self._bytes_max = files_max, bytes_max
        self._count = self._size = 0

    def take(self, files: Sequence[FileAction]) -> bool:
        """Takes the files if there is room, and the first ones in any case.

        One file may exceed the limit of bytes. Several that belong together may not: they wait for
        a batch of their own.
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


def _fits(taken: int, more: int, limit: int | None) -> bool:
    return limit is None or (taken < limit and taken + more <= limit)


def instant_ms(text: str) -> int:
    """A moment in milliseconds since the epoch; without a zone it is UTC.

    Raises InvalidRequest for what is none.
    """
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidRequest(
            "[DELTA_TIMESTAMP_INVALID] "
            f"startingTimestamp={text!r}: expected a text like '2026-01-31' or "
            "'2026-01-31 12:00:00.000'"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
