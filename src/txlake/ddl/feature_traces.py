"""Traces that a feature to be dropped has left in a table's metadata and versions.

Owns, for each feature that readers must support: how a table stops using it, and which versions in
the log need readers that support it. `commands.drop_feature` rewrites the data files.
Source: PROTOCOL.md, "Table Features", and the features' own sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from txlake.commit.table_log import TableLog
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

VECTORS = "deletionVectors"
VECTORS_ENABLED = "delta.enableDeletionVectors"
_WIDENING_ENABLED = "delta.enableTypeWidening"
_POLICY = "delta.checkpointPolicy"


def without_properties(metadata: Metadata, *keys: str) -> Metadata:
    """Return the metadata without these properties; keys are compared as they are."""
    configuration = {k: v for k, v in metadata.configuration.items() if k not in keys}
    return msgspec.structs.replace(metadata, configuration=configuration)


def with_schema(metadata: Metadata, schema: Struct) -> Metadata:
    """Return the metadata with another schema."""
    return msgspec.structs.replace(metadata, schema_string=schema_to_string(schema))


def has_type_changes(metadata: Metadata) -> bool:
    """Return whether a field of the schema, at any depth, records a change of its type.

    Files may hold narrower types than the schema's then.
    """
    return any(TYPE_CHANGES in item.metadata for item in all_fields(_schema(metadata)))


def without_type_changes(metadata: Metadata) -> Metadata:
    """Return the metadata without recorded type changes, for a table whose files all have the
    schema's types.
    """
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
    """Return the metadata for a table whose files all use the schema's column names.

    It is without the properties of column mapping, ids and physical names.
    """
    plain = without_properties(metadata, MODE_PROPERTY, MAX_ID_PROPERTY)
    return with_schema(plain, without_column_ids(_schema(metadata)))


def _schema(metadata: Metadata) -> Struct:
    return parse_schema(metadata.schema_string)


def _unchanged(metadata: Metadata) -> Metadata:
    return metadata


def _disable_vectors(metadata: Metadata) -> Metadata:
    return without_properties(metadata, VECTORS_ENABLED)


def _disable_widening(metadata: Metadata) -> Metadata:
    return without_properties(metadata, _WIDENING_ENABLED)


def _with_classic_checkpoints(metadata: Metadata) -> Metadata:
    """Return the metadata with the checkpoint policy `classic` instead of `v2`; else as it is."""
    if not _has_v2_policy(metadata):
        return metadata
    configuration = {**metadata.configuration, _POLICY: "classic"}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _has_v2_policy(metadata: Metadata) -> bool:
    return metadata.configuration.get(_POLICY, "classic").strip().lower() == "v2"


def _never(action: Action) -> bool:
    return False


def _has_vector(action: Action) -> bool:
    return isinstance(action, Add | Remove) and action.deletion_vector is not None


def _has_widened_columns(action: Action) -> bool:
    return isinstance(action, Metadata) and has_type_changes(action)


def _has_column_mapping(action: Action) -> bool:
    return isinstance(action, Metadata) and mode_of(action) != "none"


def _sets_v2_policy(action: Action) -> bool:
    return isinstance(action, Metadata) and _has_v2_policy(action)


@dataclass(frozen=True, slots=True)
class FeatureTraces:
    """The ways in which a table uses one feature.

    Attributes:
        disable: returns the metadata with which no writer uses the feature again.
        needs_feature: returns whether an action needs readers that support the feature.
        changes_checkpoints: whether checkpoints have another format with the feature.
    """

    disable: Callable[[Metadata], Metadata]
    needs_feature: Callable[[Action], bool]
    changes_checkpoints: bool = False


TRACES: Mapping[str, FeatureTraces] = {
    "columnMapping": FeatureTraces(_unchanged, _has_column_mapping),
    VECTORS: FeatureTraces(_disable_vectors, _has_vector),
    "typeWidening": FeatureTraces(_disable_widening, _has_widened_columns),
    "typeWidening-preview": FeatureTraces(_disable_widening, _has_widened_columns),
    "v2Checkpoint": FeatureTraces(
        _with_classic_checkpoints, _sets_v2_policy, changes_checkpoints=True
    ),
    "vacuumProtocolCheck": FeatureTraces(_unchanged, _never),
}
"""The features that readers of old versions must support, and that can be dropped."""


def newest_trace(name: str, log: TableLog, up_to: int, *, since: int = 0) -> int | None:
    """Return the newest version whose commit or checkpoint needs readers with the feature.

    Without one, the oldest version that can be read if its state needs them; else None. Versions
    after `up_to` don't count, nor do the ones before `since`, which has a checkpoint. Checkpoints
    only count for a feature that changes their format. Raises KeyError for a feature that isn't in
    TRACES.

    Tombstones of the oldest version are ignored: no reader reads their files.
    """
    traces = TRACES[name]
    listing = log.listing()
    newest_checkpoint = -1
    if traces.changes_checkpoints:
        checkpoints = (
            checkpoint for checkpoint in listing.checkpoints if since <= checkpoint.version <= up_to
        )
        newest_checkpoint = max(
            (checkpoint.version for checkpoint in checkpoints if _is_v2(log, checkpoint)),
            default=-1,
        )
    for version in sorted(listing.commits, reverse=True):
        if version < since:
            break
        if version <= newest_checkpoint:
            return newest_checkpoint
        commit = log.commit(version) if version <= up_to else None
        if commit is not None and any(map(traces.needs_feature, commit.actions)):
            return version
    first = listing.earliest_version
    if newest_checkpoint < 0 and first is not None:
        first = max(first, since)
        if any(map(traces.needs_feature, _state_actions(log, first))):
            return first
    return newest_checkpoint if newest_checkpoint >= 0 else None


def _state_actions(log: TableLog, version: int) -> Iterator[Action]:
    """Yield a version's metadata and its live files, not its tombstones."""
    snapshot = log.snapshot(version)
    yield snapshot.metadata
    yield from snapshot.files.adds()


def _is_v2(log: TableLog, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has the format of v2; one with a classic name is read."""
    if any(isinstance(part.file, V2Checkpoint) for part in checkpoint.parts):
        return True
    (path, *others) = checkpoint.paths
    if others:
        return False
    actions = read_checkpoint(log.store.get(path), file=f"{log.name}: {path}").others
    return any(isinstance(action, CheckpointMetadata | Sidecar) for action in actions)


def unlisted_vector_paths(table: Snapshot, table_url: str) -> list[str]:
    """Return the deletion vector files of removed data files that the log doesn't list as removed.

    Paths as in the log, encoded, sorted and distinct. Clients without deletion vectors would vacuum
    such files.
    """
    listed = {remove.path for remove in table.tombstones.values() if remove.deletion_vector is None}
    paths = set()
    for remove in table.tombstones.values():
        vector = remove.deletion_vector
        if vector is not None and vector.storage_type != "i":
            path = vector_path(vector, table_url)
            paths.add(path if is_absolute(path) else encode_path(path))
    return sorted(paths - listed)
