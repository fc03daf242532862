"""In-commit timestamps: the time in a commit itself.

Owns the rule for the time, which only increases, and the two properties that say since when commits
have it. Both are set anew at every attempt; nothing is committed after a commit that broke the
rule. Source: PROTOCOL.md, "In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Metadata
from txlake.protocol.file_names import commit_path
from txlake.protocol.properties import is_true

ENABLE = "delta.enableInCommitTimestamps"
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
REPAIR_ADVICE = (
    f"Set {ENABLE} to 'false' and then to 'true' again: times before that are those of the "
    "commits' files"
)
"""What to do about a commit without its time."""


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether commits carry their time."""
    return is_true(configuration, ENABLE)


def commit_time(previous: Snapshot, metadata: Metadata, now_ms: int) -> int | None:
    """Return the next commit's in-commit timestamp in milliseconds; None if it has none.

    `previous` is the state that it follows, `metadata` the one in force after it. The time is now,
    but later than the previous commit: its in-commit timestamp, or its file's time if this commit
    turns in-commit timestamps on.

    Raises CorruptTable naming the previous commit when it lacks its in-commit timestamp, or has one
    that isn't later than earlier ones.
    """
    if not is_enabled(metadata.configuration):
        return None
    if previous.version < 0:
        return now_ms
    before = previous.timestamp_ms
    if is_enabled(previous.metadata.configuration):
        before = _check_time(
            previous.table,
            previous.version,
            previous.in_commit_timestamp_ms,
            previous.in_commit_before_ms,
            found="none",
        )
    return max(now_ms, before + 1)


def check_times(winners: Iterable[ConcurrentCommit], state: Snapshot) -> None:
    """Check that the commits after a state have increasing in-commit timestamps.

    Raises CorruptTable naming the first one that lacks a required timestamp, or breaks the order.
    """
    metadata, before = state.metadata, state.in_commit_timestamp_ms
    for winner in winners:
        metadata = winner.metadata or metadata
        if not is_enabled(metadata.configuration):
            before = None
            continue
        found = winner.info.values.get("inCommitTimestamp")
        before = _check_time(
            state.table,
            winner.version,
            winner.info.in_commit_timestamp_ms,
            before,
            found="none" if found is None else repr(found)[:80],
        )


def _check_time(
    table: str, version: int, time_ms: int | None, before: int | None, found: str
) -> int:
    """Return a version's in-commit timestamp.

    Raises CorruptTable, with what was `found` instead, if it has none, or none later than `before`.
    """
    expected = "of milliseconds since 1970"
    if time_ms is not None:
        if before is None or time_ms > before:
            return time_ms
        expected, found = f"later than {before}, which an earlier version has", str(time_ms)
    raise CorruptTable(
        f"{table}: {commit_path(version)}: expected an inCommitTimestamp in commitInfo {expected} "
        f"({ENABLE} is on), found {found}; nothing can be committed after it without going back in "
        f"time. {REPAIR_ADVICE}"
    )


def with_enablement(
    metadata: Metadata, previous: Snapshot, version: int, time_ms: int | None
) -> Metadata:
    """Return the metadata with the properties that say since when commits carry their time.

    `time_ms` is the commit's in-commit timestamp, None without. They are set by the commit that
    turns in-commit timestamps on in a table with earlier commits, kept after, and removed by the
    commit that turns them off.
    """
    configuration = dict(metadata.configuration)
    before = previous.metadata.configuration if previous.version >= 0 else {}
    if time_ms is None:
        for key in (SINCE_VERSION, SINCE_TIMESTAMP):
            configuration.pop(key, None)
    elif previous.version >= 0 and not is_enabled(before):
        configuration[SINCE_VERSION] = str(version)
        configuration[SINCE_TIMESTAMP] = str(time_ms)
    else:
        for key in (SINCE_VERSION, SINCE_TIMESTAMP):
            configuration.pop(key, None)
            if key in before:
                configuration[key] = before[key]
    if configuration == metadata.configuration:
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)
