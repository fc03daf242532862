"""Checkpoint files written: a version's state as Parquet, one row an action.

Owns the columns and their types, which Spark and other engines read. Which kind of checkpoint,
under which names, is `transaction.checkpointing`'s. Source: PROTOCOL.md, "Checkpoint Schema" and
"Checkpoints" (requirements for writers).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from txlake.protocol.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    JsonObject,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
    action_to_object,
)
from txlake.protocol.checkpoint_stats import partition_values_parsed, stats_from_json, stats_type
from txlake.protocol.file_rows import STRING_MAP
from txlake.protocol.spark_hash import SEED, hash_texts, part_of
from txlake.protocol.types import Struct

_BATCH_ROWS = 100_000
_STRINGS = pa.list_(pa.field("element", pa.string()))
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_TYPES = {
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
            ("deletionVector", _VECTOR),
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
            ("deletionVector", _VECTOR),
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
_V1_COLUMNS = ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")
_SIDECAR_COLUMNS = ("add", "remove")
_MANIFEST_COLUMNS = (
    "txn",
    "metaData",
    "protocol",
    "domainMetadata",
    "checkpointMetadata",
    "sidecar",
)
# Columns of FILES_SCHEMA in the order of the fields of `add`, up to the deletion vector.
_ADD_SOURCES = ("path", "partition_values", "size", "modification_time", None, "tags")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckpointState:
    """What a checkpoint holds.

    Attributes:
        files: the live files in FILES_SCHEMA.
        removes: the tombstones that haven't expired.
        schema, partition_columns: logical, for the typed columns.
        stats_as_json, stats_as_struct: the forms in which statistics are written.
        has_vectors: whether the table has deletion vectors (part of a multi-part key).
    """

    protocol: Protocol
    metadata: Metadata
    app_transactions: Sequence[Txn]
    domains: Sequence[DomainMetadata]
    files: pa.Table
    removes: Sequence[Remove]
    schema: Struct
    partition_columns: Sequence[str]
    stats_as_json: bool = True
    stats_as_struct: bool = False
    has_vectors: bool = False

    @property
    def others(self) -> list[Action]:
        """All actions but those of files."""
        return [self.protocol, self.metadata, *self.app_transactions, *self.domains]

    @property
    def file_actions(self) -> int:
        """How many adds and removes there are."""
        return int(self.files.num_rows) + len(self.removes)


def classic_checkpoint(state: CheckpointState) -> bytes:
    """A checkpoint in one file, after the V1 spec."""
    writer = _Writer(state, _V1_COLUMNS)
    writer.others(state.others)
    writer.adds(state.files)
    writer.removes(state.removes)
    return writer.close()


def multi_part_checkpoint(state: CheckpointState, parts: int) -> Iterator[bytes]:
    """The parts of a V1 checkpoint in order, split by Spark's hash of the file's identity."""
    adds = part_of(_hashes_of_adds(state), parts)
    removes = part_of(_hashes_of_removes(state), parts)
    others_part = int(part_of(np.array([SEED], np.uint32), parts)[0])
    for part in range(parts):
        writer = _Writer(state, _V1_COLUMNS)
        if part == others_part:
            writer.others(state.others)
        writer.adds(state.files.take(pa.array(np.flatnonzero(adds == part))))
        writer.removes([state.removes[row] for row in np.flatnonzero(removes == part).tolist()])
        yield writer.close()


def sidecar_files(state: CheckpointState, rows_max: int) -> Iterator[bytes]:
    """The files of a V2 checkpoint's adds and removes; none when there are no such actions."""
    rows = state.files.num_rows
    starts = range(0, rows, rows_max) if rows else range(1 if state.removes else 0)
    for start in starts:
        writer = _Writer(state, _SIDECAR_COLUMNS)
        writer.adds(state.files.slice(start, rows_max))
        if start == starts[-1]:
            writer.removes(state.removes)
        yield writer.close()


