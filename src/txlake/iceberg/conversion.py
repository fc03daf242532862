"""The conversion of one Delta version after another, and of a whole version where that can't be.

Each version becomes a snapshot, also one that changes no file, so that time travel finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from txlake.iceberg.data_files import Definition, data_files
from txlake.iceberg.manifests import ManifestWriting, live_manifests, live_paths
from txlake.iceberg.partitioning import Specs, misses_source, next_specs
from txlake.iceberg.schema import iceberg_schema, name_mapping
from txlake.iceberg.snapshots import operation_of, snapshot_id, summary_of, table_uuid
from txlake.iceberg.store_io import location_of
from txlake.iceberg.table_metadata import (
    empty_metadata,
    specs_of,
    with_definition,
    with_properties,
    with_snapshot,
    without_expired,
)
from txlake.protocol.actions import Add, Metadata, Remove
from txlake.protocol.column_mapping import effective_schema
from txlake.protocol.types import Struct

FOLDER = "metadata"
"""The folder of Iceberg's metadata files, below the table."""

_UNASSIGNED = -1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table's Iceberg metadata is written.

    Attributes:
        io: reads and writes below the table's folder.
        table_url: the table's encoded URL.
        new_id: makes a unique name.
    """

    io: FileIO
    table_url: str
    new_id: Callable[[], str]

    @property
    def folder(self) -> str:
        """The location of the metadata files."""
        return f"{location_of(self.table_url)}/{FOLDER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaVersion:
    """One version of the Delta table.

    Attributes:
        timestamp_ms: of its commit.
        metadata: Delta's, in force at the version.
        adds, removes: those of its commit; in a whole version `adds` are all live files.
        expire_before_ms: snapshots that were no longer current then are expired.
    """

    version: int
    timestamp_ms: int
    metadata: Metadata
    adds: Sequence[Add] = ()
    removes: Sequence[Remove] = ()
    expire_before_ms: int = 0


@dataclass(frozen=True, slots=True)
class Converted:
    """The table's Iceberg metadata and its current snapshot's manifests."""

    metadata: TableMetadataV2
    manifests: Sequence[ManifestFile]


def convert_whole(version: DeltaVersion, before: TableMetadataV2 | None, place: Place) -> Converted:
    """Convert all files of a version; snapshots of `before` stay, if readers can still bind them.

    Raises InvalidRequest for a table that Iceberg v2 can't show, CorruptTable for a damaged
    partition value.
    """
    schema = _schema(version)
    columns = version.metadata.partition_columns
    if before is not None and misses_source(specs_of(before), schema):
        before = None
    if before is None:
        specs = next_specs(Specs(), schema, columns)
        table_id = table_uuid(version.metadata.id)
        location = location_of(place.table_url)
        before = empty_metadata(table_id, location, iceberg_schema(schema), specs)
    metadata, definition = _defined(before, version, place)
    # A snapshot of the same version, which turned out to be wrong, is replaced.
    identity = snapshot_id(version.version, metadata.table_uuid)
    others = [one for one in metadata.snapshots if one.snapshot_id != identity]
    log = [one for one in metadata.snapshot_log if one.snapshot_id != identity]
    metadata = metadata.model_copy(update={"snapshots": others, "snapshot_log": log})
    writing = _writing(metadata, definition, version, place)
    ordered = sorted(version.adds, key=lambda add: (sorted_values(add), add.path))
    added = data_files(ordered, definition)
    operation = Operation.OVERWRITE if others else Operation.APPEND
    summary = summary_of(
        operation, added, (), None, version=version.version, timestamp_ms=version.timestamp_ms
    )
    return _with_version(metadata, writing, writing.added(added), summary, version, base=None)


def sorted_values(add: Add) -> list[tuple[str, str]]:
    """Return a file's partition values in a form by which files are sorted."""
    return sorted((name, text or "") for name, text in add.partition_values.items())


