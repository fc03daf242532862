"""The Iceberg snapshot of a Delta version: its id, its operation, its summary.

Ids follow from the version and the table's id by the rule of Delta's own converter, so that every
process gives a version the same one. Source: Delta Lake, `IcebergSnapshotIdGenerator`; Iceberg's
specification, "Snapshots", "Optional Snapshot Summary Fields".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Summary, UpdateMetrics

DELTA_VERSION = "delta-version"
DELTA_TIMESTAMP = "delta-timestamp"
"""Properties of the table's metadata and of each snapshot's summary; milliseconds."""

_MULTIPLIER = 11_400_714_819_323_198_485  # odd, so that it can be inverted
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
_LONG = (1 << 63) - 1
_UUID_BITS = 20

_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
)
_NO_DELETES = ("total-delete-files", "total-position-deletes", "total-equality-deletes")


def table_uuid(table_id: str) -> UUID:
    """Return the Iceberg table's UUID: the Delta table's id, or one made of it if it is no UUID."""
    try:
        return UUID(table_id)
    except ValueError:
        return uuid5(NAMESPACE_URL, table_id)


def snapshot_id(version: int, table_id: UUID) -> int:
    """Return the id of a version's snapshot, from 0 to 2**63 - 1."""
    fragment = table_id.int & ((1 << _UUID_BITS) - 1)
    return ((version << _UUID_BITS | fragment) * _MULTIPLIER) & _LONG


def version_of(identity: int) -> int:
    """Return the version of a snapshot's id."""
    return ((identity * _INVERSE) & _LONG) >> _UUID_BITS


def operation_of(*, adds: bool, removes: bool, changes_rows: bool) -> Operation:
    """Return the operation of a commit; one that changes no row is a replacement."""
    if not changes_rows:
        return Operation.REPLACE
    if not removes:
        return Operation.APPEND
    return Operation.OVERWRITE if adds else Operation.DELETE


def summary_of(
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    before: Mapping[str, str] | None,
    *,
    version: int,
    timestamp_ms: int,
) -> Summary:
    """Return a snapshot's summary, with its version and totals; `before` is its parent's."""
    metrics = UpdateMetrics()
    for file in added:
        metrics.add_file(file)
    for file in removed:
        metrics.remove_file(file)
    found = metrics.to_dict()
    for total, plus, minus in _TOTALS:
        known = int((before or {}).get(total) or 0)
        found[total] = str(known + int(found.get(plus, 0)) - int(found.get(minus, 0)))
    found |= dict.fromkeys(_NO_DELETES, "0")
    found |= {DELTA_VERSION: str(version), DELTA_TIMESTAMP: str(timestamp_ms)}
    return Summary(operation, **found)