def manifest(state: CheckpointState, version: int, sidecars: Sequence[Sidecar]) -> bytes:
    """The Parquet manifest of a V2 checkpoint."""
    writer = _Writer(state, _MANIFEST_COLUMNS)
    writer.others([CheckpointMetadata(version=version), *state.others, *sidecars])
    return writer.close()


class _Writer:
    """One Parquet file of actions, written batch by batch."""

    def __init__(self, state: CheckpointState, names: Sequence[str]) -> None:
        self._state = state
        self._types = {name: _TYPES[name] for name in names}
        self._stats_type: pa.StructType | None = None
        self._extra_types: dict[str, pa.DataType] = {}
        if "add" in self._types:
            self._extend_add()
        if "remove" in self._types:
            extras = [remove.extra for remove in state.removes if remove.extra]
            self._types["remove"] = _with_extras(self._types["remove"], extras)
        for name, actions in _by_name(state.others).items():
            if name in self._types:
                self._types[name] = _with_extras(self._types[name], actions)
        self._schema = pa.schema(self._types.items())
        self._sink = pa.BufferOutputStream()
        self._parquet = pq.ParquetWriter(self._sink, self._schema, compression="snappy")

    def _extend_add(self) -> None:
        """The fields of `add` that depend on the table: statistics, typed values, unknown ones."""
        state = self._state
        fields = list(self._types["add"])
        if state.stats_as_json:
            fields.append(pa.field("stats", pa.string()))
        if state.stats_as_struct:
            parsed = partition_values_parsed(
                state.files["partition_values"].slice(0, 0), state.schema, state.partition_columns
            )
            if parsed is not None:
                fields.append(pa.field("partitionValues_parsed", parsed.type))
            stats = (text for chunk in state.files["stats"].chunks for text in chunk.to_pylist())
            self._stats_type = stats_type(stats, state.schema)
            if self._stats_type is not None:
                fields.append(pa.field("stats_parsed", self._stats_type))
        extras = [extra for extra in _extras_of(state.files) if extra]
        self._extra_types = _extra_types(extras, {item.name for item in fields})
        fields += [pa.field(name, kind) for name, kind in self._extra_types.items()]
        self._types["add"] = pa.struct(fields)

    def others(self, actions: Sequence[Action]) -> None:
        """Rows of actions that aren't of files."""
        for name, objects in _by_name(actions).items():
            kind = self._types[name]
            rows = pa.array([_conformed(item, kind) for item in objects], kind)
            self._rows(name, rows)

    def adds(self, files: pa.Table) -> None:
        """Rows of live files, given in FILES_SCHEMA."""
        for start in range(0, files.num_rows, _BATCH_ROWS):
            batch = files.slice(start, _BATCH_ROWS).combine_chunks()
            self._rows("add", self._add_structs(batch))

    def removes(self, removes: Sequence[Remove]) -> None:
        """Rows of tombstones. Statistics and tags are left out, as the spec wants."""
        kind = self._types["remove"]
        for start in range(0, len(removes), _BATCH_ROWS):
            objects = [
                _fields_of(msgspec.structs.replace(remove, stats=None, tags=None))
                for remove in removes[start : start + _BATCH_ROWS]
            ]
            self._rows("remove", pa.array([_conformed(item, kind) for item in objects], kind))

    def close(self) -> bytes:
        """Ends the file and gives its bytes."""
        self._parquet.close()
        return cast(bytes, self._sink.getvalue().to_pybytes())

    def _rows(self, name: str, rows: pa.StructArray) -> None:
        columns = [
            rows if column == name else pa.nulls(len(rows), kind)
            for column, kind in self._types.items()
        ]
        if len(rows):
            self._parquet.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def _add_structs(self, batch: pa.Table) -> pa.StructArray:
        state, rows = self._state, batch.num_rows
        values: dict[str, pa.Array] = {}
        for item, source in zip(_TYPES["add"], _ADD_SOURCES):
            values[item.name] = (
                pa.array(np.zeros(rows, np.bool_)) if source is None else _one(batch[source])
            )
        values["deletionVector"] = _vectors(_one(batch["deletion_vector"]))
        values["baseRowId"] = _one(batch["base_row_id"])
        values["defaultRowCommitVersion"] = _one(batch["default_row_commit_version"])
        values["clusteringProvider"] = _one(batch["clustering_provider"])
        values["stats"] = _one(batch["stats"])
        if state.stats_as_struct:
            parsed = partition_values_parsed(
                batch["partition_values"], state.schema, state.partition_columns
            )
            if parsed is not None:
                values["partitionValues_parsed"] = parsed
            if self._stats_type is not None:
                texts = batch["stats"].to_pylist()
                values["stats_parsed"] = stats_from_json(texts, self._stats_type)
        if self._extra_types:
            extras = list(_extras_of(batch))
            for name, kind in self._extra_types.items():
                column = [None if extra is None else extra.get(name) for extra in extras]
                values[name] = pa.array([_conformed(item, kind) for item in column], kind)
        kind = self._types["add"]
        return pa.StructArray.from_arrays([values[item.name] for item in kind], fields=list(kind))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _vectors(vectors: pa.StructArray) -> pa.Array:
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), _VECTOR)
    parts = dict(zip((item.name for item in vectors.type), vectors.flatten()))
    names = ("storage_type", "path_or_inline_dv", "offset", "size_in_bytes", "cardinality")
    return pa.StructArray.from_arrays(
        [parts[name] for name in names], fields=list(_VECTOR), mask=vectors.is_null()
    )


