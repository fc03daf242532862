"""Which files of a table a stream reads next, from the log alone.

First the files of the whole table at the version at which the stream begins, oldest first, then
those that each later commit adds, in the order of its log. Owns that order, which never changes,
and the limits of a micro-batch; reads no data and needs no Spark. What commits mean to a stream is
`commits`' to say.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Protocol
from txlake.protocol.features import check_readable
from txlake.streaming.commits import new_files
from txlake.streaming.offsets import Offset
from txlake.streaming.options import LATEST, SourceOptions
from txlake.streaming.schema_check import check_partitions, check_schema
from txlake.transaction.table_log import Commit, TableLog

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A file, None at a version's end, and where the stream stands after it."""

    add: Add | None
    after: Offset


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
        self._initial: tuple[int, list[Add]] | None = None
        self._is_checked = False

    def stop_at_newest(self) -> None:
        """Versions that come after this moment aren't read any more."""
        self._newest_allowed = self._log.latest().version

    def initial(self) -> Offset:
        """Where a stream begins that has read nothing yet."""
        newest = self._newest()
        table_id = newest.metadata.id
        version = self._first_version(newest)
        if version is None:
            return Offset.first(table_id, newest.version, is_initial=True)
        return Offset.first(table_id, version, is_initial=False)

    def newest(self, beginning: Offset) -> Offset:
        """The place after everything that is there now, for a stream that began there."""
        version = max(self._newest().version, beginning.version - 1)
        return replace(beginning, version=version + 1, index=0, is_initial=False)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """Where a micro-batch ends that begins at `start`: at the limits, or after all there is.

        It ends before a commit that stops the stream; one that begins there raises.
        """
        count, size = 0, 0
        files_max = self._options.max_files if limited else None
        bytes_max = self._options.max_bytes if limited else None
        position = start
        try:
            for step in self._steps(start, self._newest().version):
                if step.add is not None and not self._is_excluded(step.add):
                    is_full = (files_max is not None and count >= files_max) or (
                        bytes_max is not None and size >= bytes_max
                    )
                    if is_full:
                        break
                    count, size = count + 1, size + step.add.size
                position = step.after
        except TxlakeError:
            if position == start:
                raise
        return position

    def files(self, start: Offset, end: Offset) -> list[Add]:
        """The files from `start` until before `end`, in order.

        A query that was killed before its first micro-batch was done is asked anew where it begins,
        and answers a later version. The batch's end, which was kept, knows where it began then.
        """
        self._require_same(end)
        if start == start.beginning() and end.began[0] < start.began[0]:
            start = end.beginning()
        last = end.version if end.index or end.is_initial else end.version - 1
        if last > self._log.latest().version:
            raise CorruptTable(
                f"{self._log.name}: the stream has read it up to version {last}, and its newest "
                f"version is {self._log.latest().version}: its log was restored from a backup, or "
                "its last versions were removed. Restore them, or start a new query with a new "
                "checkpoint"
            )
        found = []
        for step in self._steps(start, last):
            if step.after.place > end.place:
                break
            if step.add is not None and not self._is_excluded(step.add):
                found.append(step.add)
        return found

    def _is_excluded(self, add: Add) -> bool:
        exclude = self._options.exclude
        return exclude is not None and exclude.search(add.path) is not None

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
            self._require_version(asked, newest)
            return asked
        return None if moment is None else self._version_from(instant_ms(moment), newest)

    def _require_version(self, version: int, newest: Snapshot) -> None:
        if version > newest.version + 1:
            raise InvalidRequest(
                f"{self._log.name}: startingVersion={version}: the newest version is "
                f"{newest.version}; say that or less, {newest.version + 1} or 'latest' for what "
                "comes next"
            )
        if version <= newest.version and self._log.commit(version) is None:
            if not self._options.fail_on_data_loss:
                return
            earliest = min(self._log.listing().commits, default=newest.version)
            raise InvalidRequest(
                f"{self._log.name}: startingVersion={version}: its commit was cleaned up; the "
                f"earliest is that of version {earliest}. Say that, leave startingVersion out to "
                "read the whole table first, or say failOnDataLoss=false"
            )

    def _version_from(self, moment_ms: int, newest: Snapshot) -> int:
        """The first version committed at that time or later."""
        commits = self._log.history()
        at = {int(str(one["version"])): int(str(one["timestamp"])) for one in commits}
        later = [version for version, time_ms in at.items() if time_ms >= moment_ms]
        if not later:
            raise InvalidRequest(
                f"{self._log.name}: startingTimestamp={self._options.starting_timestamp!r} is "
                f"after the newest version, {newest.version}; say that version's time or an "
                "earlier one, or startingVersion='latest'"
            )
        return min(later)

    # The files

    def _steps(self, start: Offset, last: int) -> Iterator[Step]:
        """The files from `start` on, up to those of the version `last`."""
        self._require_same(start)
        self._check_start(start, last)
        position = start
        if start.is_initial:
            for add in self._initial_files(start.version)[start.index :]:
                position = position.next_file()
                yield Step(add, position)
            position = position.next_version()
            yield Step(None, position)
        while position.version <= last:
            for add in self._commit_files(position.version)[position.index :]:
                position = position.next_file()
                yield Step(add, position)
            position = position.next_version()
            yield Step(None, position)

    def _initial_files(self, version: int) -> list[Add]:
        """The files of the whole table at a version, the oldest first."""
        if self._initial is None or self._initial[0] != version:
            adds = self._log.snapshot(version).files.adds()
            ordered = sorted(adds, key=lambda one: (one.modification_time, one.path))
            self._initial = (version, ordered)
        return self._initial[1]

    def _commit_files(self, version: int) -> list[Add]:
        """The files whose rows a commit brings; none where it is gone and that is allowed."""
        commit = self._log.commit(version)
        if commit is None:
            if self._options.fail_on_data_loss:
                raise CorruptTable(
                    f"{self._log.name}: the commit of version {version} is gone, and the stream "
                    "hasn't read it: it was cleaned up (delta.logRetentionDuration). Start a new "
                    "query with a new checkpoint, which reads the whole table first, or say "
                    "failOnDataLoss=false to go on without the rows of versions that are gone"
                )
            _logger.warning("%s: version %d is gone, and passed over", self._log.name, version)
            return []
        self._check(commit)
        return new_files(self._log.name, version, commit.actions, self._options)

    # The table

    def _require_same(self, offset: Offset) -> None:
        found = self._log.latest().metadata.id
        if offset.table_id != found:
            raise InvalidRequest(
                f"{self._log.name}: the stream began on the table with id {offset.table_id}, and "
                f"the one that is there now has id {found}: the table was replaced, or the "
                "checkpoint is that of another table's stream. Use a new checkpointLocation to "
                "read this table from its beginning"
            )

    def _check_start(self, start: Offset, last: int) -> None:
        """Compares the schema at the place at which this process begins to read, once.

        The table may have changed since `own` was read, in a version before the first that is read.
        """
        if self._is_checked or start.version > min(last, self._log.latest().version):
            return
        try:
            found = self._log.snapshot(start.version)
        except InvalidRequest:
            if self._options.fail_on_data_loss:
                raise
            return
        self._check_metadata(start.version, found.metadata, found)
        self._is_checked = True

    def _check(self, commit: Commit) -> None:
        for action in commit.actions:
            if isinstance(action, Protocol):
                check_readable(action, table=self._log.name)
            if isinstance(action, Metadata):
                self._check_metadata(commit.version, action, None)

    def _check_metadata(self, version: int, metadata: Metadata, found: Snapshot | None) -> None:
        own = self.own
        if metadata == own.metadata:
            return
        if metadata.id != own.metadata.id:
            raise InvalidRequest(
                f"{self._log.name}: version {version} replaced the table: its id is {metadata.id}, "
                f"and was {own.metadata.id}. Start a new query with a new checkpoint"
            )
        found = found or self._log.snapshot(version)
        name = self._log.name
        check_schema(name, version, found.schema, own.schema, self._log.latest().schema)
        check_partitions(name, version, found.partition_columns, own.partition_columns)


def instant_ms(text: str) -> int:
    """A moment in milliseconds since the epoch; without a zone it is UTC.

    Raises InvalidRequest for what is none.
    """
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidRequest(
            f"startingTimestamp={text!r}: expected a text like '2026-01-31' or "
            "'2026-01-31 12:00:00.000'"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
