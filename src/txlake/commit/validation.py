"""Checks of a statement's actions before they are staged on a snapshot.

`metadata_validation` owns those of metadata and protocol. Every error is an InvalidRequest that
says what to change. Source: PROTOCOL.md, "Actions", "Requirements for Writers".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from txlake.commit.feed_rules import FEED, has_feed, reserved_column
from txlake.commit.in_commit_time import ENABLE as TIMES
from txlake.commit.in_commit_time import is_enabled
from txlake.commit.membership import (
    DOMAIN,
    TABLE_ID,
    is_catalog_managed,
    is_open,
)
from txlake.commit.metadata_validation import complete_metadata, protocol_to_set
from txlake.commit.row_tracking import (
    COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    contradiction,
)
from txlake.datafiles.write_task import CHANGE_FOLDER
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_key
from txlake.log.snapshot import Snapshot
from txlake.ports import System
from txlake.protocol import iceberg
from txlake.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from txlake.protocol.features import CATALOG_FEATURE, CATALOG_MANAGED
from txlake.protocol.partition_values import check_value
from txlake.protocol.paths import decode_path
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field, Struct

_Setting = TypeVar("_Setting", Metadata, Protocol)
_STAGEABLE = (Add, Remove, Cdc, Metadata, Protocol, Txn, DomainMetadata)
_EMPTY_IS_NULL = ": the table is partitioned by it, and a partition's empty text is NULL"
# They bring back files as they were: vectors come back too where new ones would not be made.
_OLD_VECTORS = frozenset({"RESTORE", "CLONE"})


def complete_actions(
    actions: Sequence[Action],
    snapshot: Snapshot,
    system: System,
    *,
    may_drop_features: bool = False,
    brings_back: bool = False,
    unmaps: bool = False,
) -> tuple[Action, ...]:
    """Return the actions with what a caller may omit: column ids, hidden columns, the protocol.

    `brings_back`, `unmaps`: as in `Change`. Raises InvalidRequest for invalid metadata or an
    invalid protocol.
    """
    table = snapshot.table
    given = _only(actions, Metadata, snapshot)
    protocol = _only(actions, Protocol, snapshot)
    before = snapshot if snapshot.has_metadata else None
    if given is None and before is None:
        raise InvalidRequest(
            f"{table}: there is no table yet: the first commit needs a metaData action"
        )
    metadata = None
    if given is not None:
        metadata = complete_metadata(
            given,
            before,
            system.new_id,
            replaces=_replaces(given, actions, snapshot, unmaps=unmaps),
            brings_back=brings_back,
            table=table,
        )
    wanted = None
    if given is not None or protocol is not None:
        wanted = protocol_to_set(
            given or snapshot.metadata,
            protocol,
            snapshot.protocol if snapshot.has_protocol else None,
            table=table,
            may_drop_features=may_drop_features,
        )
    rest = [action for action in actions if not isinstance(action, Metadata | Protocol)]
    settings: list[Action] = [action for action in (wanted, metadata) if action is not None]
    return (*settings, *rest)


def _replaces(
    metadata: Metadata, actions: Sequence[Action], snapshot: Snapshot, *, unmaps: bool
) -> bool:
    """Return whether the metadata is another table's, or unmapped, and no file stays."""
    if metadata.id == snapshot.metadata.id and not unmaps:
        return False
    removed = {canonical_key(action.key) for action in actions if isinstance(action, Remove)}
    return all(canonical_key(file.key) in removed for file in snapshot.files.adds())


def _only(actions: Sequence[Action], kind: type[_Setting], snapshot: Snapshot) -> _Setting | None:
    found = [action for action in actions if isinstance(action, kind)]
    if len(found) > 1:
        name = "metaData" if kind is Metadata else "protocol"
        raise InvalidRequest(
            f"{snapshot.table}: expected at most one {name} action, found {len(found)}"
        )
    return found[0] if found else None


def validate(
    actions: Sequence[Action],
    snapshot: Snapshot,
    *,
    operation: str = "",
    is_foreign: bool = False,
) -> None:
    """Raise InvalidRequest or UnsupportedFeature unless the actions may follow the snapshot.

    `is_foreign`: they are another engine's commit as a whole, with what txlake writes into its own.
    """
    for action in actions:
        is_whole = is_foreign and isinstance(action, CommitInfo)
        if not isinstance(action, _STAGEABLE) and not is_whole:
            raise InvalidRequest(
                f"{snapshot.table}: {type(action).__name__} is txlake's to write; leave it out"
            )
    after = snapshot.apply([a for a in actions if isinstance(a, Metadata | Protocol)])
    after.require_writable()
    request = _Request(tuple(actions), snapshot, after, operation)
    for rule in RULES:
        if not (is_foreign and rule is row_ids_are_ours):
            rule(request)


def check_removable(snapshot: Snapshot) -> None:
    """Raise InvalidRequest when the table is append-only. Source: "Append-only Tables"."""
    if snapshot.properties.append_only and "appendOnly" in snapshot.features:
        raise InvalidRequest(
            f"{snapshot.table} at version {snapshot.version}: the table only takes appends "
            "(delta.appendOnly = true); rows can't be deleted or updated"
        )


