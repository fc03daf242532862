"""The change data feed of a range of versions, planned: which files hold which changes.

Owns what a version's changes are, for batches and streams: the rows of its change data files, or,
if it has none, those that follow from its added and removed files. Only the log and deletion
vectors are read. Source: PROTOCOL.md, "Change Data Files", "Reader Requirements for Add CDC File";
Delta Spark's CDCReader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from txlake.commit.feed_rules import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FEED,
    has_feed,
    without_row_tracking,
)
from txlake.commit.net_changes import DELETE, INSERT, CountRows, other_positions
from txlake.commit.table_log import Commit, TableLog
from txlake.conflict.positions import Vectors, deleted_positions
from txlake.datafiles.vectors import VectorCache
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_path, files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Cdc, Metadata, Remove
from txlake.protocol.read_compatibility import read_incompatibility
from txlake.protocol.types import Field, Primitive, Struct, schema_to_string

_TYPE = Field(CHANGE_TYPE, Primitive("string"))
_COMMIT = (
    Field(COMMIT_VERSION, Primitive("long")),
    Field(COMMIT_TIMESTAMP, Primitive("timestamp")),
)
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPart:
    """Files that are read alike, each path once.

    Attributes:
        snapshot: a table with the feed's columns, in order. What applies to all rows of a file
            (version, time, type) is in its partition values.
        files: the files, in FILES_SCHEMA.
        deleted: by ordinal, positions of rows to leave out, instead of the file's own vector.
    """

    snapshot: Snapshot
    files: pa.Table
    deleted: Mapping[int, BitMap64]


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A file with rows of the feed.

    Attributes:
        file: the file, with its own deletion vector.
        version: the version that made the changes.
        timestamp_ms: the time of its commit, milliseconds since the epoch.
        change_type: the type of change of all rows; None if the file has it for each row.
        only: the positions of the rows, whatever the file's vector says; None for its live rows.
    """

    file: Add
    version: int
    timestamp_ms: int
    change_type: str | None = None
    only: BitMap64 | None = None


def plan_feed(log: TableLog, first: int, last: int, count_rows: CountRows) -> tuple[FeedPart, ...]:
    """Return the feed of the versions `first` to `last`, both included, which must exist.

    The columns are those of the table at `last`, then `_change_type`, `_commit_version` and
    `_commit_timestamp`. `count_rows` counts a file's rows if its statistics don't. There is at
    least one part, which may have no files.

    Raises InvalidRequest if a version has no feed, its commit was cleaned up, or the schema changed
    in a way that the columns at `last` can't show.
    """
    _require_retained(log, first, last)
    start, end = log.snapshot(version=first), log.snapshot(version=last)
    _require_feed(start, first, last, first)
    _require_columns(start, end)
    times = log.times_of(range(first, last + 1))
    vectors = VectorCache(log.store, log.external_vectors)
    changes: list[FeedFile] = []
    derived: list[FeedFile] = []
    for commit in log.commits(first - 1, last):
        if commit.version > first:
            _require_unchanged(commit, start, end)
        time = times.get(commit.version, commit.timestamp_ms)
        told = feed_files(log, commit, time, vectors)
        recorded = [one for one in told if one.change_type is None]
        if commit.version == first and len(recorded) < len(told):
            _require_columns_before(log, commit, end)
        changes += recorded
        derived += (one for one in told if one.change_type is not None)
    # One snapshot for each part: a reader may cache by snapshot how its files are read.
    parts = [*_parts(lambda: as_recorded(end), changes, count_rows)]
    parts += _parts(lambda: as_derived(end), derived, count_rows)
    if parts:
        return tuple(parts)
    return (FeedPart(snapshot=as_derived(end), files=files_table([]), deleted={}),)


# What has to hold of the versions


def _require_retained(log: TableLog, first: int, last: int) -> None:
    """Raise InvalidRequest if a commit from `first` to `last` was cleaned up."""
    known = [version for version in log.listing().commits if version <= last]
    oldest = min(known, default=last + 1)
    if first < oldest:
        raise InvalidRequest(
            f"{log.name}: the changes of version {first} are gone: the log was cleaned up, and its "
            f"oldest commit is version {oldest} (delta.logRetentionDuration). Ask for the changes "
            f"from version {oldest} on"
        )


