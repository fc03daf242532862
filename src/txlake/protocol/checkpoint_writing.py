"""Writing of checkpoint files: a version's state as Parquet, one row an action.

Owns the columns and their types, which Spark and other engines read. The choice of the checkpoint's
kind and name is `commit.checkpointing`'s. Source: PROTOCOL.md, "Checkpoint Schema" and
"Checkpoints" (requirements for writers).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Protocol as Interface
from typing import cast

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
from txlake.protocol.checkpoint_columns import (
    CHECKPOINT_TYPES,
    CHECKPOINT_VECTOR_TYPE,
    extra_types,
    to_arrow_value,
    with_extras,
)
from txlake.protocol.checkpoint_stats import (
    are_partitions_known,
    partition_values_parsed,
    stats_from_json,
    stats_type,
)
from txlake.protocol.spark_hash import SEED, hash_texts, part_of
from txlake.protocol.types import Struct

_BATCH_ROWS = 100_000
_FEW_ROWS = 1000
_V1_COLUMNS = ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")
_SIDECAR_COLUMNS = ("add", "remove")
_MANIFEST_COLUMNS = (
    # Delta Spark expects these two columns even where all file actions are in sidecars.
    "add",
    "remove",
    "txn",
    "metaData",
    "protocol",
    "domainMetadata",
    "checkpointMetadata",
    "sidecar",
)
# Fields of `add` that are in FILES_SCHEMA unchanged.
_ADD_SOURCES = {
    "path": "path",
    "partitionValues": "partition_values",
    "size": "size",
    "modificationTime": "modification_time",
    "tags": "tags",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
    "clusteringProvider": "clustering_provider",
    "stats": "stats",
}


class LiveFiles(Interface):
    """The live files of a version, as rows of FILES_SCHEMA.

    They are read in batches: the statistics of all of them may not fit in memory, nor the texts of
    one column in one Arrow array.
    """

    def __len__(self) -> int:
        """Return the number of files."""
        ...

    def columns(self, *names: str) -> pa.Table:
        """Return some columns of all files."""
        ...

    def batches(self) -> Iterator[pa.Table]:
        """Yield the files, all columns of them, always in the same order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckpointState:
    """The content of a checkpoint.

    Attributes:
        files: the live files.
        removes: the tombstones that haven't expired.
        schema, partition_columns: logical, for the typed columns.
        stats_as_json, stats_as_struct: the forms in which statistics are written.
        has_vectors: whether the table has deletion vectors (part of a multi-part key).
    """

    protocol: Protocol
    metadata: Metadata
    app_transactions: Sequence[Txn]
    domains: Sequence[DomainMetadata]
    files: LiveFiles
    removes: Sequence[Remove]
    schema: Struct
    partition_columns: Sequence[str]
    stats_as_json: bool = True
    stats_as_struct: bool = False
    has_vectors: bool = False

    @property
    def others(self) -> list[Action]:
        """All actions except adds and removes."""
        return [self.protocol, self.metadata, *self.app_transactions, *self.domains]

    @property
    def file_actions(self) -> int:
        """The number of adds and removes."""
        return len(self.files) + len(self.removes)


def classic_checkpoint(state: CheckpointState) -> bytes:
    """Return a checkpoint in one file, by the V1 spec."""
    writer = _Writer(_Layout(state).with_adds(), _V1_COLUMNS)
    writer.others(state.others)
    for batch in state.files.batches():
        writer.adds(batch)
    writer.removes(state.removes)
    return writer.close()


def multi_part_checkpoint(state: CheckpointState, parts: int) -> Iterator[bytes]:
    """Yield the parts of a V1 checkpoint in order, split by Spark's hash of the file's identity.

    All other actions are in one part, which the hash of nulls chooses.
    """
    adds = part_of(_hashes_of_adds(state), parts)
    removes = part_of(_hashes_of_removes(state), parts)
    others_part = int(part_of(np.array([SEED], np.uint32), parts)[0])
    layout = _Layout(state).with_adds()
    for part in range(parts):
        writer = _Writer(layout, _V1_COLUMNS)
        if part == others_part:
            writer.others(state.others)
        start = 0
        for batch in state.files.batches():
            chosen = adds[start : start + batch.num_rows] == part
            start += batch.num_rows
            writer.adds(batch.filter(pa.array(chosen)))
        writer.removes([state.removes[row] for row in np.flatnonzero(removes == part).tolist()])
        yield writer.close()


