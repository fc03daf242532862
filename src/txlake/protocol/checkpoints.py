"""Checkpoint files read: Parquet columns to files (as Arrow) and to actions.

Owns the shape of a checkpoint's columns. What a checkpoint means for a version is `log.replay`'s;
writing is `checkpoint_writing`'s. Columns that nobody needs are not read, rows of files stay Arrow.
Source: PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.errors import CorruptTable
from txlake.protocol.actions import (
    Action,
    Add,
    JsonObject,
    Remove,
    Sidecar,
    actions_from_object,
    decode_actions,
)
from txlake.protocol.checkpoint_stats import stats_to_json
from txlake.protocol.file_rows import FILES_SCHEMA, STRING_MAP, VECTOR_TYPE, files_table

# The columns of other actions than files, with a field that each of them must have.
_OTHER_COLUMNS = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "checkpointMetadata": "version",
    "sidecar": "path",
}
_ADD_FIELDS = {
    "path": "path",
    "size": "size",
    "modificationTime": "modification_time",
    "dataChange": "data_change",
    "stats": "stats",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
    "clusteringProvider": "clustering_provider",
}
_MAP_FIELDS = {"partitionValues": "partition_values", "tags": "tags"}
_VECTOR_FIELDS = {
    "storageType": "storage_type",
    "pathOrInlineDv": "path_or_inline_dv",
    "sizeInBytes": "size_in_bytes",
    "cardinality": "cardinality",
    "offset": "offset",
}
_NESTED = ("deletionVector", "format")
_PARSED = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointRows:
    """What one file of a checkpoint holds, tombstones left out.

    Attributes:
        files: the live files in FILES_SCHEMA.
        others: all actions that aren't of files: protocol, metadata, sidecars ...
    """

    files: pa.Table
    others: tuple[Action, ...]


def read_checkpoint(data: bytes, *, file: str) -> CheckpointRows:
    """Files and other actions of a checkpoint file or sidecar: Parquet, or JSON lines by its name.

    Raises CorruptTable naming `file` when it can't be decoded.
    """
    if file.endswith(".json"):
        actions = decode_actions(data, file=file)
        adds = [action for action in actions if isinstance(action, Add)]
        others = tuple(action for action in actions if not isinstance(action, Add | Remove))
        return CheckpointRows(files_table(adds), others)
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        return CheckpointRows(_read_files(parquet), tuple(_read_others(parquet, file)))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from error


def read_removes(data: bytes, *, file: str) -> list[Remove]:
    """The tombstones of a checkpoint file or sidecar. Raises CorruptTable naming `file`."""
    if file.endswith(".json"):
        return [item for item in decode_actions(data, file=file) if isinstance(item, Remove)]
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        if "remove" not in parquet.schema_arrow.names:
            return []
        return [
            cast(Remove, action)
            for action in _actions(parquet.read(["remove"])["remove"], "remove", "path", file)
        ]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from error


def _damaged(file: str, error: Exception) -> CorruptTable:
    return CorruptTable(f"{file}: not a readable checkpoint: {error}")


def _read_others(parquet: pq.ParquetFile, file: str) -> Iterator[Action]:
    present = [name for name in _OTHER_COLUMNS if name in parquet.schema_arrow.names]
    if present:
        table = parquet.read(present)
        for name in present:
            yield from _actions(table[name], name, _OTHER_COLUMNS[name], file)


def _actions(column: pa.ChunkedArray, name: str, required: str, file: str) -> Iterator[Action]:
    for chunk in column.chunks:
        rows = _present(chunk, required)
        for value in rows.to_pylist(maps_as_pydicts="lossy"):
            yield from actions_from_object({name: _without_nulls(value)}, file=file)


def _present(chunk: pa.StructArray, required: str) -> pa.StructArray:
    """The rows that are an action. Some writers leave the struct there and all its fields null."""
    if chunk.type.get_field_index(required) < 0:
        raise ValueError(f"expected a field {required!r}, found {chunk.type}")
    key = pc.struct_field(chunk, required)
    return chunk.filter(key.is_valid()) if key.null_count else chunk


def _without_nulls(value: JsonObject) -> JsonObject:
    """Null fields are absent ones; nulls inside maps stay."""
    return {
        name: _without_nulls(cast(JsonObject, item)) if name in _NESTED else item
        for name, item in value.items()
        if item is not None
    }


def _read_files(parquet: pq.ParquetFile) -> pa.Table:
    schema = parquet.schema_arrow
    index = schema.get_field_index("add")
    if index < 0:
        return FILES_SCHEMA.empty_table()
    names = [item.name for item in schema.field(index).type]
    wanted = [f"add.{name}" for name in names if name not in _PARSED]
    column = parquet.read(wanted)["add"]
    batches = []
    without_stats = False
    for chunk in column.chunks:
        rows = _rows_of_adds(chunk)
        if len(rows):
            batch = _files_batch(rows)
            without_stats = without_stats or batch.column("stats").null_count > 0
            batches.append(batch)
    files = pa.Table.from_batches(batches, FILES_SCHEMA)
    if without_stats and "stats_parsed" in names:
        return _with_parsed_stats(files, parquet.read(["add.path", "add.stats_parsed"])["add"])
    return files


def _rows_of_adds(chunk: pa.StructArray) -> pa.StructArray:
    """The rows with an add: a slice where they stand together, which copies nothing."""
    path = pc.struct_field(chunk, "path")
    if not path.null_count:
        return chunk
    valid = path.is_valid()
    count = len(path) - path.null_count
    if not count:
        return chunk.slice(0, 0)
    first = pc.index(valid, True).as_py()
    run = valid.slice(first, count)
    if len(run) == count and pc.all(run).as_py():
        return chunk.slice(first, count)
    return chunk.filter(valid)


def _files_batch(rows: pa.StructArray) -> pa.RecordBatch:
    fields = dict(zip((item.name for item in rows.type), rows.flatten()))
    if "path" not in fields or "partitionValues" not in fields:
        raise ValueError(f"column add: expected path, partitionValues ..., found {rows.type}")
    columns: dict[str, pa.Array] = {}
    for name, ours in _ADD_FIELDS.items():
        columns[ours] = _as(fields.pop(name, None), FILES_SCHEMA.field(ours).type, len(rows))
    for name, ours in _MAP_FIELDS.items():
        columns[ours] = _as_map(fields.pop(name, None), len(rows))
    columns["deletion_vector"] = _as_vectors(fields.pop("deletionVector", None), len(rows))
    columns["extra"] = _extras(fields, len(rows))
    for name in ("path", "size", "modification_time", "data_change"):
        if columns[name].null_count:
            raise ValueError(f"column add: {name} is null in {columns[name].null_count} rows")
    arrays = [columns[name] for name in FILES_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=FILES_SCHEMA)


def _as(values: pa.Array | None, data_type: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, data_type)
    return values if values.type.equals(data_type) else values.cast(data_type)


def _as_map(values: pa.Array | None, rows: int) -> pa.Array:
    """A map of strings with Arrow's own field names, whatever the writer called key and value."""
    if values is None or values.null_count == rows:
        return pa.nulls(rows, STRING_MAP)
    if values.type.equals(STRING_MAP):
        return values
    if not pa.types.is_map(values.type):
        raise ValueError(f"column add: expected a map of strings, found {values.type}")
    offsets = values.offsets
    keys, items = values.keys.cast(pa.string()), values.items.cast(pa.string())
    mask = values.is_null() if values.null_count else None
    if mask is not None and offsets.offset:
        offsets = pa.concat_arrays([offsets])
    return pa.MapArray.from_arrays(offsets, keys, items, STRING_MAP, mask=mask)


