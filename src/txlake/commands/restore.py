"""RESTORE: the newest version gets an earlier version's files, schema and properties.

Computes the difference between the two versions as actions. No data is copied: files that still
exist are added again. The protocol keeps what either version needs: features that were dropped
since come back with the files and columns that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from txlake.commit import row_tracking
from txlake.commit.change import Change
from txlake.commit.checkpoint_protection import FEATURE as PROTECTION
from txlake.commit.membership import retained_properties
from txlake.conflict.footprint import Read
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, DomainMetadata, Metadata
from txlake.protocol.clustering import DOMAIN as CLUSTERING
from txlake.protocol.features import CATALOG_FEATURES, protocol_for
from txlake.protocol.identity import marks_of, metadata_with_marks

# Features of the table itself, which aren't restored from a version.
_NOT_RESTORED = CATALOG_FEATURES | {PROTECTION}
_HIDDEN_COLUMNS = (row_tracking.ROW_ID_COLUMN, row_tracking.COMMIT_VERSION_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The change, and the counts of RESTORE's result row."""

    change: Change
    counts: dict[str, int]


def restore(
    current: Snapshot, target: Snapshot, now_ms: int, exists: Callable[[Add], bool]
) -> RestoreResult:
    """Return the change that makes the table what it was at `target`.

    `exists` returns whether a file's data still exists; it is called for each file to add again.
    Identity columns go on from their newest values. Raises InvalidRequest naming files that VACUUM
    has removed.
    """
    restored = [add for add in target.files.adds() if add.key not in current.files]
    removed = [add for add in current.files.adds() if add.key not in target.files]
    missing = [add.path for add in restored if not exists(add)]
    if missing:
        raise InvalidRequest(
            f"{current.table}: version {target.version} can't be restored: {len(missing)} of its "
            f"data files are gone, {missing[0]!r} among them (VACUUM removes files that no newer "
            "version needs); restore a newer version"
        )
    actions: list[Action] = []
    features = target.features - _NOT_RESTORED
    protocol = protocol_for(target.metadata, current.protocol, features=features)
    if protocol != current.protocol:
        actions.append(protocol)
    # Identity values that were assigned since aren't assigned again.
    marks = marks_of(current.schema, current.table)
    metadata = metadata_with_marks(target.metadata, marks, current.table)
    open_properties = retained_properties(current)
    if open_properties:
        configuration = {**metadata.configuration, **open_properties}
        metadata = msgspec.structs.replace(metadata, configuration=configuration)
    if not _has_same_row_ids(current, target):
        metadata = _with_hidden_columns_of(current, metadata)
        restored = [
            msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)
            for add in restored
        ]
    if metadata != current.metadata:
        actions.append(metadata)
    actions += _clustering(current, target)
    actions += [add.tombstone(timestamp_ms=now_ms) for add in removed]
    actions += [msgspec.structs.replace(add, data_change=True) for add in restored]
    counts = {
        "table_size_after_restore": sum(add.size for add in target.files.adds()),
        "num_of_files_after_restore": len(target.files),
        "num_removed_files": len(removed),
        "num_restored_files": len(restored),
        "removed_files_size": sum(add.size for add in removed),
        "restored_files_size": sum(add.size for add in restored),
    }
    metrics = {
        "tableSizeAfterRestore": counts["table_size_after_restore"],
        "numOfFilesAfterRestore": counts["num_of_files_after_restore"],
        "numRemovedFiles": counts["num_removed_files"],
        "numRestoredFiles": counts["num_restored_files"],
        "removedFilesSize": counts["removed_files_size"],
        "restoredFilesSize": counts["restored_files_size"],
    }
    change = Change(
        operation="RESTORE",
        parameters={"version": target.version, "timestamp": None},
        actions=tuple(actions),
        metrics=metrics,
        reads=(Read(),),
        brings_back=True,
    )
    return RestoreResult(change=change, counts=counts)


def _has_same_row_ids(current: Snapshot, target: Snapshot) -> bool:
    """Return whether a row id means the same row in both versions.

    Ids start from 0 again where row tracking was dropped in between. The hidden columns then have
    other names, because their names are never reused.
    """
    now, then = current.metadata.configuration, target.metadata.configuration
    names = [then.get(key) for key in _HIDDEN_COLUMNS]
    return None not in names and names == [now.get(key) for key in _HIDDEN_COLUMNS]


def _with_hidden_columns_of(current: Snapshot, metadata: Metadata) -> Metadata:
    """Return the metadata with the current version's hidden columns.

    The values in the target version's hidden columns aren't ids any more.
    """
    then, now = metadata.configuration, current.metadata.configuration
    other_properties = {key: text for key, text in then.items() if key not in _HIDDEN_COLUMNS}
    hidden_columns = {
        key: now[key] for key in _HIDDEN_COLUMNS if key in now and now[key] != then.get(key)
    }
    return msgspec.structs.replace(metadata, configuration={**other_properties, **hidden_columns})


def _clustering(current: Snapshot, target: Snapshot) -> list[DomainMetadata]:
    """Return the actions that restore the target version's clustering columns."""
    now, then = current.domains.get(CLUSTERING), target.domains.get(CLUSTERING)
    if then is not None:
        return [] if then == now else [then]
    return [] if now is None else [msgspec.structs.replace(now, removed=True)]
