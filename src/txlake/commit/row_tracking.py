"""Row ids and row commit versions of the files that a commit lists.

Owns their assignment, done anew at every attempt from the state that the attempt follows, so that
no two commits ever hand out one id. Source: PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from txlake.conflict.footprint import Footprint
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.ports import IdentityMarks
from txlake.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove
from txlake.protocol.features import supported_features
from txlake.protocol.properties import is_true

ENABLE = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
PRESERVED_TAG = "delta.rowTracking.preserved"


_BLOCK_BITS = 36
_BLOCK_COLUMN = "row ids"  # no column's digest, which is hexadecimal
_BLOCKS = 2 ** (63 - _BLOCK_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIds:
    """The row ids of a commit on a branch, or of one that publishes a branch.

    Attributes:
        first: new ids begin there if the mark is smaller; 0: they follow the mark.
        spans: first and last of ids that the published branch has handed out.
        up_to: its high-water mark; -1 if it has handed out none.
    """

    first: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    up_to: int = -1

    def has(self, row_id: int) -> bool:
        """Return whether the published branch has handed out this id."""
        return any(first <= row_id <= last for first, last in self.spans)


NO_ROW_IDS = RowIds()


def reserve_ids(book: IdentityMarks, table_id: str, high_water_mark: int, table: str) -> int:
    """Reserve a block of row ids for a commit on a branch, and return its first one.

    A block has as many ids as no commit needs, so that main, which continues after its mark, and
    the branches never hand out the same. It comes after the last one that was reserved for a table
    of the lake, and after the one with the table's high-water mark; nobody gets it again. Raises
    UnsupportedFeature if there are no more.
    """
    reserved = 0

    def after(last: int | None) -> int:
        nonlocal reserved
        reserved = block_after(last or 0, high_water_mark)
        return reserved

    book.advance(table_id, _BLOCK_COLUMN, after)
    return first_in(reserved, table)


def block_after(last: int, high_water_mark: int) -> int:
    """Return the number of a block of row ids after the last one that was reserved for a table, and
    after the one with the table's high-water mark.
    """
    return max(last, high_water_mark >> _BLOCK_BITS) + 1


def first_in(block: int, table: str) -> int:
    """Return the first row id of a block. Raises UnsupportedFeature if there is no such block."""
    if block >= _BLOCKS:
        raise UnsupportedFeature(
            f"{table}: its branches have used all {_BLOCKS:,} blocks of row ids; write on main, or "
            "turn delta.enableRowTracking off"
        )
    return block << _BLOCK_BITS


def needs_ids(
    actions: Iterable[Action], protocol: Protocol, configuration: Mapping[str, str]
) -> bool:
    """Return whether a commit hands out row ids, as far as its own files go."""
    return assigns(protocol, configuration) and any(
        isinstance(action, Metadata) or (isinstance(action, Add) and action.base_row_id is None)
        for action in actions
    )


def ids_of(base: Snapshot, head: Snapshot, commits: Iterable[Sequence[Action]]) -> RowIds:
    """Return the row ids that a branch's commits between two versions have handed out."""
    mark = base.row_id_high_water_mark
    if head.row_id_high_water_mark == mark:
        return NO_ROW_IDS
    spans = {
        (action.base_row_id, action.base_row_id + (num_records(action.stats) or 1) - 1)
        for actions in commits
        for action in actions
        if isinstance(action, Add) and action.base_row_id is not None and action.base_row_id > mark
    }
    return RowIds(spans=tuple(sorted(spans)), up_to=head.row_id_high_water_mark)


class _Count(msgspec.Struct):
    num_records: int | None = msgspec.field(default=None, name="numRecords")


_COUNTS = msgspec.json.Decoder(_Count)


def num_records(stats: str | None) -> int | None:
    """Return the number of rows that a file's statistics state, deleted ones included; else
    None.
    """
    if not stats:
        return None
    try:
        return _COUNTS.decode(stats).num_records
    except msgspec.MsgspecError:
        return None


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether every row has an id that readers may rely on."""
    return is_true(configuration, ENABLE)


def contradiction(configuration: Mapping[str, str]) -> str | None:
    """Return an error text if row ids are enabled but not assigned; None otherwise."""
    if not (is_enabled(configuration) and is_true(configuration, SUSPENDED)):
        return None
    return (
        f"{ENABLE!r} and {SUSPENDED!r} are both 'true', so that rows would be written without the "
        f"ids on which readers rely; set {SUSPENDED!r} to 'false' (every row then gets an id), or "
        f"{ENABLE!r} to 'false' [DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION]"
    )


def assigns(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether files get row ids when they are listed."""
    suspended = is_true(configuration, SUSPENDED)
    return "rowTracking" in supported_features(protocol) and not suspended


