"""What a table with a change data feed requires of the statements on it.

Owns when a table has a feed, the names of its columns, and what has to be known of rows before they
are changed. Source: PROTOCOL.md, "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from txlake.commit.merge_actions import StagedChanges
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import Files, canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, Metadata
from txlake.protocol.sources import SOURCES_TAG, Source, parse_sources

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
FEED = "delta.enableChangeDataFeed"
_ROW_TRACKING = "delta.enableRowTracking"


def has_feed(snapshot: Snapshot) -> bool:
    """Return whether the table has a change data feed.

    False if the property can't be parsed: rows of such a table can't be changed.
    """
    try:
        return snapshot.has_metadata and snapshot.properties.change_data_feed
    except CorruptTable:
        return False


def without_row_tracking(metadata: Metadata) -> Metadata:
    """Return the metadata without row tracking: the feed has no row ids.

    Not each of its files has any either.
    """
    kept = {key: text for key, text in metadata.configuration.items() if key != _ROW_TRACKING}
    return msgspec.structs.replace(metadata, configuration=kept)


def packed_sources(actions: Iterable[Action], files: Files) -> dict[str, tuple[Source, ...]]:
    """Return by canonical path the rows that compacted files hold; an empty tuple if not recorded.

    Only new files without a change of data count; `files` are the existing ones. Raises
    InvalidRequest for a record that can't be parsed.
    """
    runs = {}
    for action in actions:
        if not isinstance(action, Add) or action.data_change:
            continue
        if files.by_path(action.path) is None:
            text = (action.tags or {}).get(SOURCES_TAG)
            runs[canonical_path(action.path)] = () if text is None else parse_sources(text)
    return runs


def require_known_changes(
    before: Snapshot, staged: StagedChanges, then: StagedChanges, table: str
) -> None:
    """Raise InvalidRequest if rows were changed in the same transaction before the feed is turned
    on.

    The sources of these rows weren't recorded. `before` is the table before the statement: nothing
    is raised if it has a feed already. `staged` and `then` are the changes before and after the
    statement; that it turns the feed on is the caller's to know.
    """
    if has_feed(before):
        return
    removes = any(file.data_change for file in then.removed_files)
    if removes and any(key in staged.added and add.data_change for key, add in then.added.items()):
        raise InvalidRequest(
            f"{table}: {FEED} can't be turned on after rows were changed in the same transaction: "
            "the feed couldn't tell how they changed. Turn it on first, or COMMIT before"
        )


def reserved_column(snapshot: Snapshot) -> str | None:
    """Return an error text for a column with a name that the feed uses; None if there is none, or
    the table has no feed.
    """
    if not has_feed(snapshot):
        return None
    taken = [name for name in snapshot.schema.names if name.lower() in CHANGE_COLUMNS]
    if not taken:
        return None
    return (
        f"column {taken[0]!r} has a name of the change data feed's own: a table with {FEED} can't "
        f"have {', '.join(CHANGE_COLUMNS)}; rename the column, or leave the property out"
    )
