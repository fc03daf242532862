"""Checks of a statement's actions before they are staged on a snapshot.

`metadata_validation` owns those of metadata and protocol. The errors say what to change: an
InvalidRequest, or a CorruptTable for an invalid property of the table. Source: PROTOCOL.md,
"Actions", "Requirements for Writers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from txlake.commit.file_validation import (
    ValidationRequest,
    added_files_are_alone,
    change_columns_are_free,
    change_files_fit,
    files_once,
    not_null,
    partition_values_fit,
    removed_files_are_live,
    row_ids_are_ours,
    statistics_fit,
    statistics_of,
    vectors_allowed,
)
from txlake.commit.in_commit_time import ENABLE as TIMES
from txlake.commit.in_commit_time import is_enabled
from txlake.commit.membership import (
    DOMAIN,
    TABLE_ID,
    is_catalog_managed,
    is_open,
)
from txlake.commit.metadata_validation import complete_metadata, protocol_to_set
from txlake.commit.row_tracking import NO_ROW_IDS, RowIds, contradiction
from txlake.errors import InvalidRequest
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
    TransactionGroup,
    Txn,
)
from txlake.protocol.features import CATALOG_FEATURE, CATALOG_MANAGED

_Setting = TypeVar("_Setting", Metadata, Protocol)
_STAGEABLE = (Add, Remove, Cdc, Metadata, Protocol, Txn, DomainMetadata)


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

    Protocol and metadata come first. `brings_back`, `unmaps`: as in `Change`. Raises InvalidRequest
    for invalid metadata or an invalid protocol, and for a new table without metadata.
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
    """Return the action of this kind; None if there is none. Raises InvalidRequest for several."""
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
    row_ids: RowIds = NO_ROW_IDS,
) -> None:
    """Raise unless the actions may follow the snapshot; the first broken rule of RULES is reported.

    `is_foreign`: they are another engine's commit as a whole, with what txlake writes into its own.
    `row_ids`: those of a branch that they publish.

    Raises:
        InvalidRequest: the actions break a rule.
        UnsupportedFeature: txlake can't write the table's protocol.
        CorruptTable: a property of the table is invalid.
    """
    for action in actions:
        is_whole = is_foreign and isinstance(action, CommitInfo | TransactionGroup)
        if not isinstance(action, _STAGEABLE) and not is_whole:
            raise InvalidRequest(
                f"{snapshot.table}: {type(action).__name__} is txlake's to write; leave it out"
            )
    after = snapshot.apply([a for a in actions if isinstance(a, Metadata | Protocol)])
    after.require_writable()
    request = ValidationRequest(tuple(actions), snapshot, after, operation, row_ids)
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


def settings_are_understood(request: ValidationRequest) -> None:
    """Raise if files change while the table's properties are invalid or contradict each other.

    A change of settings alone is allowed, so that they can be repaired. Raises CorruptTable for an
    invalid property that binds writers, InvalidRequest for a contradiction.
    """
    if request.added or request.removed:
        request.after.properties.require_writable()
        wrong = contradiction(request.after.metadata.configuration)
        if wrong is not None:
            raise request.refuse(wrong)


def paths_are_data(request: ValidationRequest) -> None:
    """Raise InvalidRequest for a file in the log's folder, without a path, or with a
    negative size.
    """
    files: list[Add | Remove] = [*request.added, *request.removed]
    for file in files:
        if not file.path or file.path.startswith("_delta_log/"):
            raise request.refuse_file(file, "expected the path of a data file")
    for added in request.added:
        if added.size < 0:
            raise request.refuse_file(added, f"expected a size in bytes, found {added.size}")


def app_ids_once(request: ValidationRequest) -> None:
    """Raise InvalidRequest for two versions of one application id."""
    versions: dict[str, int] = {}
    for action in request.actions:
        if isinstance(action, Txn):
            known = versions.setdefault(action.app_id, action.version)
            if known != action.version:
                raise request.refuse(
                    f"application id {action.app_id!r} is set to {known} and to {action.version}"
                )


def domains_once(request: ValidationRequest) -> None:
    """Raise InvalidRequest if a metadata domain is set twice, or in a table without the feature.

    A domain that the table has may be removed without the feature.
    """
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


def membership_is_whole(request: ValidationRequest) -> None:
    """Raise InvalidRequest if the table feature of a catalog is set without its name, or the
    reverse.

    What is wrong in the table already is no error, nor is an open table with its id and no lake, as
    other systems' catalogs have it.
    """
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


def open_tables_stay_whole(request: ValidationRequest) -> None:
    """Raise InvalidRequest for an open table without in-commit timestamps, without a table id, or
    with another one than before.

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


def append_only(request: ValidationRequest) -> None:
    """Raise InvalidRequest if rows of an append-only table are deleted."""
    if any(file.data_change for file in request.removed):
        check_removable(request.after)


def iceberg_is_kept(request: ValidationRequest) -> None:
    """Raise InvalidRequest for what Iceberg's readers can't read, if the table is compatible.

    These are deletion vectors that stay when compatibility is turned on, and, when files are added,
    the metadata, new deletion vectors, and files that don't state numRecords. Source: PROTOCOL.md,
    "Writer Requirements for IcebergCompatV2".
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
        if statistics_of(request, file).num_records is None:
            raise request.refuse_file(
                file, "icebergCompatV2 needs numRecords in its statistics, and they don't state it"
            )
        if file.deletion_vector is not None and file.key not in before.files:
            raise request.refuse_file(
                file, "it has a deletion vector, and icebergCompatV2 goes without; rewrite the file"
            )


Rule = Callable[[ValidationRequest], None]
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
