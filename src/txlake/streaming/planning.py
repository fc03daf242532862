"""What Spark's tasks are told of a stream's files: the read of a micro-batch, and its columns.

Owns the columns that a stream shows of a table: all of them nullable, as Spark's own file streams
have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import types as T

from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.stored_vectors import StoredVector, as_array
from txlake.datafiles.stream_task import StreamedFile, StreamTask
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol import paths
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.collations import with_collations
from txlake.protocol.deletion_vectors import decode_inline, slice_range
from txlake.protocol.partition_values import parse_value
from txlake.protocol.reach import Reach
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct, to_arrow_type
from txlake.spark.bounded_text import is_padded, length_of
from txlake.spark.types import all_nullable, parquet_field, spark_schema
from txlake.streaming.feed import require_feed
from txlake.transaction.change_feed import Told, as_derived, as_recorded, labelled

File = TypeVar("File")
_PARTITION_BYTES = 32 * 1024 * 1024


def stream_schema(snapshot: Snapshot) -> T.StructType:
    """The columns that a stream of the table has."""
    found = all_nullable(spark_schema(with_collations(snapshot.schema)))
    assert isinstance(found, T.StructType)
    return found


def stream_task(
    snapshot: Snapshot, options: Mapping[str, str], shown: T.StructType | None = None
) -> StreamTask:
    """How tasks read the table's files; `shown` are the columns that Spark expects."""
    schema = snapshot.schema
    expected = stream_schema(snapshot) if shown is None else shown
    partitions = {name: place for place, name in enumerate(snapshot.partition_columns)}
    held: list[Field] = []
    sources: list[int | None] = []
    for item in schema:
        if item.name in partitions:
            sources.append(-1 - partitions[item.name])
        elif item.type == Primitive("void"):
            sources.append(None)
        else:
            sources.append(len(held))
            held.append(item)
    columns = [
        pa.field(item.name, _shown_type(item.type, one.dataType), one.nullable)
        for item, one in zip(schema, expected.fields, strict=True)
    ]
    return StreamTask(
        schema=pa.schema(map(parquet_field, held)).serialize().to_pybytes(),
        row_schema=pa.schema(columns).serialize().to_pybytes(),
        sources=tuple(sources),
        padded={
            place: length
            for place, item in enumerate(schema)
            if is_padded(item) and (length := length_of(item)) is not None
        },
        by_id=snapshot.column_mapping_mode == "id",
        options=dict(options),
    )


def _shown_type(data_type: DataType, expected: T.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values of a type from a Python data source.

    `expected` is Spark's own, which says what may be null.
    """
    match data_type, expected:
        case Struct(fields), T.StructType():
            return pa.struct(
                [
                    pa.field(item.name, _shown_type(item.type, one.dataType), one.nullable)
                    for item, one in zip(fields, expected.fields, strict=True)
                ]
            )
        case Array(element, _), T.ArrayType():
            inner = _shown_type(element, expected.elementType)
            return pa.list_(pa.field("element", inner, expected.containsNull))
        case Map(key, value, _), T.MapType():
            item = _shown_type(value, expected.valueType)
            nullable = expected.valueContainsNull
            return pa.map_(_shown_type(key, expected.keyType), pa.field("value", item, nullable))
        case _:
            return to_arrow_type(data_type)


def streamed_file(snapshot: Snapshot, add: Add, reach: Reach) -> StreamedFile:
    """Where tasks find a file. Raises as `Reach.url`, CorruptTable for a bad partition value."""
    values = []
    for name in snapshot.partition_columns:
        item = snapshot.schema.find(name)
        assert item is not None
        values.append(parse_value(add.partition_values.get(item.physical_name), item.type))
    vector = add.deletion_vector
    return StreamedFile(
        url=reach.url(add.path),
        vector=None if vector is None else _stored_vector(vector, reach),
        partition=tuple(values),
    )


def _stored_vector(vector: DeletionVector, reach: Reach) -> StoredVector:
    if vector.storage_type == "i":
        return StoredVector(data=pack_positions(as_array(decode_inline(vector)).astype("int64")))
    path = reach.vector(vector)
    url = path if paths.is_absolute(path) else f"{reach.root}/{paths.encode_path(path)}"
    offset, _ = slice_range(vector)
    return StoredVector(url, offset, vector.size_in_bytes, vector.cardinality)


def feed_schema(snapshot: Snapshot) -> T.StructType:
    """The columns that a stream of the table's changes has. Raises as `require_feed`."""
    require_feed(snapshot, snapshot.version)
    return stream_schema(as_derived(snapshot))


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """How tasks read the changes of a table: `shown` are the columns that Spark expects."""

    own: Snapshot
    options: Mapping[str, str] = field(repr=False)
    shown: T.StructType | None = None

    def parts(
        self, told: Sequence[Told], reach: Reach
    ) -> list[tuple[StreamTask, list[StreamedFile]]]:
        """The changes by Spark's tasks, in their order. Raises as `streamed_file`."""
        ways = {True: as_recorded(self.own), False: as_derived(self.own)}
        tasks = {
            is_recorded: stream_task(snapshot, self.options, self.shown)
            for is_recorded, snapshot in ways.items()
        }
        parts = []
        for is_recorded, ones in groupby(told, key=lambda one: one.change_type is None):
            snapshot, task = ways[is_recorded], tasks[is_recorded]
            for part in in_partitions(list(ones), lambda one: one.file.size):
                parts.append((task, [_with_change(snapshot, one, reach) for one in part]))
        return parts


def _with_change(snapshot: Snapshot, told: Told, reach: Reach) -> StreamedFile:
    found = streamed_file(snapshot, labelled(told), reach)
    if told.only is None:
        return found
    positions = pack_positions(as_array(told.only).astype("int64"))
    return replace(found, vector=None, only=StoredVector(data=positions))


def in_partitions(files: Sequence[File], size_of: Callable[[File], int]) -> list[list[File]]:
    """The files by Spark's tasks, in order, each of about the same size."""
    parts: list[list[File]] = []
    size = 0
    for file in files:
        if not parts or size + size_of(file) > _PARTITION_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += size_of(file)
    return parts


def require_own_schema(schema: T.StructType, own: T.StructType, table: str) -> None:
    """Raises InvalidRequest unless the columns that Spark expects are those of the table."""
    if _plain(schema) != _plain(own):
        raise InvalidRequest(
            f"{table}: the stream was made with the columns {_plain(schema)}, and the "
            f"table has {_plain(own)}: its schema changed since, or schema(...) was given, which a "
            "stream of a table doesn't take. Make the stream anew, without schema(...)"
        )


def _plain(schema: T.StructType) -> str:
    return re.sub(r"\s+", " ", schema.simpleString())
