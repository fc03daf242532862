"""Rules on the files that a commit adds and removes.

Each raises InvalidRequest for a commit that would leave a table which readers reject or misread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from txlake.commit.feed_rules import FEED, has_feed, reserved_column
from txlake.commit.row_tracking import COMMIT_VERSION_COLUMN, NO_ROW_IDS, ROW_ID_COLUMN, RowIds
from txlake.datafiles.write_task import CHANGE_FOLDER
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_key
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import (
    Action,
    Add,
    Cdc,
    Metadata,
    Remove,
)
from txlake.protocol.partition_values import check_value
from txlake.protocol.paths import decode_path
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field, Struct

_EMPTY_IS_NULL = ": the table is partitioned by it, and a partition's empty text is NULL"


# They bring back files as they were: vectors come back too where new ones would not be made.
_OLD_VECTORS = frozenset({"RESTORE", "CLONE"})


def files_once(request: ValidationRequest) -> None:
    """Raise InvalidRequest for a path that is added or removed twice, or one file that is both."""
    for files, name in ((request.added, "added"), (request.removed, "removed")):
        seen: set[str] = set()
        for file in files:
            if file.path in seen:
                raise request.refuse_file(file, f"it is {name} twice; name it once")
            seen.add(file.path)
    removed = {file.key for file in request.removed}
    for file in request.added:
        if file.key in removed:
            raise request.refuse_file(
                file, "it is added and removed with the same deletion vector; do one of them"
            )


def removed_files_are_live(request: ValidationRequest) -> None:
    """Raise InvalidRequest for a removed file that isn't in the table."""
    missing = request.before.files.without(file.key for file in request.removed)
    for file in request.removed:
        if canonical_key(file.key) in missing:
            raise request.refuse_file(file, "it can't be removed: it isn't in the table")


def added_files_are_alone(request: ValidationRequest) -> None:
    """Raise InvalidRequest if a path would be in the table twice, with different deletion
    vectors.
    """
    removed = {file.key for file in request.removed}
    live = request.before.files
    for file in request.added:
        other = live.by_path(file.path)
        if other is not None and other.key not in removed and file.key not in live:
            raise request.refuse_file(
                file, "it is in the table with another deletion vector; remove that entry too"
            )


def partition_values_fit(request: ValidationRequest) -> None:
    """Raise InvalidRequest unless an added file has one valid value for each partition column.

    Values are named by the columns' physical names.
    """
    if not request.added:
        return
    columns = _partition_columns(request.after)
    checked: set[tuple[str, str | None]] = set()
    for file in request.added:
        if file.partition_values.keys() != columns.keys():
            raise request.refuse_file(
                file,
                f"it has values for the partition columns {sorted(file.partition_values)}, "
                f"expected {sorted(columns)}",
            )
        for name, text in file.partition_values.items():
            if (name, text) in checked:
                continue
            checked.add((name, text))
            try:
                check_value(text, columns[name].type)
            except CorruptTable as error:
                raise request.refuse_file(file, f"partition column {name!r}: {error}") from error


def _partition_columns(after: Snapshot) -> dict[str, Field]:
    """Return the partition columns by physical name."""
    return {
        item.physical_name: item for item in after.schema if item.name in after.partition_columns
    }


def vectors_allowed(request: ValidationRequest) -> None:
    """Raise InvalidRequest for deletion vectors of tables without the feature, and new ones where
    they aren't enabled.

    Those of a RESTORE or CLONE don't count as new. Raises also if the statistics of a file with a
    vector don't state numRecords. Source: PROTOCOL.md, "Writer Requirement for Deletion Vectors".
    """
    after = request.after
    for file in request.added:
        if file.deletion_vector is None:
            continue
        if "deletionVectors" not in after.features:
            raise request.refuse_file(
                file,
                "it has a deletion vector, but the table lacks the feature deletionVectors; set "
                "delta.enableDeletionVectors to 'true' first",
            )
        is_old = file.key in request.before.files or request.operation in _OLD_VECTORS
        if not (after.properties.enable_deletion_vectors or is_old):
            raise request.refuse_file(
                file,
                "it has a new deletion vector, but delta.enableDeletionVectors isn't 'true'; "
                "rewrite the file, or set the property first",
            )
        if statistics_of(request, file).num_records is None:
            raise request.refuse_file(
                file, "it has a deletion vector, and its statistics don't state numRecords"
            )


def statistics_fit(request: ValidationRequest) -> None:
    """Raise InvalidRequest for statistics that are no JSON object, or of unknown columns in new
    files.

    Names of columns are only checked without column mapping.
    """
    if not request.added:
        return
    after = request.after
    hidden = {after.metadata.configuration.get(k) for k in (ROW_ID_COLUMN, COMMIT_VERSION_COLUMN)}
    names = {item.physical_name for item in after.schema} | hidden
    checks_names = bool(after.schema.fields) and after.column_mapping_mode == "none"
    for file in request.added:
        found = statistics_of(request, file)
        bounds = (found.min_values, found.max_values, found.null_count)
        unknown = [name for columns in bounds for name in columns if name not in names]
        if checks_names and unknown and request.before.files.by_path(file.path) is None:
            raise request.refuse_file(
                file,
                "its statistics are of columns that the table doesn't have: "
                + ", ".join(sorted(set(unknown))),
            )


