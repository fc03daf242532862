"""A snapshot's rows as a DataFrame, read by manifest.

Owns: physical columns, partition values, deletion vectors, positions and row ids of a scan. Which
files are read is decided before (`Snapshot.select`); what is done with the rows, after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Add
from txlake.protocol.partition_values import parse_column
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field, Primitive, Struct
from txlake.spark.manifest import Manifests
from txlake.spark.types import spark_schema, spark_type, visible_metadata
from txlake.spark.vectors import as_words, load_vectors

FILE = "__txlake_file"
ROW = "__txlake_row"
ROW_ID = "__txlake_row_id"
ROW_VERSION = "__txlake_row_version"
_WORDS = "__txlake_deleted"
_BASE_ID = "__txlake_base_id"
_BASE_VERSION = "__txlake_base_version"
_SCHEMES = {"s3": "s3a", "gs": "gs", "az": "abfss"}
# Types whose text in a folder name Spark reads as the log means it.
_FOLDER_TYPES = frozenset({"string", "byte", "short", "integer", "long", "date"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read of a table.

    Attributes:
        files: the files, as `Snapshot.select` gives them; a file's ordinal is its place here.
        positions: add FILE (ordinal) and ROW (physical position) to each row.
        row_ids: add ROW_ID and ROW_VERSION, for tables with row tracking.
        deleted: deletion vectors that stand for the files' own, by ordinal.
    """

    snapshot: Snapshot
    store: Store
    files: pa.Table
    positions: bool = False
    row_ids: bool = False
    deleted: Mapping[int, BitMap64] | None = None


def scan_frame(spark: SparkSession, manifests: Manifests, scan: Scan) -> DataFrame:
    """The rows: the table's columns by logical name in schema order, then what was asked for.

    Files without deletion vectors are read without looking for deleted rows.
    """
    adds = adds_of(scan.files)
    deleted = _deleted(scan, adds)
    plain = [ordinal for ordinal in range(len(adds)) if ordinal not in deleted]
    branches = []
    if plain or not deleted:
        branches.append(_branch(spark, manifests, scan, adds, plain, {}))
    if deleted:
        branches.append(_branch(spark, manifests, scan, adds, sorted(deleted), deleted))
    frame = branches[0]
    for other in branches[1:]:
        frame = frame.unionAll(other)
    return frame


def _deleted(scan: Scan, adds: list[Add]) -> dict[int, BitMap64]:
    given = dict(scan.deleted or {})
    own = (
        (ordinal, add.deletion_vector)
        for ordinal, add in enumerate(adds)
        if add.deletion_vector is not None and ordinal not in given
    )
    return {**load_vectors(scan.store, own), **given}


def _branch(
    spark: SparkSession,
    manifests: Manifests,
    scan: Scan,
    adds: list[Add],
    ordinals: list[int],
    deleted: Mapping[int, BitMap64],
) -> DataFrame:
    schema = scan.snapshot.schema
    partitions = [item for item in schema if item.name in scan.snapshot.partition_columns]
    by_folder = _folders_agree(scan, [adds[i] for i in ordinals], partitions)
    looked_up = [] if by_folder else partitions
    frame = _read(spark, manifests, scan, adds, ordinals, looked_up)
    needs_lookup = bool(looked_up) or bool(deleted) or scan.row_ids
    if needs_lookup or scan.positions:
        metadata = frame.metadataColumn("_metadata")
        frame = frame.select(
            "*",
            F.unix_millis(metadata.getField("file_modification_time")).alias(FILE),
            metadata.getField("row_index").alias(ROW),
        )
    if needs_lookup:
        frame = _with_lookup(spark, scan, frame, adds, ordinals, looked_up, deleted)
    return frame.select(*_columns(scan, frame))


def _read(
    spark: SparkSession,
    manifests: Manifests,
    scan: Scan,
    adds: list[Add],
    ordinals: list[int],
    looked_up: list[Field],
) -> DataFrame:
    snapshot = scan.snapshot
    skipped = {item.name for item in looked_up}
    read = Struct(
        tuple(
            item
            for item in snapshot.schema
            if item.name not in skipped and item.type != Primitive("void")
        )
    )
    spark_read = spark_schema(read, physical=True)
    if snapshot.properties.column_mapping_mode == "id":
        spark_read = _with_field_ids(spark, read, spark_read)
    if scan.row_ids:
        for name in _materialized(snapshot):
            spark_read = spark_read.add(name, T.LongType())
    url = manifests.write(
        (i, spark_url(paths.absolute_url(scan.store.url, adds[i].path)), adds[i].size)
        for i in ordinals
    )
    reader = spark.read.schema(spark_read)
    if looked_up or not snapshot.partition_columns:
        reader = reader.option("recursiveFileLookup", "true")
    frame = reader.parquet(url)
    if not is_connect(spark):
        manifests.drop(url)
    return frame


