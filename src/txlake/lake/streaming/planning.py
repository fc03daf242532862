"""The plan of a micro-batch's read for Spark's tasks: columns, files and partitions.

Owns the columns of a stream of a table: all nullable, as in Spark's own file streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import types as T

from txlake.commit.change_feed import FeedFile, as_derived, as_recorded, with_feed_columns
from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.stored_vectors import StoredVector, as_array
from txlake.datafiles.stream_task import StreamedFile, StreamTask
from txlake.errors import InvalidRequest
from txlake.lake.streaming.feed import require_feed
from txlake.local.char_types import is_padded, length_of
from txlake.local.types import parquet_field
from txlake.log.snapshot import Snapshot
from txlake.protocol import paths
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.collations import with_collations
from txlake.protocol.deletion_vectors import decode_inline, slice_range
from txlake.protocol.partition_values import parse_value
from txlake.protocol.reach import Reach
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct, to_arrow_type
from txlake.spark.types import all_nullable, spark_schema

File = TypeVar("File")
_PARTITION_BYTES = 32 * 1024 * 1024


def stream_schema(snapshot: Snapshot) -> T.StructType:
    """Return the columns of a stream of the table."""
    columns = all_nullable(spark_schema(with_collations(snapshot.schema)))
    assert isinstance(columns, T.StructType)
    return columns


def stream_task(
    snapshot: Snapshot, options: Mapping[str, str], spark_columns: T.StructType | None = None
) -> StreamTask:
    """Return the task that reads the table's files as `spark_columns`, which Spark expects."""
    schema = snapshot.schema
    expected = stream_schema(snapshot) if spark_columns is None else spark_columns
    partitions = {name: index for index, name in enumerate(snapshot.partition_columns)}
    file_columns: list[Field] = []
    sources: list[int | None] = []
    for item in schema:
        if item.name in partitions:
            sources.append(-1 - partitions[item.name])
        elif item.type == Primitive("void"):
            sources.append(None)
        else:
            sources.append(len(file_columns))
            file_columns.append(item)
    columns = [
        pa.field(item.name, _arrow_type(item.type, target.dataType), target.nullable)
        for item, target in zip(schema, expected.fields, strict=True)
    ]
    return StreamTask(
        schema=pa.schema(map(parquet_field, file_columns)).serialize().to_pybytes(),
        row_schema=pa.schema(columns).serialize().to_pybytes(),
        sources=tuple(sources),
        padded={
            index: length
            for index, item in enumerate(schema)
            if is_padded(item) and (length := length_of(item)) is not None
        },
        by_id=snapshot.column_mapping_mode == "id",
        options=dict(options),
    )


def _arrow_type(data_type: DataType, expected: T.DataType) -> pa.DataType:
    """Return the Arrow type in which a Python data source gives Spark values of a type.

    `expected` is Spark's type, which determines what is nullable.
    """
    match data_type, expected:
        case Struct(fields), T.StructType():
            return pa.struct(
                [
                    pa.field(item.name, _arrow_type(item.type, target.dataType), target.nullable)
                    for item, target in zip(fields, expected.fields, strict=True)
                ]
            )
        case Array(element, _), T.ArrayType():
            inner = _arrow_type(element, expected.elementType)
            return pa.list_(pa.field("element", inner, expected.containsNull))
        case Map(key, value, _), T.MapType():
            item = _arrow_type(value, expected.valueType)
            nullable = expected.valueContainsNull
            return pa.map_(_arrow_type(key, expected.keyType), pa.field("value", item, nullable))
        case _:
            return to_arrow_type(data_type)


def task_file(snapshot: Snapshot, add: Add, reach: Reach) -> StreamedFile:
    """Return the description by which tasks read a file.

    Raises as `Reach.url`, and CorruptTable for a bad partition value.
    """
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
    """Return where tasks find the positions that a deletion vector has; inline ones are copied."""
    if vector.storage_type == "i":
        return StoredVector(data=pack_positions(as_array(decode_inline(vector)).astype("int64")))
    path = reach.vector(vector)
    url = path if paths.is_absolute(path) else f"{reach.root}/{paths.encode_path(path)}"
    offset, _ = slice_range(vector)
    return StoredVector(url, offset, vector.size_in_bytes, vector.cardinality)


def feed_schema(snapshot: Snapshot) -> T.StructType:
    """Return the columns of a stream of the table's changes. Raises as `require_feed`."""
    require_feed(snapshot, snapshot.version)
    return stream_schema(as_derived(snapshot))


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """The plan by which tasks read a table's changes.

    Attributes:
        own: the table when the stream was started.
        options: storage options.
        spark_columns: the columns that Spark expects.
    """

    own: Snapshot
    options: Mapping[str, str] = field(repr=False)
    spark_columns: T.StructType | None = None

    def parts(
        self, told: Sequence[FeedFile], reach: Reach
    ) -> list[tuple[StreamTask, list[StreamedFile]]]:
        """Return the task and the files of each part of the changes, in order.

        Raises as `task_file`.
        """
        snapshots = {True: as_recorded(self.own), False: as_derived(self.own)}
        tasks = {
            is_recorded: stream_task(snapshot, self.options, self.spark_columns)
            for is_recorded, snapshot in snapshots.items()
        }
        parts = []
        for is_recorded, ones in groupby(told, key=lambda one: one.change_type is None):
            snapshot, task = snapshots[is_recorded], tasks[is_recorded]
            for part in task_partitions(list(ones), lambda one: one.file.size):
                parts.append((task, [_with_change(snapshot, one, reach) for one in part]))
        return parts


def _with_change(snapshot: Snapshot, told: FeedFile, reach: Reach) -> StreamedFile:
    """Return the description of a file's changes: the file, with only the changed rows."""
    file = task_file(snapshot, with_feed_columns(told), reach)
    if told.only is None:
        return file
    positions = pack_positions(as_array(told.only).astype("int64"))
    return replace(file, vector=None, only=StoredVector(data=positions))


def task_partitions(files: Sequence[File], size_of: Callable[[File], int]) -> list[list[File]]:
    """Divide the files among Spark's tasks, in order, up to 32 MiB for each.

    A larger file is a partition alone. `size_of` returns bytes.
    """
    parts: list[list[File]] = []
    size = 0
    for file in files:
        if not parts or size + size_of(file) > _PARTITION_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += size_of(file)
    return parts


def require_table_schema(schema: T.StructType, own: T.StructType, table: str) -> None:
    """Raise InvalidRequest unless Spark expects exactly the columns that the table has now."""
    if _schema_text(schema) != _schema_text(own):
        raise InvalidRequest(
            f"{table}: the stream was made with the columns {_schema_text(schema)}, and the "
            f"table has {_schema_text(own)}: its schema changed since, or schema(...) was given, "
            "which a stream of a table doesn't take. Make the stream anew, without schema(...)"
        )


def _schema_text(schema: T.StructType) -> str:
    return re.sub(r"\s+", " ", schema.simpleString())
