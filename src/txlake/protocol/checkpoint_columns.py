"""The columns of checkpoint files: their Arrow types, and actions' values in them.

Owns the names and types of PROTOCOL.md, and how an unknown field becomes a column, so that it
survives the rewrite. Source: PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from txlake.protocol.actions import JsonObject
from txlake.protocol.file_rows import STRING_MAP

_STRINGS = pa.list_(pa.field("element", pa.string()))
CHECKPOINT_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
CHECKPOINT_TYPES = {
    "txn": pa.struct(
        [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
    ),
    "add": pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", STRING_MAP),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("tags", STRING_MAP),
            ("deletionVector", CHECKPOINT_VECTOR_TYPE),
            ("baseRowId", pa.int64()),
            ("defaultRowCommitVersion", pa.int64()),
            ("clusteringProvider", pa.string()),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()),
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
            ("partitionValues", STRING_MAP),
            ("size", pa.int64()),
            ("deletionVector", CHECKPOINT_VECTOR_TYPE),
            ("baseRowId", pa.int64()),
            ("defaultRowCommitVersion", pa.int64()),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _STRINGS),
            ("configuration", STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _STRINGS),
            ("writerFeatures", _STRINGS),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRING_MAP),
        ]
    ),
}
"""The type of each action's column; fields that depend on the table are added."""


def with_extras(kind: pa.StructType, objects: Sequence[JsonObject]) -> pa.StructType:
    """Return a column's type with fields added for the actions' unknown fields."""
    found = extra_types(objects, {item.name for item in kind})
    return pa.struct([*kind, *(pa.field(name, item) for name, item in found.items())])


def extra_types(objects: Sequence[JsonObject], known: set[str]) -> dict[str, pa.DataType]:
    """Return types for unknown fields: what Arrow infers, else text (of JSON).

    Fields that are null in all objects are left out.
    """
    names = dict.fromkeys(name for item in objects for name in item if name not in known)
    types: dict[str, pa.DataType] = {}
    for name in names:
        values = [item[name] for item in objects if item.get(name) is not None]
        try:
            kind = pa.array(values).type
        except (pa.ArrowException, TypeError, ValueError):
            kind = pa.string()
        if values:
            types[name] = kind if _is_storable(kind) else pa.string()
    return types


def _is_storable(kind: pa.DataType) -> bool:
    """Return whether Parquet has the type: no struct without fields, no null type."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_storable(item.type) for item in kind)
    if pa.types.is_list(kind):
        return _is_storable(kind.value_type)
    return not pa.types.is_null(kind)


def to_arrow_value(value: object, kind: pa.DataType) -> object:
    """Return a JSON value in the form that Arrow takes for a type: maps as pairs, JSON text for
    strings.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {item.name: to_arrow_value(value.get(item.name), item.type) for item in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return list(value.items())
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value
