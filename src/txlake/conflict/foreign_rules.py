"""Rules for commits of other engines: whether one may follow a table's newest version.

Owns what a catalog can't trust a foreign writer to do right: the commit's time increases, it drops
nothing of the protocol, the table's identity stays, deleted rows stay deleted, and row ids are new.
`commit.validation` has the rules for every commit. Source: PROTOCOL.md, "In-Commit
Timestamps", "Catalog-managed tables", "Deletion Vectors", "Row Tracking";
docs/internals/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pyroaring import BitMap64

from txlake.conflict.positions import Vectors
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_key, canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
)
from txlake.protocol.identity import marks_of
from txlake.protocol.paths import decode_path
from txlake.protocol.properties import is_true
from txlake.protocol.statistics import FileStatistics

# It brings back files as they were: rows that were deleted since, and ids that were theirs.
_RESTORE = "RESTORE"
_SUSPENDED = "delta.rowTrackingSuspended"
_TRACKS_ROWS = "delta.enableRowTracking"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCommit:
    """A commit that another engine staged.

    Attributes:
        version: the version that it is to create.
        actions: its actions, in order.
        timestamp_ms: its time according to the request, milliseconds since the epoch.
        catalog_owned: names of metadata domains and properties that only the catalog may change.
        removable: those of these properties that may be removed, though not changed.
    """

    version: int
    actions: tuple[Action, ...]
    timestamp_ms: int
    catalog_owned: frozenset[str] = frozenset()
    removable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a commit may not follow.

    `is_permanent`: it changes what the catalog owns, so that a repetition on a newer version is
    refused too.
    """

    reason: str
    is_permanent: bool


def find_refusal(commit: ForeignCommit, before: Snapshot, vectors: Vectors) -> Refusal | None:
    """Return why the commit would make the table inconsistent; None if it may follow.

    The first of RULES that it breaks is the reason. `before` is the table at the previous version;
    `vectors` reads deletion vectors.
    """
    case = _CommitCheck(commit, before, vectors)
    told = ((rule, rule(case)) for rule in RULES)
    return next((Refusal(why, rule in PERMANENT) for rule, why in told if why is not None), None)


@dataclass(frozen=True)
class _CommitCheck:
    commit: ForeignCommit
    before: Snapshot
    vectors: Vectors

    @cached_property
    def after(self) -> Snapshot:
        """The table with the commit's metadata and protocol, and the files before it."""
        kinds = Metadata | Protocol
        return self.before.apply([one for one in self.commit.actions if isinstance(one, kinds)])

    @cached_property
    def info(self) -> CommitInfo:
        return next((one for one in self.commit.actions if isinstance(one, CommitInfo)), _NO_INFO)

    @property
    def added(self) -> Iterator[Add]:
        return (one for one in self.commit.actions if isinstance(one, Add))

    @cached_property
    def removed(self) -> dict[str, Remove]:
        """The removed files by canonical path."""
        found = (one for one in self.commit.actions if isinstance(one, Remove))
        return {canonical_path(file.path): file for file in found}

    @property
    def is_restore(self) -> bool:
        return self.info.text("operation") == _RESTORE


_NO_INFO = CommitInfo({})


def commit_info_is_complete(case: _CommitCheck) -> str | None:
    """Return an error unless one commitInfo comes first, with a transaction id and the commit's
    time.
    """
    actions = case.commit.actions
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    if len(infos) != 1 or actions[0] is not infos[0]:
        return f"expected one commitInfo, as the first action; found {len(infos)}"
    if not case.info.text("txnId"):
        return f"commitInfo: expected a txnId, found {case.info.values.get('txnId')!r}"
    told = case.info.in_commit_timestamp_ms
    if told is None:
        found = case.info.values.get("inCommitTimestamp")
        return f"commitInfo: expected an inCommitTimestamp in milliseconds, found {found!r}"
    if told != case.commit.timestamp_ms:
        return f"the request says it happened at {case.commit.timestamp_ms}, its commitInfo {told}"
    return None


def timestamp_increases(case: _CommitCheck) -> str | None:
    """Return an error for an in-commit timestamp that isn't later than that of the previous
    version.

    None if one of the two has none.
    """
    before, now = case.before.in_commit_timestamp_ms, case.info.in_commit_timestamp_ms
    if before is not None and now is not None and now <= before:
        return (
            f"inCommitTimestamp {now} isn't later than {before}, that of version "
            f"{case.before.version}"
        )
    return None


