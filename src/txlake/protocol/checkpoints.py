"""Reading of checkpoint files: Parquet columns to files (as Arrow) and to actions.

Owns the shape of a checkpoint's columns. What a checkpoint means for a version is `log.replay`'s;
writing is `checkpoint_writing`'s. Only needed columns are read, rows of files stay Arrow. Source:
PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.protocol.actions import (
    Action,
    Add,
    JsonObject,
    Remove,
    actions_from_object,
    decode_actions,
)
from txlake.protocol.file_rows import FILES_SCHEMA, STRING_MAP, VECTOR_TYPE, files_table
from txlake.protocol.lazy_stats import (
    BATCH_ROWS,
    PARQUET_ERRORS,
    DecodedStats,
    Mask,
    ParquetStats,
    unreadable_checkpoint,
)
from txlake.protocol.parquet_sizes import require_bounded
from txlake.protocol.row_groups import RowGroups, rows_of

# The columns of actions other than adds and removes, each with its required field.
_OTHER_COLUMNS = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "checkpointMetadata": "version",
    "sidecar": "path",
}
_OTHER_LEAVES = [f"{name}." for name in _OTHER_COLUMNS]
_OTHER_KEYS = [f"{name}.{required}" for name, required in _OTHER_COLUMNS.items()]
_ADD_FIELDS = {
    "path": "path",
    "size": "size",
    "modificationTime": "modification_time",
    "dataChange": "data_change",
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
# Not read with the other columns: statistics are read when needed, the last one never.
_NOT_COLUMNS = {"stats", "stats_parsed", "partitionValues_parsed"}
_CHUNKS_LOOKED_AT_MAX = 4_000
_COLUMNS_SCHEMA = FILES_SCHEMA.remove(FILES_SCHEMA.get_field_index("stats"))


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointRows:
    """The content of one file of a checkpoint, without its tombstones.

    Attributes:
        columns: the live files in FILES_SCHEMA but for `stats`.
        stats: the files' statistics.
        others: all actions other than adds and removes: protocol, metadata, sidecars ...
    """

    columns: pa.Table
    stats: ParquetStats | DecodedStats
    others: tuple[Action, ...]


def read_checkpoint(data: bytes, *, file: str) -> CheckpointRows:
    """Return a checkpoint file's or sidecar's content; the name says whether it is Parquet or JSON
    lines.

    Raises CorruptTable naming `file` when it can't be decoded. Damage to the statistics alone
    raises when they are used.
    """
    if file.endswith(".json"):
        actions = decode_actions(data, file=file)
        files = files_table([action for action in actions if isinstance(action, Add)])
        rest = tuple(action for action in actions if not isinstance(action, Add | Remove))
        return CheckpointRows(files.drop_columns("stats"), DecodedStats(files["stats"]), rest)
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        groups = RowGroups(parquet.metadata)
        with_adds = groups.holding(["add.path"])
        fields = _add_fields(parquet, with_adds)
        columns = [f"add.{name}" for name in fields - _NOT_COLUMNS]
        with_others = groups.holding(_OTHER_KEYS)
        read = sorted({*with_adds, *with_others})
        require_bounded(data, parquet.metadata, [*_OTHER_LEAVES, *columns], read)
        others = tuple(_read_others(parquet, with_others, file))
        files, present = _read_files(parquet, fields, with_adds)
        stats = _stats(data, parquet, fields, with_adds, present, file)
        return CheckpointRows(files, stats, others)
    except PARQUET_ERRORS as error:
        raise unreadable_checkpoint(file, error) from error


def read_removes(data: bytes, *, file: str) -> list[Remove]:
    """Return the tombstones of a checkpoint file or sidecar. Raises CorruptTable naming `file`."""
    if file.endswith(".json"):
        return [item for item in decode_actions(data, file=file) if isinstance(item, Remove)]
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        if "remove" not in parquet.schema_arrow.names:
            return []
        groups = RowGroups(parquet.metadata).holding(["remove.path"])
        require_bounded(data, parquet.metadata, ["remove."], groups)
        removes = parquet.read_row_groups(groups, ["remove"])["remove"]
        return [cast(Remove, action) for action in _actions(removes, "remove", "path", file)]
    except PARQUET_ERRORS as error:
        raise unreadable_checkpoint(file, error) from error


def _read_others(parquet: pq.ParquetFile, groups: Sequence[int], file: str) -> Iterator[Action]:
    """Yield the actions other than adds and removes in these row groups, column by column."""
    present = [name for name in _OTHER_COLUMNS if name in parquet.schema_arrow.names]
    if present:
        table = parquet.read_row_groups(groups, present)
        for name in present:
            yield from _actions(table[name], name, _OTHER_COLUMNS[name], file)


def _actions(column: pa.ChunkedArray, name: str, required: str, file: str) -> Iterator[Action]:
    """Yield the actions of one column; rows without a value in the field `required` hold none.

    Raises CorruptTable as `actions_from_object`, and ValueError if the column lacks the field.
    """
    for chunk in column.chunks:
        rows = _present(chunk, required)
        for value in rows.to_pylist(maps_as_pydicts="lossy"):
            yield from actions_from_object({name: _without_nulls(value)}, file=file)


def _present(chunk: pa.StructArray, required: str) -> pa.StructArray:
    """Return the rows that hold an action. Some writers write a struct of nulls for other rows.

    Raises ValueError if the type lacks the field `required`.
    """
    if chunk.type.get_field_index(required) < 0:
        raise ValueError(f"expected a field {required!r}, found {chunk.type}")
    key = pc.struct_field(chunk, required)
    return chunk.filter(key.is_valid()) if key.null_count else chunk


def _without_nulls(value: JsonObject) -> JsonObject:
    """Return the fields without nulls, since a null field is an absent one; nulls inside maps
    stay.
    """
    return {
        name: _without_nulls(cast(JsonObject, item)) if name in _NESTED else item
        for name, item in value.items()
        if item is not None
    }


def _read_files(
    parquet: pq.ParquetFile, fields: AbstractSet[str], groups: Sequence[int]
) -> tuple[pa.Table, Mask]:
    """Return the files in these row groups without statistics, and a mask of the groups' rows that
    hold a file.
    """
    batches: list[pa.RecordBatch] = []
    present = np.zeros(rows_of(parquet.metadata, groups), np.bool_)
    if "path" in fields and groups:
        start = 0
        columns = [f"add.{name}" for name in sorted(fields - _NOT_COLUMNS)]
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
            adds = batch.column(0)
            present[start : start + len(adds)] = pc.struct_field(adds, "path").is_valid()
            start += len(adds)
            rows = _rows_of_adds(adds)
            if len(rows):
                batches.append(_files_batch(rows))
    return pa.Table.from_batches(batches, _COLUMNS_SCHEMA), present


def _add_fields(parquet: pq.ParquetFile, groups: Sequence[int]) -> AbstractSet[str]:
    """Return the fields of `add` that the Parquet statistics don't prove to be null in all rows of
    these row groups.

    Nested fields are always kept, except `deletionVector`, and so are all fields of a file with
    very many column chunks. Empty without the column. Raises ValueError if it lacks a required
    field.
    """
    schema, metadata = parquet.schema_arrow, parquet.metadata
    index = schema.get_field_index("add")
    if index < 0:
        return frozenset()
    fields = schema.field(index).type
    names = {item.name for item in fields}
    if not {"path", "partitionValues"} <= names:
        raise ValueError(f"column add: expected path, partitionValues ..., found {sorted(names)}")
    if len(groups) * metadata.num_columns > _CHUNKS_LOOKED_AT_MAX:
        return names
    # In nested columns null and empty have equal counts; an empty vector counts as none anyway.
    filled = {item.name for item in fields if pa.types.is_nested(item.type) or "." in item.name}
    filled.discard("deletionVector")
    for group in groups:
        columns = metadata.row_group(group)
        for place in range(columns.num_columns):
            column = columns.column(place)
            path = column.path_in_schema.split(".")
            if path[0] == "add" and path[1] not in filled:
                facts = column.statistics
                known = facts is not None and facts.has_null_count
                if not known or facts.null_count != column.num_values:
                    filled.add(path[1])
    return names & filled


def _stats(
    data: bytes,
    parquet: pq.ParquetFile,
    fields: AbstractSet[str],
    groups: Sequence[int],
    present: Mask,
    file: str,
) -> ParquetStats | DecodedStats:
    """Return the statistics of the files in these row groups, not yet decoded; nulls where the file
    has none.
    """
    names = [name for name in ("stats", "stats_parsed") if name in fields]
    if names and present.any():
        return ParquetStats(data, parquet.metadata, names, groups, present, file)
    return DecodedStats(pa.chunked_array([_nulls(pa.string(), int(np.count_nonzero(present)))]))


def _rows_of_adds(chunk: pa.StructArray) -> pa.StructArray:
    """Return the rows with an add: a slice where they are contiguous, which copies nothing."""
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
    """Return adds in the columns of FILES_SCHEMA but for `stats`.

    Raises ValueError for a null in a required field.
    """
    fields = dict(zip((item.name for item in rows.type), rows.flatten()))
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
    arrays = [columns[name] for name in _COLUMNS_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS_SCHEMA)


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Return nulls that share their memory with all others of the type."""
    return _many_nulls(kind).slice(0, rows) if rows <= BATCH_ROWS else pa.nulls(rows, kind)


