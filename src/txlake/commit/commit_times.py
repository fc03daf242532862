"""When each version was committed, and which version was the newest at a time.

In-commit timestamps where the table has them, else the times of the commit files, made strictly
increasing as Delta does. Owns no cache. Source: PROTOCOL.md, "In-Commit Timestamps".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from txlake.commit.in_commit_time import REPAIR_ADVICE, is_enabled
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.segment import Listing
from txlake.protocol.table_properties import TableProperties

_TOO_EARLY = "[DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION]"
_TOO_LATE = "[DELTA_TIMESTAMP_GREATER_THAN_COMMIT]"

ReadInCommitTimestamp = Callable[[int], int | None]


def increasing_file_times(listing: Listing) -> dict[int, int]:
    """Return the commit files' times by version: each at least 1 ms after the one before."""
    times: dict[int, int] = {}
    previous: int | None = None
    for version in sorted(listing.commits):
        time = listing.commits[version].modified_ms
        if previous is not None and time <= previous:
            time = previous + 1
        times[version] = previous = time
    return times


@dataclass(frozen=True, slots=True)
class _Timed:
    """Versions, oldest first, and the function that returns the time of each."""

    versions: Sequence[int]
    time_of: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """The times of the commits of one listing.

    Attributes:
        table: for messages.
        listing: all files of the log.
        properties: of the latest version: they say from which version on commits carry times.
        read: the in-commit timestamp of a version, from its commit file.
    """

    table: str
    listing: Listing
    properties: TableProperties
    read: ReadInCommitTimestamp

    @property
    def first_in_commit(self) -> int | None:
        """The first version with an in-commit timestamp; None when there is none."""
        if not is_enabled(self.properties.configuration):
            return None
        return self.properties.in_commit_timestamp_enablement_version or 0

    def of(self, versions: Sequence[int]) -> Mapping[int, int]:
        """Return the times of these versions; those whose commit file is gone are left out.

        Raises CorruptTable when a commit lacks a required in-commit timestamp.
        """
        first = self.first_in_commit
        files = increasing_file_times(self.listing)
        times: dict[int, int] = {}
        for version in versions:
            if first is not None and version >= first:
                if version in self.listing.commits:
                    times[version] = self._in_commit(version)
            elif version in files:
                times[version] = files[version]
        return times

    def version_at(self, timestamp_ms: int, *, newest_if_later: bool = False) -> int:
        """Return the newest version committed at or before a time.

        Raises InvalidRequest when the time is before the oldest version that can be rebuilt, after
        the latest (unless `newest_if_later`), and says which times there are, or when no time is
        known; CorruptTable when a commit lacks a required in-commit timestamp.
        """
        versions = self._recreatable()
        by_file, by_commit = self._timed(versions)
        since = self.properties.in_commit_timestamp_enablement_timestamp_ms
        is_newer = since is not None and timestamp_ms >= since
        chosen = by_commit if by_commit.versions and (is_newer or not by_file.versions) else by_file
        candidates, time_of = chosen.versions, chosen.time_of
        oldest, latest = candidates[0], candidates[-1]
        if timestamp_ms < time_of(oldest):
            raise InvalidRequest(
                f"{_TOO_EARLY} {self.table}: {_iso(timestamp_ms)} is before the oldest version "
                f"that can be read: version {oldest} of {_iso(time_of(oldest))}. Ask for that "
                "time or later"
            )
        found = candidates[bisect_right(candidates, timestamp_ms, key=time_of) - 1]
        is_latest = found == latest and latest == versions[-1]
        if is_latest and timestamp_ms > time_of(latest) and not newest_if_later:
            raise InvalidRequest(
                f"{_TOO_LATE} {self.table}: {_iso(timestamp_ms)} is after the latest version: "
                f"version {latest} of {_iso(time_of(latest))}. Ask for that time or "
                "earlier, or for no time"
            )
        return found

    def version_from(self, timestamp_ms: int, *, of_kept: bool = False) -> int:
        """Return the oldest version committed at or after a time; newest + 1 if there is none.

        With `of_kept` it is the oldest whose commit file exists, whether or not it can be rebuilt,
        and whatever was cleaned up before.

        Raises InvalidRequest if no version's time is known, and, without `of_kept`, if older
        versions that were cleaned up may have been committed since then too; CorruptTable when a
        commit lacks a required in-commit timestamp.
        """
        versions = self._kept() if of_kept else self._recreatable()
        by_file, by_commit = self._timed(versions)
        since = self.properties.in_commit_timestamp_enablement_timestamp_ms
        is_newer = since is not None and timestamp_ms > since
        for timed in (by_commit,) if by_commit.versions and is_newer else (by_file, by_commit):
            candidates, time_of = timed.versions, timed.time_of
            place = bisect_left(candidates, timestamp_ms, key=time_of)
            if place == len(candidates):
                continue
            found = candidates[place]
            if not of_kept and 0 < found == versions[0] and timestamp_ms < time_of(found):
                raise InvalidRequest(
                    f"{_TOO_EARLY} {self.table}: {_iso(timestamp_ms)} is before the oldest version "
                    f"that can be read: version {found} of {_iso(time_of(found))}, and "
                    "versions before it are gone. Ask for that time or later"
                )
            return found
        return versions[-1] + 1

    def _timed(self, versions: Sequence[int]) -> tuple[_Timed, _Timed]:
        """Split versions into those timed by their files, and those with in-commit timestamps."""
        first = self.first_in_commit
        place = len(versions) if first is None else bisect_left(versions, first)
        files = increasing_file_times(self.listing)
        return (
            _Timed(versions[:place], files.__getitem__),
            _Timed(versions[place:], self._in_commit),
        )

    def _recreatable(self) -> list[int]:
        """Return the versions that can be rebuilt and whose time is known, oldest first.

        Raises InvalidRequest if there is none.
        """
        return self._kept(self.listing.earliest_version)

    def _kept(self, earliest: int | None = 0) -> list[int]:
        """Return the versions from `earliest` on whose time is known, oldest first.

        Raises InvalidRequest if there is none, as for None.
        """
        versions = [
            version
            for version in sorted(self.listing.commits)
            if earliest is not None and version >= earliest
        ]
        if not versions:
            raise InvalidRequest(
                f"{self.table}: no commit file is left in the log, so the times of its versions "
                "aren't known. Ask for a version instead of a time"
            )
        return versions

    def _in_commit(self, version: int) -> int:
        """Return a version's in-commit timestamp. Raises CorruptTable if it has none."""
        time = self.read(version)
        if time is None:
            raise CorruptTable(
                f"{self.table}: {self.listing.commits[version].path}: expected an "
                "inCommitTimestamp in commitInfo (delta.enableInCommitTimestamps is on), found "
                f"none. {REPAIR_ADVICE}"
            )
        return time


def _iso(timestamp_ms: int) -> str:
    """Return a time as text in UTC; the number of milliseconds for an impossible one."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return time.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