def settings_set_once(case: _CommitCheck) -> str | None:
    """Return an error for more than one protocol or metaData action."""
    for kind, name in ((Protocol, "protocol"), (Metadata, "metaData")):
        count = sum(isinstance(action, kind) for action in case.commit.actions)
        if count > 1:
            return f"expected at most one {name}, found {count}"
    return None


def features_not_dropped(case: _CommitCheck) -> str | None:
    """Return an error for a commit that drops a table feature or lowers a protocol version."""
    old, new = case.before.protocol, case.after.protocol
    dropped = case.before.features - case.after.features
    if dropped:
        return f"it drops the table features {', '.join(sorted(dropped))}"
    if (new.min_reader_version, new.min_writer_version) < (
        old.min_reader_version,
        old.min_writer_version,
    ):
        return (
            f"it lowers the protocol from ({old.min_reader_version}, {old.min_writer_version}) to "
            f"({new.min_reader_version}, {new.min_writer_version})"
        )
    return None


def table_identity_unchanged(case: _CommitCheck) -> str | None:
    """Return an error for another table id or partition columns, and changed catalog-owned
    settings.

    The partition columns may change if the commit removes all files, and catalog-owned properties
    that are `removable` may be removed.
    """
    old, new = case.before.metadata, case.after.metadata
    if new.id != old.id:
        return f"its metaData is of table {new.id}, and this is {old.id}"
    live = len(case.before.files) - len(case.removed)
    if new.partition_columns != old.partition_columns and live > 0:
        return (
            f"it partitions by {list(new.partition_columns)} a table that is partitioned by "
            f"{list(old.partition_columns)}"
        )
    for key in sorted(case.commit.catalog_owned):
        found = new.configuration.get(key)
        is_gone = found is None and key in case.commit.removable
        if found != old.configuration.get(key) and not is_gone:
            return f"it changes the table property {key!r}, which is the catalog's"
    for action in case.commit.actions:
        if isinstance(action, DomainMetadata) and action.domain in case.commit.catalog_owned:
            return f"it changes the metadata domain {action.domain!r}, which is the catalog's"
    return None


def deleted_rows_stay_deleted(case: _CommitCheck) -> str | None:
    """Return an error if a file's new deletion vector lacks rows of the old one, except in a
    RESTORE.

    A file that is listed again without a vector lacks them all. A vector that can't be read is an
    error too.
    """
    if case.is_restore:
        return None
    for file in case.added:
        known = case.before.files.by_path(file.path)
        if known is None or known.deletion_vector is None or known.key == file.key:
            continue
        old, new = _positions(case, known.deletion_vector), _positions(case, file.deletion_vector)
        if isinstance(old, str) or isinstance(new, str):
            reason = old if isinstance(old, str) else new
            return f"file {decode_path(file.path)!r}: its deletion vector can't be read: {reason}"
        lost = len(old - new)
        if lost:
            return (
                f"file {decode_path(file.path)!r}: {lost} rows that are deleted at version "
                f"{case.before.version} are back in its new deletion vector"
            )
    return None


def vectors_are_readable(case: _CommitCheck) -> str | None:
    """Return an error if a new deletion vector can't be read, or has another count than it
    states.
    """
    for file in case.added:
        vector = file.deletion_vector
        if vector is None or canonical_key(file.key) in case.before.files:
            continue
        found = _positions(case, vector)
        name = decode_path(file.path)
        if isinstance(found, str):
            return f"file {name!r}: its deletion vector can't be read: {found}"
        if len(found) != vector.cardinality:
            return (
                f"file {name!r}: its deletion vector has {len(found)} rows, and says that it has "
                f"{vector.cardinality}"
            )
    return None


def _positions(case: _CommitCheck, vector: DeletionVector | None) -> BitMap64 | str:
    """Return the deleted rows, none for None, or as text why they can't be read."""
    if vector is None:
        return BitMap64()
    try:
        return case.vectors.of(vector)
    except (CorruptTable, InvalidRequest) as error:
        return str(error)


def row_ids_are_new(case: _CommitCheck) -> str | None:
    """Return an error for missing or used ids of rows of new files, or other ids of files that are
    listed again.

    Also for a high-water mark below the new ids, and files without ids when row tracking is turned
    on. Only where the table has the feature rowTracking, and it isn't suspended. A RESTORE may list
    files again with their earlier ids. Source: PROTOCOL.md, "Row IDs", "Row Commit Versions".
    """
    configuration = case.after.metadata.configuration
    if "rowTracking" not in case.after.features or is_true(configuration, _SUSPENDED):
        return None
    mark, told = case.before.row_id_high_water_mark, _high_water_mark(case)
    if isinstance(told, str):
        return told
    fresh: list[tuple[int, int, str]] = []
    for file in case.added:
        found = _new_row_ids(case, file, mark)
        if isinstance(found, str):
            return f"file {decode_path(file.path)!r}: {found}"
        if found is not None:
            fresh.append((*found, decode_path(file.path)))
    reason = _overlap(fresh)
    if reason is not None:
        return reason
    highest = max((end for _, end, _ in fresh), default=mark)
    if told < highest:
        return f"row ids up to {highest} are given, and the high-water mark is {told}"
    return _files_without_ids(case)


