"""The table's Iceberg metadata, changed version by version; and which snapshots it keeps.

Pure: values in, values out. Source: Iceberg's specification, "Table Metadata"; Delta Lake,
`IcebergConverter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from txlake.iceberg.partitioning import Specs
from txlake.iceberg.snapshots import DELTA_TIMESTAMP, DELTA_VERSION

SNAPSHOTS_MAX = 1_000  # each is written again with every version
METADATA_FILES_KEPT = 20
BASE_DELTA_VERSION = "base-delta-version"
CONVERTED_VERSION = "converted_delta_version"
CONVERTED_TIMESTAMP = "converted_delta_timestamp"
NAME_MAPPING = "schema.name-mapping.default"
_OPTIONS = "delta.universalFormat.config.iceberg."


def empty_metadata(table_id: UUID, location: str, schema: Schema, specs: Specs) -> TableMetadataV2:
    """Return the metadata of a table without snapshots."""
    return TableMetadataV2(
        location=location,
        table_uuid=table_id,
        last_updated_ms=0,
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=list(specs.all),
        default_spec_id=specs.current_id,
        last_partition_id=specs.last_field_id,
        sort_orders=[UNSORTED_SORT_ORDER],
    )


def specs_of(metadata: TableMetadataV2) -> Specs:
    """Return the table's partition specs."""
    last = metadata.last_partition_id
    return Specs(
        tuple(metadata.partition_specs),
        metadata.default_spec_id,
        Specs().last_field_id if last is None else last,
    )


def with_definition(metadata: TableMetadataV2, schema: Schema, specs: Specs) -> TableMetadataV2:
    """Return the metadata with the current schema and specs; a schema that is known keeps its
    id.
    """
    known = next((one for one in metadata.schemas if one.fields == schema.fields), None)
    schemas = metadata.schemas
    if known is None:
        number = max(one.schema_id for one in schemas) + 1
        known = Schema(*schema.fields, schema_id=number)
        schemas = [*schemas, known]
    return metadata.model_copy(
        update={
            "schemas": schemas,
            "current_schema_id": known.schema_id,
            "last_column_id": max(metadata.last_column_id, schema.highest_field_id),
            "partition_specs": list(specs.all),
            "default_spec_id": specs.current_id,
            "last_partition_id": specs.last_field_id,
        }
    )


def with_snapshot(metadata: TableMetadataV2, snapshot: Snapshot) -> TableMetadataV2:
    """Return the metadata with a new current snapshot."""
    entry = SnapshotLogEntry(snapshot_id=snapshot.snapshot_id, timestamp_ms=snapshot.timestamp_ms)
    main = SnapshotRef(snapshot_id=snapshot.snapshot_id, snapshot_ref_type=SnapshotRefType.BRANCH)
    return metadata.model_copy(
        update={
            "snapshots": [*metadata.snapshots, snapshot],
            "snapshot_log": [*metadata.snapshot_log, entry],
            "current_snapshot_id": snapshot.snapshot_id,
            "refs": {MAIN_BRANCH: main},
            "last_sequence_number": snapshot.sequence_number,
            "last_updated_ms": snapshot.timestamp_ms,
        }
    )


def without_expired(metadata: TableMetadataV2, before_ms: int) -> TableMetadataV2:
    """Return the metadata without snapshots that were no longer current at a time.

    The current one stays, and so do at most SNAPSHOTS_MAX. Schemas that no snapshot has go too.
    """
    snapshots = metadata.snapshots
    follows = [*(one.timestamp_ms for one in snapshots[1:]), before_ms + 1]
    kept = [one for one, until in zip(snapshots, follows) if until > before_ms][-SNAPSHOTS_MAX:]
    if len(kept) == len(snapshots):
        return metadata
    ids = {one.snapshot_id for one in kept}
    schema_ids = {metadata.current_schema_id, *(one.schema_id for one in kept)}
    return metadata.model_copy(
        update={
            "snapshots": kept,
            "snapshot_log": [one for one in metadata.snapshot_log if one.snapshot_id in ids],
            "schemas": [one for one in metadata.schemas if one.schema_id in schema_ids],
        }
    )


def with_properties(
    metadata: TableMetadataV2,
    configuration: Mapping[str, str],
    mapping: str,
    *,
    version: int,
    timestamp_ms: int,
    base_version: int | None,
) -> TableMetadataV2:
    """Return the metadata with the properties that say which version it shows.

    `base_version`: the version that the conversion went on from; None if it began anew. Properties
    of the Delta table with the prefix `delta.universalFormat.config.iceberg.` are set without it.
    """
    properties = {
        **{
            key.removeprefix(_OPTIONS): text
            for key, text in configuration.items()
            if key.startswith(_OPTIONS)
        },
        NAME_MAPPING: mapping,
        DELTA_VERSION: str(version),
        DELTA_TIMESTAMP: str(timestamp_ms),
        CONVERTED_VERSION: str(version),
        CONVERTED_TIMESTAMP: str(timestamp_ms),
    }
    if base_version is not None:
        properties[BASE_DELTA_VERSION] = str(base_version)
    return metadata.model_copy(update={"properties": properties})


def with_previous_file(
    metadata: TableMetadataV2, location: str, updated_ms: int
) -> TableMetadataV2:
    """Return the metadata with the file that it follows in its log of metadata files."""
    entry = MetadataLogEntry(metadata_file=location, timestamp_ms=updated_ms)
    log = [*metadata.metadata_log, entry][-METADATA_FILES_KEPT:]
    return metadata.model_copy(update={"metadata_log": log})


def converted_version(metadata: TableMetadataV2) -> int | None:
    """Return the Delta version that the metadata shows; None if another writer made it."""
    text = metadata.properties.get(DELTA_VERSION, "")
    return int(text) if text.isdecimal() else None