@dataclass(frozen=True)
class _Request:
    """A list of actions, the state before it, and that state with its metadata and protocol."""

    actions: tuple[Action, ...]
    before: Snapshot
    after: Snapshot
    operation: str

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


def settings_are_understood(request: _Request) -> None:
    """Require understood table properties before files are added or removed.

    A change of settings alone is allowed, so that they can be repaired.
    """
    if request.added or request.removed:
        request.after.properties.require_writable()
        wrong = contradiction(request.after.metadata.configuration)
        if wrong is not None:
            raise request.refuse(wrong)


def paths_are_data(request: _Request) -> None:
    """Require a path outside of the log's folder for every file."""
    files: list[Add | Remove] = [*request.added, *request.removed]
    for file in files:
        if not file.path or file.path.startswith("_delta_log/"):
            raise request.refuse_file(file, "expected the path of a data file")
    for added in request.added:
        if added.size < 0:
            raise request.refuse_file(added, f"expected a size in bytes, found {added.size}")


def app_ids_once(request: _Request) -> None:
    """Require one version for each application id."""
    versions: dict[str, int] = {}
    for action in request.actions:
        if isinstance(action, Txn):
            known = versions.setdefault(action.app_id, action.version)
            if known != action.version:
                raise request.refuse(
                    f"application id {action.app_id!r} is set to {known} and to {action.version}"
                )


def domains_once(request: _Request) -> None:
    """Require that a metadata domain is set once, in a table with the feature."""
    seen: set[str] = set()
    for action in request.actions:
        if not isinstance(action, DomainMetadata):
            continue
        if action.domain in seen:
            raise request.refuse(f"metadata domain {action.domain!r} is set twice")
        seen.add(action.domain)
        is_leaving = action.removed and action.domain in request.before.domains
        if "domainMetadata" not in request.after.features and not is_leaving:
            raise request.refuse(
                f"metadata domain {action.domain!r}: the table lacks the feature domainMetadata; "
                "set delta.feature.domainMetadata to 'supported' first"
            )


def membership_is_whole(request: _Request) -> None:
    """Require that the table feature and the name of the catalog are set together."""
    domains = dict.fromkeys(request.before.domains, False)
    domains |= {a.domain: a.removed for a in request.actions if isinstance(a, DomainMetadata)}
    was, will_be = (
        is_catalog_managed(request.before.protocol),
        is_catalog_managed(request.after.protocol),
    )
    was_said, is_said = (
        is_in_domain or DOMAIN in state.metadata.configuration
        for is_in_domain, state in (
            (DOMAIN in request.before.domains, request.before),
            (not domains.get(DOMAIN, True), request.after),
        )
    )
    was_open = request.before.version < 0 or is_open(request.before.protocol)
    if was_open and _names_itself(request.after) and not domains.get(DOMAIN, False):
        return
    is_touched = was != will_be or was_said != is_said
    if is_touched and will_be != is_said:
        raise request.refuse(
            f"the table feature {CATALOG_FEATURE} and the metadata domain {DOMAIN} come and go "
            "together: attach the table to a lake, or detach it there, which does both"
        )


def _names_itself(snapshot: Snapshot) -> bool:
    """Return whether an open table has its id, but not its lake."""
    return is_open(snapshot.protocol) and TABLE_ID in snapshot.metadata.configuration


def open_tables_stay_whole(request: _Request) -> None:
    """Require in-commit timestamps and an unchanged table id of open tables.

    Source: PROTOCOL.md, "Writer Requirements for Catalog-managed tables".
    """
    if not is_open(request.after.protocol):
        return
    configuration = request.after.metadata.configuration
    if not is_enabled(configuration):
        raise request.refuse(
            f"table property {TIMES!r}: expected 'true', as the table feature {CATALOG_MANAGED} "
            f"asks for it, found {configuration.get(TIMES)!r}"
        )
    known = request.before.metadata.configuration.get(TABLE_ID)
    found = configuration.get(TABLE_ID)
    if found is None or (known is not None and found != known):
        raise request.refuse(
            f"table property {TABLE_ID!r}: the lake's catalog sets it, and it stays "
            f"{known or 'that'}; found {found!r}"
        )


def files_once(request: _Request) -> None:
    """Require that a path is added once, removed once, and one file isn't both."""
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


def removed_files_are_live(request: _Request) -> None:
    """Require that removed files are in the table."""
    for file in request.removed:
        if file.key not in request.before.files:
            raise request.refuse_file(file, "it can't be removed: it isn't in the table")


def added_files_are_alone(request: _Request) -> None:
    """Require that a path is in the table once, whatever its deletion vector."""
    removed = {file.key for file in request.removed}
    live = request.before.files
    for file in request.added:
        other = live.by_path(file.path)
        if other is not None and other.key not in removed and file.key not in live:
            raise request.refuse_file(
                file, "it is in the table with another deletion vector; remove that entry too"
            )


