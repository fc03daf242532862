"""Values that only the log has of a file, joined to its rows by the file's ordinal.

Owns partition values that no folder name tells, base row ids, and the filter for deleted rows: by
bits that are shipped with the tasks, by bits that are joined, or, where both would be too large, by
vectors that the executors read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.datafiles.live_rows import LiveRowFilter
from txlake.datafiles.stored_vectors import StoredVector, as_array
from txlake.local.control_columns import FILE, ROW
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.deletion_vectors import decode_inline, slice_range
from txlake.protocol.partition_values import parse_column
from txlake.protocol.reach import Reach
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field
from txlake.spark.memory_tables import task_url
from txlake.spark.shipping import travelling
from txlake.spark.spark_sessions import create_frame
from txlake.spark.types import spark_type

BASE_ID = "__txlake_base_id"
BASE_VERSION = "__txlake_base_version"
_KEY = "__txlake_key"
_WORDS = "__txlake_deleted"
_ROWS_UNKNOWN = 1_000_000
# A vector's bits are in chunks of 64 words of 64 bits; a chunk without a deleted row is empty.
_CHUNK_ROWS = 4096
_CHUNK_BYTES = _CHUNK_ROWS // 8
_SLOT_BYTES = 16  # of an empty chunk
_TRAVELLING_BYTES_MAX = 8 * 1024 * 1024
_BITS = T.ArrayType(T.ArrayType(T.LongType(), False), False)


class FileValues:
    """Columns by file ordinal, collected one by one and joined at once.

    `files` has the files by ordinal.
    """

    def __init__(self, files: Mapping[int, Add]) -> None:
        self._files = files
        self._arrays: list[pa.Array] = [pa.array(files, pa.int64())]
        self._fields = [T.StructField(_KEY, T.LongType(), False)]
        self._deleted: Mapping[int, BitMap64] | None = None

    def add_partition_value(self, item: Field) -> None:
        """Add the files' values of a partition column, under its physical name."""
        values = [add.partition_values.get(item.physical_name) for add in self._files.values()]
        parsed = parse_column(pa.array(values, pa.string()), item.type)
        nullable = item.nullable or parsed.null_count > 0
        self._arrays.append(parsed)
        self._fields.append(T.StructField(item.physical_name, spark_type(item.type), nullable))

    def add_row_ids(self) -> None:
        """Add BASE_ID and BASE_VERSION, the files' first row ids and default commit versions."""
        adds = self._files.values()
        for name, values in (
            (BASE_ID, [add.base_row_id for add in adds]),
            (BASE_VERSION, [add.default_row_commit_version for add in adds]),
        ):
            self._arrays.append(pa.array(values, pa.int64()))
            self._fields.append(T.StructField(name, T.LongType()))

    def exclude(self, bitmaps: Mapping[int, BitMap64]) -> None:
        """Leave these positions, by file ordinal, out of the rows that `join` returns."""
        self._deleted = bitmaps

    def join(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        """Return the rows with the collected columns, without the deleted rows.

        The frame has FILE, and ROW if positions are excluded. Call it once.
        """
        if self._deleted is None:
            return self._with_columns(spark, frame)
        words = _words(self._files, self._deleted)
        if words.nbytes > _TRAVELLING_BYTES_MAX:
            self._arrays.append(words.take(pa.array(self._files, pa.int64())))
            self._fields.append(T.StructField(_WORDS, _BITS))
            return _without_deleted(self._with_columns(spark, frame), _WORDS)
        # A subquery over the driver's rows runs no job; its value is shipped with the tasks.
        list_of_words = pa.ListArray.from_arrays(pa.array([0, len(words)], pa.int32()), words)
        words_frame = create_frame(
            spark,
            pa.table({_WORDS: list_of_words}),
            T.StructType([T.StructField(_WORDS, T.ArrayType(_BITS))]),
        )
        frame = self._with_columns(spark, frame).withColumn(_WORDS, words_frame.scalar())
        return _without_deleted(frame, f"get({_WORDS}, CAST({FILE} AS INT))")

    def _with_columns(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        """Return the rows with the collected columns, by a broadcast join that drops rows of other
        files.

        Without collected columns the frame is returned as it is, with all of its rows.
        """
        if len(self._fields) == 1:
            return frame
        table = pa.Table.from_arrays(self._arrays, names=[item.name for item in self._fields])
        lookup = F.broadcast(create_frame(spark, table, T.StructType(self._fields)))
        return frame.join(lookup, F.col(FILE) == F.col(_KEY), "inner")


def _without_deleted(frame: DataFrame, chunks: str) -> DataFrame:
    """Return the rows whose bit isn't set.

    `chunks`: the expression for the chunks of a row's file.
    """
    chunk = f"get({chunks}, CAST(shiftright({ROW}, 12) AS INT))"
    word = f"get({chunk}, CAST(shiftright({ROW}, 6) & 63 AS INT))"
    return frame.where(f"coalesce(shiftright({word}, CAST({ROW} & 63 AS INT)) & 1, 0) = 0")


def _words(files: Iterable[int], bitmaps: Mapping[int, BitMap64]) -> pa.ListArray:
    """Return packed bits by file ordinal: chunks of signed 64-bit words.

    A chunk without a deleted row is empty. Bit `p & 63` of word `p >> 6 & 63` of chunk `p >> 12`
    says that position p is deleted.
    """
    words: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    slots = np.zeros(max(files, default=-1) + 1, np.int64)
    for ordinal in range(len(slots)):
        positions = as_array(bitmaps.get(ordinal, BitMap64())).astype(np.int64)
        if len(positions):
            chunk = positions // _CHUNK_ROWS
            starts = np.diff(chunk, prepend=-1) > 0
            places = np.cumsum(starts) - 1
            bits = np.zeros((int(places[-1]) + 1) * _CHUNK_ROWS, dtype=bool)
            bits[places * _CHUNK_ROWS + positions % _CHUNK_ROWS] = True
            words.append(np.packbits(bits, bitorder="little").view("<i8"))
            length = np.zeros(int(chunk[-1]) + 1, np.int64)
            length[chunk[starts]] = _CHUNK_ROWS // 64
            lengths.append(length)
            slots[ordinal] = len(length)
    values = np.concatenate(words) if words else np.empty(0, np.int64)
    chunks = pa.ListArray.from_arrays(
        _offsets(np.concatenate(lengths) if lengths else np.empty(0, np.int64)),
        pa.array(values, pa.int64()),
    )
    return pa.ListArray.from_arrays(_offsets(slots), chunks)


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def broadcast_bytes(adds: Iterable[Add]) -> int:
    """Return about how many bytes the deleted positions of these files take when broadcast.

    A file without a vector counts as if all its rows were deleted, one whose statistics don't count
    rows as if it had 1,000,000.
    """
    total = 0
    for add in adds:
        count = FileStatistics.from_json(add.stats).num_records
        rows = _ROWS_UNKNOWN if count is None else count
        deleted = rows if add.deletion_vector is None else add.deletion_vector.cardinality
        chunks = rows // _CHUNK_ROWS + 1
        total += chunks * _SLOT_BYTES + min(deleted, chunks) * _CHUNK_BYTES
    return total


def live_rows(
    frame: DataFrame,
    store: Store,
    reach: Reach,
    files: Mapping[int, Add],
    replacements: Mapping[int, BitMap64],
    options: Mapping[str, str],
) -> DataFrame:
    """Return the rows that aren't deleted, by vectors that the executors read themselves.

    `replacements`: positions that replace the files' own vectors, by ordinal. `options` are those
    of the table's store.
    """
    vectors = {}
    for ordinal, add in files.items():
        if ordinal in replacements:
            vectors[ordinal] = StoredVector.packed(replacements[ordinal])
        elif add.deletion_vector is not None:
            vectors[ordinal] = stored_vector(add.deletion_vector, store, reach, frame.sparkSession)
    import pandas as pd  # here, because most processes need neither import
    from pyspark.sql.pandas.functions import pandas_udf

    task = travelling(frame.sparkSession, LiveRowFilter(vectors, dict(options)))

    # PySpark 4.0 has no such function of Arrow arrays; pandas shares the numbers without a copy.
    def is_live(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        """Yield for each batch of (file, row) whether each row is live."""
        pairs = ((pa.array(files), pa.array(rows)) for files, rows in batches)
        for live in task(pairs):
            yield live.to_pandas()

    # PySpark derives the kind of function from its types, and resolves their names in the module.
    series = Iterator[pd.Series]
    is_live.__annotations__ = {"batches": Iterator[tuple[pd.Series, pd.Series]], "return": series}
    udf = pandas_udf(is_live, "boolean")  # type: ignore[call-overload]
    return frame.where(udf(F.col(FILE), F.col(ROW)))


def stored_vector(
    vector: DeletionVector, store: Store, reach: Reach, spark: SparkSession
) -> StoredVector:
    """Return where executors find a vector; an inline one is shipped with its positions.

    Raises as `Reach.vector` and `task_url`.
    """
    if vector.storage_type == "i":
        return StoredVector.packed(decode_inline(vector))
    path = reach.vector(vector)
    url = path if paths.is_absolute(path) else f"{store.url}/{paths.encode_path(path)}"
    url = task_url(spark, store, url)
    offset, _ = slice_range(vector)
    return StoredVector(url, offset, vector.size_in_bytes, vector.cardinality)