def convert_commit(version: DeltaVersion, before: Converted, place: Place) -> Converted:
    """Convert a version that follows the converted one, at the cost of its changes.

    Files that are added again without a change of rows (their statistics, their tags) stay as they
    are. Raises as `convert_whole`.
    """
    metadata, definition = _defined(before.metadata, version, place)
    writing = _writing(metadata, definition, version, place)
    removed = {location_of(place.table_url, one.path) for one in version.removes}
    manifests = writing.merged(live_manifests(before.manifests))
    adds = _new_files(version.adds, removed, manifests, place)
    remaining = writing.without(manifests, removed)
    added = data_files(adds, definition)
    operation = operation_of(
        adds=bool(added),
        removes=bool(remaining.removed),
        changes_rows=any(one.data_change for one in adds)
        or any(one.data_change for one in version.removes),
    )
    current = before.metadata.current_snapshot()
    summary = summary_of(
        operation,
        added,
        remaining.removed,
        None
        if current is None or current.summary is None
        else current.summary.additional_properties,
        version=version.version,
        timestamp_ms=version.timestamp_ms,
    )
    made = [*writing.added(added), *remaining.manifests]
    return _with_version(metadata, writing, made, summary, version, base=version.version - 1)


def _schema(version: DeltaVersion) -> Struct:
    return effective_schema(
        version.metadata.schema_string, True, file=f"metaData of version {version.version}"
    )


def _defined(
    before: TableMetadataV2, version: DeltaVersion, place: Place
) -> tuple[TableMetadataV2, Definition]:
    """Return the metadata with a version's schema and partition spec, and the definition."""
    schema, columns = _schema(version), version.metadata.partition_columns
    specs = next_specs(specs_of(before), schema, columns)
    metadata = with_definition(before, iceberg_schema(schema), specs)
    definition = Definition(
        table_url=place.table_url,
        schema=schema,
        partition_columns=tuple(columns),
        iceberg_schema=metadata.schema(),
        spec=specs.current,
    )
    return metadata, definition


def _writing(
    metadata: TableMetadataV2, definition: Definition, version: DeltaVersion, place: Place
) -> ManifestWriting:
    return ManifestWriting(
        io=place.io,
        folder=place.folder,
        schema=definition.iceberg_schema,
        specs=metadata.specs(),
        snapshot_id=snapshot_id(version.version, metadata.table_uuid),
        parent_id=metadata.current_snapshot_id,
        sequence_number=version.version + 1,
        new_id=place.new_id,
    )


def _new_files(
    adds: Sequence[Add], removed: set[str], manifests: Sequence[ManifestFile], place: Place
) -> list[Add]:
    """Return the added files without those that are live already, and stay."""
    again = {
        location
        for add in adds
        if not add.data_change
        and (location := location_of(place.table_url, add.path)) not in removed
    }
    if again:
        again &= set().union(*(live_paths(each, place.io) for each in manifests))
    return [add for add in adds if location_of(place.table_url, add.path) not in again]


def _with_version(
    metadata: TableMetadataV2,
    writing: ManifestWriting,
    manifests: Sequence[ManifestFile],
    summary: Summary,
    version: DeltaVersion,
    *,
    base: int | None,
) -> Converted:
    """Write the manifest list, and return the metadata with the version's snapshot."""
    for each in manifests:
        if each.sequence_number == _UNASSIGNED:
            each.sequence_number = writing.sequence_number
        if each.min_sequence_number == _UNASSIGNED:
            each.min_sequence_number = writing.sequence_number
    before = metadata.current_snapshot()
    snapshot = Snapshot(
        snapshot_id=writing.snapshot_id,
        parent_snapshot_id=writing.parent_id,
        sequence_number=writing.sequence_number,
        timestamp_ms=max(version.timestamp_ms, 0 if before is None else before.timestamp_ms),
        manifest_list=writing.listed(manifests),
        summary=summary,
        schema_id=metadata.current_schema_id,
    )
    made = without_expired(with_snapshot(metadata, snapshot), version.expire_before_ms)
    made = with_properties(
        made,
        version.metadata.configuration,
        name_mapping(_schema(version)),
        version=version.version,
        timestamp_ms=version.timestamp_ms,
        base_version=base,
    )
    return Converted(made, manifests)
