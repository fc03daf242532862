"""A snapshot's rows as a DataFrame: logical columns, live rows, positions and row ids when asked.

Owns how a scan is put together of branches of files that are read alike. Which files are read is
decided before (`Snapshot.select`); how files become rows is `reading`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.datafiles.vectors import ExternalVectors, load_vectors
from txlake.local.char_types import length_metadata
from txlake.local.control_columns import FILE, ROW, ROW_ID, ROW_VERSION
from txlake.local.types import quote, visible_metadata
from txlake.log.files import adds_of
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.actions import Add
from txlake.protocol.collations import collated_columns, collated_type
from txlake.protocol.reach import Reach
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.types import Field, Primitive, Struct
from txlake.settings import Settings
from txlake.spark.bounded_text import padded_text
from txlake.spark.log_columns import BASE_ID, BASE_VERSION, FileValues, broadcast_bytes, live_rows
from txlake.spark.manifest import Manifests
from txlake.spark.prefilters import prefilters
from txlake.spark.pushdown import FilterSafety, Unfiltered
from txlake.spark.reading import (
    Reading,
    bucket_of,
    decoded_rows,
    find_columns_by_id,
    folders_agree,
    has_client,
    many_small_files,
    native_rows,
    needs_decoding,
    small_rows,
)
from txlake.spark.spark_sessions import is_connect
from txlake.spark.types import spark_type, type_sql


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read of a table.

    Attributes:
        reach: where the files may lie.
        files: the files, as `Snapshot.select` gives them; a file's ordinal is its place here.
        storage_options: for what the executors read by themselves.
        positions: add FILE (ordinal) and ROW (physical position) to each row.
        row_ids: add ROW_ID and ROW_VERSION, for tables with row tracking.
        deleted: deleted positions that stand for the files' own vectors, by ordinal.
        where: a bound predicate; rows of which it isn't true may be left out.
        file_metadata: add `_metadata`, what Spark tells of the file that a row is in.
        together: the names in the query, as in `TableData.scan`; None if Spark has to know the file
            of each row, or all columns.
    """

    snapshot: Snapshot
    store: Store
    reach: Reach
    files: pa.Table
    settings: Settings
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    positions: bool = False
    row_ids: bool = False
    deleted: Mapping[int, BitMap64] = field(default_factory=dict)
    where: Predicate | None = None
    file_metadata: bool = False
    together: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    """All rows of a snapshot. `names`: its columns as the JVM has them, since each costs a call."""

    settings: Settings
    frame: DataFrame
    names: Any

    def again(self) -> DataFrame:
        """Return the plan with new column ids, so that it can be joined with itself."""
        frame: Any = self.frame
        renamed = frame._jdf.toDF(self.names)
        own: DataFrame = type(frame)(renamed, frame.sparkSession)
        return own


FILE_METADATA = "_metadata"
# By what `_read_together` returns.
_WHOLE: WeakKeyDictionary[Snapshot, dict[tuple[str, ...] | None, _CachedPlan]] = WeakKeyDictionary()
_PLANS_MAX = 8


def scan_frame(spark: SparkSession, manifests: Manifests, scan: Scan) -> DataFrame:
    """Return the rows: the columns by logical name in schema order, then the requested ones.

    Files without deletion vectors are read without looking for deleted rows. All rows of a snapshot
    are planned once; a later call gets the same plan with columns of its own.
    """
    snapshot = scan.snapshot
    if snapshot.column_mapping_mode == "id":
        find_columns_by_id(spark)
    whole = scan.files.num_rows == len(snapshot.files) and not scan.file_metadata
    if not whole or scan.positions or scan.deleted or scan.where or is_connect(spark):
        return _planned(spark, manifests, scan)
    columns = _read_together(scan)
    plans = _WHOLE.setdefault(snapshot, {})
    known = plans.get(columns)
    if known is not None and known.frame.sparkSession is spark and known.settings == scan.settings:
        return known.again()
    frame = _planned(spark, manifests, scan)
    classic: Any = frame
    names = classic._jseq(snapshot.schema.names if columns is None else columns)
    if len(plans) >= _PLANS_MAX:
        plans.clear()
    plans[columns] = _CachedPlan(scan.settings, frame, names)
    return frame