def partition_values_fit(request: _Request) -> None:
    """Require one valid value for each partition column, by its physical name."""
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


def append_only(request: _Request) -> None:
    """Refuse to delete rows of an append-only table."""
    if any(file.data_change for file in request.removed):
        check_removable(request.after)


def vectors_allowed(request: _Request) -> None:
    """Allow new deletion vectors only where they are enabled, with the number of rows.

    Source: PROTOCOL.md, "Writer Requirement for Deletion Vectors".
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
        if _statistics(request, file).num_records is None:
            raise request.refuse_file(
                file, "it has a deletion vector, and its statistics don't state numRecords"
            )


def iceberg_is_kept(request: _Request) -> None:
    """Require what Iceberg's readers need: metadata, no vectors, files' numbers of rows.

    Source: PROTOCOL.md, "Writer Requirements for IcebergCompatV2".
    """
    before, after = request.before, request.after
    if not after.is_iceberg_compatible:
        return
    if not before.is_iceberg_compatible:
        removed = {file.key for file in request.removed}
        marked = [
            file
            for file in before.files.adds()
            if file.deletion_vector is not None and file.key not in removed
        ]
        if marked:
            raise request.refuse(
                f"icebergCompatV2 goes without deletion vectors, and {len(marked)} files have one; "
                "set 'delta.enableDeletionVectors' to 'false' and run REORG TABLE ... APPLY "
                "(PURGE) first [DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_NOT_PURGED]"
            )
    if not request.added:
        return
    wrong = iceberg.violation(after.metadata)
    if wrong is not None:
        raise request.refuse(wrong)
    for file in request.added:
        if _statistics(request, file).num_records is None:
            raise request.refuse_file(
                file, "icebergCompatV2 needs numRecords in its statistics, and they don't state it"
            )
        if file.deletion_vector is not None and file.key not in before.files:
            raise request.refuse_file(
                file, "it has a deletion vector, and icebergCompatV2 goes without; rewrite the file"
            )


def statistics_fit(request: _Request) -> None:
    """Require statistics that are a JSON object, of the table's columns for new files."""
    if not request.added:
        return
    after = request.after
    hidden = {after.metadata.configuration.get(k) for k in (ROW_ID_COLUMN, COMMIT_VERSION_COLUMN)}
    names = {item.physical_name for item in after.schema} | hidden
    checks_names = bool(after.schema.fields) and after.column_mapping_mode == "none"
    for file in request.added:
        found = _statistics(request, file)
        bounds = (found.min_values, found.max_values, found.null_count)
        unknown = [name for columns in bounds for name in columns if name not in names]
        if checks_names and unknown and request.before.files.by_path(file.path) is None:
            raise request.refuse_file(
                file,
                "its statistics are of columns that the table doesn't have: "
                + ", ".join(sorted(set(unknown))),
            )


def not_null(request: _Request) -> None:
    """Refuse NULL in NOT NULL columns, as far as statistics and partition values show."""
    if not request.added:
        return
    required = tuple(_required(request.after.schema))
    if not required:
        return
    partitions = request.after.partition_columns
    for file in request.added:
        if not file.data_change or file.deletion_vector is not None:
            continue
        counts = _statistics(request, file).null_count
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
    value: object = counts
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else 0


def row_ids_are_ours(request: _Request) -> None:
    """Refuse row ids beyond the high-water mark, which the commit assigns."""
    if "rowTracking" not in request.after.features:
        return
    mark = request.before.row_id_high_water_mark
    for file in request.added:
        if file.base_row_id is not None and file.base_row_id > mark:
            raise request.refuse_file(
                file,
                f"baseRowId {file.base_row_id} is beyond the high-water mark {mark}; leave it "
                "out, the commit assigns it",
            )


def change_columns_are_free(request: _Request) -> None:
    """Refuse columns with names of the change data feed in a table with a feed."""
    if any(isinstance(action, Metadata) for action in request.actions):
        found = reserved_column(request.after)
        if found is not None:
            raise request.refuse(found)


def change_files_fit(request: _Request) -> None:
    """Require that change data files are in their folder, of a table with a feed.

    Source: PROTOCOL.md, "Add CDC File".
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


def _statistics(request: _Request, file: Add) -> FileStatistics:
    try:
        return FileStatistics.from_json(file.stats)
    except CorruptTable as error:
        raise request.refuse_file(file, str(error)) from error


Rule = Callable[[_Request], None]
RULES: tuple[Rule, ...] = (
    settings_are_understood,
    paths_are_data,
    app_ids_once,
    domains_once,
    membership_is_whole,
    open_tables_stay_whole,
    files_once,
    removed_files_are_live,
    added_files_are_alone,
    partition_values_fit,
    append_only,
    vectors_allowed,
    iceberg_is_kept,
    statistics_fit,
    not_null,
    row_ids_are_ours,
    change_columns_are_free,
    change_files_fit,
)