def sidecar_files(state: CheckpointState, rows_max: int) -> Iterator[bytes]:
    """Yield the sidecars of a V2 checkpoint, each with at most `rows_max` adds; none without file
    actions.

    All removes are in the last one.
    """
    if not state.file_actions:
        return
    layout = _Layout(state).with_adds()
    writer, rows = _Writer(layout, _SIDECAR_COLUMNS), 0
    for batch in state.files.batches():
        start = 0
        while start < batch.num_rows:
            if rows == rows_max:
                yield writer.close()
                writer, rows = _Writer(layout, _SIDECAR_COLUMNS), 0
            part = batch.slice(start, rows_max - rows)
            writer.adds(part)
            start, rows = start + part.num_rows, rows + part.num_rows
    writer.removes(state.removes)
    yield writer.close()


def manifest(state: CheckpointState, version: int, sidecars: Sequence[Sidecar]) -> bytes:
    """Return the Parquet manifest of a V2 checkpoint."""
    writer = _Writer(_Layout(state), _MANIFEST_COLUMNS)
    writer.others([CheckpointMetadata(version=version), *state.others, *sidecars])
    return writer.close()


class _Layout:
    """The columns of one checkpoint's files, with the fields that depend on the table."""

    def __init__(self, state: CheckpointState) -> None:
        self.state = state
        self.types = dict(CHECKPOINT_TYPES)
        self.stats_type: pa.StructType | None = None
        self.extra_types: dict[str, pa.DataType] = {}
        for name, objects in _by_name(state.others).items():
            self.types[name] = with_extras(self.types[name], objects)
        self.types["remove"] = with_extras(
            self.types["remove"], [remove.extra for remove in state.removes if remove.extra]
        )

    def with_adds(self) -> _Layout:
        """Return the layout with the columns of the table's files: statistics, typed values,
        unknown fields.
        """
        state = self.state
        fields = list(self.types["add"])
        if state.stats_as_json:
            fields.append(pa.field("stats", pa.string()))
        if state.stats_as_struct:
            maps = state.files.columns("partition_values")["partition_values"]
            columns = state.partition_columns
            parsed = partition_values_parsed(maps.slice(0, 0), state.schema, columns)
            # Without this column readers use the texts.
            if parsed is not None and are_partitions_known(maps, state.schema, columns):
                fields.append(pa.field("partitionValues_parsed", parsed.type))
            batches = state.files.batches()
            stats = (text for batch in batches for text in batch["stats"].to_pylist())
            self.stats_type = stats_type(stats, state.schema)
            if self.stats_type is not None:
                fields.append(pa.field("stats_parsed", self.stats_type))
        extras = [
            cast(JsonObject, json.loads(text))
            for text in state.files.columns("extra")["extra"].drop_null().to_pylist()
        ]
        self.extra_types = extra_types(extras, {item.name for item in fields})
        fields += [pa.field(name, kind) for name, kind in self.extra_types.items()]
        self.types["add"] = pa.struct(fields)
        return self


def _exact_leaves(columns: Iterable[tuple[str, pa.DataType]]) -> Iterator[str]:
    """Yield the leaf columns of Parquet by which readers may skip row groups: all but
    floating-point ones.

    A partition value may be NaN, which Arrow leaves out of bounds, or -0.0, which isn't the 0.0 of
    a dictionary; readers of checkpoints skip by `partitionValues_parsed`.
    """
    for name, kind in columns:
        if pa.types.is_map(kind):
            inner = [("key_value.key", kind.key_type), ("key_value.value", kind.item_type)]
        elif pa.types.is_list(kind):
            inner = [("list.element", kind.value_type)]
        elif pa.types.is_struct(kind):
            inner = [(item.name, item.type) for item in kind]
        else:
            if not pa.types.is_floating(kind):
                yield name
            continue
        yield from _exact_leaves((f"{name}.{part}", data_type) for part, data_type in inner)