def _require_feed(snapshot: Snapshot, first: int, last: int, version: int) -> None:
    """Raise InvalidRequest unless the table had a feed at `version`, which is the snapshot's."""
    if not has_feed(snapshot):
        raise InvalidRequest(
            f"[DELTA_MISSING_CHANGE_DATA] {snapshot.table}: the changes of versions {first} to "
            f"{last} can't be told: version {version} recorded none, as {FEED} wasn't true then. "
            "Ask for versions from which on it is (DESCRIBE HISTORY shows when it was set)"
        )


def _require_unchanged(commit: Commit, start: Snapshot, end: Snapshot) -> None:
    """Raise InvalidRequest if a later version of the range has no feed or unfitting columns."""
    for action in commit.actions:
        if isinstance(action, Metadata):
            then = start.apply([action], version=commit.version)
            _require_feed(then, start.version, end.version, commit.version)
            _require_columns(then, end)


def _require_columns_before(log: TableLog, commit: Commit, end: Snapshot) -> None:
    """Raise InvalidRequest if the columns before the range don't fit, and its first version deleted
    rows.

    The deleted rows were written for the columns before.
    """
    if any(isinstance(action, Metadata) for action in commit.actions) and any(
        isinstance(action, Remove) and action.data_change for action in commit.actions
    ):
        _require_columns(log.snapshot(version=commit.version - 1), end)


def _require_columns(then: Snapshot, end: Snapshot) -> None:
    """Raise InvalidRequest unless the columns of a version can be shown as those of the
    last one.
    """
    found = read_incompatibility(then.schema, end.schema)
    if found is None and _partitions(then) != _partitions(end):
        found = (
            f"it was partitioned by {', '.join(then.partition_columns) or 'nothing'}, "
            f"and is by {', '.join(end.partition_columns) or 'nothing'}"
        )
    if found is not None:
        raise InvalidRequest(
            f"[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE] {then.table}: the changes up to "
            f"version {end.version} can't be shown with its columns: since version {then.version} "
            f"the table was changed: {found}. Ask for the versions before and after the change "
            "separately"
        )


def _partitions(snapshot: Snapshot) -> list[str]:
    fields = (snapshot.schema.find(name) for name in snapshot.partition_columns)
    return [item.physical_name for item in fields if item is not None]


def _reports_no_change(commit: Commit) -> bool:
    """Return whether a MERGE's metrics report no changed row, as Delta Spark does."""
    if commit.info is None or commit.info.text("operation") != "MERGE":
        return False
    metrics = commit.info.values.get("operationMetrics")
    return isinstance(metrics, dict) and all(metrics.get(name) == "0" for name in _MERGED)


# What a version's files tell


def recorded_files(commit: Commit) -> list[Cdc]:
    """Return a version's change data files: if it has some, only they define its changes."""
    return [action for action in commit.actions if isinstance(action, Cdc)]


def files_of_changes(commit: Commit) -> list[Cdc] | list[Add | Remove]:
    """Return the files that define a version's changes, in the order of its log.

    Change data files if it has some, else added and removed files with a change of data; none for a
    MERGE whose metrics report no changed row.
    """
    recorded = recorded_files(commit)
    if recorded:
        return recorded
    if _reports_no_change(commit):
        return []
    return [
        action
        for action in commit.actions
        if isinstance(action, Add | Remove) and action.data_change
    ]


def feed_files(log: TableLog, commit: Commit, time_ms: int, vectors: Vectors) -> list[FeedFile]:
    """Return the changes of a version that was committed at this time.

    Empty if it changed no row. Raises CorruptTable if it removes a file that didn't exist, and what
    `vectors` raise.
    """
    recorded = recorded_files(commit)
    if recorded:
        return [FeedFile(_as_add(file), commit.version, time_ms) for file in recorded]
    return list(_derived(log, commit, time_ms, vectors))