def _with_field_ids(spark: SparkSession, read: Struct, schema: T.StructType) -> T.StructType:
    """The same schema with the ids by which Spark finds columns in the files."""
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    spark.conf.set("spark.sql.parquet.fieldId.read.ignoreMissing", "true")
    return T.StructType(
        [
            T.StructField(
                found.name,
                found.dataType,
                found.nullable,
                {} if item.column_id is None else {"parquet.field.id": item.column_id},
            )
            for item, found in zip(read, schema, strict=True)
        ]
    )


def _materialized(snapshot: Snapshot) -> tuple[str, ...]:
    properties = snapshot.properties
    names = (
        properties.materialized_row_id_column,
        properties.materialized_row_commit_version_column,
    )
    return tuple(name for name in names if name is not None)


def _folders_agree(scan: Scan, adds: list[Add], partitions: list[Field]) -> bool:
    """Whether every file's folders say exactly what the log says, so that Spark may read them."""
    if not partitions:
        return True
    root = paths.decode_path(scan.store.url)
    if "=" in root or any(
        not isinstance(item.type, Primitive) or item.type.name not in _FOLDER_TYPES
        for item in partitions
    ):
        return False
    by_name = {item.name: item.physical_name for item in partitions}
    ordered = [by_name[name] for name in scan.snapshot.partition_columns]
    for add in adds:
        if paths.is_absolute(add.path):
            return False
        values = [(name, add.partition_values.get(name) or None) for name in ordered]
        folder = paths.decode_path(add.path).rpartition("/")[0]
        if folder != paths.partition_folder(values):
            return False
    return True


def _with_lookup(
    spark: SparkSession,
    scan: Scan,
    frame: DataFrame,
    adds: list[Add],
    ordinals: list[int],
    looked_up: list[Field],
    deleted: Mapping[int, BitMap64],
) -> DataFrame:
    """Joins what only the log knows of each file, by the file's ordinal."""
    key = "__txlake_key"
    arrays: list[pa.Array] = [pa.array(ordinals, pa.int64())]
    fields = [T.StructField(key, T.LongType(), False)]
    for item in looked_up:
        texts = pa.array(
            [adds[i].partition_values.get(item.physical_name) for i in ordinals], pa.string()
        )
        arrays.append(parse_column(texts, item.type))
        fields.append(T.StructField(item.physical_name, spark_type(item.type)))
    if scan.row_ids:
        for name, values in (
            (_BASE_ID, [adds[i].base_row_id for i in ordinals]),
            (_BASE_VERSION, [adds[i].default_row_commit_version for i in ordinals]),
        ):
            arrays.append(pa.array(values, pa.int64()))
            fields.append(T.StructField(name, T.LongType()))
    if deleted:
        words = pa.array([as_words(deleted[i]) for i in ordinals], pa.list_(pa.int64()))
        arrays.append(words)
        fields.append(T.StructField(_WORDS, T.ArrayType(T.LongType(), False)))
    table = pa.Table.from_arrays(arrays, names=[item.name for item in fields])
    lookup = F.broadcast(spark.createDataFrame(table, T.StructType(fields)))
    frame = frame.join(lookup, frame[FILE] == lookup[key], "inner")
    if deleted:
        word = f"get({_WORDS}, CAST(shiftright({ROW}, 6) AS INT))"
        bit = F.expr(f"shiftright({word}, CAST({ROW} & 63 AS INT)) & 1")
        frame = frame.where(F.coalesce(bit, F.lit(0)) == 0)
    return frame


def _columns(scan: Scan, frame: DataFrame) -> list[Column]:
    columns = []
    for item in scan.snapshot.schema:
        if item.type == Primitive("void"):
            columns.append(F.lit(None).cast("void").alias(item.name))
            continue
        value = F.col(quote(item.physical_name))
        if not isinstance(item.type, Primitive) and spark_type(item.type) != spark_type(
            item.type, physical=True
        ):
            value = value.cast(spark_type(item.type))
        columns.append(value.alias(item.name, metadata=visible_metadata(item)))
    if scan.positions:
        columns += [F.col(FILE), F.col(ROW)]
    if scan.row_ids:
        properties = scan.snapshot.properties
        columns += [
            _tracked(properties.materialized_row_id_column, F.col(_BASE_ID) + F.col(ROW), ROW_ID),
            _tracked(
                properties.materialized_row_commit_version_column,
                F.col(_BASE_VERSION),
                ROW_VERSION,
            ),
        ]
    return columns


def _tracked(materialized: str | None, default: Column, name: str) -> Column:
    value = default if materialized is None else F.coalesce(F.col(quote(materialized)), default)
    return value.alias(name)


def selected(files: pa.Table, ordinals: list[int]) -> pa.Table:
    """Some of a scan's files, in the order given."""
    return files.take(pa.array(ordinals, pa.int64()))


def add_rows(add: Add) -> int | None:
    """A file's live rows by its statistics and its vector; None when it has no statistics."""
    count = FileStatistics.from_json(add.stats).num_records
    if count is None:
        return None
    vector = add.deletion_vector
    return count - (0 if vector is None else vector.cardinality)


def quote(name: str) -> str:
    """A column name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def spark_url(url: str) -> str:
    """The URL that Hadoop's file systems know for a store's URL."""
    scheme, separator, rest = url.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