class _Writer:
    """The writer of one Parquet file of actions: row groups of whole batches, or one for
    few rows.
    """

    def __init__(self, layout: _Layout, names: Sequence[str]) -> None:
        self._layout = layout
        self._types = {name: layout.types[name] for name in names}
        self._schema = pa.schema(self._types.items())
        self._sink = pa.BufferOutputStream()
        # A few rows aren't skipped, and their dictionaries and bounds would cost more than they do.
        is_small = layout.state.file_actions <= _FEW_ROWS
        exact = [] if is_small else [*_exact_leaves(self._types.items())]
        self._parquet = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="snappy",
            use_dictionary=exact,
            write_statistics=exact,
            store_schema=False,  # for Arrow alone, and a third of a small file
        )
        self._waiting: list[tuple[str, pa.StructArray]] = []

    def others(self, actions: Sequence[Action]) -> None:
        """Write the rows of actions other than adds and removes."""
        for name, objects in _by_name(actions).items():
            kind = self._types[name]
            rows = pa.array([to_arrow_value(item, kind) for item in objects], kind)
            self._rows(name, rows)

    def adds(self, files: pa.Table) -> None:
        """Write the rows of live files, given in FILES_SCHEMA."""
        for start in range(0, files.num_rows, _BATCH_ROWS):
            batch = files.slice(start, _BATCH_ROWS).combine_chunks()
            self._rows("add", self._add_structs(batch))

    def removes(self, removes: Sequence[Remove]) -> None:
        """Write the rows of tombstones. Statistics and tags are left out, as the spec demands.

        Many have row groups of their own, which readers of the live files skip.
        """
        kind = self._types["remove"]
        if len(removes) > _FEW_ROWS:
            self._write_waiting()
        for start in range(0, len(removes), _BATCH_ROWS):
            self._rows("remove", _remove_structs(removes[start : start + _BATCH_ROWS], kind))

    def close(self) -> bytes:
        """End the file and return its bytes."""
        self._write_waiting()
        self._parquet.close()
        return cast(bytes, self._sink.getvalue().to_pybytes())

    def _rows(self, name: str, rows: pa.StructArray) -> None:
        """Take rows of one kind of action; write all that wait once they fill a batch."""
        if len(rows):
            self._waiting.append((name, rows))
        if sum(len(rows) for _, rows in self._waiting) >= _BATCH_ROWS:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """Write the waiting rows as a row group; none wait afterwards."""
        # A row group costs milliseconds even for few rows.
        if self._waiting:
            columns = [self._column(*column) for column in self._types.items()]
            self._parquet.write_table(pa.Table.from_arrays(columns, schema=self._schema))
            self._waiting = []

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return one column of the pending rows: null in rows of another kind of action."""
        parts: list[pa.Array] = []
        for own, waiting in groupby(self._waiting, lambda each: each[0] == name):
            rows = [rows for _, rows in waiting]
            parts += rows if own else [pa.nulls(sum(map(len, rows)), kind)]
        return pa.concat_arrays(parts)

    def _add_structs(self, batch: pa.Table) -> pa.StructArray:
        """Return the files of a batch as structs of the column `add`, with `dataChange` false."""
        state = self._layout.state
        values: dict[str, pa.Array] = {
            "dataChange": pa.array(np.zeros(batch.num_rows, np.bool_)),
            "deletionVector": _vectors(_one(batch["deletion_vector"])),
        }
        for name, source in _ADD_SOURCES.items():
            values[name] = _one(batch[source])
        if state.stats_as_struct:
            if self._types["add"].get_field_index("partitionValues_parsed") >= 0:
                maps = batch["partition_values"]
                values["partitionValues_parsed"] = partition_values_parsed(
                    maps, state.schema, state.partition_columns
                )
            if self._layout.stats_type is not None:
                texts = batch["stats"].to_pylist()
                values["stats_parsed"] = stats_from_json(texts, self._layout.stats_type)
        if self._layout.extra_types:
            extras = list(_extras_of(batch))
            for name, kind in self._layout.extra_types.items():
                column = [None if extra is None else extra.get(name) for extra in extras]
                values[name] = pa.array([to_arrow_value(item, kind) for item in column], kind)
        kind = self._types["add"]
        return pa.StructArray.from_arrays([values[item.name] for item in kind], fields=list(kind))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _vectors(vectors: pa.StructArray) -> pa.Array:
    """Return the descriptors in the checkpoint's form and field order, null for null."""
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), CHECKPOINT_VECTOR_TYPE)
    parts = dict(zip((item.name for item in vectors.type), vectors.flatten()))
    names = ("storage_type", "path_or_inline_dv", "offset", "size_in_bytes", "cardinality")
    return pa.StructArray.from_arrays(
        [parts[name] for name in names], fields=list(CHECKPOINT_VECTOR_TYPE), mask=vectors.is_null()
    )


