"""Rows that the driver holds, as frames of Spark."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from txlake.local.candidate_rows import (
    arrow_rows_at,
    extra_names,
    find_candidates,
    stored_fields,
)
from txlake.local.char_types import length_metadata
from txlake.local.choice import attempt
from txlake.local.types import visible_metadata
from txlake.local.writing import partition_fields
from txlake.log.predicates import Predicate
from txlake.protocol.collations import collated_columns
from txlake.protocol.types import from_arrow_schema
from txlake.spark.spark_sessions import create_frame
from txlake.spark.table_access import TableAccess
from txlake.spark.types import spark_schema, spark_type

_GROUP_BYTES_MAX = 128 * 1024 * 1024
_READ_ROWS_MAX = 1_000


def to_spark(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the rows as a Spark frame. Timestamps without a zone stay so.

    By default PySpark makes instants of them, which fails for times that the session's clocks skip.
    """
    if not any(pa.types.is_timestamp(item.type) and item.type.tz is None for item in table.schema):
        return create_frame(spark, table)
    return create_frame(spark, table, spark_schema(from_arrow_schema(table.schema)))


def rows_at(
    work: TableAccess, files: pa.Table, positions: Mapping[int, np.ndarray]
) -> DataFrame | None:
    """Return the rows of `arrow_rows_at` as a Spark frame; None if the driver can't read them
    exactly.

    An empty scan where there are no positions.
    """
    if not positions:
        return work.scan(files.slice(0, 0), positions=True)
    rows = attempt("rows", work, lambda: arrow_rows_at(work, files, positions))
    if rows is None:
        return None
    fields = [*_fields(work), *(T.StructField(name, T.LongType()) for name in extra_names(work))]
    return create_frame(work.spark, rows, T.StructType(fields))


def few_rows(work: TableAccess, files: pa.Table, predicate: Predicate) -> DataFrame | None:
    """Return the live rows for which the predicate may hold as a Spark frame, if they are few.

    The frame has the columns of `TableAccess.scan`, without file metadata. None where
    `find_candidates` or `arrow_rows_at` declines (more than 1,000 rows), for collated columns, and
    for NOT NULL partition columns.
    """
    if collated_columns(work.snapshot.schema) or not all(
        item.nullable for item in partition_fields(work.snapshot)
    ):
        return None  # a scan's schema has collations, and NOT NULL of partition columns

    def read() -> pa.Table:
        """Return the rows as Arrow. Raises Declined where Spark has to read them."""
        later = stored_fields(work)
        candidates = find_candidates(
            work, files, predicate, _READ_ROWS_MAX, _GROUP_BYTES_MAX, later
        )
        rows = arrow_rows_at(work, files, candidates.positions)
        return rows.select(work.snapshot.schema.names)

    rows = attempt("scan", work, read)
    if rows is None:
        return None
    return create_frame(work.spark, rows, T.StructType(_fields(work)))


def _fields(work: TableAccess) -> list[T.StructField]:
    """Return the fields of a scan's frame, all nullable, with the metadata that Spark shows."""
    return [
        T.StructField(
            item.name,
            spark_type(item.type),
            True,
            {**visible_metadata(item), **length_metadata(item)},
        )
        for item in work.snapshot.schema
    ]
