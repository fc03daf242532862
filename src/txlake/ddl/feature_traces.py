"""What a table's files and versions still have of a feature that is to be dropped.

Owns, for each feature that readers have to know: how a table stops using it, and which versions in
the log need readers that know it. Taking the traces out of data files is `commands.drop_feature`'s.
Source: PROTOCOL.md, "Table Features", and the features' own sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from txlake.log.segment import Checkpoint
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, CheckpointMetadata, Metadata, Remove, Sidecar
from txlake.protocol.checkpoints import read_checkpoint
from txlake.protocol.column_mapping import (
    MAX_ID_PROPERTY,
    MODE_PROPERTY,
    all_fields,
    map_schema,
    without_column_ids,
)
from txlake.protocol.deletion_vectors import vector_path
from txlake.protocol.file_names import V2Checkpoint
from txlake.protocol.mapping_change import mode_of
from txlake.protocol.paths import encode_path, is_absolute
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import Struct, parse_schema, schema_to_string
from txlake.transaction.table_log import TableLog

VECTORS = "deletionVectors"
VECTORS_ENABLED = "delta.enableDeletionVectors"
_WIDENING_ENABLED = "delta.enableTypeWidening"
_POLICY = "delta.checkpointPolicy"


def without_properties(metadata: Metadata, *keys: str) -> Metadata:
    """The metadata without these properties."""
    configuration = {k: v for k, v in metadata.configuration.items() if k not in keys}
    return msgspec.structs.replace(metadata, configuration=configuration)


def with_schema(metadata: Metadata, schema: Struct) -> Metadata:
    """The metadata with another schema."""
    return msgspec.structs.replace(metadata, schema_string=schema_to_string(schema))


def has_type_changes(metadata: Metadata) -> bool:
    """Whether files may hold narrower types than the schema says."""
    return any(TYPE_CHANGES in item.metadata for item in all_fields(_schema(metadata)))


def without_type_changes(metadata: Metadata) -> Metadata:
    """The metadata of a table whose files all hold the types that the schema says."""
    if not has_type_changes(metadata):
        return metadata
    return with_schema(
        metadata,
        map_schema(
            _schema(metadata),
            lambda item: replace(
                item, metadata={k: v for k, v in item.metadata.items() if k != TYPE_CHANGES}
            ),
        ),
    )


def without_mapping(metadata: Metadata) -> Metadata:
    """The metadata of a table whose files all name columns as the schema does."""
    plain = without_properties(metadata, MODE_PROPERTY, MAX_ID_PROPERTY)
    return with_schema(plain, without_column_ids(_schema(metadata)))


def _schema(metadata: Metadata) -> Struct:
    return parse_schema(metadata.schema_string)


def _as_it_is(metadata: Metadata) -> Metadata:
    return metadata


def _without_vectors_on(metadata: Metadata) -> Metadata:
    return without_properties(metadata, VECTORS_ENABLED)


def _without_widening_on(metadata: Metadata) -> Metadata:
    return without_properties(metadata, _WIDENING_ENABLED)


def _with_classic_checkpoints(metadata: Metadata) -> Metadata:
    if not _asks_for_v2(metadata):
        return metadata
    configuration = {**metadata.configuration, _POLICY: "classic"}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _asks_for_v2(metadata: Metadata) -> bool:
    return metadata.configuration.get(_POLICY, "classic").strip().lower() == "v2"


def _never(action: Action) -> bool:
    return False


def _has_vector(action: Action) -> bool:
    return isinstance(action, Add | Remove) and action.deletion_vector is not None


def _widened(action: Action) -> bool:
    return isinstance(action, Metadata) and has_type_changes(action)


def _mapped(action: Action) -> bool:
    return isinstance(action, Metadata) and mode_of(action) != "none"


def _with_v2(action: Action) -> bool:
    return isinstance(action, Metadata) and _asks_for_v2(action)


@dataclass(frozen=True, slots=True)
class Traces:
    """How one feature is used.

    Attributes:
        turned_off: the metadata with which no writer begins to use it again.
        used_by: whether an action needs readers that know the feature.
        in_checkpoints: whether checkpoints are written in another form with it.
    """

    turned_off: Callable[[Metadata], Metadata]
    used_by: Callable[[Action], bool]
    in_checkpoints: bool = False


TRACES: Mapping[str, Traces] = {
    "columnMapping": Traces(_as_it_is, _mapped),
    VECTORS: Traces(_without_vectors_on, _has_vector),
    "typeWidening": Traces(_without_widening_on, _widened),
    "typeWidening-preview": Traces(_without_widening_on, _widened),
    "v2Checkpoint": Traces(_with_classic_checkpoints, _with_v2, in_checkpoints=True),
    "vacuumProtocolCheck": Traces(_as_it_is, _never),
}
"""The features that a reader of an old version has to know, and that can be dropped."""


def newest_trace(name: str, log: TableLog, up_to: int, *, since: int = 0) -> int | None:
    """The newest version that the log can show and that needs readers with the feature.

    `since`: as if the log began with that version, of which there is a checkpoint.

    Removed files that the oldest of them still lists aren't looked at: no reader reads them.
    """
    traces = TRACES[name]
    listing = log.listing()
    found = -1
    if traces.in_checkpoints:
        forms = (one for one in listing.checkpoints if since <= one.version <= up_to)
        found = max((one.version for one in forms if _is_v2(log, one)), default=-1)
    for version in sorted(listing.commits, reverse=True):
        if version < since:
            break
        if version <= found:
            return found
        commit = log.commit(version) if version <= up_to else None
        if commit is not None and any(map(traces.used_by, commit.actions)):
            return version
    first = listing.earliest_version
    if found < 0 and first is not None:
        first = max(first, since)
        if any(map(traces.used_by, _state(log, first))):
            return first
    return found if found >= 0 else None


def _state(log: TableLog, version: int) -> Iterator[Action]:
    snapshot = log.snapshot(version)
    yield snapshot.metadata
    yield from snapshot.files.adds()


def _is_v2(log: TableLog, checkpoint: Checkpoint) -> bool:
    if any(isinstance(part.file, V2Checkpoint) for part in checkpoint.parts):
        return True
    (path, *others) = checkpoint.paths
    if others:
        return False
    held = read_checkpoint(log.store.get(path), file=f"{log.name}: {path}").others
    return any(isinstance(action, CheckpointMetadata | Sidecar) for action in held)


def unprotected(table: Snapshot, table_url: str) -> list[str]:
    """Where the deletion vectors lie that removed files had, but for those listed as removed.

    Paths as in the log, sorted. Clients that don't know vectors take such files for leftovers.
    """
    listed = {remove.path for remove in table.tombstones.values() if remove.deletion_vector is None}
    found = set()
    for remove in table.tombstones.values():
        vector = remove.deletion_vector
        if vector is not None and vector.storage_type != "i":
            path = vector_path(vector, table_url)
            found.add(path if is_absolute(path) else encode_path(path))
    return sorted(found - listed)