def _derived(log: TableLog, commit: Commit, time_ms: int, vectors: Vectors) -> Iterator[FeedFile]:
    """Yield the changes that follow from added and removed files: whole files, or some of their
    rows.
    """
    files = files_of_changes(commit)
    adds = {canonical_path(action.path): action for action in files if isinstance(action, Add)}
    for action in files:
        if not isinstance(action, Remove):
            continue
        before = _live(log, commit, action)
        after = adds.pop(canonical_path(action.path), None)
        if after is None:
            yield FeedFile(before, commit.version, time_ms, DELETE)
            continue
        was, is_now = deleted_positions(before, vectors), deleted_positions(after, vectors)
        for kind, rows in ((DELETE, is_now - was), (INSERT, was - is_now)):
            if rows:
                yield FeedFile(after, commit.version, time_ms, kind, rows)
    for add in adds.values():
        yield FeedFile(add, commit.version, time_ms, INSERT)


def _live(log: TableLog, commit: Commit, remove: Remove) -> Add:
    """Return the file as it was before it was removed; the version before has what the action
    leaves out.

    Raises CorruptTable if that version doesn't have the file.
    """
    if remove.size is None or remove.partition_values is None:
        add = log.snapshot(version=commit.version - 1).files.get(remove.key)
        if add is None:
            raise CorruptTable(
                f"{log.name}: version {commit.version} removes {remove.path}, which isn't in the "
                f"version before it"
            )
        return add
    return Add(
        path=remove.path,
        partition_values=remove.partition_values,
        size=remove.size,
        modification_time=0,
        data_change=True,
        stats=remove.stats,
        deletion_vector=remove.deletion_vector,
    )


def _as_add(file: Cdc) -> Add:
    """Return a change data file as a file that can be scanned."""
    return Add(
        path=file.path,
        partition_values=file.partition_values,
        size=file.size,
        modification_time=0,
        data_change=False,
    )


# How it is read


def as_recorded(table: Snapshot) -> Snapshot:
    """Return the table with the feed's columns, as its change data files have them."""
    return _with_columns(table, [_TYPE], _COMMIT)


def as_derived(table: Snapshot) -> Snapshot:
    """Return the table with the feed's columns, none of which its data files have."""
    return _with_columns(table, [], [_TYPE, *_COMMIT])


def _with_columns(table: Snapshot, data: Sequence[Field], partition: Sequence[Field]) -> Snapshot:
    """Return the table with more columns: `data` in its files, `partition` in their partition
    values.
    """
    schema = Struct((*table.schema.fields, *data, *partition))
    metadata = msgspec.structs.replace(
        without_row_tracking(table.metadata),
        schema_string=schema_to_string(schema),
        partition_columns=(*table.partition_columns, *(item.name for item in partition)),
    )
    return replace(table.apply([metadata]))


def _parts(
    make: Callable[[], Snapshot], told: Sequence[FeedFile], count_rows: CountRows
) -> Iterator[FeedPart]:
    """Yield the files in as few parts as possible: a scan takes each path once."""
    layers: list[list[FeedFile]] = []
    seen: dict[str, int] = {}
    for one in told:
        path = canonical_path(one.file.path)
        layer = seen.get(path, 0)
        seen[path] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(one)
    for layer_of in layers:
        yield FeedPart(
            snapshot=make(),
            files=files_table([with_feed_columns(one) for one in layer_of]),
            deleted={
                place: other_positions(one.only, count_rows(one.file))
                for place, one in enumerate(layer_of)
                if one.only is not None
            },
        )


def with_feed_columns(one: FeedFile) -> Add:
    """Return the file with the feed's columns among its partition values."""
    moment = datetime.fromtimestamp(one.timestamp_ms / 1000, UTC)
    values: dict[str, str | None] = {
        **one.file.partition_values,
        COMMIT_VERSION: str(one.version),
        COMMIT_TIMESTAMP: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if one.change_type is not None:
        values[CHANGE_TYPE] = one.change_type
    return msgspec.structs.replace(one.file, partition_values=values)