def kept(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a replacement of the table keeps: row tracking stays on.

    Empty if row tracking is off.
    """
    return {ENABLE: "true"} if is_enabled(configuration) else {}


def with_columns(metadata: Metadata, new_ids: Iterable[str]) -> Metadata:
    """Return the metadata with names for hidden columns that lack one, with row tracking.

    `new_ids` yields fresh UUIDs, which make the names unique for ever. Without row tracking nothing
    is changed.
    """
    configuration = dict(metadata.configuration)
    if not is_enabled(configuration):
        return metadata
    ids = iter(new_ids)
    for key, prefix in (
        (ROW_ID_COLUMN, "_row-id-col-"),
        (COMMIT_VERSION_COLUMN, "_row-commit-version-col-"),
    ):
        if not configuration.get(key):
            configuration[key] = prefix + next(ids)
    return msgspec.structs.replace(metadata, configuration=configuration)


def preserved_tag(footprint: Footprint, base: Snapshot, metadata: Metadata) -> Mapping[str, str]:
    """Return the commitInfo tag that says whether rows kept their ids; none without row tracking.

    They did if no row was copied. Copied rows kept theirs in the hidden columns, if these had names
    in the version read.
    """
    if not is_enabled(metadata.configuration):
        return {}
    removed = {file.path for file in footprint.removed}
    copied = bool(removed) and any(file.path not in removed for file in footprint.added)
    kept = not copied or is_enabled(base.metadata.configuration)
    return {PRESERVED_TAG: "true" if kept else "false"}


def assign(
    actions: Iterable[Action],
    previous: Snapshot,
    version: int,
    *,
    protocol: Protocol,
    metadata: Metadata,
    ids: RowIds = NO_ROW_IDS,
) -> tuple[Action, ...]:
    """Return the actions with row ids, and the new high-water mark where ids were handed out.

    `previous` is the state at `version` - 1; `protocol` and `metadata` are those in force after
    this commit. A file that is listed again keeps its ids. Turning row tracking on lists all files
    again that have none. Raises InvalidRequest when a new file doesn't state its number of rows,
    and when ids of a published branch were handed out by others too.
    """
    actions = tuple(actions)
    if not assigns(protocol, metadata.configuration):
        return actions
    mark_before = previous.row_id_high_water_mark
    mark = max(mark_before, ids.up_to)
    _require_own(ids, previous)
    listed: list[Action] = []
    for action in (*actions, *_unnumbered(actions, previous, metadata)):
        if isinstance(action, Add):
            action, mark = _numbered(action, previous, version, mark, ids)
        elif isinstance(action, Remove):
            action = _as_listed(action, previous)
        listed.append(action)
    if mark > mark_before:
        configuration = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
        listed.append(
            DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=configuration, removed=False)
        )
    return tuple(listed)


def _require_own(ids: RowIds, previous: Snapshot) -> None:
    """Raise InvalidRequest if a file of the version before has an id of a published branch."""
    if not ids.spans or previous.row_id_high_water_mark < ids.spans[0][0]:
        return
    for file in previous.files.adds():
        if file.base_row_id is None:
            continue
        last = file.base_row_id + (num_records(file.stats) or 1) - 1
        if any(file.base_row_id <= end and first <= last for first, end in ids.spans):
            raise InvalidRequest(
                f"{previous.table}: file {file.path} has row ids from {file.base_row_id} on, which "
                "the branch has given to other rows; run its statements again on a new branch"
            )


def _unnumbered(
    actions: Iterable[Action], previous: Snapshot, metadata: Metadata
) -> tuple[Add, ...]:
    """Return the live files without row ids, if the commit enables row tracking."""
    sets_metadata = any(isinstance(action, Metadata) for action in actions)
    if previous.version < 0 or not sets_metadata or not is_enabled(metadata.configuration):
        return ()
    before = previous.metadata.configuration
    if is_enabled(before) and assigns(previous.protocol, before):
        return ()
    touched = {action.path for action in actions if isinstance(action, Add | Remove)}
    return tuple(
        msgspec.structs.replace(file, data_change=False)
        for file in previous.files.adds()
        if file.path not in touched
        and (file.base_row_id is None or file.default_row_commit_version is None)
    )


def _numbered(
    file: Add, previous: Snapshot, version: int, mark: int, ids: RowIds
) -> tuple[Add, int]:
    """Return the file with row ids and a commit version, and the high-water mark after it.

    A file of `previous` keeps its ids. Of another file, ids up to the mark of `previous` and those
    of a published branch are kept; other ones and missing ones are assigned anew, and follow
    `mark`. Raises InvalidRequest if the statistics of a file that gets ids don't state numRecords.
    """
    before = previous.files.by_path(file.path)
    row_id = file.base_row_id if before is None else before.base_row_id
    commit_version = (file if before is None else before).default_row_commit_version
    if file.base_row_id is not None and ids.has(file.base_row_id):
        row_id = file.base_row_id  # also if the branch is the first to number the table's files
    elif row_id is not None and row_id > previous.row_id_high_water_mark:
        row_id = None
    if row_id is None:
        rows = num_records(file.stats)
        if rows is None:
            raise InvalidRequest(
                f"{previous.table}: file {file.path}: the table tracks rows, and the file's "
                "statistics don't state numRecords; write it with statistics"
            )
        row_id = max(mark + 1, ids.first)
        mark = row_id + rows - 1
        commit_version = commit_version if before is not None else None
    return (
        msgspec.structs.replace(
            file,
            base_row_id=row_id,
            default_row_commit_version=version if commit_version is None else commit_version,
        ),
        mark,
    )


def _as_listed(file: Remove, previous: Snapshot) -> Remove:
    """Return the removed file with the row ids that it was listed with."""
    before = previous.files.by_path(file.path)
    if before is None:
        return file
    return msgspec.structs.replace(
        file,
        base_row_id=before.base_row_id,
        default_row_commit_version=before.default_row_commit_version,
    )