def _planned(spark: SparkSession, manifests: Manifests, scan: Scan) -> DataFrame:
    """Return the rows of the scan, a union of branches of files that are read alike.

    Rows aren't in the order of the files.
    """
    columns = _read_together(scan)
    if columns is not None:
        return _small_files(spark, manifests, scan, columns)
    branches: dict[tuple[bool, bool, Unfiltered], dict[int, Add]] = {}
    safety = FilterSafety(scan.snapshot, scan.files)
    bucket = bucket_of(scan.store.url)
    decode = bucket is not None and not has_client(spark, bucket)
    for ordinal, add in enumerate(adds_of(scan.files)):
        has_deleted = add.deletion_vector is not None or ordinal in scan.deleted
        is_decoded = decode or needs_decoding(scan.snapshot, add)
        unfiltered = Unfiltered() if is_decoded else safety.unfiltered(ordinal, add)
        branches.setdefault((has_deleted, is_decoded, unfiltered), {})[ordinal] = add
    if not branches:
        branches[False, False, Unfiltered()] = {}
    frames = [
        _branch(
            spark,
            manifests,
            scan,
            branches[kind],
            has_deleted=kind[0],
            decode=kind[1],
            unfiltered=kind[2],
            options=safety.options,
        )
        for kind in sorted(branches)
    ]
    if scan.file_metadata:  # a union doesn't tell it
        names = [F.col(quote(name)) for name in scan.snapshot.schema.names]
        told = _file_metadata(with_row_ids=scan.row_ids)
        frames = [frame.select(*names, told) for frame in frames]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionAll(other)
    return frame


def _read_together(scan: Scan) -> tuple[str, ...] | None:
    """Return the columns that pyarrow reads of the scan's files, as `many_small_files` says, at
    least one; None if they are read one by one.
    """
    names, snapshot = scan.together, scan.snapshot
    if names is None or scan.positions or scan.row_ids or scan.deleted or scan.file_metadata:
        return None
    if not many_small_files(snapshot, scan.store, scan.files):
        return None
    if "*" in names:
        return snapshot.schema.names
    named = tuple(name for name in snapshot.schema.names if name.lower() in names)
    return named or snapshot.schema.names[:1]


def _small_files(
    spark: SparkSession, manifests: Manifests, scan: Scan, names: Sequence[str]
) -> DataFrame:
    """Return these columns of many small files, as pyarrow reads them in Spark's tasks."""
    reading = Reading(
        spark=spark,
        manifests=manifests,
        snapshot=scan.snapshot,
        store=scan.store,
        reach=scan.reach,
        storage_options=scan.storage_options,
        files=dict(enumerate(adds_of(scan.files))),
    )
    every = zip(scan.snapshot.schema.names, _columns(scan), strict=True)
    others = [name for name in scan.snapshot.schema.names if name not in names]
    return small_rows(reading, others).select(*(one for name, one in every if name in names))


def _file_metadata(*, with_row_ids: bool) -> Column:
    """Return the column `_metadata` as Spark has it, with row ids as Delta Spark has them."""
    if not with_row_ids:
        return F.col(FILE_METADATA)
    ids = [F.col(ROW_ID).alias("row_id"), F.col(ROW_VERSION).alias("row_commit_version")]
    return F.struct(F.col(f"{FILE_METADATA}.*"), *ids).alias(FILE_METADATA)


