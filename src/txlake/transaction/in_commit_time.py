"""In-commit timestamps: the time that a commit carries itself.

Owns the rule for the time and the two properties that say since when it is carried. Both are made
anew at every attempt. Source: PROTOCOL.md, "In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Metadata

ENABLE = "delta.enableInCommitTimestamps"
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether commits carry their time."""
    return configuration.get(ENABLE, "false").strip().lower() == "true"


def commit_time(previous: Snapshot, metadata: Metadata, now_ms: int) -> int | None:
    """The time that the next commit carries; None when it carries none.

    `previous` is the state that it follows, `metadata` the one in force after it. Milliseconds:
    now, but later than the commit before.
    """
    if not is_enabled(metadata.configuration):
        return None
    if previous.version < 0:
        return now_ms
    before = previous.in_commit_timestamp_ms
    return max(now_ms, (previous.timestamp_ms if before is None else before) + 1)


def with_provenance(
    metadata: Metadata, previous: Snapshot, version: int, time_ms: int | None
) -> Metadata:
    """The metadata to commit, with the properties that say since when commits carry their time.

    They are set by the commit that turns it on in a table with earlier commits, and kept after.
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