def not_null(request: ValidationRequest) -> None:
    """Raise InvalidRequest for NULL in NOT NULL columns, as far as statistics and partition values
    show.

    Files with a deletion vector or without a change of data aren't checked.
    """
    if not request.added:
        return
    required = tuple(_required(request.after.schema))
    if not required:
        return
    partitions = request.after.partition_columns
    for file in request.added:
        if not file.data_change or file.deletion_vector is not None:
            continue
        counts = statistics_of(request, file).null_count
        for path, item in required:
            is_partition = len(path) == 1 and item.name in partitions
            if is_partition:
                holds_null = not file.partition_values.get(item.physical_name)
            else:
                holds_null = _count(counts, path) > 0
            if holds_null:
                name = item.name if is_partition else ".".join(path)
                reason = ("", _EMPTY_IS_NULL)[is_partition]
                raise request.refuse_file(file, f"NOT NULL of column {name!r} is violated{reason}")


def _required(
    schema: Struct, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield fields that can't be null, by physical names, in structs that can't be null."""
    for item in schema:
        if item.nullable:
            continue
        path = (*above, item.physical_name)
        if isinstance(item.type, Struct):
            yield from _required(item.type, path)
        else:
            yield path, item


def _count(counts: Mapping[str, object], path: tuple[str, ...]) -> int:
    """Return the count at the path in nested counts; 0 if it is missing."""
    value: object = counts
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else 0


def row_ids_are_ours(request: ValidationRequest) -> None:
    """Raise InvalidRequest for row ids beyond the high-water mark, which the commit assigns, unless
    the published branch has.
    """
    if "rowTracking" not in request.after.features:
        return
    mark = request.before.row_id_high_water_mark
    for file in request.added:
        row_id = file.base_row_id
        if row_id is not None and row_id > mark and not request.row_ids.has(row_id):
            raise request.refuse_file(
                file,
                f"baseRowId {row_id} is beyond the high-water mark {mark}; leave it "
                "out, the commit assigns it",
            )


def change_columns_are_free(request: ValidationRequest) -> None:
    """Raise InvalidRequest for a column with a name of the change data feed, in a table with a
    feed.

    Checked only if the metadata is set.
    """
    if any(isinstance(action, Metadata) for action in request.actions):
        found = reserved_column(request.after)
        if found is not None:
            raise request.refuse(found)


def change_files_fit(request: ValidationRequest) -> None:
    """Raise InvalidRequest for change data files of a table without a feed, or outside their
    folder.

    Also for `dataChange = true` and other partition columns than the table's. Source: PROTOCOL.md,
    "Add CDC File".
    """
    for action in request.actions:
        if not isinstance(action, Cdc):
            continue
        file = f"change data file {decode_path(action.path)!r}"
        if not has_feed(request.after):
            raise request.refuse(f"{file}: the table has no feed; set {FEED} to 'true' first")
        if not action.path.startswith(f"{CHANGE_FOLDER}/") or action.data_change:
            raise request.refuse(
                f"{file}: expected a path below {CHANGE_FOLDER}, and dataChange false"
            )
        columns = _partition_columns(request.after)
        if action.partition_values.keys() != columns.keys():
            raise request.refuse(
                f"{file}: it has values for the partition columns "
                f"{sorted(action.partition_values)}, expected {sorted(columns)}"
            )


def statistics_of(request: ValidationRequest, file: Add) -> FileStatistics:
    """Return the file's statistics. Raises InvalidRequest if they are no JSON object."""
    try:
        return FileStatistics.from_json(file.stats)
    except CorruptTable as error:
        raise request.refuse_file(file, str(error)) from error


@dataclass(frozen=True)
class ValidationRequest:
    """A list of actions, the state before it, and that state with its metadata and protocol;
    `row_ids` are those of a branch that it publishes.
    """

    actions: tuple[Action, ...]
    before: Snapshot
    after: Snapshot
    operation: str
    row_ids: RowIds = NO_ROW_IDS

    @cached_property
    def added(self) -> tuple[Add, ...]:
        return tuple(action for action in self.actions if isinstance(action, Add))

    @cached_property
    def removed(self) -> tuple[Remove, ...]:
        return tuple(action for action in self.actions if isinstance(action, Remove))

    def refuse(self, found: str) -> InvalidRequest:
        return InvalidRequest(f"{self.before.table} at version {self.before.version}: {found}")

    def refuse_file(self, file: Add | Remove, found: str) -> InvalidRequest:
        return self.refuse(f"file {decode_path(file.path)!r}: {found}")
