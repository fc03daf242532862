"""What Spark's tasks read by themselves: files that Spark can't decode, and deletion vectors.

This module travels with the job, see `executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.spark import executor_files

_BATCH_ROWS = 65_536
_VECTORS_KEPT = 8
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class DecodeTask:
    """Reads Parquet files by pyarrow: rows of (ordinal, URL) become the files' rows.

    `schema`: the wanted columns, serialised Arrow, the last two being the file's ordinal and the
    row's position. Columns are found by field id with `by_id`, else by name; absent ones are null.
    """

    schema: bytes
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task over one Spark partition."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for batch in batches:
            for ordinal, url in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self._rows(ordinal, url, schema)

    def _rows(self, ordinal: int, url: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = list(schema)[:-2]
        start = 0
        with executor_files.open_file(url, self.options) as source:
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            for batch in file.iter_batches(_BATCH_ROWS):
                rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
                columns = [column_of(rows, one, self.by_id) for one in wanted]
                columns.append(pa.array(np.full(batch.num_rows, ordinal), pa.int64()))
                columns.append(pa.array(np.arange(start, start + batch.num_rows), pa.int64()))
                start += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def column_of(rows: pa.StructArray, wanted: pa.Field, by_id: bool) -> pa.Array:
    """The field of the rows that a wanted field means, in its type; nulls when there is none."""
    place = place_of(list(rows.type), wanted, by_id)
    if place is None:
        return pa.nulls(len(rows), wanted.type)
    return as_type(rows.field(place), wanted.type, by_id)


def place_of(fields: list[pa.Field], wanted: pa.Field, by_id: bool) -> int | None:
    """Which of a file's fields a wanted field means: by id, or by name as Spark compares names.

    Fields without an id in the table are found by name, whatever the mode. Raises ValueError when
    several names differ in case alone.
    """
    identity = _id_of(wanted) if by_id else None
    if identity is not None:
        return next((i for i, item in enumerate(fields) if _id_of(item) == identity), None)
    for place, item in enumerate(fields):
        if item.name == wanted.name:
            return place
    folded = wanted.name.lower()
    alike = [place for place, item in enumerate(fields) if item.name.lower() == folded]
    if len(alike) > 1:
        raise ValueError(f"column {wanted.name!r}: the file has {[fields[i].name for i in alike]}")
    return alike[0] if alike else None


def _id_of(item: pa.Field) -> bytes | None:
    identity: bytes | None = (item.metadata or {}).get(_FIELD_ID)
    return identity


def as_type(array: pa.Array, wanted: pa.DataType, by_id: bool) -> pa.Array:
    """The values of a file's column in the table's type; struct fields that it lacks are null."""
    if array.type.equals(wanted) and not _requires(wanted):
        return array
    if isinstance(array, pa.ExtensionArray):
        return as_type(array.storage, wanted, by_id)
    if pa.types.is_struct(wanted):
        parts = [_present(column_of(array, one, by_id), one, array) for one in wanted]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if pa.types.is_list(wanted):
        if not pa.types.is_list(array.type):  # as other writers hold lists in memory
            array = array.cast(pa.list_(array.type.value_field))
        return _with_child(array, wanted, as_type(array.values, wanted.value_type, by_id))
    if pa.types.is_map(wanted):
        keys = as_type(array.keys, wanted.key_type, by_id)
        items = as_type(array.items, wanted.item_type, by_id)
        fields = [wanted.key_field, wanted.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _with_child(array, wanted, entries)
    # Text is bytes to Spark and to Parquet, whether it is UTF-8 or not.
    return array.cast(wanted, safe=not pa.types.is_string(wanted))


def _requires(wanted: pa.DataType) -> bool:
    """Whether a field inside may not be null: those of a variant."""
    parts = (wanted.field(place) for place in range(wanted.num_fields))
    return any(not item.nullable or _requires(item.type) for item in parts)


def _present(part: pa.Array, wanted: pa.Field, rows: pa.StructArray) -> pa.Array:
    """A struct's field; a required one is empty where the struct itself is null."""
    if wanted.nullable or not part.null_count:
        return part
    if pc.any(pc.and_(part.is_null(), rows.is_valid())).as_py():
        raise ValueError(f"field {wanted.name!r} is null")
    return part.fill_null(b"")


def _with_child(array: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """The lists or maps with other entries in the places of theirs."""
    return pa.Array.from_buffers(
        wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [child]
    )


@dataclass(frozen=True)
class StoredVector:
    """Where a deletion vector stands: its file's URL, or itself in `data`.

    The names are those of `actions.DeletionVector`, whose reader `LiveRows` uses.
    """

    url: str
    offset: int
    size_in_bytes: int
    cardinality: int
    data: bytes | None = None


@dataclass(frozen=True)
class LiveRows:
    """Tells the live rows from the deleted ones, by vectors that the executors read themselves.

    `vectors`: by file ordinal; rows of files without one are live. `decode` gives the positions of
    the bytes of a vector; it raises when they are damaged.
    """

    vectors: Mapping[int, StoredVector]
    decode: Callable[[bytes, StoredVector], Any]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        """For each row (ordinal, position), whether it is live."""
        kept: dict[int, np.ndarray] = {}
        for files, rows in batches:
            ordinals = files.to_numpy(zero_copy_only=False)
            positions = rows.to_numpy(zero_copy_only=False).astype(np.uint64)
            live = np.ones(len(positions), dtype=bool)
            for ordinal in np.unique(ordinals):
                deleted = self._deleted(int(ordinal), kept)
                if len(deleted):
                    places = np.flatnonzero(ordinals == ordinal)
                    live[places] = ~_contains(deleted, positions[places])
            yield pa.array(live)

    def _deleted(self, ordinal: int, kept: dict[int, np.ndarray]) -> np.ndarray:
        if ordinal not in kept:
            if len(kept) >= _VECTORS_KEPT:
                kept.pop(next(iter(kept)))
            kept[ordinal] = self._load(self.vectors.get(ordinal))
        return kept[ordinal]

    def _load(self, vector: StoredVector | None) -> np.ndarray:
        if vector is None:
            return np.empty(0, np.uint64)
        data = vector.data
        if data is None:
            length = vector.size_in_bytes + 8
            data = executor_files.read_range(vector.url, vector.offset, length, self.options)
        positions = self.decode(data, vector)
        return np.fromiter(positions, np.uint64, len(positions))


def _contains(ordered: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which of the wanted numbers are among the ordered ones."""
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    found: np.ndarray = ordered[places] == wanted
    return found