@lru_cache(maxsize=16)
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(BATCH_ROWS, kind)


def _as(values: pa.Array | None, data_type: pa.DataType, rows: int) -> pa.Array:
    """Return the values cast to the type; nulls where the column is missing."""
    if values is None:
        return _nulls(data_type, rows)
    return values if values.type.equals(data_type) else values.cast(data_type)


def _as_map(values: pa.Array | None, rows: int) -> pa.Array:
    """Return a map of strings with Arrow's own field names, whatever names the writer used.

    Nulls where the column is missing. Raises ValueError if it isn't a map.
    """
    if values is None or values.null_count == rows:
        return _nulls(STRING_MAP, rows)
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
    """Return descriptors of deletion vectors; null without a storage type, or where the column is
    missing.
    """
    if values is None or values.null_count == rows:
        return _nulls(VECTOR_TYPE, rows)
    parts = dict(zip((item.name for item in values.type), values.flatten()))
    storage = parts.get("storageType")
    if storage is None or storage.null_count == rows:
        return _nulls(VECTOR_TYPE, rows)
    arrays = [
        _as(parts.get(name), VECTOR_TYPE.field(ours).type, rows)
        for name, ours in _VECTOR_FIELDS.items()
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=[VECTOR_TYPE.field(i) for i in range(5)], mask=storage.is_null()
    )


def _extras(unknown: dict[str, pa.Array], rows: int) -> pa.Array:
    """Return the unknown fields of each row as one JSON object, or null."""
    known = {name: values for name, values in unknown.items() if values.null_count < rows}
    if not known:
        return _nulls(pa.string(), rows)
    columns = [values.to_pylist(maps_as_pydicts="lossy") for values in known.values()]
    texts: list[str | None] = []
    for row in zip(*columns):
        extra = {name: value for name, value in zip(known, row) if value is not None}
        texts.append(json.dumps(extra, default=str, ensure_ascii=False) if extra else None)
    return pa.array(texts, pa.string())
