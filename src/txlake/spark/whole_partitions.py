"""The files of whole partitions: those that a condition over partition columns names.

Owns conditions that the log can't decide by itself, `p = CAST('1' AS INT)` or `upper(p) = 'A'`:
Spark evaluates them, once for each partition.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.errors import InvalidRequest
from txlake.local.char_types import length_metadata
from txlake.local.types import quote, visible_metadata
from txlake.local.writing import partition_fields
from txlake.log.partitions import partition_texts
from txlake.log.predicates import Predicate, columns_of
from txlake.log.skipping import is_partition_only
from txlake.protocol.partition_values import parse_column
from txlake.spark.bounded_text import padded_text
from txlake.spark.spark_errors import translating
from txlake.spark.spark_sessions import create_frame
from txlake.spark.table_access import TableAccess
from txlake.spark.types import spark_type
from txlake.sql.statements import Expression, NativeColumn, condition_text

_PARTITION = "__txlake_partition"


@translating
def files_of_partitions(work: TableAccess, where: Expression | None) -> pa.Table:
    """Return the files of the partitions for which the condition is true, in FILES_SCHEMA.

    All files without a condition. Raises InvalidRequest for a condition on other columns, one with
    a query in it, and one given as a Spark Column.
    """
    predicate = work.predicate(where, None)
    files = work.snapshot.select(predicate)
    if where is None or predicate is None:
        return files
    if is_partition_only(predicate, work.snapshot.partition_columns):
        return files
    _check(work, where, predicate)
    partitions, of_files = _partitions(work, files)
    found = work.qualified(partitions, None).where(work.column_of(where)).select(_PARTITION)
    numbers = [row[0] for row in found.collect()]
    return files.filter(pa.array(np.isin(of_files, numbers)))


def _check(work: TableAccess, where: Expression, predicate: Predicate) -> None:
    """Raise InvalidRequest for a condition on other columns than partition columns, with a query,
    or given as a Spark Column.
    """
    partition_columns = work.snapshot.partition_columns
    known = {name.lower() for name in partition_columns}
    named = (".".join(path) for path in sorted(columns_of(predicate)))
    other = next((name for name in named if name.lower() not in known), None)
    if other is not None:
        found = f"Predicate references non-partition column '{other}'"
    elif isinstance(where, NativeColumn) or where.references:
        found = "it has a query in it"
    else:
        return
    raise InvalidRequest(
        f"{work.snapshot.table}: OPTIMIZE WHERE {condition_text(where)}: {found}. Only the "
        f"partition columns may be referenced: [{', '.join(partition_columns)}]"
    )


def _partitions(work: TableAccess, files: pa.Table) -> tuple[DataFrame, np.ndarray]:
    """Return a row for each partition of the files, numbered, and each file's partition number.

    The rows have the partition columns as a scan gives them.
    """
    fields = partition_fields(work.snapshot)
    texts = [partition_texts(files, item.physical_name).to_pylist() for item in fields]
    numbers: dict[tuple[str | None, ...], int] = {}
    keys = zip(*texts, strict=True) if texts else [()] * files.num_rows
    of_files = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    arrays: list[pa.Array] = [pa.array(range(len(numbers)), pa.int64())]
    schema = T.StructType([T.StructField(_PARTITION, T.LongType(), False)])
    for place, item in enumerate(fields):
        values = pa.array([key[place] for key in numbers], pa.string())
        arrays.append(parse_column(values, item.type))
        schema.add(item.name, spark_type(item.type))
    table = pa.Table.from_arrays(arrays, names=schema.names)
    frame = create_frame(work.spark, table, schema)
    shown = (
        padded_text(F.col(quote(item.name)), item).alias(
            item.name, metadata={**visible_metadata(item), **length_metadata(item)}
        )
        for item in fields
    )
    return frame.select(_PARTITION, *shown), of_files
