"""What only the log knows of a file, joined to its rows by the file's ordinal.

Owns partition values that no folder tells, base row ids, and the filter that leaves deleted rows
out: by broadcast bits, or, where those would be too many, by vectors that the executors read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.deletion_vectors import (
    decode_bitmap,
    decode_inline,
    encode_bitmap,
    read_from_file,
    vector_path,
)
from txlake.protocol.partition_values import parse_column
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field
from txlake.spark.executor_reads import LiveRows, StoredVector
from txlake.spark.memory import task_url
from txlake.spark.reading import FILE, ROW
from txlake.spark.shipping import travelling
from txlake.spark.types import spark_type
from txlake.spark.vectors import as_array

BASE_ID = "__txlake_base_id"
BASE_VERSION = "__txlake_base_version"
_KEY = "__txlake_key"
_WORDS = "__txlake_deleted"
_ROWS_UNKNOWN = 1_000_000


class Lookup:
    """Columns by file ordinal, collected one after the other and joined at once."""

    def __init__(self, files: Mapping[int, Add]) -> None:
        self._files = files
        self._arrays: list[pa.Array] = [pa.array(files, pa.int64())]
        self._fields = [T.StructField(_KEY, T.LongType(), False)]
        self._has_words = False

    def partition_value(self, item: Field) -> None:
        """The values of a partition column, by its physical name."""
        values = [add.partition_values.get(item.physical_name) for add in self._files.values()]
        self._arrays.append(parse_column(pa.array(values, pa.string()), item.type))
        self._fields.append(T.StructField(item.physical_name, spark_type(item.type)))

    def row_ids(self) -> None:
        """BASE_ID and BASE_VERSION."""
        adds = self._files.values()
        for name, values in (
            (BASE_ID, [add.base_row_id for add in adds]),
            (BASE_VERSION, [add.default_row_commit_version for add in adds]),
        ):
            self._arrays.append(pa.array(values, pa.int64()))
            self._fields.append(T.StructField(name, T.LongType()))

    def deleted(self, bitmaps: Mapping[int, BitMap64]) -> None:
        """Leaves these positions out when the rows are joined."""
        words = [_words(bitmaps[ordinal]) for ordinal in self._files]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in words])]).astype(np.int32)
        values = np.concatenate(words) if words else np.empty(0, np.int64)
        self._arrays.append(pa.ListArray.from_arrays(offsets, pa.array(values, pa.int64())))
        self._fields.append(T.StructField(_WORDS, T.ArrayType(T.LongType(), False)))
        self._has_words = True

    def joined(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        """The rows with the columns collected."""
        if len(self._fields) == 1:
            return frame
        table = pa.Table.from_arrays(self._arrays, names=[item.name for item in self._fields])
        lookup = F.broadcast(spark.createDataFrame(table, T.StructType(self._fields)))
        frame = frame.join(lookup, F.col(FILE) == F.col(_KEY), "inner")
        if self._has_words:
            word = f"get({_WORDS}, CAST(shiftright({ROW}, 6) AS INT))"
            bit = F.expr(f"shiftright({word}, CAST({ROW} & 63 AS INT)) & 1")
            frame = frame.where(F.coalesce(bit, F.lit(0)) == 0)
        return frame


def _words(bitmap: BitMap64) -> np.ndarray:
    """Packed bits as signed 64-bit words: bit `p & 63` of word `p >> 6` says that p is deleted."""
    positions = as_array(bitmap)
    bits = np.zeros((int(positions[-1]) // 64 + 1) * 64 if len(positions) else 64, dtype=bool)
    bits[positions] = True
    return np.packbits(bits, bitorder="little").view("<i8")


def broadcast_bytes(adds: Iterable[Add]) -> int:
    """About how many bytes the deleted positions of these files take when they are broadcast."""
    rows = (FileStatistics.from_json(add.stats).num_records for add in adds)
    return sum((_ROWS_UNKNOWN if count is None else count) // 8 for count in rows)


def live_rows(
    frame: DataFrame,
    store: Store,
    files: Mapping[int, Add],
    given: Mapping[int, BitMap64],
    options: Mapping[str, str],
) -> DataFrame:
    """The rows that aren't deleted, by vectors that the executors read themselves.

    `given`: positions that stand for the files' own vectors, by ordinal.
    """
    vectors = {}
    for ordinal, add in files.items():
        if ordinal in given:
            vectors[ordinal] = _held(given[ordinal])
        elif add.deletion_vector is not None:
            vectors[ordinal] = stored_vector(add.deletion_vector, store, frame.sparkSession)
    task = travelling(LiveRows(vectors, vector_decoder(), dict(options)))

    # PySpark 4.0 has no such function of Arrow's arrays; between them and these nothing is copied.
    def is_live(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        pairs = ((pa.array(files), pa.array(rows)) for files, rows in batches)
        for live in task(pairs):
            yield live.to_pandas()

    udf = pandas_udf(is_live, "boolean")  # type: ignore[call-overload]
    return frame.where(udf(F.col(FILE), F.col(ROW)))


def _held(bitmap: BitMap64) -> StoredVector:
    data = encode_bitmap(bitmap)
    return StoredVector("", 0, len(data), len(bitmap), data)


def stored_vector(vector: DeletionVector, store: Store, spark: SparkSession) -> StoredVector:
    """Where executors find a vector."""
    if vector.storage_type == "i":
        return _held(decode_inline(vector))
    path = vector_path(vector, store.url)
    url = path if paths.is_absolute(path) else f"{store.url}/{paths.encode_path(path)}"
    url = task_url(spark, store, url)
    return StoredVector(url, vector.offset or 0, vector.size_in_bytes, vector.cardinality)


# Nested, so that it travels with the job by value; and by name only functions that do too.
def vector_decoder() -> Callable[[bytes, StoredVector], BitMap64]:
    """How executors read the bytes of a vector that they found."""

    def decode(data: bytes, vector: StoredVector) -> BitMap64:
        if vector.data is not None:
            return decode_bitmap(data, file="deletion vector")
        return read_from_file(data, vector, file=vector.url)  # type: ignore[arg-type]

    return decode
