"""RESTORE: an earlier version's files, schema and properties become the newest version's.

Owns the difference between the two versions as actions. No data is copied: files that are still
there join the table again. The protocol is what either version needs, never less: features that
were dropped since come back with the files and columns that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, DomainMetadata, Metadata
from txlake.protocol.clustering import DOMAIN as CLUSTERING
from txlake.protocol.features import CATALOG_FEATURES, protocol_for
from txlake.protocol.identity import marks_of, metadata_with_marks
from txlake.transaction import row_tracking
from txlake.transaction.change import Change, Read
from txlake.transaction.checkpoint_protection import FEATURE as PROTECTION
from txlake.transaction.membership import kept_while_open

# What a version had of these says nothing of the table now.
_OF_THE_TABLE = CATALOG_FEATURES | {PROTECTION}
_HIDDEN_COLUMNS = (row_tracking.ROW_ID_COLUMN, row_tracking.COMMIT_VERSION_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The change, and the counts that RESTORE answers with."""

    change: Change
    counts: dict[str, int]


def restore(
    current: Snapshot, wanted: Snapshot, now_ms: int, is_there: Callable[[Add], bool]
) -> Restored:
    """The change that makes the table what it was at `wanted`.

    `is_there` says whether a file's data still exists. Raises InvalidRequest naming files that
    VACUUM has removed.
    """
    back = [add for add in wanted.files.adds() if add.key not in current.files]
    gone = [add for add in current.files.adds() if add.key not in wanted.files]
    missing = [add.path for add in back if not is_there(add)]
    if missing:
        raise InvalidRequest(
            f"{current.table}: version {wanted.version} can't be restored: {len(missing)} of its "
            f"data files are gone, {missing[0]!r} among them (VACUUM removes files that no newer "
            "version needs); restore a newer version"
        )
    actions: list[Action] = []
    features = wanted.features - _OF_THE_TABLE
    protocol = protocol_for(wanted.metadata, current.protocol, features=features)
    if protocol != current.protocol:
        actions.append(protocol)
    # Values of identity columns that were given since aren't given again.
    marks = marks_of(current.schema, current.table)
    metadata = metadata_with_marks(wanted.metadata, marks, current.table)
    open_ones = kept_while_open(current)
    if open_ones:
        configuration = {**metadata.configuration, **open_ones}
        metadata = msgspec.structs.replace(metadata, configuration=configuration)
    if not _has_same_row_ids(current, wanted):
        metadata = _with_hidden_columns_of(current, metadata)
        back = [
            msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)
            for add in back
        ]
    if metadata != current.metadata:
        actions.append(metadata)
    actions += _clustering(current, wanted)
    actions += [add.removed(timestamp_ms=now_ms) for add in gone]
    actions += [msgspec.structs.replace(add, data_change=True) for add in back]
    counts = {
        "table_size_after_restore": sum(add.size for add in wanted.files.adds()),
        "num_of_files_after_restore": len(wanted.files),
        "num_removed_files": len(gone),
        "num_restored_files": len(back),
        "removed_files_size": sum(add.size for add in gone),
        "restored_files_size": sum(add.size for add in back),
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
        parameters={"version": wanted.version, "timestamp": None},
        actions=tuple(actions),
        metrics=metrics,
        reads=(Read(),),
        brings_back=True,
    )
    return Restored(change=change, counts=counts)


def _has_same_row_ids(current: Snapshot, wanted: Snapshot) -> bool:
    """Whether no row id of either version can be another row's in the other one.

    Ids are counted from 0 again where row tracking was dropped in between. The hidden columns have
    other names then, as their names are never used twice.
    """
    now, then = current.metadata.configuration, wanted.metadata.configuration
    names = [then.get(key) for key in _HIDDEN_COLUMNS]
    return None not in names and names == [now.get(key) for key in _HIDDEN_COLUMNS]


def _with_hidden_columns_of(current: Snapshot, metadata: Metadata) -> Metadata:
    """The metadata with the hidden columns of the table now.

    What files have in those of then is no id any more.
    """
    then, now = metadata.configuration, current.metadata.configuration
    kept = {key: text for key, text in then.items() if key not in _HIDDEN_COLUMNS}
    own = {key: now[key] for key in _HIDDEN_COLUMNS if key in now and now[key] != then.get(key)}
    return msgspec.structs.replace(metadata, configuration={**kept, **own})


def _clustering(current: Snapshot, wanted: Snapshot) -> list[DomainMetadata]:
    """What says by which columns the table is clustered, as it was then."""
    now, then = current.domains.get(CLUSTERING), wanted.domains.get(CLUSTERING)
    if then is not None:
        return [] if then == now else [then]
    return [] if now is None else [msgspec.structs.replace(now, removed=True)]