def _high_water_mark(case: _CommitCheck) -> int | str:
    """Return the high-water mark after the commit, or as text what is wrong with it."""
    before = case.before.row_id_high_water_mark
    domains = [one for one in case.commit.actions if isinstance(one, DomainMetadata)]
    try:
        after = case.before.apply(domains).row_id_high_water_mark
    except CorruptTable as error:
        return str(error)
    if after < before:
        return f"the high-water mark of row ids goes back from {before} to {after}"
    return after


def _new_row_ids(case: _CommitCheck, file: Add, mark: int) -> tuple[int, int] | str | None:
    """Return the first and last id of a new file's rows; None for rows that had ids before.

    Text is the reason why the ids are wrong. `mark` is the high-water mark before the commit.
    """
    known = case.before.files.by_path(file.path)
    base, since = file.base_row_id, file.default_row_commit_version
    if known is not None and known.base_row_id is not None:
        if (base, since) != (known.base_row_id, known.default_row_commit_version):
            return (
                f"its rows have the ids from {known.base_row_id} (version "
                f"{known.default_row_commit_version}), and it lists them from {base} ({since})"
            )
        return None
    if base is None or since is None:
        return "expected a baseRowId and a defaultRowCommitVersion: the table tracks rows"
    if case.is_restore and known is None and base <= mark:
        return None
    if base <= mark:
        return f"baseRowId {base} isn't beyond {mark}, the high-water mark: the ids are others'"
    if since != case.commit.version:
        return f"expected defaultRowCommitVersion {case.commit.version}, found {since}"
    try:
        count = FileStatistics.from_json(file.stats).num_records
    except CorruptTable as error:
        return str(error)
    if count is None:
        return "its statistics don't state numRecords, which a table that tracks rows needs"
    return base, base + max(count, 1) - 1


def _overlap(fresh: Sequence[tuple[int, int, str]]) -> str | None:
    """Return as text which files have row ids in common; None if none have. Each has its first id,
    last id and name.
    """
    ordered = sorted(fresh)
    for (_, end, one), (start, _, other) in pairwise(ordered):
        if start <= end:
            return f"files {one!r} and {other!r} have row ids in common"
    return None


def _files_without_ids(case: _CommitCheck) -> str | None:
    """Return an error if the commit turns row tracking on and some file has no ids."""
    old, new = case.before.metadata.configuration, case.after.metadata.configuration
    if is_true(old, _TRACKS_ROWS) or not is_true(new, _TRACKS_ROWS):
        return None
    live = case.before.files.apply(
        list(case.added), [canonical_key(file.key) for file in case.removed.values()]
    )
    lacking = live.columns("base_row_id")["base_row_id"].null_count
    return f"it turns row tracking on, and {lacking} files have no row ids" if lacking else None


def identity_marks_unchanged(case: _CommitCheck) -> str | None:
    """Return an error for a changed high-water mark of an identity column, a new or removed one
    included, and for columns that can't be read.

    The lake's catalog reserves these values: those that another engine generates may be reserved
    for a transaction of the lake already. Source: PROTOCOL.md, "Identity Columns".
    """
    if case.after.metadata.schema_string == case.before.metadata.schema_string:
        return None
    try:
        old = marks_of(case.before.schema, case.before.table)
        new = marks_of(case.after.schema, case.before.table)
    except CorruptTable as error:
        return str(error)
    moved = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if not moved:
        return None
    return (
        f"it gives values of the identity column {moved[0]!r}, which this lake's catalog gives "
        "out; insert the rows by txlake"
    )


Rule = Callable[[_CommitCheck], str | None]
RULES: tuple[Rule, ...] = (
    commit_info_is_complete,
    timestamp_increases,
    settings_set_once,
    features_not_dropped,
    table_identity_unchanged,
    vectors_are_readable,
    deleted_rows_stay_deleted,
    row_ids_are_new,
    identity_marks_unchanged,
)

PERMANENT: frozenset[Rule] = frozenset({table_identity_unchanged, identity_marks_unchanged})
"""The rules over what is the catalog's."""
