"""RESTORE: an earlier version's files, schema and properties become the newest version's.

Owns the difference between the two versions as actions. No data is copied: files that are still
there join the table again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add
from txlake.protocol.features import protocol_for
from txlake.protocol.identity import marks_of, metadata_with_marks
from txlake.transaction.change import Change, Read


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
    protocol = protocol_for(wanted.metadata, current.protocol)
    if protocol != current.protocol:
        actions.append(protocol)
    # Values of identity columns that were given since aren't given again.
    marks = marks_of(current.schema, current.table)
    metadata = metadata_with_marks(wanted.metadata, marks, current.table)
    if metadata != current.metadata:
        actions.append(metadata)
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