def _by_name(actions: Sequence[Action]) -> dict[str, list[JsonObject]]:
    """Return the actions' JSON objects by their names on the wire, in order."""
    named: dict[str, list[JsonObject]] = {}
    for action in actions:
        name, fields = next(iter(action_to_object(action).items()))
        named.setdefault(name, []).append(cast(JsonObject, fields))
    return named


def _remove_structs(removes: Sequence[Remove], kind: pa.StructType) -> pa.StructArray:
    """Return tombstones as structs, built column by column: they may be a week's removed files."""
    columns = []
    for item in kind:
        read = _REMOVE_FIELDS.get(item.name)
        values = (
            [to_arrow_value((one.extra or {}).get(item.name), item.type) for one in removes]
            if read is None
            else [read(one) for one in removes]
        )
        columns.append(pa.array(values, item.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _pairs(remove: Remove) -> list[tuple[str, str | None]] | None:
    values = remove.partition_values
    return None if values is None else list(values.items())


def _vector_of(remove: Remove) -> JsonObject | None:
    """Return the descriptor of a tombstone's deletion vector as its JSON object; None without
    one.
    """
    vector = remove.deletion_vector
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


_REMOVE_FIELDS: Mapping[str, Callable[[Remove], object]] = {
    "path": attrgetter("path"),
    "deletionTimestamp": attrgetter("deletion_timestamp"),
    "dataChange": attrgetter("data_change"),
    "extendedFileMetadata": attrgetter("extended_file_metadata"),
    "partitionValues": _pairs,
    "size": attrgetter("size"),
    "deletionVector": _vector_of,
    "baseRowId": attrgetter("base_row_id"),
    "defaultRowCommitVersion": attrgetter("default_row_commit_version"),
}


def _fields_of(action: Action) -> JsonObject:
    return cast(JsonObject, next(iter(action_to_object(action).values())))


def _extras_of(files: pa.Table) -> Iterator[JsonObject | None]:
    """Yield the unknown fields of each row; None for a row without."""
    for chunk in files["extra"].chunks:
        if chunk.null_count == len(chunk):
            yield from (None for _ in range(len(chunk)))
        else:
            for text in chunk.to_pylist():
                yield cast(JsonObject, json.loads(text)) if text else None


def _hashes_of_adds(state: CheckpointState) -> npt.NDArray[np.uint32]:
    """Return the hashes by which the live files are split: of the path, then of the vector's id if
    the table has deletion vectors.
    """
    files = state.files.columns("path", "deletion_vector")
    batches = files.to_batches(max_chunksize=_BATCH_ROWS)
    hashes = [_hashes_of_batch(batch, has_vectors=state.has_vectors) for batch in batches]
    return np.concatenate([np.empty(0, np.uint32), *hashes])


def _hashes_of_batch(files: pa.RecordBatch, *, has_vectors: bool) -> npt.NDArray[np.uint32]:
    """Return the hashes of some files, given by `path` and `deletion_vector`."""
    paths = cast("list[str | None]", files["path"].to_pylist())
    hashes = hash_texts(paths, np.full(len(paths), SEED, np.uint32))
    if not has_vectors:
        return hashes
    ids: list[str | None] = []
    for value in files["deletion_vector"].to_pylist():
        start = None if value is None else f"{value['storage_type']}{value['path_or_inline_dv']}"
        at = None if value is None else value["offset"]
        ids.append(start if at is None else f"{start}@{at}")
    return hash_texts(ids, hashes)


def _hashes_of_removes(state: CheckpointState) -> npt.NDArray[np.uint32]:
    """Return the tombstones' hashes, as `_hashes_of_adds` does for live files."""
    paths: list[str | None] = [remove.path for remove in state.removes]
    hashes = hash_texts(paths, np.full(len(paths), SEED, np.uint32))
    return (
        hash_texts([remove.key[1] for remove in state.removes], hashes)
        if state.has_vectors
        else hashes
    )
