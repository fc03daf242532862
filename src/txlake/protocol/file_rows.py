"""Conversion between `add` actions and rows of an Arrow table.

Owns `FILES_SCHEMA`, the form in which all other layers handle files. Source: PROTOCOL.md, "Add File
and Remove File".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa

from txlake.protocol.actions import Add, DeletionVector, JsonObject

STRING_MAP = pa.map_(pa.string(), pa.string())
VECTOR_TYPE = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline_dv", pa.string()),
        ("size_in_bytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("offset", pa.int32()),
    ]
)
FILES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", STRING_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("data_change", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRING_MAP),
        ("deletion_vector", VECTOR_TYPE),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
        ("extra", pa.string()),
    ]
)
"""One row a live file. Paths as in the log (percent-encoded), keys of `partition_values` physical
names, times in milliseconds, `extra` the JSON object of unknown fields, or null."""


_BATCH_ROWS = 65_536


def files_table(adds: Sequence[Add]) -> pa.Table:
    """Return the adds as a table in FILES_SCHEMA, in the order given."""
    if not adds:
        return FILES_SCHEMA.empty_table()
    batches = (adds[start : start + _BATCH_ROWS] for start in range(0, len(adds), _BATCH_ROWS))
    return pa.Table.from_batches([_batch(batch) for batch in batches], schema=FILES_SCHEMA)


def _batch(adds: Sequence[Add]) -> pa.RecordBatch:
    """Return the adds as one batch in FILES_SCHEMA."""
    columns = [
        pa.array([add.path for add in adds], pa.string()),
        string_maps([add.partition_values for add in adds]),
        pa.array([add.size for add in adds], pa.int64()),
        pa.array([add.modification_time for add in adds], pa.int64()),
        pa.array([add.data_change for add in adds], pa.bool_()),
        pa.array([add.stats for add in adds], pa.string()),
        string_maps([add.tags for add in adds]),
        _vectors([add.deletion_vector for add in adds]),
        pa.array([add.base_row_id for add in adds], pa.int64()),
        pa.array([add.default_row_commit_version for add in adds], pa.int64()),
        pa.array([add.clustering_provider for add in adds], pa.string()),
        _extras([add.extra for add in adds]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FILES_SCHEMA)


def string_maps(values: Sequence[dict[str, str | None] | None]) -> pa.Array:
    """Return dictionaries as an Arrow map of strings; None is null."""
    missing = values.count(None)
    if missing == len(values):
        return pa.nulls(len(values), STRING_MAP)
    mask = pa.array([value is None for value in values], pa.bool_()) if missing else None
    maps = [value or {} for value in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, maps), np.int32, len(maps)), out=offsets[1:])
    keys = pa.array(chain.from_iterable(maps), pa.string())
    items = pa.array(chain.from_iterable(map(dict.values, maps)), pa.string())
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), keys, items, pa.map_(pa.string(), pa.string()), mask=mask
    )


def _vectors(vectors: Sequence[DeletionVector | None]) -> pa.Array:
    """Return the descriptors as an Arrow array; None is null."""
    if vectors.count(None) == len(vectors):
        return pa.nulls(len(vectors), VECTOR_TYPE)
    return pa.array(
        [
            None
            if vector is None
            else {
                "storage_type": vector.storage_type,
                "path_or_inline_dv": vector.path_or_inline_dv,
                "size_in_bytes": vector.size_in_bytes,
                "cardinality": vector.cardinality,
                "offset": vector.offset,
            }
            for vector in vectors
        ],
        VECTOR_TYPE,
    )


def _extras(extras: Sequence[JsonObject]) -> pa.Array:
    """Return the unknown fields of each add as JSON text; null without any."""
    if not any(extras):
        return pa.nulls(len(extras), pa.string())
    texts = [
        json.dumps(extra, separators=(",", ":"), ensure_ascii=False) if extra else None
        for extra in extras
    ]
    return pa.array(texts, pa.string())


def adds_of(table: pa.Table) -> list[Add]:
    """Return the rows of a table in FILES_SCHEMA as add actions, in order."""
    return list(iterate_adds(table))


def iterate_adds(table: pa.Table) -> Iterator[Add]:
    """Yield the rows of a table in FILES_SCHEMA as add actions, decoding a batch at a time."""
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        columns = [batch.column(name).to_pylist() for name in FILES_SCHEMA.names]
        for (
            path,
            parts,
            size,
            time,
            change,
            stats,
            tags,
            dv,
            row_id,
            version,
            provider,
            extra,
        ) in zip(*columns):
            yield Add(
                path=path,
                partition_values=dict(parts) if parts else {},
                size=size,
                modification_time=time,
                data_change=change,
                stats=stats,
                tags=None if tags is None else dict(tags),
                deletion_vector=None if dv is None else vector_of(dv),
                base_row_id=row_id,
                default_row_commit_version=version,
                clustering_provider=provider,
                extra=cast(JsonObject, json.loads(extra)) if extra else {},
            )


def vector_of(value: dict[str, object]) -> DeletionVector:
    """Return the descriptor from one value of the column `deletion_vector`."""
    return DeletionVector(
        storage_type=cast(str, value["storage_type"]),
        path_or_inline_dv=cast(str, value["path_or_inline_dv"]),
        size_in_bytes=cast(int, value["size_in_bytes"]),
        cardinality=cast(int, value["cardinality"]),
        offset=cast("int | None", value["offset"]),
    )