def _branch(
    spark: SparkSession,
    manifests: Manifests,
    scan: Scan,
    files: Mapping[int, Add],
    *,
    has_deleted: bool,
    decode: bool,
    unfiltered: Unfiltered,
    options: Mapping[str, str],
) -> DataFrame:
    """Return the rows of files that are read alike, with the columns of the scan.

    `files` are by ordinal in the scan. `has_deleted`: they have deleted rows. `decode`: they are
    read by pyarrow, not by Spark's reader.
    """
    snapshot = scan.snapshot
    partitions = [item for item in snapshot.schema if item.name in snapshot.partition_columns]
    by_folder = not decode and folders_agree(snapshot, scan.store, files.values(), partitions)
    partitions_from_log = [] if by_folder else partitions
    reading = Reading(
        spark=spark,
        manifests=manifests,
        snapshot=snapshot,
        store=scan.store,
        reach=scan.reach,
        storage_options=scan.storage_options,
        files=files,
        partitions_from_log=tuple(item.name for item in partitions_from_log),
        row_id_columns=_materialized(snapshot) if scan.row_ids else (),
        file_metadata=scan.file_metadata,
        unfiltered=unfiltered,
        options=options,
    )
    positions = bool(partitions_from_log) or has_deleted or scan.row_ids or scan.positions
    frame = decoded_rows(reading) if decode else native_rows(reading, positions=positions)
    columns = _columns(scan)
    as_they_are = not (positions or decode or partitions)
    if as_they_are and all(isinstance(column, str) for column in columns):
        return frame
    file_values = FileValues(files)
    for item in partitions_from_log:
        file_values.add_partition_value(item)
    if scan.row_ids:
        file_values.add_row_ids()
    if has_deleted and scan.where is not None:
        for condition in prefilters(scan.where, reading.columns(snapshot.partition_columns)):
            frame = frame.where(condition)
    if has_deleted and broadcast_bytes(files.values()) > scan.settings.broadcast_vector_bytes_max:
        frame = live_rows(frame, scan.store, scan.reach, files, scan.deleted, scan.storage_options)
    elif has_deleted:
        file_values.exclude(_deleted(scan, files))
    return file_values.join(spark, frame).select(*columns)


def _deleted(scan: Scan, files: Mapping[int, Add]) -> dict[int, BitMap64]:
    """Return the deleted positions by ordinal, those of the scan before the files' own vectors."""
    own = (
        (ordinal, add.deletion_vector)
        for ordinal, add in files.items()
        if add.deletion_vector is not None and ordinal not in scan.deleted
    )
    external_vectors = ExternalVectors.by_options(scan.reach, scan.storage_options)
    return {**load_vectors(scan.store, own, external_vectors), **scan.deleted}


def _materialized(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names in files of the row id and commit version columns, in this order.

    A column without a name in the table's properties is left out.
    """
    properties = snapshot.properties
    names = (
        properties.materialized_row_id_column,
        properties.materialized_row_commit_version_column,
    )
    return tuple(name for name in names if name is not None)


def _columns(scan: Scan) -> list[Column | str]:
    """Return the rows' columns from the files'; an unchanged column by its name alone."""
    columns: list[Column | str] = []
    with_collation = collated_columns(scan.snapshot.schema)
    for item in scan.snapshot.schema:
        if item.type == Primitive("void"):
            columns.append(F.lit(None).cast("void").alias(item.name))
            continue
        physical = quote(item.physical_name)
        metadata = {**visible_metadata(item), **length_metadata(item)}
        renamed = not isinstance(item.type, Primitive) and (
            spark_type(item.type) != spark_type(item.type, physical=True)
        )
        collated = item.name in with_collation
        if item.name == item.physical_name and not renamed and not metadata and not collated:
            columns.append(physical)
            continue
        value = F.col(physical)
        if collated:
            value = value.cast(_collated_text(item))  # the same values, compared otherwise
        elif renamed:
            value = value.cast(spark_type(item.type))
        columns.append(padded_text(value, item).alias(item.name, metadata=metadata))
    if scan.positions:
        columns += [FILE, ROW]
    if scan.row_ids:
        properties = scan.snapshot.properties
        columns += [
            _tracked(properties.materialized_row_id_column, F.col(BASE_ID) + F.col(ROW), ROW_ID),
            _tracked(
                properties.materialized_row_commit_version_column,
                F.col(BASE_VERSION),
                ROW_VERSION,
            ),
        ]
    return columns


def _collated_text(item: Field) -> str:
    """Return the column's type with its collations, as text for a cast."""
    (plain,) = as_table_schema(Struct((replace(item, type=collated_type(item)),)))
    return type_sql(spark_type(plain.type))


def _tracked(materialized: str | None, default: Column, name: str) -> Column:
    """Return a row's stored id or version, or else the default, under `name`."""
    value = default if materialized is None else F.coalesce(F.col(quote(materialized)), default)
    return value.alias(name)


def selected(files: pa.Table, ordinals: list[int]) -> pa.Table:
    """Return some of a scan's files, in the order of `ordinals`."""
    return files.take(pa.array(ordinals, pa.int64()))