def _as_vectors(values: pa.Array | None, rows: int) -> pa.Array:
    if values is None or values.null_count == rows:
        return pa.nulls(rows, VECTOR_TYPE)
    parts = dict(zip((item.name for item in values.type), values.flatten()))
    storage = parts.get("storageType")
    if storage is None or storage.null_count == rows:
        return pa.nulls(rows, VECTOR_TYPE)
    arrays = [
        _as(parts.get(name), VECTOR_TYPE.field(ours).type, rows)
        for name, ours in _VECTOR_FIELDS.items()
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=[VECTOR_TYPE.field(i) for i in range(5)], mask=storage.is_null()
    )


def _extras(unknown: dict[str, pa.Array], rows: int) -> pa.Array:
    """The unknown fields of each row as one JSON object, or null."""
    known = {name: values for name, values in unknown.items() if values.null_count < rows}
    if not known:
        return pa.nulls(rows, pa.string())
    columns = [values.to_pylist(maps_as_pydicts="lossy") for values in known.values()]
    texts: list[str | None] = []
    for row in zip(*columns):
        extra = {name: value for name, value in zip(known, row) if value is not None}
        texts.append(json.dumps(extra, default=str, ensure_ascii=False) if extra else None)
    return pa.array(texts, pa.string())


def _with_parsed_stats(files: pa.Table, column: pa.ChunkedArray) -> pa.Table:
    """Files whose statistics stand in `stats_parsed` alone, with their JSON made from it."""
    texts: list[pa.Array] = []
    for chunk in column.chunks:
        rows = _rows_of_adds(chunk)
        if len(rows):
            texts.append(stats_to_json(pc.struct_field(rows, "stats_parsed")))
    stats = pc.coalesce(files["stats"], pa.chunked_array(texts, pa.string()))
    return files.set_column(FILES_SCHEMA.get_field_index("stats"), "stats", stats)


def sidecar_names(others: Sequence[Action]) -> list[str]:
    """The paths of the sidecars that a V2 checkpoint names, as written."""
    return [action.path for action in others if isinstance(action, Sidecar)]