def _by_name(actions: Sequence[Action]) -> dict[str, list[JsonObject]]:
    named: dict[str, list[JsonObject]] = {}
    for action in actions:
        name, fields = next(iter(action_to_object(action).items()))
        named.setdefault(name, []).append(cast(JsonObject, fields))
    return named


def _fields_of(action: Action) -> JsonObject:
    return cast(JsonObject, next(iter(action_to_object(action).values())))


def _extras_of(files: pa.Table) -> Iterator[JsonObject | None]:
    """The unknown fields of each row."""
    for chunk in files["extra"].chunks:
        if chunk.null_count == len(chunk):
            yield from (None for _ in range(len(chunk)))
        else:
            for text in chunk.to_pylist():
                yield cast(JsonObject, json.loads(text)) if text else None


def _with_extras(kind: pa.StructType, objects: Sequence[JsonObject]) -> pa.StructType:
    """A column's type with fields for what the actions hold beyond it."""
    found = _extra_types(objects, {item.name for item in kind})
    return pa.struct([*kind, *(pa.field(name, item) for name, item in found.items())])


def _extra_types(objects: Sequence[JsonObject], known: set[str]) -> dict[str, pa.DataType]:
    """Types for unknown fields: what Arrow infers, else text (of JSON)."""
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
    """Whether Parquet has the type: no struct without fields, nothing that is always null."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_storable(item.type) for item in kind)
    if pa.types.is_list(kind):
        return _is_storable(kind.value_type)
    return not pa.types.is_null(kind)


def _conformed(value: object, kind: pa.DataType) -> object:
    """The JSON value as Arrow wants it for a type: maps as pairs, and JSON text where asked."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {item.name: _conformed(value.get(item.name), item.type) for item in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return list(value.items())
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value


def _hashes_of_adds(state: CheckpointState) -> npt.NDArray[np.uint32]:
    paths = cast("list[str | None]", state.files["path"].to_pylist())
    hashes = hash_texts(paths, np.full(len(paths), SEED, np.uint32))
    if not state.has_vectors:
        return hashes
    ids: list[str | None] = []
    for value in state.files["deletion_vector"].to_pylist():
        start = None if value is None else f"{value['storage_type']}{value['path_or_inline_dv']}"
        at = None if value is None else value["offset"]
        ids.append(start if at is None else f"{start}@{at}")
    return hash_texts(ids, hashes)


def _hashes_of_removes(state: CheckpointState) -> npt.NDArray[np.uint32]:
    paths: list[str | None] = [remove.path for remove in state.removes]
    hashes = hash_texts(paths, np.full(len(paths), SEED, np.uint32))
    return (
        hash_texts([remove.key[1] for remove in state.removes], hashes)
        if state.has_vectors
        else hashes
    )
